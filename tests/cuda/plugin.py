"""The cuda backend where it cannot run: every way in which its library is missing, broken, foreign or without a GPU is one
clear line and exit 1, and `--backend auto` goes on with the CPU. Needs no GPU; with one, the last checks are skipped."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import terncli  # noqa: E402
from tally import Tally  # noqa: E402

MODEL = HERE.parent / "golden" / "llama-4bit" / "model"
SOURCES = HERE.parents[1] / "src" / "ops" / "cuda"
LIBRARY = "libtern-cuda.so"
FOREIGN = """
typedef struct { const char *version, *build; } plugin;
__attribute__((visibility("default"))) const plugin *tern_cuda_plugin(void)
{ static const plugin p = {"%s", "another"}; return &p; }
"""


def run(binary, *flags):
    done = subprocess.run([binary, "logits", MODEL, "--ids", "1,2,3", *flags], capture_output=True, timeout=300,
                          env={**os.environ, "NO_COLOR": "1"})
    return done.returncode, done.stdout, done.stderr.decode().strip()


def compile_foreign(version, to):
    source = to.with_suffix(".c")
    source.write_text(FOREIGN % version)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", to, source], check=True)


def conditions(tally):
    """.ci/run compiles for architectures on both sides of 9.0: a condition on another one would need that one too."""
    sources = [p for p in sorted(SOURCES.iterdir()) if p.suffix in (".cu", ".cuh", ".h")]
    found = [(p.name, line.strip()) for p in sources for line in p.read_text().splitlines()
             if re.search(r"__CUDA_ARCH__|__CUDA_ARCH_LIST__|__CUDA_ARCH_FEAT|__CUDA_ARCH_SPECIFIC__", line)]
    known = "#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900"
    tally.check("conditions on the architecture are found", found, f"none in {SOURCES}")
    for name, line in found:
        tally.check("an architecture that .ci/run compiles for tells", line == known, f"{name}: {line}")


def main():
    tally = Tally()
    conditions(tally)
    with tempfile.TemporaryDirectory() as folder:
        binary, library = Path(folder) / "tern", Path(folder) / LIBRARY
        shutil.copy(terncli.BINARY, binary)

        def refused(what, *words):
            status, out, err = run(binary, "--backend", "cuda")
            told = status == 1 and not out and len(err.splitlines()) == 1 and all(w in err for w in words)
            tally.check(f"{what}: --backend cuda is refused in one line", told, f"exit {status}: {err}")

        def goes_on(what):
            status, out, err = run(binary, "--backend", "auto")
            tally.check(f"{what}: --backend auto answers", status == 0 and b'"backend":"cpu/' in out.replace(b" ", b""),
                        f"exit {status}: {err}")

        refused("no library", LIBRARY, "no GPU backend")
        goes_on("no library")
        library.write_text("this is no library\n")
        refused("a broken library", LIBRARY)
        goes_on("a broken library")
        for version in ("0.0.0", "0.1.0"):
            compile_foreign(version, library)
            refused(f"a library of another build ({version})", LIBRARY, "another build")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, "-x", "c", "/dev/null"], check=True)
        refused("a library of something else", LIBRARY, "another build")

        status, out, err = run(binary, "--backend", "cuda", "--numerics", "native")
        tally.check("native does not run on cuda", status == 1 and "native runs on ref" in err, err)
        for flags in (["--gpu", "-1"], ["--gpu-memory-fraction", "0"], ["--gpu-memory-fraction", "1.5"]):
            status, out, err = run(binary, "--backend", "cuda", *flags)
            tally.check(f"{' '.join(flags)} is refused", status == 2 and flags[0] in err, err)

    if not (terncli.BUILD / LIBRARY).exists():
        tally.skip("the library itself", "not built: no CUDA compiler")
    elif Path("/dev/nvidiactl").exists():
        tally.skip("a machine without a driver", "this one has one: make test-cuda")
    else:
        status, out, err = run(terncli.BINARY, "--backend", "cuda")
        tally.check("no driver: --backend cuda says so", status == 1 and not out and "driver" in err, f"exit {status}: {err}")
        status, out, err = run(terncli.BINARY)
        tally.check("no driver: auto says nothing and answers", status == 0 and not err, f"exit {status}: {err}")
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
