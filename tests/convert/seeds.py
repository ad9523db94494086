"""Writes the seeds of fuzz_gguf: the smallest models that import, one for each way through the code.

Usage: seeds.py FOLDER (tests/fuzz/corpus/gguf holds them).
"""

import sys
from pathlib import Path

import ggufkit as kit
import models
import numpy as np

WIDTH = 32


def tokens_of(b, spm):
    if spm:
        return models.spm_vocabulary(b)
    words = ["a", "b", "ab", "<|im_end|>", "<t>"]
    b.set("tokenizer.ggml.model", "gpt2")
    b.set("tokenizer.ggml.pre", "qwen2")
    b.set("tokenizer.ggml.tokens", words)
    b.set("tokenizer.ggml.token_type", [1, 1, 1, 3, 4])
    b.set("tokenizer.ggml.merges", ["a b"])
    b.set("tokenizer.ggml.eos_token_id", 3)
    b.set("tokenizer.chat_template", "{{ messages }}")
    return len(words)


def seed(arch, kind, spm=False):
    rng = np.random.default_rng(1)
    b = kit.Builder()
    b.set("general.architecture", arch)
    for key in ("embedding_length", "feed_forward_length", "context_length"):
        b.set(f"{arch}.{key}", WIDTH)
    for key in ("block_count", "attention.head_count"):
        b.set(f"{arch}.{key}", 1)
    b.set(f"{arch}.attention.layer_norm_rms_epsilon", 1e-6)
    if arch == "gemma3":
        b.set("gemma3.attention.sliding_window", 8)
    vocab = tokens_of(b, spm)
    layers = models.LAYERS[arch]
    models.LAYERS[arch] = 1
    for name, _, _, shape, _, _ in models.all_names(arch, vocab, True):
        shape = tuple(vocab if n == vocab else WIDTH for n in shape)
        this = kind if len(shape) == 2 else "F32"
        b.tensor(name, this, shape, kit.random_blocks(rng, this, shape))
    models.LAYERS[arch] = layers
    return b


def main():
    folder = Path(sys.argv[1])
    for arch, kind, spm in (("llama", "Q4_1", False), ("qwen2", "Q8_0", False), ("qwen3", "BF16", False), ("gemma3", "Q5_0", True)):
        (folder / f"{arch}.gguf").write_bytes(seed(arch, kind, spm).bytes())
    llama3 = seed("llama", "IQ4_NL")
    divisors = models.rope_divisors(10000.0, WIDTH, 8.0, 1.0, 4.0, 8192)
    llama3.tensor("rope_freqs.weight", "F32", divisors.shape, divisors.tobytes())
    llama3.set("tokenizer.ggml.pre", "llama-bpe")
    llama3.set("tokenizer.ggml.bos_token_id", 3)
    (folder / "llama3.gguf").write_bytes(llama3.bytes())


main()
