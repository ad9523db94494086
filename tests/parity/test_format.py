"""Compares the format room with Python's json, the safetensors library and MLX. Usage: test_format.py LIBRARY

json:        random and damaged texts: what is accepted, and every value down to the bits of doubles
safetensors: files of both other writers read; tern's own read by both; of damaged files, whatever tern accepts the
             safetensors library accepts too, with the same content
quantisation: random options against the predicate of mlx_lm's load_model, through mlx.nn.quantize
"""

import ctypes
import json
import random
import struct
import sys
import tempfile
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import safetensors
from tally import Tally

DEPTH = 64


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("text", ctypes.c_char * 1000)]


class Library:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.probe_json.restype = self.lib.probe_st.restype = ctypes.c_void_p
        self.lib.probe_free.argtypes = [ctypes.c_void_p]
        self.error = Error()

    def _text(self, function, *args):
        length = ctypes.c_size_t()
        p = function(*args, ctypes.byref(length), ctypes.byref(self.error))
        if not p:
            return None
        result = ctypes.string_at(p, length.value)
        self.lib.probe_free(p)
        return result

    def json(self, data):
        return self._text(self.lib.probe_json, data, ctypes.c_size_t(len(data)))

    def st(self, path):
        return self._text(self.lib.probe_st, str(path).encode())

    def st_copy(self, source, target):
        return self.lib.probe_st_copy(str(source).encode(), str(target).encode(), ctypes.byref(self.error))

    def quant(self, config, path, has_scales):
        """(mode, group size, bits), "dense", or None where it is refused."""
        out, mode = (ctypes.c_int32 * 3)(), ctypes.create_string_buffer(16)
        text = json.dumps(config).encode()
        if self.lib.probe_quant(text, path.encode(), ctypes.c_bool(has_scales), out, mode, ctypes.byref(self.error)):
            return None
        return (mode.value.decode(), out[1], out[2]) if out[0] else "dense"


# ---- json ----


class Refused(Exception):
    pass


def canonical(v, depth=1):
    if v is None or isinstance(v, bool):
        return {None: b"n", True: b"t", False: b"f"}[v]
    if isinstance(v, int) and -(2**63) <= v < 2**63:
        return b"i%d" % v
    if isinstance(v, (int, float)):
        try:
            v = float(v)
        except OverflowError:  # a whole number beyond all doubles
            v = float("inf") if v > 0 else float("-inf")
        return b"r%016x" % (0x7FF8000000000000 if v != v else struct.unpack("<Q", struct.pack("<d", v))[0])
    if isinstance(v, str):
        if any(0xD800 <= ord(c) < 0xE000 for c in v) or "\0" in v:
            raise Refused
        s = v.encode()
        return b"s%d:%s" % (len(s), s)
    if depth > DEPTH:
        raise Refused
    if isinstance(v, list):
        return b"[" + b"".join(canonical(x, depth + 1) for x in v) + b"]"
    return b"{" + b"".join(canonical(k) + canonical(x, depth + 1) for k, x in v) + b"}"


class Object:
    """An object as its pairs, in their order."""

    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return iter(self.items)


def pairs(items):
    if len({k for k, _ in items}) != len(items):
        raise Refused
    return Object(items)


def python_json(data):
    """What tern should give: Python's reading, less what tern refuses on purpose."""
    try:
        v = json.loads(data.decode("utf-8"), object_pairs_hook=pairs)
        return canonical(v) if isinstance(v, Object) else None
    except (ValueError, Refused, RecursionError):
        return None


