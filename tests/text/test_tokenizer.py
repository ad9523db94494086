#!/usr/bin/env python3
"""Compares tern's tokenizer with the `tokenizers` library, and with the stored cases of the shared data.

  test_tokenizer.py DRIVER [--only PART] [--seed N] [--count N]

The reference runs in TERN_ORACLE_PYTHON (or the build's own, TERN_BUILD/oracle/bin/python); without it, and for data
that is absent (TERN_SHARED_DATA, else ../shared/data beside the source tree), the part is skipped and named. Exit 77:
everything was skipped.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from tok_client import Driver, Refused  # noqa: E402
from tok_texts import random_text  # noqa: E402

SHARED = pathlib.Path(os.environ.get("TERN_SHARED_DATA") or HERE.parents[2] / "shared" / "data")


def use_oracle():
    """Starts over under the reference's interpreter."""
    try:
        import tokenizers  # noqa: F401
        return True
    except ImportError:
        pass
    candidates = [os.environ.get("TERN_ORACLE_PYTHON"), os.path.join(os.environ.get("TERN_BUILD", ""), "oracle/bin/python")]
    for python in candidates:
        if python and os.access(python, os.X_OK) and os.environ.get("TERN_TOKENIZER_TEST") != python:
            os.environ["TERN_TOKENIZER_TEST"] = python
            os.execv(python, [python, *sys.argv])
    return False


def shown(value, other):
    """The value from shortly before it differs."""
    if not isinstance(value, (list, str)) or not isinstance(other, (list, str)):
        return ascii(value)[:300]
    same = next((i for i, (a, b) in enumerate(zip(value, other)) if a != b), min(len(value), len(other)))
    return "at %d of %d: %s" % (same, len(value), ascii(value[max(0, same - 5):same + 20])[:300])


class Tally:
    def __init__(self):
        self.passed = self.failed = 0
        self.skipped = []

    def check(self, name, got, want):
        if got == want:
            self.passed += 1
            return True
        self.failed += 1
        if self.failed <= 40:
            print("FAIL %s\n  got  %s\n  want %s" % (name, shown(got, want), shown(want, got)))
        return False

    def skip(self, name, why):
        print("SKIP %s: %s" % (name, why))
        self.skipped.append(name)


def attempt(function, *args):
    try:
        return function(*args)
    except Refused as e:
        return "refused: " + str(e)


# ---- stored cases -----------------------------------------------------------------------------------------------------


