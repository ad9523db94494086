"""Starts `tern serve` for tests and talks to it over HTTP (standard library only)."""

import http.client
import json
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

from terncli import BINARY  # noqa: E402
from waiting import DEADLINE, until  # noqa: E402, F401 (for those who import this)

GOLDEN = HERE.parent / "golden"
EOS = 319  # of the checkpoints in tests/golden


class Server:
    """`with Server(model, "--queue", 1) as s:` a server on a port of its own, ended by SIGTERM. before: runs in the child first."""

    def __init__(self, model, *flags, before=None):
        self.process = subprocess.Popen(
            [BINARY, "serve", str(model), "--port", "0", *map(str, flags)],
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "NO_COLOR": "1"},
            preexec_fn=before,
        )
        while True:
            line = self.process.stderr.readline()
            if not line:
                raise RuntimeError("tern serve did not start")
            found = re.search(r"serving (\S+) at http://127\.0\.0\.1:(\d+)", line)
            if found:
                self.name, self.port = found[1], int(found[2])
                break
        self.status = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self, number=15, timeout=DEADLINE):
        """Sends the signal, waits; returns the exit status."""
        if self.status is None:
            self.process.send_signal(number)
            try:
                self.out, self.err = self.process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.out, self.err = self.process.communicate()
            self.status = self.process.returncode
        return self.status

    def connect(self, timeout=2 * DEADLINE):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def ask(self, path, body=None, method=None, headers=None):
        """(status, parsed body or text, headers) of one request on a connection of its own."""
        c = self.connect()
        data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
        c.request(method or ("GET" if body is None else "POST"), path, data, headers or {})
        r = c.getresponse()
        text = r.read()
        c.close()
        try:
            return r.status, json.loads(text), r.headers
        except ValueError:
            return r.status, text.decode("utf-8", "replace"), r.headers

    def stream(self, path, body):
        """The events of a stream as parsed JSON, "[DONE]" as that string."""
        c = self.connect()
        c.request("POST", path, json.dumps({**body, "stream": True}).encode())
        r = c.getresponse()
        if r.status != 200:
            raise RuntimeError(f"{r.status}: {r.read()[:200]}")
        text = r.read().decode()
        c.close()
        events = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
        return [e if e == "[DONE]" else json.loads(e) for e in events]

    def metric(self, name):
        """The number that /metrics has for `name`, with its labels as they stand there."""
        for line in self.ask("/metrics")[1].splitlines():
            if line.startswith(f"tern_{name} "):
                return float(line.split()[-1])
        raise KeyError(name)

    def memory(self, which="VmRSS"):
        """Resident bytes; "VmHWM": at most so far."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(which):
                return int(line.split()[1]) * 1024
        return 0


def chat(text, **fields):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 24, **fields}
