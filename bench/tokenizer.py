#!/usr/bin/env python3
"""Speed of tern's tokenizer beside the `tokenizers` library, one thread each, one text at a time.

  bench/tokenizer.py DRIVER DIR...     DRIVER: build/tests/text/tok_driver; DIR: a folder with tokenizer.json

Prints a markdown table: the fastest of several runs. "open" is a fresh process with the file in the page cache. With a
Python that lacks the library its columns stay empty.
"""
import os
import pathlib
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "text"))
from tok_client import Driver  # noqa: E402

PROMPT = ("<|im_start|>user\nWhat is the capital of France, and how many people live there today? Please answer "
          "briefly.<|im_end|>\n<|im_start|>assistant\n")
MEGABYTE = 1 << 20


def repeated(pattern):
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(ROOT.glob(pattern)))
    while len(text) < MEGABYTE:
        text += text
    return text[:MEGABYTE]


def texts():
    from tok_texts import CORPUS
    mixed = ""
    while len(mixed.encode()) < MEGABYTE:
        mixed += "".join("%s %d\n" % (line, len(mixed)) for line in CORPUS)
    return [("prompt", PROMPT, 3000), ("prose, 1 MB", repeated("docs/**/*.md"), 5), ("C, 1 MB", repeated("src/**/*.c"), 5),
            ("many scripts, 1 MB", mixed, 5)]


def fastest(function, times):
    best = 1e9
    for _ in range(times):
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    return best


def opened(program, directory):
    best = 1e9
    for _ in range(5):
        with Driver(program, directory) as driver:
            best = min(best, driver.ready)
    return best


def main():
    program, directories = sys.argv[1], sys.argv[2:]
    try:
        import tokenizers
    except ImportError:
        tokenizers = None
    print("| tokenizer | what | tern | library | ratio |\n|---|---|---|---|---|")

    def row(name, what, ours, theirs):
        rest = "%.3f ms | %.1f" % (1e3 * theirs, theirs / ours) if theirs else "|"
        print("| %s | %s | %.3f ms | %s |" % (name, what, 1e3 * ours, rest), flush=True)

    for directory in directories:
        name, path = os.path.basename(os.path.normpath(directory)), os.path.join(directory, "tokenizer.json")
        theirs = fastest(lambda: tokenizers.Tokenizer.from_file(path), 2) if tokenizers else None
        row(name, "open", opened(program, directory), theirs)
        reference = tokenizers.Tokenizer.from_file(path) if tokenizers else None
        with Driver(program, directory) as driver:
            for what, text, times in texts():
                ours, _ = driver.time(text, times)
                theirs = fastest(lambda: reference.encode(text, add_special_tokens=False), min(times, 500)) if reference else None
                row(name, what, ours, theirs)


main()
