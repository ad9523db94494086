"""tern pull against a stand-in for the hub on the loopback: what comes, what a fault does, what is refused and in which
words, and that the cache is the one huggingface_hub reads and writes (standard library; huggingface_hub from
build/oracle where it is there)."""

import fcntl
import hashlib
import json
import os
import pty
import random
import re
import select
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from standin import Fault, Hub, Repo  # noqa: E402
from tally import Tally  # noqa: E402
from terncli import BINARY, BUILD, tern  # noqa: E402
from waiting import DEADLINE, hear, hear_all, until  # noqa: E402

MODEL = HERE.parent / "golden" / "llama-4bit" / "model"
ORACLE = BUILD / "oracle" / "bin" / "python"
PIECE = 8 << 20
tally = Tally()
random.seed(1)


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


# ---- what comes ----


def test_plain(hub):
    repo = hub.repo("org/tiny", tiny() | {"README.md": b"x", "model.gguf": b"y" * 5000, "pytorch_model.bin": b"z" * 5000,
                                          "consolidated.safetensors": b"z" * 5000, "onnx/model.onnx": b"q" * 5000,
                                          "additional_chat_templates/rag.jinja": b"{{ x }}", "tokenizer.model": b""})
    wanted = [*tiny(), "additional_chat_templates/rag.jinja", "tokenizer.model"]
    with Home(hub) as home:
        done = home.pull("org/tiny")
        tally.check("a pull succeeds", done.status == 0, done.err)
        tally.check("and prints the snapshot", done.out.decode() == f"{home.snapshot(repo)}\n", done.out)
        tally.check("the snapshot is whole", not home.whole(repo, wanted), lambda: home.whole(repo, wanted))
        have = sorted(str(p.relative_to(home.snapshot(repo))) for p in home.snapshot(repo).rglob("*") if not p.is_dir())
        tally.check("and has what the engine reads, no more", have == sorted(wanted), have)
        tally.check("refs/main names it", (home.repo(repo.id) / "refs" / "main").read_text() == repo.commit)
        tally.check("nothing else is left", not [p for p in home.left() if "incomplete" in p or "/." in p], home.left())
        hub.forget()
        again = home.pull("org/tiny", "--json")
        told = json.loads(again.out)
        tally.check("a second pull brings nothing", again.status == 0 and told["downloaded"] == 0 and not hub.asked("content"), again.err)
        tally.check("--json", told["repo"] == repo.id and told["commit"] == repo.commit and told["path"] == str(home.snapshot(repo)) and told["files"] == len(wanted), told)
        listed = json.loads(tern("ls", "--json", env=home.env).out)
        tally.check("ls shows it", [m["id"] for m in listed] == ["org/tiny"] and "error" not in listed[0], listed)
        ran = tern("logits", "org/tiny", "--ids", "1,2", env=home.env)
        tally.check("and it runs", ran.status == 0, ran.err)


def test_choice(hub):
    repo = hub.repo("org/many", tiny() | {"a/b.gguf": b"g" * 3000, "c.gguf": b"h" * 3000, "empty.txt": b""})
    with Home(hub) as home:
        done = home.pull("org/many", "--include", "*.gguf", "--include", "empty.txt", "--exclude", "c.*")
        tally.check("--include and --exclude", done.status == 0 and not home.whole(repo, ["a/b.gguf", "empty.txt"]), done.err)
        tally.check("bring these alone", not (home.snapshot(repo) / "config.json").exists() and not (home.snapshot(repo) / "c.gguf").exists())
        tally.check("and it is no model for ls", tern("ls", "--json", env=home.env).out == b"[]\n")
        done = home.pull("org/many")
        tally.check("the rest joins the snapshot", done.status == 0 and not home.whole(repo, [*tiny(), "a/b.gguf"]), done.err)
        refused("nothing wanted", home.pull("org/many", "--include", "*.bin"), "none of its 8 files", "--include")
        done = home.pull("org/many", "--include", "a/")
        tally.check("a folder", done.status == 0, done.err)
    hub.repo("org/gguf", {"config.json": b"{}", "x.gguf": b"g" * 3000})
    with Home(hub) as home:
        refused("a repo of GGUF files", home.pull("org/gguf"), "no model*.safetensors", ".gguf", "--include")


def test_revisions(hub):
    repo = hub.repo("org/revs", tiny())
    repo.refs |= {"v1.0": repo.commit, "refs/pr/7": repo.commit}
    for revision in "v1.0", "refs/pr/7", repo.commit:
        with Home(hub) as home:
            done = home.pull(f"org/revs@{revision}")
            tally.check(f"revision {revision[:9]}", done.status == 0 and not home.whole(repo), done.err)
            ref = home.repo(repo.id) / "refs" / revision
            tally.check(f"its ref {revision[:9]}", ref.exists() == (revision != repo.commit) and not (home.repo(repo.id) / "refs" / "main").exists())
    repo.refs |= {"feat": repo.commit, "feat/x": repo.commit}
    for first, second in ("feat", "feat/x"), ("feat/x", "feat"):
        with Home(hub) as home:
            home.pull(f"org/revs@{first}")
            shutil.rmtree(home.snapshot(repo))
            hub.forget()
            refused(f"{second} after {first}", home.pull(f"org/revs@{second}"), "refs/feat", "in the way")
            tally.check(f"{second} after {first}: nothing is downloaded", not home.snapshot(repo).exists() and not hub.asked("content"))
            tally.check(f"{second} after {first}: its commit can be pulled", home.pull(f"org/revs@{repo.commit}").status == 0 and not home.whole(repo))
    with Home(hub) as home:
        refused("no such revision", home.pull("org/revs@v9"), 'no revision "v9"', "org/revs")
        repo.refs["a" * 40] = repo.commit
        refused("another commit than was asked for", home.pull("org/revs@" + "a" * 40), "a" * 40, "answers with " + repo.commit)


