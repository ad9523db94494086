"""Imports tiny GGUF models of every architecture and tensor type; mlx-lm must load them and hold numpy's values.

Usage: test_tiny.py LIBRARY, run by the Python that has mlx-lm.
"""

import fcntl
import hashlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import check
import ggufkit as kit
import mlx.core as mx
import models
import numpy as np
from tally import Tally
from terncli import BINARY, tern

tally = Tally()


def affine_scales(b):
    for _, kind, shape, data in b.tensors:
        if kind in kit.AFFINE_BITS and len(shape) == 2:
            _, scale, bias = kit.affine(kind, np.frombuffer(data, np.uint8).reshape(-1, kit.TYPES[kind][2]))
            yield from (scale, bias)


def import_and_compare(importer, label, b, expected):
    """The loaded (model, config) or None."""
    with tempfile.TemporaryDirectory() as folder:
        status, text, out = models.import_bytes(importer, folder, b.bytes())
        if not tally.check(f"{label} imports", status == 0, text):
            return None
        model, config, weights = check.load(out)
        dtype = check.wanted_dtype(expected, affine_scales(b))
        found = check.floating_types(weights)
        tally.check(f"{label} dtype", found == {dtype}, f"{found} instead of {dtype}")
        for name, (kind, values) in expected.items():
            check.compare(tally, label, weights, config, name, kind, values)
        logits = model(mx.array([[5, 6, 7, 8]]))
        tally.check(f"{label} runs", logits.shape == (1, 4, config["vocab_size"]), logits.shape)
        return model, config


def every_type(importer):
    for arch in models.LAYERS:
        for kind in kit.TYPES:
            b, expected = models.build(arch, kind, seed=zlib.crc32(f"{arch} {kind}".encode()))
            import_and_compare(importer, f"{arch} {kind}", b, expected)


def shared_dtype(importer):
    """float16 where it holds everything: half norms beside types whose scales are float16."""
    for kind in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "F16"):
        b, expected = models.build("llama", kind, half_norms=True)
        found = import_and_compare(importer, f"half {kind}", b, expected)
        tally.check(f"half {kind} says float16", found and found[1]["torch_dtype"] == "float16", found and found[1])
    # One scale whose bias leaves float16's range makes everything float32.
    b, expected = models.build("llama", "Q8_0", half_norms=True)
    name, kind, shape, data = next(t for t in b.tensors if t[0] == "blk.1.ffn_up.weight")
    raw = np.frombuffer(data, np.uint8).reshape(-1, 34).copy()
    raw[7, :2] = np.array([600.0], np.float16).view(np.uint8)
    b.tensor(name, kind, shape, raw.tobytes())
    expected["model.layers.1.mlp.up_proj.weight"] = (kind, kit.dequantise(kind, raw).reshape(shape))
    found = import_and_compare(importer, "wide bias", b, expected)
    tally.check("wide bias says float32", found and found[1]["torch_dtype"] == "float32", found and found[1])


def mixed_types(importer):
    """Different bits beside each other and beside dense modules; untied; biases of llama."""
    b, expected = models.build("llama", "Q4_K", tied=False)
    rng = np.random.default_rng(5)
    for name, module, parameter, shape, heads, _ in models.all_names("llama", 1, False):
        new = {"attn_k": "Q8_0", "ffn_down": "Q6_K", "attn_v": "Q5_1", "ffn_up": "BF16"}.get(name.split(".")[-2])
        if not new:
            continue
        data = kit.random_blocks(rng, new, shape)
        values = kit.dequantise(new, np.frombuffer(data, np.uint8).reshape(-1, kit.TYPES[new][2])).reshape(shape)
        b.tensor(name, new, shape, data)
        expected[f"{module}.{parameter}"] = (new, models.unpermute(values, heads) if heads else values)
    for layer in range(2):
        for part, module, size, heads in (("q", "q", 256, 4), ("k", "k", 128, 2), ("v", "v", 128, 0), ("output", "o", 256, 0)):
            bias = rng.standard_normal(size).astype(np.float32)
            stored = models.permute(bias, heads) if heads else bias
            b.tensor(f"blk.{layer}.attn_{part}.bias", "F32", (size,), stored.tobytes())
            expected[f"model.layers.{layer}.self_attn.{module}_proj.bias"] = ("F32", bias)
    found = import_and_compare(importer, "mixed", b, expected)
    if found:
        q = found[1]["quantization"]
        tally.check("mixed globals", (q["group_size"], q["bits"]) == (32, 4), q)
        tally.check("mixed dense", q["model.layers.0.mlp.down_proj"] is False, q)


