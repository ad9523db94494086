"""Which directory MODEL means, how the command line ends when it is interrupted or its output cannot be written, where
results go, and that names from checkpoints reach no terminal raw
(standard library only)."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import st  # noqa: E402
from tally import Tally  # noqa: E402
from terncli import BINARY, tern  # noqa: E402
from waiting import DEADLINE, catches, until, worked  # noqa: E402

LLAMA = HERE.parent / "golden" / "llama-4bit" / "model"
GEMMA = HERE.parent / "golden" / "gemma3-bf16" / "model"
tally = Tally()


class Home:
    """An empty hub cache and TERN_HOME."""

    def __init__(self, folder):
        self.hub, self.own = Path(folder) / "hub", Path(folder) / "own"
        self.env = {"HF_HUB_CACHE": str(self.hub), "TERN_HOME": str(self.own), "HF_HOME": "/nowhere"}

    def in_hub(self, repo, commit="a" * 40, model=LLAMA, ref="main"):
        root = self.hub / ("models--" + repo.replace("/", "--"))
        snapshot = root / "snapshots" / commit
        snapshot.mkdir(parents=True)
        shutil.copytree(model, snapshot, dirs_exist_ok=True)
        if ref:
            (root / "refs").mkdir(exist_ok=True)
            (root / "refs" / ref).write_text(commit)
        return snapshot

    def path_of(self, name):
        """What `inspect` says MODEL is, or its error line."""
        done = tern("inspect", name, "--json", env=self.env)
        return json.loads(done.out)["path"] if done.status == 0 else f"exit {done.status}: {done.error_line}"


def same(label, have, want):
    tally.check(label, str(have) == str(want), f"{have}, not {want}")


def test_hub(folder):
    home = Home(folder)
    main = home.in_hub("org/Tiny-Llama")
    old = home.in_hub("org/Tiny-Llama", "b" * 40, ref="v1")
    other = home.in_hub("org/other", "c" * 40, ref=None)
    same("a repo id", home.path_of("org/Tiny-Llama"), main)
    same("whatever its case", home.path_of("ORG/tiny-llama"), main)
    same("a part of it", home.path_of("tiny"), main)
    same("a revision by ref", home.path_of("org/Tiny-Llama@v1"), old)
    same("a revision by commit", home.path_of("org/Tiny-Llama@" + "b" * 40), old)
    same("a part with a revision", home.path_of("tiny@v1"), old)
    same("the only snapshot where there is no ref", home.path_of("org/other"), other)
    same("the repo's folder", home.path_of(main.parent.parent), main)
    said = home.path_of("org")
    tally.check("an ambiguous part lists the candidates", said.startswith("exit 1") and "org/Tiny-Llama" in said and "org/other" in said, said)
    said = home.path_of("org/Tiny-Llama@v9")
    tally.check("an unknown revision is named", said.startswith("exit 1") and "v9" in said, said)
    said = home.path_of("org/nothing@v9")
    tally.check("an unknown model keeps its revision", said.startswith("exit 1") and "org/nothing@v9: no such" in said, said)
    said = home.path_of("org@v1")
    tally.check("an ambiguous part keeps its revision", said.startswith("exit 1") and "org@v1: could be any" in said, said)
    said = home.path_of("org/Tiny-Llama@../../x")
    tally.check("a revision is no path", said.startswith("exit 1"), said)
    listed = json.loads(tern("ls", "--json", env=home.env).out)
    same("ls --ids is names alone", tern("ls", "--ids", env=home.env).out, b"org/Tiny-Llama\norg/other\n")
    same("ls lists both", [m["id"] for m in listed], ["org/Tiny-Llama", "org/other"])
    tally.check("ls knows what they are", all(m["type"] == "llama" and m["fits"] and m["size"] > 0 and "error" not in m for m in listed), listed)


def test_without_main(folder):
    """A repo of which main is not there, but other revisions are: those are found by their names, and nothing is guessed."""
    home = Home(folder)
    feat, v2 = home.in_hub("rev/m", "b" * 40, ref="feat"), home.in_hub("rev/m", "c" * 40, ref="v2")
    dangling = home.in_hub("rev/dangling", "d" * 40, ref="v1")
    (dangling.parents[1] / "refs" / "main").write_text("e" * 40)
    partial = home.in_hub("rev/partial", "d" * 40, ref="v1")
    (partial.parent / ("e" * 40)).mkdir()
    (partial.parents[1] / "refs" / "main").write_text("e" * 40)
    for name, place in ("rev/m@feat", feat), ("rev/m@v2", v2), ("rev/m@" + "b" * 40, feat), ("rev/dangling@v1", dangling), ("rev/partial@v1", partial):
        same(f"without main: {name[:14]}", home.path_of(name), place)
    for name in "rev/m", "rev/dangling", "rev/partial", feat.parents[1]:
        said = home.path_of(name)
        tally.check(f"without main: {str(name)[-12:]} names none", said.startswith("exit 1") and ("@REV" in said or "config.json" in said), said)
    listed = json.loads(tern("ls", "--json", env=home.env).out)
    same("without main: ls", [(m["id"], m.get("revision")) for m in listed], [("rev/dangling", "v1"), ("rev/m", "feat"), ("rev/partial", "v1")])
    same("without main: ls of both", len(listed[1]["revisions"]), 2)
    shutil.rmtree(dangling.parents[1])
    shutil.rmtree(partial.parents[1])
    done = tern("run", "hello there", env=home.env)
    tally.check("without main: the one model there is has to be named too", done.status == 1 and "rev/m" in done.error_line and "@REV" in done.error_line, done.err)


def test_ls_of_a_bad_model(folder):
    home = Home(folder)
    place = home.in_hub("org/odd")
    (place / "config.json").write_text('{"model_type": "odd"}')
    listed = json.loads(tern("ls", "--json", env=home.env).out)
    tally.check("ls says what is wrong, and where", len(listed) == 1 and listed[0]["error"].startswith(f"{place}/config.json: model_type odd"), listed)
    for flags, want in ((), "1 of these cannot be run: tern ls -v says why"), (("-v",), "model_type odd"):
        done = tern("ls", *flags, env=home.env)
        tally.check(f"so does the table {flags}", done.status == 0 and want in done.err, done.err)


def test_gguf_names(folder):
    """Which of a repo's GGUF files a name means: never silently one of two."""
    home = Home(folder)
    seeds = HERE.parent / "fuzz" / "corpus" / "gguf"
    two = Path(folder) / "two"
    for place, seed in ("Q4/model.gguf", "llama"), ("Q8/model.gguf", "qwen2"), ("Q8/model.gguf.gguf", "qwen2"):
        (two / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(seeds / f"{seed}.gguf", two / place)
    snapshot = home.in_hub("org/two", model=two)
    home.in_hub("org/st", "b" * 40)
    said = home.path_of("org/two:model.gguf")
    tally.check("two files of one name: neither is taken", said.startswith("exit 1") and "holds 2 GGUF files" in said and "org/two:Q4/model.gguf, org/two:Q8/model.gguf" in said and "gguf.gguf" not in said, said)
    for name in "Q4/model.gguf", "q8/MODEL.gguf", "model.gguf.gguf":
        said = home.path_of(f"org/two:{name}")
        tally.check(f"but by its path, or a name of its own: {name}", "/imports/" in said, said)
    for name in "org/st@main:nonsense", "org/st@" + "b" * 40 + ":nonsense", "org/st:foo@bar":
        said = home.path_of(name)
        tally.check(f"a file of what holds none: {name}", said.startswith("exit 1: tern: error: org/st") and name.partition(":")[2] in said and "not a repo of GGUF files" in said, said)
    said = home.path_of("org/none@")
    tally.check("a revision of no letters is not advised", said.startswith("exit 1") and "org/none@: no such" in said and "org/none@`" not in said, said)
    for file, what in ("nonsense", "no file of the repo has this name"), ("Q4/model.gguf", "is one file of a repo"):
        done = tern("rm", f"org/two:{file}", "--yes", env=home.env)
        tally.check(f"rm of one file: {file}", done.status == 1 and what in done.error_line and done.error_line.endswith("tern rm org/two"), done.err)
    (snapshot / "around").symlink_to(".")
    (snapshot / "out").symlink_to(two)
    listed = tern("ls", "--ids", env=home.env).out.decode().split()
    same("links to folders are not followed", listed, ["org/st", "org/two:Q4/model.gguf", "org/two:Q8/model.gguf", "org/two:Q8/model.gguf.gguf"])
    many = Path(folder) / "many"
    many.mkdir()
    for i in range(10001):
        (many / f"{i}.gguf").touch()
    said = home.path_of(many)
    tally.check("more files than are listed", said.startswith("exit 1") and "more than 10000 GGUF files" in said, said)


def test_closed(folder):
    """A cache that cannot be read is not an empty one."""
    home = Home(folder)
    home.hub.write_text("no folder")
    where = f"{home.hub}: cannot open: Not a directory"
    for words in ("ls",), ("ls", "--json"), ("ls", "--ids"), ("inspect", "org/t"), ("inspect", "org/t:Q4"), ("inspect", "org/t@main"), ("run", "hello there"), ("run", "org/t", "hello", "--yes"):
        done = tern(*words, env=home.env)
        tally.check(f"a cache that cannot be read: {words}", done.status == 1 and where in done.error_line and "tern pull" not in done.err, done.err)
    done = tern("doctor", env=home.env)
    tally.check("a cache that cannot be read: doctor", where in done.out.decode() + done.err, done.err)
    shutil.copytree(LLAMA, home.own / "models" / "b" / "two")
    done = tern("ls", "--ids", env=home.env)
    tally.check("beside one that can: ls says so", done.status == 0 and done.out == b"b/two\n" and where in done.err, done.err)
    same("which is still found", home.path_of("two"), home.own / "models" / "b" / "two")
    if os.geteuid() == 0:
        tally.skip("a folder of a model's organisation that may not be read", "root may read all")
        return
    (home.own / "models" / "c").mkdir(0)
    done = tern("ls", "--ids", env={**home.env, "HF_HUB_CACHE": "/nowhere"})
    (home.own / "models" / "c").chmod(0o700)
    tally.check("an organisation's folder too", done.status == 0 and "models/c: cannot open" in done.err, done.err)


def test_links_that_lead_nowhere(folder):
    """A repo's folder that is a circle of links is in nobody's way."""
    home = Home(folder)
    home.in_hub("org/tiny")
    (home.own / "prepared" / ("0" * 64)).mkdir(parents=True)
    (home.hub / "models--x--loop").symlink_to("models--x--loop")
    for words in ("gc",), ("rm", "org/tiny"):
        done = tern(*words, "--yes", env=home.env)
        tally.check(f"{words[0]} beside a circle of links", done.status == 0, done.err)
    tally.check("which stays", (home.hub / "models--x--loop").is_symlink() and not (home.hub / "models--org--tiny").exists())


def test_own(folder):
    home = Home(folder)
    for place in ("a/one", "models/b/two"):
        shutil.copytree(LLAMA, home.own / place)
    same("under TERN_HOME", home.path_of("a/one"), home.own / "a/one")
    same("under TERN_HOME/models", home.path_of("b/two"), home.own / "models/b/two")
    plain = Path(folder) / "plain"
    shutil.copytree(GEMMA, plain)
    same("a directory", home.path_of(plain), plain)
    for unfinished in ("imports/.three.part-1-0", "models/b/.two.part-1-0", ".one.part-1-0"):
        shutil.copytree(LLAMA, home.own / unfinished)
    listed = json.loads(tern("ls", "--json", env=home.env).out)
    same("ls leaves unfinished imports out", [m["id"] for m in listed], ["a/one", "b/two"])
    same("a name does not match them", home.path_of("two"), home.own / "models/b/two")
    said = home.path_of("three")
    tally.check("nor are they found by one", said.startswith("exit 1"), said)
    (Path(folder) / "text").write_text("x")
    said = home.path_of(Path(folder) / "text")
    tally.check("a file that is no model", said.startswith("exit 1") and "gguf" in said, said)


def test_absent(folder):
    home = Home(folder)
    greedy = ["--temp", "0", "--max-tokens", "3", "--ignore-eos"]
    done = tern("run", "--prompt", "x", env=home.env)
    tally.check("no model at all", done.status == 1 and str(home.hub) in done.err, done.err)
    home.in_hub("org/only")
    want = tern("run", LLAMA, "the sand", *greedy)
    for label, words in {"the only model": ["--prompt", "the sand"], "a prompt alone": ["the sand"], "the model by name": ["only", "the sand"]}.items():
        done = tern("run", *words, *greedy, env=home.env)
        tally.check(f"run: {label}", done.status == 0 and done.out == want.out, done.err)
    done = tern("run", "only", *greedy, env=home.env)
    tally.check("run: a model alone lacks a prompt", done.status == 2 and "prompt" in done.err, done.err)
    done = tern("chat", *greedy, env=home.env, stdin=b"the sand\n")
    tally.check("chat: the only model", done.status == 0 and done.out == want.out, done.err)
    home.in_hub("org/second")
    done = tern("run", "--prompt", "x", env=home.env)
    tally.check("several models are listed", done.status == 1 and "org/only" in done.err and "org/second" in done.err, done.err)


def test_threads_variable(folder):
    for value, status in {"1": 0, "0": 2, "many": 2, "1025": 2}.items():
        done = tern("logits", LLAMA, "--ids", "1", env={"TERN_THREADS": value})
        tally.check(f"TERN_THREADS={value}", done.status == status and (status == 0 or "TERN_THREADS" in done.err), done.err)


def test_whole_files(folder):
    out = Path(folder) / "rows.bin"
    out.write_bytes(b"old")
    process = subprocess.Popen([BINARY, "logits", str(LLAMA), "--ids", "1", "--steps", "300000", "--ctx", "400000", "--out", str(out)],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until(lambda: process.poll() is not None or (catches(process.pid, signal.SIGINT) and worked(process.pid) > 0.3))
    done = process.poll()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=DEADLINE)
    tally.check("an interrupted run ends with 130", done is None and process.returncode == 130, f"{process.returncode} {err}")
    same("what stood there still stands", out.read_bytes(), b"old")
    same("and nothing else does", sorted(os.listdir(folder)), ["rows.bin"])


def test_outputs(folder):
    if not Path("/dev/full").exists():
        return
    for args in (["inspect", LLAMA], ["run", LLAMA, "x", "--max-tokens", "4"], ["tokenize", LLAMA, "x"], ["ls", "--json"], ["help"]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([BINARY, *map(str, args)], stdout=full, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        lines = done.stderr.decode().splitlines()
        tally.check(f"{args[0]} into a full disk", done.returncode == 1 and len(lines) == 1 and "stdout" in lines[0], f"{done.returncode} {lines}")
    done = subprocess.run(f'"{BINARY}" logits "{LLAMA}" --ids 1 --out "{folder}/rows" >&-', shell=True, capture_output=True)
    tally.check("a closed stdout", done.returncode == 1 and os.path.getsize(f"{folder}/rows") == 4 * 320, done.stderr)


def expect(label, status, *args, err=""):
    done = tern(*args)
    good = done.status == status and (not status or done.error_line.startswith("tern: error: ") and not done.out) and err in done.err
    tally.check(label, good, f"{done.status} {done.err[-200:]}")


def test_two_results(folder):
    """--out and --trace may not write one file; a trace, which is two files, has to be one that another can go beside."""
    folder = Path(folder)
    row, old = ("logits", LLAMA, "--ids", "1"), "stays"
    same = folder / "same"
    for out, trace in ((same, same), (f"{same}.f32", same), (same, f"{folder}/./same"), (f"{folder}/../{folder.name}/same.f32", same)):
        same.write_text(old)
        expect(f"--out and --trace of one file ({Path(out).name})", 2, *row, "--out", out, "--trace", trace, err="--out and --trace both write")
        tally.check("the file stays", same.read_text() == old and not Path(f"{same}.f32").exists())
    expect("--out and --trace of two files", 0, *row, "--out", folder / "rows", "--trace", same)
    link = folder / "link"
    link.symlink_to("/dev/null")  # the devices' own names would be at risk from a tern that fails here
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    for target in (link, pipe, folder):
        expect(f"--trace {target}", 1, *row, "--trace", target, err="not a regular file")
        tally.check(f"--trace {target} makes nothing", not Path(f"{target}.f32").exists())


def test_link(folder):
    """A result through a link goes where the link leads, as /dev/stdout into a file does; the link stays."""
    folder = Path(folder)
    target, link = folder / "target", folder / "to-target"
    target.write_text("old")
    link.symlink_to(target.name)
    expect("--out through a link", 0, "logits", LLAMA, "--ids", "1", "--out", link)
    tally.check("the link stays", link.is_symlink() and not target.is_symlink() and target.stat().st_size == 4 * 320)
    expect("--out and --trace by a link", 2, "logits", LLAMA, "--ids", "1", "--out", link, "--trace", target, err="both write")


def test_file_limit(folder):
    """A limit on the size of files (ulimit -f) is a full disk, not a signal that leaves half a file."""
    folder = Path(folder)
    for flags in (["--out", folder / "rows"], ["--trace", folder / "trace"]):
        done = subprocess.run([BINARY, "logits", str(LLAMA), "--ids", "1,2,3,4,5,6,7,8", "--all", *map(str, flags)], capture_output=True,
                              timeout=DEADLINE, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
        error = done.stderr.decode()
        good = done.returncode == 1 and "File too large" in error and len(error.splitlines()) == 1 and not done.stdout
        tally.check(f"{flags[0]} beyond the limit of a file's size", good, f"{done.returncode} {error[-200:]}")
        tally.check(f"{flags[0]} beyond it leaves nothing", not list(folder.iterdir()), list(folder.iterdir()))


def test_hostile_names(folder):
    """What a checkpoint calls things reaches no terminal raw: neither escapes, line breaks nor text-direction controls."""
    evil = "e\x1b]0;x\x07\n\u202egpj\u2066\u0085"
    model = st.copy_model(LLAMA, Path(folder) / f"m{evil}")
    values = json.loads((model / "config.json").read_text())
    key, tensor = f"key{evil}{'k' * 300}", f"model.layers.0.self_attn.rotary_emb.inv_freq{evil}{'t' * 300}"
    (model / "config.json").write_text(json.dumps({**values, key: 1, "torch_dtype": f"d{evil}"}))
    st.adding(next(model.glob("*.safetensors")), tensor)
    said = [tern("inspect", model), tern("inspect", model, "-v"), tern("bench", model, "-p", "2", "-n", "2", "-r", "1"),
            tern("ls", "-v", env={"TERN_HOME": folder, "HF_HUB_CACHE": folder})]
    for done in said:
        text = done.out.decode() + done.err
        tally.check("hostile names: runs", done.status == 0, done.err[-200:])
        found = [hex(ord(c)) for c in text if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u202e\u2066")]
        tally.check("hostile names: clean", not found and "\ngpj" not in text, found)
        tally.check("hostile names: cut", "k" * 200 not in text and "t" * 200 not in text)
    tally.check("hostile names: shown", re.search(r"unread keys.* keye\?\]0;x.*k\.\.\.", said[0].out.decode()), said[0].out[:400])
    plain = json.loads(tern("inspect", model, "--json").out)
    tally.check("hostile names: whole in JSON", plain and key in plain["unread_keys"] and tensor in [t["name"] for t in plain["tensors"]])
    (model / "config.json").write_text(json.dumps({**values, "model_type": f"llamb{evil}"}))
    done = tern("inspect", model)
    tally.check("hostile names: of a type", done.status == 1 and not re.search("[\x1b\x07\u202e]", done.out.decode() + done.err), done.err)


def test_broken_names(folder):
    """One folder whose name is not UTF-8 takes no JSON with it: its bytes are U+FFFD there."""
    home = Home(folder)
    home.in_hub("me/good")
    home.in_hub("me/\udcff\udce2\udc82x", ref="v\udcfe")
    snapshot = home.in_hub("me/\udcff\udce2\udc82x", commit="b" * 40)
    (snapshot.parent / "\udcfd").mkdir()
    done = tern("ls", "--json", env=home.env)
    rows = {m["id"]: m for m in json.loads(done.out or b"[]")}
    bad = rows.get("me/\ufffd\ufffdx")
    tally.check("broken names: ls", done.status == 0 and len(rows) == 2 and "me/good" in rows and bad and bad["path"].endswith("models--me--\ufffd\ufffdx/snapshots/" + "b" * 40), done.err)
    tally.check("broken names: refs", bad and {"commit": "a" * 40, "refs": ["v\ufffd"]}.items() <= bad["revisions"][0].items() and bad["revisions"][2]["commit"] == "\ufffd", bad)
    done = tern("inspect", snapshot, "--json", env=home.env)
    tally.check("broken names: inspect", done.status == 0 and json.loads(done.out)["path"].endswith("x/snapshots/" + "b" * 40), done.err)
    done = tern("bench", snapshot, "--json", "-p", "2", "-n", "2", "-r", "1", env=home.env)
    tally.check("broken names: bench", done.status == 0 and "\ufffd" in json.loads(done.out)["model"], done.err)
    (snapshot.parents[1] / "blobs").mkdir()
    (snapshot.parents[1] / "blobs" / ("c" * 40)).write_bytes(b"x")
    done = tern("gc", "--json", "--yes", env=home.env)
    tally.check("broken names: gc", done.status == 0 and "\ufffd" in json.loads(done.out)["removed"][0]["path"], done.err)


def main():
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    for name, test in list(globals().items()):
        if not name.startswith("test_") or only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                test(folder)
            except Exception as error:
                tally.fail(name, f"{type(error).__name__}: {error}")
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
