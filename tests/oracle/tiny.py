"""Write a tiny random checkpoint of any mlx-lm model type in the MLX on-disk format.

    python tiny.py CASE OUTDIR [--seed N] [--dtype bf16|f16|f32] [--quant BITS GROUP]
                   [--mode affine|mxfp4|mxfp8|nvfp4] [--scale X] [--shards N] [--hf [fp8|int4|awq]] [--shim]

Every parameter is drawn from its own generator, seeded by (seed, name), so values depend neither
on order nor on the other parameters. The tensor names are those of mlx_lm.utils.save_model.
"""

import argparse
import contextlib
import copy
import fnmatch
import hashlib
import io
import re
from pathlib import Path

import numpy as np

import configs
import shims
import tokenizer

# Families that compute norm(x) * (1 + weight).
NORMS_AROUND_ZERO = {"gemma", "gemma2", "gemma3", "gemma3_text", "recurrent_gemma", "nemotron"}


def normal(mean, std):
    return lambda rng, shape: mean + std * rng.standard_normal(shape)


def uniform(low, high):
    return lambda rng, shape: rng.uniform(low, high, shape)


def log_uniform(low, high):
    return lambda rng, shape: np.log(rng.uniform(low, high, shape))


# These also scale embeddings up by sqrt(hidden_size).
EMBEDS_SCALED = NORMS_AROUND_ZERO - {"nemotron"} | {"gemma3n", "gemma4", "gemma4_text"}

# Routers get a larger gain, to keep scores apart.
ROUTER = re.compile(r"(\.gate|router|classifier|\.wg|router\.(layer|gate|proj)|gate\.(gate|gate_proj))\.weight$")

# First match wins. Parameters without a rule fall through to rules by shape, see draw().
RULES = [
    (r"A_log$", log_uniform(1, 8)),
    (r"(dt_bias|dt_proj\.bias)$", uniform(-4, -1)),
    (r"\.D$", normal(1, 0.1)),
    (r"(e_score_correction_bias|expert_bias|router_bias)$", normal(0, 0.1)),
    (r"(sinks|attention_sink_bias)$", normal(0, 1)),
    (r"quant_(key|value)_scale$", uniform(0.02, 0.04)),
    (r"act_fn\.alpha_[pn]$", normal(0.8, 0.1)),
    (r"act_fn\.beta$", normal(0.5, 0.02)),
    (r"act_fn\.eps$", lambda rng, shape: np.full(shape, -1e-6)),
    (r"correct_output_scale$", normal(1, 0.1)),
    (r"altup\.(prediction|correction)_coefs\.weight$", normal(0, 0.3)),
    (r"recurrent_param$", uniform(-4, -1)),
    (r"\.attn\.x_[rwkvag]$|\.ffn\.x_k$", uniform(0, 1)),
    (r"\.attn\.(k_k|k_a)$", normal(0.8, 0.1)),
    (r"\.attn\.r_k$", normal(0, 0.1)),
    (r"w_lora\.lora\.2\.bias$", normal(-1, 0.5)),
    (r"conv_[kv]$", normal(0.5, 0.2)),
    (r"weight_scale$", uniform(0.02, 0.04)),
]


def generator(seed, name):
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return np.random.Generator(np.random.Philox(key=np.frombuffer(digest[:16], dtype=np.uint64)))


def is_norm(name, kind):
    return "norm" in ".".join(name.split(".")[-2:]) or "norm" in kind.lower() or name.endswith(("q_weight", "k_weight"))


def is_router(name, kind):
    return "Gate" in kind or "Router" in kind or bool(ROUTER.search(name))


def draw(name, value, module, seed, scale, family):
    """Random values for one parameter, as float64 or uint8."""
    rng, shape = generator(seed, name), value.shape
    kind = type(module).__name__
    if str(value.dtype).endswith("uint8"):  # four packed ternary codes
        codes = rng.integers(0, 3, (4, *shape), dtype=np.uint8)
        return codes[0] | codes[1] << 2 | codes[2] << 4 | codes[3] << 6
    for pattern, rule in RULES:
        if re.search(pattern, name):
            return rule(rng, shape)
    if name.endswith("bias"):
        return 0.1 * rng.standard_normal(shape)
    if is_norm(name, kind):
        return (0.0 if family in NORMS_AROUND_ZERO else 1.0) + 0.1 * rng.standard_normal(shape)
    if len(shape) < 2:
        return 1.0 + 0.1 * rng.standard_normal(shape)
    if kind == "Embedding":
        return (0.04 if family in EMBEDS_SCALED else 0.1) * rng.standard_normal(shape)
    fan_in = np.prod(shape[1:]) if "Conv" in kind else shape[-1]
    gain = 2.0 if is_router(name, kind) else 1.0
    return scale * gain * rng.standard_normal(shape) / np.sqrt(fan_in)


def make_model(config):
    from mlx_lm.utils import _get_classes

    config = copy.deepcopy(config)
    model_class, args_class = _get_classes(config)
    return model_class(args_class.from_dict(config))