def lines(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def stored_cases(driver, name, tally):
    for case in lines(SHARED / "text/tokenizer" / ("tokenize.%s.jsonl" % name)):
        label = "%s: %s" % (name, case["case"])
        tally.check(label + " ids", attempt(driver.encode, case["text"], case["add_special_tokens"]), case["ids"])
        tally.check(label + " decoded", attempt(driver.decode, case["ids"]), case["decoded"])
        tally.check(label + " decoded_skip_special", attempt(driver.decode, case["ids"], True),
                    case["decoded_skip_special"])
        tally.check(label + " pieces", attempt(driver.stream, case["ids"]), case["pieces"])
    for case in lines(SHARED / "text/tokenizer" / ("detokenize.%s.jsonl" % name)):
        label = "%s: %s" % (name, case["case"])
        tally.check(label + " decoded", attempt(driver.decode, case["ids"]), case["decoded"])
        if case.get("decoded_skip_special") is not None:
            tally.check(label + " skip", attempt(driver.decode, case["ids"], True), case["decoded_skip_special"])
        if case.get("pieces") is not None:
            tally.check(label + " pieces", attempt(driver.stream, case["ids"]), case["pieces"])


def sentencepiece_cases(program, tally):
    """tests/text/spm, written by make_spm_cases.py: needs no reference."""
    for path in sorted((HERE / "spm").glob("*.model")):
        before = tally.failed
        with tempfile.TemporaryDirectory() as where:
            shutil.copy(path, pathlib.Path(where) / "tokenizer.model")
            with Driver(program, where) as driver:
                for case in lines(path.with_suffix(".jsonl")):
                    label = "%s: %s" % (path.name, ascii(case["text"]))
                    tally.check(label, attempt(driver.encode, case["text"]), case["ids"])
                    tally.check(label + " decoded", attempt(driver.decode, case["ids"]), case["decoded"])
                    tally.check(label + " stream", "".join(attempt(driver.stream, case["ids"])), case["decoded"])
        print("%s: %s" % (path.name, "ok" if tally.failed == before else "%d failures" % (tally.failed - before)))


# ---- random texts -----------------------------------------------------------------------------------------------------

def reference_encode(reference, text, special):
    try:
        return reference.encode(text, add_special_tokens=special).ids
    except BaseException as e:  # the library panics on some texts
        return "refused by the reference: " + type(e).__name__


def reference_decode(reference, ids, skip):
    try:
        return reference.decode(ids, skip_special_tokens=skip)
    except BaseException:
        return None


def random_cases(driver, reference, name, tally, rng, count):
    size = reference.get_vocab_size(with_added_tokens=True)
    for i in range(count):
        text = random_text(rng)
        special = rng.random() < 0.3
        want = reference_encode(reference, text, special)
        if isinstance(want, str):
            continue
        got = attempt(driver.encode, text, special)
        if not tally.check("%s: random %d %s" % (name, i, ascii(text)[:150]), got, want):
            continue
        skip = rng.random() < 0.5
        whole = reference_decode(reference, want, skip)
        if whole is not None:
            tally.check("%s: random %d decoded %s" % (name, i, want), attempt(driver.decode, want, skip), whole)
        ids = [rng.randrange(size) for _ in range(rng.randrange(1, 20))]
        if rng.random() < 0.5:
            ids = want[:]
            rng.shuffle(ids)
        if not ids:
            continue
        whole = reference_decode(reference, ids, skip)
        if whole is None:
            continue
        tally.check("%s: random %d ids %s" % (name, i, ids), attempt(driver.decode, ids, skip), whole)
        if "\ufffd" not in whole:
            streamed = attempt(driver.stream, ids, skip)
            if isinstance(streamed, str) and "cannot be streamed" in streamed:
                continue
            tally.check("%s: random %d stream %s" % (name, i, ids), "".join(streamed), whole)


def real_tokenizers(program, tally, args):
    import tokenizers
    unpack = SHARED / "unpack.sh"
    if not unpack.exists():
        tally.skip("real tokenizers", "no shared data at %s" % SHARED)
        return
    with tempfile.TemporaryDirectory() as where:
        subprocess.run(["sh", str(unpack), where], check=True, stdout=subprocess.DEVNULL)
        for directory in sorted(pathlib.Path(where).iterdir()):
            name = directory.name
            if not (SHARED / "text/tokenizer" / ("tokenize.%s.jsonl" % name)).exists():
                continue
            before = tally.failed
            with Driver(program, directory) as driver:
                stored_cases(driver, name, tally)
                reference = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
                random_cases(driver, reference, name, tally, random.Random(args.seed), args.count)
            print("%s: %s" % (name, "ok" if tally.failed == before else "%d failures" % (tally.failed - before)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("driver")
    parser.add_argument("--only", choices=["real", "made", "spm"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--characters", type=int, default=2000, help="over 2000: really all of them, so many at once")
    parser.add_argument("--mixtures", type=int, default=100)
    args = parser.parse_args()
    oracle = use_oracle()
    tally = Tally()
    if args.only in (None, "spm"):
        sentencepiece_cases(args.driver, tally)
    if not oracle:
        tally.skip("everything but spm", "no Python with the tokenizers library (TERN_ORACLE_PYTHON)")
        args.only = "spm"
    if args.only in (None, "real"):
        real_tokenizers(args.driver, tally, args)
    if args.only in (None, "made"):
        import made_tokenizers
        made_tokenizers.run(args.driver, tally, args, random_cases, attempt)
    print("%d passed, %d failed, %d skipped" % (tally.passed, tally.failed, len(tally.skipped)))
    return 1 if tally.failed else 77 if not tally.passed else 0


sys.exit(main())
