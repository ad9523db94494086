"""tern rm and gc: what goes, what stays, who is asked, and that neither breaks what another process is at (standard
library; huggingface_hub from build/oracle where it is there)."""

import fcntl
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from home import BIG, MODEL, ORACLE, Home, library, on_terminal, refused, start, tally, tiny  # noqa: E402
from standin import Fault, Hub  # noqa: E402
from terncli import BINARY, tern  # noqa: E402
from waiting import DEADLINE, hear, hear_all, until  # noqa: E402


def blobs(home, repo):
    return sorted(p.name for p in (home.repo(repo.id) / "blobs").iterdir())


def two_revisions(hub, home, id="org/two"):
    """Old and new: the tokenizer is the same in both, the config and a file are not."""
    old = hub.repo(id, tiny() | {"chat_template.jinja": b"old", "generation_config.json": b"{}"})
    old.refs["v1"] = old.commit
    assert home.pull(id).status == 0 and home.pull(f"{id}@v1").status == 0
    new = hub.repo(id, tiny() | {"chat_template.jinja": b"new"})
    assert home.pull(id).status == 0
    return old, new


def test_rm(hub):
    with Home(hub) as home:
        old, new = two_revisions(hub, home)
        before = blobs(home, new)
        done = tern("rm", "org/two@v1", env=home.env)
        tally.check("without --yes and a terminal nothing goes", done.status == 1 and "--yes" in done.error_line and blobs(home, new) == before, done.err)
        tally.check("but the plan is shown", b"in all" in done.out and old.commit.encode() in done.out, done.out)
        done = tern("rm", "org/two@v1", "--yes", "--json", env=home.env)
        told = json.loads(done.out)
        tally.check("rm of a revision", done.status == 0 and not home.snapshot(old).exists() and not (home.repo(new.id) / "refs" / "v1").exists(), done.err)
        tally.check("removes the blobs that it alone used", len(before) - len(blobs(home, new)) == 2, told)
        tally.check("says which", len(told["removed"]) == 4 and told["bytes"] == 5, told)
        tally.check("the other revision is whole", not home.whole(new) and json.loads(tern("ls", "--json", env=home.env).out)[0]["id"] == "org/two")
        for name in "two", "org/tw", "ORG/two", "../hub", "/etc", "org/two@", "org/two@v9", "org/two@" + new.commit[:5]:
            done = tern("rm", name, "--yes", env=home.env)
            tally.check(f"rm {name[:12]} removes nothing", done.status in (1, 2) and done.error_line.startswith("tern: error") and not home.whole(new), done.err)
        done = tern("rm", f"org/two@{new.commit[:8]}", "--yes", env=home.env)
        tally.check("the last revision, by the beginning of its commit, takes the repo", done.status == 0 and not home.repo(new.id).exists(), done.err)
    with Home(hub) as home:
        two_revisions(hub, home)
        other = hub.repo("org/other", tiny())
        home.pull("org/other")
        done = tern("rm", "org/two", "--yes", env=home.env)
        tally.check("rm of a repo", done.status == 0 and not home.repo("org/two").exists() and not home.whole(other), done.err)
        own = home.folder / "own" / "models" / "me" / "mine"
        shutil.copytree(home.snapshot(other), own)
        done = tern("rm", "me/mine", "--yes", env=home.env)
        tally.check("rm of a directory under TERN_HOME, and of its ORG where that is then empty", done.status == 0 and not own.parent.exists() and own.parent.parent.exists(), done.err)
        tally.check("follows no link out of it", not home.whole(other))


