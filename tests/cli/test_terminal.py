"""`tern chat` as a person meets it: a terminal (a pty with an emulator's eyes), keys, pastes, history, resizes, Ctrl-C and
Ctrl-D. Standard library only."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

from tally import Tally  # noqa: E402
from terncli import BINARY, BUILD, tern  # noqa: E402
from waiting import DEADLINE, is_in, until  # noqa: E402

MODEL = HERE.parent / "golden" / "llama-4bit" / "model"
UP, LEFT, HOME, ALT_ENTER = "\33[A", "\33[D", "\1", "\33\r"
IUTF8 = 0o40000  # as emulators set it: keys that come before the editor are edited by the kernel
PROMPT = r">>> (\x1b\[[0-9;?]*[A-Za-z])*$"
tally = Tally()


def set_size(fd, columns, rows=24):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class Chat:
    """A conversation in a pty of so many columns; answers are one token long and cost nothing."""

    def __init__(self, home, *flags, columns=80, env=None):
        self.saw = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:  # before there is anybody to change modes and size under
            modes = termios.tcgetattr(0)
            modes[0] |= IUTF8
            termios.tcsetattr(0, termios.TCSANOW, modes)
            set_size(0, columns)
            os.environ.update({"TERM": "xterm", "TERN_HOME": str(home), "NO_COLOR": "1", **(env or {})})
            os.execv(BINARY, [BINARY, "chat", str(MODEL), "--max-tokens", "1", "--seed", "1", *map(str, flags)])
        self.await_prompt()

    def resize(self, columns):
        set_size(self.fd, columns)

    def read(self, wanted):
        """What comes until the pattern is there."""
        got, end = "", time.monotonic() + DEADLINE
        while not re.search(wanted, got):
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                tally.fail("what is awaited comes", f"no {wanted}: {got[-200:]!r}")
                break
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                break
            if not data:
                break
            got += data.decode("utf-8", "replace")
        self.saw += got
        return got

    def await_prompt(self, screen=PROMPT):
        """Until the prompt is the last thing on the screen, stays it, and tern waits for keys: the editor draws it anew at
        times."""
        got = self.read(screen)
        while (more := select.select([self.fd], [], [], 0.1)[0]) or not is_in(self.pid, "ppoll"):
            if more:
                said = self.read(screen)
                got += said
                if not said:  # it has ended
                    break
        return got

    def await_hold(self):
        """Until tern cannot write: the terminal is full, or held."""
        until(lambda: is_in(self.pid, "write") and time.sleep(0.1) is None and is_in(self.pid, "write"))

    def keys(self, text):
        os.write(self.fd, text.encode())

    def say(self, text):
        self.keys(text + "\r")
        return self.await_prompt()

    def saved(self, folder):
        """The conversation as /save writes it."""
        file = Path(folder) / f"saved{time.monotonic_ns()}.json"
        self.keys(f"/save {file}\r")
        self.read(r"saved [0-9]+ messages[\s\S]*" + PROMPT)
        return [m["content"] for m in json.loads(file.read_text())["messages"] if m["role"] == "user"] if file.exists() else None

    def status(self):
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            while select.select([self.fd], [], [], 0 if pid else 0.05)[0]:
                try:
                    self.saw += os.read(self.fd, 65536).decode("utf-8", "replace")
                except OSError:  # the other end is closed
                    break
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)
        return "hangs"

    def leave(self):
        self.keys("\4")
        return self.status()


def edits(folder):
    return "libedit" in os.popen(f"readelf -d {BINARY} 2>/dev/null").read()


def test_editing(folder):
    chat = Chat(folder / "edit")
    chat.say("hellx" + "\x7f" + "o")
    chat.say("world" + HOME + "the ")
    chat.say("ab" + LEFT + "X")
    chat.say("Grüße 日本語 👍" + "\x7f" + "!")
    chat.say("one" + ALT_ENTER + "two")
    chat.say("wide " + "日" * 60 + LEFT * 3 + "x")
    said = chat.saved(folder)
    want = ["hello", "the world", "aXb", "Grüße 日本語 !", "one\ntwo", "wide " + "日" * 57 + "x" + "日" * 3]
    tally.check("keys edit a line", said == want, said)
    chat.say(UP * 2 + "\x7f" * 3 + "THREE")  # one up is /save
    tally.check("up finds what was typed before", chat.saved(folder)[-1:] == ["wide " + "日" * 57 + "x" + "THREE"], chat.saved(folder)[-1:])
    chat.keys("/st\t\r")
    tally.check("Tab completes a command", "positions in use" in chat.await_prompt())
    tally.check("Ctrl-D leaves", chat.leave() == 0)
    tally.check("pastes are asked for in brackets, and no longer at the end", chat.saw.rfind("\33[?2004l") > chat.saw.rfind("\33[?2004h") > 0)


def test_paste(folder):
    chat = Chat(folder / "paste")
    chat.say("\33[200~first\r\n  second\nthird\33[201~")
    chat.say("see: \33[200~a\tb\x07\nc\33[201~ and on")
    long = "\n".join(f"l {i}" for i in range(70))  # more than the screen has
    chat.say(f"\33[200~{long}\33[201~")
    said = chat.saved(folder)
    want = ["first\n  second\nthird", "see: a\tb\nc and on", long]
    tally.check("a paste is one message", said == want, [s[:80] for s in said or []])
    tally.check("leaves", chat.leave() == 0)


def test_history(folder):
    home = folder / "history"
    chat = Chat(home)
    chat.say("an older question")
    chat.say("two" + ALT_ENTER + "lines")
    chat.leave()
    file = home / "history"
    entries = [json.loads(line) for line in file.read_text().splitlines()]
    tally.check("the file has what was typed", entries == ["an older question", "two\nlines"], entries)
    tally.check("it is its owner's", file.stat().st_mode & 0o777 == 0o600, oct(file.stat().st_mode))
    with file.open("a") as out:
        out.write("{broken\n12\n")
    chat = Chat(home)
    chat.say(UP * 2 + "\r")
    said = chat.saved(folder)
    tally.check("the next time it is there", said and said[0] == "an older question", said)
    if "TERN_PATIENCE" in os.environ:  # regcomp is Oniguruma's there, and regexec the sanitizer's
        tally.skip("Ctrl-R searches it", "a sanitizer's regexec is not of one piece with regcomp")
    else:
        chat.say("\x12older\r")
        said = chat.saved(folder)
        tally.check("Ctrl-R searches it", said and said[-1] == "an older question", said)
    chat.leave()
    chat = Chat(home)
    for text in '"""first', "  second", "", 'third"""', "goes \\":
        chat.keys(text + "\r")
        chat.read(r"(\.\.\.|>>>) (\x1b\[[0-9;?]*[A-Za-z])*$")
    chat.say("on")
    block, line = '"""first\n  second\n\nthird"""', "goes \non"
    entries = [json.loads(entry) for entry in file.read_text().splitlines() if entry.startswith('"')]
    tally.check("a message of several lines is one entry, as it was typed", entries[-2:] == [block, line], entries[-6:])
    chat.say(UP * 2)
    said = chat.saved(folder)
    tally.check("and comes back as that", said and said[-3:] == ["first\n  second\n\nthird", "goes \non", "first\n  second\n\nthird"], said)
    chat.keys('"""half\r')
    chat.read(r"\.\.\. (\x1b\[[0-9;?]*[A-Za-z])*$")
    chat.keys("\3")
    chat.await_prompt()
    tally.check("a block that is given up is kept as far as it went", json.loads(file.read_text().splitlines()[-1]) == '"""half', file.read_text()[-60:])
    chat.leave()
    before = file.read_text()
    chat = Chat(home, "--no-history")
    chat.say("a secret")
    chat.say(UP + "\r")
    chat.leave()
    tally.check("--no-history: nothing is kept", file.read_text() == before)
    file.write_text("".join(json.dumps(f"entry {i}") + "\n" for i in range(2500)))
    Chat(home).leave()
    lines = file.read_text().splitlines()
    tally.check("a long file is shortened", len(lines) == 1000 and lines[-1] == '"entry 2499"', len(lines))
    file.write_text('"cut')
    chat = Chat(home)
    chat.say("behind it")
    chat.leave()
    tally.check("a line that was cut costs itself alone", file.read_text() == '"cut\n"behind it"\n', file.read_text())
    for label, spoil in {"a fifo": lambda: os.mkfifo(file), "a folder": lambda: file.mkdir(), "a full disk": lambda: file.symlink_to("/dev/full")}.items():
        file.unlink() if file.exists() else None
        spoil()
        chat = Chat(home)
        chat.say("goes on")
        tally.check(f"history is {label}: the conversation goes on", chat.saved(folder) == ["goes on"])
        chat.leave()
        file.rmdir() if file.is_dir() and not file.is_symlink() else file.unlink()


