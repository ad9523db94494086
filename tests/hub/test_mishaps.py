"""tern pull against a stand-in for the hub: what is refused or cannot be had, and the one line that says so: proxies,
certificates, addresses as people paste them, names that are something else, no network (standard library; openssl)."""

import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from home import Home, refused, run_all, tally, tiny  # noqa: E402
from standin import Fault  # noqa: E402
from terncli import tern  # noqa: E402
from waiting import DEADLINE  # noqa: E402


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
    hub.repo("org/tiny", tiny())
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
        for name, what in (("llama3.2", "tern pull mlx-community/Llama-3.2-3B-Instruct-4bit"), ("llama3.2:1b", "Llama-3.2-1B"), ("Mistral:latest", "Mistral-7B"), ("llama3.1:8b-instruct-q4_0", "Llama-3.1-8B"), ("llama3.1:405b", "mlx-community/NAME"), ("deepseek-r1:1.5b", "mlx-community/NAME")):
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


TESTS = [test_proxy, test_tls, test_clock, test_addresses, test_mishaps, test_refusals, test_offline]


if __name__ == "__main__":
    sys.exit(run_all(TESTS))
