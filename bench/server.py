"""tern serve beside another server, on the same weights, in one run: server.py --model CHECKPOINT,FILE.gguf [--peer NAME=BIN]

BIN is a llama-server built by whoever measures; both servers are asked through /v1/completions by the same client. Each
round starts every server anew, in turn (A, B, A, B), and takes from each: tokens/s of all answers together at 1, 4, 8 and
16 streams at once, and the time to the first text of a prompt that is new, and of one whose beginning is cached. Of tern
alone: a token's time beside `tern run`, and the memory of idle streams. Standard library only; bench/README.md has the
protocol. PREFIX.md and PREFIX.json are written at the end.
"""

import argparse
import concurrent.futures
import datetime
import http.client
import json
import os
import platform
import re
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STREAMS = (1, 4, 8, 16)
ANSWER = 96  # tokens of an answer at most
FIRST_WORDS = 500  # words of the prompt whose first token is waited for: about 512 tokens
IDLE = 200
WORDS = "river stone light garden window winter harbour letter copper silver morning shadow forest market engine".split()


def say(text):
    print(f"{datetime.datetime.now():%H:%M:%S} {text}", file=sys.stderr, flush=True)


def prompt(words, salt):
    """A text like no other prompt's from its first word on."""
    return f"Story number {salt}. " + " ".join(WORDS[(salt * 7 + i * (1 + salt % 5)) % len(WORDS)] for i in range(words)) + ". Once upon a time"


# ---- servers ----