def test_pages(hub):
    files = tiny() | {f"extra/{i:04}.txt": b"%d" % i for i in range(2500)}
    repo = hub.repo("org/pages", files, page=1000)
    with Home(hub) as home:
        hub.forget()
        done = home.pull("org/pages")
        tally.check("a list of three pages", done.status == 0 and not home.whole(repo, tiny()) and len(hub.asked("hub", "/tree/")) == 3, done.err)
        for label, cursor in ("long", "a" * 5000), ("behind another", None):
            hub.link_cursor, hub.preload = cursor, not cursor
            hub.forget()
            done = home.pull("org/pages")
            tally.check(f"a Link header that is {label}", done.status == 0 and len(hub.asked("hub", "/tree/")) == 3, done.err)
        hub.link_cursor = hub.preload = None
        for hub.rel in ';rel=next', '; rel = "next"', '; title="x"; REL="next"':
            hub.forget()
            tally.check(f"a next page by {hub.rel}", home.pull("org/pages").status == 0 and len(hub.asked("hub", "/tree/")) == 3)
        hub.rel = '; rel="next"'
        hub.gzip = True
        tally.check("answers that come compressed", home.pull("org/pages").status == 0)
        hub.gzip = False
        hub.next_link = "itself"
        refused("a page that names itself", home.pull("org/pages"), "names itself")
        hub.next_link = "broken"
        refused("a Link header without an end", home.pull("org/pages"), "Link header")
        hub.next_link = hub.content_url + "/api/models/org/pages/tree/x"
        refused("a list that goes on elsewhere", home.pull("org/pages"), "another host")
        hub.next_link = None


def test_shards(hub):
    shards = {f"model-{i:05}-of-00003.safetensors": b"%d" % i * 2000 for i in (1, 2, 3)}
    repo = hub.repo("org/shards", tiny() | shards)
    with Home(hub) as home:
        tally.check("all shards", home.pull("org/shards").status == 0 and not home.whole(repo))
    for missing in shards:
        hub.repo("org/shards", tiny() | {k: v for k, v in shards.items() if k != missing})
        with Home(hub) as home:
            refused(f"a list without {missing}", home.pull("org/shards"), missing, "half a model")
            tally.check("nothing is written", home.left() == [], home.left())


def test_moved(hub):
    repo = hub.repo("new/name", tiny())
    hub.repos["old/name"] = Repo("old/name", {}, "0" * 40, moved_to="new/name")
    with Home(hub) as home:
        done = home.pull("old/name")
        have = home.repo("old/name") / "snapshots" / repo.commit / "config.json"
        tally.check("a repo that moved is followed", done.status == 0 and have.exists(), done.err)


# ---- the token ----


def test_token(hub):
    hub.repo("org/private", tiny() | {"model.safetensors": os.urandom(3 * PIECE + 5)}, private=True)
    with Home(hub) as home:
        hub.forget()
        done = home.pull("org/private")
        tally.check("a private repo with the token", done.status == 0, done.err)
        tally.check("the hub gets the token", all("authorization" in s.headers for s in hub.asked("hub")))
        tally.check("the content host does not", hub.asked("content") and not any("authorization" in s.headers for s in hub.asked("content")))
    with Home(hub, token="") as home:
        (home.folder / "token").write_text(" hf_good\n")
        tally.check("the token file", home.pull("org/private").status == 0)
        (home.folder / "elsewhere").write_text("hf_good")
        (home.folder / "token").unlink()
        home.env["HF_TOKEN_PATH"] = str(home.folder / "elsewhere")
        tally.check("HF_TOKEN_PATH", home.pull("org/private").status == 0)
        home.env["HF_HUB_DISABLE_IMPLICIT_TOKEN"] = "1"
        tally.check("a token that is not to be sent", home.pull("org/private").status == 1)
    with Home(hub, token="") as home:
        refused("a private repo without one", home.pull("org/private"), "no such repo", "private", "HF_TOKEN")
    with Home(hub, token="hf_bad") as home:
        refused("a wrong token", home.pull("org/private"), "does not accept this token")
    with Home(hub, token="hf_a\r\nX-Evil: 1") as home:
        refused("a token with a line end in it", home.pull("org/private"), "HF_TOKEN", status=2)


def test_proxy(hub):
    """libcurl's own variables: the stand-in as a proxy for a host that there is not."""
    repo = hub.repo("org/tiny", tiny())
    with Home(hub, HF_ENDPOINT="http://hub.invalid", http_proxy=hub.url, no_proxy="") as home:
        hub.forget()
        done = home.pull("org/tiny")
        tally.check("a proxy", done.status == 0 and not home.whole(repo), done.err)
        tally.check("all goes through it", hub.asked("hub", "http://hub.invalid/api/") and not hub.asked("content"), hub.asked())
        tally.check("the token is for the hub alone", not [s for s in hub.asked() if "authorization" in s.headers and not s.path.startswith("http://hub.invalid/")])


def test_tls(hub):
    """A certificate that nobody vouches for ends it at once; nothing goes over such a connection."""
    made = subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-keyout", "/dev/stdout"], capture_output=True, check=False) if shutil.which("openssl") else None
    if not made or made.returncode:
        tally.skip("a certificate of our own", "openssl makes none here", 3)
        return
    with tempfile.NamedTemporaryFile() as pem, Home(hub) as home:
        pem.write(made.stdout)
        pem.flush()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem.name)
        heard = []

        def listen(server):
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                try:
                    heard.append(context.wrap_socket(connection, server_side=True).recv(1))
                except OSError:
                    heard.append(b"")

        server = socket.create_server(("127.0.0.1", 0))
        listener = threading.Thread(target=listen, args=(server,), daemon=True)
        listener.start()
        home.env["HF_ENDPOINT"] = f"https://127.0.0.1:{server.getsockname()[1]}"
        refused("a certificate that nobody vouches for", home.pull("org/tiny"), "ertificate")
        server.shutdown(socket.SHUT_RDWR)
        listener.join(DEADLINE)  # it may still be at the connection that tern has given up
        server.close()
        tally.check("one connection, and no request over it", len(heard) == 1 and not heard[0], heard)


def nobody(home, port):
    """A pull from a port at which nobody listens: it takes as long as all its tries."""
    return tern("pull", "org/tiny", env={**home.env, "HF_ENDPOINT": f"http://127.0.0.1:{port}"})


