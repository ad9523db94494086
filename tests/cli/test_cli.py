"""The command line's contract: verbs, flags, exit codes, what goes to stdout and what to stderr (standard library only).

Answers are not judged here but their form is: the numbers have tests/parity, bad models tests/cli/bad_input.py.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import st  # noqa: E402
from tally import Tally  # noqa: E402
from terncli import BINARY, BUILD, tern  # noqa: E402
from waiting import DEADLINE  # noqa: E402

MODEL = HERE.parent / "golden" / "llama-4bit" / "model"
WINDOWED = HERE.parent / "golden" / "gemma3-bf16" / "model"
VOCAB = 320
VERBS = ["run", "chat", "serve", "logits", "tokenize", "detokenize", "render", "inspect", "ls", "pull", "rm", "gc", "import", "bench", "ppl", "parity", "doctor"]
tally = Tally()


def problem(done, status, out=None):
    """None, or how the outcome differs: exit status; one error line on stderr for failures; no escape codes."""
    if done.status != status:
        return f"exit {done.status}, not {status}: {done.err.strip()[-200:]}"
    if b"\x1b" in done.out or "\x1b" in done.err:
        return "escape codes though nothing is a terminal"
    if status in (1, 2):
        errors = [line for line in done.err.splitlines() if line.startswith("tern: error: ")]
        if len(errors) != 1 or errors[0].endswith("."):
            return f"error lines: {errors or done.err[-200:]!r}"
        if done.out:
            return f"a failure wrote to stdout: {done.out[:100]!r}"
    if out is not None and not re.search(out, done.out.decode()):
        return f"stdout lacks {out}: {done.out[:200]!r}"
    return None


def expect(label, status, *args, stdin=b"", out=None, err=None, env=None):
    """One call with an expected exit status; returns it."""
    try:
        done = tern(*args, stdin=stdin, env=env)
    except subprocess.TimeoutExpired:
        tally.fail(label, "does not end")
        return None
    why = problem(done, status, out)
    if not why and err and not re.search(err, done.err):
        why = f"stderr lacks {err}: {done.err.strip()[-200:]}"
    tally.check(label, why is None, why)
    return done if why is None else None


def document(label, *args, keys=(), stdin=b"", env=None):
    """A call whose stdout is one JSON document; returns it."""
    done = expect(label, 0, *args, stdin=stdin, env=env)
    if not done:
        return None
    try:
        value = json.loads(done.out)
    except ValueError as error:
        tally.fail(f"{label}: JSON", f"{error}: {done.out[:120]!r}")
        return None
    missing = [k for k in keys if k not in value]
    tally.check(f"{label}: keys", not missing, f"no {missing}")
    return value


# ---- usage


def test_help():
    expect("--version", 0, "--version", out=r"\d+\.\d+\.\d+")
    expect("--help", 0, "--help", out=r"(?s)run.*logits.*doctor")
    expect("help", 0, "help", out=r"(?s)run.*logits.*doctor")
    lines = tern("help").out.decode().splitlines()
    summaries = [line[37:] for line in lines if re.match(r"  .{34} \S", line)]
    tally.check("help: every summary in its column", len(summaries) == len(VERBS) + 4, len(summaries))
    tally.check("help: --split tells of --kv-bits", "--kv-bits goes by position" in tern("help", "logits").out.decode())
    for verb in VERBS:
        expect(f"help {verb}", 0, "help", verb, out=verb)
        expect(f"{verb} --help", 0, verb, "--help", out=verb)
    expect("help of an unknown verb", 2, "help", "frobnicate", err="frobnicate")


def test_usage():
    expect("no verb", 2)
    expect("an unknown verb suggests", 2, "lgoits", err=r"lgoits.*logits")
    expect("an unknown flag suggests", 2, "logits", MODEL, "--ids", "1", "--setps", "2", err=r"--setps.*--steps")
    expect("an unknown flag with a value suggests", 2, "run", MODEL, "x", "--max-token=2", err=r"--max-token.*--max-tokens")
    for args in (["pull", "x"], ["generate", MODEL], ["help", "generate"], ["run", MODEL, "x", "-y"], ["tokenize", MODEL, "x", "--split", "one"]):
        done = expect(f"{args[0]} {args[-1]}: no far suggestion", 2, *args)
        tally.check(f"{args[0]} {args[-1]}: none", done and "did you mean" not in done.err and "nearest" not in done.err, done and done.err)
    for flags, said in {("-n", "5"): "--max-tokens N", ("-c", "64"): "--ctx N", ("-ngl", "99"): "no GPU", ("-t", "1"): "--threads N"}.items():
        expect(f"llama.cpp's {flags[0]}", 2, "run", MODEL, "x", *flags, err=f"unknown flag {flags[0]}: .*{said}")
    expect("llama.cpp's -m, run", 2, "run", "-m", MODEL, "x", err=r"-m: .*--max-tokens.*--model")
    expect("llama.cpp's -m, logits", 2, "logits", "-m", MODEL, "--ids", "1", err=r"unknown flag -m: .*--model MODEL")
    done = expect("an operand for ls", 2, "ls", "nosuch", err="nosuch")
    tally.check("an operand for ls: no blank at the end", done and done.err.endswith("tern ls\n"), done and done.err)
    expect("a far unknown flag", 2, "inspect", MODEL, "--qqqqqqqq", err="--qqqqqqqq")
    expect("a flag of another verb", 2, "tokenize", MODEL, "x", "--split", "one", err="--split")
    expect("a flag without its value", 2, "logits", MODEL, "--ids", err="--ids")
    expect("an empty value", 2, "logits", MODEL, "--ids", "1", "--steps=", err="--steps")
    expect("a value for a switch", 2, "logits", MODEL, "--ids", "1", "--all=7", err="--all")
    expect("no model", 2, "logits", "--ids", "1")
    for verb, here in {"list": "tern ls", "show": "tern inspect", "ps": "GET /api/ps", "delete": "tern rm", "-hf": "tern pull", "-m": "tern run MODEL"}.items():
        expect(f"another engine's {verb}", 2, verb, err=here)
    expect("another engine's number of tokens", 2, "run", MODEL, "x", "--num-predict", "3", err="--max-tokens")
    expect("an empty verb", 2, "", err=r'unknown verb ""')
    expect("an empty model", 1, "inspect", "", err=r'"": no such')
    expect("help of an empty verb", 2, "help", "", err=r'unknown verb ""')
    expect("an empty output file", 1, "logits", MODEL, "--ids", "1", "--out", "", err=r'"": cannot create')
    expect("an empty file name", 1, "logits", MODEL, "--ids-file", "", err=r'"": cannot open')
    expect("--verbose without a truth value", 2, "inspect", MODEL, "--verbose", "Foo", err=r'--verbose.*"Foo".*true or false')
    expect("--verbose with one", 0, "inspect", MODEL, "--verbose", "False")
    expect("--verbose before the model", 0, "inspect", "--verbose", MODEL)
    expect("no ids", 2, "logits", MODEL, err="--ids")
    expect("a word too many", 2, "inspect", MODEL, "extra", err="extra")
    expect("a number that is none", 2, "logits", MODEL, "--ids", "1", "--steps", "two", err=r"--steps.*two|two.*--steps")
    expect("a negative number", 2, "logits", MODEL, "--ids", "1", "--steps", "-1", err="--steps")
    expect("a number too large", 2, "logits", MODEL, "--ids", "1", "--steps", "99999999999999999999", err="--steps")
    expect("a number with a tail", 2, "run", MODEL, "x", "--max-tokens", "3x", err="--max-tokens")
    expect("a choice that is none", 2, "logits", MODEL, "--ids", "1", "--numerics", "exactly", err=r"exactly.*exact")
    expect("a backend that is none", 2, "logits", MODEL, "--ids", "1", "--backend", "gpu", err="gpu")
    expect("a split that is none", 2, "logits", MODEL, "--ids", "1", "--split", "two", err="two")
    expect("1025 threads", 2, "logits", MODEL, "--ids", "1", "--threads", "1025", err="1025|--threads")
    expect("more threads than cores warn", 0, "logits", MODEL, "--ids", "1", "--threads", str((os.cpu_count() or 1) + 3), err="(?i)warn|core")
    expect("feed and steps exclude each other", 2, "logits", MODEL, "--ids", "1", "--feed", "2", "--steps", "3")
    expect("temperature below zero", 2, "run", MODEL, "x", "--temp", "-1", err="--temp")
    expect("temperature no number", 2, "run", MODEL, "x", "--temp", "nan", err="--temp")
    expect("top-p above one", 2, "run", MODEL, "x", "--temp", "1", "--top-p", "1.5", err="--top-p")


def test_quantised_kv():
    """The golden model has 4 bits in groups of 64 dims of a head at most; every value is looked at before anything runs."""
    ids = ("logits", MODEL, "--ids", "1,2,3,4,5,6")
    for bits in ("1", "9", "16", "-4", "4.0"):
        expect(f"kv-bits {bits}", 2, *ids, "--kv-bits", bits, err=rf"--kv-bits.*{bits}")
    expect("kv-bits 7", 2, *ids, "--kv-bits", "7", err="kv-bits: 7 is not 2, 3, 4, 5, 6 or 8")
    expect("kv-group-size 48", 2, *ids, "--kv-bits", "4", "--kv-group-size", "48", err="kv-group-size: 48 is not 32, 64 or 128")
    expect("kv-group-size 16", 2, *ids, "--kv-bits", "4", "--kv-group-size", "16", err="--kv-group-size.*16")
    expect("kv-group-size without bits", 2, *ids, "--kv-group-size", "64", err="kv-group-size: changes nothing without kv-bits")
    expect("a start without bits", 2, *ids, "--quantized-kv-start", "0", err="quantized-kv-start: changes nothing without kv-bits")
    expect("a start below zero", 2, *ids, "--kv-bits", "4", "--quantized-kv-start", "-1", err="--quantized-kv-start")
    expect("a group that divides no head", 1, *ids, "--kv-bits", "4", "--kv-group-size", "128", err=r"128 does not divide the heads' \d+ dims")
    expect("rings", 1, "logits", WINDOWED, "--ids", "1", "--kv-bits", "8", "--kv-group-size", "32", err="layer 0 .* ring")
    # 5000 where absent, as mlx_lm.generate has it: a short prompt does not reach it.
    flags = ("--kv-bits", "2", "--kv-group-size", "32")
    with tempfile.TemporaryDirectory() as scratch:
        file, rows = Path(scratch) / "rows", []
        for more in ((), flags, (*flags, "--quantized-kv-start", "0")):
            expect(f"logits {' '.join(more)}", 0, *ids, *more, "--out", file)
            rows.append(file.read_bytes())
    plain, late, now = rows
    tally.check("--quantized-kv-start is 5000 where absent", late == plain, "other logits")
    tally.check("--quantized-kv-start 0 quantises", now != plain, "the same logits")
    sizes = [document(f"inspect {f}", "inspect", MODEL, "--json", *f)["memory"] for f in ((), (*flags, "--quantized-kv-start", "0"), flags)]
    tally.check("inspect reckons with packed keys", sizes[1]["kv_per_token"] * 4 < sizes[0]["kv_per_token"], f"{sizes}")
    tally.check("inspect: the same a token whatever the start", sizes[1]["kv_per_token"] == sizes[2]["kv_per_token"], f"{sizes}")
    tally.check("inspect: a late start costs plain keys too", sizes[1]["kv"] < sizes[2]["kv"], f"{sizes}")


def test_flag_forms():
    plain = document("logits", "logits", MODEL, "--ids", "1,2,3", "--steps", "2")
    for label, args in {
        "--flag=value": ["logits", MODEL, "--ids=1,2,3", "--steps=2"],
        "flags before the model": ["logits", "--ids", "1,2,3", "--steps", "2", MODEL],
        "--model": ["logits", "--model", MODEL, "--ids", "1,2,3", "--steps", "2"],
        "spaces between ids": ["logits", MODEL, "--ids", "1, 2, 3", "--steps", "2"],
    }.items():
        tally.check(f"{label} is the same", document(label, *args) == plain, "another answer")


# ---- verbs


def check_trace(folder):
    """--trace: the index tells where each output lies, the file holds them all, and the rows are the same ones."""
    plain, traced, index = folder / "plain.bin", folder / "traced.bin", folder / "trace"
    document("logits without --trace", "logits", MODEL, "--ids", "5,6,7,8", "--steps", "1", "--out", plain)
    for backend in ("ref", "cpu"):
        args = ["--ids", "5,6,7,8", "--steps", "1", "--out", traced, "--trace", index, "--backend", backend]
        if not document(f"--trace, {backend}", "logits", MODEL, *args):
            continue
        lines = [json.loads(line) for line in index.read_text().splitlines()]
        data = Path(f"{index}.f32").read_bytes()
        offset = 0
        for i, line in enumerate(lines):
            if not tally.check(f"--trace, {backend}: line {i}", (line["seq"], line["offset"]) == (i, offset), line):
                break
            offset += 4 * line["rows"] * line["width"]
        tally.check(f"--trace, {backend}: the file", len(data) == offset, f"{len(data)} bytes, not {offset}")
        tally.check(f"--trace, {backend}: ends in logits", data.endswith(traced.read_bytes()[-4 * VOCAB :]))
        tally.check(f"--trace, {backend}: changes no bit", traced.read_bytes() == plain.read_bytes())
    expect("a trace in a folder that is not there", 1, "logits", MODEL, "--ids", "1", "--trace", folder / "no" / "t", err="no/t")
    if Path("/dev/full").exists():
        full = folder / "full"
        Path(f"{full}.f32").symlink_to("/dev/full")
        expect("a trace on a full disk", 1, "logits", MODEL, "--ids", "1", "--trace", full, err="full.f32: .*[Nn]o space")


def test_logits():
    keys = ("ids", "generated", "rows", "vocab", "numerics", "backend", "profile")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.bin"
        for label, args, rows in [
            ("no steps", [], 1),
            ("steps", ["--steps", "3"], 4),
            ("all", ["--all", "--steps", "2"], 6),
            ("feed", ["--feed", "9,8,7"], 4),
            ("one id", ["--split", "one", "--all"], 4),
        ]:
            said = document(f"logits {label}", "logits", MODEL, "--ids", "5,6,7,8", "--out", out, *args, keys=keys)
            if said:
                tally.check(f"logits {label}: rows", (said["rows"], said["vocab"]) == (rows, VOCAB), said)
                tally.check(f"logits {label}: file", out.stat().st_size == 4 * rows * VOCAB, out.stat().st_size)
                tally.check(f"logits {label}: ids", said["ids"] == [5, 6, 7, 8] + said["generated"], said)
        ids = Path(folder) / "ids"
        ids.write_text("5,6,7,8\n")
        filed = document("--ids-file", "logits", MODEL, "--ids-file", ids)
        tally.check("--ids-file is --ids", filed == document("--ids", "logits", MODEL, "--ids", "5,6,7,8"))
        for good in ("[5, 6,7 ,8]", " 5 6\n7,\t8", "[5,\n6,\n7,\n8]\n"):
            ids.write_text(good)
            same = document(f"--ids-file {good!r}", "logits", MODEL, "--ids-file", ids)
            tally.check(f"--ids-file {good!r} is --ids", same == filed)
            tally.check(f"--ids {good!r} is the same", document(f"--ids {good!r}", "logits", MODEL, "--ids", good) == filed)
        fed = document("--feed", "logits", MODEL, "--ids", "1", "--feed", "9,8,7")
        for good in ("[9, 8,7]", "9 8\n7"):
            tally.check(f"--feed {good!r}", document(f"--feed {good!r}", "logits", MODEL, "--ids", "1", "--feed", good) == fed)
        for bad in ("5,6,x,8", "[5,6,7,8", "5,6,7,8]", "[[5,6]]", "[5 6]", "[5,6,]", "[]", "[1.5]", "", " ", "[5] [6]", "[-1]"):
            expect(f"--ids {bad!r}", 2, "logits", MODEL, "--ids", bad, err="logits: --ids: ")
            expect(f"--feed {bad!r}", 2, "logits", MODEL, "--ids", "1", "--feed", bad, err="logits: --feed: ")
        for bad in (b"5,6,x,8", b"5,6\x007,8", b"[5,6,7,8", b"5,6,7,8]", b"[[5,6]]", b"[5,6\x00,7]", b"[5 6]", b"[5,6,]", b"[]", b"[1.5]", b"", b"[5] [6]"):
            ids.write_bytes(bad)
            expect(f"--ids-file {bad!r}", 1, "logits", MODEL, "--ids-file", ids)
        expect("no such ids file", 1, "logits", MODEL, "--ids-file", f"{folder}/none", err="none")
        check_trace(Path(folder))
        nowhere = Path(folder) / "no" / "rows.bin"
        expect("an output folder that is not there", 1, "logits", MODEL, "--ids", "1", "--out", nowhere, err="rows.bin|no/")
        if Path("/dev/full").exists():
            expect("a full disk", 1, "logits", MODEL, "--ids", "1", "--out", "/dev/full", err="/dev/full")
        for ids, names in {"320": "320", "-1": "-1", "1,,2": "ids", "1,x": "x", "": "ids", "4294967297": "4294967297"}.items():
            done = tern("logits", MODEL, f"--ids={ids}")
            why = problem(done, done.status if done.status in (1, 2) else 1)
            if not why and names not in done.err:
                why = f"does not name {names}: {done.error_line}"
            tally.check(f"--ids {ids!r} is refused", why is None, why)
        expect("longer than the context", 1, "logits", MODEL, "--ids", ",".join(["1"] * 1000), "--steps", "500", "--ctx", "1024", err="1024")


def test_native_is_slow():
    """Said of models that are not small, with -v or on a terminal."""
    said = expect("native, small", 0, "logits", MODEL, "--ids", "1", "--numerics", "native", "-v")
    tally.check("native, small: nothing said", said and "slow lane" not in said.err, said and said.err)
    large = BUILD / "models" / "smollm2"
    if not large.is_dir():
        return
    for mode, flag, want in (("native", "-v", True), ("native", "--all", False), ("exact", "-v", False)):
        said = expect(f"{mode}, large, {flag}", 0, "logits", large, "--ids", "1", "--numerics", mode, flag)
        tally.check(f"{mode}, large, {flag}: says so or not", said and ("slow lane" in said.err) == want, said and said.err)


def test_text():
    sample = "the sand and rest — naïve 日本 🙂\n\ttail  "
    ids = document("tokenize", "tokenize", MODEL, sample)
    tally.check("tokenize from stdin", document("tokenize -", "tokenize", MODEL, "-", stdin=sample.encode()) == ids)
    tally.check("ids are numbers", ids and all(isinstance(i, int) and 0 <= i < VOCAB for i in ids), ids)
    tally.check("--no-special", isinstance(document("--no-special", "tokenize", MODEL, sample, "--no-special"), list))
    tally.check("empty text", document("tokenize nothing", "tokenize", MODEL, "") == [])
    expect("--pieces", 0, "tokenize", MODEL, "the sand", "--pieces", out=r"\d+")
    expect("invalid UTF-8", 1, "tokenize", MODEL, "-", stdin=b"a\xff\xfeb", err="byte 1")

    packed = json.dumps(ids).encode()
    back = expect("detokenize", 0, "detokenize", MODEL, stdin=packed)
    tally.check("detokenize gives the text back", back and back.out.decode().removesuffix("\n") == sample.removesuffix("\n"), back and back.out)
    pieces = document("detokenize --stream", "detokenize", MODEL, "--stream", stdin=packed)
    tally.check("stream pieces join to the text", pieces is not None and "".join(pieces) == sample, pieces)
    expect("--skip-special", 0, "detokenize", MODEL, "--skip-special", stdin=b"[318, 5, 319]")
    beyond = expect("ids beyond the vocabulary vanish", 0, "detokenize", MODEL, stdin=b"[320, 99999]")
    tally.check("nothing of them is left", beyond and beyond.out == b"", beyond and beyond.out)
    tally.check("detokenize nothing", expect("detokenize []", 0, "detokenize", MODEL, stdin=b" [ ]\n"))
    many = json.dumps([5] * 1_200_000).encode()  # more than a tree of the project's may have
    expect("detokenize a long list", 0, "detokenize", MODEL, stdin=many)
    for bad in (b"", b"{}", b"[1, ", b'["1"]', b"[1.5]", b"[-1]", b"[1] x", b"[1", b"[1,]", b"[[1]]", b"[1e0]", b"[2147483648]", b"[1\x00]"):
        expect(f"detokenize {bad!r}", 1, "detokenize", MODEL, stdin=bad)


def test_render():
    request = {"messages": [{"role": "user", "content": "hi"}], "add_generation_prompt": True}
    want = "<|bos|><|user|>hi<|end|><|assistant|>"
    with tempfile.TemporaryDirectory() as folder:
        file, template = Path(folder) / "request.json", Path(folder) / "template.jinja"
        file.write_text(json.dumps(request))
        done = expect("render", 0, "render", MODEL, "--json", file)
        tally.check("render gives the prompt", done and done.out.decode().removesuffix("\n") == want, done and done.out)
        ids = document("render --ids", "render", MODEL, "--json", file, "--ids")
        tally.check("BOS once", ids and ids[0] == 318 and ids.count(318) == 1, ids)
        template.write_text("{{ bos_token }}{% for m in messages %}[{{ m.content }}]{% endfor %}")
        file.write_text(json.dumps({**request, "kwargs": {"bos_token": "<B>"}}))
        done = expect("render --template without a model", 0, "render", "--json", file, "--template", template)
        tally.check("kwargs reach the template", done and done.out.decode().removesuffix("\n") == "<B>[hi]", done and done.out)
        template.write_text("{{ messages | frobnicate }}")
        expect("an unknown filter", 1, "render", "--json", file, "--template", template, err="frobnicate")
        template.write_text("{% if %}")
        expect("a syntax error", 1, "render", "--json", file, "--template", template)
        file.write_text("{")
        expect("a request that is no JSON", 1, "render", MODEL, "--json", file, err="request.json")
        file.write_text(json.dumps({**request, "now": "x"}))
        expect("a time that is none", 1, "render", MODEL, "--json", file, err="request.json: now: 'x' is not a time")
        expect("a request that is not there", 1, "render", MODEL, "--json", f"{folder}/none.json", err="none.json")


def test_inspect():
    said = document("inspect --json", "inspect", MODEL, "--json", keys=("drop_rules",))
    tally.check("inspect --json is an object", isinstance(said, dict))
    expect("inspect", 0, "inspect", MODEL, out=r"(?s)llama")
    expect("doctor", 0, "doctor", out=r"(?i)(?s)cores?|threads|simd|avx|baseline")
    with tempfile.TemporaryDirectory() as home:
        env = {"TERN_HOME": home, "HF_HOME": home, "HF_HUB_CACHE": home}
        expect("ls with nothing there", 0, "ls", env=env)
        tally.check("ls --json with nothing there", document("ls --json", "ls", "--json", env=env) in ([], {"models": []}))
        expect("run without a model where none is", 1, "run", env=env)
        expect("a repo that is not there", 1, "inspect", "some/model", env=env, err="some/model: no such .*`tern pull some/model` downloads it.*hold none: ")
        expect("a revision that is not there", 1, "inspect", "some/model@v1", env=env, err="some/model@v1: no such .*`tern pull some/model@v1`")
        for name in ("model", "./some/model", "a/b/c", "some/", "/model"):
            done = expect(f"{name}: not a repo's name", 1, "inspect", name, env=env, err="no such")
            tally.check(f"{name}: no word of downloads", done and "download" not in done.err, done and done.err)
        snapshot = Path(home) / "models--tiny--llama" / "snapshots" / "abc"
        (snapshot.parent.parent / "refs").mkdir(parents=True)
        (snapshot.parent.parent / "refs" / "main").write_text("abc")
        st.copy_model(MODEL, snapshot)
        expect("a repo in the cache by id", 0, "inspect", "tiny/llama", env=env, out="llama")
        expect("ls shows it", 0, "ls", env=env, out="tiny/llama")
        types = document("ls --types --json", "ls", "--types", "--json", env=env)
        shown = expect("ls --types", 0, "ls", "--types", env=env, out=r"(?m)^llama +generic +L1 ")
        lines = [" ".join(line.split()) for line in shown.out.decode().splitlines()] if shown else []
        for row in types or []:
            line = " ".join([row["type"], row["tier"], row["fidelity"], ", ".join(row["aliases"])]).strip()
            tally.check(f"ls --types: {row['type']}", line in lines, f"no line says {line!r}")
        keys = {"type", "aliases", "tier", "fidelity", "corrected", "numerics"}
        tally.check("ls --types --json: rows", types and all(set(row) == keys for row in types), types)
        corrected = sorted(row["type"] for row in types or [] if row["corrected"])
        tally.check("ls --types --json: corrected types are L2", corrected == sorted(row["type"] for row in types or [] if row["fidelity"] == "L2"), corrected)
        tally.check("ls --types --json: which", corrected == ["bitnet", "olmo", "phi3small"], corrected)


def test_profile():
    """The artifact comes from a snapshot's path alone; the fingerprint from what the config means."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    keys = ("profile", "tier", "fidelity", "claim", "corrected", "execution", "needs", "artifact", "fingerprint", "oracle")
    plain = document("inspect: profile", "inspect", MODEL, "--json", keys=keys)
    if not plain:
        return
    tally.check("a folder is no artifact", plain["artifact"] is None, plain["artifact"])
    tally.check("inspect: execution", plain["execution"] == {"loader": "plain", "graph": "dense", "loop": "split", "specialisation": "none"}, plain["execution"])
    tally.check("inspect: needs", plain["needs"] == ["dense", "windows"], plain["needs"])
    tally.check("inspect: fingerprint", re.fullmatch("[0-9a-f]{64}", plain["fingerprint"]), plain["fingerprint"])
    expect("inspect shows the fingerprint", 0, "inspect", MODEL, out=f"fingerprint +{plain['fingerprint']}")
    with tempfile.TemporaryDirectory() as home:
        env = {"TERN_HOME": home, "HF_HOME": home, "HF_HUB_CACHE": home}
        repo = Path(home) / "models--some--tiny-llama"
        (repo / "refs").mkdir(parents=True)
        (repo / "refs" / "main").write_text(commit)
        model = st.copy_model(MODEL, repo / "snapshots" / commit)
        values = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps({"unread": 1, **dict(sorted(values.items(), reverse=True)), "model_type": "mistral"}, indent=3))
        said = document("inspect: a snapshot", "inspect", "some/tiny-llama", "--json", env=env)
        tally.check("a snapshot is an artifact", said and said["artifact"] == {"repo": "some/tiny-llama", "revision": commit}, said and said["artifact"])
        tally.check("the fingerprint is of the meaning", said and said["fingerprint"] == plain["fingerprint"], said and said["fingerprint"])
        expect("inspect shows the artifact", 0, "inspect", model, out=f"artifact +some/tiny-llama@{commit}")
        (model / "config.json").write_text(json.dumps({**values, "rope_theta": 20000}))
        said = document("inspect: another base", "inspect", model, "--json")
        tally.check("another base is another fingerprint", said and said["fingerprint"] != plain["fingerprint"])


