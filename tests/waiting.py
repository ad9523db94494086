"""Waiting for states and never for durations: a test that has waited for what it needs is right on a slow machine too.

    until(lambda: server.metric("requests_running") == 1)
    until(lambda: catches(process.pid, signal.SIGINT) and worked(process.pid) > 0.2)

The deadline of `until` is there to tell of what never comes; it is far beyond what anything takes. What is read from
/proc is the state of a process or of its first thread (Linux)."""

import os
import platform
import select
import time
from pathlib import Path

DEADLINE = 300  # seconds
CALLS = {"write": 1, "ppoll": 271} if platform.machine() == "x86_64" else {"write": 64, "ppoll": 73}


def until(condition, seconds=DEADLINE, pause=0.01):
    """Whether the condition came true in that time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
    return True


def catches(pid, number):
    """Whether the process has a handler for the signal: before it has, the signal ends it in the system's own way."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def stat(pid):
    """The fields of /proc/PID/stat from the state on."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


def worked(pid):
    """Seconds of processor time that it has had."""
    fields = stat(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_in(pid, call):
    """Whether its first thread is held in this system call, one of CALLS."""
    try:
        now = Path(f"/proc/{pid}/syscall").read_text().split()[0]
    except OSError:  # a system that does not tell
        return stat(pid)[0] == "S"
    return now == str(CALLS[call])  # "running" is none


def hear(fd, done, seconds=DEADLINE):
    """What comes from a terminal until `done` says of all of it that it is enough, or the other end is closed."""
    said, end = b"", time.monotonic() + seconds
    while not done(said):
        left = end - time.monotonic()
        if left <= 0 or not select.select([fd], [], [], left)[0]:
            break
        try:
            got = os.read(fd, 65536)
        except OSError:  # a terminal's way to say so
            break
        if not got:
            break
        said += got
    return said


def hear_all(fd):
    """What comes until the other end is closed."""
    return hear(fd, lambda said: False)
