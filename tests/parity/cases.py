"""The tiny checkpoints that are compared live with the reference, and what is run on each.

A Case is one checkpoint: an architecture variant (tests/oracle/configs.py), a weight format, a seed. The rows of
`manifest` say which there are; here stand the ways to run one (RUNS), the formats (FORMATS), and the two selections:

    ci()     what fits a CI run: per row the runs and formats that it names, in `exact` and mostly in `native` too
    full()   `make parity`: every row in every format of FULL, one-shot and in pieces of 5, eight decode steps

Where a row names a number of formats, they are taken from ROTATION at a place that depends on the row's name alone, so
a new row changes no other row's checkpoints, and all pairs of interest occur somewhere.

Adding a type or a variant: a row in `manifest`.
"""

import dataclasses
import re
import sys
import zlib
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "oracle"), str(Path(__file__).resolve().parent)]

PROMPT = 21  # past every window of the variants by 12 or more, and no piece of 7 or 5 leaves one token alone
STEPS = 9  # rows: the one after the prompt and eight decode steps


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    config: str  # name in configs.CONFIGS
    dtype: str = "bf16"
    quant: tuple = ()  # (bits, group)
    mode: str = "affine"
    seed: int = 0
    shards: int = 1
    hf: str = ""  # a layout of hf_layout.py instead of MLX's
    shim: bool = False
    overrides: dict = dataclasses.field(default_factory=dict)
    types: dict = dataclasses.field(default_factory=dict)
    extras: dict = dataclasses.field(default_factory=dict)
    numerics: tuple = ("exact", "native")
    runs: tuple = ()
    prompt: int = PROMPT
    form: str = ""  # name in FORMATS
    skip: str = ""  # why it is not run

    @property
    def arch(self):
        return self.config.split("@")[0]

    @property
    def label(self):
        """The row of the manifest that it comes from; its own name in rows of one case."""
        return self.config if self.name == f"{self.config}/{self.form}" else self.name

    def matches(self, pattern):
        """Whether a regular expression is found in its name (`llama@tied/bf16`) or in its row's label (`llama@tied`)."""
        return any(re.search(pattern, name) for name in (self.name, self.label))


# What is run: how the reference cuts the prompt, and with which flags tern has to give the same bits.
#   forced   the ids fed are given; greedy: they are the reference's own choice, and tern has to choose the same
#   chunk    the reference's prefill_step_size
RUNS = {
    # All positions, by tern's own rule of cutting; piece size changes nothing.
    "canonical": {"chunk": 2048, "forced": True, "all": True, "tern": [["--all"], ["--all", "--prefill-step-size", "3"]]},
    "one-shot": {"chunk": 2048, "forced": True, "tern": [["--split", "mlx"], []]},
    "pieces": {"chunk": 7, "forced": True, "tern": [["--split", "mlx", "--prefill-step-size", "7"]]},
    "fives": {"chunk": 5, "forced": True, "tern": [["--split", "mlx", "--prefill-step-size", "5"]]},
    "greedy": {"chunk": 2048, "forced": False, "tern": [[]]},
    "whole": {"whole": True, "tern": [["--split", "one", "--all"]]},
    # One token alone in a piece takes the decode path: that changes bits where a window rotates.
    "singles": {"chunk": 1, "forced": True, "tern": [["--split", "mlx", "--prefill-step-size", "1"]]},
    "lone-tail": {"chunk": 10, "forced": True, "tern": [["--split", "mlx", "--prefill-step-size", "10"]]},
    # Windows made by the cache, on models that have none of their own.
    "kv-size": {"chunk": 2048, "forced": True, "max_kv_size": 12, "tern": [["--max-kv-size", "12"]]},
}


def quantised(bits, group, start, chunk=2048):
    """Quantised keys and values. Tokens from `start` on see quantised rows alone, so the reference has its cache converted
    exactly there, whatever its own pieces: see reference.py."""
    flags = ["--kv-bits", str(bits), "--kv-group-size", str(group), "--quantized-kv-start", str(start)]
    return {"chunk": chunk, "forced": True, "kv": [bits, group, start], "tern": [flags, [*flags, "--prefill-step-size", "5"]]}


