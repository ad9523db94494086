"""Compares MLX's own polynomials, live on the CPU, with ops/math bit for bit.

Every bfloat16, every float16 and some millions of float32 inputs; half types go through float32 and are rounded once,
as both sides define. Also the half conversions of base/half.h against MLX's. Usage: test_math.py LIBRARY, run by the
Python that has mlx.
"""

import ctypes
import sys

import mlx.core as mx
import numpy as np
from tally import Tally

F32_COUNT = 4_000_000


def bits(a):
    """An mlx array as unsigned integers, NaNs made one."""
    size = a.dtype.size
    u = np.array(a.view(mx.uint32 if size == 4 else mx.uint16))
    nan = np.array(mx.isnan(a))
    u[nan] = 0
    return u


def as_mlx(u, dtype):
    return mx.array(u).view(dtype)


class Library:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)

    def apply(self, name, x):
        """name over the float32 numpy array x; NaN results come out as the canonical NaN."""
        x = np.ascontiguousarray(x, np.float32)
        y = np.empty_like(x)
        pointer = lambda a: a.ctypes.data_as(ctypes.c_void_p)
        ok = self.lib.probe_apply(name.encode(), pointer(x), pointer(y), ctypes.c_size_t(x.size))
        assert ok, name
        return y


def inputs():
    rng = np.random.default_rng(1)
    any_bits = rng.integers(0, 2**32, F32_COUNT // 2, dtype=np.uint32)
    near = rng.uniform(-100, 100, F32_COUNT // 4).astype(np.float32).view(np.uint32)
    unit = rng.uniform(-1.2, 1.2, F32_COUNT // 4).astype(np.float32).view(np.uint32)
    yield mx.float32, np.concatenate([any_bits, near, unit])
    for dtype in (mx.bfloat16, mx.float16):
        yield dtype, np.arange(65536, dtype=np.uint16)


FUNCTIONS = {
    "exp": mx.exp,
    "sin": mx.sin,
    "cos": mx.cos,
    "erf": mx.erf,
    "erfinv": mx.erfinv,
    "log": mx.log,
    "log2": mx.log2,
    "log1p": mx.log1p,
    "expm1": mx.expm1,
    "tanh": mx.tanh,
}


def compare(tally, what, ours, theirs, x):
    wrong = np.nonzero(ours != theirs)[0]
    i = wrong[0] if wrong.size else 0
    why = f"{wrong.size} of {x.size} differ, first at 0x{x[i]:x}: 0x{ours[i]:x}, mlx 0x{theirs[i]:x}"
    tally.check(what, not wrong.size, why)


def check_functions(tally, lib, dtype, u):
    x = as_mlx(u, dtype)
    wide = np.array(x.astype(mx.float32))
    for name, function in FUNCTIONS.items():
        ours = bits(mx.array(lib.apply(name, wide)).astype(dtype))
        compare(tally, f"{name} {dtype}", ours, bits(function(x)), u)
    e = np.array(mx.array(lib.apply("exp", np.abs(wide))).astype(dtype).astype(mx.float32))
    y = np.empty_like(e)
    lib.lib.probe_sigmoid(*(a.ctypes.data_as(ctypes.c_void_p) for a in (wide, e, y)), ctypes.c_size_t(y.size))
    compare(tally, f"sigmoid {dtype}", bits(mx.array(y).astype(dtype)), bits(mx.sigmoid(x)), u)


def check_powers(tally, lib, u):
    """Eager ** is powf; a third of the exponents are those that models use."""
    x = np.abs(u.view(np.float32))
    rng = np.random.default_rng(2)
    y = rng.choice(np.float32([2, 3, 0.5, -0.5, 0.1]), x.size)
    y[: x.size // 2] = rng.uniform(-3, 3, x.size // 2).astype(np.float32)
    z = np.empty_like(x)
    lib.lib.probe_pow(*(a.ctypes.data_as(ctypes.c_void_p) for a in (x, y, z)), ctypes.c_size_t(x.size))
    compare(tally, "power", bits(mx.array(z)), bits(mx.power(mx.array(x), mx.array(y))), u)


def check_halves(tally, lib, dtype, u):
    name = {mx.bfloat16: "bf16", mx.float16: "f16"}.get(dtype)
    if name:
        mine = mx.array(lib.apply(f"{name}_widen", u.astype(np.uint32).view(np.float32)))
        compare(tally, f"{name} to float", bits(mine), bits(as_mlx(u, dtype).astype(mx.float32)), u)
        return
    for name, half in (("bf16", mx.bfloat16), ("f16", mx.float16)):
        mine = lib.apply(f"{name}_narrow", u.view(np.float32)).view(np.uint32).astype(np.uint16)
        compare(tally, f"float to {name}", bits(as_mlx(mine, half)), bits(as_mlx(u, dtype).astype(half)), u)


def main():
    mx.set_default_device(mx.cpu)
    lib = Library(sys.argv[1])
    tally = Tally()
    for dtype, u in inputs():
        check_functions(tally, lib, dtype, u)
        check_halves(tally, lib, dtype, u)
        if dtype == mx.float32:
            check_powers(tally, lib, u)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
