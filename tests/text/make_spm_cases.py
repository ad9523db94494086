#!/usr/bin/env python3
"""Trains the small SentencePiece models of tests/text/spm and writes what the sentencepiece library (0.2) makes of some
texts: make_spm_cases.py, with a Python that has sentencepiece. Texts where the library and the loader that tern follows
are known to differ (clusters in the character map, a literal U+2581) are left out."""
import json
import os
import pathlib
import random
import shutil
import sys
import tempfile

import sentencepiece

from tok_texts import CORPUS, TEXTS, random_text

HERE = pathlib.Path(__file__).resolve().parent
RULES = "41\t61\n42\t62\n48\t68\n3000\t20\n9\t20\nA0\t20\nFB01\t66 69\nC4\t61 65\nDF\t73 73\nAD\t\n"
MODELS = {
    "bpe": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, vocab_size=400),
    "bpe_rules": dict(model_type="bpe", vocab_size=250, user_defined_symbols=["<sep>", "aaa"]),
    "unigram": dict(model_type="unigram", vocab_size=250),
    "unigram_bytes": dict(model_type="unigram", byte_fallback=True, normalization_rule_name="identity", add_dummy_prefix=False, split_digits=True, vocab_size=400),
}


def main():
    where = HERE / "spm"
    where.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # the paths that training is given end up in the model
        corpus, rules = pathlib.Path("corpus.txt"), pathlib.Path("rules.tsv")
        corpus.write_text("\n".join(line for line in CORPUS for _ in range(3)), encoding="utf-8")
        rules.write_text(RULES, encoding="utf-8")
        for name, options in MODELS.items():
            if "normalization_rule_name" not in options:
                options["normalization_rule_tsv"] = str(rules)
            sentencepiece.SentencePieceTrainer.train(input=str(corpus), model_prefix=name, hard_vocab_limit=False, minloglevel=2, **options)
            shutil.copy(name + ".model", where)
            model = sentencepiece.SentencePieceProcessor(model_file=str(where / (name + ".model")))
            rng = random.Random(5)
            with open(where / (name + ".jsonl"), "w", encoding="ascii") as out:
                for text in TEXTS + CORPUS + [random_text(rng, 12) for _ in range(60)]:
                    if any(s in text for s in ("<s>", "</s>", "<unk>", "\0", "\u2581")):
                        continue
                    ids = model.encode(text)
                    print(json.dumps({"text": text, "ids": ids, "decoded": model.decode(ids).replace(" \u2047 ", "<unk>")}), file=out)


sys.exit(main())