def test_gc(hub):
    with Home(hub) as home:
        old, new = two_revisions(hub, home)
        done = tern("gc", env=home.env)
        tally.check("nothing to collect", done.status == 0 and "nothing to remove" in done.err and not done.out, done.err)
        before = blobs(home, new)
        folder = home.repo(new.id) / "blobs"
        for name, size in ("f" * 64, 1000), ("e" * 64 + ".incomplete", 500), ("d" * 64 + ".1a2b3c4d.incomplete", 300):
            (folder / name).write_bytes(b"x" * size)
        litter = home.repo(new.id) / ".snapshot-1-00000002"
        litter.mkdir()
        (litter / "config.json").symlink_to("../../blobs/" + before[0])
        done = tern("gc", "--yes", "--json", env=home.env)
        told = json.loads(done.out)
        tally.check("gc", done.status == 0 and told["bytes"] == 1800 and blobs(home, new) == before, told)
        tally.check("leaves what may be somebody's", litter.exists())
        os.utime(litter, (1, 1))
        done = tern("gc", "--yes", env=home.env)
        tally.check("and takes it when it is old", done.status == 0 and not litter.exists(), done.err)
        tally.check("both revisions are whole", not home.whole(old) and not home.whole(new))
        inside, beside = home.repo(new.id) / ".removed-9-0000000a", home.cache / ".removed-9-0000000b"
        org = home.folder / "own" / "models" / "me" / ".removed-9-0000000c"
        other = home.cache / ".removed-mine"
        for path in inside, beside, org, other:
            path.mkdir(parents=True)
            (path / "bytes").write_bytes(b"x" * 100)
        told = json.loads(tern("gc", "--yes", "--json", env=home.env).out)
        tally.check("what killed removals left goes, wherever", not inside.exists() and not beside.exists() and not org.exists() and len(told["removed"]) == 3, told)
        tally.check("what has another name stays", other.exists())
        shutil.rmtree(other)
        os.chmod(home.snapshot(old), 0)
        (folder / ("f" * 64)).write_bytes(b"x")
        done = tern("gc", "--yes", env=home.env)
        if os.getuid():  # root reads everything
            tally.check("what cannot be read is no reason to remove", done.status == 1 and not done.out, done.err)
        os.chmod(home.snapshot(old), 0o755)
        loop = home.snapshot(new) / "loop"
        loop.symlink_to("loop")
        done = tern("gc", "--yes", env=home.env)
        tally.check("a link to itself harms nobody", done.status == 0 and blobs(home, new) == before, done.err)
        (home.cache / "models--org--loop").symlink_to("models--org--loop")
        tally.check("nor a repo that is one", tern("gc", env=home.env).status == 0)
    with Home(hub) as home:
        tally.check("no cache is an empty one", tern("gc", env=home.env).status == 0)
        refused("rm of what is not there", tern("rm", "org/none", env=home.env), "org/none")


def test_killed(hub):
    """rm that is killed: what is visible is whole, and gc takes the rest."""
    repo = hub.repo("org/kill", tiny())
    broken = left = ""
    with Home(hub) as home:
        for _ in range(20):
            assert home.pull("org/kill").status == 0
            for i in range(500):
                (home.repo(repo.id) / "blobs" / f"{i:064x}").write_bytes(b"x" * 100)
            process = subprocess.Popen([BINARY, "rm", "org/kill", "--yes"], env={**os.environ, **home.env}, stdout=subprocess.DEVNULL)
            time.sleep(random.uniform(0, 0.02))
            process.kill()
            process.wait()
            if home.snapshot(repo).exists():
                broken = broken or home.whole(repo)
            assert tern("gc", "--yes", env=home.env).status == 0
            left = left or str([p for p in home.cache.iterdir() if p.name.startswith(".removed")] or "")
        tally.check("a killed rm breaks nothing", not broken, broken)
        tally.check("and gc finds what it left", not left, left)


def test_places(hub):
    """A cache in a folder named snapshots: temporary names stay in the cache."""
    with Home(hub) as home:
        home.cache = home.folder / "x" / "snapshots"
        home.env["HF_HUB_CACHE"] = str(home.cache)
        old, new = two_revisions(hub, home)
        os.chmod(home.folder / "x", 0o555)
        done = tern("rm", "org/two@v1", "--yes", env=home.env)
        tally.check("rm of a revision there", done.status == 0 and not home.whole(new) and sorted(p.name for p in home.snapshot(new).parent.iterdir()) == [new.commit], done.err)
        done = tern("rm", "org/two", "--yes", env=home.env)
        tally.check("rm of a repo there", done.status == 0 and not home.repo(new.id).exists() and [p.name for p in (home.folder / "x").iterdir()] == ["snapshots"], done.err)
        os.chmod(home.folder / "x", 0o755)


