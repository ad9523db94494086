"""How bench/peers.py asks tern, ggml engines and mlx-lm for one rate: one process each time, its answer as `Answer`.

A ggml engine is the folder of its own llama-bench and llama-batched-bench; what their help says tells the dialect
(llama.cpp: --n-depth; ik_llama.cpp: -gp and run-time repacking). Standard library only.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
TIMEOUT = 3600


@dataclass(frozen=True)
class Case:
    kind: str  # prompt, decode: tokens/s; first: a process that opens the model and computes one token, in seconds
    n: int = 1
    depth: int = 0
    batch: int = 1
    repeats: int = 1  # in one process

    def label(self):
        if self.kind == "first":
            return "open, one token"
        where = f" at depth {self.depth}" if self.depth else ""
        return f"{self.kind} {self.n}{where}" + (f", batch {self.batch}" if self.batch > 1 else "")


@dataclass
class Answer:
    values: list  # tokens/s, or seconds where the case is `first`
    wall_s: float
    peak_mb: float
    others: float  # cores that were busy with anything else meanwhile
    facts: dict = field(default_factory=dict)


class Refused(Exception):
    """An engine cannot, or will not; the message is for the page."""


# ---- processes ----


def busy_seconds():
    """Processor seconds of the whole machine, stolen ones included."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def ask(command, env=None):
    """(stdout, stderr, Answer without values). In a folder of its own: some programs leave logs where they stand."""
    command = [str(c) for c in command]
    with tempfile.TemporaryDirectory() as cwd, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        busy, start = busy_seconds(), time.monotonic()
        try:
            environment = {**os.environ, **(env or {})}
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=cwd, env=environment)
        except OSError as e:
            raise Refused(f"{command[0]}: {e.strerror}") from e
        timer = threading.Timer(TIMEOUT, process.kill)
        timer.start()
        try:
            _, status, used = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            raise
        finally:
            timer.cancel()
        wall = time.monotonic() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        others = (busy_seconds() - busy - used.ru_utime - used.ru_stime) / wall
        out.seek(0), err.seek(0)
        texts = [f.read().decode("utf-8", "replace") for f in (out, err)]
    if process.returncode == -signal.SIGKILL and wall >= TIMEOUT:
        raise Refused(f"longer than {TIMEOUT} s")
    if process.returncode != 0:
        last = (texts[1].strip().splitlines() or ["nothing on stderr"])[-1]
        raise Refused(f"exit {process.returncode}: {last[:200]}")
    return *texts, Answer([], wall, used.ru_maxrss * 1024 / 1e6, max(0.0, others))


def parsed(text):
    """JSON, from its first line on: some engines greet before."""
    with contextlib.suppress(ValueError):
        return json.loads(text[re.search(r"^[\[{]", text, re.M).start() :])
    raise Refused("its output is not JSON")


# ---- engines ----


class Tern:
    """One numerics mode. The settings are none; weights are prepared first, in a home of their own."""

    settings = [("", ())]

    def __init__(self, binary, numerics, threads, home):
        self.name, self.binary, self.numerics, self.threads = f"tern {numerics}", binary, numerics, threads
        self.env = {"TERN_HOME": str(home)}
        self.version = ask([binary, "--version"])[0].splitlines()[0]

    def ready(self, model):
        """Prepares the weights; what cannot be prepared is read as it is. Returns what the page should tell."""
        try:
            out, _, _ = ask([self.binary, "prepare", model.checkpoint, "--numerics", self.numerics, "--json"], self.env)
            return {"prepared_bytes": parsed(out)["bytes"], "prepare_s": parsed(out)["seconds"]}
        except Refused as e:
            return {"not_prepared": str(e)}

    def takes(self, case):
        return True

    def measure(self, model, case, setting):
        common = [model.checkpoint, "--numerics", self.numerics, "--threads", self.threads]
        if case.kind == "first":
            _, _, answer = ask([self.binary, "logits", *common, "--ids", "1", "--out", "/dev/null"], self.env)
            answer.values = [answer.wall_s]
            return answer
        sizes = ["-p", case.n, "-n", 0] if case.kind == "prompt" else ["-p", 0, "-n", case.n]
        flags = [*sizes, "-d", case.depth, "-b", case.batch, "-r", case.repeats, "--seed", 1, "--json"]
        out, _, answer = ask([self.binary, "bench", *common, *flags], self.env)
        said = parsed(out)
        answer.values = said["rows"][0]["samples"]
        answer.peak_mb = said["peak_mb"]  # without the buffer that measures the memory's bandwidth
        answer.facts = {k: said[k] for k in ("open_ms", "bandwidth_gb_s", "prepared")} | {"gb_s": said["rows"][0]["gb_s"]}
        return answer


