"""The tiny checkpoints that are compared live with the reference, and what is run on each.

A Case is one checkpoint: an architecture variant (tests/oracle/configs.py), a weight format, a seed. Every case is run in
`exact`, most in `native` too, each time in the four ways of RUNS. The base variant of each architecture meets every
format; the other variants meet a few formats each, taken in rotation, so that all pairs of interest occur somewhere.

Adding an architecture: a row in VARIANTS.
"""

import dataclasses

PROMPT = 21  # past every window of the variants by 12 or more, and no piece of 7 leaves one token alone
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
    overrides: dict = dataclasses.field(default_factory=dict)
    extras: dict = dataclasses.field(default_factory=dict)
    numerics: tuple = ("exact", "native")
    runs: tuple = ()
    prompt: int = PROMPT

    @property
    def arch(self):
        return self.config.split("@")[0]


# What is run: how the reference cuts the prompt, and with which flags tern has to give the same bits.
#   forced   the ids fed are given; greedy: they are the reference's own choice, and tern has to choose the same
#   chunk    the reference's prefill_step_size
RUNS = {
    # All positions, by tern's own rule of cutting; piece size changes nothing.
    "canonical": {"chunk": 2048, "forced": True, "all": True, "tern": [["--all"], ["--all", "--prefill-step-size", "3"]]},
    "one-shot": {"chunk": 2048, "forced": True, "tern": [["--split", "mlx"], []]},
    "pieces": {"chunk": 7, "forced": True, "tern": [["--split", "mlx", "--prefill-step-size", "7"]]},
    "greedy": {"chunk": 2048, "forced": False, "tern": [[]]},
    "whole": {"whole": True, "tern": [["--split", "one", "--all"]]},
    # One token alone in a piece takes the decode path: that changes bits where a window rotates.
    "singles": {"chunk": 1, "forced": True, "tern": [["--split", "mlx", "--prefill-step-size", "1"]]},
    "lone tail": {"chunk": 10, "forced": True, "tern": [["--split", "mlx", "--prefill-step-size", "10"]]},
    # Windows made by the cache, on models that have none of their own.
    "kv size": {"chunk": 2048, "forced": True, "max_kv_size": 12, "tern": [["--max-kv-size", "12"]]},
}
ALWAYS = ("canonical", "one-shot", "pieces", "greedy")
WINDOWED = ALWAYS + ("whole", "singles", "lone tail")

# variant -> runs. The first of an architecture is its base.
VARIANTS = {
    "llama": ALWAYS + ("whole",),
    "llama@tied": ALWAYS,
    "llama@tie-unset": ALWAYS,
    "llama@linear": ALWAYS,
    "llama@yarn": ALWAYS,
    "llama@longrope": ALWAYS,
    "llama@bias": ALWAYS,
    "llama@mha": ALWAYS,
    "llama@sliding": WINDOWED,
    "llama@window5": WINDOWED,
    "llama@odd": ALWAYS,
    "llama@prime": ALWAYS,
    "mistral": ALWAYS,
    "iquestcoder": ALWAYS,
    "qwen2": ALWAYS + ("kv size",),
    "qwen2@tied": ALWAYS,
    "qwen2@yarn": ALWAYS,
    "qwen2@odd": ALWAYS,
    "qwen3": ALWAYS + ("kv size",),
    "qwen3@untied": ALWAYS,
    "qwen3@yarn": ALWAYS,
    "qwen3@odd": ALWAYS,
    "gemma3_text": WINDOWED,
    "gemma3_text@untied": WINDOWED,
    "gemma3_text@narrow": WINDOWED,
    "gemma3_text@wide": WINDOWED,
}
DENSE_ONLY = {"llama@prime"}
GROUP_32 = {v for v in VARIANTS if v.endswith(("@odd", "@window5", "@narrow"))}

MIXED = {
    "*.layers.0.*.down_proj": {"bits": 8, "group_size": 32},
    "*.v_proj": {"bits": 6, "group_size": 64},
    "*.layers.1.*.o_proj": False,
    "*embed_tokens": {"bits": 8, "group_size": 64},
}
MIXED_MODES = {"*.q_proj": {"bits": 4, "group_size": 32, "mode": "mxfp4"}, "*.layers.0.*.up_proj": False}

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
    "3-shards": {"quant": (4, 32), "shards": 3},
}
ROTATION = ["4bit-g32", "bf16", "mxfp4", "8bit-g32", "f16", "5bit-g32", "nvfp4", "4bit-g64", "mxfp8", "6bit-g32", "f32",
            "4bit-g32-f32", "2bit-g32", "8bit-g64", "mixed", "3bit-g32", "3-shards"]
PER_VARIANT = 4


def fits(config, form):
    made = FORMATS[form]
    if config in DENSE_ONLY:
        return "quant" not in made
    if config in GROUP_32:
        return "quant" not in made or (made["quant"][1] <= 32 and not made.get("overrides"))
    return True


def formats_of(config, turn):
    """(formats of one variant, the next turn of the rotation)."""
    if "@" not in config and config not in ("mistral", "iquestcoder"):
        return list(FORMATS), turn
    chosen = []
    while len(chosen) < PER_VARIANT:
        form = ROTATION[turn % len(ROTATION)]
        turn += 1
        if fits(config, form) and form not in chosen:
            chosen.append(form)
        elif config in DENSE_ONLY and turn % len(ROTATION) == 0:
            chosen = [f for f in ("bf16", "f16", "f32")]
            break
    return chosen, turn


# Tensors that a checkpoint may carry and the loader has to drop, each under its own rule.
INV_FREQ = {"model.layers.0.self_attn.rotary_emb.inv_freq": (32,)}
HEAD = {"lm_head.weight": (320, 128)}
DROPS = [
    Case("llama/extra-inv-freq", "llama", extras=INV_FREQ),
    Case("llama@tied/extra-head", "llama@tied", extras=HEAD),
    Case("mistral/extra-inv-freq", "mistral", extras=INV_FREQ),
    Case("mistral@tied/extra-head", "mistral@tied", extras=HEAD),
    Case("iquestcoder/extra-inv-freq", "iquestcoder", extras=INV_FREQ),
    Case("iquestcoder@tied/extra-head", "iquestcoder@tied", extras=HEAD),
    Case("qwen2/extra-inv-freq", "qwen2", extras=INV_FREQ),
    Case("qwen2@tied/extra-head", "qwen2@tied", extras=HEAD),
    Case("qwen3/extra-head", "qwen3", extras=HEAD),
]


def table():
    cases, turn = [], 0
    for number, (config, runs) in enumerate(VARIANTS.items()):
        forms, turn = formats_of(config, turn)
        for i, form in enumerate(forms):
            cases.append(Case(f"{config}/{form}", config, seed=1 + (number + i) % 5, runs=runs, **FORMATS[form]))
    cases += [dataclasses.replace(c, runs=("one-shot",), numerics=("exact",), seed=7) for c in DROPS]
    # Windows that are reached only while decoding, and a prompt many windows long.
    for config in ("gemma3_text@wide", "llama@sliding"):
        cases.append(Case(f"{config}/short-prompt", config, seed=11, runs=WINDOWED, prompt=13))
        cases.append(Case(f"{config}/long-prompt", config, seed=12, quant=(4, 32), runs=WINDOWED, prompt=67))
    names = [c.name for c in cases]
    assert len(set(names)) == len(names)
    return cases


if __name__ == "__main__":
    for case in table():
        print(case.name, "·", ", ".join(case.numerics), "·", ", ".join(case.runs))
