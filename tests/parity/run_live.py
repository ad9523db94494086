"""Compares `tern logits` with the reference on the tiny checkpoints, bit for bit.

    run_live.py [--full] [--only REGEX] [--jobs N] [--list]

REGEX is looked for in labels of rows (`^llama@tied$`: that row in every format) and in names of cases (`llama@tied/bf16`).
--full takes every row of `manifest` in every format of cases.FULL (`make parity`), else what fits CI. Prints a line per
difference: case, numerics, run, flags; first differing step, token and both values; for the first few variants also
the op where they part (trace.py). What was found is merged into
build/parity/results.json: {case: {"type", "config", "form", "numerics": {NUMERICS: {"passed", "failed", "why"}}, "skipped"}}.
"""

import argparse
import fcntl
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]

import cases  # noqa: E402
import terncli  # noqa: E402
import trace  # noqa: E402
from compare import difference, rows_of  # noqa: E402
from reference import Skip, Store  # noqa: E402
from tally import Tally  # noqa: E402

TRACES = 8  # variants that are traced, once each; the others of a broken change would say the same
RESULTS = terncli.BUILD / "parity" / "results.json"


def compare(case, numerics, answer):
    """Every run of one checkpoint in one numerics. [(name, None or how it differs)]"""
    found = []
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
                found.append((name, str(error)))
                continue
            why = difference(rows_of(said, data), want, case.prompt - 1 if "--all" in flags else 0)
            if not why and said["ids"][: case.prompt + steps] != facts["prompt"] + facts["tokens"][:steps]:
                why = f"ids {said['ids'][case.prompt:]}, the reference chose {facts['tokens'][:steps]}"
            found.append((name, why))
    return found


def explain(case, numerics, answer):
    """Where the first run of a checkpoint begins to differ: the layer and op, by the reference's own cut of the prompt."""
    run, facts = next(iter(answer.runs.items()))
    feed = facts["tokens"][: cases.STEPS - 1]
    return trace.verdict_of(trace.job_of(case, numerics, answer.folder, facts["prompt"], feed, cases.RUNS[run]))


def check(job):
    case, numerics, answer = job
    if isinstance(answer, Skip):
        return []
    if isinstance(answer, str):
        return [(f"{case.name} [{numerics}]", answer)]
    return compare(case, numerics, answer)


def record(results, case, numerics, answer, found):
    entry = results.setdefault(case.name, {"type": case.arch, "config": case.config, "form": case.form, "numerics": {}})
    if isinstance(answer, Skip):
        entry["skipped"] = str(answer)
        return
    failures = [f"{name}: {why}" for name, why in found if why]
    entry["numerics"][numerics] = {"passed": len(found) - len(failures), "failed": len(failures), "why": failures[0] if failures else ""}


def merge(results, file=RESULTS):
    """Into the file that tests running side by side share."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            known = json.loads(file.read_text())
        except (OSError, ValueError):
            known = {}
        known.update(results)
        partial = file.with_suffix(".partial")
        partial.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
        partial.rename(file)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--full", action="store_true", help="every row in every format of cases.FULL")
    p.add_argument("--only", default="", help="regular expression on labels of rows (llama@tied) and names of cases (llama@tied/bf16)")
    p.add_argument("--jobs", type=int, default=1, help="workers of the reference, and of tern")
    p.add_argument("--list", action="store_true")
    a = p.parse_args()
    chosen = [c for c in (cases.full() if a.full else cases.ci()) if c.matches(a.only)]
    if a.list:
        print("\n".join(c.name for c in chosen))
        return 0
    if not chosen:
        p.error(f"no row and no case of tests/parity/manifest is called {a.only}: --list names the cases")
    if a.jobs > 1:
        os.environ["TERN_THREADS"] = "1"

    tally, results, traced = Tally(), {}, set()
    answers = Store(terncli.BUILD / "parity").collect(chosen, jobs=a.jobs)
    jobs = [(c, n, answers[c.name, n]) for c in chosen for n in c.numerics]
    with ThreadPoolExecutor(a.jobs) as pool:
        for (case, numerics, answer), found in zip(jobs, pool.map(check, jobs)):
            for name, why in found:
                tally.check(name, why is None, why)
            broken = any(why for _, why in found) and not isinstance(answer, str)
            if broken and case.config not in traced and len(traced) < TRACES:
                traced.add(case.config)
                print(f"TRACE {case.name} [{numerics}]: {explain(case, numerics, answer)}", flush=True)
            if isinstance(answer, Skip) and numerics == case.numerics[0]:
                tally.skip(case.name, answer)
            record(results, case, numerics, answer, found)
    merge(results)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