def permutation(importer):
    """A llama whose rows are numbered: what comes out is what the converter took in."""
    b, expected = models.build("llama", "F32")
    for part, module, heads in (("q", "q_proj", 4), ("k", "k_proj", 2)):
        rows = heads * models.HEAD
        original = np.arange(rows * models.WIDTH, dtype=np.float32).reshape(rows, models.WIDTH)
        b.tensor(f"blk.0.attn_{part}.weight", "F32", original.shape, models.permute(original, heads).tobytes())
        expected[f"model.layers.0.self_attn.{module}.weight"] = ("F32", original)
    import_and_compare(importer, "permutation", b, expected)


def import_config(importer, label, b):
    with tempfile.TemporaryDirectory() as folder:
        status, text, out = models.import_bytes(importer, folder, b.bytes())
        if not tally.check(f"{label} imports", status == 0, text):
            return None, None
        model, config, _ = check.load(out)
        return model, config


def rope_scaling(importer):
    for parameters in ((8.0, 1.0, 4.0, 8192), (32.0, 1.0, 4.0, 8192), (4.0, 1.0, 4.0, 64), (8.0, 1.0, 3.0, 1000)):
        b, _ = models.build("llama", "Q4_0")
        divisors = models.rope_divisors(500000.0, models.HEAD, *parameters)
        b.tensor("rope_freqs.weight", "F32", divisors.shape, divisors.tobytes())
        model, _ = import_config(importer, f"llama3 {parameters}", b)
        if not model:
            continue
        freqs = np.array(model.model.layers[0].self_attn.rope._freqs).astype(np.float64)
        plain = 500000.0 ** (np.arange(0, models.HEAD, 2) / models.HEAD)
        error = np.max(np.abs(freqs / plain / divisors - 1))
        tally.check(f"llama3 {parameters} frequencies", error < 4e-6, f"relative error {error:g}")
    b, _ = models.build("qwen2", "Q4_0")
    b.set("qwen2.rope.scaling.type", "yarn")
    b.set("qwen2.rope.scaling.factor", 4.0)
    b.set("qwen2.rope.scaling.original_context_length", 128)
    model, config = import_config(importer, "yarn", b)
    want = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
    tally.check("yarn config", model and config["rope_scaling"] == want, config and config["rope_scaling"])
    b, _ = models.build("gemma3", "Q4_0")
    b.set("gemma3.rope.scaling.type", "linear")
    b.set("gemma3.rope.scaling.factor", 8.0)
    b.set("gemma3.rope.freq_base_swa", 20000.0)
    b.set("gemma3.attention.sliding_window_pattern", [True, True, True, False, True, True, True])
    model, config = import_config(importer, "linear", b)
    if model:
        tally.check("linear config", config["rope_scaling"] == {"rope_type": "linear", "factor": 8.0}, config)
        tally.check("window pattern", config["sliding_window_pattern"] == 4, config)
        tally.check("local base", config["rope_local_base_freq"] == 20000.0, config)


def refusals(importer):
    """What must fail, and the words its line must have."""

    def case(label, words, change, arch="llama"):
        b, _ = models.build(arch, "Q4_0")
        change(b)
        with tempfile.TemporaryDirectory() as folder:
            status, text, out = models.import_bytes(importer, folder, b.bytes())
            tally.check(f"refuses {label}", status != 0 and all(w in text for w in ("m.gguf", *words)), (status, text))
            left = [p.name for p in out.parent.iterdir() if p.name != "m.gguf"]
            tally.check(f"refuses {label}: nothing left", not left, left)

    vocabulary = "tokenizer.ggml."
    case("tokens", ["tokenizer.ggml.tokens"], lambda b: b.unset(vocabulary + "tokens"))
    case("merges", ["tokenizer.ggml.merges"], lambda b: b.unset(vocabulary + "merges"))
    case("a bad merge", ["merge 0"], lambda b: b.set(vocabulary + "merges", ["nospace"]))
    case("an unknown merge", ["merge 1", "x yz"], lambda b: b.set(vocabulary + "merges", ["t h", "x yz"]))
    case("tokenizer", ["bert"], lambda b: b.set(vocabulary + "model", "bert"))
    case("pre-tokenizer", ["tokenizer.ggml.pre", "viking"], lambda b: b.set(vocabulary + "pre", "viking"))
    case("token types", ["token_type"], lambda b: b.set(vocabulary + "token_type", [1, 2]))
    case("twins", ["tokens 0 and 1"], lambda b: b.set(vocabulary + "tokens", ["a", "a"] + [str(i) for i in range(268)]))
    case("eos", ["eos_token_id", "9999"], lambda b: b.set(vocabulary + "eos_token_id", 9999))
    case("scores", ["scores"], lambda b: b.unset(vocabulary + "scores"), "gemma3")
    case("bad scores", ["scores"], lambda b: b.set(vocabulary + "scores", [0.0]), "gemma3")
    case("byte tokens", ["byte tokens"], lambda b: b.set(vocabulary + "token_type", [1] * 279), "gemma3")
    case("window", ["attention.sliding_window"], lambda b: b.unset("gemma3.attention.sliding_window"), "gemma3")
    case("softcap", ["final_logit_softcapping"], lambda b: b.set("gemma3.final_logit_softcapping", 30.0), "gemma3")
    case("layers", ["llama.block_count"], lambda b: b.unset("llama.block_count"))
    case("more layers", ["blk.2."], lambda b: b.set("llama.block_count", 3))
    case("heads", ["head"], lambda b: b.set("llama.attention.head_count", 3))
    case("zero width", ["llama.embedding_length"], lambda b: b.set("llama.embedding_length", 0))
    case("text for a number", ["llama.block_count"], lambda b: b.set("llama.block_count", "two"))
    case("a split file", ["split"], lambda b: b.set("split.count", (kit.U16, 3)))
    case("a lost tensor", ["blk.1.ffn_up.weight is missing"], lambda b: b.drop("blk.1.ffn_up.weight"))
    case("a lost bias", ["blk.0.attn_k.bias"], lambda b: b.drop("blk.0.attn_k.bias"), "qwen2")
    case("a lost norm", ["blk.1.attn_q_norm.weight"], lambda b: b.drop("blk.1.attn_q_norm.weight"), "qwen3")


