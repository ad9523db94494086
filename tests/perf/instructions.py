"""Instructions that a decode step and a prompt token of tiny models take, against the table `instructions` beside this
file: a guard against slowness that does not time anything (standard library and valgrind).

    instructions.py              compares; a row outside its band fails
    instructions.py --measure    prints the table anew, with the bands it has

One thread, numerics exact, a SIMD level by name. What is counted is the difference between a run of so many steps (or
prompt tokens) and one of more, so that opening does not matter. Counts are the compiler's and the C library's as well:
the table is for gcc 12 on x86-64, and the bands leave room for its neighbours.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from tally import Tally  # noqa: E402
from terncli import BINARY, tern  # noqa: E402

GOLDENS = HERE.parent / "golden"
FEW, MANY = 8, 40
COLUMNS = ("model", "level", "weights", "kind", "count", "band")


class CannotCount(Exception):
    """valgrind or tern did not give a count."""


def read_table():
    rows = []
    for number, line in enumerate((HERE / "instructions").read_text().splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if len(words) != len(COLUMNS) or words[2] not in ("mapped", "prepared") or words[3] not in ("decode", "prompt"):
            raise SystemExit(f"instructions:{number}: not a row of {' '.join(COLUMNS)}")
        row = dict(zip(COLUMNS, words))
        row["count"], row["band"] = int(row["count"]), float(row["band"])
        rows.append(row)
    return rows


def run_counted(row, n):
    """Instructions of a whole run with n steps, or n prompt tokens."""
    prompt, steps = (3, n) if row["kind"] == "decode" else (n, 0)
    ids = ",".join(str(1 + i % 97) for i in range(prompt))
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", BINARY]
    command += ["logits", GOLDENS / row["model"] / "model", "--ids", ids, "--steps", str(steps), "--out", os.devnull]
    command += ["--threads", "1", "--numerics", "exact", "--simd", row["level"]]
    command += ["--no-prepare"] if row["weights"] == "mapped" else []
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    count = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or not count:
        raise CannotCount(f"exit {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
    return int(count[1])


def measure(row):
    return (run_counted(row, MANY) - run_counted(row, FEW)) // (MANY - FEW)


def inside(count, row):
    return abs(count - row["count"]) * 100 <= row["band"] * row["count"]


def name_of(row):
    return " ".join(row[column] for column in COLUMNS[:4])


def usable_levels():
    """What this processor has, as valgrind shows it to programs: no avx512."""
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    return {"baseline"} | ({"avx2"} if re.search(r"^flags.*\bavx2\b", flags, re.M) else set())


def check(tally, row, levels):
    if row["level"] not in levels:
        return tally.skip(name_of(row), f"this machine has no {row['level']}")
    try:
        count = measure(row)
    except CannotCount as error:
        return tally.fail(name_of(row), error)
    share = 100 * (count / row["count"] - 1)
    why = f"{count} instructions, {share:+.1f} % from the table's {row['count']}, band {row['band']:g} %"
    print(f"{name_of(row):45} {why}")
    tally.check(name_of(row), inside(count, row), why)


def main():
    tally, rows = Tally(), read_table()
    if platform.machine() != "x86_64" or not shutil.which("valgrind"):
        tally.skip("instruction counts", "needs valgrind on x86-64", len(rows))
        return tally.close()
    with tempfile.TemporaryDirectory() as home:
        os.environ["TERN_HOME"] = home
        levels = usable_levels()
        for row in rows:
            if row["weights"] == "prepared" and row["level"] in levels:
                done = tern("prepare", GOLDENS / row["model"] / "model", "--simd", row["level"])
                if done.status != 0:
                    tally.fail(name_of(row), f"prepare: {done.error_line}")
        if sys.argv[1:] == ["--measure"]:
            for row in rows:
                print(f"{row['model']:17} {row['level']:9} {row['weights']:9} {row['kind']:7} {measure(row):8} {row['band']:5g}")
            return 0
        for row in rows:
            check(tally, row, levels)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