def test_clock(hub):
    """A certificate that is no longer valid: the clock may be wrong."""
    with tempfile.TemporaryDirectory() as name, Home(hub) as home:
        folder = Path(name)
        (folder / "index").touch()
        (folder / "serial").write_text("01")
        (folder / "conf").write_text(f"[ca]\ndefault_ca=d\n[d]\ndir={folder}\ndatabase={folder}/index\nserial={folder}/serial\nnew_certs_dir={folder}\ndefault_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n[req]\ndistinguished_name=n\n[n]\n")
        make = [["openssl", "req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1", "-config", folder / "conf", "-keyout", folder / "key", "-out", folder / "csr"],
                ["openssl", "ca", "-batch", "-selfsign", "-config", folder / "conf", "-keyfile", folder / "key", "-in", folder / "csr", "-startdate", "200101000000Z", "-enddate", "200201000000Z", "-out", folder / "cert", "-notext"]]
        if not shutil.which("openssl") or any(subprocess.run(list(map(str, c)), capture_output=True, check=False).returncode for c in make):
            tally.skip("a certificate of the past", "openssl makes none here", 1)
            return
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "cert", folder / "key")
        server = socket.create_server(("127.0.0.1", 0))

        def listen():
            try:
                context.wrap_socket(server.accept()[0], server_side=True)
            except OSError:
                pass

        threading.Thread(target=listen, daemon=True).start()
        home.env["HF_ENDPOINT"] = f"https://127.0.0.1:{server.getsockname()[1]}"
        home.env["SSL_CERT_FILE"] = str(folder / "cert")
        refused("a certificate of the past", home.pull("org/tiny"), "not valid today", "clock right?", f"it says {time.gmtime().tm_year}-")
        server.close()


def test_refusals(hub):
    with Home(hub) as home, socket.socket() as taken, ThreadPoolExecutor() as beside:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        port = taken.getsockname()[1]
        tries = beside.submit(nobody, home, port)
        refuse_at_once(hub)
        done = tries.result()
        refused("nobody at the endpoint", done, f"127.0.0.1:{port}", "tried 6 times")
        tally.check("each try is told", done.err.count(": again in ") == 5, done.err)


def refuse_at_once(hub):
    hub.repo("org/gated", tiny(), gated=True)
    hub.repo("org/closed", tiny(), gated="closed")
    hub.repo("org/off", tiny(), disabled=True)
    with Home(hub, token="") as home:
        refused("a gated repo", home.pull("org/gated"), "org/gated is gated", "accept its terms at " + hub.url, "HF_TOKEN")
        refused("a repo that is not there", home.pull("org/none"), "org/none", "no such repo")
        tally.check("leaves nothing", home.left() == [], home.left())
    with Home(hub) as home:
        refused("a gated repo without access", home.pull("org/closed"), "org/closed is gated", "has no access")
        refused("a repo that is not there, with a token", home.pull("org/none"), "no such repo")
        refused("a disabled repo", home.pull("org/off"), "disabled")
        tally.check("a gated repo with access", home.pull("org/gated").status == 0)
    with Home(hub) as home:
        for name in "tiny", "a/b/c", "../x", "org/..", "org/na me", "org/-x", "org/x--y", "org/x@", "org/x@../y", "org/x@a//b", "-/x", "o" * 300 + "/x", "org/x@\udcff":
            refused(f"the name {name[:20]!r}", home.pull(name), status=2)
        refused("no name", tern("pull", env=home.env), "ORG/NAME", status=2)
        home.env["HF_ENDPOINT"] = "ftp://127.0.0.1/"
        refused("an endpoint of another scheme", home.pull("org/tiny"), "HF_ENDPOINT", status=2)
        for endpoint in "ftp://user:hunter2@127.0.0.1", "user:hunter2@127.0.0.1":
            home.env["HF_ENDPOINT"] = endpoint
            done = home.pull("org/tiny")
            tally.check(f"no password in the line about {endpoint[:3]}", done.status == 2 and "127.0.0.1" in done.error_line and "hunter2" not in done.err, done.err)
        home.env["HF_ENDPOINT"] = hub.url.replace("://", "://user:hunter2@")
        for name in "org/none", "org/closed", "org/tiny":
            hub.api_faults = [Fault(status=418)] * (name == "org/tiny")
            done = home.pull(name)
            tally.check(f"no password in the line about {name}", done.status == 1 and hub.url in done.error_line and "hunter2" not in done.err, done.err)


def test_addresses(hub):
    """What people paste: addresses of pages, and short forms."""
    repo = hub.repo("org/tiny", tiny())
    repo.refs |= {"v1": repo.commit, "refs/pr/1": repo.commit}
    host = hub.url.split("//")[1]
    for text, ref in ((f"{hub.url}/org/tiny", "main"), (f"{hub.url}/org/tiny/tree/v1", "v1"), (f"{hub.url}/org/tiny/tree/refs%2Fpr%2F1?x=y#z", "refs/pr/1"), (f"{host}/org/tiny/", "main"), ("hf://org/tiny@v1", "v1"), (f"{hub.url}/org/tiny/blob/main", "main")):
        with Home(hub) as home:
            done = home.pull(text)
            tally.check(f"pull {text.replace(host, 'HOST')}", done.status == 0 and done.out.decode() == f"{home.snapshot(repo)}\n" and (home.repo(repo.id) / "refs" / ref).exists(), done.err)
    with Home(hub) as home:
        refused("another host", home.pull("https://huggingface.co/org/tiny"), "huggingface.co is not the hub that is asked", host, "HF_ENDPOINT", status=2)
        refused("the hub's short host is another one here", home.pull("hf.co/org/tiny"), "hf.co", host, status=2)
        refused("another scheme", home.pull("ftp://x/org/tiny"), "neither http", status=2)
        refused("one file", home.pull(f"{hub.url}/org/tiny/resolve/main/a/b.Q4_K_M.gguf?download=true"), "one file", "tern pull org/tiny --include 'a/b.Q4_K_M.gguf'", status=2)
        refused("one file of a revision", home.pull(f"{hub.url}/org/tiny/blob/v1/config.json"), "tern pull org/tiny@v1 --include 'config.json'", status=2)
        refused("a folder", home.pull(f"{hub.url}/org/tiny/tree/main/sub"), "--include 'sub/'", status=2)
        refused("a dataset's page", home.pull(f"{hub.url}/datasets/org/set"), "is a dataset", status=2)
        refused("a page of another kind", home.pull(f"{hub.url}/org/tiny/settings"), '"settings"', "tern pull org/tiny", status=2)
        refused("a host alone", home.pull(hub.url + "/"), "ORG/NAME", status=2)
        refused("a path out of it", home.pull(f"{hub.url}/org/tiny/tree/..%2F..%2Fx"), "not a branch", status=2)
        refused("a tag of Ollama's", home.pull(f"{host}/org/tiny:Q4_K_M"), "tern pull org/tiny --include '*Q4_K_M*.gguf'", status=2)
        tally.check("nothing came", home.left() == [], home.left())
        done = tern("run", f"{hub.url}/org/tiny", "hi", "--yes", "--raw", "--max-tokens", "1", env=home.env)
        tally.check("run takes an address too", done.status == 0 and not home.whole(repo), done.err)
        done = tern("logits", f"{hub.url}/org/tiny/tree/main", "--ids", "1", env=home.env)
        tally.check("and so does what does not download", done.status == 0, done.err)
        home.env["HF_ENDPOINT"] = "https://huggingface.co/"
        home.env["HF_HUB_OFFLINE"] = "1"
        for text in "hf.co/org/tiny", "https://huggingface.co/org/tiny", "www.huggingface.co/org/tiny":
            tally.check(f"the hub's own {text}", home.pull(text).status == 0)


