"""Makes tiny checkpoints and the reference's logits for them, in a process of its own, and keeps both in a store.

    answers = Store(folder).collect(cases)      {(case name, numerics): Answer, Skip, or a string that says what went wrong}

Importing MLX costs seconds and a crash inside it costs the process, so a worker does all that is missing and is started
again behind the case that killed it; `jobs` of them share the work. Entries are keyed by everything they depend on: case, config, the kit's
sources and the pins. Nothing in the store is ever stale.
"""

import dataclasses
import hashlib
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
KIT = HERE.parent / "oracle"
sys.path[:0] = [str(KIT), str(HERE)]

import cases as table  # noqa: E402
import configs  # noqa: E402

TIMEOUT = 900


@dataclasses.dataclass
class Answer:
    """One checkpoint in one numerics: per run, the ids and the rows."""

    folder: Path
    runs: dict  # run name -> {"prompt": [...], "tokens": [...], "logits": float32 [rows, vocab]}


class Skip(str):
    """Why there is no such checkpoint."""


SOURCES = ["tiny.py", "golden.py", "tokenizer.py", "hf_layout.py", "shims.py", "requirements.txt"]
CANNOT = "cannot.txt"  # in an entry: why its checkpoint cannot be made


def source_digest():
    digest = hashlib.sha256()
    for file in [*(KIT / name for name in SOURCES), HERE / "reference.py"]:
        digest.update(file.read_bytes())
    return digest.hexdigest()


class Store:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.source = source_digest()

    def entry(self, case):
        runs = {name: {k: v for k, v in table.RUNS[name].items() if k != "tern"} for name in case.runs}
        facts = {k: v for k, v in dataclasses.asdict(case).items() if k not in ("form", "skip")}
        what = [facts, configs.CONFIGS[case.config], runs, table.STEPS, self.source]
        digest = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:12]
        return self.folder / f"{re.sub('[^a-zA-Z0-9_.-]', '-', case.name)}-{digest}"

    def collect(self, cases, log=print, jobs=1):
        def lacks(case):
            entry = self.entry(case)
            return not (entry / CANNOT).exists() and not all((entry / f"{n}.npz").exists() for n in case.numerics)

        wanted = [c for c in cases if not c.skip]
        missing = [c for c in wanted if lacks(c)]
        if missing:
            log(f"reference: {len(missing)} of {len(wanted)} cases to compute", flush=True)
        errors = {}
        with ThreadPoolExecutor(jobs) as pool:
            for found in pool.map(self.complete, [missing[i::jobs] for i in range(jobs)]):
                errors.update(found)
        answers = {}
        for case in cases:
            cannot = self.entry(case) / CANNOT
            skip = case.skip or (cannot.exists() and cannot.read_text())
            for numerics in case.numerics:
                file = self.entry(case) / f"{numerics}.npz"
                if skip:
                    answers[case.name, numerics] = Skip(skip)
                elif file.exists():
                    answers[case.name, numerics] = read(file)
                else:
                    answers[case.name, numerics] = errors.get(case.name, "the reference left no result")
        return answers

    def complete(self, missing):
        """Computes the cases, with as many workers one after another as it takes. {case name: error}"""
        errors = {}
        while missing:
            done, why = self.work(missing)
            errors.update({c.name: e for c, e in done if e})
            missing = missing[len(done) :]
            if missing and not (done and done[-1][1]):  # the worker died in this one
                errors[missing[0].name] = why
                missing = missing[1:]
        return errors

    def work(self, cases):
        """One worker over the cases. Returns ([(case, error or None)] for those it finished, why it ended)."""
        jobs = json.dumps([{"case": dataclasses.asdict(c), "entry": str(self.entry(c))} for c in cases])
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
        )
        try:
            out, err = process.communicate(jobs, timeout=TIMEOUT + 5 * len(cases))
            why = f"the reference died, status {process.returncode}: {err.strip().splitlines()[-1:]}"
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
            why = "the reference ran out of time"
        finished = [json.loads(line) for line in out.splitlines() if line.startswith('{"error"')]
        return [(c, f["error"]) for c, f in zip(cases, finished)], why


def read(file):
    with np.load(file) as arrays:
        meta = json.loads(str(arrays["meta"]))
        return Answer(file.parent / "model", {name: {**facts, "logits": arrays[name]} for name, facts in meta.items()})


# ---- the worker


def finite(logits):
    if not np.isfinite(logits).all():
        raise RuntimeError("logits are not finite")
    return logits


