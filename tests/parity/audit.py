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
    return {"contains": f"model.layers.0.{pattern}", "exact": pattern, "prefix": f"{pattern}weight", "suffix": f"model.layers.0{pattern}"}[
        rule["match"]
    ]


def tie(config):
    for part in (config, config.get("text_config") or {}):
        part["tie_word_embeddings"] = True


def meet(tally, arch, folder, rule):
    """A checkpoint that has what the rule drops."""
    import mlx.core as mx

    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "model"
        shutil.copytree(folder, copy)
        weights = dict(mx.load(str(folder / "model.safetensors")))
        config = json.loads((folder / "config.json").read_text())
        if rule["if_tied"]:
            tie(config)
            (copy / "config.json").write_text(json.dumps(config))
        plain = terncli.tern("logits", copy, "--ids", "1,2,3", "--out", Path(scratch) / "plain")
        if rule["if_tied"]:
            done = terncli.tern("inspect", copy, "--json")
            if done.status == 0 and not json.loads(done.out)["config"]["tied"]:
                return tally.check(f"{arch}: drop rule {rule['pattern']} has no part: it is never tied", True)
        weights[named_by(rule)] = mx.ones((4, 4))
        mx.save_safetensors(str(copy / "model.safetensors"), weights, metadata={"format": "mlx"})
        done = terncli.tern("inspect", copy, "--json")
        met = done.status == 0 and any(r["pattern"] == rule["pattern"] and r["matched"] for r in json.loads(done.out)["drop_rules"])
        tally.check(f"{arch}: drop rule {rule['pattern']}", met, done.error_line or "it did not match")
        if plain.status == 0:  # a head that tying makes idle is one tensor too many for the copy without the rule's own
            done = terncli.tern("logits", copy, "--ids", "1,2,3", "--out", Path(scratch) / "more")
            same = done.status == 0 and (Path(scratch) / "plain").read_bytes() == (Path(scratch) / "more").read_bytes()
            tally.check(f"{arch}: logits are the same without {named_by(rule)}", same, done.error_line or "they differ")


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
