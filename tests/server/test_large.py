"""Large bodies: what they cost before the scheduler counts them is bounded, and none outlives its client or the server."""

import json
import resource
import socket
import sys
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from serving import DEADLINE, GOLDEN, Server, chat, until  # noqa: E402
from tally import Tally  # noqa: E402
from terncli import sanitized  # noqa: E402
from waiting import worked  # noqa: E402

tally = Tally()
MODEL = GOLDEN / "llama-4bit" / "model"
MB = 1 << 20


def post(s, path, body, announced=None):
    """A socket on which `body` was sent."""
    sock = socket.create_connection(("127.0.0.1", s.port), timeout=DEADLINE)
    sock.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (path.encode(), announced or len(body)) + body)
    return sock


def read_all(sock):
    try:
        while sock.recv(MB):
            pass
    except OSError:
        pass
    sock.close()


def test_longer_than_the_context(s):
    for path, body in (("/tokenize", {"content": "1" * MB}), ("/v1/completions", {"prompt": "1" * MB}), ("/v1/chat/completions", chat("1" * MB))):
        status, answer, _ = s.ask(path, body)
        ok = status == 400 and "longer than the context" in answer["error"]["message"]
        tally.check(f"{path}: unread", ok, f"{status} {str(answer)[:200]}")
    status, answer, _ = s.ask("/v1/chat/completions", chat("1" * MB))
    tally.check("its code", answer["error"]["code"] == "context_length_exceeded", answer)


def test_held_bodies(s):
    """Bodies that are not whole yet: beyond some memory they are refused, and small ones go on."""
    socks = [post(s, "/tokenize", b'{"content": "' + b"1" * (14 * MB), announced=15 * MB) for _ in range(16)]
    grown = s.memory()
    tally.check("held bodies", grown < 400 * MB, f"{grown / MB:.0f} MB")
    tally.check("a small one beside", s.ask("/tokenize", {"content": "1"})[0] == 200)
    for sock in socks:
        sock.sendall(b" " * (MB - 15) + b'"}')
    seen = [sock.recv(12)[9:] for sock in socks]
    tally.check("some are turned away", b"503" in seen and set(seen) <= {b"503", b"400"}, seen)
    for sock in socks:
        sock.close()
    tally.check("room again", until(lambda: s.ask("/tokenize", b'{"content": "' + b"1" * (14 * MB) + b'"}')[0] == 400))


def test_gone_while_encoding():
    """A client that leaves in the midst of it is noticed: its text is not encoded to its end. Measured in work, not in time."""
    path, words = "/v1/messages/count_tokens", "ab cd efg " * (1500 * 1000)
    body = json.dumps({"messages": [{"role": "user", "content": words}]}).encode()
    with Server(MODEL, "-v") as s:
        before = worked(s.process.pid)
        sock = post(s, path, body)
        tally.check("counted", sock.recv(12)[9:] == b"200")
        sock.close()
        whole = worked(s.process.pid) - before
        before = worked(s.process.pid)
        sock = post(s, path, body)
        tally.check("half of it is done", until(lambda: worked(s.process.pid) - before > whole / 2))
        sock.close()
        tally.check("goes on", s.ask("/health")[0] == 200)
        tally.check("ends well", s.end() == 0, s.status)
        ends = [line.split("end=")[1].split()[0] for line in s.err.splitlines() if f"path={path}" in line]
        tally.check("noticed", ends == ["sent", "left"], s.err)


def test_gone_before_their_turn():
    """Texts that take long to encode, whose clients left at once: others and the server's end do not wait for all. What
    is encoded is told from the processor's time that it takes, and not from a clock: the machine may be busy."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with Server(MODEL, "--ctx", 4000000) as s:
        began = worked(s.process.pid)
        tally.check("a quarter", s.ask("/tokenize", {"content": "1" * (14 * MB // 4)})[0] == 200)
        one = 4 * (worked(s.process.pid) - began)
        body = json.dumps({"content": "1" * (14 * MB)}).encode()
        for _ in range(12):
            post(s, "/tokenize", body).close()
        began = worked(s.process.pid)
        tally.check("others beside", s.ask("/v1/chat/completions", chat("Hello", max_tokens=2))[0] == 200)
        grown, used = s.memory(), worked(s.process.pid) - began
        tally.check("before all twelve", used < 6 * one, f"{used:.1f} s, one takes {one:.1f} s")
        tally.check("memory", grown < 1000 * MB, f"{grown / MB:.0f} MB")
        kept = [post(s, "/tokenize", body) for _ in range(6)]
        readers = [threading.Thread(target=read_all, args=[sock]) for sock in kept]
        for reader in readers:
            reader.start()
        tally.check("ends well", s.end() == 0, s.status)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        tally.check("before all six", used < 5 * one, f"{used:.1f} s in all, one takes {one:.1f} s")
        for reader in readers:
            reader.join()


def test_open_files():
    """A small soft limit is raised to what 512 connections want."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with Server(MODEL) as s:
            got = resource.prlimit(s.process.pid, resource.RLIMIT_NOFILE)[0]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    tally.check("open files", got >= (2048 if hard == resource.RLIM_INFINITY else min(hard, 2048)), f"{got} of {hard}")


def main():
    if sanitized():
        tally.skip("large bodies", "a sanitizer's time and memory are others")
        return tally.close()
    with Server(MODEL) as s:
        test_longer_than_the_context(s)
        test_held_bodies(s)
        tally.check("ends well", s.end() == 0, s.status)
    test_gone_before_their_turn()
    test_gone_while_encoding()
    test_open_files()
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
