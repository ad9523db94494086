"""Repos that hold GGUF files alone, from the stand-in for the hub: pulled, listed, run, refused, removed (standard
library only)."""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from home import HERE, Home, refused, run_all, tally, tiny  # noqa: E402
from terncli import tern  # noqa: E402

SEEDS = HERE.parent / "fuzz" / "corpus" / "gguf"
LLAMA, QWEN = (SEEDS / "llama.gguf").read_bytes(), (SEEDS / "qwen2.gguf").read_bytes()


def listed(home):
    return {m["id"]: m for m in json.loads(tern("ls", "--json", env=home.env).out)}


def logits(home, model, *more):
    return tern("logits", model, "--ids", "1,2", *more, env=home.env)


def test_one(hub):
    repo = hub.repo("org/one-GGUF", {"config.json": b'{"model_type": "llama"}', "README.md": b"x", "one.Q8_0.gguf": LLAMA})
    with Home(hub) as home:
        refused("without --include", home.pull("org/one-GGUF"), "1 .gguf file", "tern pull org/one-GGUF --include 'one.Q8_0.gguf'", "tern run org/one-GGUF")
        done = home.pull("org/one-GGUF", "--include", "*.gguf", "--include", "config.json")
        tally.check("with it", done.status == 0 and not home.whole(repo, ["one.Q8_0.gguf"]), done.err)
        before = listed(home)
        row = before.get("org/one-GGUF", {})
        tally.check("ls has the one file as the repo", list(before) == ["org/one-GGUF"] and row["type"] == "llama" and row["size"] == len(LLAMA) and row["revision"] == "main" and "error" not in row, before)
        tally.check("and says what it can, and that it was not measured", row["capabilities"] == ["text", "chat"] and row["fits"] is None, row)
        tally.check("ls --ids", tern("ls", "--ids", env=home.env).out == b"org/one-GGUF\n")
        ran = logits(home, "org/one-GGUF")
        tally.check("it runs, and is imported for that", ran.status == 0 and "imported" in ran.err, ran.err)
        again = logits(home, "one-gguf")
        tally.check("once", again.status == 0 and again.out == ran.out and "imported" not in again.err, again.err)
        after = listed(home)
        tally.check("what it was imported into is no second model", list(after) == ["org/one-GGUF"] and after["org/one-GGUF"]["fits"] is True and after["org/one-GGUF"]["tier"] == "generic", after)
        alone = tern("run", "--raw", "--max-tokens", "1", env=home.env)
        tally.check("so that the only model needs no name", "several" not in alone.err, alone.err)
        for name in f"org/one-GGUF@{repo.commit}", "org/one-GGUF@main", "org/one-GGUF:one.Q8_0.gguf", "org/one-GGUF:q8_0", "org/one-GGUF@main:Q8", str(home.snapshot(repo)), str(home.repo(repo.id)), str(home.snapshot(repo) / "one.Q8_0.gguf"):
            done = logits(home, name)
            tally.check(f"named as {Path(name).name}", done.status == 0 and done.out == ran.out, done.err)
        home.env["HF_HUB_OFFLINE"] = "1"
        done = home.pull("org/one-GGUF", "--include", "*.gguf")
        tally.check("a pull offline finds it", done.status == 0 and done.out.decode() == f"{home.snapshot(repo)}\n", done.err)
        refused("but not what was not asked for", home.pull("org/one-GGUF"), "HF_HUB_OFFLINE")
        gone = tern("gc", "--yes", env=home.env)
        tally.check("gc leaves it", gone.status == 0 and not home.whole(repo, ["one.Q8_0.gguf"]), gone.err)
        imports = [p.name for p in (home.folder / "own" / "imports").iterdir() if p.name[0] != "."]
        gone = tern("rm", "org/one-GGUF", "--yes", env=home.env)
        tally.check("rm removes it, and says that the import stays", gone.status == 0 and not home.repo(repo.id).exists() and f"tern rm {imports[0]}" in gone.err, gone.err)
        tally.check("which is then a model of its own", list(listed(home)) == imports, listed(home))


def test_several(hub):
    repo = hub.repo("org/two-GGUF", {"two.Q4_K_M.gguf": LLAMA, "sub/two.Q8_0.gguf": QWEN, "mmproj-two.gguf": b"m" * 2000, "three-00001-of-00002.gguf": b"x" * 2000, "three-00002-of-00002.gguf": b"y" * 2000})
    with Home(hub) as home:
        done = home.pull("org/two-GGUF", "--include", "*.gguf")
        tally.check("several files", done.status == 0, done.err)
        ids = [f"org/two-GGUF:{f}" for f in ("sub/two.Q8_0.gguf", "three-00001-of-00002.gguf", "two.Q4_K_M.gguf")]
        rows = listed(home)
        tally.check("each is listed; no projector, and no second part", list(rows) == ids, list(rows))
        tally.check("one that is no GGUF file says so", "error" in rows[ids[1]] and "error" not in rows[ids[0]], rows)
        for words in (), ("--yes",):
            hub.forget()
            refused(f"none is named {words}", tern("run", "org/two-GGUF", "hi", *words, env=home.env), "holds 3 GGUF files", *ids)
            tally.check("nothing is downloaded for that", not hub.asked(), hub.asked())
        first, second = logits(home, ids[2]), logits(home, ids[0])
        tally.check("by the whole name", first.status == 0 and second.status == 0 and first.out != second.out, first.err + second.err)
        for name, same in ("org/two-GGUF:q4_k_m", first), ("TWO-gguf:Q8", second), ("q8_0.gguf", second), ("org/two-GGUF@main:two.Q8_0.gguf", second):
            done = logits(home, name)
            tally.check(f"by a part of it: {name}", done.status == 0 and done.out == same.out, done.err)
        refused("by a part of several", logits(home, "org/two-GGUF:_"), "holds 2 GGUF files", ids[0], ids[2])
        refused("by a part of none", logits(home, "org/two-GGUF:Q9"), 'has "Q9"', *ids)
        refused("by a part of several files' names", logits(home, "two.q"), "any of 2 models", ids[0], ids[2])
        refused("a revision that is not there", logits(home, "org/two-GGUF@v9:Q8"), "revision v9 is not in the cache")
        refused("the directory", logits(home, str(home.snapshot(repo))), "holds 3 GGUF files", str(home.snapshot(repo) / "two.Q4_K_M.gguf"))
        refused("a file of a repo that is not here", logits(home, "org/none:Q4_K_M"), "tern pull org/none --include '*Q4_K_M*.gguf'")
        refused("rm of one file", tern("rm", ids[0], "--yes", env=home.env), "tern rm org/two-GGUF")
        refused("rm of a part", tern("rm", "two", "--yes", env=home.env), "a part of org/two-GGUF (in the hub's cache")
        tally.check("nothing went", not home.whole(repo))
    hub.repo("org/both", tiny() | {"x.gguf": LLAMA})
    with Home(hub) as home:
        home.pull("org/both", "--include", "*")
        tally.check("beside safetensors files GGUF files are no models", list(listed(home)) == ["org/both"] and logits(home, "org/both").status == 0)


TESTS = [test_one, test_several]


if __name__ == "__main__":
    sys.exit(run_all(TESTS))
