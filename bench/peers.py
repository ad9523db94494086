"""tern beside other engines, on the same weights, in one run: peers.py --peer NAME=BIN... [--out PREFIX]

BIN is the folder with a peer's own llama-bench and llama-batched-bench, built by whoever measures. Random weights of the
wanted shapes are written for both sides (bench/weights.py), every row is measured in rounds of one process an engine, in
turn, and PREFIX.md and PREFIX.json are rewritten after each row. bench/README.md tells the protocol.
Standard library only; weights and mlx-lm need a Python of their own (--python, --mlx).
"""

import argparse
import dataclasses
import datetime
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import peers_page
from engines import Case, Ggml, Mlx, Refused, Tern, ask, parsed

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
MODELS = "1B:q4_0,1B:q4_1,1B:q8_0,3B:q4_0,8B:q4_0"
FIRST = Case("first")
TRIALS = 3
CASES = {
    "1B": [Case("prompt", 512), Case("decode", 64), *(Case("decode", 32, batch=b) for b in (8, 16)), Case("decode", 64, depth=8192), FIRST],
    "3B": [Case("prompt", 512), Case("decode", 64), *(Case("decode", 32, batch=b) for b in (8, 16)), FIRST],
    "8B": [Case("prompt", 128), Case("decode", 32), *(Case("decode", 16, batch=b) for b in (8, 16)), FIRST],
    "real": [Case("prompt", 512), Case("decode", 64), FIRST],
    "tiny": [Case("prompt", 32), Case("decode", 8), Case("decode", 8, batch=8), Case("decode", 8, depth=64), FIRST],
}


@dataclass
class Model:
    name: str
    checkpoint: Path
    gguf: Path
    cases: list
    made: bool = False  # by this run: removed after its rows, unless --keep
    own: dict = field(default_factory=dict)  # GGUF files of single peers

    def gguf_of(self, engine):
        return self.own.get(engine.name, self.gguf)


def say(text):
    print(f"{datetime.datetime.now():%H:%M:%S} {text}", file=sys.stderr, flush=True)


# ---- models ----


def random_model(a, shape, form):
    folder = a.work / f"{shape}-{form}"
    if not (folder / "config.json").exists():
        say(f"writing {shape} {form}")
        subprocess.run([a.python, HERE / "weights.py", shape, form, folder], check=True)
    return Model(f"{shape} {form}", folder, Path(f"{folder}.gguf"), CASES[shape], True)


def requantised(a, model, engines):
    """The same model in 4.5 bits a weight by the tools of the engines: mlx-lm's for tern, each peer's own for it."""
    mlx = next((e for e in engines if isinstance(e, Mlx)), None)
    if not mlx:
        raise Refused("re-quantising for tern needs --mlx")
    target = a.work / f"{model.checkpoint.name}-requantised"
    out = Model(f"{model.checkpoint.name} re-quantised", target, None, model.cases, True)
    mlx.quantise(model.checkpoint, target)
    for e in engines:
        if isinstance(e, Ggml):
            out.own[e.name] = a.work / f"{model.checkpoint.name}-{e.name}.gguf"
            e.quantise(model.gguf, out.own[e.name])
    return out


def all_models(a, engines):
    """One after another, each made when its turn comes."""
    for pair in filter(None, a.models.split(",")):
        yield random_model(a, *pair.split(":"))
    for folder in a.real:
        model = Model(folder.name, folder, Path(f"{folder}.gguf"), CASES["real"])
        yield model
        if a.requantise:
            try:
                yield requantised(a, model, engines)
            except Refused as e:
                say(f"{folder.name} is not re-quantised: {e}")


def remove(model):
    shutil.rmtree(model.checkpoint, ignore_errors=True)
    for file in filter(None, [model.gguf, *model.own.values()]):
        file.unlink(missing_ok=True)


# ---- rows ----


def shortened(case):
    """What a setting is tried with."""
    return dataclasses.replace(case, n=min(case.n, 128 if case.kind == "prompt" else 16), depth=min(case.depth, 1024), repeats=1)


def better(case, values):
    return min(values) if case.kind == "first" else max(values)


def choose(engine, model, case):
    """The setting with the fastest of some short trials, in turn, and what each reached."""
    if len(engine.settings) == 1:
        return engine.settings[0], {}
    reached, fault = {}, None
    for _ in range(TRIALS):
        for label, flags in engine.settings:
            try:
                value = better(case, engine.measure(model, shortened(case), flags).values)
                reached[label] = better(case, [value, reached.get(label, value)])
            except Refused as e:
                fault = e
    if not reached:
        raise fault
    best = better(case, reached.values())
    label = next(k for k, v in reached.items() if v == best)
    return (label, dict(engine.settings)[label]), reached


def summary(case, result):
    """Medians over every sample of a result."""
    values = [v for s in result["samples"] for v in s["values"]]
    if not values:
        return
    result |= {"median": statistics.median(values), "least": min(values), "most": max(values)}
    result["peak_mb"] = max(s["peak_mb"] for s in result["samples"])
    result["others"] = statistics.median(s["others"] for s in result["samples"])


def ratios(case, results):
    """Speed of each tern over that of each peer."""
    out = {}
    for ours in (n for n in results if n.startswith("tern ")):
        for peer in (n for n in results if not n.startswith("tern ")):
            a, b = results[ours].get("median"), results[peer].get("median")
            if a and b:
                out[f"{ours} / {peer}"] = b / a if case.kind == "first" else a / b
    return out