class Ggml:
    """llama.cpp and its kin. Each row takes the fastest of the settings, found by short trials."""

    def __init__(self, name, folder, threads, commit=None):
        self.name, self.folder, self.threads = name, Path(folder).absolute(), threads
        out, err, _ = ask([self.folder / "llama-bench", "--help"])
        self.help = out + err
        self.repacks, self.has_depth = "-rtr" in self.help, "--n-depth" in self.help
        flash = [("fa", ("-fa", "1")), ("no fa", ("-fa", "0"))]
        self.settings = [(f"{f}, rtr", (*flags, "-rtr")) for f, flags in flash] if self.repacks else []
        self.settings += flash
        self.version = commit or "?"
        self.commit_given = commit is not None

    def ready(self, model):
        return {}

    def takes(self, case):
        return True

    def measure(self, model, case, setting):
        return self.batched(model, case, setting) if case.batch > 1 else self.single(model, case, setting)

    def single(self, model, case, setting):
        flags = [w for f in setting for w in ((f, "1") if f == "-rtr" else (f,))]
        flags += ["-m", model.gguf_of(self), "-t", self.threads, "-r", case.repeats, "-o", "json"]
        if case.kind == "prompt":
            flags += ["-p", case.n, "-n", 0]
        elif case.depth and not self.has_depth:
            flags += ["-p", 0, "-n", 0, "-gp", f"{case.depth},{case.n}"]
        else:
            flags += ["-p", 0, "-n", case.n] + (["-d", case.depth] if case.depth else [])
        if case.kind == "first":
            flags += ["--no-warmup"] if "--no-warmup" in self.help else ["-w", 0]
        out, _, answer = ask([self.folder / "llama-bench", *flags])
        rows = parsed(out)
        if len(rows) != 1:
            raise Refused(f"{len(rows)} results where one is expected")
        answer.values = [case.n * 1e9 / ns for ns in rows[0]["samples_ns"]]
        answer.facts = {"build": f"{rows[0].get('build_number', '?')} ({rows[0].get('build_commit', '?')})"}
        if not self.commit_given:
            self.version = answer.facts["build"]
        if case.kind == "first":
            answer.values = [answer.wall_s]
        return answer

    def batched(self, model, case, setting):
        room = 256 * -(-(1 + case.n) // 256)  # contexts are padded to multiples of 256 a sequence
        sizes = ["-npp", 1, "-ntg", case.n, "-npl", ",".join([str(case.batch)] * case.repeats)]
        flags = ["-m", model.gguf_of(self), "-t", self.threads, "-c", room * case.batch, "-b", 2048, "-ub", 512]
        out, err, answer = ask([self.folder / "llama-batched-bench", *flags, *sizes, *setting])
        rows = [line.strip("| ").split("|") for line in (out + "\n" + err).splitlines() if re.match(r"\|\s*\d+ \|", line)]
        answer.values = [float(r[7]) for r in rows if int(r[2]) == case.batch]
        if len(answer.values) != case.repeats:
            raise Refused(f"{len(answer.values)} results where {case.repeats} are expected")
        return answer

    def quantise(self, source, target):
        ask([self.folder / "llama-quantize", "--allow-requantize", "--pure", source, target, "Q4_0", self.threads])


class Mlx:
    """mlx-lm in float32, which is what `tern exact` equals bit for bit. Slow: few tokens, and one round."""

    settings = [("", ())]

    def __init__(self, python):
        self.name, self.python = "mlx-lm float32", python
        code = "import mlx_lm, mlx.core as m; print('mlx-lm', mlx_lm.__version__ + ', mlx', m.__version__)"
        self.version = ask([python, "-c", code])[0].strip()

    def ready(self, model):
        return {}

    def takes(self, case):
        return case.kind in ("prompt", "decode") and case.depth == 0 and case.batch == 1

    def measure(self, model, case, setting):
        n = min(case.n, 64 if case.kind == "prompt" else 4)
        out, _, answer = ask([self.python, HERE / "mlx_peer.py", "rate", model.checkpoint, case.kind, n])
        answer.values, answer.facts = [parsed(out)["tok_s"]], {"n": n}
        return answer

    def quantise(self, source, target):
        ask([self.python, HERE / "mlx_peer.py", "quantise", source, target])


if __name__ == "__main__":
    sys.exit("engines.py is a part of peers.py")
