"""Tiny models as GGUF files, made as llama.cpp's converter makes them, and what their import must hold."""

import ctypes
import math
from pathlib import Path

import ggufkit as kit
import numpy as np

LAYERS = {"llama": 2, "qwen2": 2, "qwen3": 2, "gemma3": 7}
WIDTH, HIDDEN, HEADS, KV_HEADS, HEAD = 256, 512, 4, 2, 64


class Importer:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)

    def __call__(self, gguf, out):
        """(status, text): see probe_import.c."""
        text = ctypes.create_string_buffer(4096)
        status = self.lib.probe_import(str(gguf).encode(), str(out).encode(), text, ctypes.c_size_t(len(text)))
        return status, text.value.decode()


def byte_alphabet():
    """GPT-2's character for each byte."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    out, other = {}, 256
    for b in range(256):
        if b in visible:
            out[b] = chr(b)
        else:
            out[b] = chr(other)
            other += 1
    return [out[b] for b in range(256)]


MERGES = ["t h", "th e", "Ġ the", "i n", "Ġ a", "a n", "an d", "o u", "1 2", "12 3"]


def bpe_vocabulary(b, pre):
    tokens = byte_alphabet() + [m.replace(" ", "") for m in MERGES]
    types = [1] * len(tokens)
    tokens += ["<|im_start|>", "<|im_end|>", "<tool>", "[PAD269]"]
    types += [3, 3, 4, 5]
    b.set("tokenizer.ggml.model", "gpt2")
    b.set("tokenizer.ggml.pre", pre)
    b.set("tokenizer.ggml.tokens", tokens)
    b.set("tokenizer.ggml.token_type", types)
    b.set("tokenizer.ggml.merges", MERGES)
    b.set("tokenizer.ggml.bos_token_id", tokens.index("<|im_start|>"))
    b.set("tokenizer.ggml.eos_token_id", tokens.index("<|im_end|>"))
    b.set("tokenizer.chat_template", "{% for m in messages %}<|im_start|>{{ m.content }}\n{% endfor %}\u00e9\"\\")
    return len(tokens)


def spm_vocabulary(b):
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>"] + [f"<0x{i:02X}>" for i in range(256)]
    types = [3, 3, 3, 2] + [6] * 256
    scores = [-1000.0] * 4 + [0.0] * 256
    words = ["▁", "t", "h", "e", "a", "n", "d", "th", "the", "▁the", "an", "and", "▁and", "i", "in", "▁t"]
    tokens += words + ["  ", "    ", "<end_of_turn>"]
    types += [1] * len(words) + [4, 4, 3]
    scores += [-float(i) for i in range(len(words))] + [-1000.0] * 3
    b.set("tokenizer.ggml.model", "llama")
    b.set("tokenizer.ggml.pre", "default")
    b.set("tokenizer.ggml.tokens", tokens)
    b.set("tokenizer.ggml.scores", scores)
    b.set("tokenizer.ggml.token_type", types)
    b.set("tokenizer.ggml.add_space_prefix", False)
    for role, i in (("bos", 2), ("eos", 1), ("unknown", 3), ("padding", 0)):
        b.set(f"tokenizer.ggml.{role}_token_id", i)
    return len(tokens)


def permute(w, heads):
    """What llama.cpp's converter does to q and k of llama: rows of a head become pairs (i, i + half)."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def unpermute(w, heads):
    return w.reshape(heads, w.shape[0] // heads // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def names(arch, layer):
    """(GGUF name, module, parameter, shape, heads of a permuted tensor or 0, is a norm) of one layer."""
    blk, model = f"blk.{layer}.", f"model.layers.{layer}."
    q, kv = HEADS * HEAD, KV_HEADS * HEAD
    permuted = arch == "llama"
    rows = [
        ("attn_norm", "input_layernorm", "weight", (WIDTH,), 0, True),
        ("attn_q", "self_attn.q_proj", "weight", (q, WIDTH), HEADS * permuted, False),
        ("attn_k", "self_attn.k_proj", "weight", (kv, WIDTH), KV_HEADS * permuted, False),
        ("attn_v", "self_attn.v_proj", "weight", (kv, WIDTH), 0, False),
        ("attn_output", "self_attn.o_proj", "weight", (WIDTH, q), 0, False),
        ("ffn_gate", "mlp.gate_proj", "weight", (HIDDEN, WIDTH), 0, False),
        ("ffn_up", "mlp.up_proj", "weight", (HIDDEN, WIDTH), 0, False),
        ("ffn_down", "mlp.down_proj", "weight", (WIDTH, HIDDEN), 0, False),
    ]
    if arch == "gemma3":
        rows += [
            ("post_attention_norm", "post_attention_layernorm", "weight", (WIDTH,), 0, True),
            ("ffn_norm", "pre_feedforward_layernorm", "weight", (WIDTH,), 0, True),
            ("post_ffw_norm", "post_feedforward_layernorm", "weight", (WIDTH,), 0, True),
        ]
    else:
        rows.append(("ffn_norm", "post_attention_layernorm", "weight", (WIDTH,), 0, True))
    if arch in ("qwen3", "gemma3"):
        rows += [
            ("attn_q_norm", "self_attn.q_norm", "weight", (HEAD,), 0, True),
            ("attn_k_norm", "self_attn.k_norm", "weight", (HEAD,), 0, True),
        ]
    if arch == "qwen2":
        rows += [
            ("attn_q", "self_attn.q_proj", "bias", (q,), 0, False),
            ("attn_k", "self_attn.k_proj", "bias", (kv,), 0, False),
            ("attn_v", "self_attn.v_proj", "bias", (kv,), 0, False),
        ]
    return [(f"{blk}{g}.{p}", model + m, p, s, h, n) for g, m, p, s, h, n in rows]


def all_names(arch, vocab, tied):
    rows = [
        ("token_embd.weight", "model.embed_tokens", "weight", (vocab, WIDTH), 0, False),
        ("output_norm.weight", "model.norm", "weight", (WIDTH,), 0, True),
    ]
    if not tied:
        rows.append(("output.weight", "lm_head", "weight", (vocab, WIDTH), 0, False))
    for layer in range(LAYERS[arch]):
        rows += names(arch, layer)
    return rows


def build(arch, kind, seed=0, tied=True, pre=None, vectors="F32", half_norms=False):
    """(Builder, expected): matrices of type `kind`; expected[module.parameter] = (kind, float32 values)."""
    rng = np.random.default_rng(seed)
    b = kit.Builder()
    b.set("general.architecture", arch)
    for key, value in {
        "block_count": LAYERS[arch],
        "context_length": 512,
        "embedding_length": WIDTH,
        "feed_forward_length": HIDDEN,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 500000.0,
    }.items():
        b.set(f"{arch}.{key}", value)
    if arch in ("qwen3", "gemma3"):
        b.set(f"{arch}.attention.key_length", HEAD)
        b.set(f"{arch}.attention.value_length", HEAD)
    if arch == "gemma3":
        b.set("gemma3.attention.sliding_window", 8)
        vocab = spm_vocabulary(b)
    else:
        vocab = bpe_vocabulary(b, pre or ("qwen2" if arch.startswith("qwen") else "smollm"))
    expected = {}
    for name, module, parameter, shape, heads, norm in all_names(arch, vocab, tied):
        this = kind if len(shape) == 2 else vectors
        if norm:  # gemma's are stored with 1 added, in float32
            stored = rng.standard_normal(shape).astype(np.float32) * np.float32(0.25) + np.float32(1)
            if half_norms:
                stored = stored.astype(np.float16).astype(np.float32)
            data, this = stored.tobytes(), "F32"
            values = stored - np.float32(1) if arch == "gemma3" else stored
        else:
            data = kit.random_blocks(rng, this, shape)
            values = kit.dequantise(this, np.frombuffer(data, np.uint8).reshape(-1, kit.TYPES[this][2])).reshape(shape)
        b.tensor(name, this, shape, data)
        expected[f"{module}.{parameter}"] = (this, unpermute(values, heads) if heads else values)
    return b, expected


def rope_divisors(base, dims, factor, low, high, context):
    """As llama.cpp's converter computes rope_freqs.weight from Llama 3's parameters (in float32)."""
    freqs = np.float32(1) / np.float32(base) ** (np.arange(0, dims, 2, dtype=np.float32) / np.float32(dims))
    out = []
    for f in freqs:
        wavelength = 2 * math.pi / f
        if wavelength < context / high:
            out.append(1)
        elif wavelength > context / low:
            out.append(factor)
        else:
            smooth = (context / wavelength - low) / (high - low)
            out.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(out, np.float32)


def import_bytes(importer, folder, data):
    """(status, text, output folder) of the import of `data`."""
    path, out = Path(folder) / "m.gguf", Path(folder) / "out"
    path.write_bytes(data)
    return *importer(path, out), out