# From the first token on, from inside the prompt, from its last token, from the steps behind it.
QUANTISED = {
    "kv4": quantised(4, 32, 0),
    "kv8": quantised(8, 32, 0),
    "kv8-pieces": quantised(8, 32, 0, chunk=7),
    "kv6": quantised(6, 32, 0),
    "kv5": quantised(5, 32, 0),
    "kv3": quantised(3, 32, 0),
    "kv2": quantised(2, 32, 0),
    "kv4-inside": quantised(4, 32, 13),
    "kv8-inside": quantised(8, 32, 1),
    "kv3-last": quantised(3, 32, PROMPT - 1),
    "kv8-behind": quantised(8, 32, PROMPT + 4),
    "kv6-behind": quantised(6, 32, PROMPT),
}
WIDER = {
    **{f"kv{bits}-g{group}": quantised(bits, group, 0) for group in (64, 128) for bits in (2, 3, 4, 5, 6, 8)},
    **{f"kv4-g{group}-inside": quantised(4, group, 13) for group in (64, 128)},
}
RUNS.update(QUANTISED | WIDER)
ALWAYS = ("canonical", "one-shot", "pieces", "greedy")
RUN_GROUPS = {"always": ALWAYS, "windowed": ALWAYS + ("whole", "singles", "lone-tail"), "full": ("one-shot", "fives"),
              "kv-g32": tuple(QUANTISED),
              "kv-g64": tuple(QUANTISED) + tuple(name for name in WIDER if "-g64" in name),
              "kv-g128": tuple(name for name in WIDER)}

MIXED = {
    "*.layers.0.*.down_proj": {"bits": 8, "group_size": 32},
    "*.v_proj": {"bits": 6, "group_size": 64},
    "*.layers.1.*.o_proj": False,
    "*embed_tokens": {"bits": 8, "group_size": 64},
}
MIXED_MODES = {"*.q_proj": {"bits": 4, "group_size": 32, "mode": "mxfp4"}, "*.layers.0.*.up_proj": False}
# Layer by layer, whatever the type calls its modules.
BY_LAYER = {"*.0.*": {"bits": 8, "group_size": 32}, "*.1.*": {"bits": 6, "group_size": 64}}

# name -> how the checkpoint is made
FORMATS = {
    "bf16": {},
    "f16": {"dtype": "f16"},
    "f32": {"dtype": "f32", "numerics": ("exact",)},
    "4bit-g64": {"quant": (4, 64)},
    "4bit-g32": {"quant": (4, 32)},
    "8bit-g64": {"quant": (8, 64)},
    "8bit-g32": {"quant": (8, 32)},
    "2bit-g64": {"quant": (2, 64)},
    "3bit-g32": {"quant": (3, 32)},
    "5bit-g64": {"quant": (5, 64)},
    "6bit-g128": {"quant": (6, 128)},
    "2bit-g32": {"quant": (2, 32)},
    "3bit-g128": {"quant": (3, 128)},
    "5bit-g32": {"quant": (5, 32)},
    "6bit-g32": {"quant": (6, 32)},
    "4bit-g128": {"quant": (4, 128)},
    "4bit-g64-f16": {"quant": (4, 64), "dtype": "f16"},
    "4bit-g32-f32": {"quant": (4, 32), "dtype": "f32", "numerics": ("exact",)},
    "8bit-g32-f16": {"quant": (8, 32), "dtype": "f16"},
    "mxfp4": {"quant": (4, 32), "mode": "mxfp4"},
    "mxfp8": {"quant": (8, 32), "mode": "mxfp8"},
    "nvfp4": {"quant": (4, 16), "mode": "nvfp4"},
    "mixed": {"quant": (4, 64), "overrides": MIXED},
    "mixed-modes": {"quant": (4, 32), "overrides": MIXED_MODES},
    "by-layer": {"quant": (4, 64), "overrides": BY_LAYER},
    "wide-norms": {"types": {"*norm*": "float32", "*.bias": "float32"}},  # the stream widens at once
    "wide-parts": {"types": {"*up_proj.weight": "float32", "*v_proj.weight": "float32", "*act_fn*": "float32"}},
    "wide-stream": {"types": {"*down_proj.weight": "float32", "*embed_tokens.weight": "float16"}},
    "3-shards": {"quant": (4, 32), "shards": 3},
    "hf": {"hf": "plain"},  # the tensors as the original release has them
}
ROTATION = ["4bit-g32", "bf16", "mxfp4", "8bit-g32", "f16", "5bit-g32", "nvfp4", "4bit-g64", "mxfp8", "6bit-g32", "f32",
            "4bit-g32-f32", "2bit-g32", "8bit-g64", "mixed", "3bit-g32", "3-shards"]
