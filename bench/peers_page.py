"""The Markdown page of a report of bench/peers.py: peers_page.py FILE.json prints it again."""

import json
import sys
from pathlib import Path


def number(x):
    return f"{x:.3g}" if abs(x) < 100 else f"{x:.0f}"


def cell(result):
    if result is None:
        return "–"
    if "median" not in result:
        return "no number" if "refused" in result else "–"
    spread = f" ({number(result['least'])}–{number(result['most'])})" if result["least"] != result["most"] else ""
    return number(result["median"]) + spread


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(r) + " |" for r in rows])


def unit(row):
    return "seconds" if row["kind"] == "first" else "tokens/s"


def rates(model, names):
    """One line a row: what each engine reached, then tern's speed over each peer's."""
    pairs = list(dict.fromkeys(p for row in model["rows"] for p in row["ratios"]))
    lines = []
    for row in model["rows"]:
        cells = [cell(row["results"].get(n)) for n in names]
        lines.append([f"{row['label']}, {unit(row)}", *cells, *(f"{row['ratios'][p]:.2f}" if p in row["ratios"] else "–" for p in pairs)])
    return table(["", *names, *pairs], lines)


def memory(model, names):
    lines = []
    for row in model["rows"]:
        peaks = [row["results"].get(n, {}).get("peak_mb") for n in names]
        lines.append([row["label"], *(f"{p:.0f}" if p else "–" for p in peaks)])
    return table(["peak memory, MB", *names], lines)


def opened(model):
    """What `tern bench` itself took to open, of all its processes."""
    parts = []
    names = dict.fromkeys(n for row in model["rows"] for n in row["results"] if n.startswith("tern "))
    for name in names:
        facts = [s["facts"] for row in model["rows"] for s in row["results"].get(name, {}).get("samples", []) if "open_ms" in s["facts"]]
        if facts:
            times = sorted(f["open_ms"] for f in facts)
            how = "prepared" if all(f["prepared"] for f in facts) else "as mapped"
            parts.append(f"{name} opens in {number(times[len(times) // 2])} ms ({number(times[0])}–{number(times[-1])}), weights {how}.")
    return " ".join(parts)


def notes(model):
    """Which settings the rows have, and once each what an engine said where it has no number."""
    out, refusals = [], {}
    for row in model["rows"]:
        said = [f"{n} {r['setting']}" for n, r in row["results"].items() if r.get("setting") and "median" in r]
        said += [f"{n} with {r['samples'][0]['facts']['n']} tokens" for n, r in row["results"].items() if r["samples"] and "n" in r["samples"][0]["facts"]]
        if said:
            out.append(f"- {row['label']}: " + "; ".join(said))
        for n, r in row["results"].items():
            if "refused" in r:
                refusals.setdefault((n, r["refused"]), []).append(row["label"])
    out += [f"- {n} has no number ({'; '.join(rows)}): `{why}`" for (n, why), rows in refusals.items()]
    return "\n".join(out)


def sizes(model):
    return ", ".join(f"{n} {b / 1e6:.0f} MB" for n, b in model["bytes"].items())


def section(model, engines):
    names = [e["name"] for e in engines if any(e["name"] in row["results"] for row in model["rows"])]
    parts = [f"## {model['name']}", f"Files: {sizes(model)}. {opened(model)}", rates(model, names), memory(model, names), notes(model)]
    return "\n\n".join(p for p in parts if p)


def busy(report):
    others = sorted(s["others"] for m in report["models"] for row in m["rows"] for r in row["results"].values() for s in r["samples"])
    if not others:
        return ""
    middle, most = others[len(others) // 2], others[-1]
    warning = " **The machine was not idle: these numbers are only good for trying the script.**" if middle > 0.1 else ""
    return f"Load before: {report['machine']['load']:.1f}; cores busy with other work during samples: median {middle:.2f}, most {most:.2f}.{warning}"


def page(report):
    m = report["machine"]
    machine = (f"{m['cpu']}, {m['cores']} cores, {m['simd']}, {m['memory_gb']:.0f} GB, memory reads at {m['bandwidth_gb_s']:.1f} GB/s, Linux {m['kernel']}; "
               f"threads: {m['threads']}. {busy(report)}")  # fmt: skip
    protocol = (f"Medians (least–most) of {report['rounds']} rounds, engines in turn; ratios are of medians, above 1 where tern is faster. Batches: tokens of all "
                "sequences. *open, one token*: a whole process, file in the page cache. Each row has the peer's fastest setting. Protocol: bench/README.md; "
                "every sample: the JSON file beside this page.")  # fmt: skip
    engines = table(["engine", "version", "settings tried"], [[e["name"], e["version"], "; ".join(e["settings"]) or "–"] for e in report["engines"]])
    head = f"# tern beside other engines, {report['date']}"
    return "\n\n".join([head, machine, protocol, engines, *(section(x, report["engines"]) for x in report["models"] if x["rows"])]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page(json.loads(Path(sys.argv[1]).read_text())))
