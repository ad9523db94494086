"""HTTP around the routes: keys, pages of other origins, sockets in the file system, TLS, the time to end in, the log."""

import http.client
import json
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from serving import DEADLINE, EOS, GOLDEN, Server, chat, until  # noqa: E402
from tally import Tally  # noqa: E402
from terncli import BINARY, sanitized, tern  # noqa: E402

tally = Tally()
MODEL = GOLDEN / "llama-4bit" / "model"
CHAT = "/v1/chat/completions"
BODY = chat("Hello", max_tokens=2)


# ---- keys


def test_keys(folder):
    file = folder / "keys"
    file.write_text("second-key\r\n\nthird-key\n")
    with Server(MODEL, "--api-key", "first-key", "--api-key-file", file) as s:
        for key in ("first-key", "second-key", "third-key"):
            for headers in ({"Authorization": f"Bearer {key}"}, {"authorization": f"bearer {key}"}, {"x-api-key": key}):
                tally.check(f"{headers}", s.ask(CHAT, BODY, headers=headers)[0] == 200)
        wrong = ({}, {"Authorization": "Bearer first-kez"}, {"Authorization": "Bearer first-key "}, {"Authorization": "first-key"}, {"Authorization": "Basic first-key"},
                 {"x-api-key": ""}, {"x-api-key": "first-ke"}, {"x-api-key": "first-keyy"}, {"x-api-key": "first-key\tsecond-key"}, {"Authorization": "Bearer "}, {"x-api-key": "x" * 20000})
        for headers in wrong:
            status, got, answered = s.ask(CHAT, BODY, headers=headers)
            ok = status == 401 and got["error"]["code"] == "invalid_api_key" and answered["WWW-Authenticate"] == "Bearer"
            tally.check(f"wrong {str(headers)[:60]}", ok, f"{status} {got}")
        for path in ("/metrics", "/v1/models", "/", "/api/tags", "/nothing", "/v1/responses/x"):
            tally.check(f"{path} wants one", s.ask(path)[0] == 401)
        tally.check("/health does not", s.ask("/health")[0] == 200)
        tally.check("Anthropic's shape", s.ask("/v1/messages", {})[1]["error"]["type"] == "authentication_error")
        tally.check("Ollama's shape", "key" in s.ask("/api/chat", {})[1]["error"])
        sock = socket.create_connection(("127.0.0.1", s.port), timeout=DEADLINE)
        sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\n\r\n")
        tally.check("before the body is read", b" 401 " in sock.recv(100))
        sock.close()
    (folder / "empty").write_text("\n")
    (folder / "nul").write_bytes(b"a\0b")
    for label, status, flags in (
        ("an empty key", 2, ["--api-key", ""]), ("a key with a blank", 2, ["--api-key", "a b"]), ("a file without keys", 1, ["--api-key-file", folder / "empty"]),
        ("a file with a NUL", 1, ["--api-key-file", folder / "nul"]), ("no such file", 1, ["--api-key-file", folder / "nothing"]),
    ):
        done = tern("serve", MODEL, "--port", 0, *flags)
        tally.check(label, done.status == status and "--api-key" in done.error_line, f"{done.status} {done.err}")


# ---- pages