SCALARS = ["0", "-0", "1", "-17", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809"]
SCALARS += ["1.5", "-0.0", "1e5", "1E-400", "2e308", "-1e999", "0.1", "1.7976931348623157e307", "123456789012345678901234567890"]
SCALARS += ["NaN", "Infinity", "-Infinity", "true", "false", "null", '""', '"a"', '"\\u00e9\\n\\/"', '"\\ud83d\\ude00"', '"Ω\\\\"']
SCALARS += ["4.35e-10", "0.1e1", "5e-324", "2.2250738585072011e-308", "1" + "0" * 80, "0." + "3" * 90]


def random_json(r, depth=0):
    kind = r.randrange(10)
    space = r.choice(["", "", " ", "\n\t"])
    if depth == 0 or (kind < 2 and depth < 5):
        keys = r.sample(["a", "b", "c", "model_type", "\\u0061", "x y", "é"], r.randrange(5))
        return "{" + ",".join(f'{space}"{k}"{space}:{random_json(r, depth + 1)}' for k in keys) + space + "}"
    if kind < 4 and depth < 5:
        return "[" + ",".join(space + random_json(r, depth + 1) for _ in range(r.randrange(4))) + "]"
    return space + r.choice(SCALARS) + space


def damage(r, data):
    data = bytearray(data)
    for _ in range(r.randrange(1, 4)):
        if not data:
            break
        at = r.randrange(len(data))
        kind = r.randrange(4)
        if kind == 0:
            data[at] = r.choice(b'\0"\\{}[],:-+.eE019aINu \xff\xc3')
        elif kind == 1:
            del data[at : at + r.randrange(1, 4)]
        elif kind == 2:
            data[at:at] = data[at : at + r.randrange(1, 6)]
        else:
            data[at] ^= 1 << r.randrange(8)
    return bytes(data)


def check_json(tally, lib):
    r = random.Random(1)
    wrong = []
    accepted = 0
    for i in range(40000):
        data = random_json(r).encode()
        if i % 2:
            data = damage(r, data)
        ours, theirs = lib.json(data), python_json(data)
        accepted += ours is not None
        if ours != theirs:
            wrong.append((data, ours, theirs))
    tally.check("json: 40,000 texts", not wrong, f"{len(wrong)} differ, first {wrong[:1]}")
    tally.check("json: some accepted, some refused", 15000 < accepted < 39000, f"{accepted} accepted")
    for depth in (DEPTH, DEPTH + 1):
        data = b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"
        tally.check(f"json: depth {depth}", lib.json(data) == python_json(data), lib.error.text.decode())


# ---- safetensors ----

NAMES = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8,
    "U64": np.uint64, "U32": np.uint32, "U16": np.uint16, "U8": np.uint8, "BOOL": np.bool_,
}  # fmt: skip


def theirs_st(data):
    """The safetensors library's reading, in the canonical form; None where it refuses."""
    try:
        tensors = safetensors.deserialize(data)
    except Exception:
        return None
    out = {}
    for name, t in tensors:
        s = name.encode()
        shape = "".join(f" {x}" for x in t["shape"])
        out[name] = b"s%d:%s%s" % (len(s), s, (t["dtype"] + shape).encode()) + b"s%d:%s" % (len(t["data"]), t["data"])
    return out


def random_arrays(r, rng):
    arrays = {}
    for _ in range(r.randrange(6)):
        name = r.choice(["a", "model.layers.0.weight", "é\n", 'q"\\', "x" * 70, "b.bias", "z"])
        shape = [r.randrange(4) for _ in range(r.randrange(4))]
        arrays[name] = rng.integers(0, 2, shape).astype(NAMES[r.choice(list(NAMES))])
    return arrays


def check_content(tally, lib, path, what):
    ours, theirs = lib.st(path), theirs_st(path.read_bytes())
    same = ours is not None and theirs is not None and sorted(theirs.values()) == split(ours, theirs)
    tally.check(what, same, lib.error.text.decode(errors="replace") if ours is None else "content differs")


def split(ours, theirs):
    """The records of `theirs` that stand in `ours`, if they make it up completely; else []."""
    left, found = ours, []
    while left:
        for record in theirs.values():
            if record not in found and left.startswith(record):
                found.append(record)
                left = left[len(record) :]
                break
        else:
            return []
    return sorted(found)


def check_writers(tally, lib, folder):
    from safetensors.numpy import save_file

    r, rng = random.Random(2), np.random.default_rng(2)
    for i in range(40):
        arrays = random_arrays(r, rng)
        path, copy = folder / f"{i}.safetensors", folder / f"{i}-copy.safetensors"
        save_file(arrays, path, {"format": "np", "k": 'v"'})
        check_content(tally, lib, path, f"safetensors: its own writer, file {i}")
        tally.check(f"safetensors: tern's copy {i} is written", lib.st_copy(path, copy) == 0, lib.error.text.decode())
        check_content(tally, lib, copy, f"safetensors: tern's copy {i} is read")
        if any(v.dtype == np.float64 for v in arrays.values()):  # which MLX does not load
            continue
        back = mx.load(str(copy))
        same = back.keys() == arrays.keys() and all(np.array_equal(np.array(back[k]), v) for k, v in arrays.items())
        tally.check(f"safetensors: tern's copy {i} in MLX", same, "content differs")
    half = {"h": mx.arange(7).astype(mx.bfloat16), "s": mx.array(1.5), "u": mx.array([1, 2, 3], mx.uint32)}
    mx.save_safetensors(str(folder / "mlx.safetensors"), half, {"format": "mlx"})
    check_content(tally, lib, folder / "mlx.safetensors", "safetensors: MLX's writer")


