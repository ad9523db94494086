"""Numerics fast against exact on real weights and a text in the public domain: fidelity.py MODEL

    MODEL is a line of the table `gates` and a folder in BUILD/models; skipped, by name, where that is absent.

Exact is the reference's float32 (tests/parity/real.py), so this bounds the distance from the reference. The text is
Lincoln's address at Gettysburg, and beginnings of the American declaration of independence and constitution.
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import terncli  # noqa: E402
from tally import Tally  # noqa: E402

LENGTH = 256


def gates():
    for line in (HERE / "gates").read_text().splitlines():
        if line and not line.startswith("#"):
            model, *limits = line.split()
            yield model, [float(x) for x in limits]


def main():
    name = sys.argv[1]
    tally = Tally()
    mean, most, agree = dict(gates())[name]
    folder = terncli.BUILD / "models" / name
    if not (folder / "config.json").exists():
        tally.skip(name, "not fetched: scripts/model.sh")
        return tally.close()
    done = terncli.tern("ppl", folder, "--text", HERE / "text.txt", "--sequence-length", str(LENGTH), "--numerics", "fast",
                        "--against", "exact", "--json")
    if done.status:
        tally.fail(name, done.error_line)
        return tally.close()
    said = json.loads(done.out)
    against = said["against"]
    print(f"{name}: {said['tokens']} tokens, " + ", ".join(f"{k} {v:.4g}" for k, v in against.items() if isinstance(v, float)))
    tally.check(f"{name}: mean KL", against["kl_mean"] <= mean, f"{against['kl_mean']:.3g} is above {mean:g}")
    tally.check(f"{name}: 99.9 % KL", against["kl_999"] <= most, f"{against['kl_999']:.3g} is above {most:g}")
    tally.check(f"{name}: top-1", 100 * against["top1"] >= agree, f"{100 * against['top1']:.2f} % is below {agree:g} %")
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
