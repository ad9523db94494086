"""Golden rotations: what mlx_lm's rope factory gives for every kind of scaling, as tests/golden/rope.json.

    python make_rope.py [OUT]

Each case holds the factory's arguments, the periods where the class keeps them, and the bits of a rotated vector at
three positions in float32 and in bfloat16. tests/unit/test_rope.c replays them.
"""

import json
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lm.models.rope_utils import initialize_rope

POSITIONS = [0, 37, 4001]
FACTORS = [1.0 + 0.37 * i for i in range(16)]

CASES = [
    ("plain", dict(dims=32, base=10000.0, traditional=False), None, None),
    ("plain-traditional", dict(dims=32, base=500000.0, traditional=True), None, None),
    ("plain-million", dict(dims=64, base=1000000.0, traditional=False), None, 32768),
    ("default", dict(dims=32, base=10000.0, traditional=False), {"rope_type": "default"}, 4096),
    ("mrope", dict(dims=32, base=10000.0, traditional=False), {"type": "mrope", "mrope_section": [4, 6, 6]}, None),
    ("linear", dict(dims=32, base=10000.0, traditional=False), {"type": "linear", "factor": 4.0}, None),
    ("linear-odd", dict(dims=32, base=10000.0, traditional=True), {"rope_type": "linear", "factor": 3}, None),
    ("llama3", dict(dims=64, base=500000.0, traditional=False),
     {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}, 131072),
    ("llama3-short", dict(dims=32, base=10000.0, traditional=True),
     {"type": "llama3", "factor": 8, "original_max_position_embeddings": 32}, 1024),
    ("yarn", dict(dims=64, base=1000000.0, traditional=False),
     {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, 131072),
    ("yarn-mscale", dict(dims=32, base=10000.0, traditional=True),
     {"type": "deepseek_yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 0.707, "mscale_all_dim": 1.0,
      "original_max_position_embeddings": 4096}, 163840),
    ("yarn-tiny", dict(dims=32, base=10000.0, traditional=False),
     {"type": "telechat3-yarn", "factor": 4.0, "original_max_position_embeddings": 16}, 64),
    ("longrope", dict(dims=32, base=10000.0, traditional=False),
     {"type": "longrope", "short_factor": [1.0] * 16, "long_factor": FACTORS, "original_max_position_embeddings": 4096}, 131072),
    ("longrope-short", dict(dims=32, base=10000.0, traditional=False),
     {"rope_type": "longrope", "short_factor": [1.0] * 16, "long_factor": FACTORS, "original_max_position_embeddings": 4096}, 4096),
    ("longrope-number", dict(dims=32, base=10000.0, traditional=False),
     {"type": "longrope", "short_factor": 1.0, "long_factor": 2.5, "original_max_position_embeddings": 1024}, 8192),
    ("proportional", dict(dims=64, base=1000000.0, traditional=False),
     {"rope_type": "proportional", "partial_rotary_factor": 0.25}, None),
    ("proportional-factor", dict(dims=32, base=10000.0, traditional=True),
     {"rope_type": "proportional", "partial_rotary_factor": 0.5, "factor": 8.0}, None),
]


def vector(dims):
    return (np.arange(dims) * 37 % 101 / 50 - 1).astype(np.float32)


def bits(array):
    return [f"{w:08x}" for w in np.array(array.astype(mx.float32)).view(np.uint32).ravel()]


def case(name, args, scaling, most):
    rope = initialize_rope(scaling_config=scaling, max_position_embeddings=most, **args)
    rows = {}
    for dtype in (mx.float32, mx.bfloat16):
        x = mx.array(vector(args["dims"])).astype(dtype)[None, None, None]
        rows[str(dtype).removeprefix("mlx.core.")] = [bits(rope(x, offset=p)) for p in POSITIONS]
    return {"name": name, **args, "scaling": scaling, "max_positions": most, "rotated": rows}


def main():
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("rope.json")
    cases = [case(*c) for c in CASES]
    lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
    out.write_text(f'{{"positions":{POSITIONS},"versions":{{"mlx-cpu":"0.31.2","mlx-lm":"0.31.3"}},"cases":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