class Server:
    def __init__(self, name, command):
        self.name = name
        self.port = free_port()
        self.process = subprocess.Popen([*map(str, command), "--port", str(self.port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 120
        while True:
            try:
                if self.get("/health") == 200:
                    return
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"{name} did not start: {' '.join(map(str, command))}")
            time.sleep(0.05)

    def get(self, path):
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        link.request("GET", path)
        return link.getresponse().status

    def stream(self, text, tokens):
        """(tokens, seconds to the first text, seconds in all, prompt tokens)"""
        body = {"prompt": text, "max_tokens": tokens, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        start, first, usage = time.monotonic(), None, None
        link.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        reply = link.getresponse()
        if reply.status != 200:
            raise SystemExit(f"{self.name}: {reply.status} {reply.read()[:300]}")
        for line in reply:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            usage = event.get("usage") or usage
            if first is None and any(choice.get("text") for choice in event["choices"]):
                first = time.monotonic() - start
        link.close()
        return usage["completion_tokens"], first, time.monotonic() - start, usage["prompt_tokens"]

    def stream_alone(self, text, tokens):
        """(events, seconds from the first of them to the last), of a client that costs as little as one can: on two cores
        whatever it does with an event comes off the server's time."""
        body = json.dumps({"prompt": text, "max_tokens": tokens, "temperature": 0, "stream": True}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        seen, first = [], None
        with socket.create_connection(("127.0.0.1", self.port), timeout=600) as link:
            link.sendall(head.encode() + body)
            while got := link.recv(1 << 16):
                first = first or (time.monotonic() if b"data: " in got else None)
                seen.append(got)
        return b"".join(seen).count(b'data: {'), time.monotonic() - first

    def memory_mb(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"RssAnon:\s+(\d+)", status)[1]) / 1024

    def end(self):
        self.process.terminate()
        self.process.wait()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def commands(a, checkpoint, gguf):
    base = [a.tern, "serve", checkpoint, "--backend", "cpu", "--threads", a.threads, "--ctx", 4096]
    found = {f"tern {mode}": [*base, "--numerics", mode] for mode in ("fast", "exact")}
    for peer in a.peer:
        name, binary = peer.split("=", 1)
        # A context that holds every stream, as tern's does; answers in as many slots as there are streams.
        found[name] = [binary, "-m", gguf, "-t", a.threads, "-c", 4096 * max(STREAMS), "-np", max(STREAMS), "--no-webui"]
    return found


# ---- what is measured ----


def together(server, n, salt):
    """Tokens/s of n answers at once."""
    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        start = time.monotonic()
        done = list(pool.map(lambda i: server.stream(prompt(20, salt + i), ANSWER), range(n)))
        return sum(d[0] for d in done) / (time.monotonic() - start)


def measure(server, salt):
    out = {}
    server.stream(prompt(20, salt), 8)  # warm
    for n in STREAMS:
        out[f"{n} at once, tokens/s"] = together(server, n, salt + 100 * n)
    text = prompt(FIRST_WORDS, salt + 1)
    _, out["first token of a new prompt, ms"], _, n = server.stream(text, 2)
    _, out["first token of the prompt again, ms"], _, _ = server.stream(text, 2)
    for name in ("first token of a new prompt, ms", "first token of the prompt again, ms"):
        out[name] *= 1e3
    return out, n


def overhead(a, checkpoint, rounds):
    """A token's time by the server over that of `tern run`, in turn; the answer is the same."""
    ratios, text = [], prompt(20, 5)
    for mode in ("fast", "exact"):
        flags = ["--backend", "cpu", "--threads", str(a.threads), "--numerics", mode]
        server = Server("tern", [a.tern, "serve", checkpoint, *flags])
        samples = []
        for _ in range(rounds):
            said = json.loads(subprocess.run([a.tern, "run", checkpoint, "--raw", "--json", "--max-tokens", "256", *flags, text], capture_output=True, check=True).stdout)
            run = said["timings"]["decode_ms"] / (said["usage"]["completion_tokens"] - 1)
            events, took = server.stream_alone(text, 256)
            samples.append(1e3 * took / (said["usage"]["completion_tokens"] - 1) / run)
            assert events > said["usage"]["completion_tokens"] // 2, "events were put together: the first is not the first token's"
        server.end()
        ratios.append((mode, statistics.median(samples), samples))
    return ratios


def idle(a, checkpoint):
    """MB that so many streams cost which wait for their turn."""
    server = Server("tern", [a.tern, "serve", checkpoint, "--backend", "cpu", "--threads", a.threads, "--decode-concurrency", 1, "--queue", IDLE + 8])
    server.stream(prompt(5, 1), 4)
    before, links = server.memory_mb(), []
    for i in range(IDLE):
        link = http.client.HTTPConnection("127.0.0.1", server.port)
        link.request("POST", "/v1/completions", json.dumps({"prompt": prompt(20, i), "max_tokens": 2000, "stream": True}))
        links.append(link)
    time.sleep(2)
    cost = server.memory_mb() - before
    for link in links:
        link.close()
    server.end()
    return cost


# ---- the page ----


def page(results, facts):
    lines = [f"# Servers, {facts['date']}", "", f"{facts['machine']}; {facts['threads']} threads; medians of {facts['rounds']} rounds, servers in turn; `bench/server.py`.", ""]
    for model, found in results.items():
        servers = list(found["servers"])
        lines += [f"## {model}", "", f"A new prompt has {found['prompt_tokens']} tokens; answers have {ANSWER} at most.", ""]
        lines += ["| | " + " | ".join(servers) + " |", "|---|" + "---|" * len(servers)]
        for row in found["servers"][servers[0]]:
            cells = [statistics.median(found["servers"][s][row]) for s in servers]
            lines.append(f"| {row} | " + " | ".join(f"{c:.1f}" for c in cells) + " |")
        lines.append("")
        for mode, ratio, samples in found["overhead"]:
            lines.append(f"A token of the server takes {ratio:.3f} times as long as one of `tern run` ({mode}; {', '.join(f'{x:.3f}' for x in samples)}).")
        lines += [f"{IDLE} streams that wait cost {found['idle_mb']:.0f} MB.", ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tern", default=ROOT / "build" / "tern")
    parser.add_argument("--model", action="append", required=True, metavar="CHECKPOINT,FILE.gguf")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=BIN")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", default=f"bench/{datetime.date.today()}-server")
    a = parser.parse_args()
    results = {}
    for pair in a.model:
        checkpoint, gguf = pair.split(",")
        found = {"servers": {}, "gguf": Path(gguf).name}
        for r in range(a.rounds):
            for name, command in commands(a, checkpoint, gguf).items():
                say(f"{Path(checkpoint).name}, round {r + 1}: {name}")
                server = Server(name, command)
                values, found["prompt_tokens"] = measure(server, 1000 * r + 1)
                server.end()
                for row, value in values.items():
                    found["servers"].setdefault(name, {}).setdefault(row, []).append(value)
        found["overhead"] = overhead(a, checkpoint, a.rounds)
        found["idle_mb"] = idle(a, checkpoint)
        results[Path(checkpoint).name] = found
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    facts = {"date": str(datetime.date.today()), "machine": cpu[1] if cpu else platform.machine(), "threads": a.threads, "rounds": a.rounds}
    Path(f"{a.out}.json").write_text(json.dumps({**facts, "models": results}, indent=1) + "\n")
    Path(f"{a.out}.md").write_text(page(results, facts))
    print(page(results, facts))


if __name__ == "__main__":
    main()
