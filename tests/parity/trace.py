"""Finds the op at which tern and the reference part.

    trace.py CASE|DIR [FORMAT] [NUMERICS] [--chunk N] [--steps N] [-v]

Makes the tiny checkpoint of CASE (tests/oracle/configs.py) in FORMAT (cases.FORMATS, default bf16), or takes the
checkpoint DIR; runs `tern logits --trace` and the reference with hooks (hooks.py) over the same pieces, and aligns them
by value: for each output of a tern op, in order, it looks for an array of the reference with the same bits, taken as
[tokens, heads * dim], in the order of memory or with heads and tokens exchanged, or its last row. Nobody has to say what
corresponds to what.

The first output without a counterpart is the verdict, with the nearest array of the reference. An output in a layer whose
last output is equal is no difference: the reference merely never holds that value by itself (verbose mode lists these).
The last line of what is printed is the verdict; exit status 1 where there is a difference.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "oracle")]

import numpy as np  # noqa: E402

import cases  # noqa: E402
import configs  # noqa: E402
import reference  # noqa: E402
import terncli  # noqa: E402


# ---- the two sides


def tern_outputs(job):
    """Forward passes of tern, each a list of (facts of the index, float32 array [rows, width])."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "trace"
        flags = ["--numerics", job["numerics"], "--trace", file, *job.get("flags", [])]
        if job.get("whole"):
            flags += ["--split", "one"]
        else:
            flags += ["--split", "mlx", "--prefill-step-size", job["chunk"]]
        if job.get("max_kv_size"):
            flags += ["--max-kv-size", job["max_kv_size"]]
        if job.get("kv"):
            flags += [x for pair in zip(("--kv-bits", "--kv-group-size", "--quantized-kv-start"), job["kv"]) for x in pair]
        terncli.logits(job["model"], job["prompt"], *flags, feed=job["feed"])
        data = Path(f"{file}.f32").read_bytes()
        lines = [json.loads(line) for line in file.read_text().splitlines()]
    forwards = []
    for line in lines:
        array = np.frombuffer(data, "<f4", line["rows"] * line["width"], line["offset"])
        if not forwards or forwards[-1][0][0]["position"] != line["position"]:
            forwards.append([])
        forwards[-1].append((line, array.reshape(line["rows"], line["width"])))
    return forwards


def reference_arrays(job):
    """Forward passes of the reference, each a list of (name, float32 array)."""
    import golden
    import mlx.core as mx
    from hooks import Recorder
    from mlx_lm.models.cache import make_prompt_cache

    model = golden.load(job["model"], job["numerics"], job.get("shim", False))
    cache = make_prompt_cache(model, job.get("max_kv_size"))
    ids = job["prompt"]
    body, last = (ids, []) if job.get("whole") else (ids[:-1], ids[-1:])
    bits, group, start = job.get("kv") or (0, 0, 0)
    parts = [part for part in (body[:start], body[start:]) if part]
    pieces = [part[i : i + job["chunk"]] for part in parts for i in range(0, len(part), job["chunk"])]
    pieces += [[i] for i in [*last, *job["feed"]]]
    read = 0
    if bits and start == 0:
        cache = reference.convert(model, cache, ids, bits, group)
    with Recorder(model) as recorder:
        for piece in pieces:
            if bits and 0 < start == read:
                cache = reference.convert(model, cache, [], bits, group)
            with recorder.forward():
                mx.eval(model(mx.array(piece)[None], cache=cache))
            read += len(piece)
    return recorder.forwards


# ---- alignment by value


def readings(array):
    """The ways in which an array may be [tokens, heads * dim]: flat arrays of its values, whole or the last token's."""
    yield array.reshape(-1)
    if array.ndim >= 2:
        yield array[..., -1:, :].reshape(-1)
        yield np.swapaxes(array, -1, -2).reshape(-1)
    if array.ndim >= 3:
        yield np.swapaxes(array, -3, -2).reshape(-1)
        yield array[..., -1:, :, :].reshape(-1)


def layers_of(outputs):
    """Index of the last output of each output's layer; what stands before a layer counts to it."""
    ends, end = [0] * len(outputs), len(outputs) - 1
    for i in range(len(outputs) - 1, -1, -1):
        here, after = outputs[i][0]["layer"], outputs[i + 1][0]["layer"] if i + 1 < len(outputs) else None
        if after is not None and here != after and here >= 0:
            end = i
        ends[i] = end
    return ends


def nearest(values, arrays):
    """(name, largest difference, index of the first, its value) of the array of this size that comes closest, or None.

    Closest by the mean of |a - b| / max(|a|, |b|): an array in which only some values differ comes before one that is
    merely small."""
    best, least = None, None
    wide = values.astype(np.float64)
    for name, array in arrays:
        for reading in readings(array):
            if reading.size != values.size:
                continue
            far = np.abs(reading - wide)
            score = float(np.mean(far / np.maximum(np.maximum(np.abs(reading), np.abs(wide)), 1e-30)))
            if best is None or score < least:
                first = int((reading.view(np.uint32) != values.view(np.uint32)).argmax())
                best, least = (name, float(far.max()), first, float(reading[first])), score
    return best