def test_signals(folder):
    chat = Chat(folder / "signals")
    chat.keys("half a line")
    chat.read("a line$")  # what is not read yet is dropped by the kernel
    chat.keys("\3")
    tally.check("Ctrl-C drops the line", "Ctrl-C again" not in chat.await_prompt())
    chat.keys("\3")
    tally.check("on an empty one it tells how to leave", "Ctrl-C again" in chat.await_prompt())
    chat.keys("more")
    chat.read("more$")
    chat.keys("\3")
    chat.await_prompt()
    chat.say("whole")
    tally.check("and nothing of it is left", chat.saved(folder) == ["whole"], chat.saved(folder))
    chat.keys("\3")
    chat.await_prompt()
    chat.keys("\3")
    tally.check("twice ends with 130", chat.status() == 130)
    tally.check("on a line of its own", chat.saw.endswith("\r\n"), chat.saw[-60:])
    chat = Chat(folder / "signals", "--max-tokens", "-1", "--ignore-eos", "--ctx", "100000")
    chat.keys("tell me everything\r")
    chat.await_hold()  # the answer is more than the terminal holds: it waits for us to read
    chat.keys("typed ahead")
    chat.keys("\3")  # which a terminal takes in this order
    got = chat.await_prompt(r">>> (\x1b\[[0-9;?]*[A-Za-z])*(typed ahead(\x1b\[[0-9;?]*[A-Za-z])*)?$")
    tally.check("what is typed meanwhile is not mixed in", got.rfind("typed ahead") < 0 or got.rfind("typed ahead") > got.rfind(">>> "), got[-200:])
    chat.keys("\25")
    chat.keys("/stats\r")
    tally.check("Ctrl-C stops an answer", "stopped after" in chat.await_prompt())
    os.kill(chat.pid, signal.SIGTERM)
    tally.check("SIGTERM at the prompt", chat.status() == 143)
    tally.check("the terminal is as it was", chat.saw.rfind("\33[?2004l") > chat.saw.rfind("\33[?2004h"))


