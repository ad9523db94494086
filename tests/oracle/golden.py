"""Run the reference on a checkpoint and store its logits.

    python golden.py MODELDIR --out FILE.bin|FILE.npz --numerics exact|native --prompt-len N
                     --steps S [--chunk C] [--forced] [--all-positions] [--kv-bits B [--kv-group G]] [--shim]

FILE.bin    little-endian float32, [S, vocab], row-major; FILE.bin.json describes it.
            With --all-positions FILE.prompt.bin holds [N, vocab] from one forward of the whole prompt.
FILE.npz    the same arrays as `logits` and `prompt_logits`, the description as `meta`.
"""

import argparse
import hashlib
import json
import struct
from pathlib import Path

import numpy as np

import shims


def prompt_ids(n, seed=0, limit=256):
    """x starts at seed; x = (1103515245 x + 12345) mod 2^31; id = (x >> 16) mod limit."""
    ids, x = [], seed
    for _ in range(n):
        x = (1103515245 * x + 12345) % 2**31
        ids.append((x >> 16) % limit)
    return ids


def load(folder, numerics="native", shim=False):
    model_type = json.loads((Path(folder) / "config.json").read_text())["model_type"]
    if shim:
        shims.before_import(model_type)
    import mlx.core as mx
    from mlx_lm import utils

    model, _ = utils.load_model(Path(folder))
    if shim:
        shims.after_load(model_type, model)
    if numerics == "exact":
        model.set_dtype(mx.float32)
        mx.eval(model.parameters())
    return model


def generate(model, ids, steps, chunk=2048, kv_bits=None, kv_group=64, forced=None, max_kv_size=None, kv_start=0, cache=None):
    """Decode through mlx_lm's own generate_step, greedily or along the forced ids. `cache`: what stands before `ids`.

    Returns logits [steps, vocab], the tokens fed and the dtype of the logits.
    """
    import mlx.core as mx
    from mlx_lm.generate import generate_step

    rows = []

    def keep(_, logits):
        rows.append(logits[0])
        return logits

    queue = iter(forced or [])
    stream = generate_step(
        mx.array(ids),
        model,
        max_tokens=steps,
        sampler=(lambda _: mx.array([next(queue, 0)])) if forced else None,
        logits_processors=[keep],
        prefill_step_size=chunk,
        kv_bits=kv_bits,
        kv_group_size=kv_group,
        max_kv_size=max_kv_size,
        quantized_kv_start=kv_start,
        prompt_cache=cache,
    )
    tokens = [token for token, _ in stream]
    logits = mx.stack(rows[:steps])
    return to_numpy(logits), tokens, str(logits.dtype).removeprefix("mlx.core.")


def whole_prompt(model, ids):
    """Logits [len(ids), vocab] of every position, from a single forward over a fresh cache."""
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache

    return to_numpy(model(mx.array(ids)[None], cache=make_prompt_cache(model))[0])


def to_numpy(array):
    import mlx.core as mx

    return np.array(array.astype(mx.float32))


def versions():
    import platform
    from importlib.metadata import version

    names = ["mlx", "mlx-cpu", "mlx-lm"]
    return {**{n: version(n) for n in names}, "libc": "-".join(platform.libc_ver()), "machine": platform.machine()}


def write(out, logits, prompt_logits, meta):
    out = Path(out)
    if out.suffix == ".npz":
        extra = {} if prompt_logits is None else {"prompt_logits": prompt_logits}
        np.savez(out, logits=logits, meta=json.dumps(meta), **extra)
        return
    logits.astype("<f4").tofile(out)
    if prompt_logits is not None:
        prompt_logits.astype("<f4").tofile(out.with_suffix(".prompt.bin"))
    Path(f"{out}.json").write_text(json.dumps(meta, indent=2) + "\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", metavar="MODELDIR")
    p.add_argument("--out", required=True)
    p.add_argument("--numerics", choices=["exact", "native"], default="exact")
    p.add_argument("--prompt-len", type=int, default=20)
    p.add_argument("--prompt-seed", type=int, default=0)
    p.add_argument("--steps", type=int, default=8)
    p.add_argument("--chunk", type=int, default=2048, help="prefill_step_size")
    p.add_argument("--forced", action="store_true", help="feed the ids that continue the prompt, not the greedy ones")
    p.add_argument("--all-positions", action="store_true")
    p.add_argument("--kv-bits", type=int)
    p.add_argument("--kv-group", type=int, default=64)
    p.add_argument("--shim", action="store_true")
    a = p.parse_args()

    model = load(a.model, a.numerics, a.shim)
    ids = prompt_ids(a.prompt_len + a.steps, a.prompt_seed)
    ids, continuation = ids[: a.prompt_len], ids[a.prompt_len :]
    forced = continuation if a.forced else None
    logits, tokens, dtype = generate(model, ids, a.steps, a.chunk, a.kv_bits, a.kv_group, forced)
    prompt_logits = whole_prompt(model, ids) if a.all_positions else None
    meta = {
        "numerics": a.numerics,
        "logits_dtype": dtype,
        "shape": list(logits.shape),
        "prompt": ids,
        "tokens": tokens,
        "forced": a.forced,
        "chunk": a.chunk,
        "kv_bits": a.kv_bits,
        "kv_group": a.kv_group if a.kv_bits else None,
        "shim": a.shim,
        "sha256": hashlib.sha256(logits.astype("<f4").tobytes()).hexdigest(),
        "first_words": [f"{w:08x}" for w in struct.unpack("<4I", logits[0, :4].astype("<f4").tobytes())],
        "versions": versions(),
    }
    write(a.out, logits, prompt_logits, meta)
    print(f"{a.out}: {logits.shape} {dtype} std {logits.std():.3f} tokens {tokens}")


if __name__ == "__main__":
    main()