def test_added_beyond():
    """Added tokens beyond the vocabulary are let be, as releases have them; a prompt that holds one is refused by its id."""
    with tempfile.TemporaryDirectory() as folder:
        model = st.copy_model(MODEL, Path(folder) / "model")
        values = json.loads((model / "tokenizer.json").read_text())
        size = 1 + max([*values["model"]["vocab"].values(), *(t["id"] for t in values["added_tokens"])])
        for i in range(VOCAB + 1 - size):
            flags = {k: False for k in ("single_word", "lstrip", "rstrip", "normalized")}
            values["added_tokens"].append({"id": size + i, "content": f"<extra{size + i}>", "special": True, **flags})
        (model / "tokenizer.json").write_text(json.dumps(values))
        expect("an added token beyond the vocabulary", 0, "run", model, "x", "--raw", "--max-tokens", "2")
        expect("a prompt that holds it", 1, "run", model, f"x<extra{VOCAB}>", "--raw", "--max-tokens", "2", err=str(VOCAB))


def refused(label, *args, keys=(), err=None):
    """A call that fails but explains itself on stdout: exit 1, one error line; the document or text there."""
    done = tern(*args)
    lines = [line for line in done.err.splitlines() if line]
    why = None
    if done.status != 1 or len(lines) != 1 or not lines[0].startswith("tern: error: "):
        why = f"exit {done.status}: {done.err[-300:]}"
    elif err and not re.search(err, done.err):
        why = f"stderr lacks {err}: {done.err[-300:]}"
    if not tally.check(label, why is None, why):
        return None
    if "--json" not in args:
        return done.out.decode()
    said = json.loads(done.out)
    tally.check(f"{label}: the same error", f"tern: error: {said['error']}" == lines[0], said["error"])
    return said["nearest"]


