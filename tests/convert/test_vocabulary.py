"""Turns tokenizers into GGUF vocabularies, imports them, and compares the ids of what comes out with the original's.

Tiny vocabularies always; the real ones of the shared data (TERN_SHARED_DATA, else ../shared/data beside the source tree)
where they are. Ids must agree through the `tokenizers` library on tokenizer.json and through transformers'
AutoTokenizer on the folder. Usage: test_vocabulary.py LIBRARY.
"""

import json
import lzma
import os
import random
import sys
import tempfile
from pathlib import Path

import models
from tally import Tally
from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE
from transformers import AutoTokenizer

tally = Tally()
SHARED = Path(os.environ.get("TERN_SHARED_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")

TEXTS = [
    "the and then in the end", "The THE'll we'd 'S", " and  and   and\n\n and\t\tand", "12345 1 23 x9y", "th\u0301e e\u0301 \u00e9",
    "<|im_start|>the<|im_end|> <tool>and", "日本語 \U0001f642 the", "", " ", "  \n ", "a\r\nb\r\r\n", "!!!the??? (and)",
]  # fmt: skip


def random_texts(n):
    rng = random.Random(7)
    parts = ["the", "and", "in", " ", "  ", "\n", "1", "23", "'s", "!", "é", "e\u0301", "日", "\U0001f642", "A", "<tool>", "\u2581", "\x00"]
    return ["".join(rng.choices(parts, k=rng.randrange(1, 30))) for _ in range(n)]


# ---- the pre-tokenizers, built again with the library from each family's own definition ----

WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def split(*patterns):
    steps = [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]
    return pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def gpt2(*before):
    return pre_tokenizers.Sequence([*before, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])


FAMILIES = {
    "gpt-2": (gpt2(), False, False),
    "smollm": (gpt2(pre_tokenizers.Digits(individual_digits=True)), False, False),
    "qwen2": (split(WORDS + r"|\p{N}" + REST), True, False),
    "llama-bpe": (split(WORDS + r"|\p{N}{1,3}" + REST), False, True),
    "default": (
        split(r"[\p{P}\$\+<=>\^~\|]+", r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)", r"\p{N}+",
              r"[0-9][0-9][0-9]"),
        False, False,
    ),
}  # fmt: skip


def compare(label, out, encode, texts, auto=True):
    """`encode(text)`: the ids wanted."""
    mine = Tokenizer.from_file(str(out / "tokenizer.json"))
    theirs = AutoTokenizer.from_pretrained(out) if auto else None
    for text in texts:
        want = encode(text)
        got = mine.encode(text).ids
        tally.check(f"{label} {text!r}", got == want, lambda: f"{got} instead of {want}")
        if auto:
            got = theirs.encode(text)
            tally.check(f"{label} auto {text!r}", got == want, lambda: f"{got} instead of {want}")


def tiny(importer, pre):
    step, nfc, ignore_merges = FAMILIES[pre]
    b, _ = models.build("llama", "Q4_0", pre=pre)
    keys = dict(b.keys)
    tokens = keys["tokenizer.ggml.tokens"]
    reference = Tokenizer(
        BPE(
            {t: i for i, t in enumerate(tokens[:-1])},
            [tuple(m.split(" ")) for m in models.MERGES],
            ignore_merges=ignore_merges,
        )
    )
    reference.normalizer = normalizers.NFC() if nfc else None
    reference.pre_tokenizer = step
    reference.decoder = decoders.ByteLevel()
    reference.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    reference.add_tokens(["<tool>"])
    if pre == "llama-bpe":
        bos = ("<|im_start|>", tokens.index("<|im_start|>"))
        reference.post_processor = processors.TemplateProcessing(single="<|im_start|> $A", special_tokens=[bos])
    with tempfile.TemporaryDirectory() as folder:
        status, text, out = models.import_bytes(importer, folder, b.bytes())
        if tally.check(f"{pre} imports", status == 0, text):
            compare(pre, out, lambda t: reference.encode(t).ids, TEXTS + random_texts(200))
            mine = Tokenizer.from_file(str(out / "tokenizer.json"))
            for t in TEXTS:
                ids = reference.encode(t, add_special_tokens=False).ids
                tally.check(f"{pre} decodes {t!r}", mine.decode(ids) == reference.decode(ids), lambda: mine.decode(ids))
            config = json.loads((out / "tokenizer_config.json").read_text())
            tally.check(f"{pre} template", config["chat_template"] == keys["tokenizer.chat_template"], config)


# ---- real tokenizers, as llama.cpp's converter would store them ----


