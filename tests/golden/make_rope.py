"""Golden rotations: what mlx_lm's rope factory gives for every kind of scaling, as tests/golden/rope.json.

    python make_rope.py [OUT]

Each case holds the factory's arguments and the bits of a rotated vector at three positions in float32 and in bfloat16;
OWN holds the ropes that single model files build for themselves, under the names of rope_kind in src/model/config.h.
tests/unit/test_rope.c replays them.
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


def internlm(dims, base, traditional, scaling, most, original):
    from mlx_lm.models.internlm2 import DynamicNTKScalingRoPE

    scale = 1 / scaling["factor"] if scaling and scaling["type"] == "linear" else 2.0
    return DynamicNTKScalingRoPE(dims, max_position_embeddings=most, traditional=traditional, base=base, scale=scale)


def hunyuan(dims, base, traditional, scaling, most, original):
    from mlx_lm.models.hunyuan_v1_dense import DynamicNTKAlphaRoPE

    return DynamicNTKAlphaRoPE(dims, base=base, scaling_alpha=scaling["alpha"] if scaling else 1.0)


def nanochat(dims, base, traditional, scaling, most, original):
    from mlx_lm.models.nanochat import apply_rotary_emb

    return lambda x, offset: apply_rotary_emb(x, offset, base=base)


def phi3(dims, base, traditional, scaling, most, original):
    from mlx_lm.models.phi3 import Attention, ModelArgs

    args = ModelArgs(model_type="phi3", hidden_size=4 * dims, num_hidden_layers=1, intermediate_size=64, num_attention_heads=4,
                     rms_norm_eps=1e-5, vocab_size=8, rope_theta=base, rope_traditional=traditional, rope_scaling=scaling,
                     max_position_embeddings=most, original_max_position_embeddings=original)
    return Attention(args).rope


def nemotron(dims, base, traditional, scaling, most, original):
    import mlx.nn as nn

    return nn.RoPE(dims, base=base, scale=1 / scaling["factor"] if scaling else 1.0)  # as its Attention builds it


SU = {"short_factor": [1.0] * 16, "long_factor": FACTORS}
OWN = [
    ("ntk", internlm, dict(dims=32, base=1000000.0, traditional=False), None, 32768, None),
    ("ntk-grown", internlm, dict(dims=32, base=10000.0, traditional=False), {"type": "dynamic", "factor": 2.0}, 20, None),
    ("ntk-grown-traditional", internlm, dict(dims=64, base=10000.0, traditional=True), {"type": "dynamic", "factor": 6.0}, 1000, None),
    ("ntk-linear", internlm, dict(dims=32, base=10000.0, traditional=False), {"type": "linear", "factor": 4.0}, 32768, None),
    ("ntk-alpha", hunyuan, dict(dims=64, base=10000.0, traditional=False), {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}, 32768, None),
    ("ntk-alpha-plain", hunyuan, dict(dims=32, base=10000.0, traditional=False), None, 32768, None),
    ("backward", nanochat, dict(dims=32, base=10000.0, traditional=False), None, 2048, None),
    ("su", phi3, dict(dims=32, base=10000.0, traditional=False), {"type": "su", **SU}, 131072, 4096),
    ("su-longrope", phi3, dict(dims=32, base=10000.0, traditional=False), {"type": "longrope", **SU}, 4096, 4096),
    ("su-linear", phi3, dict(dims=32, base=10000.0, traditional=True), {"type": "linear", "factor": 4.0, **SU}, 131072, 4096),
    ("su-none", phi3, dict(dims=32, base=10000.0, traditional=False), None, 131072, 4096),
    ("only-linear", nemotron, dict(dims=16, base=10000.0, traditional=False), {"type": "linear", "factor": 4.0}, 4096, None),
    ("only-linear-none", nemotron, dict(dims=16, base=10000.0, traditional=False), None, 4096, None),
]
KINDS = {internlm: "ntk", hunyuan: "ntk-alpha", nanochat: "backward", phi3: "su", nemotron: "linear"}


def vector(dims):
    return (np.arange(dims) * 37 % 101 / 50 - 1).astype(np.float32)


def bits(array):
    return [f"{w:08x}" for w in np.array(array.astype(mx.float32)).view(np.uint32).ravel()]


def case(name, args, scaling, most):
    rope = initialize_rope(scaling_config=scaling, max_position_embeddings=most, **args)
    return record(name, "factory", rope, args, scaling, most, None)


def own(name, make, args, scaling, most, original):
    return record(name, KINDS[make], make(scaling=scaling, most=most, original=original, **args), args, scaling, most, original)


def record(name, kind, rope, args, scaling, most, original):
    rows = {}
    for dtype in (mx.float32, mx.bfloat16):
        x = mx.array(vector(args["dims"])).astype(dtype)[None, None, None]
        rows[str(dtype).removeprefix("mlx.core.")] = [bits(rope(x, offset=p)) for p in POSITIONS]
    return {"name": name, "kind": kind, **args, "scaling": scaling, "max_positions": most, "original": original, "rotated": rows}


def main():
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("rope.json")
    cases = [case(*c) for c in CASES] + [own(*c) for c in OWN]
    lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
    out.write_text(f'{{"positions":{POSITIONS},"versions":{{"mlx-cpu":"0.31.2","mlx-lm":"0.31.3"}},"cases":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