# `make parity`: format -> numerics
FULL = {
    "f32": ("exact",),
    "bf16": ("native",),
    "f16": ("native",),
    "4bit-g64": ("exact", "native"),
    "8bit-g32": ("exact", "native"),
    "by-layer": ("exact", "native"),
    "mxfp4": ("exact", "native"),
    "hf": ("exact", "native"),
}


def misfit(row, form):
    """None, or why a row has no checkpoint in a format."""
    import configs
    import hf_layout

    made = FORMATS[form]
    if made.get("hf") and configs.CONFIGS[row.config]["model_type"] not in hf_layout.LAYOUTS:
        return "no other layout"
    if row.dense and "quant" in made:
        return "never quantised"
    if row.group and "quant" in made:
        largest = max([made["quant"][1], *(o["group_size"] for o in made.get("overrides", {}).values() if o)])
        if largest > row.group:
            return f"groups of {largest} do not divide its sizes"
    return None


def numerics_of(row, form):
    numerics = FORMATS[form].get("numerics", ("exact", "native"))
    if row.native == "no" or (row.native == "quantised" and "quant" not in FORMATS[form]):
        return tuple(n for n in numerics if n != "native")
    return numerics


def formats_of(row):
    """The formats of a row in the selection for CI."""
    if row.formats == "all":
        return [f for f in FORMATS if not misfit(row, f)]
    if isinstance(row.formats, tuple):
        return list(row.formats)
    turn = zlib.crc32(row.label.encode()) % len(ROTATION)
    order = [f for f in ROTATION[turn:] + ROTATION[:turn] if not misfit(row, f)]
    if row.native == "yes":  # the first, which may be the only one, in both numerics
        first = next(f for f in order if len(numerics_of(row, f)) == 2)
        order = [first] + [f for f in order if f != first]
    return order[: row.formats]


def case_of(row, form, **keys):
    made = {k: v for k, v in FORMATS[form].items() if k != "numerics"}
    return Case(
        **{
            "name": row.label if row.name else f"{row.config}/{form}",
            "config": row.config,
            "seed": row.seed or 1 + zlib.crc32(f"{row.label}/{form}".encode()) % 5,
            "extras": row.extras,
            "numerics": numerics_of(row, form),
            "runs": row.runs,
            "prompt": row.prompt or PROMPT,
            "shim": row.shim,
            "form": form,
            "skip": row.cannot and f"the reference cannot run it: {row.cannot}",
            **made,
            **keys,
        }
    )


def full_of(row):
    if row.name:
        return [case_of(row, row.formats[0])]
    runs = ("singles",) if row.runs == ("singles",) else RUN_GROUPS["full"]
    cases = []
    for form, numerics in FULL.items():
        why = misfit(row, form)
        if why and form == "hf":
            continue
        numerics = tuple(n for n in numerics if n in numerics_of(row, form))
        if not numerics:
            why, numerics = why or "the reference cannot run it natively", ("native",)
        case = case_of(row, form, numerics=numerics, runs=runs)
        cases.append(dataclasses.replace(case, skip=case.skip or why or ""))
    return cases


def unique(cases):
    import manifest

    names = [c.name for c in cases]
    for name in names:
        if names.count(name) > 1:
            raise manifest.ManifestError(f"{manifest.FILE}: two rows give the case {name}")
    return cases


def ci():
    import manifest

    return unique([case_of(row, form) for row in manifest.read() for form in formats_of(row)])


def full():
    """A special case that is only a format of its config (TYPE/hf) gives way to the one that every row has."""
    import manifest

    rows = manifest.read()
    plain = [case for row in rows if not row.name for case in full_of(row)]
    names = {c.name for c in plain}
    return unique(plain + [case for row in rows if row.name for case in full_of(row) if case.name not in names])


if __name__ == "__main__":
    for case in full() if sys.argv[1:] == ["--full"] else ci():
        print(case.name, "·", ", ".join(case.numerics), "·", ", ".join(case.runs), f"· skipped: {case.skip}" if case.skip else "")