def test_nearest():
    """A type without a row, and a checkpoint that does not fit its row: what is near, and what keeps it from running."""
    keys = {"type", "score", "config_error", "missing_keys", "unread_keys", "tensors_without_part", "tensors_missing"}
    with tempfile.TemporaryDirectory() as folder:
        model = st.copy_model(MODEL, Path(folder) / "model")
        values = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps({**values, "model_type": "lamma_moe", "num_experts": 4}))
        st.adding(model / "model.safetensors", "model.layers.0.mlp.experts.0.w1.weight")
        st.adding(model / "model.safetensors", "model.layers.0.mlp.gate.weight")
        for label, args in {"logits": ["logits", model, "--ids", "1"], "run": ["run", model, "x"], "ppl": ["ppl", model, "--text", model / "config.json"]}.items():
            expect(f"{label} names the nearest types", 1, *args, err=r"config\.json: model_type lamma_moe is not supported; nearest are llama, \w+ and \w+ \(tern inspect")
        rows = refused("inspect --json of an unknown type", "inspect", model, "--json", err="nearest are llama")
        tally.check("nearest: three", rows and [set(r) == keys for r in rows] == [True] * 3, rows)
        first = rows[0] if rows else {}
        tally.check("nearest: llama", first.get("type") == "llama" and first["score"] > rows[1]["score"], rows)
        tally.check("nearest: keys", first.get("missing_keys") == [] and "num_experts" in first["unread_keys"], first)
        left = {"count": 2, "first": ["model.layers.0.mlp.experts.0.w1.weight", "model.layers.0.mlp.gate.weight"]}
        tally.check("nearest: tensors", first.get("tensors_without_part") == left and first["tensors_missing"] == {"count": 0, "first": []}, first)
        said = refused("inspect of an unknown type", "inspect", model)
        tally.check("inspect shows it", said and re.search(r"(?s)nearest +llama .*keys without meaning +.*num_experts.*tensors without part +2: model\.layers\.0\.mlp\.experts", said), said)
        tally.check("inspect: no escapes", said and "\x1b" not in said, said)
        (model / "config.json").write_text(json.dumps({**values, "model_type": "\x1b[31mevil\n"}))
        said = refused("a type of control characters", "inspect", model)
        tally.check("a type of control characters: no escapes", said is not None and "\x1b" not in said, said)
        # The type's own row, which two tensors have no part in.
        (model / "config.json").write_text(json.dumps(values))
        rows = refused("inspect --json of tensors left over", "inspect", model, "--json", err=r"2 tensors in the checkpoint have no part of llama")
        tally.check("left over: its own row first", rows and rows[0]["type"] == "llama" and rows[0]["tensors_without_part"] == left, rows and rows[0])
        said = refused("inspect of tensors left over", "inspect", model)
        tally.check("inspect shows what is left", said and re.search(r"type +llama \(the row of this type\)", said), said)
        (model / "config.json").write_text(json.dumps({k: v for k, v in values.items() if k not in ("vocab_size", "hidden_size")}))
        rows = refused("inspect --json of keys missing", "inspect", model, "--json", err="hidden_size is missing")
        tally.check("keys missing", rows and rows[0]["missing_keys"] == ["hidden_size", "vocab_size"] and rows[0]["config_error"], rows and rows[0])
        weights = model / "model.safetensors"
        (model / "config.json").write_text(json.dumps({**values, "model_type": "nothing_like_it"}))
        weights.unlink()
        rows = refused("inspect --json without weights", "inspect", model, "--json")
        tally.check("without weights", rows and rows[0]["tensors_missing"] is None and rows[0]["tensors_without_part"] is None, rows and rows[0])
        # What no row's keys or tensors explain has one line alone.
        (model / "config.json").write_text(json.dumps({**values, "hidden_size": -1}))
        expect("a wrong value explains itself", 1, "inspect", model, "--json", err="hidden_size")