def test_plain(hub):
    """Directories under TERN_HOME: what ls shows goes, and nothing that lies elsewhere or is part of something else."""
    repo = hub.repo("org/deep", tiny())
    with Home(hub) as home:
        own, outside = home.folder / "own", home.folder / "outside"
        home.cache = own / "hub"
        home.env["HF_HUB_CACHE"] = str(home.cache)
        home.pull("org/deep")
        for place in outside / "b", own / "models" / "me" / "mine", own / "single":
            shutil.copytree(home.snapshot(repo), place)
        (own / "a").symlink_to(outside)
        (own / "linked").symlink_to(outside / "b")
        refused("rm through a link", tern("rm", "a/b", "--yes", env=home.env), "a/b", "symbolic link")
        for name in f"hub/models--org--deep/snapshots/{repo.commit}", "models/me/mine", f"models--org--deep/snapshots/{repo.commit}", "me/./mine", "single/":
            done = tern("rm", name, "--yes", env=home.env)
            tally.check(f"rm {name[:20]} is no id", done.status in (1, 2) and done.error_line.startswith("tern: error"), done.err)
        tally.check("nothing went", not home.whole(repo) and (outside / "b" / "config.json").exists() and (own / "models" / "me" / "mine").exists())
        for name in "linked", "me/mine", "single":
            done = tern("rm", name, "--yes", env=home.env)
            tally.check(f"rm {name}", done.status == 0, done.err)
        tally.check("of a link the link goes", not (own / "linked").is_symlink() and (outside / "b" / "config.json").exists())
        left = [own / "models" / ".removed-1-0000000a", own / "me" / ".removed-1-0000000b", own / ".removed-1-0000000c", outside / ".removed-1-0000000d"]
        for path in left:
            path.mkdir(parents=True)
            (path / "bytes").write_bytes(b"x" * 100)
        (home.cache / "models--org--deep" / "blobs" / ("f" * 64)).write_bytes(b"x" * 1000)
        done = tern("gc", "--yes", "--json", env=home.env)
        told = json.loads(done.out)
        told["bytes"] -= 1000
        told["removed"] = [i for i in told["removed"] if i["why"] == "left over"]
        tally.check("gc is not in its own way where the cache is in TERN_HOME", "passed over" not in done.err, done.err)
        tally.check("gc takes each place once, and none through a link", told["bytes"] == 300 and len(told["removed"]) == 3 and [p.exists() for p in left] == [False, False, False, True], told)


def test_imports(hub):
    """What a killed import left goes too, and not what one is at."""
    with Home(hub) as home:
        imports, models = home.folder / "own" / "imports", home.folder / "own" / "models" / "me"
        left = [imports / ".a-0123.part-99-0", models / ".b.part-99-1"]
        others = [imports / ".young.part-99-0", imports / ".held.part-99-0", imports / "c.part-99-0", imports / ".d.part-x-0"]
        for path in left + others:
            path.mkdir(parents=True)
            (path / "model.safetensors").write_bytes(b"x" * 100)
            if "young" not in path.name:
                os.utime(path, (1, 1))
        held = os.open(others[1], os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_EX)
        done = tern("gc", "--yes", "--json", env=home.env)
        told = json.loads(done.out)
        tally.check("gc takes what killed imports left", done.status == 0 and told["bytes"] == 200 and not any(p.exists() for p in left), told)
        tally.check("and nothing else", all((p / "model.safetensors").exists() for p in others), told)
        os.close(held)


