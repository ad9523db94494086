"""Compares an imported folder, as mlx-lm loads it, with values worked out in numpy."""

import json

import ggufkit as kit
import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.utils import load_model


def fits_half(x):
    with np.errstate(over="ignore"):
        return np.array_equal(x.astype(np.float16).astype(np.float32), x)


def wanted_dtype(expected, scales):
    """float16 if it holds every floating value of the result, else float32. `scales`: those of affine tensors."""
    dense = all(fits_half(v) for kind, v in expected.values() if v.ndim == 1 or kind not in kit.AFFINE_BITS)
    return mx.float16 if dense and all(fits_half(s) for s in scales) else mx.float32


def load(folder):
    """(model, config, name -> array) through mlx-lm's own strict loader."""
    model, config = load_model(folder, strict=True)
    return model, config, dict(tree_flatten(model.parameters()))


def values_of(weights, config, name):
    """float32 values of a parameter: what mlx computes with after set_dtype(float32)."""
    module = name.rpartition(".")[0]
    if module + ".scales" not in weights or not name.endswith(".weight"):
        return np.array(weights[name].astype(mx.float32)), 0
    how = {**config["quantization"], **(config["quantization"].get(module) or {})}
    assert how["group_size"] == 32
    scales, biases = (weights[f"{module}.{p}"].astype(mx.float32) for p in ("scales", "biases"))
    out = mx.dequantize(weights[name], scales, biases, 32, how["bits"], mode="affine")
    return np.array(out), how["bits"]


def compare(tally, label, weights, config, name, kind, expected):
    got, bits = values_of(weights, config, name)
    want_bits = kit.AFFINE_BITS.get(kind, 0) if expected.ndim == 2 else 0
    tally.check(f"{label} {name} bits", bits == want_bits, f"{bits} instead of {want_bits}")
    tally.check(f"{label} {name} values", np.array_equal(got, expected), lambda: difference(got, expected))


def difference(got, want):
    if got.shape != want.shape:
        return f"shape {got.shape} instead of {want.shape}"
    bad = np.argwhere(got != want)
    at = tuple(bad[0])
    return f"{len(bad)} of {got.size} values differ, first {got[at]!r} instead of {want[at]!r} at {at}"


def floating_types(weights):
    return {a.dtype for a in weights.values() if a.dtype != mx.uint32}


def read_json(folder, name):
    return json.loads((folder / name).read_text(encoding="utf-8"))
