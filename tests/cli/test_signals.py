"""Pipes and signals: a stdout that is closed or full, a stdin that is not there, Ctrl-C at any moment (standard library only)."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from tally import Tally  # noqa: E402
from terncli import BINARY  # noqa: E402
from waiting import DEADLINE, catches, is_in, until, worked  # noqa: E402

MODEL = HERE.parent / "golden" / "llama-4bit" / "model"
tally = Tally()


def test_closed_pipe():
    for label, args in {
        "run": ["run", MODEL, "the sand", "--temp", "0", "--max-tokens", "400", "--ignore-eos"],
        "inspect": ["inspect", MODEL],
    }.items():
        process = subprocess.Popen([BINARY, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        process.stdout.read(1)
        process.stdout.close()
        err = process.stderr.read().decode()
        try:
            process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            process.kill()
        tally.check(f"{label} into a closed pipe ends quietly", "error" not in err and process.returncode in (0, 141, -signal.SIGPIPE), f"{process.returncode}: {err[-200:]}")
    if Path("/dev/full").exists():
        with open("/dev/full", "wb") as full:
            done = subprocess.run([BINARY, "--version"], stdout=full, stderr=subprocess.PIPE)
        tally.check("a full stdout is an error", done.returncode == 1, done.returncode)


def test_interrupt():
    process = subprocess.Popen([BINARY, "bench", str(MODEL), "-p", "512", "-n", "256", "-r", "100000"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    until(lambda: process.poll() is not None or (catches(process.pid, signal.SIGINT) and worked(process.pid) > 0.5))
    early = process.poll()
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=DEADLINE)  # the whole of it takes hours
        tally.check("SIGINT ends with 130", early is None and process.returncode == 130, f"{early} {process.returncode}")
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=DEADLINE)
            tally.fail("SIGINT ends with 130", "only the second SIGINT ended it")
        except subprocess.TimeoutExpired:
            process.kill()
            tally.fail("SIGINT ends with 130", "two SIGINT did not end it")


class Talk:
    """A running `tern chat` over pipes; what it says on stderr is read line by line. It is killed where nothing comes."""

    def __init__(self, *flags):
        self.process = subprocess.Popen([BINARY, "chat", str(MODEL), *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, bufsize=0)
        self.feed_watchdog()

    def feed_watchdog(self):
        self.watchdog = threading.Timer(DEADLINE, self.process.kill)
        self.watchdog.daemon = True
        self.watchdog.start()

    def drain(self):
        while os.read(self.process.stdout.fileno(), 1 << 16):
            pass

    def says(self, text):
        try:
            self.process.stdin.write(text.encode())
        except BrokenPipeError:
            pass

    def hears(self, word, but_not=None):
        """Whether a line with this word comes before the end, and none before it with the other."""
        self.watchdog.cancel()
        self.feed_watchdog()
        for line in iter(self.process.stderr.readline, b""):
            if word in line:
                return True
            if but_not and but_not in line:
                return False
        return False

    def await_prompt(self):
        """After its last line: until it waits for input."""
        until(lambda: self.process.poll() is not None or is_in(self.process.pid, "ppoll"), pause=0.001)

    def close(self):
        self.process.stdin.close()
        status = self.process.wait()
        self.watchdog.cancel()
        return status


def test_chat_interrupts():
    """One Ctrl-C never ends a chat, wherever it falls: before, in or after an answer, or between these. Every signal is
    answered for before the next one: what comes after the command's reply has been delivered by then."""
    talk = Talk("--max-tokens", "3", "--ignore-eos")
    rounds, survived = 250, 0
    threading.Thread(target=talk.drain, daemon=True).start()
    talk.says("/clear\n")
    alive = talk.hears(b"cleared")
    start = time.monotonic()
    for _ in range(10):
        talk.says("x\n/clear\n")
        alive = alive and talk.hears(b"cleared")
    length = (time.monotonic() - start) / 10
    for i in range(rounds):
        talk.says("x\n")
        wait_until = time.monotonic() + 1.5 * length * i / rounds
        while time.monotonic() < wait_until:
            pass
        if not alive or talk.process.poll() is not None:
            break
        talk.process.send_signal(signal.SIGINT)
        talk.says("/clear\n")
        alive = talk.hears(b"cleared")
        survived += alive
    status = talk.close()
    tally.check("one SIGINT a turn never ends a chat", alive and survived == rounds and status == 0, f"{survived} of {rounds}, exit {status}")

    talk = Talk("--max-tokens", "-1", "--ctx", "200000", "--ignore-eos", "--stats")
    talk.says("/clear\n")
    talk.hears(b"cleared")
    talk.says("x\n")
    os.read(talk.process.stdout.fileno(), 1)  # in the middle of an answer now
    threading.Thread(target=talk.drain, daemon=True).start()
    talk.process.send_signal(signal.SIGINT)
    talk.says("/clear\n")
    tally.check("SIGINT stops an answer", talk.hears(b"cleared", but_not=b"tok/s"))
    talk.says("/stats\n")
    tally.check("/stats tells of the stopped answer", talk.hears(b"answer stopped after", but_not=b"tok/s"))
    talk.await_prompt()
    talk.process.send_signal(signal.SIGINT)
    tally.check("SIGINT at the prompt is answered", talk.hears(b"again"))
    talk.await_prompt()
    talk.process.send_signal(signal.SIGINT)
    status = talk.close()
    tally.check("the second one in a row ends a chat", status == 130, status)

    talk = Talk("--max-tokens", "3", "--ignore-eos")
    talk.says("/clear\n")
    talk.hears(b"cleared")
    talk.says("x\n")
    talk.process.send_signal(signal.SIGTERM)
    status = talk.close()
    tally.check("SIGTERM ends a chat", status == 128 + signal.SIGTERM, status)


def test_closed_stdin():
    """A stdin that is not there, or cannot be read, is an error and no empty text."""
    with tempfile.TemporaryDirectory() as folder:
        for verb, *args in (["chat", MODEL], ["run", MODEL, "-"], ["run", MODEL, "--file", "-"], ["tokenize", MODEL], ["tokenize", MODEL, "-"],
                            ["detokenize", MODEL], ["render", MODEL, "--json", "-"], ["logits", MODEL, "--ids-file", "-"],
                            ["ppl", MODEL, "--text", "-"]):
            for label, shell in (("closed", 'exec "$@" <&-'), ("of a directory", f'exec "$@" <{folder}')):
                done = subprocess.run(["sh", "-c", shell, "sh", BINARY, verb, *map(str, args)], capture_output=True, timeout=DEADLINE)
                errors = [line for line in done.stderr.decode().splitlines() if line.startswith("tern: error: ")]
                good = done.returncode == 1 and not done.stdout and len(errors) == 1 and "stdin" in errors[0]
                tally.check(f"{' '.join(map(str, [verb, *args[1:]]))}: a stdin {label}", good, f"{done.returncode} {done.stderr.decode()[-200:]}")


def main():
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    for name, test in list(globals().items()):
        if name.startswith("test_") and re.search(only, name):
            try:
                test()
            except Exception as error:
                tally.fail(name, f"{type(error).__name__}: {error}")
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
