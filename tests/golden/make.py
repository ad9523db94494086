"""Makes the committed goldens again: tests/golden/NAME/{model/, *.json, *.bin} (format: docs/parity.md)

    build/oracle/bin/python tests/golden/make.py [--check] [NAME...]

Needs the reference. --check writes nothing and says what would change: the goldens then hold what the reference says.
"""

import argparse
import filecmp
import hashlib
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "oracle"), str(HERE.parent / "parity"), str(HERE.parent)]

import golden  # noqa: E402
import tiny  # noqa: E402
from reference import pieces  # noqa: E402
from tally import Tally  # noqa: E402

PROMPT, STEPS = 22, 9  # past a window of 8 by 14; in pieces of 7 every piece is full

# One checkpoint for each architecture, and between them dense and quantised, tied and untied, bf16 and f16.
MODELS = {
    "llama-4bit": {"case": "llama@small", "quant": (4, 32), "seed": 3},
    "llama-sliding-8bit": {"case": "llama@small-sliding", "quant": (8, 32), "dtype": "f16", "seed": 4},
    "qwen2-mxfp4": {"case": "qwen2@small", "quant": (4, 32), "mode": "mxfp4", "seed": 5},
    "qwen3-f16": {"case": "qwen3@small", "dtype": "f16", "seed": 6},
    "gemma3-bf16": {"case": "gemma3_text@small", "seed": 8},
}
# file stem -> how the prompt is cut; `all`: rows of every prompt position.
REPLAYS = {
    "exact": {"numerics": "exact", "split": "canonical", "all": True, "feed": True},
    "exact-greedy": {"numerics": "exact", "split": "canonical", "feed": False},
    "exact-pieces": {"numerics": "exact", "split": "mlx", "prefill_step_size": 7, "feed": True},
    "exact-whole": {"numerics": "exact", "split": "one", "all": True, "feed": None},
    "native": {"numerics": "native", "split": "canonical", "feed": True},
}


def replay(model, seed, spec):
    """(prompt, fed ids or None, generated ids, rows)"""
    ids = golden.prompt_ids(PROMPT + STEPS, seed)
    prompt, continuation = ids[:PROMPT], ids[PROMPT : PROMPT + STEPS - 1]
    if spec["split"] == "one":
        return prompt, [], [], golden.whole_prompt(model, prompt)
    chunk = spec.get("prefill_step_size", 2048)
    logits, tokens, _ = golden.generate(model, prompt, STEPS, chunk, forced=continuation if spec["feed"] else None)
    if spec.get("all"):
        logits = np.concatenate([pieces(model, prompt, chunk)[:-1], logits])
    tokens = tokens[: STEPS - 1]
    return prompt, tokens if spec["feed"] else None, tokens, logits


def write(folder, stem, spec, prompt, feed, generated, logits):
    data = logits.astype("<f4").tobytes()
    (folder / f"{stem}.bin").write_bytes(data)
    meta = {
        "format": "tern-golden-1",
        "logits": f"{stem}.bin",
        "sha256": hashlib.sha256(data).hexdigest(),
        "rows": logits.shape[0],
        "vocab": logits.shape[1],
        "numerics": spec["numerics"],
        "split": spec["split"],
        "prefill_step_size": spec.get("prefill_step_size", 2048),
        "all": bool(spec.get("all")),
        "prompt": prompt,
        "feed": feed,
        "generated": generated,
        "versions": golden.versions(),
    }
    text = json.dumps(meta, indent=1)
    (folder / f"{stem}.json").write_text(compact_lists(text) + "\n")


def compact_lists(text):
    """json.dumps puts every id on a line of its own."""
    return re.sub(r"\[[^][{}]*\]", lambda m: " ".join(m[0].split()).replace("[ ", "[").replace(" ]", "]"), text)


def make(name, folder):
    spec = dict(MODELS[name])
    case, seed = spec.pop("case"), spec.pop("seed")
    tiny.build(case, folder / "model", seed=seed, **spec)
    for stem, how in REPLAYS.items():
        model = golden.load(folder / "model", how["numerics"])
        write(folder, stem, how, *replay(model, seed, how))


def same(fresh, stored):
    """Equal files; in a description the versions may differ, since they are what is being checked."""
    if not stored.exists():
        return False
    if fresh.suffix == ".json" and fresh.parent.name != "model":
        a, b = (json.loads(f.read_text()) for f in (fresh, stored))
        return {**a, "versions": None} == {**b, "versions": None}
    return filecmp.cmp(fresh, stored, shallow=False)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", default=sorted(MODELS), metavar="NAME")
    p.add_argument("--check", action="store_true")
    a = p.parse_args()
    tally = Tally()
    for name in a.names:
        with tempfile.TemporaryDirectory() as scratch:
            fresh = Path(scratch) / name
            make(name, fresh)
            if a.check:
                for file in sorted(f for f in fresh.rglob("*") if f.is_file()):
                    stored = HERE / name / file.relative_to(fresh)
                    tally.check(f"{name}/{file.relative_to(fresh)}", same(file, stored), "the reference says otherwise today")
            else:
                shutil.rmtree(HERE / name, ignore_errors=True)
                shutil.copytree(fresh, HERE / name)
                print(f"{name}: {sum(f.stat().st_size for f in fresh.rglob('*') if f.is_file()) >> 10} KiB")
    return tally.close() if a.check else 0


if __name__ == "__main__":
    sys.exit(main())