def lines_of_a_full_disk(label, *args, env=None):
    """One line on stderr, an error, and nothing on stdout where files cannot be longer than 4 kB."""
    done = subprocess.run([BINARY, *map(str, args)], capture_output=True, timeout=300, restore_signals=False,  # SIGXFSZ stays ignored
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)), env={**os.environ, **(env or {})})
    lines = done.stderr.decode().splitlines()
    good = done.returncode == 1 and not done.stdout and len(lines) == 1 and lines[0].startswith("tern: error: ") and "File too large" in lines[0]
    tally.check(f"{label} on a full disk", good, f"{done.returncode} {lines}")


def command_line():
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        file, home = folder / "m.gguf", folder / "home"
        file.write_bytes(models.build("llama", "Q4_0")[0].bytes())
        lines_of_a_full_disk("import", "import", file, folder / "out")
        lines_of_a_full_disk("run", "run", file, "hello", env={"TERN_HOME": str(home)})
        left = [p.name for p in (*folder.iterdir(), *(home / "imports").iterdir())]
        tally.check("a full disk leaves nothing", sorted(left) == ["home", "m.gguf"], left)

        # What a killed import left, and one that lives: it holds a lock.
        dead, live = folder / ".out.part-1-0", folder / ".other.part-1-0"
        for part in (dead, live):
            part.mkdir()
            (part / "model.safetensors").write_bytes(b"half")
        lock = os.open(live, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = tern("import", file, folder / "out")
        tally.check("import beside both", done.status == 0 and (folder / "out" / "config.json").exists(), done.err)
        tally.check("a dead import's folder goes", not dead.exists())
        tally.check("a live import's folder stays", (live / "model.safetensors").exists())
        os.close(lock)
        done = tern("run", file, "hello", "--max-tokens", "2", env={"TERN_HOME": str(home)})
        imports = home / "imports"
        ran = lambda path: tern("run", path, "hello", "--max-tokens", "2", env={"TERN_HOME": str(home)})  # noqa: E731
        places = lambda: sorted(p.name for p in imports.iterdir() if p.name[0] != ".")  # noqa: E731
        first = places()
        tally.check("run imports and says so", done.status == 0 and done.err.startswith(f"imported {file} into {home}/imports/"), done.err)
        tally.check("once", ran(file).err == "" and places() == first, places())
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        tally.check("under the hash of its bytes", first == [f"m-{digest[:16]}"], first)
        copy = folder / "copy.gguf"
        shutil.copy(file, copy)
        os.utime(file, (1, 1))
        for path in file, copy:
            again = ran(path)
            tally.check(f"{path.name}: the same bytes are found", again.status == 0 and again.err == "" and again.out == done.out and places() == first, again.err)
        before = file.stat()
        file.write_bytes(models.build("llama", "Q8_0")[0].bytes())
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        again = ran(file)
        tally.check("other bytes are imported anew", again.status == 0 and "imported" in again.err and len(places()) == 2, again.err)
        for note in (imports / ".seen").iterdir():
            note.write_text("no digest")
        tally.check("a note that makes no sense is passed over", ran(copy).status == 0 and len(places()) == 2)


def main():
    importer = models.Importer(sys.argv[1])
    every_type(importer)
    shared_dtype(importer)
    mixed_types(importer)
    permutation(importer)
    rope_scaling(importer)
    refusals(importer)
    command_line()
    return tally.close()


sys.exit(main())
