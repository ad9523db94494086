"""bench/peers.py on a tiny model, beside a peer whose programs are stubs with known rates."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE.parent)]

from tally import Tally  # noqa: E402
from terncli import BINARY  # noqa: E402

# 1000 tokens/s; 2000 with run-time repacking. A batch: 3000 tokens/s.
BENCH = """#!/bin/sh
case "$*" in
  *--help*) echo '  -rtr, --run-time-repack <0|1>'; exit ;;
  *'-rtr 1'*) ns=16000000 ;;
  *) ns=32000000 ;;
esac
echo 'stub 1.0'
echo "[ { \\"build_commit\\": \\"abc\\", \\"build_number\\": 7, \\"samples_ns\\": [ $ns ] } ]"
"""
BATCHED = """#!/bin/sh
echo '|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |'
echo '|     1 |      8 |    8 |     72 |    1.057 |     7.57 |    4.355 |  3000.00 |    5.412 |    13.30 |' >&2
"""


def stubs(folder):
    folder.mkdir()
    for name, text in (("llama-bench", BENCH), ("llama-batched-bench", BATCHED)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def run(scratch, *flags):
    command = [sys.executable, ROOT / "bench" / "peers.py", "--busy", "--python", sys.executable, "--tern", BINARY, "--work", scratch / "work", *flags]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)


def main():
    tally = Tally()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        done = run(scratch, "--models", "tiny:q4_0", "--only", "prompt|batch|open", "--rounds", 2, "--threads", 1, "--numerics", "exact,other",
                   "--peer", f"stub={stubs(scratch / 'bin')}", "--out", scratch / "page")  # fmt: skip
        if not tally.check("exit", done.returncode == 0, done.stderr):
            sys.exit(tally.close())
        report, page = json.loads((scratch / "page.json").read_text()), (scratch / "page.md").read_text()
        (model,) = report["models"]
        rows = {row["label"]: row for row in model["rows"]}
        tally.check("rows", list(rows) == ["prompt 32", "decode 8, batch 8", "open, one token"], list(rows))
        for label, row in rows.items():
            ours, peer = row["results"]["tern exact"], row["results"]["stub"]
            tally.check(f"{label}: samples", len(ours["samples"]) == len(peer["samples"]) == 2, row)
            ratio = ours["median"] / peer["median"] if row["kind"] != "first" else peer["median"] / ours["median"]
            tally.check(f"{label}: ratio", abs(row["ratios"]["tern exact / stub"] - ratio) < 1e-9, row["ratios"])
            tally.check(f"{label}: a mode that tern refuses", '"other" is not' in row["results"]["tern other"]["refused"], row["results"]["tern other"])
        prompt = rows["prompt 32"]["results"]["stub"]
        tally.check("prompt: fastest setting", prompt["setting"].endswith("rtr") and prompt["median"] == 2000, prompt)
        tally.check("batch: rate", rows["decode 8, batch 8"]["results"]["stub"]["median"] == 3000, rows["decode 8, batch 8"])
        tally.check("version", {"name": "stub", "version": "7 (abc)"}.items() <= report["engines"][-1].items(), report["engines"])
        tally.check("page", all(f"| {label}, " in page for label in rows) and '"other" is not' in page, page)
        tally.check("weights are removed", not any((scratch / "work").iterdir()), os.listdir(scratch / "work"))
        done = run(scratch, "--models", "", "--peer", "gone=/nowhere", "--out", scratch / "none")
        tally.check("a peer that is not there", done.returncode == 1 and "/nowhere/llama-bench" in done.stderr, done.stderr)
    sys.exit(tally.close())


if __name__ == "__main__":
    main()
