"""A stand-in for the hub on the loopback: the part of its API that a download uses, on one port, and a content host on
another. Tests put repos in it, give them faults, and look at what was asked.

    with Hub() as hub:
        repo = hub.repo("org/name", {"config.json": b"{}", "model.safetensors": weights})
        repo.fault("model.safetensors", Fault(reset_after=1000, times=2))
        ... HF_ENDPOINT=hub.url ...

Files of LFS_FROM bytes or more are kept as git-lfs keeps them: their resolve address redirects to the content host.
Run as a script it serves a folder of ORG/NAME folders until it is killed."""

import gzip
import hashlib
import json
import socket
import struct
import sys
import threading
import time
import urllib.parse
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

LFS_FROM = 1024


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def git_blob(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@dataclass
class Fault:
    """What goes wrong with the bytes of one file, the first `times` times (-1: always)."""

    times: int = -1
    status: int = 0  # this instead of an answer
    retry_after: str = ""
    rate_limit: str = ""
    code: str = ""  # X-Error-Code
    body: bytes = b""
    truncate: int = -1  # so many bytes of the body, then a tidy end of the connection
    reset_after: int = -1  # so many bytes, then a reset
    flip: bool = False  # a wrong byte
    no_ranges: bool = False  # the whole file, whatever was asked
    wrong_range: bool = False  # other bytes than were asked
    content_range: str = ""  # this with a range, of {first}, {last} and {total}; "none": no such header
    encoded: bool = False  # compressed, unasked
    longer: bool = False  # more bytes than are listed
    pace: float = 0  # seconds before each 64 KiB
    hold_from: int = -1  # the file's bytes from there on wait until this changes
    location: str = ""  # of a redirect, instead of the content host


@dataclass
class Seen:
    port: str  # "hub" or "content"
    path: str
    headers: dict


@dataclass
class Repo:
    id: str
    files: dict
    commit: str
    refs: dict = field(default_factory=dict)
    gated: bool = False
    private: bool = False
    disabled: bool = False
    listing: object = None  # bytes or a list, instead of the true one
    info: object = None  # bytes instead of the true one
    page: int = 1000
    moved_to: str = ""
    faults: dict = field(default_factory=dict)
    older: dict = field(default_factory=dict)  # files of other commits

    def at(self, commit):
        return self.older.get(commit, self.files)

    def fault(self, path, fault):
        self.faults[path] = fault


class Hub:
    def __init__(self, token="hf_good"):
        self.repos, self.seen, self.token = {}, [], token
        self.others = set()  # "datasets/ORG/NAME", "spaces/ORG/NAME"
        self.lock = threading.Lock()
        self.api_faults = []  # of /api requests, in order; each is used once
        self.next_link = None  # instead of the true next page; "broken": an address without an end
        self.rel = '; rel="next"'
        self.link_cursor = self.preload = None  # more in the address, and another Link header before it
        self.gzip = False  # answers of the API come compressed
        self.signed, self.used = 0, set()  # signatures of addresses on the content host
        self.expire_signatures = False  # each is good for one request
        self.over = False

    def __enter__(self):
        self.servers = []
        for name in "hub", "content":
            handler = type("Handler", (_Handler,), {"hub": self, "port_name": name})
            server = _Server(("127.0.0.1", 0), handler)
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            self.servers.append(server)
        self.url = f"http://127.0.0.1:{self.servers[0].server_port}"
        self.content_url = f"http://127.0.0.1:{self.servers[1].server_port}"
        return self

    def __exit__(self, *_):
        self.over = True
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def repo(self, id, files, **more):
        commit = hashlib.sha1(json.dumps([id, sorted((k, sha256(v)) for k, v in files.items())]).encode()).hexdigest()
        repo = Repo(id, dict(files), commit, {"main": commit}, **more)
        self.repos[id] = repo
        return repo

    def asked(self, port=None, part=""):
        with self.lock:
            return [s for s in self.seen if (port is None or s.port == port) and part in s.path]

    def forget(self):
        with self.lock:
            self.seen.clear()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        pass  # connections that tests cut


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub = port_name = None

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def answer(self, with_body):
        self.with_body = with_body
        with self.hub.lock:
            self.hub.seen.append(Seen(self.port_name, self.path, {k.lower(): v for k, v in self.headers.items()}))
        if self.path.startswith("http://"):  # asked as a proxy
            origin = "/".join(self.path.split("/")[:3])
            self.path = self.path[len(origin):]
            self.port_name = "content" if origin == self.hub.content_url else "hub"
        path, _, query = self.path.partition("?")
        parts = [urllib.parse.unquote(p) for p in path.strip("/").split("/")]
        query = dict(urllib.parse.parse_qsl(query))
        if self.port_name == "content":
            return self.content(path, query)
        if parts[:2] == ["api", "models"] and len(parts) >= 4:
            return self.api("/".join(parts[2:4]), parts[4:], query)
        if parts[:1] == ["api"] and "/".join(parts[1:]) in self.hub.others:
            return self.say(200, b'{"id": "x"}', (), "application/json")
        if len(parts) >= 5 and parts[2] == "resolve":
            return self.resolve("/".join(parts[:2]), parts[3], "/".join(parts[4:]))
        return self.say(404, b"not found")

    # ---- answers ----

    def say(self, status, body, headers=(), kind="text/plain"):
        if self.hub.gzip and status == 200:
            body, headers = gzip.compress(body), [*headers, ("Content-Encoding", "gzip")]
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.with_body:
            self.wfile.write(body)

    def refuse(self, status, code="", message=""):
        headers = [("X-Error-Code", code)] * bool(code) + [("X-Error-Message", message)] * bool(message)
        self.say(status, b'{"error":"%s"}' % message.encode(), headers, "application/json")

    def admit(self, id):
        """The repo, or None after a refusal, with the hub's own statuses."""
        repo = self.hub.repos.get(id)
        given = self.headers.get("Authorization")
        good = given == f"Bearer {self.hub.token}"
        if given and not good:
            self.refuse(401, "", "Invalid credentials in Authorization header")
        elif repo is None or (repo.private and not good):
            self.refuse(401 if not good else 404, "RepoNotFound" if good else "", "Repository not found")
        elif repo.disabled:
            self.refuse(403, "DisabledRepo", "Access to this resource is disabled.")
        elif repo.gated is True and not good:
            self.refuse(401, "GatedRepo", "Access to model is restricted.")
        elif repo.gated == "closed":
            self.refuse(403 if good else 401, "GatedRepo", "Your account is not in the authorized list.")
        else:
            return repo
        return None

    def api(self, id, rest, query):
        fault = None
        with self.hub.lock:
            if self.hub.api_faults:
                fault = self.hub.api_faults.pop(0)
        if fault:
            headers = [("Retry-After", fault.retry_after)] * bool(fault.retry_after)
            headers += [("X-Error-Code", fault.code)] * bool(fault.code) + [("Location", fault.location)] * bool(fault.location)
            return self.say(fault.status, fault.body, headers, "text/html")
        moved = self.hub.repos.get(id)
        if moved and moved.moved_to:
            return self.say(307, b"", [("Location", self.path.replace(id, moved.moved_to, 1))])
        # the API shows gated repos to everybody; their files it keeps
        repo = self.hub.repos.get(id)
        if not repo or not repo.gated:
            repo = self.admit(id)
        if not repo:
            return None
        revision = "/".join(rest[1:]) or "main"
        commit = repo.refs.get(revision, revision if revision == repo.commit or revision in repo.older else None)
        if commit is None:
            return self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        if not rest or rest[0] == "revision":
            if repo.info is not None:
                return self.say(200, repo.info, (), "application/json")
            info = {"_id": "0", "id": id, "sha": commit, "private": repo.private, "gated": repo.gated,
                    "siblings": [{"rfilename": p} for p in sorted(repo.files)]}
            return self.say(200, json.dumps(info).encode(), (), "application/json")
        if rest[0] == "tree":
            return self.tree(repo, query, repo.at(commit))
        return self.say(404, b"not found")

    def tree(self, repo, query, files):
        if isinstance(repo.listing, bytes):
            return self.say(200, repo.listing, (), "application/json")
        entries = repo.listing
        if entries is None:
            entries = [self.entry(p, d) for p, d in sorted(files.items())]
            folders = sorted({"/".join(p.split("/")[:i]) for p in files for i in range(1, p.count("/") + 1)})
            entries = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": f} for f in folders] + entries
        at = int(query.get("cursor", 0))
        headers = []
        if at + repo.page < len(entries):
            path = self.path.partition("?")[0]
            link = self.hub.next_link or f"{self.hub.url}{path}?recursive=true&cursor={at + repo.page}"
            link = f"{self.hub.url}{self.path}" if link == "itself" else link
            link += f"&more={self.hub.link_cursor}" if self.hub.link_cursor else ""
            headers.append(("Link", f'<{link}>{self.hub.rel}' if link != "broken" else '<http://a/; rel="next"'))
            if self.hub.preload:
                headers.append(("Link", "</style.css>; rel=preload; as=style"))
        return self.say(200, json.dumps(entries[at : at + repo.page]).encode(), headers, "application/json")

    @staticmethod
    def entry(path, data):
        e = {"type": "file", "oid": git_blob(data), "size": len(data), "path": path}
        if len(data) >= LFS_FROM:
            pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n" % (sha256(data).encode(), len(data))
            e.update(oid=git_blob(pointer), lfs={"oid": sha256(data), "size": len(data), "pointerSize": len(pointer)}, xetHash="x" * 64)
        return e

    def resolve(self, id, commit, path):
        target = self.hub.repos.get(id)
        if target and target.moved_to:
            return self.say(307, b"", [("Location", self.path.replace(id, target.moved_to, 1))])
        repo = self.admit(id)
        if not repo:
            return None
        commit = repo.refs.get(commit, commit)
        if commit != repo.commit and commit not in repo.older:
            return self.refuse(404, "RevisionNotFound", "Invalid rev id")
        if path not in repo.at(commit):
            return self.refuse(404, "EntryNotFound", "Entry not found")
        data = repo.at(commit)[path]
        head = [("X-Repo-Commit", commit), ("Accept-Ranges", "bytes")]
        fault = repo.faults.get(path)
        if fault and fault.location and self.use(fault):
            return self.say(302, b"", head + [("Location", fault.location)])
        if len(data) < LFS_FROM:
            return self.send_bytes(repo, path, data, head + [("ETag", f'"{git_blob(data)}"')])
        with self.hub.lock:
            self.hub.signed += 1
            signature = self.hub.signed
        where = f"{self.hub.content_url}/{id}/{urllib.parse.quote(path)}?signature={signature}&commit={commit}"
        head += [("X-Linked-Etag", f'"{sha256(data)}"'), ("X-Linked-Size", str(len(data))), ("ETag", f'"{git_blob(data)}"'), ("Location", where)]
        return self.say(302, b"", head)

    def content(self, path, query):
        org, name, file = path.strip("/").split("/", 2)
        repo = self.hub.repos[f"{org}/{name}"]
        if "Authorization" in self.headers:
            return self.refuse(400, "", "a token on the content host")
        with self.hub.lock:
            expired = self.hub.expire_signatures and query["signature"] in self.hub.used
            self.hub.used.add(query["signature"])
        if expired:
            return self.say(403, b"expired")
        data = repo.at(query.get("commit"))[urllib.parse.unquote(file)]
        return self.send_bytes(repo, urllib.parse.unquote(file), data, [("ETag", f'"{sha256(data)}"')])

    def use(self, fault):
        with self.hub.lock:
            if fault.times == 0:
                return False
            fault.times -= fault.times > 0
            return True

    def send_bytes(self, repo, path, data, headers):
        fault = repo.faults.get(path)
        f = fault if fault and self.with_body and self.use(fault) else Fault()
        if f.status:
            headers = [("Retry-After", f.retry_after)] * bool(f.retry_after) + [("X-Error-Code", f.code)] * bool(f.code)
            headers += [("RateLimit", f.rate_limit)] * bool(f.rate_limit)
            return self.say(f.status, f.body, headers)
        if f.flip:
            data = bytes([data[0] ^ 1]) + data[1:]
        if f.longer:
            data = data + b"more"
        status, wanted = 200, self.headers.get("Range")
        total, first = len(data), 0
        if wanted and not f.no_ranges:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            first, last = int(first), min(int(last), total - 1) if last else total - 1
            if first >= total:
                return self.say(416, b"", [("Content-Range", f"bytes */{total}")])
            first += f.wrong_range
            status = 206
            said = (f.content_range or "bytes {first}-{last}/{total}").format(first=first, last=last, total=total)
            headers = headers + [("Content-Range", said)] * (said != "none")
            data = data[first : last + 1]
        if f.encoded:
            data, headers = gzip.compress(data), [*headers, ("Content-Encoding", "gzip")]
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Date", formatdate(usegmt=True))
        self.end_headers()
        if not self.with_body:
            return None
        stops = [n for n in (f.truncate, f.reset_after) if n >= 0]
        stop = min(stops[0], len(data)) if stops else len(data)
        for at in range(0, stop, 65536):
            if f.pace:
                time.sleep(f.pace)
            while 0 <= f.hold_from <= first + at and not self.hub.over:
                time.sleep(0.005)
            self.wfile.write(data[at : min(at + 65536, stop)])
        self.wfile.flush()
        if f.reset_after >= 0:  # a reset and no tidy end
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if stops:
            self.close_connection = True
            self.connection.close()
        return None


def main():
    root = Path(sys.argv[1])
    with Hub() as hub:
        for config in root.glob("*/*/config.json"):
            folder = config.parent
            files = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
            hub.repo(str(folder.relative_to(root)), files)
        print(hub.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