def fill(model, case, seed, scale, dtype, types):
    """Set every parameter and cast the way mlx_lm.convert does. types: {name pattern: dtype}, for files that mix them."""
    import mlx.core as mx
    from mlx.utils import tree_flatten, tree_unflatten

    modules = dict(model.named_modules())
    castable = getattr(model, "cast_predicate", lambda _: True)
    filled = []
    for name, value in tree_flatten(model.parameters()):
        owner = modules.get(name.rpartition(".")[0])
        array = mx.array(draw(name, value, owner, seed, scale, case.split("@")[0]).astype(np.float32))
        if mx.issubdtype(value.dtype, mx.floating):
            own = next((t for pattern, t in types.items() if fnmatch.fnmatch(name, pattern)), dtype)
            array = array.astype(own if castable(name) else mx.float32)
        else:
            array = array.astype(value.dtype)
        filled.append((name, array))
    model.update(tree_unflatten(filled))


def drop_tied_head(model, case):
    if case in configs.TIED_BY_ABSENCE:
        inner = getattr(model, "language_model", model)
        inner.sanitize({})


def split_evenly(parts):
    """A replacement for mlx_lm's size-based sharding, to get several files at tiny sizes."""

    def make_shards(weights, *_):
        names = list(weights)
        size = -(-len(names) // parts)
        return [{n: weights[n] for n in names[i : i + size]} for i in range(0, len(names), size)]

    return make_shards


class CannotMake(Exception):
    """There is no such checkpoint: says why."""


def quantize(model, config, quant, mode, overrides):
    """Quantise as mlx_lm.convert does. overrides: {path pattern: parameters, or False to stay dense}, first match wins;
    both kinds are written into the config under the module's path."""
    from mlx_lm import utils

    bits, group = quant
    dense = []

    def predicate(path, _):
        for pattern, parameters in overrides.items():
            if fnmatch.fnmatch(path, pattern):
                if parameters is False:
                    dense.append(path)
                return parameters
        return True

    import mlx.core as mx
    from mlx.utils import tree_flatten

    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it reports bits per weight
            model, config = utils.quantize_model(model, config, group, bits, mode, predicate if overrides else None)
    except ValueError as error:
        if "group size" not in str(error):
            raise
        raise CannotMake(f"groups do not divide its sizes: {error}".splitlines()[0]) from None
    if not any(w.dtype == mx.uint32 for _, w in tree_flatten(model.parameters())):
        raise CannotMake(f"nothing in it can be quantised in groups of {group}")
    config["quantization"].update({path: False for path in dense})
    return model, config


def add_tensors(folder, extras):
    """Put tensors into the (single) file that a loader has to drop. extras: {name: shape}."""
    import mlx.core as mx

    file = folder / "model.safetensors"
    weights = dict(mx.load(str(file)))
    weights.update({name: mx.ones(shape, dtype=mx.bfloat16) for name, shape in extras.items()})
    mx.eval(weights)
    mx.save_safetensors(str(file), weights, metadata={"format": "mlx"})


def build(
    case,
    out,
    seed=0,
    dtype="bf16",
    quant=None,
    mode="affine",
    scale=1.0,
    shards=1,
    hf=None,
    shim=False,
    overrides=None,
    types=None,
    extras=None,
):
    config = copy.deepcopy(configs.CONFIGS[case])
    if shim:
        shims.before_import(config["model_type"])
    import mlx.core as mx
    from mlx_lm import utils

    dtype_name = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}[dtype]
    config["torch_dtype"] = dtype_name
    model = make_model(config)
    model.eval()
    fill(model, case, seed, scale, getattr(mx, dtype_name), {k: getattr(mx, v) for k, v in (types or {}).items()})
    drop_tied_head(model, case)
    if quant:
        model, config = quantize(model, config, quant, mode, overrides or {})

    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("model*.safetensors*"):
        old.unlink()
    if hf:
        import hf_layout

        hf_layout.save(out, model, config, hf)
    else:
        whole = utils.make_shards
        if shards > 1:
            utils.make_shards = split_evenly(shards)
        utils.save_model(out, model)
        utils.make_shards = whole
    if extras:
        add_tensors(out, extras)
    utils.save_config(config, out / "config.json")
    tokenizer.write(out)
    return model


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("case", metavar="CASE", choices=sorted(configs.CONFIGS), help="MODEL_TYPE or MODEL_TYPE@VARIANT")
    p.add_argument("out", metavar="OUTDIR")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--dtype", choices=["bf16", "f16", "f32"], default="bf16")
    p.add_argument("--quant", type=int, nargs=2, metavar=("BITS", "GROUP"))
    p.add_argument("--mode", choices=["affine", "mxfp4", "mxfp8", "nvfp4"], default="affine")
    p.add_argument("--scale", type=float, default=1.0, help="multiplies every matrix")
    p.add_argument("--shards", type=int, default=1, help="number of safetensors files")
    p.add_argument(
        "--hf",
        nargs="?",
        const="plain",
        choices=["plain", "fp8", "int4", "awq"],
        help="write the tensor layout of the original release, optionally in its packed form",
    )
    p.add_argument("--shim", action="store_true", help="apply the patch of shims.py, if the type has one")
    a = p.parse_args()
    if a.hf and a.quant:
        p.error("--hf writes the layout before quantisation; use one of --hf fp8, int4, awq")
    build(a.case, a.out, a.seed, a.dtype, a.quant, a.mode, a.scale, a.shards, a.hf, a.shim)


if __name__ == "__main__":
    main()