def test_spelling(hub):
    """Refs and links of every spelling, and folders that are not the cache's."""
    with Home(hub) as home:
        old, new = two_revisions(hub, home)
        refs = home.repo(new.id) / "refs"
        for name in "rel,main", "a b":
            (refs / name).write_text(old.commit)
        listed = json.loads(tern("ls", "--json", env=home.env).out)[0]
        tally.check("refs are a list", sorted(r["refs"] for r in listed["revisions"]) == [["a b", "rel,main", "v1"], ["main"]], listed)
        done = tern("rm", "org/two@rel,main", "--yes", env=home.env)
        tally.check("a ref with a comma", done.status == 0 and sorted(p.name for p in refs.iterdir()) == ["main"] and not home.whole(new), done.err)
        blob = home.repo(new.id) / "blobs"
        for path in home.snapshot(new).iterdir():
            name = path.resolve().name
            path.unlink()
            path.symlink_to(random.choice([f"../../blobs//{name}", f"../../blobs/./{name}", str(blob / name), f"../../../{home.repo(new.id).name}/blobs/{name}", f"../../snapshots/../blobs/{name}"]))
        before = blobs(home, new)
        tern("gc", "--yes", env=home.env)
        tally.check("links of any spelling are uses", blobs(home, new) == before)
        other = home.cache / "models--org--borrower" / "snapshots" / ("c" * 40)
        other.mkdir(parents=True)
        lent = blob / ("9" * 64)
        lent.write_bytes(b"x")
        (other / "config.json").symlink_to(f"../../../{home.repo(new.id).name}/blobs/{lent.name}")
        tern("gc", "--yes", env=home.env)
        tally.check("so are another repo's", lent.exists())
        refused("and the lender stays", tern("rm", "org/two", "--yes", env=home.env), "another repo", "org/two")
        (blob / "precious.txt").write_text("mine")
        os.mkfifo(blob / ("8" * 64))
        tern("gc", "--yes", env=home.env)
        tally.check("what is no blob is not the cache's", (blob / "precious.txt").exists() and (blob / ("8" * 64)).exists())
    for what in "blobs", "snapshots", "refs", "":
        with Home(hub) as home:
            home.pull("org/two")
            outside, place = home.folder / "outside", home.repo("org/two") / what
            place.rename(outside)
            place.symlink_to(outside)
            (outside / ("7" * 64)).write_bytes(b"x")
            done = tern("gc", "--yes", env=home.env)
            tally.check(f"gc does not follow a link: {what}", done.status == 0 and "passed over" in done.err and (outside / ("7" * 64)).exists(), done.err)
            refused(f"nor does rm: {what}", tern("rm", "org/two", "--yes", env=home.env), "symbolic link")
            tally.check(f"and all is there: {what}", (outside / ("7" * 64)).exists())


def test_busy(hub):
    """rm and gc beside a download."""
    repo = hub.repo("org/slow", tiny() | {"model.safetensors": BIG})
    slow = Fault(hold_from=100000)
    repo.fault("model.safetensors", slow)
    with Home(hub) as home:
        process = start(home, "org/slow")
        until(lambda: list(home.cache.glob("*/blobs/*.incomplete")) or process.poll() is not None)
        done = tern("gc", "--yes", env=home.env)
        tally.check("gc passes over a repo that is being pulled", done.status == 0 and "passed over" in done.err, done.err)
        refused("rm refuses", tern("rm", "org/slow", "--yes", env=home.env), "another process is downloading")
        slow.hold_from = -1
        process.communicate(timeout=DEADLINE)
        tally.check("the download ends well", process.returncode == 0 and not home.whole(repo))
    with Home(hub) as home:  # pulls and collections at random, side by side
        repo.faults.clear()
        broken = ""
        for _ in range(15):
            shutil.rmtree(home.repo(repo.id), ignore_errors=True)
            process = start(home, "org/slow")
            while process.poll() is None:
                tern("gc", "--yes", env=home.env)
                time.sleep(random.uniform(0, 0.02))
            _, err = process.communicate()
            broken = broken or home.whole(repo) or (err.decode() if process.returncode else "")
        tally.check("gc beside pulls breaks none", not broken, broken)