def test_inspect_stop_ids():
    """A stop id that no logit stands for is let pass, as in the reference, and noted."""
    plain = document("inspect: eos ids", "inspect", MODEL, "--json", keys=("eos_ids",))
    tally.check("inspect: no eos id beyond", plain and plain["eos_ids_beyond_vocab"] == [], plain)
    with tempfile.TemporaryDirectory() as folder:
        model = st.copy_model(MODEL, Path(folder) / "model")
        values = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps({**values, "eos_token_id": [VOCAB - 1, 9999]}))
        said = document("inspect: eos ids beyond", "inspect", model, "--json")
        tally.check("inspect names them", said and said["eos_ids"] == [VOCAB - 1, 9999] and said["eos_ids_beyond_vocab"] == [9999], said)
        expect("inspect notes an eos id beyond", 0, "inspect", model, out=r"9999 \(beyond the vocabulary")
        expect("such a model runs", 0, "run", model, "x", "--max-tokens", "3")
        expect("such a model runs with XTC", 0, "run", model, "x", "--max-tokens", "3", "--temp", "1", "--xtc-probability", "1")


def test_unreadable():
    """A directory that may not be searched is not called empty."""
    with tempfile.TemporaryDirectory() as folder:
        model = st.copy_model(MODEL, Path(folder) / "model")
        model.chmod(0)
        drop = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
        try:
            for label, verb, name in (("a directory", "inspect", model), ("its files", "tokenize", model), ("below it", "inspect", model / "below")):
                done = subprocess.run([*drop, BINARY, verb, name, *(["x"] if verb == "tokenize" else [])], capture_output=True, timeout=DEADLINE)
                error = done.stderr.decode()
                if "setpriv" in error:
                    break
                good = done.returncode == 1 and "Permission denied" in error and str(model) in error and error.count("\n") == 1
                tally.check(f"unreadable: {label}", good, f"{done.returncode} {error}")
        except FileNotFoundError:
            pass  # root without setpriv reads everything
        model.chmod(0o755)


