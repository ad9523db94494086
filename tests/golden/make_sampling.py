"""Makes tests/golden/sampling.h: what mlx-lm samples from logits that C can make too. tests/unit/test_sample.c replays it.

    build/oracle/bin/python tests/golden/make_sampling.py [--check]

Needs the reference. --check writes nothing and fails if the file would change.
"""

import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "parity")]

import mlx.core as mx  # noqa: E402
from tally import Tally  # noqa: E402
from test_sampling import TYPES, reference, repair_min_tokens_to_keep  # noqa: E402

STEPS = 8
OFF = dict(temp=0, top_p=0, min_p=0, min_tokens_to_keep=1, top_k=0, xtc_probability=0, xtc_threshold=0)
PROMPT = [5, 9, 3, 3, 17]  # within every vocabulary

# What differs from "off"; each runs in every type.
CASES = [
    dict(vocab=320),
    dict(vocab=321, temp=0.7),
    dict(vocab=1000, temp=0.7, top_p=0.9),
    dict(vocab=1000, temp=1.3, top_p=0.37),
    dict(vocab=321, temp=0.8, min_p=0.05),
    dict(vocab=321, temp=3.0, min_p=0.5, min_tokens_to_keep=10),
    dict(vocab=1000, temp=3.0, top_k=5),
    dict(vocab=320, temp=1.0, top_k=1),
    dict(vocab=320, temp=1.0, xtc_probability=0.5, xtc_threshold=0.01),
    dict(vocab=320, temp=1.0, xtc_probability=1.0, xtc_threshold=0.1, xtc_special=[3, 17, 200]),
    dict(vocab=320, bias={1: 9.7, 300: 11.3, 17: -4.1}),
    dict(vocab=320, temp=0.3, repetition=(1.3, 20), seed=2**40 + 3),
    dict(vocab=320, presence=(1.1, 3), frequency=(0.2, 100)),
    dict(
        vocab=4099,
        temp=0.95,
        top_p=0.95,
        min_p=0.02,
        xtc_probability=0.5,
        xtc_threshold=0.01,
        top_k=40,
        repetition=(1.1, 100),
        presence=(0.5, 20),
        frequency=(0.2, 20),
        bias={7: 3.3},
    ),
]


def logits(vocab, steps):
    """[steps, vocab]: sixteenths of hashed integers, the same in C; every 50th token is likely."""
    i = np.arange(vocab, dtype=np.uint32)
    rows = []
    for step in range(steps):
        h = (i + np.uint32(step * 7919 + 1)) * np.uint32(2654435761)
        h ^= h >> np.uint32(15)
        h *= np.uint32(2246822519)
        x = (h >> np.uint32(22)).astype(np.float32) / np.float32(64) - np.float32(16)
        x[::50] += np.float32(5)
        rows.append(x)
    return np.stack(rows)


def fnv(rows):
    """64-bit FNV-1a over the bytes of float32 rows, without the final mix of hash_bytes64."""
    h = 0xCBF29CE484222325
    for byte in np.ascontiguousarray(rows, np.float32).tobytes():
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def initialiser(case):
    keys = ("temp", "top_p", "min_p", "min_tokens_to_keep", "top_k", "xtc_probability", "xtc_threshold")
    fields = [f".{k} = {case[k]}" for k in keys if case[k] != OFF[k]]
    for name in ("repetition", "presence", "frequency"):
        if case[name][0]:
            fields += [f".{name}_penalty = {case[name][0]}", f".{name}_context = {case[name][1]}"]
    if case["xtc_special"]:
        ids = ", ".join(map(str, case["xtc_special"]))
        fields += [f".xtc_special = (const int32_t[]){{{ids}}}", f".n_xtc_special = {len(case['xtc_special'])}"]
    if case["bias"]:
        ids, values = (", ".join(map(str, v)) for v in (case["bias"].keys(), case["bias"].values()))
        fields += [f".bias_ids = (const int32_t[]){{{ids}}}", f".bias_values = (const float[]){{{values}}}"]
        fields += [f".n_bias = {len(case['bias'])}"]
    fields += [f".seed = {case['seed']}"]
    return ", ".join(fields)


def make():
    lines = [
        "/* sampling.h - what mlx-lm 0.31.3 on mlx 0.31.2 samples; made by make_sampling.py, not by hand. */",
        "/* clang-format off */",
    ]
    for number, changes in enumerate(CASES):
        for kind, dtype in enumerate(TYPES):
            case = dict(OFF, xtc_special=[], bias={}, repetition=(0, 20), presence=(0, 20), frequency=(0, 20))
            case.update(seed=number, steps=STEPS, dtype=dtype)
            case.update(changes)
            x = mx.array(logits(case["vocab"], STEPS)).astype(dtype)
            tokens, rows = reference(case, x, PROMPT)
            lines.append(f"{{{{{initialiser(case)}}}, {case['vocab']}, {kind},")
            lines.append(f" {{{', '.join(map(str, tokens))}}}, UINT64_C(0x{fnv(rows):016x})}},")
    return "\n".join(lines) + "\n"


def main():
    mx.set_default_device(mx.cpu)
    repair_min_tokens_to_keep()
    text, path = make(), HERE / "sampling.h"
    if "--check" not in sys.argv[1:]:
        path.write_text(text)
        return 0
    tally = Tally()
    tally.check("tests/golden/sampling.h", path.read_text() == text, "the reference samples something else")
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
