"""Renders docs/models.md from what was tested: models_md.py [--check]

The list of types comes from `tern ls --types --json`, so from the tables that the engine reads; what each was tested on
from build/parity/results.json, which run_live.py fills (`make models` runs both selections first). A case that failed or
was not run stops it: the page claims nothing else than what passed.

--check compares the page with the list of types alone, and the list with the manifest: a type or alias that the engine
runs and that is not on the page or in no row of the manifest is an error, and the reverse. It needs no reference.
"""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "oracle")]

import cases  # noqa: E402
import configs  # noqa: E402
import manifest  # noqa: E402
import terncli  # noqa: E402
from tally import Tally  # noqa: E402

PAGE = HERE.parents[1] / "docs" / "models.md"
RESULTS = terncli.BUILD / "parity" / "results.json"
HEADING = """\
# Models

Rendered from test results by `make models`; do not edit. A checkpoint of one of these types runs if everything in its config and every one of its tensors is
accounted for ([model.md](model.md)); else it is refused by name.

What stands in a row has been compared with the reference, bit for bit, on tiny checkpoints of the type and of its variants ([parity.md](parity.md)).
Fidelity L1: the logits are the reference's. L2: they are the reference's once faults of it are corrected, without which it gives no numbers to compare with; which, the row says
([profiles.md](profiles.md)). The formats are those tested for this type; all types take all of them through the same code. Where a matrix has
an input that no group divides, the reference leaves it dense, and so does its checkpoint.

"""
COLUMNS = ["type", "also", "tier", "fidelity", "numerics", "dtypes", "quantised", "state", "variants and notes"]
MODES = {"mxfp4": "mxfp4", "mxfp8": "mxfp8", "nvfp4": "nvfp4"}


def listing():
    done = terncli.tern("ls", "--types", "--json")
    if done.status:
        sys.exit(f"tern ls --types: {done.error_line}")
    return sorted(json.loads(done.out), key=lambda row: row["type"])


def quantisations(forms):
    """"affine 4, 8 bits (g32, g64), mxfp4, by module"."""
    affine = [cases.FORMATS[f] for f in forms if cases.FORMATS[f].get("quant") and f not in MODES]
    parts = []
    if affine:
        bits = sorted({made["quant"][0] for made in affine})
        groups = sorted({made["quant"][1] for made in affine})
        parts.append(f"affine {', '.join(map(str, bits))} bits (g{', g'.join(map(str, groups))})")
    parts += [mode for mode in MODES if mode in forms]
    if any(cases.FORMATS[f].get("overrides") for f in forms):
        parts.append("by module")
    return ", ".join(parts) or "–"


def notes(rows, forms, corrected):
    variants = [r.config.partition("@")[2] or r.config for r in rows if not r.name and "@" in r.config]
    parts = [", ".join(dict.fromkeys(variants))] if variants else []
    if "hf" in forms:
        parts.append("the original layout of tensors")
    if any("kv-size" in r.runs for r in rows):
        parts.append("`--max-kv-size`")
    if any(cases.RUNS[run].get("kv") for r in rows for run in r.runs):
        parts.append("`--kv-bits`")
    if corrected:
        parts.append(f"the reference is corrected (tests/oracle/shims.py): {corrected}")
    for config, why in ((r.config, r.cannot) for r in rows if r.cannot):
        parts.append(f"`{config}`: the reference cannot run it ({why})")
    unlike = {r.native for r in rows if not r.name} - {"yes"}
    if unlike:
        parts.append("native: the reference has none" if "no" in unlike else "native: the reference has it quantised alone")
    return "; ".join(parts) or "–"


def row_of(facts, rows, results):
    """One line of the table, from the cases that passed."""
    mine = {r.config for r in rows}
    passed = [e for e in results if e["config"] in mine and "skipped" not in e]
    forms = {e["form"] for e in passed}
    numerics = {n for e in passed for n in e["numerics"]}
    dtypes = sorted({cases.FORMATS[f].get("dtype", "bf16") for f in forms})
    windowed = any({"singles", "lone-tail"} <= set(r.runs) for r in rows)
    cells = [
        f"`{facts['type']}`",
        ", ".join(f"`{a}`" for a in facts["aliases"]) or "–",
        facts["tier"],
        facts["fidelity"],
        ", ".join(n for n in facts["numerics"] if n in numerics),
        ", ".join(dtypes),
        quantisations(forms),
        "keys and values" + (", in windows" if windowed else ""),
        notes(rows, forms, facts["corrected"]),
    ]
    return f"| {' | '.join(cells)} |"


