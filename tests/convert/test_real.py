"""Imports a real GGUF model and compares every tensor, as mlx-lm loads it, with numpy's reading of the GGUF's blocks.

Usage: test_real.py LIBRARY MODEL, run by the Python that has mlx-lm; MODEL.gguf is looked for under TERN_BUILD/models
(scripts/fetch-model.sh puts it there).
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import check
import ggufkit as kit
import models
import numpy as np
from tally import Tally
from transformers import AutoTokenizer

tally = Tally()

ROWS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
NORMS = {
    "gemma3": {"ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm",
               "post_attention_norm": "post_attention_layernorm"},
}  # fmt: skip


def target(arch, name):
    """The parameter a GGUF tensor becomes."""
    rows = {**ROWS, **NORMS.get(arch, {"ffn_norm": "post_attention_layernorm"})}
    *where, part, parameter = name.split(".")
    prefix = f"model.layers.{where[1]}." if where else ""
    return f"{prefix}{rows[part]}.{parameter}"


def expected_values(file, arch, name):
    values = file.values(name)
    part = name.split(".")[-2]
    if arch == "llama" and part in ("attn_q", "attn_k"):
        heads = file.keys[f"llama.attention.head_count{'_kv' if part == 'attn_k' else ''}"]
        values = models.unpermute(values, heads)
    if arch == "gemma3" and part.endswith("norm"):
        values = values - np.float32(1)
    return values


def weights_agree(model, file, out):
    _, config, weights = check.load(out)
    arch = file.keys["general.architecture"]
    names = set()
    for name, (kind, _, _) in file.tensors.items():
        mine = target(arch, name)
        names.add(mine)
        check.compare(tally, model, weights, config, mine, kind, expected_values(file, arch, name))
    extra = {n for n in weights if not n.endswith((".scales", ".biases"))} - names
    tally.check(f"{model} has nothing else", not extra, extra)
    tally.check(f"{model} has one floating type", len(check.floating_types(weights)) == 1, check.floating_types(weights))


def tokenizer_agrees(model, file, out):
    """transformers loads the folder as it stands, and gives the ids' own texts back."""
    auto = AutoTokenizer.from_pretrained(out)
    tokens = file.keys["tokenizer.ggml.tokens"]
    for role in ("bos", "eos"):
        want = tokens[file.keys[f"tokenizer.ggml.{role}_token_id"]]
        tally.check(f"{model} {role}", getattr(auto, f"{role}_token") == want, getattr(auto, f"{role}_token"))
    for text in ("Hello, world!  12345\n\n\tdef f(x):  return x", "naïve café – 日本語 🙂", " leading and trailing "):
        ids = auto.encode(text, add_special_tokens=False)
        tally.check(f"{model} round trip", auto.decode(ids) == text, lambda: (ids, auto.decode(ids)))
    template = file.keys.get("tokenizer.chat_template")
    tally.check(f"{model} chat template", auto.chat_template == template, "differs")


def main():
    library, model = sys.argv[1:]
    path = Path(os.environ["TERN_BUILD"]) / "models" / f"{model}.gguf"
    if not path.is_file():
        tally.skip(model, f"{path} is not there (scripts/fetch-model.sh {model})")
        return tally.close()
    with tempfile.TemporaryDirectory(dir=os.environ["TERN_BUILD"]) as folder:
        out = Path(folder) / model
        start = time.monotonic()
        status, text = models.Importer(library)(path, out)
        print(f"{model}: imported in {time.monotonic() - start:.1f} s\n{text}", end="")
        if tally.check(f"{model} imports", status == 0, text):
            file = kit.File(path)
            weights_agree(model, file, out)
            tokenizer_agrees(model, file, out)
    return tally.close()


sys.exit(main())
