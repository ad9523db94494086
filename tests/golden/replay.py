"""Replays the committed goldens with `tern parity` (standard library only, no reference), and proves that the replay
notices one wrong bit, a wrong id and a golden that is not whole."""

import hashlib
import json
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from tally import Tally  # noqa: E402
from terncli import tern  # noqa: E402


def flip_bit(folder):
    """The last bit of token 5 in the fourth row, which is decode step 3."""
    rows = folder / "exact-greedy.bin"
    meta = json.loads((folder / "exact-greedy.json").read_text())
    data = bytearray(rows.read_bytes())
    data[4 * (3 * meta["vocab"] + 5)] ^= 1
    rows.write_bytes(data)
    return meta


def main():
    tally = Tally()
    models = sorted(p.parent.parent for p in HERE.glob("*/model/config.json"))
    tally.check("goldens", models, "none are here")
    for folder in models:
        done = tern("parity", folder / "model", "--golden", folder)
        for description in sorted(folder.glob("*.json")):
            said = [line for line in done.out.decode().splitlines() if line.startswith(f"{description.stem}:")]
            tally.check(f"{folder.name}/{description.stem}", said and done.status == 0, f"{said or 'not replayed'}; {done.error_line}")

    with tempfile.TemporaryDirectory() as scratch:
        source = models[0]
        mixed = Path(scratch) / "mixed"
        mixed.mkdir()
        for name in ("exact.json", "exact.bin", "native.json", "native.bin"):
            shutil.copy(source / name, mixed)
        done = tern("parity", source / "model", "--golden", mixed, "--numerics", "exact")
        tally.check("goldens left out are counted", done.status == 0 and "left out: 1" in done.err, done.err)
        broken = Path(scratch) / "flipped"
        shutil.copytree(source, broken)
        meta = flip_bit(broken)
        # The digest in the description would give it away first: make it right, so that the numbers have to be read.
        meta["sha256"] = hashlib.sha256((broken / "exact-greedy.bin").read_bytes()).hexdigest()
        (broken / "exact-greedy.json").write_text(json.dumps(meta))
        done = tern("parity", broken / "model", "--golden", broken)
        text = done.out.decode() + done.err
        tally.check("one wrong bit: exit 1", done.status == 1, f"exit {done.status}")
        tally.check("one wrong bit: step and token are named", "step 3" in text and "token 5" in text, text[-300:])

        meta["generated"][2] ^= 1
        flip_bit(broken)
        meta["sha256"] = hashlib.sha256((broken / "exact-greedy.bin").read_bytes()).hexdigest()
        (broken / "exact-greedy.json").write_text(json.dumps(meta))
        done = tern("parity", broken / "model", "--golden", broken)
        tally.check("a wrong generated id: exit 1", done.status == 1, f"exit {done.status}")

        rows = broken / "exact.bin"
        rows.write_bytes(rows.read_bytes()[:-4])
        done = tern("parity", broken / "model", "--golden", broken)
        tally.check("a cut golden: exit 1, named", done.status == 1 and "exact.bin" in done.err, f"{done.status} {done.error_line}")

        empty = Path(scratch) / "empty"
        empty.mkdir()
        done = tern("parity", source / "model", "--golden", empty)
        tally.check("no golden: exit 1", done.status == 1, f"exit {done.status}")
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
