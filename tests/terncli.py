"""Runs the tern binary for the script tests (standard library only)."""

import dataclasses
import json
import os
import subprocess
import tempfile
from pathlib import Path

BUILD = Path(os.environ.get("TERN_BUILD", Path(__file__).resolve().parents[1] / "build"))
BINARY = os.environ.get("TERN_BIN", str(BUILD / "tern"))


@dataclasses.dataclass
class Done:
    status: int
    out: bytes
    err: str

    @property
    def error_line(self):
        """The last line on stderr, which is where an error stands."""
        return self.err.strip().splitlines()[-1] if self.err.strip() else ""


def tern(*args, stdin=b"", timeout=300, env=None):
    """Runs `tern ARGS`. A status below zero is the signal that ended it; running out of time raises."""
    done = subprocess.run(
        [BINARY, *map(str, args)],
        input=stdin,
        capture_output=True,
        timeout=timeout,
        env={**os.environ, "NO_COLOR": "1", **(env or {})},
    )
    return Done(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"))


def sanitized():
    """Whether the binary is of a sanitizer's build: that takes several times the time, and keeps what was freed."""
    code = Path(BINARY).read_bytes()
    return b"__asan_init" in code or b"__tsan_init" in code


class TernError(Exception):
    """tern failed where it should not have."""


def logits(model, ids, *flags, feed=None, steps=None, timeout=300):
    """`tern logits`: its JSON, and the rows as the bytes of float32 [rows, vocab].

    feed: ids stepped through after the prompt; steps: greedy steps instead.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.bin"
        args = ["logits", model, "--out", out, "--ids", ",".join(map(str, ids))]
        if feed:
            args += ["--feed", ",".join(map(str, feed))]
        else:
            args += ["--steps", steps or 0]
        done = tern(*args, *flags, timeout=timeout)
        if done.status != 0:
            raise TernError(f"exit {done.status}: {done.error_line}")
        answer = json.loads(done.out)
        rows = out.read_bytes()
    if len(rows) != 4 * answer["rows"] * answer["vocab"]:
        raise TernError(f"{len(rows)} bytes for {answer['rows']} rows of {answer['vocab']}")
    return answer, rows