def test_mishaps(hub):
    """What happens to everybody once: one line each, with what to do."""
    hub.repo("org/torch", {"config.json": b"{}", "pytorch_model-00001-of-00002.bin": b"x", "README.md": b"x"})
    hub.repo("org/adapter", {"config.json": b"{}", "adapter.safetensors": b"x"})
    hub.repo("org/ggufs", {"a.Q2_K.gguf": b"x", "b.Q4_K_M.gguf": b"x"})
    repo = hub.repo("org/tiny", tiny())
    hub.others |= {"datasets/org/set", "spaces/org/demo"}
    for token in "hf_good", "":
        with Home(hub, token=token) as home:
            refused("PyTorch weights alone", home.pull("org/torch"), "PyTorch weights alone", "mlx_lm.convert")
            refused("safetensors of another kind", home.pull("org/adapter"), "none named model*.safetensors")
            refused("GGUF files alone", home.pull("org/ggufs"), "2 .gguf files", "tern pull org/ggufs --include 'b.Q4_K_M.gguf'", "tern run")
            refused("a dataset's name", home.pull("org/set"), "org/set: is a dataset")
            refused("a space's name", home.pull("org/demo"), "org/demo: is a space")
            refused("a name that is near nothing", home.pull("org/zzzzzzzzzzzz"), "no such repo")
            tally.check("nothing came", home.left() == [], home.left())
            home.pull("org/tiny")
            refused("a name that is near one that is here", home.pull("org/tinny"), "no such repo", "did you mean org/tiny, which is here?")
            hub.others.add("datasets/org/tiny")
            refused("a revision that is not there, and a dataset of the same name", home.pull("org/tiny@v9"), 'no revision "v9"')
            tally.check("a revision that is not there is no slip", "did you mean" not in home.pull("org/tiny@v9").err)
    with Home(hub) as home:
        for name, what in (("llama3.2", "tern pull mlx-community/Llama-3.2-3B-Instruct-4bit"), ("llama3.2:1b", "Llama-3.2-1B"), ("Mistral:latest", "Mistral-7B")):
            refused(f"{name}, as Ollama has it", home.pull(name), what, status=2)
            refused(f"run {name}", tern("run", name, env=home.env), what)
            refused(f"run {name} with a prompt", tern("run", name, "hi", env=home.env), what)
    with Home(hub, HF_ENDPOINT="http://hub.invalid", no_proxy="*") as home:
        done = tern("pull", "org/tiny", env=home.env, timeout=120)
        refused("no name server, or no such host", done, "hub.invalid", "is there a network?")
    refusing = socket.create_server(("127.0.0.1", 0))

    def refuse():
        while True:
            try:
                connection, _ = refusing.accept()
            except OSError:
                return
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    threading.Thread(target=refuse, daemon=True).start()
    proxy = f"http://127.0.0.1:{refusing.getsockname()[1]}"
    with Home(hub, HF_ENDPOINT="https://hub.invalid", https_proxy=proxy, no_proxy="") as home:
        refused("a proxy that refuses a tunnel", home.pull("org/tiny"), "proxy", "407", "NAME:PASSWORD")
    with Home(hub, HF_ENDPOINT="http://hub.invalid", http_proxy=proxy, no_proxy="") as home:
        refused("a proxy that refuses a page", home.pull("org/tiny"), "proxy", "NAME:PASSWORD")
    refusing.shutdown(socket.SHUT_RDWR)
    refusing.close()
    with Home(hub, HF_ENDPOINT="http://hub.invalid", http_proxy="http://proxy.invalid", no_proxy="") as home:
        refused("a proxy that is not there", home.pull("org/tiny"), "proxy", "http_proxy")


def test_offline(hub):
    repo = hub.repo("org/tiny", tiny())
    with Home(hub, HF_HUB_OFFLINE="1") as home:
        hub.forget()
        refused("offline and not there", home.pull("org/tiny"), "HF_HUB_OFFLINE")
        home.env["HF_HUB_OFFLINE"] = "0"
        home.pull("org/tiny")
        home.env["HF_HUB_OFFLINE"] = "yes"
        hub.forget()
        done = home.pull("org/tiny")
        tally.check("offline and there", done.status == 0 and done.out.decode().strip() == str(home.snapshot(repo)), done.err)
        tally.check("by its commit too", home.pull(f"org/tiny@{repo.commit}").status == 0)
        tally.check("asks nobody", not hub.asked())
        (home.snapshot(repo) / "model.safetensors").unlink()
        refused("offline and half of it there", home.pull("org/tiny"), "HF_HUB_OFFLINE", "safetensors")


# ---- faults ----

BIG = os.urandom(2 * PIECE + 12345)


def pull_at_once(hub, faults):
    """For each fault a pull of a repo of its own, all side by side, as most of the time goes by in waiting: (what it said,
    what is in its cache, what is wrong with the snapshot, seconds)."""

    def pull(number, fault):
        repo = hub.repo(f"org/faulty{number}", tiny() | {"model.safetensors": BIG})
        repo.fault("model.safetensors", fault)
        with Home(hub, HF_HUB_DOWNLOAD_TIMEOUT="3" if fault.hold_from >= 0 else "600") as home:
            begin = time.monotonic()
            done = home.pull(repo.id)
            return done, home.left(), home.whole(repo), time.monotonic() - begin

    with ThreadPoolExecutor(len(faults)) as pool:
        return list(pool.map(pull, range(len(faults)), faults))