def test_stop(folder):
    """Ctrl-Z and fg: the terminal is the shell's meanwhile, and the line is there again."""
    chat = Chat(folder / "stop")
    modes = termios.tcgetattr(chat.fd)
    chat.keys("half ")
    chat.read("half $")
    chat.keys("\32")
    until(lambda: os.waitpid(chat.pid, os.WNOHANG | os.WUNTRACED)[0])
    tally.check("stopped: the terminal is a terminal", termios.tcgetattr(chat.fd)[3] & termios.ICANON and "2004l" in chat.read("2004l"))
    os.kill(chat.pid, signal.SIGCONT)
    chat.read("half ")
    chat.say("a line")
    tally.check("going on: the line is there", chat.saved(folder) == ["half a line"], chat.saved(folder))
    chat.keys("\34")
    tally.check("Ctrl-\\ ends it", chat.status() == 131)
    tally.check("and the terminal is as it was", chat.saw.rfind("\33[?2004l") > chat.saw.rfind("\33[?2004h"), repr(chat.saw[-80:]))


def test_resize(folder):
    chat = Chat(folder / "resize", columns=80)
    chat.keys("x" * 60)
    chat.read("x{10}")
    chat.resize(40)
    os.kill(chat.pid, signal.SIGWINCH)
    chat.read("x{10}")  # it is drawn anew
    chat.say("y")
    tally.check("a line outlives a resize", chat.saved(folder) == ["x" * 60 + "y"], chat.saved(folder))
    chat.leave()


