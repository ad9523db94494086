"""A server under a mixed load for as long as is asked: soak.py --minutes 30 MODEL [-- FLAGS OF tern serve]

Each of --clients threads sends requests of random kinds, one after the other: answers whole and streamed in several
dialects, sampled with a seed, clients that leave in the midst or read slowly, and wrong requests. What an answer must be
is taken first, with nothing beside it: a different one is a failure, since load changes no bit. The server's private
memory, descriptors and threads are printed each minute. Not a part of `make test`: run it by hand, with a real model.
"""

import argparse
import json
import os
import random
import socket
import sys
import threading
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from serving import Server  # noqa: E402

TEXTS = ("The sea at night", "Name three rivers.", "Count to ten: 1, 2,", "def sort(a):\n", "Once upon a time", "What is a cell? " * 20)
WRONG = (b"{", b'{"messages": 1}', b'{"messages": [], "stop": {}}', b"\xff\xfe", b'{"messages":' + b"[" * 2000, b'{"best_of": 3, "prompt": "a"}')


def requests(text, seed):
    """(path, body, what to compare of the answer) of each kind that has an answer."""
    said = [{"role": "user", "content": text}]
    few = {"max_tokens": 24}
    return (
        ("/v1/chat/completions", {"messages": said, **few, "temperature": 0}, lambda a: a["choices"][0]["message"]),
        ("/v1/chat/completions", {"messages": said, **few, "temperature": 0.8, "seed": seed, "n": 2}, lambda a: [c["message"] for c in a["choices"]]),
        ("/v1/completions", {"prompt": text, **few, "temperature": 0.7, "top_p": 0.9, "seed": seed}, lambda a: a["choices"][0]["text"]),
        ("/v1/messages", {"messages": said, **few, "temperature": 0}, lambda a: a["content"]),
        ("/api/chat", {"messages": said, "stream": False, "options": {"num_predict": 24, "temperature": 0}}, lambda a: a["message"]),
    )


def post(port, path, body, timeout=300):
    sock = socket.create_connection(("127.0.0.1", port), timeout=timeout)
    sock.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (path.encode(), len(body)) + body)
    return sock


class Load:
    def __init__(self, server):
        self.server, self.counts, self.failures = server, Counter(), []
        self.cases, self.stop = [], threading.Event()
        for n, text in enumerate(TEXTS):
            for path, body, part in requests(text, n + 1):
                status, answer, _ = server.ask(path, body)
                if status != 200:
                    raise SystemExit(f"{path}: {status} {answer}")
                self.cases.append((path, body, part, part(answer)))

    def whole(self, rng):
        path, body, part, want = rng.choice(self.cases)
        status, answer, _ = self.server.ask(path, body)
        if status in (429, 503):
            return "refused for now"
        if status != 200 or part(answer) != want:
            self.failures.append(f"{path} {body}: {status} {answer}, not {want}")
        return "whole"

    def streamed(self, rng):
        path, body, _, want = rng.choice([c for c in self.cases if c[0] == "/v1/chat/completions" and "n" not in c[1]])
        try:
            events = self.server.stream(path, body)
        except RuntimeError as e:
            if str(e)[:3] in ("429", "503"):
                return "refused for now"
            raise
        text = "".join(e["choices"][0]["delta"].get("content") or "" for e in events if e != "[DONE]" and e["choices"])
        if text != (want["content"] or "") or events[-1] != "[DONE]":
            self.failures.append(f"streamed {body}: {text!r}, not {want}")
        return "streamed"

    def leaving(self, rng):
        path, body, _, _ = rng.choice(self.cases)
        sock = post(self.server.port, path, json.dumps({**body, "stream": True}).encode())
        sock.recv(rng.choice((1, 200, 2000)))
        if rng.random() < 0.5:  # a reset in place of an orderly end
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.close()
        return "left"

    def slow(self, rng):
        path, body, _, _ = rng.choice(self.cases)
        sock = post(self.server.port, path, json.dumps({**body, "stream": True}).encode())
        while sock.recv(60) and not self.stop.is_set():
            time.sleep(0.05)
        sock.close()
        return "read slowly"

    def wrong(self, rng):
        sock = post(self.server.port, rng.choice(("/v1/chat/completions", "/v1/completions", "/v1/messages", "/nothing")), rng.choice(WRONG))
        answer = sock.recv(4096)
        sock.close()
        if not answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4")):
            self.failures.append(f"a wrong request: {answer[:200]!r}")
        return "wrong"

    def client(self, seed):
        rng = random.Random(seed)
        kinds = (self.whole, self.streamed, self.leaving, self.slow, self.wrong)
        while not self.stop.is_set():
            try:
                self.counts[rng.choices(kinds, (6, 6, 3, 1, 3))[0](rng)] += 1
            except Exception as e:  # whatever it is, the report has it
                self.failures.append(f"{type(e).__name__}: {e}")
                time.sleep(1)


def state(pid):
    """(private MB, descriptors, threads) of a process."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(lines["RssAnon"].split()[0]) // 1024, len(os.listdir(f"/proc/{pid}/fd")), int(lines["Threads"])


def main():
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("model")
    p.add_argument("--minutes", type=float, default=30)
    p.add_argument("--clients", type=int, default=8)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args(sys.argv[1:at])
    with Server(args.model, *sys.argv[at + 1 :]) as server:
        # what the server writes is read all the time, or it would wait for room in the pipe
        threading.Thread(target=lambda: [None for _ in server.process.stderr], daemon=True).start()
        load = Load(server)
        threads = [threading.Thread(target=load.client, args=(args.seed + i,), daemon=True) for i in range(args.clients)]
        for t in threads:
            t.start()
        start = time.monotonic()
        minute = 0
        while server.process.poll() is None and time.monotonic() < start + args.minutes * 60:
            if time.monotonic() >= start + minute * 60:
                print("minute %3d: %4d MB private, %3d descriptors, %2d threads, %s" % (minute, *state(server.process.pid), dict(load.counts)), flush=True)
                minute += 1
            time.sleep(0.2)
        load.stop.set()
        for t in threads:
            t.join(300)
        last = state(server.process.pid) if server.process.poll() is None else ()
        server.process.send_signal(15)
        status = server.status = server.process.wait(120)
    print(f"end: {last}, exit {status}; {sum(load.counts.values())} requests, {dict(load.counts)}; {len(load.failures)} failures")
    for line in load.failures[:20]:
        print("FAIL", line[:600])
    return 1 if load.failures or status else 0


sys.exit(main())
