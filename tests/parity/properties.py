"""Same numbers always: the bits depend on the checkpoint, the tokens and the numerics mode, and on nothing else.

    properties.py                        standard library only; needs no reference

Each property is checked on the rows after turn 3 of a conversation (its ids read as one prompt, as `chat` and the server
send them) and on eight decode steps behind it: on a plain model, and on models with windows that the conversation has
long passed. Properties of the library alone (cached prefix = fresh, two rows of a batch = alone) are in
tests/unit/test_session.c.
"""

import collections
import itertools
import json
import os
import random
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import terncli  # noqa: E402
from tally import Tally  # noqa: E402

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
STEPS = 8

LEVELS = ["baseline", "neon", "dotprod", "i8mm", "avx2", "avxvnni", "avx512", "avx512vnni"]


def levels_here():
    usable = re.search(r"^simd: (.*) usable here", terncli.tern("--version").out.decode(), re.MULTILINE)
    return [level for level in LEVELS if usable and level in usable[1].split()]


# What must not matter: lists of flags that are compared with the first of them.
EXACT = {
    "threads": [["--threads", n] for n in ("1", "2", "5")],
    "SIMD level": [["--simd", level] for level in levels_here()],
    "prepared weights": [
        ["--no-prepare"],
        [],  # in use where prepare() made them
        *([["--simd", "avx2"]] if "avx2" in levels_here() else []),
        ["--threads", "1", "--prefill-step-size", "7"],
        ["--threads", "5"],
    ],
    "backend": [["--backend", "ref"], ["--backend", "cpu"]],
    "piece size": [["--prefill-step-size", n] for n in ("1", "7", "64", "2048")],
    "all at once": [
        ["--threads", "1", "--simd", "baseline", "--prefill-step-size", "2048"],
        ["--threads", "5", "--simd", levels_here()[-1], "--prefill-step-size", "5"],
        ["--threads", "2", "--simd", levels_here()[-1 - len(levels_here()) // 2], "--prefill-step-size", "1"],
    ],
}
OF_NUMERICS = {"exact": EXACT, "fast": EXACT, "native": {name: EXACT[name] for name in ("threads", "piece size")}}
# The same with quantised keys and values, from the beginning, from inside the conversation, and from its steps.
KV_STARTS = {"kv 4 bits": (4, 0), "kv 8 bits from inside": (8, 30), "kv 3 bits from the steps": (3, 73)}


def conversation(seed, turns=3, vocab=256):
    """Ids of so many turns: a question and an answer each, but for the last, which ends with the question."""
    rng = random.Random(seed)
    ids = []
    for turn in range(turns):
        ids += [rng.randrange(vocab) for _ in range(rng.randrange(9, 17))]
        if turn < turns - 1:
            ids += [rng.randrange(vocab) for _ in range(rng.randrange(11, 19))]
    return ids


def models():
    return sorted(p.parent for p in GOLDEN.glob("*/model/config.json"))


def has_rings(model):
    config = json.loads((model / "config.json").read_text())
    return config["model_type"] == "gemma3_text" or "sliding_attention" in config.get("layer_types", [])


def properties(model, numerics):
    """(name, lists of flags)"""
    usual = OF_NUMERICS[numerics]
    yield from usual.items()
    if has_rings(model):
        return
    for kind, (bits, start) in KV_STARTS.items():
        flags = ["--kv-bits", str(bits), "--kv-group-size", "32", "--quantized-kv-start", str(start)]
        for name, variants in usual.items():
            yield f"{kind}, {name}", [variant + flags for variant in variants]


def prepare(tally):
    """Makes what can be made under TERN_HOME, so that every row below runs with it but those of --no-prepare."""
    for model in models():
        label = f"{model.parent.name}: prepared"
        done = terncli.tern("prepare", model)
        if done.status == 0:
            found = json.loads(terncli.tern("inspect", model, "--json").out)["prepared"]
            tally.check(label, found and Path(found["path"]).stat().st_size == found["bytes"], f"inspect says {found}")
        elif "no layout" not in done.err:  # a machine without SIMD
            affine = json.loads((model / "config.json").read_text()).get("quantization", {}).get("mode", "dense") == "affine"
            tally.check(label, not affine and "nothing to prepare" in done.err, done.error_line)


def compare(tally):
    # Under sanitizers a property is looked at on one model in three, and on another one than the property before it. Every
    # property holds for three models at least, so that none is left out.
    each = 3 if terncli.sanitized() and "TERN_THOROUGH" not in os.environ else 1
    met = collections.Counter()
    for model, numerics in itertools.product(models(), OF_NUMERICS):
        ids = conversation(seed=model.parent.name)
        for i, (name, variants) in enumerate(properties(model, numerics)):
            met[numerics, name] += 1
            if (met[numerics, name] - 1 - i) % each:
                continue
            first = None
            for flags in variants:
                label = f"{model.parent.name} [{numerics}] {name}: {' '.join(flags)}"
                try:
                    _, rows = terncli.logits(model, ids, "--numerics", numerics, "--all", *flags, steps=STEPS)
                except Exception as error:
                    tally.fail(label, error)
                    continue
                first = first if first is not None else rows
                tally.check(label, rows == first, f"other bits than {' '.join(variants[0])}")
    tally.check("every property is looked at", all(n >= each for n in met.values()), met)
    if not models():
        tally.fail("models", f"no checkpoint in {GOLDEN}")


def main():
    tally = Tally()
    with tempfile.TemporaryDirectory() as home:
        os.environ["TERN_HOME"] = home
        prepare(tally)
        compare(tally)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
