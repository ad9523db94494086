"""Damaged files by the hundred: whatever a byte becomes, tern ends by itself with exit 0 or 1, and 1 says why in one line.

    corrupt.py [ROUNDS [SEED]]        standard library only

Every round takes a good model, damages one of its files (bytes flipped, set, cut out, doubled, the end lost) and runs a verb
that reads that file. The damage is drawn from SEED and the round's number, so that a failure can be repeated: the line
names the round, and `corrupt.py N SEED` with N above it comes by it again.
"""

import random
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import st  # noqa: E402
from tally import Tally  # noqa: E402
from terncli import tern  # noqa: E402

MODELS = sorted(p.parent for p in (HERE.parent / "golden").glob("*/model/config.json"))

# file -> the verb that reads it
READERS = {
    "config.json": ["logits", "--ids", "1,2,3"],
    "model.safetensors": ["logits", "--ids", "1,2,3"],
    "model.safetensors.index.json": ["inspect"],
    "tokenizer.json": ["tokenize", "the sand and rest"],
    "tokenizer_config.json": ["run", "hello", "--max-tokens", "2"],
}


def flip(rng, data, at):
    data[at] ^= 1 << rng.randrange(8)


def put(rng, data, at):
    data[at] = rng.choice(b'\x00\xff{}[]",:0919-eE\\u ntf')


def cut(rng, data, at):
    del data[at : at + rng.randrange(1, 40)]


def double(rng, data, at):
    data[at:at] = data[max(0, at - rng.randrange(1, 40)) : at]


def lose(rng, data, at):
    del data[at:]


def grow(rng, data, at):
    """A number gets another length."""
    digits = [i for i in range(at, min(at + 400, len(data))) if chr(data[i]).isdigit()]
    if digits:
        data[digits[0] : digits[0] + 1] = rng.choice([b"", b"-1", b"1e9", b"99999999999999999999", b"0.5", b"null"])


def damage(rng, file):
    data = bytearray(file.read_bytes())
    # The numbers of a weights file hardly matter; its header does.
    reach = 8 + int.from_bytes(data[:8], "little") if file.suffix == ".safetensors" else len(data)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        if data:
            rng.choice([flip, put, cut, double, lose, grow])(rng, data, rng.randrange(min(reach, len(data))))
    file.write_bytes(data)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    seed = sys.argv[2] if len(sys.argv) > 2 else "1"
    tally = Tally()
    for number in range(rounds):
        rng = random.Random(f"{seed}:{number}")
        name, verb = rng.choice(list(READERS.items()))
        with tempfile.TemporaryDirectory() as scratch:
            folder = st.copy_model(rng.choice(MODELS), Path(scratch) / "subject", index=True)
            damage(rng, folder / name)
            label = f"round {number}, {name}"
            try:
                done = tern(verb[0], folder, *verb[1:])
            except Exception as error:
                tally.fail(label, type(error).__name__)
                continue
            errors = [line for line in done.err.splitlines() if line.startswith("tern: error: ")]
            good = done.status == 0 or (done.status == 1 and len(errors) == 1 and not done.out)
            tally.check(label, good, lambda: f"exit {done.status}: {done.err.strip()[-300:]}")
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