HOLD = """
import sys, time
from huggingface_hub.utils import WeakFileLock
with WeakFileLock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_library_lock(hub):
    """A lock that huggingface_hub holds is a lock for tern, and the reverse."""
    repo = hub.repo("org/lock", tiny())
    if not ORACLE.exists():
        tally.skip("huggingface_hub's locks", f"{ORACLE} is not there", 2)
        return
    with Home(hub) as home:
        blob = home.repo(repo.id) / "blobs" / ("e" * 64 + ".incomplete")
        lock = home.cache / ".locks" / home.repo(repo.id).name / ("e" * 64 + ".lock")
        for path in blob, lock:
            path.parent.mkdir(parents=True)
        blob.write_bytes(b"x")
        holder = subprocess.Popen([str(ORACLE), "-c", HOLD, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        holder.stdout.readline()
        tern("gc", "--yes", env=home.env)
        tally.check("an unfinished download that is held stays", blob.exists())
        refused("and rm leaves its repo", tern("rm", "org/lock", "--yes", env=home.env), "another process is downloading")
        holder.communicate(b"")
        tern("gc", "--yes", env=home.env)
        tally.check("and goes when nobody is at it", not blob.exists())


def test_ask(hub):
    """At a terminal there is a question."""
    repo = hub.repo("org/ask", tiny())
    for answer, goes in (b"n\n", False), (b"\n", False), (b"\x04", False), (b"y\n", True):
        with Home(hub) as home:
            home.pull("org/ask")
            process, leader = on_terminal(home, "rm", "org/ask", asks=True)
            hear(leader, lambda said: b"[y/N]" in said)
            os.write(leader, answer)
            hear_all(leader)
            process.communicate(timeout=DEADLINE)
            os.close(leader)
            tally.check(f"the answer {answer!r}", home.repo(repo.id).exists() != goes and process.returncode == (0 if goes else 1))


def test_meanwhile(hub):
    """What comes into use while the question stands stays."""
    repo = hub.repo("org/ask", tiny())
    for words, goes in (["gc"], "e" * 64), (["rm", "org/ask@" + repo.commit], ""):
        with Home(hub) as home:
            home.pull("org/ask")
            blob = home.repo(repo.id) / "blobs" / ("e" * 64)
            blob.write_bytes(b"x")
            other = home.repo(repo.id) / "snapshots" / ("d" * 40)
            if words[0] == "rm":
                other.mkdir()
            process, leader = on_terminal(home, *words, asks=True)
            said = hear(leader, lambda said: b"[y/N]" in said)
            other.mkdir(exist_ok=True)
            (other / "config.json").symlink_to("../../blobs/" + (home.snapshot(repo) / "config.json").resolve().name)
            (other / "more").symlink_to("../../blobs/" + blob.name)
            os.write(leader, b"y\n")
            said += hear_all(leader)
            process.communicate(timeout=DEADLINE)
            os.close(leader)
            tally.check(f"{words[0]}: what is used now is there", (other / "config.json").exists() and (other / "more").exists() and process.returncode == 0, said)
            tally.check(f"{words[0]}: the rest of the plan is done", home.snapshot(repo).exists() == (words[0] == "gc"))


def prepare(home, model):
    """The folder of its prepared weights; None where this processor has no layout."""
    done = tern("prepare", model, "--json", env=home.env)
    return Path(json.loads(done.out)["path"]).parent if done.status == 0 else None


def removed(done):
    """path: why"""
    return {Path(item["path"]): item["why"] for item in json.loads(done.out)["removed"]}


def test_prepared(hub):
    """Prepared weights go with the last model that they are of, and not before."""
    repo = hub.repo("org/tiny", tiny())
    with Home(hub) as home:
        home.pull("org/tiny")
        first = prepare(home, "org/tiny")
        if not first:
            tally.skip("prepared weights", "this processor has no layout", 12)
            return
        done = tern("gc", env=home.env)
        tally.check("gc leaves those of a model that is here", done.status == 0 and "nothing to remove" in done.err and first.exists(), done.err)
        other = home.folder / "elsewhere"
        shutil.copytree(home.snapshot(repo), other, copy_function=shutil.copy2)
        os.utime(other / "model.safetensors", (1, 1))
        second = prepare(home, other)
        done = tern("rm", "org/tiny", env=home.env)
        tally.check("rm tells of them", done.status == 1 and str(first).encode() in done.out and b"prepared weights" in done.out and str(second).encode() not in done.out, done.out)
        done = tern("rm", "org/tiny", "--yes", "--json", env=home.env)
        tally.check("and takes them with the model", done.status == 0 and removed(done).get(first) == "prepared weights" and not first.exists() and second.exists(), done.out)
        done = tern("gc", "--yes", env=home.env)
        tally.check("gc leaves those of a directory elsewhere", done.status == 0 and second.exists(), done.err)
        tally.check("which are in use", b"prepared" in tern("inspect", other, env=home.env).out)
        held = os.open(second / "weights", os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_SH)
        shutil.rmtree(other)
        done = tern("gc", "--yes", env=home.env)
        tally.check("a file that a process has open stays, and that is said", done.status == 0 and second.exists() and "has it open" in done.err, done.err)
        os.close(held)
        maker = os.open(second.parent, os.O_RDONLY)
        fcntl.flock(maker, fcntl.LOCK_EX)
        done = tern("gc", "--yes", env=home.env)
        tally.check("all stay while somebody makes some", done.status == 0 and second.exists() and "passed over" in done.err, done.err)
        os.close(maker)
        left = second.parent / ("a" * 64)
        left.mkdir()
        (left / ".weights.part-1").write_bytes(b"x" * 100)
        (second.parent / "mine").mkdir()
        done = tern("gc", "--yes", "--json", env=home.env)
        tally.check("those of a directory that is gone go, and what a killed maker left", done.status == 0 and removed(done) == {second: "prepared weights", left: "unfinished"} and not second.exists() and not left.exists(), done.out)
        tally.check("what is not tern's stays", (second.parent / "mine").exists())
    with Home(hub) as home:  # two revisions of the same weights
        old, new = two_revisions(hub, home, "org/both")
        made = prepare(home, "org/both")
        tern("rm", "org/both@v1", "--yes", env=home.env)
        tally.check("they stay while another revision has the same weights", made.exists() and "prepared" in tern("inspect", "org/both", env=home.env).out.decode())
        (home.folder / "own" / "models").mkdir()
        (home.folder / "own" / "models" / "link").symlink_to(home.snapshot(new))
        tern("rm", "link", "--yes", env=home.env)
        tally.check("and where a link to the model goes", made.exists() and not (home.folder / "own" / "models" / "link").is_symlink())
        (made / "sources").write_bytes(str(home.folder / "gone").encode() + b"\0")
        tern("gc", "--yes", env=home.env)
        tally.check("a model in the cache counts without a note", made.exists())
        broken = home.folder / "broken"
        broken.mkdir()
        (made / "sources").write_bytes(str(broken).encode() + b"\0")
        shutil.rmtree(home.repo("org/both"))
        tern("gc", "--yes", env=home.env)
        tally.check("a source that is there and cannot be read counts", made.exists())
        broken.rmdir()
        (made / "sources").write_bytes(f"{home.folder}//broken".encode() + b"\0")
        tern("gc", "--yes", env=home.env)
        tally.check("so does one on a disk that is not mounted", made.exists())
        (made / "sources").write_bytes(str(broken).encode() + b"\0")
        done = tern("gc", "--yes", env=home.env)
        tally.check("until it is gone", done.status == 0 and not made.exists(), done.err)


def test_not_noted(hub):
    """Notes that are missing or cannot be read: what was prepared stays, and nothing else is harmed."""
    repo = hub.repo("org/tiny", tiny())
    with Home(hub) as home:
        home.pull("org/tiny")
        one, two = home.folder / "one", home.folder / "two"
        shutil.copytree(home.snapshot(repo), one, copy_function=shutil.copy2)
        os.utime(one / "model.safetensors", (1, 1))
        made = prepare(home, one)
        if not made:
            tally.skip("prepared weights without notes", "this processor has no layout", 8)
            return
        notes = made / "sources"
        one.rename(two)
        tally.check("the directory's new name has them", b"prepared" in tern("inspect", two, env=home.env).out)
        tern("run", two, "x", "-m", "1", env=home.env)
        done = tern("gc", "--yes", env=home.env)
        tally.check("a directory that only uses them counts", done.status == 0 and made.exists() and "nothing to remove" in done.err, done.err)
        notes.unlink()
        shutil.rmtree(two)
        done = tern("gc", "--yes", env=home.env)
        tally.check("without notes they stay, and that is said", done.status == 0 and made.exists() and "1 of the prepared weights" in done.err and "rm -r" in done.err, done.err)
        done = tern("gc", "--yes", "--verbose", env=home.env)
        tally.check("with --verbose by name", str(made) in done.err, done.err)
        notes.mkdir()
        (home.folder / "own" / "models").mkdir(exist_ok=True)
        left = made.parent / ("a" * 64)
        left.mkdir()
        done = tern("gc", "--yes", "--json", env=home.env)
        tally.check("notes that cannot be read are one file's trouble", done.status == 0 and removed(done) == {left: "unfinished"} and made.exists() and done.err.count("not a regular file") == 1, done.err)
        done = tern("rm", "org/tiny", "--yes", env=home.env)
        tally.check("and rm's of nothing", done.status == 0 and not home.repo("org/tiny").exists() and made.exists(), done.err)
        notes.rmdir()
        notes.write_bytes(b"x" * 1200000)
        done = tern("gc", "--yes", env=home.env)
        tally.check("nor are notes that are too long", done.status == 0 and made.exists() and "more than" in done.err, done.err)
        notes.write_bytes(str(home.folder / "gone").encode() + b"\0")
        done = tern("gc", "--yes", env=home.env)
        tally.check("those that say that it is nobody's take it", done.status == 0 and not made.exists(), done.err)


def test_notes(hub):
    """Notes of imports that are gone, and empty folders."""
    with Home(hub) as home:
        own = home.folder / "own"
        imports, digest, gone = own / "imports", "0123456789abcdef" * 4, "f" * 64
        model = imports / f"file-{digest[:16]}"
        shutil.copytree(MODEL, model)
        (imports / ".seen").mkdir()
        kept, lost, other = (imports / ".seen" / name for name in ("1" * 16, "2" * 16, "mine"))
        kept.write_text(digest)
        lost.write_text(gone)
        other.write_text("hello")
        empty, young, bare, file = own / "models" / "empty", own / "models" / "young", home.cache / "models--org--bare", home.cache / "models--org--file"
        for folder in empty, young, bare / "blobs", bare / "snapshots" / "x", file / "refs":
            folder.mkdir(parents=True)
        (file / "refs" / "main").write_text("a" * 40)
        for folder in empty, bare, bare / "blobs", bare / "snapshots", bare / "snapshots" / "x", file, file / "refs":
            os.utime(folder, (1, 1))
        done = tern("gc", "--yes", "--json", env=home.env)
        tally.check("gc takes notes of imports that are gone, and empty folders that are old", done.status == 0 and removed(done) == {lost: "note of an import", empty: "empty", bare: "empty"}, done.out)
        tally.check("they are gone", not lost.exists() and not empty.exists() and not bare.exists())
        tally.check("and nothing else", kept.exists() and other.exists() and young.exists() and (file / "refs" / "main").exists() and model.exists())
        done = tern("rm", model.name, "--yes", "--json", env=home.env)
        tally.check("rm of an import takes its note", done.status == 0 and set(removed(done)) == {model, kept} and not kept.exists(), done.out)
        for name in "one", "two":
            shutil.copytree(MODEL, own / "models" / "me" / name)
        tern("rm", "me/one", "--yes", env=home.env)
        tally.check("an ORG with another model stays", (own / "models" / "me" / "two").exists())


def test_names(hub):
    """A part of an id, and a revision that is not there: what there is is told, and nothing goes."""
    with Home(hub) as home:
        old, new = two_revisions(hub, home)
        own = home.folder / "own" / "models" / "me" / "two"
        shutil.copytree(MODEL, own)
        refused("a part of several ids", tern("rm", "two", "--yes", env=home.env), "whole id", "several", "me/two (the directory", "org/two (in the hub's cache", "kB")
        refused("a part of one id", tern("rm", "g/tw", "--yes", env=home.env), "a part of org/two (in the hub's cache")
        refused("a part of none", tern("rm", "three", "--yes", env=home.env), "tern ls shows them")
        refused("no such revision", tern("rm", "org/two@v9", "--yes", env=home.env), "no revision v9", old.commit[:12] + " (v1, ", new.commit[:12] + " (main, ")
        tally.check("nothing went", own.exists() and not home.whole(old) and not home.whole(new))
        twin = home.folder / "own" / "org" / "two"
        shutil.copytree(MODEL, twin)
        done = tern("rm", "org/two", "--yes", env=home.env)
        tally.check("another one of the same id stays, and that is said", done.status == 0 and f"stays: {twin}" in done.err and twin.exists(), done.err)
        for words in (["help", "rm"], ["help", "--man", "rm"]):
            tally.check(f"{words[1]}: what an id and @REV are", b"whole id" in tern(*words).out and b"7 digits" in tern(*words).out)


def test_nowhere(hub):
    """What leads nowhere in snapshots/ is told of and left; everything else goes on."""
    with Home(hub) as home:
        old, new = two_revisions(hub, home)
        stray = home.repo("org/two") / "blobs" / ("1" * 40)
        stray.write_bytes(b"x" * 100)
        odd = home.repo("org/two") / "snapshots"
        (odd / "loop").symlink_to("loop")
        (odd / "gone").symlink_to("nothing")
        (odd / "file").write_text("x")
        (home.snapshot(new) / "round").symlink_to("round")
        done = tern("gc", "--yes", "--json", env=home.env)
        tally.check("gc goes on", done.status == 0 and json.loads(done.out)["bytes"] == 100 and not stray.exists(), done.err)
        tally.check("and tells of each once", all(done.err.count(f"snapshots/{name}: is no folder") == 1 for name in ("loop", "gone", "file")), done.err)
        tally.check("which stays", (odd / "loop").is_symlink() and (odd / "gone").is_symlink() and (odd / "file").exists() and not home.whole(old) and not home.whole(new))
        done = tern("ls", "-v", env=home.env)
        tally.check("ls goes on", done.status == 0 and b"org/two" in done.out, done.err)
        done = tern("rm", "org/two@v1", "--yes", env=home.env)
        tally.check("so does rm of a revision", done.status == 0 and not home.snapshot(old).exists() and not home.whole(new), done.err)
        done = tern("rm", "org/two@main", "--yes", env=home.env)
        tally.check("of the last one that is any", done.status == 0 and not home.snapshot(new).exists(), done.err)
        done = tern("rm", "org/two", "--yes", env=home.env)
        tally.check("and of the whole repo", done.status == 0 and not home.repo("org/two").exists(), done.err)


def test_deep(hub):
    """Folders as deep as the hub can list them."""
    deep = "/".join("abcdefghijklmnopqrstuvwxyz" * 4)
    repo = hub.repo("org/deep", tiny() | {f"{deep}/x.txt": b"x"})
    with Home(hub) as home:
        done = home.pull("org/deep", "--include", "*")
        tally.check("a deep repo", done.status == 0 and not home.whole(repo), done.err)
        done = tern("gc", "--yes", env=home.env)
        tally.check("gc goes through it", done.status == 0 and not home.whole(repo), done.err)
        done = tern("rm", "org/deep", "--yes", env=home.env)
        tally.check("and rm removes it", done.status == 0 and not home.repo("org/deep").exists(), done.err)


def test_read_only(hub):
    """A cache that others keep: gc says so, and goes on with the rest."""
    hub.repo("org/kept", tiny())
    with tempfile.TemporaryDirectory() as folder:
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", folder], capture_output=True).returncode:
            tally.skip("a cache that is read-only", "mount is not allowed here", 4)
            return
        try:
            with Home(hub, HF_HUB_CACHE=folder) as home:
                tally.check("pulled before", home.pull("org/kept").status == 0)
                subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
                left = home.folder / "own" / "imports" / ".a-0123.part-99-0"
                left.mkdir(parents=True)
                os.utime(left, (1, 1))
                done = tern("gc", "--yes", env=home.env)
                tally.check("gc passes over what is read-only", done.status == 0 and f"{folder}: passed over" in done.err and not left.exists(), done.err)
                refused("rm does not", tern("rm", "org/kept", "--yes", env=home.env), "Read-only")
                again = [home.pull("org/kept").status, tern("logits", "org/kept", "--ids", "1", env=home.env).status]
                tally.check("what is there is pulled and run", again == [0, 0], again)
        finally:
            subprocess.run(["umount", "-l", folder], check=False)


def test_window(hub):
    """Another tool finds a blob and links to it, and gc, which looked before that, removes the blob: a link to nothing.
    (A pull of tern's own waits for gc.) What comes of it is a download, not a broken model."""
    repo = hub.repo("org/window", tiny())
    for name, bring in ("tern", lambda home: home.pull("org/window").status == 0), ("huggingface_hub", lambda home: library(home, "write", "org/window").returncode == 0):
        if name != "tern" and not ORACLE.exists():
            tally.skip(f"a link to nothing, {name}", f"{ORACLE} is not there", 2)
            continue
        with Home(hub) as home:
            home.pull("org/window")
            for file in "config.json", "model.safetensors":
                (home.snapshot(repo) / file).resolve().unlink()
            refused(f"a link to nothing is no model ({name})", tern("logits", "org/window", "--ids", "1", env=home.env), "org--window", "no config.json")
            tally.check(f"{name} brings it", bring(home) and not home.whole(repo), lambda: home.whole(repo))


TESTS = [test_nowhere, test_deep, test_read_only, test_window, test_prepared, test_not_noted, test_notes, test_names, test_rm, test_gc, test_killed, test_places, test_plain, test_imports, test_spelling, test_busy, test_library_lock, test_ask, test_meanwhile]


def main():
    for test in TESTS:
        if not sys.argv[1:] or test.__name__ in sys.argv[1:]:
            with Hub() as hub:
                test(hub)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
