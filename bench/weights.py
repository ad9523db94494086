"""The same random llama-shaped model for tern and for ggml engines: weights.py SHAPE FORMAT DIR [--seed N]

Writes DIR, an MLX checkpoint (config.json, model.safetensors; no tokenizer), and DIR.gguf, with the same weights: equal
codes, equal float16 scales, so equal values and, but for a few kilobytes of norms and vocabulary, equal bytes:

    q4_0: Q4_0 and 4 bits in groups of 64     4.5 bits a weight     both blocks of a group have its scale; bias = -8 scale
    q4_1: Q4_1 and 4 bits in groups of 32     5.0                   scale and minimum
    q8_0: Q8_0 and 8 bits in groups of 64     8.5                   bias = -128 scale

Scales are such that every product of a vector of unit variance has unit variance. Rows of q and k lie in pairs in the
GGUF file, as its llama has them, so that it is the same function. The vocabulary is a stub: 256 bytes, then numbered
words. Made in pieces of some ten megabytes, from a seed. Needs numpy.
"""

import argparse
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "convert"))
import ggufkit as kit  # noqa: E402

PIECE = 1 << 24  # weights at a time


@dataclass(frozen=True)
class Shape:
    width: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    hidden: int
    vocab: int
    tied: bool


SHAPES = {
    "1B": Shape(2048, 16, 32, 8, 64, 8192, 128256, True),  # Llama-3.2-1B
    "3B": Shape(3072, 28, 24, 8, 128, 8192, 128256, True),  # Llama-3.2-3B
    "8B": Shape(4096, 32, 32, 8, 128, 14336, 128256, False),  # Llama-3.1-8B
    "tiny": Shape(128, 2, 4, 2, 32, 192, 320, True),
    "tiny-untied": Shape(128, 2, 4, 2, 32, 192, 320, False),
}


@dataclass(frozen=True)
class Format:
    ggml: str
    bits: int
    group: int  # of the MLX side; ggml's blocks have 32
    file_type: int  # general.file_type


FORMATS = {"q4_0": Format("Q4_0", 4, 64, 2), "q4_1": Format("Q4_1", 4, 32, 3), "q8_0": Format("Q8_0", 8, 64, 7)}


@dataclass(frozen=True)
class Matrix:
    gguf: str
    mlx: str
    rows: int
    columns: int
    paired: bool = False  # rows of each head lie in pairs (i, i + half) in the GGUF file


@dataclass(frozen=True)
class Norm:
    gguf: str
    mlx: str
    width: int


def tensors(s):
    out = [Matrix("token_embd", "model.embed_tokens", s.vocab, s.width)]
    for i in range(s.layers):
        blk, layer = f"blk.{i}.", f"model.layers.{i}."
        out += [
            Norm(blk + "attn_norm", layer + "input_layernorm", s.width),
            Matrix(blk + "attn_q", layer + "self_attn.q_proj", s.heads * s.head, s.width, True),
            Matrix(blk + "attn_k", layer + "self_attn.k_proj", s.kv_heads * s.head, s.width, True),
            Matrix(blk + "attn_v", layer + "self_attn.v_proj", s.kv_heads * s.head, s.width),
            Matrix(blk + "attn_output", layer + "self_attn.o_proj", s.width, s.heads * s.head),
            Norm(blk + "ffn_norm", layer + "post_attention_layernorm", s.width),
            Matrix(blk + "ffn_gate", layer + "mlp.gate_proj", s.hidden, s.width),
            Matrix(blk + "ffn_up", layer + "mlp.up_proj", s.hidden, s.width),
            Matrix(blk + "ffn_down", layer + "mlp.down_proj", s.width, s.hidden),
        ]
    out.append(Norm("output_norm", "model.norm", s.width))
    if not s.tied:
        out.append(Matrix("output", "lm_head", s.vocab, s.width))
    return out


# ---- values ----


