"""The hidden states that /v1/embeddings pools are the reference's, bit for bit: of what its body gives to its head."""

import struct
import sys
from pathlib import Path

import mlx.core as mx
import mlx_lm.utils
import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from serving import GOLDEN, Server  # noqa: E402
from tally import Tally  # noqa: E402

tally = Tally()
PROMPTS = [[3, 17, 250, 9, 9, 31, 300, 2, 77, 140, 5, 6, 7, 8], [11, 12], list(range(5, 105))]


def main():
    for name in ("llama-4bit", "llama-sliding-8bit", "gemma3-bf16", "qwen2-mxfp4", "qwen3-f16"):
        folder = GOLDEN / name / "model"
        model, _ = mlx_lm.utils.load_model(folder)
        model.set_dtype(mx.float32)
        mx.eval(model.parameters())
        with Server(folder) as s:
            for ids in PROMPTS:
                states = np.array(model.model(mx.array([ids])))[0]
                label = f"{name} {len(ids)}"
                got = s.ask("/v1/embeddings", {"input": ids, "normalize": False})[1]["data"][0]["embedding"]
                tally.check(f"{label}: last", struct.pack(f"<{len(got)}f", *got) == states[-1].tobytes(), got[:4])
                got = s.ask("/v1/embeddings", {"input": ids, "normalize": False, "pooling": "mean"})[1]["data"][0]["embedding"]
                sums = np.zeros(states.shape[1])
                for state in states:
                    sums += state.astype(np.float64)
                tally.check(f"{label}: mean", np.array_equal(np.array(got, np.float32), (sums / len(ids)).astype(np.float32)), got[:4])
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