def test_faults(hub):
    """Each fault passes after some tries, and the bytes are right."""
    cases = {
        "a body cut short": Fault(times=2, truncate=100000),
        "a reset": Fault(times=2, reset_after=200000),
        "a stall": Fault(times=1, hold_from=300000),
        "status 503": Fault(times=2, status=503),
        "status 500 and a page": Fault(times=1, status=500, body=b"<html>" * 1000),
        "status 429 with Retry-After": Fault(times=1, status=429, retry_after="1"),
        "status 429 with a date": Fault(times=1, status=429, retry_after="Wed, 21 Oct 2015 07:28:00 GMT"),
        "status 429 with RateLimit": Fault(times=1, status=429, rate_limit='"resolvers";r=0;t=2'),
        "a host without ranges": Fault(no_ranges=True),
        "a host without ranges that resets": Fault(times=6, no_ranges=True, reset_after=9000000),
        "a host that loses ranges later": Fault(times=2, reset_after=0),
    }
    for (label, fault), (done, _, wrong, took) in zip(cases.items(), pull_at_once(hub, cases.values())):
        tally.check(label, done.status == 0 and not wrong, f"{done.err}{wrong}")
        if fault.hold_from >= 0:
            tally.check("a stall is told", "nothing came for 3 s" in done.err, done.err)
        if fault.rate_limit:
            tally.check("RateLimit is kept", "again in 2.0 s" in done.err, done.err)
        if fault.retry_after == "1":
            tally.check("Retry-After is kept", took >= 1)
    hub.repo("org/faulty", tiny() | {"model.safetensors": BIG})
    for n in range(3):
        hub.api_faults = [Fault(status=502)] * n + [Fault(status=429, retry_after="0")]
        with Home(hub) as home:
            tally.check(f"the API refuses {n + 1} times", home.pull("org/faulty").status == 0)
    hub.expire_signatures = True
    with Home(hub) as home:
        done = home.pull("org/faulty")
        tally.check("signed addresses that run out", done.status == 0 and not home.whole(hub.repos["org/faulty"]), done.err)
    hub.expire_signatures = False


def test_final_faults(hub):
    """Each fault ends the pull, with one line, and no snapshot is there."""
    cases = {
        "wrong bytes": (Fault(flip=True), ["model.safetensors", "SHA-256", "thrown away"]),
        "more bytes than listed": (Fault(longer=True), ["model.safetensors", "the hub lists"]),
        "other bytes than asked for": (Fault(wrong_range=True), ["other bytes than were asked"]),
        "status 404 of the content": (Fault(status=404), ["model.safetensors", "404"]),
        "a redirect to a file": (Fault(location="file:///etc/passwd"), ["redirects to", "file:", "only http and https"]),
        "a redirect to gopher": (Fault(location="gopher://127.0.0.1/"), ["only http and https"]),
        "a redirect in a circle": (Fault(location="?again"), ["more than 10 redirects"]),
        "an hour to wait": (Fault(status=429, retry_after="3600"), ["wait 3600 s"]),
        "ages to wait": (Fault(status=429, retry_after="99999999999999999999"), ["the host asks to wait"]),
        "cut short for ever": (Fault(truncate=0), ["model.safetensors", "tried 6 times"]),
    }
    for (label, (fault, words)), (done, left, _, _) in zip(cases.items(), pull_at_once(hub, [fault for fault, _ in cases.values()])):
        refused(label, done, *words)
        tally.check(f"{label}: no snapshot, no ref", not [p for p in left if "/snapshots/" in p or "/refs/" in p], left)
        if fault.flip:  # beginnings of the other files may stay, for the next pull
            name = hashlib.sha256(BIG).hexdigest()
            tally.check("wrong bytes are not kept", not any(name in p for p in left), left)
    repo = hub.repo("org/broken", tiny())
    repo.fault("config.json", Fault(flip=True))
    with Home(hub) as home:
        refused("wrong bytes of config.json", home.pull("org/broken"), "config.json: other bytes came")
    repo.faults.clear()
    repo.fault("tokenizer_config.json", Fault(flip=True))
    with Home(hub) as home:
        refused("wrong bytes of a small file", home.pull("org/broken"), "git SHA-1")


def entry(path, size=10, oid="a" * 40, **more):
    return {"type": "file", "oid": oid, "size": size, "path": path, **more}


def test_bad_lists(hub):
    weights = entry("model.safetensors", lfs={"oid": "b" * 64, "size": 10, "pointerSize": 100})
    cases = {
        "a path out of the repo": [weights, entry("../../x")],
        "an absolute path": [weights, entry("/etc/x")],
        "a path with an empty part": [weights, entry("a//b")],
        "a dot": [weights, entry("a/./b")],
        "a backslash": [weights, entry("..\\x")],
        "a control character": [weights, entry("a\nb")],
        "a very long name": [weights, entry("a" * 300)],
        "a negative size": [entry("model.safetensors", -1)],
        "an absurd size": [entry("model.safetensors", 1 << 60)],
        "a size beyond 64 bits": b'[{"type":"file","oid":"%s","size":99999999999999999999999,"path":"model.safetensors"}]' % (b"a" * 40),
        "a size that is none": [entry("model.safetensors", "10")],
        "no size": [{"type": "file", "oid": "a" * 40, "path": "model.safetensors"}],
        "a hash that is a path": [entry("model.safetensors", oid="../../../../x")],
        "a hash of another length": [entry("model.safetensors", lfs={"oid": "b" * 63, "size": 1})],
        "a file twice": [weights, weights],
        "a file that is a folder": [weights, entry("model.safetensors/x")],
        "a list that is an object": b'{"error":"x"}',
        "a web page": b"<!DOCTYPE html><html>login</html>",
        "half a list": b'[{"type":"file",',
        "an empty answer": b"",
        "no UTF-8": b'[{"type":"file","oid":"' + b"a" * 40 + b'","size":1,"path":"model\xff.safetensors"}]',
        "a bomb of brackets": b"[" * 100000,
    }
    for label, listing in cases.items():
        hub.repo("org/list", tiny(), listing=listing)
        with Home(hub) as home:
            refused(f"a list with {label}", home.pull("org/list"), "org/list")
            tally.check(f"{label}: nothing is written", home.left() == [], home.left())
    for label, info in {"a page": b"<html>", "no sha": b"{}", "a sha that is a path": b'{"sha":"../../x"}', "a list": b"[]"}.items():
        hub.repo("org/list", tiny(), info=info)
        with Home(hub) as home:
            refused(f"an info that is {label}", home.pull("org/list"), "org/list")
    hub.repo("org/list", tiny() | {"config.json": b"<html>no</html>"})
    with Home(hub) as home:
        refused("a config that is a page", home.pull("org/list"), "config.json is a web page and not JSON")
        tally.check("nothing of it is written", home.left() == [], home.left())
    repo = hub.repo("org/list", tiny())
    repo.fault("config.json", Fault(status=200, body=b"<html>please log in</html>"))
    with Home(hub) as home:
        refused("a page in place of the config", home.pull("org/list"), "config.json: a web page came")
    hub.repo("org/list", tiny() | {"config.json": b"{"})
    with Home(hub) as home:
        done = home.pull("org/list")
        tally.check("a config that is no JSON is warned of", "warning" in done.err and "does not run here" in done.err and "config.json" in done.err, done.err)


