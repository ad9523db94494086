"""Compares `tern logits` with the reference on the tiny checkpoints, bit for bit: run_live.py [--only REGEX] [--list]

Prints a line per difference: case, numerics, run, flags; first differing step, token and both values.
"""

import argparse
import re
import sys
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]

import cases  # noqa: E402
import terncli  # noqa: E402
from compare import difference, rows_of  # noqa: E402
from reference import Store  # noqa: E402
from tally import Tally  # noqa: E402


def check(tally, case, numerics, answer):
    for run, facts in answer.runs.items():
        spec, want = cases.RUNS[run], facts["logits"]
        for flags in spec["tern"]:
            name = f"{case.name} [{numerics}, {run}{' ' if flags else ''}{' '.join(flags)}]"
            steps = len(want) - (case.prompt if "--all" in flags else 1)
            feed = facts["tokens"][:steps] if spec.get("forced") else None
            try:
                said, data = terncli.logits(
                    answer.folder, facts["prompt"], "--numerics", numerics, *flags, feed=feed, steps=steps
                )
            except Exception as error:
                tally.fail(name, error)
                continue
            why = difference(rows_of(said, data), want, case.prompt - 1 if "--all" in flags else 0)
            if not why and said["ids"][: case.prompt + steps] != facts["prompt"] + facts["tokens"][:steps]:
                why = f"ids {said['ids'][case.prompt:]}, the reference chose {facts['tokens'][:steps]}"
            tally.check(name, why is None, why)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--only", default="", help="regular expression on case names")
    p.add_argument("--list", action="store_true")
    a = p.parse_args()
    chosen = [c for c in cases.table() if re.search(a.only, c.name)]
    if a.list:
        print("\n".join(c.name for c in chosen))
        return 0

    tally = Tally()
    answers = Store(terncli.BUILD / "parity").collect(chosen)
    for case in chosen:
        for numerics in case.numerics:
            answer = answers[case.name, numerics]
            if isinstance(answer, str):
                tally.fail(f"{case.name} [{numerics}]", answer)
            else:
                check(tally, case, numerics, answer)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
