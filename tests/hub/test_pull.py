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
import struct
import subprocess
import sys
import tempfile
import termios
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from home import BIG, ORACLE, PIECE, Home, library, on_terminal, refused, run_all, start, tally, tiny  # noqa: E402
from standin import Fault, Repo  # noqa: E402
from terncli import BINARY, tern  # noqa: E402
from waiting import DEADLINE, hear, hear_all, until  # noqa: E402

random.seed(1)


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
        listed = json.loads(tern("ls", "--json", env=home.env).out)
        tally.check("ls lists what came, and what is wrong with it", [m["id"] for m in listed] == ["org/many"] and "a/b.gguf" in listed[0]["error"], listed)
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


# ---- faults ----


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
        "a range of nothing": (Fault(status=416), ["model.safetensors", "416"]),
        "no Content-Range": (Fault(content_range="none"), ["other bytes than were asked"]),
        "a Content-Range without a total": (Fault(content_range="bytes {first}-{last}/*"), ["other bytes than were asked"]),
        "a Content-Range of another total": (Fault(content_range="bytes {first}-{last}/99999999"), ["the host has 99999999 bytes", "the hub lists"]),
        "bytes that are compressed, unasked": (Fault(encoded=True), ["model.safetensors"]),
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


def test_revisions_together(hub):
    """Two revisions that share their weights, pulled at once: both are whole, and the weights come once."""
    data = os.urandom(2 * PIECE)
    files = tiny() | {"model.safetensors": data}
    first = hub.repo("org/revs", files)
    second = Repo("org/revs", files | {"tokenizer_config.json": files["tokenizer_config.json"] + b"\n"}, "2" * 40)
    first.older[second.commit] = second.files
    first.refs["v2"] = second.commit
    first.fault("model.safetensors", Fault(pace=0.002))
    with Home(hub) as home:
        hub.forget()
        processes = [start(home, f"org/revs@{name}") for name in ("main", "v2")]
        ends = [p.communicate(timeout=DEADLINE) + (p.returncode,) for p in processes]
        tally.check("two revisions at once", all(e[2] == 0 for e in ends) and not home.whole(first) and not home.whole(second), ends)
        firsts = [s.headers["range"] for s in hub.asked("content", "/model.safetensors?") if "range" in s.headers]
        tally.check("what they share comes once", len(firsts) == len(set(firsts)), firsts)
        tally.check("each has its ref", [(home.repo(first.id) / "refs" / n).read_text() for n in ("main", "v2")] == [first.commit, second.commit])


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


def test_names_of_caches(hub):
    """The places that the variables name, with whatever in their names."""
    repo = hub.repo("org/tiny", tiny())
    for name in "with space", "quo'te\"$x", "\udcff\udcfe", "-dash", "tail/":
        with Home(hub) as home:
            for variable, below in ("HF_HOME", "hub"), ("HF_HUB_CACHE", ""), ("XDG_CACHE_HOME", "huggingface/hub"):
                base = home.folder / name / variable
                home.env |= {"HF_HOME": "", "HF_HUB_CACHE": "", "XDG_CACHE_HOME": "", variable: f"{base}/"}
                home.cache = base / below
                done = home.pull("org/tiny")
                ran = tern("logits", "org/tiny", "--ids", "1", env=home.env)
                tally.check(f"{variable} of {name!r}", done.status == 0 and ran.status == 0 and not home.whole(repo), done.err + ran.err)
    with Home(hub) as home:
        home.env |= {"HOME": str(home.folder), "HF_HOME": "~/of mine", "TERN_HOME": "~/own"}
        home.cache = home.folder / "of mine" / "hub"
        done = home.pull("org/tiny")
        tally.check("a ~ that no shell replaced is HOME, as huggingface_hub has it", done.status == 0 and not home.whole(repo), done.err)


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
    for before, after in ((80, 40), (40, 80), (80, 12)):
        slow = Fault(pace=0.02, hold_from=len(BIG) // 2)  # half of it comes when the window has changed
        repo.fault("model.safetensors", slow)
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
                    slow.hold_from = -1
            os.close(leader)
            os.close(follower)
            process.communicate()

            def widths(text):
                return [len(re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", part)) for part in re.split(r"[\r\n]", text.decode()) if " of" in part and "files" not in part]

            tally.check(f"a bar of {before} columns", at and max(widths(said[:at])) < before, widths(said[:at]))
            later = widths(said[at:])
            while later and later[0] >= after:  # drawn before the window changed, and read behind that
                del later[0]
            tally.check(f"follows a window to {after}", len(later) > 2 and max(later) < after, widths(said[at:]))
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


TESTS = [test_plain, test_choice, test_revisions, test_pages, test_shards, test_moved, test_token, test_faults, test_final_faults, test_bad_lists,
         test_warnings, test_resume, test_kill, test_together, test_revisions_together, test_disk, test_names_of_caches, test_links, test_bar, test_run, test_library]


if __name__ == "__main__":
    sys.exit(run_all(TESTS))