def draw_scales(rng, f, blocks, columns):
    """(scale, minimum), float16, of each block of 32; the minimum is None where it follows from the scale."""
    spread = math.sqrt((16**2 - 1) / 12 if f.bits == 4 else (255**2 - 1) / 12)
    per = f.group // 32
    d = rng.uniform(0.75, 1.25, blocks // per) / (spread * math.sqrt(columns))
    d = np.repeat(d.astype(np.float16), per)
    return d, (-7.5 * d * rng.uniform(0.9, 1.1, blocks)).astype(np.float16) if f.ggml == "Q4_1" else None


def draw(rng, f, rows, columns):
    """Blocks as ggml has them [rows, bytes], and MLX's words, scales and biases, each [rows, ...]."""
    blocks = rows * columns // 32
    d, m = draw_scales(rng, f, blocks, columns)
    codes = np.frombuffer(rng.bytes(blocks * f.bits * 4), np.uint8).reshape(blocks, -1)
    if f.bits == 4:  # ggml: code j and j + 16 share a byte; MLX: neighbours do
        flat = np.concatenate([codes & 15, codes >> 4], 1)
        words = flat[:, ::2] | flat[:, 1::2] << 4
    else:  # ggml: signed, and never -128
        codes = np.maximum(codes.view(np.int8), -127).view(np.uint8)
        words = codes ^ 128
    fields = [d] if m is None else [d, m]
    raw = np.concatenate([np.stack(fields, 1).view(np.uint8), codes], 1)
    per = f.group // 32
    scales = d[::per]
    biases = scales * np.float16(-(1 << f.bits - 1)) if m is None else m
    return raw.reshape(rows, -1), words.reshape(rows, -1), scales.reshape(rows, -1), biases.reshape(rows, -1)


def pair_rows(raw, head):
    return raw.reshape(-1, 2, head // 2, raw.shape[1]).swapaxes(1, 2).reshape(raw.shape)


# ---- heads of the two files ----


def config(s, f):
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": s.width, "num_hidden_layers": s.layers,
        "intermediate_size": s.hidden, "num_attention_heads": s.heads, "num_key_value_heads": s.kv_heads, "head_dim": s.head,
        "rms_norm_eps": 1e-5, "vocab_size": s.vocab, "max_position_embeddings": 131072, "rope_theta": 500000.0,
        "rope_scaling": None, "hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": s.tied,
        "torch_dtype": "float16", "quantization": {"group_size": f.group, "bits": f.bits, "mode": "affine"},
    }  # fmt: skip


def mlx_parts(t, f):
    """(name, dtype, shape, bytes) of a tensor's parts."""
    if isinstance(t, Norm):
        return [(t.mlx + ".weight", "F16", [t.width], 2 * t.width)]
    words, groups = t.columns * f.bits // 32, t.columns // f.group
    scales = [(t.mlx + part, "F16", [t.rows, groups], 2 * t.rows * groups) for part in (".scales", ".biases")]
    return [(t.mlx + ".weight", "U32", [t.rows, words], 4 * t.rows * words), *scales]


def safetensors_head(parts):
    header, at = {"__metadata__": {"format": "mlx"}}, 0
    for name, dtype, shape, size in parts:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def byte_alphabet():
    """GPT-2's character for each byte."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(b if b in visible else next(others)) for b in range(256)]


def gguf_keys(s, f):
    llama = {
        "block_count": s.layers, "context_length": 131072, "embedding_length": s.width, "feed_forward_length": s.hidden,
        "attention.head_count": s.heads, "attention.head_count_kv": s.kv_heads, "attention.key_length": s.head,
        "attention.value_length": s.head, "attention.layer_norm_rms_epsilon": 1e-5, "rope.freq_base": 500000.0,
        "rope.dimension_count": s.head, "vocab_size": s.vocab,
    }  # fmt: skip
    keys = {"general.architecture": "llama", "general.name": "random weights", "general.file_type": f.file_type}
    keys |= {"llama." + key: value for key, value in llama.items()}
    words = byte_alphabet() + ["th"] + [f"word{i}" for i in range(257, s.vocab)]
    vocabulary = {"model": "gpt2", "pre": "llama-bpe", "tokens": words, "token_type": [1] * s.vocab, "merges": ["t h"]}
    vocabulary |= {"bos_token_id": s.vocab - 2, "eos_token_id": s.vocab - 1}
    return keys | {"tokenizer.ggml." + key: value for key, value in vocabulary.items()}


def gguf_size(t, f):
    if isinstance(t, Norm):
        return 4 * t.width
    _, block, size = kit.TYPES[f.ggml]
    return t.rows * t.columns // block * size


def padding(n):
    return -n % 32


def gguf_head(s, f, all_tensors):
    keys = gguf_keys(s, f)
    out = [b"GGUF", np.array([3], "<u4").tobytes(), np.array([len(all_tensors), len(keys)], "<u8").tobytes()]
    for key, value in keys.items():
        kind, data = kit.typed(value)
        out += [kit.string(key), np.array([kind], "<u4").tobytes(), data]
    offset = 0
    for t in all_tensors:
        norm = isinstance(t, Norm)
        shape = [t.width] if norm else [t.columns, t.rows]
        out += [kit.string(t.gguf + ".weight"), np.array([len(shape)], "<u4").tobytes(), np.array(shape, "<u8").tobytes()]
        out += [np.array([kit.TYPES["F32" if norm else f.ggml][0]], "<u4").tobytes(), np.array([offset], "<u8").tobytes()]
        offset += gguf_size(t, f) + padding(gguf_size(t, f))
    head = b"".join(out)
    return head + bytes(padding(len(head)))


# ---- writing ----


def write_matrix(t, f, s, rng, gguf, mlx, at):
    """at: where the tensor's words, scales and biases begin in the file `mlx`."""
    at = list(at)
    step = max(1, PIECE // (t.columns * s.head)) * s.head
    for row in range(0, t.rows, step):
        raw, *parts = draw(rng, f, min(step, t.rows - row), t.columns)
        gguf.write((pair_rows(raw, s.head) if t.paired else raw).tobytes())
        for i, part in enumerate(parts):
            mlx.seek(at[i])
            mlx.write(part.tobytes())
            at[i] += part.nbytes


def make(s, f, folder, seed=1):
    """Writes the checkpoint `folder` and `folder`.gguf; config.json, last, says that both are whole."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").unlink(missing_ok=True)
    rng = np.random.default_rng(seed)
    all_tensors = tensors(s)
    with open(f"{folder}.gguf", "wb") as gguf, open(folder / "model.safetensors", "wb") as mlx:
        gguf.write(gguf_head(s, f, all_tensors))
        head = safetensors_head([p for t in all_tensors for p in mlx_parts(t, f)])
        mlx.write(head)
        at = len(head)
        for t in all_tensors:
            sizes = [size for *_, size in mlx_parts(t, f)]
            if isinstance(t, Norm):
                gguf.write(np.ones(t.width, np.float32).tobytes())
                mlx.seek(at)
                mlx.write(np.ones(t.width, np.float16).tobytes())
            else:
                write_matrix(t, f, s, rng, gguf, mlx, np.cumsum([at, *sizes[:-1]]).tolist())
            gguf.write(bytes(padding(gguf_size(t, f))))
            at += sum(sizes)
    (folder / "config.json").write_text(json.dumps(config(s, f), indent=1) + "\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("shape", choices=SHAPES)
    p.add_argument("format", choices=FORMATS)
    p.add_argument("folder", metavar="DIR")
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    make(SHAPES[a.shape], FORMATS[a.format], a.folder, a.seed)


if __name__ == "__main__":
    main()