def test_warnings(hub):
    config = json.loads(tiny()["config.json"])
    hub.repo("org/alien", tiny() | {"config.json": json.dumps(config | {"model_type": "martian"}).encode()})
    with Home(hub) as home:
        done = home.pull("org/alien")
        tally.check("a type that does not run is warned of", "warning: org/alien does not run here" in done.err and "martian" in done.err, done.err)
    listing = [Hub_entry("config.json", tiny()["config.json"]), entry("model.safetensors", lfs={"oid": "b" * 64, "size": 1 << 45})]
    hub.repo("org/vast", tiny(), listing=listing)
    with Home(hub) as home:
        done = home.pull("org/vast")
        tally.check("what does not fit is warned of", "warning: org/vast does not fit" in done.err and "35.2 TB" in done.err, done.err)
        refused("and what the disk has no room for is refused", done, "the disk has")
        tally.check("before a byte comes", home.left() == [], home.left())


def Hub_entry(path, data):
    from standin import _Handler

    return _Handler.entry(path, data)


# ---- interruptions ----


def start(home, *args):
    return subprocess.Popen([BINARY, "pull", *args], env={**os.environ, **home.env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def size(path):
    return path.stat().st_size if path.exists() else 0


def test_resume(hub):
    data = os.urandom(3 * PIECE)
    repo = hub.repo("org/slow", tiny() | {"model.safetensors": data})
    etag = hashlib.sha256(data).hexdigest()
    with Home(hub) as home:
        partial = home.repo(repo.id) / "blobs" / f"{etag}.incomplete"
        for how, status in (signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9):
            before = size(partial)
            repo.fault("model.safetensors", Fault(hold_from=before + 300000))
            process = start(home, "org/slow")
            until(lambda: size(partial) > before + 100000 or process.poll() is not None)
            process.send_signal(how)
            process.communicate(timeout=DEADLINE)
            tally.check(f"{how.name} ends it", process.returncode == status, process.returncode)
            tally.check(f"{how.name} leaves the beginning of the file", partial.read_bytes() == data[: partial.stat().st_size] and partial.stat().st_size > before)
            tally.check(f"{how.name}: no snapshot", not home.snapshot(repo).exists())
        have = partial.stat().st_size
        hub.forget()
        repo.faults.clear()
        done = home.pull("org/slow")
        tally.check("and it goes on from there", done.status == 0 and not home.whole(repo), done.err)
        first = [int(s.headers["range"].split("=")[1].split("-")[0]) for s in hub.asked("content", "/model.safetensors?") if "range" in s.headers]
        tally.check("asking for the rest alone", first and min(first) == have, (first, have))
        tally.check("the name for incomplete bytes is gone", not partial.exists())
    for label, left in {"wrong": b"x" * 500000, "too many": data + b"x", "all": data, "as many, wrong": b"x" * len(data)}.items():
        with Home(hub) as home:
            partial = home.repo(repo.id) / "blobs" / f"{etag}.incomplete"
            partial.parent.mkdir(parents=True)
            partial.write_bytes(left)
            done = home.pull("org/slow")
            tally.check(f"bytes left by others: {label}", done.status == 0 and not home.whole(repo), done.err)


def test_kill(hub):
    """A hundred kills at random requests of a download, or behind the last one: a snapshot that is visible is whole."""
    files = tiny() | {f"model-{i:05}-of-00012.safetensors": os.urandom(random.randrange(1, 300000)) for i in range(1, 13)}
    repo = hub.repo("org/kill", files)
    broken, finished, cut = "", 0, 0
    with Home(hub) as home:
        folder = home.repo(repo.id) / "blobs"
        for _ in range(100):
            if random.random() < 0.2:
                shutil.rmtree(home.cache, ignore_errors=True)
            elif home.snapshot(repo).exists():
                shutil.rmtree(home.snapshot(repo))
                blobs = list(folder.iterdir())
                for blob in random.sample(blobs, len(blobs) // 2):
                    blob.unlink()
            have = len([p for p in folder.glob("*") if p.suffix != ".incomplete"])
            at = random.randrange(1, 2 * (len(files) - have) + 4)  # two requests for the list, and two for most files
            hub.forget()
            process = start(home, "org/kill")
            until(lambda: len(hub.seen) >= at or process.poll() is not None, pause=0.001)
            time.sleep(random.choice([0, 0, random.uniform(0, 0.02)]))
            process.kill()
            process.communicate(timeout=DEADLINE)
            finished += process.returncode == 0
            cut += process.returncode == -9
            if home.snapshot(repo).exists():
                broken = broken or home.whole(repo)
            listed = json.loads(tern("ls", "--json", env=home.env).out)
            if listed and home.whole(repo):
                broken = broken or "ls lists it"
        tally.check("a hundred kills", not broken, broken)
        tally.check("of which many fell into a download", cut >= 30, (cut, finished))
        done = home.pull("org/kill")
        tally.check("and then it comes whole", done.status == 0 and not home.whole(repo), done.err)


def test_together(hub):
    """Several processes at once bring every byte once, by and large, and all succeed."""
    data = os.urandom(2 * PIECE)
    repo = hub.repo("org/both", tiny() | {"model.safetensors": data})
    repo.fault("model.safetensors", Fault(pace=0.002))
    with Home(hub) as home:
        hub.forget()
        processes = [start(home, "org/both") for _ in range(4)]
        ends = [p.communicate(timeout=DEADLINE) + (p.returncode,) for p in processes]
        tally.check("four at once", all(e[2] == 0 for e in ends) and not home.whole(repo), ends)
        ranges = sorted(tuple(map(int, s.headers["range"].split("=")[1].split("-"))) for s in hub.asked("content", "/model.safetensors?"))
        once = ranges[0][0] == 0 and ranges[-1][1] == len(data) - 1 and all(a[1] + 1 == b[0] for a, b in zip(ranges, ranges[1:]))
        tally.check("the weights came once", once, ranges)
        tally.check("and nothing is left over", not [p for p in home.left() if "incomplete" in p or "/.s" in p], home.left())


def test_disk(hub):
    repo = hub.repo("org/full", tiny() | {"model.safetensors": BIG})
    with tempfile.TemporaryDirectory() as folder:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", folder], capture_output=True).returncode == 0
        if not mounted:
            tally.skip("a full disk", "mount is not allowed here", 4)
            return
        try:
            with Home(hub, HF_HUB_CACHE=folder) as home:
                home.cache = Path(folder)
                ballast = Path(folder) / "ballast"
                ballast.write_bytes(b"x" * (20 << 20))
                refused("a disk without room", home.pull("org/full"), "still to come", "the disk has")
                tally.check("is refused before a byte comes", not (home.repo(repo.id)).exists())
                ballast.write_bytes(b"")
                slow = Fault(hold_from=100000)
                repo.fault("model.safetensors", slow)
                process = start(home, "org/full")
                until(lambda: list(Path(folder).glob("*/blobs/*.incomplete")) or process.poll() is not None)
                ballast.write_bytes(b"x" * (30 << 20))
                slow.hold_from = -1
                _, err = process.communicate(timeout=DEADLINE)
                said = err.decode().strip().splitlines()[-1]
                tally.check("a disk that fills up", process.returncode == 1 and "No space left" in said, said)
                tally.check("no snapshot", not home.snapshot(repo).exists())
                ballast.unlink()
                repo.faults.clear()
                done = home.pull("org/full")
                tally.check("and with room again it goes on", done.status == 0 and not home.whole(repo), done.err)
        finally:
            subprocess.run(["umount", "-l", folder], check=False)


# ---- the cache ----


def test_links(hub):
    """Links in the cache that lead elsewhere, or round in a circle."""
    repo = hub.repo("org/links", tiny() | {"additional_chat_templates/x.jinja": b"{{ x }}"})
    for name in "blobs", "snapshots", "refs", f"snapshots/{repo.commit}", f"snapshots/{repo.commit}/additional_chat_templates":
        with Home(hub) as home:
            place = home.repo(repo.id) / name
            place.parent.mkdir(parents=True)
            outside = home.folder / "outside"
            outside.mkdir()
            place.symlink_to(outside)
            refused(f"{name.split('/')[-1][:12]} leads out of the cache", home.pull("org/links"), "symbolic link")
            tally.check("nothing is written there", not list(outside.iterdir()), list(outside.iterdir()))
            place.unlink()
            place.symlink_to(place.name)
            refused("or to itself", home.pull("org/links"))
    with Home(hub) as home:
        blob = home.repo(repo.id) / "blobs" / (hashlib.sha256(tiny()["model.safetensors"]).hexdigest() + ".incomplete")
        blob.parent.mkdir(parents=True)
        (home.folder / "victim").write_bytes(b"mine")
        blob.symlink_to(home.folder / "victim")
        refused("incomplete bytes that are a link", home.pull("org/links"), "incomplete")
        tally.check("what it leads to stays", (home.folder / "victim").read_bytes() == b"mine")
        blob.unlink()
        os.mkfifo(blob)
        refused("or a pipe", home.pull("org/links"), "not a regular file")
    for name in ".locks", ".locks/models--org--links":
        with Home(hub) as home:
            outside = home.folder / "outside"
            outside.mkdir()
            (home.cache / name).parent.mkdir(parents=True)
            (home.cache / name).symlink_to(outside)
            refused(f"{name} leads out of the cache", home.pull("org/links"), "symbolic link", ".locks")
            tally.check(f"{name}: nothing is written there", not list(outside.iterdir()))
    with Home(hub) as home:
        home.cache.mkdir()
        home.repo(repo.id).symlink_to(home.repo(repo.id).name)
        refused("a repo that is a link to itself", home.pull("org/links"), "org--links")
        tally.check("ls passes over it", tern("ls", "--json", env=home.env).out == b"[]\n")


def on_terminal(home, *words, asks=False):
    """A tern at a terminal of its own, and the other end of it."""
    leader, follower = pty.openpty()
    process = subprocess.Popen([BINARY, *words], env={**os.environ, "TERM": "xterm", **home.env}, stdout=subprocess.PIPE, stderr=follower, stdin=follower if asks else subprocess.DEVNULL)
    os.close(follower)
    return process, leader


def test_bar(hub):
    """On a terminal there is a bar with bytes, rate and time."""
    repo = hub.repo("org/bar", tiny() | {"model.safetensors": BIG})
    slow = Fault(hold_from=PIECE // 4)
    repo.fault("model.safetensors", slow)
    with Home(hub) as home:
        process, leader = on_terminal(home, "pull", "org/bar")
        bar = re.compile(rb"MB of +16\.8 MB +[0-9.]+ [kM]?B/s +[0-9:]+ \[#")
        said = hear(leader, lambda said: b"MB of" in said)
        slow.hold_from = PIECE  # some more, for a rate
        said += hear(leader, bar.search)
        slow.hold_from = -1
        said += hear_all(leader)
        process.communicate(timeout=DEADLINE)
        os.close(leader)
        tally.check("a bar on a terminal", bar.search(said) and process.returncode == 0, said[-500:])
        tally.check("no line of it is longer than 80", max(len(part) for part in said.decode().replace("\n", "\r").split("\r")) <= 83)
    repo.fault("model.safetensors", Fault(pace=0.02))
    for before, after in ((80, 40), (40, 80), (80, 12)):
        with Home(hub, HF_HUB_DOWNLOAD_TIMEOUT="60") as home:
            leader, follower = pty.openpty()
            size = lambda columns: fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))  # noqa: E731
            size(before)
            process = subprocess.Popen([BINARY, "pull", "org/bar"], env={**os.environ, **home.env}, stdout=subprocess.PIPE, stderr=follower, stdin=subprocess.DEVNULL)
            said, at = b"", 0
            while process.poll() is None or select.select([leader], [], [], 0)[0]:
                if select.select([leader], [], [], 0.1)[0]:
                    said += os.read(leader, 4096)
                if not at and said.count(b" of ") >= 3:
                    size(after)
                    at = len(said)
            os.close(leader)
            os.close(follower)
            process.communicate()

            def widths(text):
                return [len(re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", part)) for part in re.split(r"[\r\n]", text.decode()) if " of" in part and "files" not in part]

            # what was drawn as the window changed may still be of the old width
            tally.check(f"a bar of {before} columns", at and max(widths(said[:at])) < before, widths(said[:at]))
            tally.check(f"follows a window to {after}", widths(said[at:])[2:] and max(widths(said[at:])[2:]) < after, widths(said[at:]))
            tally.check("and the pull is well", process.returncode == 0)
    data = os.urandom(8 * PIECE)
    repo = hub.repo("org/long", tiny() | {"model.safetensors": data})
    repo.fault("model.safetensors", Fault(hold_from=20 << 20))
    with Home(hub) as home:
        process, leader = on_terminal(home, "pull", "org/long")

        def shown(said):
            return ([0] + [float(n) for n in re.findall(rb"([0-9.]+) MB of", said)])[-1]

        said = hear(leader, lambda said: shown(said) >= 12)
        process.send_signal(signal.SIGINT)
        most = shown(said)
        said += hear_all(leader)
        process.communicate(timeout=DEADLINE)
        os.close(leader)
        kept = (home.repo(repo.id) / "blobs" / (hashlib.sha256(data).hexdigest() + ".incomplete")).stat().st_size / 1e6
        tally.check("an interrupted bar does not jump to its end", most >= 12 and process.returncode == 130 and b"100%" not in said, said[-300:])
        tally.check("and most of what it showed is kept", kept >= most / 4, (kept, most))
    with Home(hub) as home:
        tally.check("none elsewhere", "[" not in home.pull("org/bar").err)


def test_run(hub):
    """A verb that answers brings the repo that it is given, where that is wanted."""
    repo = hub.repo("org/tiny", tiny())
    words = ["run", "org/tiny", "hi", "--raw", "--max-tokens", "2"]
    with Home(hub) as home:
        hub.forget()
        refused("run of a repo that is not there", tern(*words, env=home.env), "org/tiny: no such", "`tern pull org/tiny`")
        refused("logits does not download at all", tern("logits", "org/tiny", "--ids", "1", env=home.env), "`tern pull org/tiny`")
        tally.check("nobody was asked", not hub.asked())
        done = tern(*words, "--yes", env=home.env)
        tally.check("--yes brings it", done.status == 0 and not home.whole(repo), done.err)
        again = tern(*words, env=home.env)
        tally.check("stdout has the answer alone", again.status == 0 and again.out == done.out and b"snapshots" not in done.out, done.out)
        refused("--yes and a repo that is not on the hub", tern("run", "org/none", "hi", "--yes", env=home.env), "org/none", "no such repo")
        refused("--yes and no repo's name", tern("run", "./none", "hi", "--yes", env=home.env), "no such file")
    for answer, comes in (b"n\n", False), (b"y\n", True):
        with Home(hub) as home:
            process, leader = on_terminal(home, *words, asks=True)
            said = hear(leader, lambda said: b"[y/N]" in said)
            os.write(leader, answer)
            said += hear_all(leader)
            out, _ = process.communicate(timeout=DEADLINE)
            os.close(leader)
            tally.check(f"asked, {answer!r}", (process.returncode == 0) == comes and bool(out) == comes and home.snapshot(repo).exists() == comes, said)


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


def test_library(hub):
    repo = hub.repo("org/shared", tiny() | {"model.safetensors": BIG})
    if not ORACLE.exists():
        tally.skip("huggingface_hub", f"{ORACLE} is not there", 7)
        return
    with Home(hub) as home:
        home.pull("org/shared")
        done = library(home, "read", "org/shared")
        lines = done.stdout.strip().splitlines()
        ok = done.returncode == 0 and lines[0] == str(home.snapshot(repo)) and lines[1] == str(home.snapshot(repo) / "config.json")
        tally.check("huggingface_hub reads tern's cache", ok, done.stdout + done.stderr[-800:])
        tally.check("and finds nothing wrong with it", repr(("org/shared", [repo.commit], ["main"], len(repo.files))) in done.stdout, done.stdout)
        hub.forget()
        done = library(home, "again", "org/shared")
        tally.check("it downloads none of it again", done.returncode == 0 and not hub.asked("content"), done.stderr[-800:])
    with Home(hub) as home:
        done = library(home, "write", "org/shared")
        tally.check("huggingface_hub fills a cache", done.returncode == 0, done.stderr[-800:])
        listed = json.loads(tern("ls", "--json", env=home.env).out)
        tally.check("which tern reads", [m["path"] for m in listed] == [str(home.snapshot(repo))], listed)
        hub.forget()
        done = home.pull("org/shared")
        tally.check("and downloads none of it again", done.status == 0 and not hub.asked("content") and not home.whole(repo), done.err)
    with Home(hub) as home:  # both at once
        repo.fault("model.safetensors", Fault(pace=0.002))
        process = start(home, "org/shared")
        done = library(home, "write", "org/shared")
        process.communicate(timeout=DEADLINE)
        tally.check("both at once", process.returncode == 0 and done.returncode == 0 and not home.whole(repo), done.stderr[-800:])


TESTS = [test_plain, test_choice, test_revisions, test_pages, test_shards, test_moved, test_token, test_proxy, test_tls, test_clock, test_addresses, test_mishaps, test_refusals, test_offline, test_faults,
         test_final_faults, test_bad_lists, test_warnings, test_resume, test_kill, test_together, test_disk, test_links, test_bar, test_run, test_library]


def main():
    wanted = sys.argv[1:]
    for test in TESTS:
        if wanted and test.__name__ not in wanted:
            continue
        with Hub() as hub:
            begin = time.monotonic()
            test(hub)
            print(f"{test.__name__}: {time.monotonic() - begin:.1f} s", flush=True)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