def check_damaged(tally, lib, folder):
    r = random.Random(3)
    header = b'{"__metadata__":{"f":"mlx"},"a":{"dtype":"BF16","shape":[3,1],"data_offsets":[0,6]},'
    header += b'"b":{"dtype":"F32","shape":[],"data_offsets":[6,10]}}'
    path = folder / "damaged.safetensors"
    wrong, accepted = [], 0
    for _ in range(20000):
        h = damage(r, header)
        data = struct.pack("<Q", len(h)) + h + bytes(range(r.choice([10, 10, 10, 9, 12])))
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        ours = lib.st(path)
        if ours is None:
            continue
        accepted += 1
        theirs = theirs_st(data)
        if theirs is None or sorted(theirs.values()) != split(ours, theirs):
            wrong.append(data)
    tally.check("safetensors: 20,000 damaged files", not wrong, f"{len(wrong)} accepted by tern alone, first {wrong[:1]}")
    tally.check("safetensors: some of them open", accepted > 50, f"{accepted} did")


# ---- quantisation ----


def reference_quant(config, path, has_scales):
    """What mlx_lm's load_model does with a Linear at `path`; "error" where it or the strict load fails."""
    quantization = config["quantization"]

    class Holder(nn.Module):
        pass

    module = Holder()
    module[path] = nn.Linear(128, 32, bias=False)

    def predicate(p, m):
        if p in quantization:
            return quantization[p]
        return has_scales

    try:
        nn.quantize(module, group_size=quantization["group_size"], bits=quantization["bits"],
                    mode=quantization.get("mode", "affine"), class_predicate=predicate)  # fmt: skip
    except Exception:
        return "error"
    m = module[path]
    if has_scales != isinstance(m, nn.QuantizedLinear):
        return "error"
    return (m.mode, m.group_size, m.bits) if has_scales else "dense"


def random_params(r, globally):
    params = {}
    for key, values in (("group_size", [32, 64, 128, 16, None]), ("bits", [2, 3, 4, 5, 6, 8, 7, None])):
        if globally or r.random() < 0.6:
            params[key] = r.choice(values)
    if r.random() < 0.4:
        params["mode"] = r.choice(["affine", "affine", "mxfp4", "mxfp8", "nvfp4", "int4"])
    return params


def check_quantisation(tally, lib):
    r = random.Random(4)
    wrong, counts = [], {}
    for _ in range(3000):
        quantization = random_params(r, True)
        if r.random() < 0.7:
            quantization["m"] = r.choice([True, False, None, {}, random_params(r, False), random_params(r, False)])
        config, has_scales = {"model_type": "x", "quantization": quantization}, r.random() < 0.7
        ours, theirs = lib.quant(config, "m", has_scales), reference_quant(config, "m", has_scales)
        outcome = theirs if isinstance(theirs, str) else "quantised"
        counts[outcome] = counts.get(outcome, 0) + 1
        # tern checks all options at once; the reference only those it comes to use.
        if ours != theirs and ours is not None or ours is None and theirs != "error" and options_are_good(quantization):
            wrong.append((config, has_scales, ours, theirs))
    tally.check("quantisation: 3,000 options", not wrong, f"{len(wrong)} differ, first {wrong[:1]}")
    tally.check("quantisation: every outcome occurs", min(counts.get(k, 0) for k in ("quantised", "dense", "error")) > 50, str(counts))


def options_are_good(quantization):
    """Whether every combination in the options is one that MLX has."""
    for p in [quantization] + [v for k, v in quantization.items() if k == "m" and isinstance(v, dict) and v]:
        mode = p.get("mode", "affine")
        defaults = {"affine": (64, 4), "mxfp4": (32, 4), "mxfp8": (32, 8), "nvfp4": (16, 4)}.get(mode)
        if defaults is None:
            return False
        group, bits = p.get("group_size") or defaults[0], p.get("bits") or defaults[1]
        if mode == "affine" and not (group in (32, 64, 128) and bits in (2, 3, 4, 5, 6, 8)):
            return False
        if mode != "affine" and (group, bits) != defaults:
            return False
    return True


def main():
    lib, tally = Library(sys.argv[1]), Tally()
    check_json(tally, lib)
    with tempfile.TemporaryDirectory() as folder:
        check_writers(tally, lib, Path(folder))
        check_damaged(tally, lib, Path(folder))
    check_quantisation(tally, lib)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