def test_pages():
    page, other = "https://app.example", "https://other.example"
    asks = {"Origin": page, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization, content-type"}
    with Server(MODEL, "--cors", page, "--cors", "http://two.example:3000", "--api-key", "k") as s:
        status, text, headers = s.ask(CHAT, method="OPTIONS", headers=asks)
        ok = status == 204 and text == "" and headers["Access-Control-Allow-Origin"] == page and "POST" in headers["Access-Control-Allow-Methods"]
        tally.check("preflight", ok and headers["Access-Control-Allow-Headers"] == "authorization, content-type" and headers["Vary"] == "Origin", f"{status} {headers}")
        status, got, headers = s.ask(CHAT, BODY, headers={"Origin": page, "x-api-key": "k"})
        tally.check("a page asks", status == 200 and headers["Access-Control-Allow-Origin"] == page and "X-Request-Id" in headers["Access-Control-Expose-Headers"], f"{status} {got}")
        status, got, headers = s.ask(CHAT, BODY, headers={"Origin": page})
        tally.check("a page without a key", status == 401 and headers["Access-Control-Allow-Origin"] == page, got)
        tally.check("another page", s.ask(CHAT, BODY, headers={"Origin": other, "x-api-key": "k"})[0] == 403)
        status, got, headers = s.ask(CHAT, method="OPTIONS", headers={**asks, "Origin": other})
        tally.check("another page's preflight", status == 403 and headers["Access-Control-Allow-Origin"] is None, got)
        tally.check("a second origin", s.ask("/health", headers={"Origin": "http://two.example:3000"})[2]["Access-Control-Allow-Origin"] == "http://two.example:3000")
        tally.check("its port counts", s.ask("/health", headers={"Origin": "http://two.example"})[0] == 403)
        tally.check("no Origin, no header", s.ask("/health")[2]["Access-Control-Allow-Origin"] is None)
    with Server(MODEL, "--cors", "*") as s:
        status, _, headers = s.ask("/health", headers={"Origin": other})
        tally.check("all pages", status == 200 and headers["Access-Control-Allow-Origin"] == "*")
        tally.check("OPTIONS alone is no preflight", s.ask(CHAT, method="OPTIONS", headers={"Origin": other})[0] == 405)
    with Server(MODEL) as s:
        tally.check("no flag, no preflight", s.ask(CHAT, method="OPTIONS", headers=asks)[0] == 403)
    for origin in ("", "app.example", "https://", "https://a/b", "https://*.example", "://x"):
        done = tern("serve", MODEL, "--port", 0, "--cors", origin)
        tally.check(f"--cors {origin!r}", done.status == 2 and "--cors" in done.error_line, done.err)


# ---- where it listens


class Local(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=DEADLINE)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(DEADLINE)
        self.sock.connect(self.path)


class Elsewhere(Server):
    """A server that says otherwise where it listens: `said` is its line."""

    def __init__(self, *flags):
        self.process = subprocess.Popen([BINARY, "serve", str(MODEL), *map(str, flags)], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.said = self.process.stderr.readline()
        self.status = None


def ask_local(path, body):
    c = Local(str(path))
    c.request("POST", CHAT, json.dumps(body))
    r = c.getresponse()
    text = r.read()
    c.close()
    return r.status, text


def test_unix_socket(folder):
    path = folder / "socket"
    with Server(MODEL) as s:
        want = s.ask(CHAT, chat("Hello"))[1]["choices"][0]["message"]["content"]
    with Elsewhere("--unix-socket", path) as s:
        tally.check("says where", str(path) in s.said, s.said)
        status, text = ask_local(path, chat("Hello"))
        tally.check("answers there", status == 200 and json.loads(text)["choices"][0]["message"]["content"] == want, text)
        status, text = ask_local(path, chat("Hello", stream=True))
        tally.check("streams there", status == 200 and text.endswith(b"data: [DONE]\n\n"))
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(str(path))
        body = json.dumps(chat("Hello", max_tokens=900, logit_bias={str(EOS): -1000}, stream=True)).encode()
        sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        sock.recv(10)
        sock.close()  # whoever leaves there is seen too
        done = tern("serve", MODEL, "--unix-socket", path)
        tally.check("taken", done.status == 1 and str(path) in done.error_line, done.err)
        tally.check("ends well", s.end() == 0 and not path.exists(), s.status)
    with Elsewhere("--unix-socket", path) as s:
        s.end(9)
        tally.check("a killed one leaves it", path.exists())
    with Elsewhere("--unix-socket", path) as s:
        tally.check("what a dead one left is replaced", ask_local(path, BODY)[0] == 200)
    path.write_text("mine")
    done = tern("serve", MODEL, "--unix-socket", path)
    tally.check("a file in the way stays", done.status == 1 and path.read_text() == "mine", done.err)
    other = folder / "datagrams"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(other))
        done = tern("serve", MODEL, "--unix-socket", other)
        tally.check("another program's socket stays", done.status == 1 and other.exists() and "somebody listens" in done.error_line, done.err)
    for flags in (["--unix-socket", "x" * 200], ["--unix-socket", ""], ["--unix-socket", path, "--port", 80], ["--unix-socket", path, "--host", "::1"]):
        done = tern("serve", MODEL, *flags)
        tally.check(f"wrong {str(flags)[:40]}", done.status == 2 and "--unix-socket" in done.error_line, done.err)


def test_port_first():
    """An address that is taken is told before the weights are looked at."""
    with Server(MODEL) as s, tempfile.TemporaryDirectory() as folder:
        broken = Path(folder) / "m"
        shutil.copytree(MODEL, broken)
        (broken / "model.safetensors").write_bytes(b"no weights")
        done = tern("serve", broken, "--port", s.port)
        tally.check("the port first", done.status == 1 and str(s.port) in done.error_line and "safetensors" not in done.err, done.err)
        done = tern("serve", broken, "--port", 0)
        tally.check("then the weights", done.status == 1 and "safetensors" in done.err, done.err)


def test_tls(folder):
    cert, key, other = folder / "cert.pem", folder / "key.pem", folder / "other.pem"
    if not shutil.which("openssl"):
        tally.skip("TLS", "there is no openssl to make a certificate with")
        return
    for made, name in ((key, "localhost"), (other, "other")):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                        "-keyout", str(made), "-out", str(cert if made == key else folder / "c2")], check=True, capture_output=True)
    with Elsewhere("--port", 0, "--tls-cert", cert, "--tls-key", key) as s:
        s.port = int(re.search(r"https://127\.0\.0\.1:(\d+)", s.said)[1])
        trusted = ssl.create_default_context(cafile=str(cert))

        def ask(body):
            c = http.client.HTTPSConnection("localhost", s.port, timeout=DEADLINE, context=trusted)
            c.request("POST", CHAT, json.dumps(body))
            r = c.getresponse()
            text = r.read()
            c.close()
            return r.status, text

        status, text = ask(chat("Hello"))
        tally.check("TLS: answers", status == 200 and json.loads(text)["choices"], text)
        status, text = ask(chat("Hello", stream=True, max_tokens=300, logit_bias={str(EOS): -1000}))
        tally.check("TLS: streams", status == 200 and text.endswith(b"data: [DONE]\n\n"))
        sock = socket.create_connection(("127.0.0.1", s.port), timeout=DEADLINE)
        sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        tally.check("TLS: no plain answers", b"200 OK" not in sock.recv(100))
        sock.close()
        tally.check("TLS: ends well", s.end() == 0, s.status)
    for label, status, flags in (
        ("no key", 2, ["--tls-cert", cert]), ("no certificate", 2, ["--tls-key", key]), ("another's key", 1, ["--tls-cert", cert, "--tls-key", other]),
        ("no PEM", 1, ["--tls-cert", HERE / "test_http.py", "--tls-key", key]), ("no such file", 1, ["--tls-cert", folder / "nothing", "--tls-key", key]),
    ):
        done = tern("serve", MODEL, "--port", 0, *flags)
        tally.check(f"TLS: {label}", done.status == status and "--tls-" in done.error_line, f"{done.status} {done.err}")