def pieces(model, ids, chunk):
    """Rows of every position when the prompt is read as generate_step reads it: all but the last id, then the last."""
    import golden
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache

    cache, rows = make_prompt_cache(model), []
    body, last = ids[:-1], ids[-1:]
    for part in [body[i : i + chunk] for i in range(0, len(body), chunk)] + [last]:
        rows.append(golden.to_numpy(model(mx.array(part)[None], cache=cache)[0]))
    return np.concatenate(rows)


def convert(model, cache, ids, bits, group):
    """The caches quantised; empty ones get a row of `ids` and lose it, since an empty QuantizedKVCache makes buffers of a
    wrong size for some widths."""
    import mlx.core as mx

    empty = cache[0].offset == 0
    if empty:
        model(mx.array(ids[:1])[None], cache=cache)
    for c in cache:
        c.trim(1 if empty else 0)
    cache = [c.to_quantized(group_size=group, bits=bits) for c in cache]
    mx.eval([c.state for c in cache])
    return cache


def quantised(model, ids, steps, run, forced):
    """A run with quantised keys and values. generate_step converts its caches behind a piece, so the prompt is read up to
    the start first and the caches are converted there; where the start lies behind the prompt, its own rule does that."""
    import golden
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache

    bits, group, start = run["kv"]
    if start >= len(ids) - 1:
        late = {"kv_bits": bits, "kv_group": group, "kv_start": start}
        return golden.generate(model, ids, steps, run["chunk"], forced=forced, **late)
    cache = make_prompt_cache(model)
    if start:
        model(mx.array(ids[:start])[None], cache=cache)
    cache = convert(model, cache, ids, bits, group)
    return golden.generate(model, ids[start:], steps, run["chunk"], forced=forced, cache=cache)


def answer(model, case, run):
    import golden

    ids = golden.prompt_ids(case.prompt + table.STEPS, case.seed)
    prompt, continuation = ids[: case.prompt], ids[case.prompt :]
    if run.get("whole"):
        return {"prompt": prompt, "tokens": []}, golden.whole_prompt(model, prompt)
    if run.get("kv"):
        logits, tokens, _ = quantised(model, prompt, table.STEPS, run, continuation)
        return {"prompt": prompt, "tokens": tokens}, finite(logits)
    logits, tokens, _ = golden.generate(
        model,
        prompt,
        table.STEPS,
        run["chunk"],
        forced=continuation if run["forced"] else None,
        max_kv_size=run.get("max_kv_size"),
    )
    if run.get("all"):
        before = pieces(model, prompt, run["chunk"])
        if not np.array_equal(before[-1], logits[0]):
            raise RuntimeError("the reference's own two ways of reading a prompt differ")
        logits = np.concatenate([before[:-1], logits])
    return {"prompt": prompt, "tokens": tokens}, finite(logits)


def make(case, model_dir):
    """The checkpoint of a case, unless it is there."""
    import tiny

    if not (model_dir / "tokenizer.json").exists():  # written last
        tiny.build(
            case.config,
            model_dir,
            case.seed,
            case.dtype,
            case.quant or None,
            case.mode,
            shards=case.shards,
            hf=case.hf or None,
            shim=case.shim,
            overrides=case.overrides,
            types=case.types,
            extras=case.extras,
        )


def compute(case, entry):
    import golden
    import tiny

    model_dir = entry / "model"
    try:
        make(case, model_dir)
    except tiny.CannotMake as why:
        entry.mkdir(parents=True, exist_ok=True)
        (entry / CANNOT).write_text(str(why))
        return
    for numerics in case.numerics:
        model = golden.load(model_dir, numerics, case.shim)
        meta, arrays = {}, {}
        for name in case.runs:
            meta[name], arrays[name] = answer(model, case, table.RUNS[name])
        partial = entry / f"{numerics}.partial.npz"
        np.savez(partial, meta=json.dumps(meta), **arrays)
        partial.rename(entry / f"{numerics}.npz")


def worker():
    for job in json.load(sys.stdin):
        fields = {k: tuple(v) if isinstance(v, list) else v for k, v in job["case"].items()}
        error = None
        try:
            compute(table.Case(**fields), Path(job["entry"]))
        except Exception as e:
            error = f"{type(e).__name__}: {e}".splitlines()[0][:200]
        print(json.dumps({"error": error}), flush=True)
        if error:
            return  # after an error inside MLX the process is not usable


if __name__ == "__main__":
    worker()
