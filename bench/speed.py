"""Speed of models at frontiers of prompt size, context depth and batch, as a dated page: speed.py MODEL... [--out FILE]

Runs `tern bench --json` (its protocol stands at the head of src/cli/bench.c) with the machine otherwise idle, and prints
a markdown section per model: what was measured, on what, with which build. Standard library only.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
from pathlib import Path

BINARY = os.environ.get("TERN_BIN", str(Path(__file__).resolve().parents[1] / "build" / "tern"))
# label, flags: each is one frontier
FRONTIERS = [
    ("prompt sizes", ["-p", "16,128,512,2048", "-n", "0"]),
    ("decoding by depth", ["-p", "0", "-n", "64", "-d", "0,512,2048"]),
    ("decoding by batch", ["-p", "0", "-n", "64", "-b", "1,2,4,8"]),
]
COLUMNS = ["kind", "n", "depth", "batch", "tok/s", "±", "ms/token", "weights GB/s", "share"]


def ask(*args):
    return json.loads(subprocess.run([BINARY, *args, "--json"], check=True, stdout=subprocess.PIPE).stdout)


def table(rows):
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for r in rows:
        cells = [r["kind"], r["n"], r["depth"], r["batch"], f"{r['tok_s']:.1f}", f"{r['sd']:.1f}", f"{r['ms']:.2f}", f"{r['gb_s']:.1f}", f"{100 * r['share']:.0f} %"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def section(model, repeats, extra):
    parts = []
    for label, flags in FRONTIERS:
        said = ask("bench", model, *flags, "-r", str(repeats), *extra)
        head = (f"{said['numerics']} on {said['backend']}, {said['threads']} threads; opened in {said['open_ms']:.0f} ms, "
                f"peak {said['peak_mb']:.0f} MB, memory reads at {said['bandwidth_gb_s']:.1f} GB/s")
        parts.append(f"### {label}\n\n{head}\n\n{table(said['rows'])}\n")
    return f"## {Path(model).name}\n\n" + "\n".join(parts)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="+", metavar="MODEL")
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--out", help="appends to this file instead of printing")
    a, extra = p.parse_known_args()
    version = subprocess.run([BINARY, "--version"], check=True, capture_output=True, text=True).stdout.splitlines()[0]
    machine = ask("doctor")
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"speed: the load is {load:.1f}: these numbers will be too low", file=sys.stderr)
    text = f"# {datetime.date.today()}: {version}, {machine['cpu']}, {machine['cores']} cores, {machine['simd']}\n\n"
    text += "\n".join(section(m, a.repeats, extra) for m in a.models)
    if a.out:
        with open(a.out, "a") as f:
            f.write(text + "\n")
    else:
        print(text)


if __name__ == "__main__":
    main()
