"""The manifest is read strictly, and both selections hold what they promise. Needs neither the reference nor the binary."""

import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "oracle")]

import cases  # noqa: E402
import configs  # noqa: E402
import manifest  # noqa: E402
from tally import Tally  # noqa: E402

WRONG = {  # a file -> what the error has to name
    "": "no rows",
    "llama always": ":1: a row has",
    "llama always 2\nlama always 2": ":2: tests/oracle/configs.py has no case 'lama'",
    "llama alway 2": "no run is called 'alway'",
    "llama always, 2": "no run is called ''",
    "llama always 4bits": "no format is called '4bits'",
    "llama always 0": "'0' is no number",
    "llama always all native=yes": "native: 'yes' is none of no, quantised",
    "llama always all dense=1": "dense takes no value",
    "llama always all prompt": "prompt takes a value",
    "llama always all prompt=x": "prompt: 'x' is no number",
    "llama always all group=1000": "group: '1000' is no number",
    "llama always all cannot=": "cannot: it needs a reason",
    "llama always all shm": "no note is called 'shm'",
    "llama always all shim shim": "shim stands twice",
    "llama always all extra=x": "extra: 'x' is not TENSOR:SIZExSIZE",
    "llama/x always 2": "a special case has one format",
    "llama/X always bf16": "a special case is named in small letters",
    "llama always all\n# remark\nllama always 2": ":3: llama stands in line 1 already",
    'llama always all cannot="open': ":1: No closing quotation",
}
RIGHT = """
# remark
llama  always,kv-size  bf16,mxfp4   group=32 native=quantised   # why
llama/odd-one fives f16 prompt=13 seed=9 extra=a.b:2x3 extra=c:4
olmo   singles  all  shim
bitnet always   1    cannot="needs Metal, at import"
"""


def read(text):
    with tempfile.NamedTemporaryFile("w", suffix=".manifest") as file:
        file.write(text)
        file.flush()
        return manifest.read(file.name)


def check_parser(tally):
    for text, message in WRONG.items():
        try:
            read(text)
            tally.fail(f"{text!r}", "was read")
        except manifest.ManifestError as error:
            tally.check(f"{text!r}", message in str(error), f"says {error}")
    a, b, c, d = read(RIGHT)
    tally.check("runs", a.runs == (*cases.ALWAYS, "kv-size"), a.runs)
    tally.check("formats", a.formats == ("bf16", "mxfp4") and a.group == 32, a)
    tally.check("native where quantised", [cases.numerics_of(a, f) for f in a.formats] == [("exact",), ("exact", "native")])
    made = cases.case_of(b, "f16")
    tally.check("special case", (made.name, made.prompt, made.seed, made.dtype) == ("llama/odd-one", 13, 9, "f16"), made)
    tally.check("tensors to drop", made.extras == {"a.b": (2, 3), "c": (4,)}, made.extras)
    tally.check("shim", all(x.shim and x.runs == ("singles",) for x in cases.full_of(c)), cases.full_of(c))
    tally.check("cannot", all("needs Metal, at import" in x.skip for x in cases.full_of(d)), cases.full_of(d))


def numerics_wanted(row):
    return {"exact"} if row.native == "no" else {"exact", "native"}


def lacks(row, found):
    """None, or what a row's checkpoints for CI do not show and what has to change in the row."""
    want = numerics_wanted(row)
    if found == want:
        return None
    said = f"its checkpoints for CI run {' and '.join(sorted(found)) or 'nothing'}, the row promises {' and '.join(sorted(want))}"
    if want - found == {"native"}:
        forms = ", ".join(cases.formats_of(row))
        fit = [f for f in cases.FORMATS if not cases.misfit(row, f) and "native" in cases.numerics_of(row, f)]
        add = f"name a format that runs natively ({', '.join(fit)})" if fit else "no format of it runs natively"
        return f"{said}: {forms} is exact alone here: in tests/parity/manifest, {add}, or write native=no where the reference cannot"
    return f"{said}: in tests/parity/manifest, give it a format that fits its notes ({', '.join(f for f in cases.FORMATS if not cases.misfit(row, f))})"


def check_messages(tally):
    rows = read("llama always 4bit-g32 native=no\nqwen2 always f32\nqwen3/x always bf16 native=quantised\nolmo2 always bf16\n")
    said = [lacks(row, {n for f in cases.formats_of(row) for n in cases.numerics_of(row, f)}) for row in rows]
    tally.check("a row that keeps its promise", said[0] is None and said[3] is None, said)
    for why, form, better in ((said[1], "f32", "bf16"), (said[2], "bf16", "4bit-g32")):
        told = why and "promises exact and native" in why and f"{form} is exact alone" in why and better in why and "native=no" in why
        tally.check(f"{form}: what a row lacks is told", told, why)
    tied = [cases.case_of(row, form) for row in read("llama@tied always all\nllama@tied/extra always bf16\n") for form in cases.formats_of(row)]
    for pattern, count in (("^llama@tied$", len(tied) - 1), ("^llama@tied/bf16$", 1), ("^llama@tied/extra$", 1), ("^llama@tied", len(tied)), ("^llama$", 0)):
        found = [c.name for c in tied if c.matches(pattern)]
        tally.check(f"ONLY={pattern}", len(found) == count, found)


def check_selections(tally):
    rows = manifest.read()
    ci, full = cases.ci(), cases.full()
    for row in rows:
        mine = [c for c in ci if (c.name == row.label if row.name else c.name in {f"{row.config}/{f}" for f in cases.FORMATS})]
        numerics = {n for c in mine for n in c.numerics}
        why = lacks(row, numerics)
        tally.check(f"{row.label} in CI", why is None, why)
        if not row.name:
            left = set(cases.FULL) - {"hf"} - {c.form for c in full if c.config == row.config}
            tally.check(f"{row.label} in full", not left, f"no case in {', '.join(sorted(left))}: every row without a /NAME has one in each format of cases.FULL")
    left = set(cases.FORMATS) - {c.form for c in ci}
    tally.check("every format in CI", not left, f"no row takes {', '.join(sorted(left))}: name it in the FORMATS of one in tests/parity/manifest")
    # A row more changes nothing about the others.
    new = next(name for name in configs.CONFIGS if name not in {r.config for r in rows})
    more = read(f"{new} always 2\n{manifest.FILE.read_text()}")
    with_more, without = (
        [cases.case_of(r, form) for r in some if r.config != new for form in cases.formats_of(r)] for some in (more, rows)
    )
    tally.check("rows stand alone", with_more == without and len(more) == len(rows) + 1)
    # A special case named after a format: one checkpoint in full, an error where CI has it twice.
    reader = manifest.read
    try:
        once, twice = read("apertus always 1\napertus/hf one-shot hf\n"), read("apertus always hf\napertus/hf one-shot hf\n")
        manifest.read = lambda: once
        tally.check("TYPE/hf once in full", [c.name for c in cases.full()].count("apertus/hf") == 1)
        manifest.read = lambda: twice
        try:
            cases.ci()
            tally.fail("the same case twice", "is taken")
        except manifest.ManifestError as error:
            tally.check("the same case twice", "apertus/hf" in str(error), error)
    finally:
        manifest.read = reader


def main():
    tally = Tally()
    check_parser(tally)
    check_messages(tally)
    check_selections(tally)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
