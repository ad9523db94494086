"""The stored bits of numerics fast: fast.py [--make]

Fast is tern's own arithmetic, so no reference has its numbers; what it promises is that they stay. `fast` beside this file
has a SHA-256 of the logits (float32, little-endian: every row of 40 ids and of 8 steps through given ids) of each golden's
model, made once and replayed on every processor that the tests run on. A line changes only where the definition
(src/ops/fast_ref/fast.h) does, on purpose, with a line in CHANGELOG.md.
"""

import hashlib
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import terncli  # noqa: E402
from tally import Tally  # noqa: E402

IDS = [(7 * i * i + 3 * i + 1) % 250 for i in range(40)]
FEED = [(11 * i + 5) % 250 for i in range(8)]


def digest(model):
    _, rows = terncli.logits(model, IDS, "--numerics", "fast", "--all", feed=FEED)
    return hashlib.sha256(rows.tobytes() if hasattr(rows, "tobytes") else bytes(rows)).hexdigest()


def main():
    models = sorted(p.parent for p in HERE.glob("*/model/config.json"))
    if sys.argv[1:] == ["--make"]:
        print("\n".join(f"{model.parent.name:18} {digest(model)}" for model in models))
        return 0
    stored = dict(line.split() for line in (HERE / "fast").read_text().splitlines() if line and line[0] != "#")
    tally = Tally()
    tally.check("every golden's model has a line", set(stored) == {m.parent.name for m in models}, sorted(stored))
    for model in models:
        name = model.parent.name
        try:
            found = digest(model)
        except Exception as error:
            tally.fail(name, error)
            continue
        tally.check(f"{name}: bits of fast", found == stored.get(name), f"{found} is not what is stored")
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