def test_parity():
    """Goldens whose rows and ids do not belong together: refused by name, whichever side has one more."""
    source = MODEL.parent
    meta = json.loads((source / "exact-greedy.json").read_text())
    rows = (source / "exact-greedy.bin").read_bytes()
    row = 4 * meta["vocab"]
    n = meta["rows"]

    def replay(label, data, **changes):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "g.bin").write_bytes(data)
            new = {**meta, "logits": "g.bin", "sha256": hashlib.sha256(data).hexdigest(), **changes}
            (Path(folder) / "g.json").write_text(json.dumps({k: v for k, v in new.items() if v is not None}))
            return tern("parity", MODEL, "--golden", folder)

    def refused(label, data, names, **changes):
        done = replay(label, data, **changes)
        why = problem(done, 1) or (None if re.search(names, done.err) else done.err)
        tally.check(f"parity: {label}", why is None, why)

    good = replay("as it is", rows)
    tally.check("parity: a golden by itself", good.status == 0 and f"{n} rows of".encode() in good.out, good)
    refused("a row missing in the file", rows[:-row], r"g\.bin: \d+ bytes, but")
    refused("a row too many in the file", rows + rows[-row:], r"g\.bin: \d+ bytes, but")
    refused("half a row", rows[: -row // 2], r"g\.bin: \d+ bytes, but")
    refused("an empty file", b"", r"g\.bin: 0 bytes, but")
    refused("a row missing on both sides", rows[:-row], rf"rows: {n - 1}, but its ids give {n}", rows=n - 1)
    refused("a row too many on both sides", rows + rows[-row:], rf"rows: {n + 1}, but its ids give {n}", rows=n + 1)
    refused("an id missing", rows, rf"rows: {n}, but its ids give {n - 1}", generated=meta["generated"][:-1])
    refused("an id too many", rows, rf"rows: {n}, but its ids give {n + 1}", generated=meta["generated"] + [1])
    refused("no rows", rows, r"rows", rows=None)
    refused("rows below zero", rows, r"rows", rows=-1)
    refused("another vocabulary", rows, r"vocab|bytes", vocab=meta["vocab"] + 1)
    refused("rows that are not there", rows, r"none\.bin", logits="none.bin")
    refused("rows elsewhere", rows, r"\.\./g\.bin", logits="../g.bin")


def test_run():
    greedy = ["--temp", "0", "--max-tokens", "12", "--ignore-eos"]
    plain = expect("run", 0, "run", MODEL, "the sand", *greedy)
    said = document("run --json", "run", MODEL, "the sand", *greedy, "--json", keys=("text", "ids", "finish_reason", "usage", "timings"))
    if plain and said:
        tally.check("run streams the text", plain.out.decode().removesuffix("\n") == said["text"].removesuffix("\n"), plain.out)
        tally.check("run stops at max-tokens", said["finish_reason"] == "length" and len(said["ids"]) == 12, said)
        tally.check("run: nothing on stderr", plain.err == "", plain.err)
    for label, args, stdin in [
        ("from stdin", ["-"], b"the sand"),
        ("--prompt", ["--prompt", "the sand"], b""),
        ("again", ["the sand"], b""),
        ("--threads 1", ["the sand", "--threads", "1"], b""),
    ]:
        done = expect(f"run {label}", 0, "run", MODEL, *args, *greedy, stdin=stdin)
        tally.check(f"run {label} is the same", done and plain and done.out == plain.out, done and done.out)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("the sand")
        file.flush()
        done = expect("run --file", 0, "run", MODEL, "--file", file.name, *greedy)
        tally.check("run --file is the same", done and plain and done.out == plain.out)
    expect("run --stats", 0, "run", MODEL, "x", *greedy, "--stats", err=r"(?s)tok")
    expect("run --system", 0, "run", MODEL, "x", "--system", "be brief", *greedy)
    expect("run --raw", 0, "run", MODEL, "x", "--raw", *greedy)
    expect("run --max-tokens 1", 0, "run", MODEL, "x", "--temp", "0", "--max-tokens", "1")
    sampled = ["--temp", "0.8", "--top-p", "0.9", "--top-k", "20", "--min-p", "0.01", "--seed", "7", "--max-tokens", "12"]
    first, second = (document("run with a seed", "run", MODEL, "x", *sampled, "--json") for _ in range(2))
    tally.check("same seed, same answer", first and second and first["ids"] == second["ids"])
    expect("every sampling flag", 0, "run", MODEL, "x", *sampled, "--min-tokens-to-keep", "2", "--xtc-probability", "0.5", "--xtc-threshold", "0.05",
           "--repetition-penalty", "1.1", "--repetition-context-size", "10", "--presence-penalty", "0.1", "--frequency-penalty", "0.1",
           "--logit-bias", '{"5": -100}')
    expect("an extra stop token by name", 0, "run", MODEL, "x", *greedy, "--extra-eos-token", "<|end|>")
    expect("an extra stop id", 0, "run", MODEL, "x", *greedy, "--extra-eos-token", str(VOCAB - 1))
    for token in ("nonsense-token", "-1", str(VOCAB), "99999999999"):
        expect(f"an extra stop token {token}", 1, "run", MODEL, "x", *greedy, "--extra-eos-token", token, err=f"--extra-eos-token.*{token}")
    done = expect("run --json-schema", 0, "run", MODEL, "x", "--json-schema", '{"enum": ["a b"]}')
    tally.check("the answer is what the schema says", done and done.out == b'"a b"\n', done and done.out)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write('{"type": "integer", "minimum": 3, "maximum": 5}')
        file.flush()
        done = expect("run --json-schema FILE", 0, "run", MODEL, "x", "--json-schema", file.name)
        tally.check("the answer is what the file says", done and done.out in (b"3\n", b"4\n", b"5\n"), done and done.out)
    expect("a schema that is not enforced", 2, "run", MODEL, "x", "--json-schema", '{"not": {}}', err=r"--json-schema\.not")
    expect("a schema that is none", 1, "run", MODEL, "x", "--json-schema", "nothing.json", err="--json-schema.*nothing.json")
    expect("a schema and --ignore-eos", 2, "run", MODEL, "x", "--json-schema", "{}", "--ignore-eos", err="--ignore-eos")
    expect("a logit bias that is no JSON", 2, "run", MODEL, "x", "--logit-bias", "{5", err="--logit-bias")
    for number in ("NaN", "Infinity", "-Infinity", "1e400", "1e39", "true", '"1"'):
        expect(f"a logit bias of {number}", 2, "run", MODEL, "x", "--logit-bias", '{"5": %s}' % number, err="--logit-bias.*5")
    for value in ("NaN", "[1, -Infinity]", '{"a": [{"b": Infinity}]}', "1e999"):
        expect(f"--chat-template-args of {value}", 2, "run", MODEL, "x", "--chat-template-args", '{"fine": 1.5, "mood": %s}' % value,
               err="--chat-template-args.*mood")
    if said and len(said["text"]) > 4:
        stop = said["text"][3:5]
        cut = document("run --stop", "run", MODEL, "the sand", *greedy, "--stop", stop, "--json")
        tally.check("--stop cuts before it", cut and stop not in cut["text"] and cut["finish_reason"] == "stop", cut)


def test_speculation():
    """Guessing ahead changes no answer, is counted, and is refused where it cannot be meant."""
    other = HERE.parent / "golden" / "qwen3-f16" / "model"
    call = ("run", MODEL, "one two one two one two one two", "--raw", "--ignore-eos", "--max-tokens", "40", "--json")
    ways = {"lookup": ("--prompt-lookup",), "its other name": ("--lookup", "--num-draft-tokens", "32"), "a model": ("--draft-model", other)}
    for numerics in ("exact", "fast"):
        for sampling in (("--temp", "0"), ("--temp", "0.9", "--seed", "3", "--top-p", "0.9", "--repetition-penalty", "1.1")):
            want = document("run without guesses", *call, "--numerics", numerics, *sampling)
            for name, flags in ways.items():
                got = document(f"run with {name}", *call, "--numerics", numerics, *sampling, *flags)
                same = want and got and (got["ids"], got["text"], got["finish_reason"]) == (want["ids"], want["text"], want["finish_reason"])
                tally.check(f"{numerics}, {name}: the same answer", same, got and got["text"])
                usage = got["usage"] if got else {}
                tally.check(f"{numerics}, {name}: counted", usage and 0 <= usage["accepted_tokens"] <= usage["drafted_tokens"], usage)
            tally.check("no guesses without flags", want and want["usage"]["drafted_tokens"] == 0)
    expect("stats of guesses", 0, *call[:-1], "--lookup", "--stats", err=r"\d+ of \d+ guesses right")
    done = expect("chat with guesses", 0, "chat", MODEL, "--max-tokens", "8", "--lookup", stdin=b"hello\nagain\n/exit\n")
    plain = expect("chat without", 0, "chat", MODEL, "--max-tokens", "8", stdin=b"hello\nagain\n/exit\n")
    tally.check("chat: the same answers", done and plain and done.out == plain.out)
    expect("two ways at once", 2, "run", MODEL, "x", "--lookup", "--draft-model", other, err="exclude each other")
    expect("a number for nothing", 2, "run", MODEL, "x", "--num-draft-tokens", "3", err="--draft-model or --prompt-lookup")
    expect("too many", 2, "run", MODEL, "x", "--lookup", "--num-draft-tokens", "33", err="from 1 to 32")
    expect("no such draft model", 1, "run", MODEL, "x", "--draft-model", "./nowhere", err="--draft-model: ")
    expect("llama.cpp's name", 2, "run", MODEL, "x", "-md", other, err="--draft-model MODEL")
    expect("not of logits", 2, "logits", MODEL, "--ids", "1", "--lookup", err="not of logits")
    with tempfile.TemporaryDirectory() as folder:
        stranger = Path(folder) / "m"
        shutil.copytree(MODEL, stranger)
        words = json.loads((stranger / "tokenizer.json").read_text())
        vocab = words["model"]["vocab"]
        first, second = sorted(vocab, key=vocab.get)[100:102]
        vocab[first], vocab[second] = vocab[second], vocab[first]
        (stranger / "tokenizer.json").write_text(json.dumps(words))
        expect("another vocabulary", 1, "run", MODEL, "x", "--draft-model", stranger, err=r"its vocabulary is another: token 100 is")


def test_no_prompt():
    """A prompt of no tokens is bad input; one that no longer fits says what helps."""
    with tempfile.TemporaryDirectory() as folder:
        model = st.copy_model(MODEL, Path(folder) / "model")
        names = json.loads((model / "tokenizer.json").read_text())
        names["post_processor"] = None
        (model / "tokenizer.json").write_text(json.dumps(names))
        for words in ("",), ("-",):
            expect(f"a prompt of no tokens: {words}", 1, "run", model, "--raw", *words, err="prompt: it has no tokens")
    for flags, want in (("--max-tokens", "-1"), True), (("--max-tokens", "1"), False):
        done = tern("chat", MODEL, *flags, "--ignore-eos", stdin=b"hello\nmore\n")
        tally.check(f"a conversation that fills the context: {flags}", ("; /clear forgets the conversation" in done.err) == want, done.err)
    done = tern("chat", MODEL, stdin=b"hello " * 2000 + b"\n")
    tally.check("a first message that is too long has no conversation to forget", done.status == 1 and "positions" in done.err and "/clear" not in done.err, done.err)


def test_prompt():
    """A thinking tokenizer: `run` answers the prompt that `render` shows with enable_thinking on."""
    with tempfile.TemporaryDirectory() as folder:
        model = st.copy_model(MODEL, Path(folder) / "model")
        names = (model / "tokenizer.json").read_text()
        (model / "tokenizer.json").write_text(names.replace("<|system|>", "<think>").replace("<|unk|>", "</think>"))
        (model / "chat_template.jinja").write_text(
            "{{ bos_token }}{{ messages[0].content }}{% if enable_thinking %} think hard{% endif %}")
        request = Path(folder) / "request.json"
        for thinking, flags in ((True, []), (False, ["--chat-template-args", '{"enable_thinking": false}'])):
            label = f"enable_thinking {str(thinking).lower()}"
            request.write_text(json.dumps({"messages": [{"role": "user", "content": "the sand"}], "add_generation_prompt": True,
                                           "kwargs": {"enable_thinking": thinking}}))
            ids = document(f"{label}: render", "render", model, "--json", request, "--ids")
            greedy = document(f"{label}: logits", "logits", model, "--ids", ",".join(map(str, ids or [1])), "--steps", "8")
            said = document(f"{label}: run", "run", model, "the sand", *flags, "--max-tokens", "8", "--ignore-eos", "--json")
            same = ids and greedy and said and said["usage"]["prompt_tokens"] == len(ids) and said["ids"] == greedy["generated"]
            tally.check(f"{label}: run answers the rendered prompt", same, (ids, greedy, said))


def test_chat():
    done = expect("chat", 0, "chat", MODEL, "--max-tokens", "4", stdin=b"hello\n/stats\n/clear\nagain\n/exit\n")
    tally.check("chat answers", done and done.out)
    expect("chat /help", 0, "chat", MODEL, stdin=b"/help\n/exit\n")
    with tempfile.TemporaryDirectory() as folder:
        target, other = Path(folder) / "talk.json", Path(folder) / "other"
        target.write_text("old")
        os.link(target, other)
        expect("chat /save", 0, "chat", MODEL, "--max-tokens", "2", stdin=f"/system be brief\nhello\n/system be long\n/save {target}\n/exit\n".encode())
        saved = json.loads(target.read_text())["messages"]
        tally.check("/save keeps every message", [m["role"] for m in saved] == ["system", "user", "assistant"], saved)
        tally.check("/system replaces the message", saved[0]["content"] == "be long", saved)
        tally.check("/save writes aside", other.read_text() == "old" and len(list(Path(folder).iterdir())) == 2)
        expect("chat /save nowhere", 1, "chat", MODEL, stdin=f"/save {folder}/no/talk.json\n/exit\n".encode(), err="talk.json")
        expect("chat /load", 0, "chat", MODEL, stdin=f"/load {target}\n/exit\n".encode(), err="loaded 3 messages")
        quoted = f"hello\n/save \"{folder}/a b\"\n/save '{folder}/c d' \n/save {folder}/e f\n/save {folder}/g\"\n/clear\n/load \"{folder}/a b\"\n/bye\nhello\n"
        done = expect("chat: names in quotes, and with spaces", 0, "chat", MODEL, "--max-tokens", "2", stdin=quoted.encode(), err="loaded 2 messages")
        tally.check("are the names", {"a b", "c d", "e f", 'g"'} <= {p.name for p in Path(folder).iterdir()}, list(Path(folder).iterdir()))
        tally.check("/bye leaves", done and done.out.count(b"\n") == 1, done and done.out)
    expect("chat ends with its input", 0, "chat", MODEL, stdin=b"")
    failures = {"an unknown command": b"/frob\n", "a message that is not UTF-8": b"\xff\n", "a file that is not there": b"/load /nowhere\n", "no file": b"/save\n", "one that is no conversation": b"/load /dev/null\n"}
    failures["a message that is more than the context"] = b"a" * 20000 + b"\n"
    for label, line in failures.items():
        done = tern("chat", MODEL, "--max-tokens", "2", stdin=line + b"hello\n/exit\n")
        tally.check(f"chat over a pipe, {label}: told once, and by the status", done.status == 1 and done.err.count("tern: error: ") == 1, done.err)
        tally.check(f"{label}: the conversation goes on", done.out)
    long = "a" * 20000
    for limit in "-1", "1", "5000":
        expect(f"a prompt beyond the context, and {limit} tokens", 1, "run", MODEL, "--raw", "-m", limit, long, err=r"a prompt of 20000 tokens, but there are 1024 positions")
    expect("a limit beyond the context", 1, "run", MODEL, "--raw", "-m", "5000", "hi", err=r"4999 to come need .* \(a limit of -1 is as many as fit\)")
    expect("no limit", 0, "run", MODEL, "--raw", "-m", "-1", "--ctx", "50", "hi")
    expect("a context of -1", 2, "run", MODEL, "--ctx", "-1", "hi", err="a whole number from 1")


def test_bench_and_ppl():
    said = document("bench --json", "bench", MODEL, "-p", "4", "-n", "3", "-r", "2", "--json",
                    keys=("model", "numerics", "backend", "threads", "open_ms", "peak_mb", "bandwidth_gb_s", "rows"))
    if said:
        kinds = {r["kind"] for r in said["rows"]}
        tally.check("bench rows", kinds == {"prompt", "decode"}, kinds)
        want = {"kind", "n", "depth", "batch", "tok_s", "sd", "ms", "gb_s", "share"}
        tally.check("bench row keys", all(want <= set(r) for r in said["rows"]), said["rows"][:1])
        means = [(r["tok_s"], r["samples"]) for r in said["rows"]]
        tally.check("bench samples", all(len(s) == 2 and abs(sum(s) / 2 - mean) < 1e-3 * mean for mean, s in means), means)
    expect("bench of more than memory", 1, "bench", MODEL, "-b", "64", "-d", "1000,50000000", err="50000[0-9]+ positions need [0-9]+ MB")
    expect("bench", 0, "bench", MODEL, "-p", "4", "-n", "3", "-r", "1", out=r"\|")
    said = document("bench -g", "bench", MODEL, "-p", "0", "-n", "5", "-g", "0,3,32", "-b", "1,2", "-r", "1", "--json")
    got = said and [(r["batch"], r["guesses"]) for r in said["rows"]]
    tally.check("bench -g: rows", got == [(1, 0), (1, 3), (1, 32), (2, 0)], got)
    expect("bench -g as a table", 0, "bench", MODEL, "-p", "0", "-n", "5", "-g", "3", "-r", "1", out=r"guesses \|[^|]*tok/s")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "text"
        file.write_text("the sand and rest of the land " * 40)
        expect("ppl", 0, "ppl", MODEL, "--text", file, out=r"\d\.\d")
        damaged = st.copy_model(MODEL, Path(folder) / "damaged")
        header, data = st.read(damaged / "model.safetensors")
        at = header["model.layers.0.mlp.gate_proj.scales"]["data_offsets"][0]
        st.write(damaged / "model.safetensors", header, data[:at] + b"\xff\x7f" * 2 + data[at + 4 :])
        for more in ([], ["--numerics", "fast", "--against", "exact"], ["--json"]):
            expect(f"ppl of damaged weights {more}", 1, "ppl", damaged, "--text", file, *more, err="not numbers at position 0 of sequence 1")
        expect("ppl without a text", 2, "ppl", MODEL, err="--text")
        expect("ppl of a text that is not there", 1, "ppl", MODEL, "--text", f"{folder}/none", err="none")


def test_import():
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        for label, content in {"empty": b"", "no GGUF": b"hello" * 100, "only magic": b"GGUF", "counts past the end": b"GGUF\x03\0\0\0" + b"\xff" * 16}.items():
            file = Path(folder) / "x.gguf"
            file.write_bytes(content)
            expect(f"import: {label}", 1, "import", file, out, err="x.gguf")
            left = [p.name for p in Path(folder).iterdir() if p.name != "x.gguf"]
            tally.check(f"import: {label} leaves nothing", not left, left)
        expect("import of nothing", 1, "import", f"{folder}/none.gguf", out, err="none.gguf")
        expect("import without a target", 2, "import", f"{folder}/none.gguf")


def main():
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    for name, test in list(globals().items()):
        if name.startswith("test_") and re.search(only, name):
            try:
                test()
            except Exception as error:
                tally.fail(name, f"{type(error).__name__}: {error}")
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