def test_slow_readers():
    """Who asks in any dialect and never reads holds up nobody, and costs no more than the answer."""
    bias, n = {str(EOS): -1000}, 900
    asked = {
        CHAT: {**chat("Hello", max_tokens=n, logit_bias=bias), "stream": True},
        "/v1/responses": {"input": "Hello", "max_output_tokens": n, "logit_bias": bias, "stream": True, "store": False},
        "/v1/messages": {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": n, "logit_bias": bias, "stream": True},
        "/api/generate": {"prompt": "Hello", "options": {"num_predict": n, "temperature": 1, "seed": 3}},
    }
    with Server(MODEL) as s:
        s.ask(CHAT, BODY)
        before, socks = s.memory(), []
        for _ in range(8):
            for path, body in asked.items():
                text = json.dumps(body).encode()
                sock = socket.create_connection(("127.0.0.1", s.port), timeout=DEADLINE)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                sock.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(text)) + text)
                socks.append(sock)
        tally.check("beside slow readers", s.ask(CHAT, BODY)[0] == 200)
        tally.check("their answers end", until(lambda: s.metric("requests_running") == 0 and s.metric("requests_waiting") == 0))
        grown = s.memory() - before
        if sanitized():
            tally.skip("and cost little", "a sanitizer keeps what was freed")
        else:
            tally.check("and cost little", grown < 64 << 20, f"{grown} bytes more")
        for sock in socks:
            sock.close()
        tally.check("ends well", s.end() == 0, s.status)


# ---- the end, and the log


