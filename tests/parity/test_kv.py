"""Compares the quantisation of keys and values with mx.quantize and mx.dequantize, live, bit for bit.

Every width, group and type; usual rows, and groups that are constant, all zero, tiny, huge, of one sign, with ties and
with extremes of equal size. Usage: test_kv.py LIBRARY, run by the Python that has mlx.
"""

import ctypes
import itertools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import mlx.core as mx  # noqa: E402
import numpy as np  # noqa: E402
from tally import Tally  # noqa: E402

ROWS = 64
TYPES = [mx.float32, mx.bfloat16, mx.float16]  # in the order of ops_dtype


def groups_of(rng, group):
    """The odd ones; each fills its group."""
    ramp = np.linspace(-1, 1, group)
    yield from (np.full(group, v) for v in (0.0, -0.0, 1.0, -3.25, 1e-6, -1e-9, 6e4, 1e-30))
    yield from (ramp, -ramp, abs(ramp), -abs(ramp), ramp * 1e-8, ramp * 6e4, ramp**9)
    yield np.where(np.arange(group) % 2, 1.5, -1.5)
    yield np.where(np.arange(group) % 2, 0.5, 2.0)
    yield np.where(np.arange(group) == 7, 100.0, rng.normal(size=group))
    yield np.where(np.arange(group) == 3, -1e-7, 0.0)
    yield np.round(rng.normal(size=group) * 4) / 4


def rows_of(rng, dim, group):
    x = rng.normal(size=(ROWS, dim)) * np.exp(rng.normal(size=(ROWS, 1)))
    places = itertools.product(range(ROWS), range(dim // group))
    for (row, g), values in zip(places, groups_of(rng, group)):
        x[row, g * group : (g + 1) * group] = values
    return x.astype(np.float32)


def codes_of(words, bits, dim):
    """[ROWS, dim] out of the packed rows: a little-endian bit stream."""
    stream = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=1, bitorder="little")
    digits = stream[:, : dim * bits].reshape(len(words), dim, bits)
    return (digits << np.arange(bits)).sum(axis=2, dtype=np.uint32)


def wide(array):
    return np.array(array.astype(mx.float32))


def ours(library, x, bits, group, kind, keys):
    dim = x.shape[1]
    codes = np.empty(x.shape, np.uint32)
    scales, biases = np.empty((2, ROWS, dim // group), np.float32)
    values = np.empty_like(x)
    pointer = lambda a: a.ctypes.data_as(ctypes.c_void_p)
    ok = library.probe_kv(pointer(x), dim, bits, group, kind, keys, pointer(codes), pointer(scales), pointer(biases), pointer(values))
    assert ok
    return codes, scales, biases, values


def same(a, b):
    return np.array_equal(a.view(np.uint32), b.view(np.uint32))


def main():
    library = ctypes.CDLL(sys.argv[1])
    library.probe_kv.restype = ctypes.c_bool
    tally, rng = Tally(), np.random.default_rng(4)
    for bits, group, (kind, dtype) in itertools.product((2, 3, 4, 5, 6, 8), (32, 64, 128), enumerate(TYPES)):
        for dim in (group, 2 * group, 256):
            x = mx.array(rows_of(rng, dim, group)).astype(dtype)
            words, scales, biases = mx.quantize(x, group_size=group, bits=bits)
            values = mx.dequantize(words, scales, biases, group_size=group, bits=bits)
            want = (codes_of(np.array(words), bits, dim), wide(scales), wide(biases), wide(values))
            for keys in (True, False):
                got = ours(library, wide(x), bits, group, kind, keys)
                for what, a, b in zip(("codes", "scales", "biases", "values"), got, want):
                    name = f"{bits} bits, groups of {group}, {dim} dims, {dtype}, {'key' if keys else 'value'}: {what}"
                    where = np.argwhere(a.view(np.uint32) != b.view(np.uint32))
                    tally.check(name, same(a, b), f"{len(where)} of {a.size} differ, first at {where[:1].tolist()}")
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