def tested():
    """Results of every case of both selections; SystemExit naming the first that failed or is absent."""
    try:
        known = json.loads(RESULTS.read_text())
    except (OSError, ValueError):
        sys.exit(f"{RESULTS}: no results; run `make models`")
    found = []
    for case in cases.unique(list({c.name: c for c in [*cases.ci(), *cases.full()]}.values())):
        entry = known.get(case.name)
        if not entry:
            sys.exit(f"{case.name}: no result; run `make models`")
        failed = [n for n, counts in entry["numerics"].items() if counts["failed"]]
        if failed:
            sys.exit(f"{case.name} [{failed[0]}]: {entry['numerics'][failed[0]]['why']}")
        found.append(entry)
    return found


def render(types, rows, results):
    lines = [HEADING + "| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for facts in types:
        names = {facts["type"], *facts["aliases"]}
        lines.append(row_of(facts, [r for r in rows if r.type in names], results))
    return "\n".join(lines) + "\n"


def read_page(text):
    """[(type, aliases, tier, fidelity)] of the table."""
    rows = []
    for line in text.splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == len(COLUMNS):
            rows.append((cells[0].strip("`"), re.findall(r"`([^`]+)`", cells[1]), cells[2], cells[3]))
    return rows


def stale(types, rows, text):
    """What is wrong, one line each."""
    page = {row[0]: row for row in read_page(text)}
    engine = {t["type"]: (t["type"], t["aliases"], t["tier"], t["fidelity"]) for t in types}
    wrong = [f"{name}: the engine runs it, docs/models.md has no row; run `make models`" for name in engine if name not in page]
    wrong += [f"{name}: docs/models.md has a row, the engine does not run it; run `make models`" for name in page if name not in engine]
    wrong += [
        f"{name}: docs/models.md says {page[name][1:]}, the engine {engine[name][1:]}; run `make models`"
        for name in engine
        if name in page and page[name] != engine[name]
    ]
    known = {n for t in types for n in (t["type"], *t["aliases"])}
    covered = {r.type for r in rows if not r.cannot}
    # A name that the reference does not know cannot be compared: its row says so, and the page repeats it.
    aliases = {a for t in types for a in t["aliases"]} - set(configs.ALIASES)
    own = {r.type for r in rows if r.cannot} & aliases
    wrong += [
        f"{name}: the engine runs it, tests/parity/manifest has no row that the reference runs"
        + (': give it one, or one with cannot="WHY" where mlx-lm does not know the name' if name in aliases else "")
        for name in sorted(known - covered - own)
    ]
    wrong += [f"{name}: tests/parity/manifest has a row, the engine does not run it" for name in sorted(covered - known)]
    shimmed = {r.type for r in rows if r.shim}
    for t in types:
        names = {t["type"], *t["aliases"]}
        if (t["fidelity"] == "L1") != (not t["corrected"]):
            wrong.append(f"{t['type']}: fidelity {t['fidelity']}, but corrected: {t['corrected']}")
        if bool(names & shimmed) != bool(t["corrected"]):
            wrong.append(f"{t['type']}: the manifest {'has' if names & shimmed else 'lacks'} the note shim, the engine says corrected: {t['corrected']}")
    return wrong


def check():
    tally, types, rows = Tally(), listing(), manifest.read()
    text = PAGE.read_text()
    wrong = stale(types, rows, text)
    tally.check("docs/models.md", not wrong, "; ".join(wrong))
    # And that it would be noticed.
    first = types[0]
    more = [*types, {**first, "type": "newtype", "aliases": ["newalias"]}]
    for label, found, count in (
        ("a type more", stale(more, rows, text), 3),
        ("a type less", stale(types[1:], rows, text), 1 + 1 + len(first["aliases"])),
        ("another alias", stale([{**first, "aliases": [*first["aliases"], "other"]}, *types[1:]], rows, text), 2),
        ("another fidelity", stale([{**first, "fidelity": "L9"}, *types[1:]], rows, text), 1),
        ("a correction that nothing was tested with", stale([{**first, "fidelity": "L2", "corrected": "x"}, *types[1:]], rows, text), 2),
        ("a correction kept quiet", stale([{**t, "fidelity": "L1", "corrected": None} for t in types], rows, text), 3),
        ("no page", stale(types, rows, ""), len(types)),
        ("an alias of the reference's without a comparison", stale(types, [replace(r, cannot="x") if r.type == "mistral" else r for r in rows], text), 1),
    ):
        tally.check(f"{label} is noticed", len(found) >= count, found)
    mine = [{**first, "aliases": [*first["aliases"], "own"]}, *types[1:]]
    told = stale(mine, [*rows, replace(rows[0], config="own", cannot="mlx-lm does not know it")], text)
    tally.check("an alias of nobody's with a row that says so", not any("manifest" in line for line in told), told)
    return tally.close()


def main():
    if sys.argv[1:] == ["--check"]:
        return check()
    if sys.argv[1:]:
        sys.exit(__doc__)
    PAGE.write_text(render(listing(), manifest.read(), tested()))
    print(PAGE.relative_to(HERE.parents[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
