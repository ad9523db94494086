"""docs/serving.md: its Python and its curl lines do what they say, against a server of the model's name on that page."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from serving import GOLDEN, Server  # noqa: E402
from tally import Tally  # noqa: E402
from terncli import BUILD  # noqa: E402

tally = Tally()
PAGE = HERE.parents[1] / "docs" / "serving.md"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.S | re.M)


def run(label, command, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, **more)
    tally.check(label, done.returncode == 0 and done.stdout.strip() and '"error"' not in done.stdout, f"{done.returncode} {done.stdout[-300:]} {done.stderr[-600:]}")


def main():
    python = BUILD / "clients" / "bin" / "python"
    with Server(GOLDEN / "llama-4bit" / "model", "--alias", "smollm2") as s:
        here = f"127.0.0.1:{s.port}"
        programs = blocks("python")
        tally.check("there are three", len(programs) == 3, len(programs))
        for program in programs:
            package = re.search(r"import (\w+)", program)[1]
            if not python.exists() or subprocess.run([str(python), "-c", f"import {package}"], capture_output=True).returncode:
                tally.skip(package, "the package is not installed (scripts/clients.sh installs it)")
                continue
            run(package, [str(python), "-c", program.replace("127.0.0.1:8080", here)], env={**os.environ, "PYTHONPATH": ""})
        curls = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("curl ")]
        tally.check("there are four", len(curls) == 4, curls)
        for line in curls:
            if shutil.which("curl"):
                run(line[:60], ["sh", "-c", line.replace("curl ", "curl -sSf ").replace("127.0.0.1:8080", here)])
            else:
                tally.skip(line[:60], "there is no curl")
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
