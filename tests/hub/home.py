"""What the tests of the hub share: an empty cache that leads to the stand-in, a model's files, and how refusals are looked
at; one count of checks for all that a test program imports."""

import os
import pty
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from standin import Hub  # noqa: E402
from tally import Tally  # noqa: E402
from terncli import BINARY, BUILD, tern  # noqa: E402
from waiting import DEADLINE  # noqa: E402

MODEL = HERE.parent / "golden" / "llama-4bit" / "model"
ORACLE = BUILD / "oracle" / "bin" / "python"
PIECE = 8 << 20
BIG = os.urandom(2 * PIECE + 12345)
tally = Tally()


def tiny():
    return {p.name: p.read_bytes() for p in MODEL.iterdir()}


class Home:
    """An empty cache, and the environment that leads to it and to the stand-in."""

    def __init__(self, hub, token="hf_good", **more):
        self.folder = Path(tempfile.mkdtemp(prefix="tern-hub-"))
        self.cache = self.folder / "hub"
        self.env = {
            "HF_ENDPOINT": hub.url, "HF_HOME": str(self.folder), "TERN_HOME": str(self.folder / "own"), "HF_TOKEN": token,
            "HF_HUB_DOWNLOAD_TIMEOUT": "600", "no_proxy": "*", "HF_HUB_CACHE": "", "HF_HUB_OFFLINE": "", "HF_TOKEN_PATH": "", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "", **more,
        }

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)

    def pull(self, *args, **more):
        return tern("pull", *args, env=self.env, **more)

    def repo(self, id):
        return self.cache / ("models--" + id.replace("/", "--"))

    def snapshot(self, repo):
        return self.repo(repo.id) / "snapshots" / repo.commit

    def whole(self, repo, names=None):
        """What is wrong with the snapshot, or ""."""
        for name in names or repo.files:
            path = self.snapshot(repo) / name
            if not path.is_symlink():
                return f"{name} is no link"
            blob = path.resolve()
            if blob.parent != (self.repo(repo.id) / "blobs").resolve():
                return f"{name} leads to {blob}"
            if path.read_bytes() != repo.files[name]:
                return f"{name} has other bytes"
        return ""

    def left(self):
        """Everything below the cache, but locks."""
        return sorted(str(p.relative_to(self.cache)) for p in self.cache.rglob("*") if ".locks" not in p.parts) if self.cache.exists() else []


def refused(label, done, *words, status=1):
    said = done.error_line
    ok = done.status == status and said.startswith("tern: error: ") and all(w in said for w in words) and not done.out
    tally.check(label, ok, f"exit {done.status}, {done.out!r}: {done.err}")
    tally.check(f"{label}: no token in it", "hf_" not in done.err, done.err)


def start(home, *args):
    return subprocess.Popen([BINARY, "pull", *args], env={**os.environ, **home.env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def on_terminal(home, *words, asks=False):
    """A tern at a terminal of its own, and the other end of it."""
    leader, follower = pty.openpty()
    process = subprocess.Popen([BINARY, *words], env={**os.environ, "TERM": "xterm", **home.env}, stdout=subprocess.PIPE, stderr=follower, stdin=follower if asks else subprocess.DEVNULL)
    os.close(follower)
    return process, leader


LIBRARY = """
import sys
from huggingface_hub import snapshot_download, hf_hub_download, scan_cache_dir
what, id = sys.argv[1:3]
if what == "read":
    print(snapshot_download(id, local_files_only=True))
    print(hf_hub_download(id, "config.json", local_files_only=True))
    info = scan_cache_dir()
    assert not info.warnings, info.warnings
    print([(r.repo_id, sorted(c.commit_hash for c in r.revisions), sorted(r.refs), r.nb_files) for r in info.repos])
elif what == "again":
    print(snapshot_download(id, allow_patterns=["*.json", "*.safetensors"]))
else:
    print(snapshot_download(id))
"""


def library(home, what, id, **more):
    env = {**os.environ, **home.env, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", **more}
    env = {k: v for k, v in env.items() if v}
    return subprocess.run([str(ORACLE), "-c", LIBRARY, what, id], env=env, capture_output=True, text=True, timeout=DEADLINE)


def run_all(tests):
    """Those that the command line names, or all, each with a stand-in of its own; the exit status."""
    wanted = sys.argv[1:]
    for test in tests:
        if wanted and test.__name__ not in wanted:
            continue
        with Hub() as hub:
            begin = time.monotonic()
            test(hub)
            print(f"{test.__name__}: {time.monotonic() - begin:.1f} s", flush=True)
    return tally.close()
