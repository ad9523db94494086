"""mlx-lm as a peer of bench/peers.py, run by a Python that has it (scripts/oracle.sh makes one).

mlx_peer.py rate DIR prompt|decode N     one JSON line: tokens/s in float32, after an untimed token
mlx_peer.py quantise DIR OUT             mlx-lm's own 4 bits in groups of 64 of every matrix, from whatever DIR has
"""

import json
import shutil
import sys
import time
from pathlib import Path

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import dequantize_model, load_model, quantize_model, save_config, save_model


def rate(folder, kind, n):
    model, _ = load_model(Path(folder), lazy=True)
    model.set_dtype(mx.float32)
    mx.eval(model.parameters())
    step = lambda ids, cache: mx.eval(model(mx.array([ids]), cache=cache))
    cache = make_prompt_cache(model)
    step([1], cache)
    start = time.monotonic()
    if kind == "prompt":
        step([2 + i for i in range(n)], make_prompt_cache(model))
    else:
        for i in range(n):
            step([2 + i], cache)
    print(json.dumps({"tok_s": n / (time.monotonic() - start)}))


def quantise(folder, out):
    model, config = load_model(Path(folder), lazy=True)
    model = dequantize_model(model)
    config = {k: v for k, v in config.items() if not k.startswith("quantization")}
    model, config = quantize_model(model, config, 64, 4, quant_predicate=lambda path, module: True)
    model.set_dtype(mx.float16)
    save_model(out, model)
    save_config({**config, "torch_dtype": "float16"}, Path(out) / "config.json")
    for file in Path(folder).glob("tokenizer*"):
        shutil.copy(file, out)


if __name__ == "__main__":
    if sys.argv[1] == "rate":
        rate(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        quantise(sys.argv[2], sys.argv[3])