def align(forwards, references):
    """({"equal", "hidden": [facts], "verdict": None or text}, in words)."""
    equal, hidden = 0, []
    if len(forwards) != len(references):
        return equal, hidden, f"{len(forwards)} forward passes, the reference has {len(references)}"
    for number, (outputs, arrays) in enumerate(zip(forwards, references)):
        known = {}
        for name, array in arrays:
            for reading in readings(array):
                known.setdefault(reading.tobytes(), name)
        found = [known.get(array.tobytes()) for _, array in outputs]
        for i, end in enumerate(layers_of(outputs)):
            if found[i]:
                equal += 1
            elif found[end] or outputs[i][0]["op"] == "regroup":  # a copy in another order, which the reference never holds
                hidden.append((number, outputs[i][0]))
            else:
                return equal, hidden, tell(number, *outputs[i], arrays)
    return equal, hidden, None


def place(number, facts):
    layer = f"layer {facts['layer']}" if facts["layer"] >= 0 else "outside the layers"
    of = f" of {facts['of']}" if facts.get("of") else ""
    return f"forward {number} (from position {facts['position']}), {layer}, op {facts['op']}, output {facts['output']}{of}"


def tell(number, facts, array, arrays):
    text = f"first difference: {place(number, facts)} [{facts['rows']}, {facts['width']}]: "
    best = nearest(np.ascontiguousarray(array).reshape(-1), arrays)
    if not best:
        return text + "the reference has no array of this size"
    name, far, first, value = best
    row, column = divmod(first, facts["width"])
    return text + (
        f"nearest is {name}, {far:.3g} away at most, first at row {row}, column {column}: "
        f"{array[row, column]:.9g}, the reference has {value:.9g}"
    )


def run(job, verbose=False):
    """Prints; returns the verdict (text) and whether all is equal."""
    equal, hidden, verdict = align(tern_outputs(job), reference_arrays(job))
    if verbose:
        for number, facts in hidden:
            print(f"not held by the reference: {place(number, facts)}")
    if verdict:
        return verdict, False
    return f"no difference: {equal} outputs equal, {len(hidden)} that the reference does not hold by themselves", True


def verdict_of(job, timeout=600):
    """The verdict on one failing comparison, from a process of its own. For run_live.py."""
    try:
        done = subprocess.run(
            [sys.executable, __file__, "--job", "-"], input=json.dumps(job), capture_output=True, text=True, timeout=timeout
        )
    except subprocess.TimeoutExpired:
        return "trace: ran out of time"
    lines = (done.stdout if done.stdout.strip() else done.stderr).strip().splitlines()
    return lines[-1][:600] if lines else f"trace: status {done.returncode}"


def job_of(case, numerics, folder, prompt, feed, spec):
    """What to trace for one run of a case (cases.RUNS)."""
    keys = {k: spec[k] for k in ("whole", "max_kv_size", "kv") if k in spec}
    return {"model": str(folder), "numerics": numerics, "prompt": prompt, "feed": feed, "chunk": spec.get("chunk", 2048), "shim": case.shim, **keys}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("case", nargs="?", metavar="CASE|DIR", help="as in tests/oracle/configs.py, or a checkpoint")
    p.add_argument("words", nargs="*", metavar="FORMAT|NUMERICS", help=f"{', '.join(cases.FORMATS)}; exact, native")
    p.add_argument("--chunk", type=int, default=2048, help="prefill_step_size")
    p.add_argument("--prompt", type=int, default=cases.PROMPT, help="ids of the prompt")
    p.add_argument("--steps", type=int, default=cases.STEPS - 1, help="decode steps")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--shim", action="store_true", help="tests/oracle/shims.py")
    p.add_argument("--job", help=argparse.SUPPRESS)
    p.add_argument("-v", "--verbose", action="store_true", help="lists the outputs without a counterpart of their own")
    a = p.parse_args()
    if a.job:
        job = json.load(sys.stdin)
        verdict, same = run(job)
        print(verdict)
        return 0 if same else 1
    form, numerics = "bf16", "exact"
    for word in a.words:
        if word in cases.FORMATS:
            form = word
        elif word in ("exact", "native"):
            numerics = word
        else:
            p.error(f"{word} is no format and no numerics")
    given = Path(a.case or "", "config.json").exists()
    if not given and a.case not in configs.CONFIGS:
        p.error(f"{a.case} is neither a case of tests/oracle/configs.py nor a checkpoint")

    import golden
    import reference

    ids = golden.prompt_ids(a.prompt + a.steps, a.seed)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(a.case if given else f"{scratch}/model")
        made = {k: v for k, v in cases.FORMATS[form].items() if k != "numerics"}
        case = cases.Case("", "" if given else a.case, seed=a.seed, shim=a.shim, **made)
        if not given:
            reference.make(case, folder)
        job = job_of(case, numerics, folder, ids[: a.prompt], ids[a.prompt :], {"chunk": a.chunk})
        verdict, same = run(job, a.verbose)
    print(verdict)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