def test_drain():
    """What still runs when the time is over ends with words, and the process soon after."""
    with Server(MODEL, "--backend", "ref", "--threads", 1, "--ctx", 100000, "--drain", 1) as s:
        body = {**chat("Hello", max_tokens=90000, logit_bias={str(EOS): -1000}), "stream": True}
        got = []

        def read(path, body):
            c = s.connect()
            c.request("POST", path, json.dumps(body))
            got.append((path, c.getresponse().read().decode()))

        asked = [(CHAT, body), ("/v1/responses", {"input": "Hello", "max_output_tokens": 90000, "logit_bias": body["logit_bias"], "stream": True}),
                 ("/api/generate", {"prompt": "Hello", "options": {"num_predict": 90000}})]
        readers = [threading.Thread(target=read, args=a) for a in asked]
        for reader in readers:
            reader.start()
        tally.check("all run", until(lambda: s.metric("requests_running") == 3))
        began = time.monotonic()
        tally.check("ends well", s.end() == 0, s.status)
        waited = time.monotonic() - began
        tally.check("the time to end in", waited > 0.5, f"{waited:.1f} s")  # and no answer came to its end, as they say
        for reader in readers:
            reader.join()
        ends = dict(got)
        tally.check("a stream says why it ends", "the server is closing" in ends[CHAT][-300:] and "[DONE]" not in ends[CHAT], ends[CHAT][-300:])
        tally.check("a response fails", "response.failed" in ends["/v1/responses"][-3000:], ends["/v1/responses"][-300:])


def test_log():
    with Server(MODEL, "-v") as s:
        asked = [s.ask(CHAT, chat("a secret text", max_tokens=4))[2]["X-Request-Id"], s.ask("/no%20such%0apath")[2]["X-Request-Id"]]
        s.stream(CHAT, chat("a secret text"))
        with socket.create_connection(("127.0.0.1", s.port)) as raw:
            raw.sendall(b'G"=\x7f\xe4 /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n')
            while raw.recv(4096):
                pass
        s.end()
        lines = [line for line in s.err.splitlines() if "id=tern-" in line]
        found = [dict(f.split("=", 1) for f in line.split() if "=" in f) for line in lines]
        found.sort(key=lambda f: int(f["id"].rpartition("-")[2]))  # a stream's line is written when its reader has it all
        tally.check("a line a request", len(found) == 4 and [f["id"] for f in found[:2]] == asked, lines)
        tally.check("its fields", all(set(f) >= {"id", "method", "path", "status", "end", "ms"} for f in found), lines)
        tally.check("what was asked for", [f["status"] for f in found] == ["200", "404", "200", "405"] and found[1]["path"] == "/no?such?path", lines)
        tally.check("a method is a word too", found[3]["method"] == "G?=??", lines)
        tally.check("a stream's line has its end", float(found[2]["first_ms"]) <= float(found[2]["ms"]) and found[2]["end"] == "sent", lines)
        tally.check("no text", "secret" not in s.err)


def exchange(s, data):
    """What comes back for these bytes, until the server closes."""
    with socket.create_connection(("127.0.0.1", s.port), timeout=60) as sock:
        sock.sendall(data.encode())
        got = b""
        while piece := sock.recv(65536):
            got += piece
    head, _, body = got.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1] if b" " in head else b""
    return int(status or 0), head.decode("latin-1"), body.decode("utf-8", "replace")