def measure_row(a, engines, model, case):
    rounds = a.rounds
    if case.depth >= 1024:  # filling is dear: one process, several repeats
        case, rounds = dataclasses.replace(case, repeats=a.rounds), 1
    results, chosen = {}, {}
    for e in engines:
        if not e.takes(case):
            continue
        results[e.name] = {"samples": []}
        try:
            chosen[e.name], tried = choose(e, model, case)
            results[e.name] |= {"setting": chosen[e.name][0], "trials": tried}
        except Refused as fault:
            results[e.name]["refused"] = str(fault)
    for i in range(rounds):
        for e in engines:
            if e.name not in chosen or isinstance(e, Mlx) and i > 0:
                continue
            try:
                answer = e.measure(model, case, chosen[e.name][1])
                results[e.name]["samples"].append({"round": i, **dataclasses.asdict(answer)})
            except Refused as fault:
                results[e.name]["refused"] = str(fault)
                del chosen[e.name]
    for result in results.values():
        summary(case, result)
    return {**dataclasses.asdict(case), "label": case.label(), "results": results, "ratios": ratios(case, results)}


# ---- the run ----


def measure_model(a, engines, model, report):
    wanted = [c for c in model.cases if re.search(a.only, f"{model.name} {c.label()}")]
    entry = {"name": model.name, "rows": [], "bytes": {"tern": sum(f.stat().st_size for f in model.checkpoint.glob("*.safetensors"))}}
    for e in engines:
        if isinstance(e, Ggml):
            entry["bytes"][e.name] = model.gguf_of(e).stat().st_size
    entry["ready"] = {e.name: e.ready(model) for e in engines} if wanted else {}
    report["models"].append(entry)
    for case in wanted:
        say(f"{model.name}: {case.label()}")
        row = measure_row(a, engines, model, case)
        entry["rows"].append(row)
        say("  " + "; ".join(f"{n} {r['median']:.4g}" if "median" in r else f"{n}: {r.get('refused')}" for n, r in row["results"].items()))
        report["engines"] = [{"name": e.name, "version": e.version, "settings": [s for s, _ in e.settings if s]} for e in engines]
        write(a.out, report)


def write(out, report):
    Path(f"{out}.json").write_text(json.dumps(report, indent=1) + "\n")
    Path(f"{out}.md").write_text(peers_page.page(report))


def facts(a, load):
    doctor = parsed(ask([a.tern, "doctor", "--json"])[0])
    keep = ("cpu", "cores", "simd", "memory_gb", "bandwidth_gb_s")
    return {k: doctor[k] for k in keep} | {"kernel": platform.release(), "load": load, "threads": a.threads}


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--peer", action="append", default=[], metavar="NAME=BIN", help="a ggml engine; repeatable")
    p.add_argument("--commit", action="append", default=[], metavar="NAME=TEXT", help="a peer's version, where its programs do not know it")
    p.add_argument("--mlx", metavar="PYTHON", help="a Python with mlx-lm: float32 rates on the 1B shape, and --requantise")
    p.add_argument("--tern", default=os.environ.get("TERN_BIN", ROOT / "build" / "tern"), metavar="BINARY")
    p.add_argument("--numerics", default="exact,fast", help="modes of tern [exact,fast]; one that it refuses is a row that says so")
    p.add_argument("--models", default=MODELS, help=f"SHAPE:FORMAT,... of bench/weights.py; may be empty [{MODELS}]")
    p.add_argument("--real", nargs="*", type=Path, default=[], metavar="DIR", help="imported models, DIR.gguf beside them")
    p.add_argument("--requantise", action="store_true", help="real models also in 4.5 bits by each engine's own tool")
    p.add_argument("--only", default="", metavar="REGEX", help='rows whose "MODEL ROW" matches')
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--python", default=ROOT / "build" / "oracle" / "bin" / "python", help="a Python with numpy, for bench/weights.py")
    p.add_argument("--work", type=Path, default=ROOT / "build" / "bench", help="where weights are put [build/bench]")
    p.add_argument("--keep", action="store_true", help="leaves weights there")
    p.add_argument("--busy", action="store_true", help="measures although the machine has other work; the page says so")
    p.add_argument("--out", default=HERE / f"{datetime.date.today()}-peers", metavar="PREFIX")
    a = p.parse_args()
    a.work, a.real = a.work.absolute(), [r.absolute() for r in a.real]
    a.tern, a.python, a.mlx = (path and os.path.abspath(path) for path in (a.tern, a.python, a.mlx))
    return a


def main():
    a = arguments()
    load = os.getloadavg()[0]
    if load > 0.5 and not a.busy:
        sys.exit(f"peers: the load is {load:.1f}: wait until the machine is idle, or say --busy")
    a.work.mkdir(parents=True, exist_ok=True)
    home, commits = a.work / "home", dict(c.split("=", 1) for c in a.commit)
    try:
        engines = [Tern(a.tern, n, a.threads, home) for n in a.numerics.split(",")]
        engines += [Ggml(*peer.split("=", 1), a.threads, commits.get(peer.split("=")[0])) for peer in a.peer]
        engines += [Mlx(a.mlx)] if a.mlx else []
        report = {"date": str(datetime.date.today()), "machine": facts(a, load), "rounds": a.rounds, "models": []}
    except Refused as e:
        sys.exit(f"peers: {e}")
    for model in all_models(a, engines):
        asked = engines if model.name.startswith("1B") else [e for e in engines if not isinstance(e, Mlx)]
        measure_model(a, asked, model, report)
        if not a.keep:
            shutil.rmtree(home, ignore_errors=True)  # prepared weights
            if model.made:
                remove(model)
    say(f"{a.out}.md, {a.out}.json")


if __name__ == "__main__":
    main()