def test_held(folder):
    """Output that is held while the window changes: the answer goes on after it."""
    chat = Chat(folder / "held", "--max-tokens", "-1", "--ignore-eos", "--ctx", "2000")
    chat.keys("tell me everything\r")
    chat.read(r"everything[\s\S]*\n[\s\S]{5}")  # in the midst of the answer
    chat.keys("\23")  # Ctrl-S
    chat.await_hold()
    chat.resize(40)
    os.kill(chat.pid, signal.SIGWINCH)
    chat.await_hold()
    chat.keys("\21")
    tally.check("an answer outlives it", "error" not in chat.await_prompt(), chat.saw[-200:])
    tally.check("and so does the conversation", chat.saved(folder) == ["tell me everything"])
    chat.leave()


def test_plain(folder):
    chat = Chat(folder / "dumb", env={"TERM": "dumb"})
    chat.keys("plain\n")
    chat.await_prompt()
    tally.check("a terminal that can do nothing: lines as they come", chat.saved(folder) == ["plain"] and "\33[" not in chat.saw, chat.saw[-200:])
    chat.leave()
    done = tern("chat", MODEL, "--max-tokens", "1", stdin="Hé\nsecond\n".encode(), env={"TERN_HOME": str(folder / "pipe")})
    tally.check("a pipe: answers alone on stdout", done.status == 0 and ">>>" not in done.out.decode() + done.err, done.err)
    tally.check("a pipe: nothing is kept", not (folder / "pipe" / "history").exists())


def on_terminal(*args):
    """What a verb says on a terminal."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execv(BINARY, [BINARY, *map(str, args)])
    said = b""
    while True:
        try:
            data = os.read(fd, 65536)
        except OSError:
            break
        said += data
        if not data:
            break
    os.waitpid(pid, 0)
    os.close(fd)
    return said.decode()


def test_text():
    """A text that is typed ends with one Ctrl-D."""
    reader, writer = os.pipe()
    leader, follower = pty.openpty()
    process = subprocess.Popen([BINARY, "tokenize", MODEL], stdin=follower, stdout=writer)
    os.close(writer)
    os.close(follower)
    os.write(leader, b"some text\n\4")
    try:
        status = process.wait(DEADLINE)
    except subprocess.TimeoutExpired:
        process.kill()
        status = "hangs"
    process.wait()
    said = os.read(reader, 65536)
    os.close(reader)
    os.close(leader)
    tally.check("a typed text ends with one Ctrl-D", status == 0 and said == tern("tokenize", MODEL, "some text\n").out, f"{status}: {said}")


def test_inspect():
    short, whole = on_terminal("inspect", MODEL), on_terminal("inspect", MODEL, "-v")
    tensor = "model.layers.0.self_attn.q_proj.weight"
    tally.check("inspect at a terminal counts tensors", tensor not in short and "-v lists them" in short, short[-300:])
    tally.check("inspect -v lists them", tensor in whole)
    tally.check("inspect in a pipe lists them", tensor in tern("inspect", MODEL).out.decode())


def test_progress():
    """A bar while a prompt is read that takes more than a second, and nothing of it is left on stdout."""
    big = BUILD / "models" / "smollm2"
    if not big.exists():
        return tally.skip("a bar while a long prompt is read", "smollm2 is not there")
    master, slave = pty.openpty()
    reader, writer = os.pipe()
    prompt = "word " * 1500
    pid = os.fork()
    if pid == 0:
        os.dup2(slave, 2)
        os.dup2(writer, 1)
        os.environ["TERM"] = "xterm"
        os.execv(BINARY, [BINARY, "run", str(big), "--raw", "--max-tokens", "1", "--threads", "1", "--prefill-step-size", "128", "--backend", "cpu", prompt])
    os.close(slave)
    os.close(writer)
    said = b""
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:
            break
        if not data:
            break
        said += data
    out = b"".join(iter(lambda: os.read(reader, 65536), b""))
    tally.check("it ends well", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, said[-300:])
    tally.check("a bar while a long prompt is read", b"reading [" in said, said[-300:])
    tally.check("it is wiped", b"\33[K" in said[said.rfind(b"reading ["):], said[-60:])
    tally.check("an answer that was cut is told", b"cut after 1 tokens" in said, said[-100:])
    tally.check("stdout has the answer alone", b"reading" not in out and b"\33" not in out, out)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if edits(folder):
            for test in (test_editing, test_paste, test_history, test_signals, test_stop, test_resize, test_held):
                test(folder)
        else:
            tally.skip("line editing", "tern was built without libedit")
        test_plain(folder)
        test_text()
        test_inspect()
        test_progress()
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