def test_absolute_targets():
    """A whole URL in the request's line, as a proxy's client sends it: its host counts."""
    with Server(GOLDEN / "llama-4bit" / "model", "-v") as s:
        here = f"127.0.0.1:{s.port}"
        for target, host, want in (
            (f"http://{here}/v1/models", here, 200),
            (f"HTTP://{here}/v1/models?x=http://y/", here, 200),
            (f"https://localhost/v1/models", here, 200),
            (f"http://{here}/v1/models", "elsewhere.example", 200),
            (f"http://{here}/v1/models/{s.name}", here, 200),
            (f"http://{here}", here, 200),
            (f"http://{here}/no/such", here, 404),
            ("http://elsewhere.example/v1/models", here, 403),
            ("http://user@elsewhere.example:80/v1/models", here, 403),
            (f"http://{'a' * 400}/v1/models", here, 403),
            ("http:///v1/models", here, 200),
            ("ftp://x/v1/models", here, 404),
            ("/http://x/v1/models", here, 404),
        ):
            status, head, body = exchange(s, f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
            tally.check(f"target {target[:50]}", status == want and (want == 200 or "error" in json.loads(body)), f"{head} {body}")
        text = json.dumps(chat("Hello", max_tokens=2))
        status, head, body = exchange(s, f"POST http://{here}/v1/chat/completions HTTP/1.1\r\nHost: {here}\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n{text}")
        tally.check("a whole URL and a body", status == 200 and json.loads(body)["choices"], f"{head} {body}")
        status, head, body = exchange(s, f"GET http://{here}/health HTTP/1.1\r\nConnection: close\r\n\r\n")
        tally.check("HTTP/1.1 wants a Host all the same", status == 400, f"{head} {body}")
        s.end()
        tally.check("the log has the path", "path=/v1/models " in s.err and "path=http" not in s.err, s.err)


def connect(s, n):
    return [socket.create_connection(("127.0.0.1", s.port), timeout=120) for _ in range(n)]


def fill(s, held, ask):
    """Whether all places are taken by connections that were answered."""

    def one_more():
        sock = connect(s, 1)[0]
        sock.sendall(ask)
        if sock.recv(4096).startswith(b"HTTP/1.1 200"):
            held.append(sock)
        else:
            sock.close()
        return len(held) >= 512

    return len(held) >= 512 or until(one_more)


def is_open(sock):
    sock.setblocking(False)
    try:
        return sock.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False
    finally:
        sock.settimeout(120)


def has_room(s, held, ask):
    """Whether somebody is answered where ten of 512 have left, while forty say nothing that came as one too many each."""
    closing = ask.decode().replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")
    if not fill(s, held, ask):
        return False
    silent = connect(s, 40)
    beyond = exchange(s, closing)[0] == 503  # connections are taken in their order: the forty are in
    for _ in range(10):
        held.pop().close()
    answered = False
    while not answered and all(map(is_open, silent)):
        answered = exchange(s, closing)[0] == 200
    ok = beyond and answered and all(map(is_open, silent))
    for sock in silent:
        sock.close()
    return ok


def test_places():
    """Who was one too many takes nobody's place."""
    held, ask = [], b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with Server(GOLDEN / "llama-4bit" / "model") as s:
        tally.check("room beside those who are turned away", until(lambda: has_room(s, held, ask)))
        for sock in held:
            sock.close()
        tally.check("places: ends well", s.end() == 0, s.status)


def test_too_many_connections():
    """The 513th hears that there are too many, in the dialect that it asks in; as others end there is room."""
    ask = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with Server(GOLDEN / "llama-4bit" / "model") as s:
        held = [socket.create_connection(("127.0.0.1", s.port), timeout=120) for _ in range(512)]
        for sock in held:
            sock.sendall(ask.encode())
        tally.check("512 are answered", all(sock.recv(4096).startswith(b"HTTP/1.1 200") for sock in held))
        for path, where in (("/v1/chat/completions", lambda e: e["error"]["code"] == "too_many_connections"), ("/v1/messages", lambda e: e["error"]["type"] == "overloaded_error"), ("/api/chat", lambda e: "connections" in e["error"])):
            status, head, body = exchange(s, f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{{}}")
            tally.check(f"beyond: {path}", status == 503 and "\r\nRetry-After: 1" in head and "Connection: close" in head and where(json.loads(body)), f"{head} {body}")
        silent = [socket.create_connection(("127.0.0.1", s.port), timeout=120) for _ in range(80)]
        ends = [end_of(sock) for sock in silent]  # a reset is for those beyond the 64 that are heard at all
        tally.check("who says nothing is closed", {*ends} <= {"closed", "reset"} and ends.count("closed") >= 64, ends)
        for sock in (*held[:10], *silent):
            sock.close()
        tally.check("room again", until(lambda: exchange(s, ask.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"))[0] == 200, 120))
        for sock in held:
            sock.close()
        tally.check("ends well", s.end() == 0, s.status)


def end_of(sock):
    """Waits for what comes: how the connection ended, or what it gave."""
    try:
        return sock.recv(100) or "closed"
    except ConnectionResetError:
        return "reset"


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        test_keys(folder)
        test_pages()
        test_unix_socket(folder)
        test_port_first()
        test_tls(folder)
    test_absolute_targets()
    test_too_many_connections()
    test_places()
    test_slow_readers()
    test_drain()
    test_log()
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