def from_bpe(b, spec, pre):
    vocab = dict(spec["model"]["vocab"])
    types = dict.fromkeys(vocab, 1)
    for added in spec["added_tokens"]:
        vocab[added["content"]] = added["id"]
        types[added["content"]] = 3 if added["special"] else 4
    order = sorted(vocab, key=vocab.get)
    assert [vocab[t] for t in order] == list(range(len(order)))
    merges = [m if isinstance(m, str) else " ".join(m) for m in spec["model"]["merges"]]
    b.set("tokenizer.ggml.pre", pre)
    b.set("tokenizer.ggml.tokens", order)
    b.set("tokenizer.ggml.token_type", [types[t] for t in order])
    b.set("tokenizer.ggml.merges", merges)
    return order


def from_spm(b, spec, prefix):
    vocab = spec["model"]["vocab"]
    added = {a["content"]: a for a in spec["added_tokens"] if a["id"] < len(vocab)}
    order = sorted(vocab, key=vocab.get)
    kind = lambda t: (2 if t == "<unk>" else 3 if added[t]["special"] else 4) if t in added else 6 if t.startswith("<0x") else 1
    types = [kind(t) for t in order]
    # A token's score is the rank of its first merge. The converter gives added tokens -1000 and turns their U+2581 into
    # spaces.
    rank = {}
    for i, m in enumerate(spec["model"]["merges"]):
        rank.setdefault((m if isinstance(m, str) else " ".join(m)).replace(" ", "", 1), i)
    last = len(spec["model"]["merges"])
    scores = [-1000.0 if ty in (2, 3, 4) else 0.0 if ty == 6 else -float(rank.get(t, last)) for t, ty in zip(order, types)]
    for key in [k for k, _ in b.keys if k.startswith("tokenizer.")]:
        b.unset(key)
    b.set("tokenizer.ggml.model", "llama")
    b.set("tokenizer.ggml.tokens", [t.replace("▁", " ") if ty == 4 else t for t, ty in zip(order, types)])
    b.set("tokenizer.ggml.scores", scores)
    b.set("tokenizer.ggml.token_type", types)
    b.set("tokenizer.ggml.add_space_prefix", prefix)
    b.set("tokenizer.ggml.unknown_token_id", vocab["<unk>"])
    return order


REAL = {"qwen3": "qwen2", "llama3_1": "llama-bpe", "llama2": None, "gemma3": None}


def real(importer, name):
    source = SHARED / "tokenizers" / name / "tokenizer.json.xz"
    cases = SHARED / "text" / "tokenizer" / f"tokenize.{name}.jsonl"
    if not (source.is_file() and cases.is_file()):
        tally.skip(f"{name}'s vocabulary", f"no {source}")
        return
    spec = json.loads(lzma.open(source).read())
    # The model around the vocabulary does not matter; its embedding table must have enough rows.
    b, _ = models.build("llama", "Q4_0")
    order = from_bpe(b, spec, REAL[name]) if REAL[name] else from_spm(b, spec, name == "llama2")
    bos = {"qwen3": None, "llama3_1": "<|begin_of_text|>", "llama2": "<s>", "gemma3": "<bos>"}[name]
    eos = {"qwen3": "<|im_end|>", "llama3_1": "<|eot_id|>", "llama2": "</s>", "gemma3": "<eos>"}[name]
    b.set("tokenizer.ggml.eos_token_id", order.index(eos))
    if bos:
        b.set("tokenizer.ggml.bos_token_id", order.index(bos))
    else:
        b.unset("tokenizer.ggml.bos_token_id")
    b.tensor("token_embd.weight", "Q4_0", (len(order), models.WIDTH), bytes(len(order) * models.WIDTH // 32 * 18))
    with tempfile.TemporaryDirectory() as folder:
        status, text, out = models.import_bytes(importer, folder, b.bytes())
        if not tally.check(f"{name} imports", status == 0, text):
            return
        mine = Tokenizer.from_file(str(out / "tokenizer.json"))
        auto = AutoTokenizer.from_pretrained(out)
        for line in cases.read_text(encoding="utf-8").splitlines():
            case = json.loads(line)
            got = mine.encode(case["text"], add_special_tokens=case["add_special_tokens"]).ids
            tally.check(f"{name} {case['case']}", got == case["ids"], lambda: f"{got} instead of {case['ids']}")
            got = auto.encode(case["text"], add_special_tokens=case["add_special_tokens"])
            tally.check(f"{name} {case['case']} auto", got == case["ids"], lambda: f"{got} instead of {case['ids']}")
            text = mine.decode(case["ids"], skip_special_tokens=False)
            tally.check(f"{name} {case['case']} decoded", text == case["decoded"], lambda: f"{text!r} instead of {case['decoded']!r}")


def main():
    importer = models.Importer(sys.argv[1])
    for pre in FAMILIES:
        tiny(importer, pre)
    for name in REAL:
        real(importer, name)
    return tally.close()


sys.exit(main())
