"""The random weights of bench/: both files hold the same model in equal bytes, and tern opens either."""

import os
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE.parent), str(ROOT / "tests" / "cli"), str(ROOT / "bench")]

import st  # noqa: E402
import weights  # noqa: E402
from tally import Tally  # noqa: E402
from terncli import TernError, logits  # noqa: E402

BITS = {"q4_0": 4.5, "q4_1": 5.0, "q8_0": 8.5}
IDS = [1, 2, 3, 300, 5, 6, 7]


def matrix_bytes(folder):
    """Bytes of the quantised matrices: in the safetensors file, and in the GGUF file."""
    header, _ = st.read(folder / "model.safetensors")
    spans = {name: header[name]["data_offsets"] for name in st.names(header) if "norm" not in name}
    gguf = weights.kit.File(f"{folder}.gguf")
    return sum(end - begin for begin, end in spans.values()), sum(gguf.raw(n)[2].nbytes for n in gguf.tensors if "norm" not in n)


def check(tally, name, shape, form, folder):
    s = weights.SHAPES[shape]
    weights.make(s, weights.FORMATS[form], folder)
    count = sum(t.rows * t.columns for t in weights.tensors(s) if isinstance(t, weights.Matrix))
    sides = matrix_bytes(folder)
    tally.check(f"{name}: bytes", sides == (count * BITS[form] / 8,) * 2, f"{sides} bytes for {count} weights")
    try:
        answer, rows = logits(folder, IDS, steps=2)
        _, imported = logits(f"{folder}.gguf", IDS, steps=2)
    except TernError as e:
        tally.fail(name, e)
        return
    values = np.frombuffer(rows, np.float32)
    tally.check(f"{name}: order of one", np.isfinite(values).all() and 0.3 < values.std() < 3, f"deviation {values.std()}")
    tally.check(f"{name}: the same model", rows == imported, "the GGUF file's logits differ")
    tally.check(f"{name}: vocabulary", answer["vocab"] == s.vocab)


def check_pieces(tally, scratch):
    """A matrix cut into pieces is whole: a tensor's parts end where the next begin, so its logits are finite."""
    whole, weights.PIECE = weights.PIECE, 128 * 64
    shape, form = weights.SHAPES["tiny"], weights.FORMATS["q4_0"]
    weights.make(shape, form, scratch / "pieces")
    weights.PIECE = whole
    try:
        same = logits(scratch / "pieces", IDS)[1] == logits(f"{scratch / 'pieces'}.gguf", IDS)[1]
        tally.check("pieces: the same model", same)
    except TernError as e:
        tally.fail("pieces", e)
    size = os.path.getsize(scratch / "pieces" / "model.safetensors")
    tally.check("pieces: size", size == os.path.getsize(scratch / "tiny-q4_0" / "model.safetensors"))


def main():
    tally = Tally()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["TERN_HOME"] = scratch  # imports go there
        for shape in ("tiny", "tiny-untied"):
            for form in weights.FORMATS:
                check(tally, f"{shape} {form}", shape, form, Path(scratch) / f"{shape}-{form}")
        check_pieces(tally, Path(scratch))
    sys.exit(tally.close())


if __name__ == "__main__":
    main()
