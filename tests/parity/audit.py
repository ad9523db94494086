"""A rule that lets a loader drop a tensor has to match in some tested checkpoint: a rule that never does is either dead or
untested, and may hide a tensor that matters.

Runs `tern inspect --json` over every tiny checkpoint that the live comparison made (tests named parity.FAMILY, run
before) and gathers its "drop_rules". A rule that none of them meets gets a checkpoint of its own: one of theirs with a
tensor more that the rule names, whose logits may not change. It also wants a checkpoint with one tensor more than the
architecture knows to be refused, and one with a tensor missing, naming the tensor.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "oracle")]

import cases  # noqa: E402
import terncli  # noqa: E402
from reference import Skip, Store  # noqa: E402
from tally import Tally  # noqa: E402


def refused(tally, folder, change, named):
    """The checkpoint with one tensor more or less has to fail, by that tensor's name."""
    import mlx.core as mx

    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "model"
        shutil.copytree(folder, copy)
        for index in copy.glob("*.index.json"):
            index.unlink()
        weights = dict(mx.load(str(folder / "model.safetensors")))
        change(weights)
        mx.save_safetensors(str(copy / "model.safetensors"), weights, metadata={"format": "mlx"})
        for args in (["inspect", copy], ["logits", copy, "--ids", "1,2", "--out", "/dev/null"]):
            done = terncli.tern(*args)
            tally.check(
                f"{args[0]}: {named} is named",
                done.status == 1 and named in done.error_line,
                f"exit {done.status}: {done.error_line}",
            )


def named_by(rule):
    """A tensor's name that the rule matches."""
    pattern = rule["pattern"]
    return {"module": f"{pattern}.weight", "contains": f"model.layers.0.{pattern}", "exact": pattern, "prefix": f"{pattern}weight", "suffix": f"model.layers.0{pattern}"}[
        rule["match"]
    ]


PARTS = (".weight", ".scales", ".biases")
EMBEDDINGS = ("embed_tokens", "wte", "tok_embeddings", "token_embeddings", "embed_in")


def tie(config):
    for part in (config, config.get("text_config") or {}):
        part["tie_word_embeddings"] = True


class Variation:
    """A copy of a checkpoint whose tensors and config may be changed, and what tern says of it."""

    def __init__(self, folder, scratch):
        import mlx.core as mx

        self.folder, self.scratch = Path(scratch) / "model", Path(scratch)
        shutil.copytree(folder, self.folder, ignore=shutil.ignore_patterns("*.index.json"))
        self.weights = dict(mx.load(str(folder / "model.safetensors")))
        self.config = json.loads((folder / "config.json").read_text())

    def save(self):
        import mlx.core as mx

        mx.save_safetensors(str(self.folder / "model.safetensors"), self.weights, metadata={"format": "mlx"})
        (self.folder / "config.json").write_text(json.dumps(self.config))

    def inspect(self):
        self.save()
        return terncli.tern("inspect", self.folder, "--json")

    def logits(self):
        out = self.scratch / "logits"
        done = terncli.tern("logits", self.folder, "--ids", "1,2,3", "--out", out)
        return out.read_bytes() if done.status == 0 else done.error_line


def meet(tally, arch, folder, rule):
    """A checkpoint that has what the rule drops: it is met, and changes no logits."""
    import mlx.core as mx

    label = f"{arch}: drop rule {rule['pattern']}"
    with tempfile.TemporaryDirectory() as scratch:
        v = Variation(folder, scratch)
        more = {named_by(rule): mx.ones((4, 4))}
        if rule["if_tied"]:
            tie(v.config)
            head = rule["pattern"].removesuffix(".weight")
            v.weights = {k: w for k, w in v.weights.items() if not k.removeprefix("language_model.").startswith(head + ".")}
            table = next(k for k in v.weights if k.endswith(".weight") and k.split(".")[-2] in EMBEDDINGS).removesuffix(".weight")
            parts = PARTS if rule["match"] == "module" else PARTS[:1]
            more = {head + part: v.weights[table + part] for part in parts if table + part in v.weights}
        done = v.inspect()
        if rule["if_tied"] and done.status != 0:
            return tally.check(f"{label} has no part: it is never tied", "not in the checkpoint" in done.error_line, done.error_line)
        if not tally.check(f"{label}: the checkpoint without it", done.status == 0, done.error_line):
            return
        plain = v.logits()
        v.weights.update(more)
        done = v.inspect()
        met = done.status == 0 and any(r["pattern"] == rule["pattern"] and r["matched"] for r in json.loads(done.out)["drop_rules"])
        tally.check(label, met, done.error_line or "it did not match")
        tally.check(f"{label}: the same logits", v.logits() == plain, "other logits")
        if rule["copy"]:
            v.weights[rule["pattern"] + ".weight"] = v.weights[rule["pattern"] + ".weight"][::-1]
            done = v.inspect()
            named = done.status == 1 and rule["pattern"] + ".weight" in done.error_line
            tally.check(f"{label}: a head of its own is refused", named, f"exit {done.status}: {done.error_line}")


def main():
    tally, rules, homes = Tally(), {}, {}
    chosen = [c for c in cases.ci() if not c.skip]
    answers = Store(terncli.BUILD / "parity").collect(chosen)
    folders = {c.name: a.folder for c in chosen if not isinstance(a := answers[c.name, c.numerics[0]], str)}
    for case in chosen:
        if isinstance(answers[case.name, case.numerics[0]], Skip):
            continue
        if case.name not in folders:
            tally.fail(f"inspect {case.name}", answers[case.name, case.numerics[0]])
            continue
        done = terncli.tern("inspect", folders[case.name], "--json")
        if not tally.check(f"inspect {case.name}", done.status == 0, done.error_line):
            continue
        for rule in json.loads(done.out)["drop_rules"]:
            key = case.arch, rule["pattern"]
            rules[key] = rules.get(key, 0) + rule["matched"]
            if (folders[case.name] / "model.safetensors").exists():
                homes.setdefault(key, (folders[case.name], rule))
    for key, matched in sorted(rules.items()):
        if matched:
            tally.check(f"{key[0]}: drop rule {key[1]}", True)
        elif key in homes:
            meet(tally, key[0], *homes[key])
        else:
            tally.fail(f"{key[0]}: drop rule {key[1]}", "matches nothing in any tested checkpoint")
    if not rules:
        tally.fail("drop rules", "no checkpoint reported any")

    import mlx.core as mx

    extra, gone = "model.layers.0.self_attn.surprise.weight", "model.layers.1.mlp.up_proj.weight"
    for name in ("llama/bf16", "gemma3_text/bf16"):
        refused(tally, folders[name], lambda w: w.update({extra: mx.ones((4, 4))}), extra)
        refused(tally, folders[name], lambda w: w.pop(gone), gone)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
