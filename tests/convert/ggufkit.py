"""GGUF files for tests: a writer, a reader, and the values of every block type in numpy.

Written apart from the C code, from the format's description (docs/gguf.md of ggml) and the block structs; everything here
is float32 arithmetic in the order ggml's reference dequantisation has it.
"""

import struct

import numpy as np

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
SCALARS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}

# name: (number, values in a block, bytes of a block)
TYPES = {
    "F32": (0, 1, 4),
    "F16": (1, 1, 2),
    "Q4_0": (2, 32, 18),
    "Q4_1": (3, 32, 20),
    "Q5_0": (6, 32, 22),
    "Q5_1": (7, 32, 24),
    "Q8_0": (8, 32, 34),
    "Q2_K": (10, 256, 84),
    "Q3_K": (11, 256, 110),
    "Q4_K": (12, 256, 144),
    "Q5_K": (13, 256, 176),
    "Q6_K": (14, 256, 210),
    "IQ4_NL": (20, 32, 18),
    "IQ4_XS": (23, 256, 136),
    "BF16": (30, 1, 2),
}
NAMES = {number: name for name, (number, _, _) in TYPES.items()}
# Where a block has float16 fields, as byte offsets.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0],
}  # fmt: skip


# ---- writing ----


def string(s):
    b = s.encode() if isinstance(s, str) else s
    return struct.pack("<Q", len(b)) + b


def typed(value):
    """(type, bytes) of a metadata value: str, bool, int (uint32), float (float32), lists of them, or (type, value)."""
    if isinstance(value, tuple):
        return value[0], struct.pack("<" + SCALARS[value[0]], value[1])
    if isinstance(value, str):
        return STRING, string(value)
    if isinstance(value, bool):
        return BOOL, struct.pack("?", value)
    if isinstance(value, int):
        return (U32, struct.pack("<I", value)) if value >= 0 else (I32, struct.pack("<i", value))
    if isinstance(value, float):
        return F32, struct.pack("<f", value)
    items = [typed(v) for v in value]
    kind = I32 if items and items[0][0] == U32 else items[0][0] if items else U32
    return ARRAY, struct.pack("<IQ", kind, len(items)) + b"".join(data for _, data in items)


