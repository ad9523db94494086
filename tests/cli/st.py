"""Reads, changes and writes safetensors files, malformed ones included (standard library only)."""

import json
import shutil
from pathlib import Path


def read(file):
    """(header dict, data bytes)"""
    raw = Path(file).read_bytes()
    size = int.from_bytes(raw[:8], "little")
    return json.loads(raw[8 : 8 + size]), raw[8 + size :]


def write(file, header, data):
    """header: a dict, or the JSON text itself as bytes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    Path(file).write_bytes(len(text).to_bytes(8, "little") + text + data)


def names(header):
    return [n for n in header if n != "__metadata__"]


def without(file, name):
    """Takes one tensor out and closes the gap."""
    header, data = read(file)
    begin, end = header.pop(name)["data_offsets"]
    for n in names(header):
        header[n]["data_offsets"] = [o - (end - begin) if o >= end else o for o in header[n]["data_offsets"]]
    write(file, header, data[:begin] + data[end:])


def adding(file, name, dtype="F32", shape=(2, 2), size=16):
    header, data = read(file)
    header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + size]}
    write(file, header, data + bytes(size))


def change(file, name, **keys):
    header, data = read(file)
    header[name].update(keys)
    write(file, header, data)


def copy_model(source, target, index=False):
    """A model folder of its own; without the index that save_model writes for single files too, unless asked for."""
    shutil.copytree(source, target)
    for file in Path(target).glob("*.index.json") if not index else []:
        file.unlink()
    return Path(target)
