"""The trace on golden checkpoints: everything aligns; and where one thing is made different, that one is named."""

import json
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "oracle")]

import trace  # noqa: E402
from tally import Tally  # noqa: E402

GOLDEN = HERE.parent / "golden"
IDS = list(range(40, 61))


def job(model, numerics="exact", **keys):
    return {"model": str(model), "numerics": numerics, "prompt": IDS[:14], "feed": IDS[14:18], "chunk": 2048, **keys}


def changed(folder, scratch, tensor=None, **config):
    """A copy with one tensor scaled by 1.5, or config keys set."""
    import mlx.core as mx

    copy = Path(tempfile.mkdtemp(dir=scratch)) / "model"
    shutil.copytree(folder, copy)
    if tensor:
        weights = dict(mx.load(str(copy / "model.safetensors")))
        weights[tensor] = weights[tensor] * 1.5
        mx.eval(weights)  # before the file that it is read from is written
        mx.save_safetensors(str(copy / "model.safetensors"), weights, metadata={"format": "mlx"})
    file = copy / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **config}))
    return copy


def main():
    tally = Tally()
    for name, numerics, keys in (
        ("qwen3-f16", "exact", {}),
        ("qwen3-f16", "native", {"chunk": 5}),
        ("gemma3-bf16", "native", {}),
        ("llama-4bit", "exact", {"whole": True}),
        ("llama-sliding-8bit", "native", {"chunk": 4}),
        ("qwen2-mxfp4", "exact", {"max_kv_size": 8}),
        ("qwen2-mxfp4", "native", {"kv": (4, 32, 0)}),
        ("llama-4bit", "exact", {"kv": (8, 32, 5)}),
    ):
        outputs, arrays = (f(job(GOLDEN / name / "model", numerics, **keys)) for f in (trace.tern_outputs, trace.reference_arrays))
        equal, hidden, verdict = trace.align(outputs, arrays)
        total = sum(map(len, outputs))
        tally.check(f"{name} [{numerics}] aligns", verdict is None, verdict)
        tally.check(f"{name} [{numerics}]: every output has its counterpart", equal == total, f"{equal} of {total}: {hidden[:2]}")

    # The reference reads the original, tern a copy in which one thing differs.
    original = GOLDEN / "qwen3-f16" / "model"
    arrays = trace.reference_arrays(job(original))
    with tempfile.TemporaryDirectory() as scratch:
        for label, copy, wanted in (
            ("a projection", changed(original, scratch, "model.layers.1.mlp.up_proj.weight"), "layer 1, op linear, output y[1] of model.layers.1.mlp.up_proj.weight"),
            ("a norm", changed(original, scratch, "model.layers.0.self_attn.k_norm.weight"), "layer 0, op rms_norm, output y"),
            ("the rotation", changed(original, scratch, rope_theta=5000.0), "layer 0, op rope, output q [13, 64]: nearest is model.layers.0.self_attn.rope"),
            ("the last norm", changed(original, scratch, "model.norm.weight"), "outside the layers, op rms_norm"),
        ):
            _, _, verdict = trace.align(trace.tern_outputs(job(copy)), arrays)
            tally.check(f"{label} is named", verdict and wanted in verdict and "nearest is" in verdict, verdict)
    verdict = trace.verdict_of(job(original))
    tally.check("in a process of its own", verdict.startswith("no difference: "), verdict)
    verdict = trace.verdict_of(job(original / "nowhere"))
    tally.check("a failure is told", "nowhere" in verdict, verdict)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