class Builder:
    def __init__(self, alignment=32, version=3):
        self.keys, self.tensors = [], []
        self.alignment, self.version = alignment, version
        if alignment != 32:
            self.set("general.alignment", alignment)

    def set(self, key, value):
        self.keys = [k for k in self.keys if k[0] != key] + [(key, value)]

    def unset(self, key):
        self.keys = [k for k in self.keys if k[0] != key]

    def tensor(self, name, kind, shape, data):
        """`shape` outermost first, as numpy has it; `data` bytes."""
        self.tensors = [t for t in self.tensors if t[0] != name] + [(name, kind, shape, data)]

    def drop(self, name):
        self.tensors = [t for t in self.tensors if t[0] != name]

    def bytes(self):
        out = b"GGUF" + struct.pack("<IQQ", self.version, len(self.tensors), len(self.keys))
        for key, value in self.keys:
            kind, data = typed(value)
            out += string(key) + struct.pack("<I", kind) + data
        offset = 0
        pad = lambda n: -n % self.alignment
        for name, kind, shape, data in self.tensors:
            out += string(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
            out += struct.pack("<IQ", TYPES[kind][0], offset)
            offset += len(data) + pad(len(data))
        out += bytes(pad(len(out)))
        return out + b"".join(data + bytes(pad(len(data))) for *_, data in self.tensors)


def random_blocks(rng, kind, shape):
    """Random bytes of a tensor, its scales moderate and finite."""
    _, block, size = TYPES[kind]
    n = int(np.prod(shape)) // block
    if kind == "F32":
        # Every third value has more bits than float16 holds.
        x = rng.standard_normal(n).astype(np.float32)
        return np.where(np.arange(n) % 3 == 0, x, x.astype(np.float16).astype(np.float32)).tobytes()
    if kind == "F16":
        return rng.standard_normal(n).astype(np.float16).tobytes()
    if kind == "BF16":
        return (rng.standard_normal(n).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
    raw = rng.integers(0, 256, (n, size), dtype=np.uint8)
    for at in HALVES[kind]:
        raw[:, at : at + 2] = (rng.standard_normal(n) * 0.02).astype(np.float16).view(np.uint8).reshape(n, 2)
    return raw.tobytes()


# ---- reading ----


class File:
    def __init__(self, path):
        self.data = np.memmap(path, np.uint8, "r")
        self.at = 4
        self.version, n_tensors, n_keys = self.unpack("IQQ")
        self.keys, self.tensors = {}, {}
        for _ in range(n_keys):
            key = self.string()
            self.keys[key] = self.value(*self.unpack("I"))
        for _ in range(n_tensors):
            name = self.string()
            (dims,) = self.unpack("I")
            shape = tuple(reversed(self.unpack(f"{dims}Q")))
            self.tensors[name] = (NAMES[self.unpack("I")[0]], shape, *self.unpack("Q"))
        alignment = self.keys.get("general.alignment", 32)
        self.start = self.at + -self.at % alignment

    def unpack(self, fields):
        size = struct.calcsize("<" + fields)
        out = struct.unpack("<" + fields, self.data[self.at : self.at + size].tobytes())
        self.at += size
        return out

    def string(self):
        (n,) = self.unpack("Q")
        self.at += n
        return self.data[self.at - n : self.at].tobytes().decode()

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind != ARRAY:
            return self.unpack(SCALARS[kind])[0]
        element, n = self.unpack("IQ")
        if element in SCALARS:
            return list(self.unpack(f"{n}{SCALARS[element]}"))
        return [self.value(element) for _ in range(n)]

    def raw(self, name):
        """(kind, shape, [blocks, bytes]) of a tensor."""
        kind, shape, offset = self.tensors[name]
        _, block, size = TYPES[kind]
        n = int(np.prod(shape)) // block
        at = self.start + offset
        return kind, shape, self.data[at : at + n * size].reshape(n, size)

    def values(self, name):
        kind, shape, raw = self.raw(name)
        return dequantise(kind, raw).reshape(shape)


# ---- values ----


def half(raw, at):
    return np.ascontiguousarray(raw[:, at : at + 2]).view(np.float16).astype(np.float32)


def nibbles(qs):
    """[n, b] bytes to [n, 2, b]: low halves, high halves."""
    return np.stack([qs & 15, qs >> 4], 1)


def bits_of(raw, at):
    """32 bits of 4 bytes, [n, 32]."""
    word = np.ascontiguousarray(raw[:, at : at + 4]).view("<u4")
    return (word >> np.arange(32, dtype=np.uint32) & 1).astype(np.uint8)


def k_scales(s):
    """12 bytes to 8 scales and 8 minima of 6 bits."""
    low, high = s[:, 0:4], s[:, 4:8]
    last = s[:, 8:12]
    scales = np.concatenate([low & 63, (last & 15) | (low >> 6 << 4)], 1)
    minima = np.concatenate([high & 63, (last >> 4) | (high >> 6 << 4)], 1)
    return scales.astype(np.float32), minima.astype(np.float32)


def affine(kind, raw):
    """(q [n, groups, 32], scale [n, groups], bias) of the types that are scale*q + bias."""
    n = len(raw)
    if kind in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"):
        d = half(raw, 0)
        m = half(raw, 2) if kind in ("Q4_1", "Q5_1") else None
        if kind == "Q8_0":
            q = (raw[:, 2:].view(np.int8).astype(np.int16) + 128).astype(np.uint8)
            return q.reshape(n, 1, 32), d, d * np.float32(-128)
        at = {"Q4_0": 2, "Q4_1": 4, "Q5_0": 6, "Q5_1": 8}[kind]
        q = nibbles(raw[:, at : at + 16]).reshape(n, 32)
        if kind.startswith("Q5"):
            q = q | bits_of(raw, at - 4) << 4
        if m is None:
            m = d * np.float32(-16 if kind == "Q5_0" else -8)
        return q.reshape(n, 1, 32), d, m
    d, dmin = half(raw, 0), half(raw, 2)
    sc, mn = k_scales(raw[:, 4:16])
    at = 16 if kind == "Q4_K" else 48
    q = nibbles(raw[:, at : at + 128].reshape(n * 4, 32)).reshape(n, 8, 32)
    if kind == "Q5_K":
        high = raw[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[None, :, None] & 1
        q = q | high << 4
    return q, d * sc, -(dmin * mn)


AFFINE_BITS = {"Q4_0": 4, "Q4_1": 4, "Q5_0": 5, "Q5_1": 5, "Q8_0": 8, "Q4_K": 4, "Q5_K": 5}
IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)


def two_bits(qs):
    """64 bytes, [n, 64], to [n, 2, 4, 32]: halves, shifts, positions."""
    n = len(qs)
    shifts = np.array([0, 2, 4, 6], np.uint8)[None, None, :, None]
    return qs.reshape(n, 2, 1, 32) >> shifts & 3


def dequantise(kind, raw):
    """[n, values in a block] float32."""
    n = len(raw)
    if kind == "F32":
        return np.ascontiguousarray(raw).view(np.float32)
    if kind == "F16":
        return half(raw, 0)
    if kind == "BF16":
        return (np.ascontiguousarray(raw).view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    if kind in AFFINE_BITS:
        q, scale, bias = affine(kind, raw)
        q = q.astype(np.float32)
        if kind in ("Q4_0", "Q5_0", "Q8_0"):  # d * (q - offset), as ggml has it
            offset = {"Q4_0": 8, "Q5_0": 16, "Q8_0": 128}[kind]
            return ((q - np.float32(offset)) * scale[..., None]).reshape(n, -1)
        return (scale[..., None] * q + bias[..., None]).reshape(n, -1)
    if kind == "Q2_K":
        d, dmin = half(raw, 80), half(raw, 82)
        scale, minimum = d * (raw[:, :16] & 15), dmin * (raw[:, :16] >> 4)
        q = two_bits(raw[:, 16:80]).reshape(n, 16, 16).astype(np.float32)
        return (scale[..., None] * q - minimum[..., None]).reshape(n, -1)
    if kind == "Q3_K":
        d = half(raw, 108)
        s = raw[:, 96:108]
        low = np.concatenate([s[:, :8] & 15, s[:, :8] >> 4], 1)
        high = np.concatenate([s[:, 8:12] >> 2 * k & 3 for k in range(4)], 1)
        scale = d * ((low | high << 4).astype(np.int8) - 32).astype(np.float32)
        q = two_bits(raw[:, 32:96]).astype(np.int8)
        mask = raw[:, None, :32] >> np.arange(8, dtype=np.uint8)[None, :, None] & 1
        q = q - np.where(mask.reshape(n, 2, 4, 32) == 1, 0, 4).astype(np.int8)
        return (scale[..., None] * q.reshape(n, 16, 16).astype(np.float32)).reshape(n, -1)
    if kind == "Q6_K":
        d = half(raw, 208)
        low = raw[:, :128].reshape(n, 2, 64)
        low = np.concatenate([low & 15, low >> 4], 2).reshape(n, 2, 4, 32)
        high = raw[:, 128:192].reshape(n, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[None, None, :, None] & 3
        q = (low | high << 4).astype(np.int8) - 32
        scale = d * np.ascontiguousarray(raw[:, 192:208]).view(np.int8).astype(np.float32)
        return (scale[..., None] * q.reshape(n, 16, 16).astype(np.float32)).reshape(n, -1)
    if kind == "IQ4_NL":
        return half(raw, 0) * IQ4[nibbles(raw[:, 2:18]).reshape(n, 32)]
    if kind == "IQ4_XS":
        high = np.ascontiguousarray(raw[:, 2:4]).view("<u2") >> np.arange(0, 16, 2, dtype=np.uint16) & 3
        low = np.stack([raw[:, 4:8] & 15, raw[:, 4:8] >> 4], 2).reshape(n, 8)
        scale = half(raw, 0) * ((low | high << 4).astype(np.int32) - 32).astype(np.float32)
        return (scale[..., None] * IQ4[nibbles(raw[:, 8:].reshape(n * 8, 16)).reshape(n, 8, 32)]).reshape(n, -1)
    raise ValueError(kind)
