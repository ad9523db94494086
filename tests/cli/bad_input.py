"""Malformed models: each has to end in exit 1, with little of the processor's time and one line on stderr that names what is wrong.

The table below is (label, a change to a good model folder, the verb, what the line has to name). Standard library only.
"""

import json
import os
import re
import resource
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import st  # noqa: E402
from tally import Tally  # noqa: E402
from terncli import sanitized, tern  # noqa: E402

GOOD = HERE.parent / "golden" / "llama-4bit" / "model"
Q = "model.layers.0.self_attn.q_proj.weight"
NORM = "model.norm.weight"
MOST = 2 if sanitized() else 1  # seconds of processor time: none takes a tenth of one, or half of one where a sanitizer looks on


def weights(folder):
    return folder / "model.safetensors"


def raw(change):
    """A change to the bytes of the weights file."""

    def apply(folder):
        file = weights(folder)
        file.write_bytes(change(file.read_bytes()))

    return apply


def header(change):
    """A change to the header's dict, in place or returned (bytes: the JSON text itself)."""

    def apply(folder):
        head, data = st.read(weights(folder))
        st.write(weights(folder), change(head) or head, data)

    return apply


def tensor(name, **keys):
    return lambda folder: st.change(weights(folder), name, **keys)


def config(**keys):
    """Keys set in config.json; None takes a key away."""

    def apply(folder):
        values = json.loads((folder / "config.json").read_text())
        for key, value in keys.items():
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
        (folder / "config.json").write_text(json.dumps(values))

    return apply


def text(name, content):
    return lambda folder: (folder / name).write_text(content)


def gone(name):
    return lambda folder: (folder / name).unlink()


def quantization(**keys):
    return lambda folder: config(**{k: {"group_size": 32, "bits": 4, "mode": "affine", **keys} for k in ("quantization", "quantization_config")})(folder)


def shards(broken):
    """The weights in two files with an index, then broken."""

    def apply(folder):
        head, data = st.read(weights(folder))
        names = st.names(head)
        parts = {"model-00001-of-00002.safetensors": names[: len(names) // 2], "model-00002-of-00002.safetensors": names[len(names) // 2 :]}
        for file, members in parts.items():
            part, blob = {}, b""
            for n in members:
                begin, end = head[n]["data_offsets"]
                part[n] = {**head[n], "data_offsets": [len(blob), len(blob) + end - begin]}
                blob += data[begin:end]
            st.write(folder / file, part, blob)
        weights(folder).unlink()
        index = {"metadata": {}, "weight_map": {n: file for file, members in parts.items() for n in members}}
        broken(folder, index)
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    return apply


def twice(folder, index):
    head, data = st.read(folder / "model-00001-of-00002.safetensors")
    name = st.names(head)[0]
    begin, end = head[name]["data_offsets"]
    other, blob = st.read(folder / "model-00002-of-00002.safetensors")
    other[name] = {**head[name], "data_offsets": [len(blob), len(blob) + end - begin]}
    st.write(folder / "model-00002-of-00002.safetensors", other, blob + data[begin:end])


def fifo(name):
    def apply(folder):
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return apply


def directory(name):
    def apply(folder):
        (folder / name).unlink()
        (folder / name).mkdir()

    return apply


def loop(name):
    def apply(folder):
        (folder / name).unlink()
        (folder / name).symlink_to(name)

    return apply


def overlap(head):
    names = st.names(head)
    head[names[1]]["data_offsets"] = [head[names[0]]["data_offsets"][0], head[names[0]]["data_offsets"][0] + 4]


def duplicate_key(head):
    body = json.dumps(head)
    entry = json.dumps({Q: head[Q]})[1:-1]
    return (body[:-1] + ", " + entry + "}").encode()


def deep(depth=100000):
    return "[" * depth + "]" * depth


def fewer_words(count):
    """The vocabulary cut to `count` words, in config and weights (dense ones alone), the tokenizer left as it is."""

    def apply(folder):
        head, data = st.read(weights(folder))
        parts, blob = {}, b""
        for n in st.names(head):
            begin, end = head[n]["data_offsets"]
            piece = data[begin:end]
            shape = list(head[n]["shape"])
            if "embed_tokens" in n or "lm_head" in n:
                piece = piece[: len(piece) // shape[0] * count]
                shape[0] = count
            parts[n] = {**head[n], "shape": shape, "data_offsets": [len(blob), len(blob) + len(piece)]}
            blob += piece
        st.write(weights(folder), parts, blob)
        config(vocab_size=count)(folder)

    return apply


LOGITS = ["logits", "--ids", "1,2,3"]
TOKENIZE = ["tokenize", "x"]
RUN = ["run", "hello", "--max-tokens", "2"]

CASES = [
    # weights
    ("weights cut in half", raw(lambda b: b[: len(b) // 2]), LOGITS, r"model\.safetensors"),
    ("weights cut by one byte", raw(lambda b: b[:-1]), LOGITS, r"model\.safetensors"),
    ("weights one byte too long", raw(lambda b: b + b"x"), LOGITS, r"model\.safetensors"),
    ("weights empty", raw(lambda b: b""), LOGITS, r"model\.safetensors"),
    ("weights of four bytes", raw(lambda b: b[:4]), LOGITS, r"model\.safetensors"),
    ("header longer than the file", raw(lambda b: b"\xff" * 8 + b[8:]), LOGITS, r"model\.safetensors"),
    ("header not JSON", raw(lambda b: b[:8] + b"!" + b[9:]), LOGITS, r"model\.safetensors"),
    ("header not UTF-8", raw(lambda b: b.replace(b"model.norm.weight", b"model.norm.\xff\xfeight", 1)), LOGITS, r"model\.safetensors"),
    ("header a list", header(lambda h: b"[1, 2]"), LOGITS, r"model\.safetensors"),
    ("header nested deep", header(lambda h: deep().encode()), LOGITS, r"model\.safetensors"),
    ("a tensor twice in a header", header(duplicate_key), LOGITS, re.escape(Q)),
    ("two tensors overlap", header(overlap), LOGITS, r"model\."),
    ("offsets past the end", tensor(Q, data_offsets=[1 << 40, (1 << 40) + 8]), LOGITS, re.escape(Q)),
    ("offsets backwards", tensor(Q, data_offsets=[8, 0]), LOGITS, re.escape(Q)),
    ("offsets negative", tensor(Q, data_offsets=[-8, 0]), LOGITS, re.escape(Q)),
    ("offsets no numbers", tensor(Q, data_offsets=["0", "8"]), LOGITS, re.escape(Q)),
    ("shape overflows", tensor(Q, shape=[1 << 62, 1 << 62]), LOGITS, re.escape(Q)),
    ("shape negative", tensor(Q, shape=[-64, -8]), LOGITS, re.escape(Q)),
    ("shape of the wrong product", tensor(NORM, shape=[63]), LOGITS, re.escape(NORM)),
    ("shape turned round", tensor(Q, shape=[8, 64]), LOGITS, re.escape(Q)),
    ("an unknown dtype", tensor(NORM, dtype="Q9"), LOGITS, r"Q9"),
    ("a norm in integers", tensor(NORM, dtype="I16"), LOGITS, re.escape(NORM)),
    ("packed words in floats", tensor(Q, dtype="F32"), LOGITS, re.escape(Q)),
    ("a tensor missing", lambda f: st.without(weights(f), NORM), LOGITS, re.escape(NORM)),
    ("scales missing", lambda f: st.without(weights(f), Q.replace("weight", "scales")), LOGITS, r"q_proj"),
    ("biases missing", lambda f: st.without(weights(f), Q.replace("weight", "biases")), LOGITS, r"q_proj\..*biases"),
    ("a tensor too many", lambda f: st.adding(weights(f), "model.layers.0.mystery"), LOGITS, r"model\.layers\.0\.mystery"),
    ("a layer too many", lambda f: st.adding(weights(f), "model.layers.7.self_attn.q_proj.weight"), LOGITS, r"layers\.7"),
    ("no weights", gone("model.safetensors"), LOGITS, r"safetensors"),
    ("weights are a directory", directory("model.safetensors"), LOGITS, r"model\.safetensors"),
    ("weights are a pipe", fifo("model.safetensors"), LOGITS, r"model\.safetensors"),
    # shards
    ("a shard missing", shards(lambda f, i: (f / "model-00002-of-00002.safetensors").unlink()), LOGITS, r"model-00002-of-00002"),
    ("a shard named that does not exist", shards(lambda f, i: i["weight_map"].update({NORM: "model-9.safetensors"})), LOGITS, r"model-9"),
    ("a shard outside the folder", shards(lambda f, i: i["weight_map"].update({NORM: "../up.safetensors"})), LOGITS, r"\.\./up"),
    ("a tensor in two shards", shards(twice), LOGITS, r"two|twice|both|again|also|already"),
    ("a tensor in the other shard", shards(lambda f, i: i["weight_map"].update({n: "model-00001-of-00002.safetensors" for n in i["weight_map"]})), LOGITS, r"model-0000|model\."),
    ("an index that is a directory", lambda f: (f / "model.safetensors.index.json").mkdir(), LOGITS, r"model\.safetensors\.index\.json.*regular file"),
    ("an index without a map", shards(lambda f, i: i.pop("weight_map")), LOGITS, r"weight_map"),
    # config
    ("no config", gone("config.json"), LOGITS, r"config\.json"),
    ("config empty", text("config.json", ""), LOGITS, r"config\.json"),
    ("config cut", text("config.json", '{"model_type": "llama", "hidden'), LOGITS, r"config\.json"),
    ("config a number", text("config.json", "7"), LOGITS, r"config\.json"),
    ("config nested deep", text("config.json", deep()), LOGITS, r"config\.json"),
    ("config a pipe", fifo("config.json"), LOGITS, r"config\.json.*regular file"),
    ("config a directory", directory("config.json"), LOGITS, r"config\.json.*regular file"),
    ("config a link to itself", loop("config.json"), LOGITS, r"config\.json: cannot look up"),
    ("stop ids that are words", config(eos_token_id="end"), RUN, r"config\.json: eos_token_id"),
    ("no model_type", config(model_type=None), LOGITS, r"model_type"),
    ("an unknown model_type", config(model_type="llamma"), LOGITS, r"llamma"),
    ("model_type a number", config(model_type=3), LOGITS, r"model_type"),
    ("no hidden_size", config(hidden_size=None), LOGITS, r"hidden_size"),
    ("hidden_size a word", config(hidden_size="sixty-four"), LOGITS, r"hidden_size"),
    ("hidden_size zero", config(hidden_size=0), LOGITS, r"hidden_size"),
    ("hidden_size negative", config(hidden_size=-64), LOGITS, r"hidden_size"),
    ("hidden_size huge", config(hidden_size=1 << 60), LOGITS, r"hidden_size"),
    ("hidden_size another", config(hidden_size=128), LOGITS, r"hidden_size|embed_tokens"),
    ("layers zero", config(num_hidden_layers=0), LOGITS, r"num_hidden_layers"),
    ("layers a million", config(num_hidden_layers=1000000), LOGITS, r"num_hidden_layers|model\.layers\.2"),
    ("layers one too many", config(num_hidden_layers=3), LOGITS, r"model\.layers\.2"),
    ("layers one too few", config(num_hidden_layers=1), LOGITS, r"model\.layers\.1"),
    ("heads that key heads do not divide", config(num_attention_heads=3, num_key_value_heads=2), LOGITS, r"head"),
    ("vocabulary of another size", config(vocab_size=321), LOGITS, r"vocab_size|embed_tokens|lm_head"),
    ("an unknown rope", config(rope_scaling={"rope_type": "spiral", "factor": 2.0}), LOGITS, r"spiral"),
    ("a rope without its factor", config(rope_scaling={"rope_type": "llama3"}), LOGITS, r"rope|factor"),
    ("eps a word", config(rms_norm_eps="tiny"), LOGITS, r"rms_norm_eps"),
    # quantisation
    ("bits that do not exist", quantization(bits=7), LOGITS, r"bits|7"),
    ("bits other than packed", quantization(bits=8), LOGITS, r"bits|weight|scales"),
    ("group that does not exist", quantization(group_size=48), LOGITS, r"group"),
    ("group other than packed", quantization(group_size=64), LOGITS, r"group|scales|weight|bits"),
    ("an unknown mode", quantization(mode="fancy4"), LOGITS, r"fancy4"),
    ("another mode than packed", quantization(mode="mxfp4"), LOGITS, r"mxfp4|scales|biases"),
    ("quantization a word", config(quantization="yes"), LOGITS, r"quantization"),
    # text
    ("a tokenizer larger than the vocabulary", fewer_words(200), RUN, r"config\.json: vocab_size: .*199.*\d+"),
    ("no tokenizer", gone("tokenizer.json"), TOKENIZE, r"tokenizer"),
    ("tokenizer empty", text("tokenizer.json", ""), TOKENIZE, r"tokenizer\.json"),
    ("tokenizer cut", lambda f: (f / "tokenizer.json").write_bytes((f / "tokenizer.json").read_bytes()[:3000]), TOKENIZE, r"tokenizer\.json"),
    ("tokenizer nested deep", text("tokenizer.json", deep()), TOKENIZE, r"tokenizer\.json"),
    ("an unknown tokenizer model", text("tokenizer.json", '{"version": "1.0", "model": {"type": "Telepathy"}}'), TOKENIZE, r"Telepathy"),
    ("tokenizer_config cut", text("tokenizer_config.json", '{"bos_token": '), RUN, r"tokenizer_config\.json"),
    ("a template with a syntax error", text("tokenizer_config.json", '{"chat_template": "{% for m in %}"}'), RUN, r"template"),
    ("a template without an end", text("tokenizer_config.json", '{"chat_template": "{% if true %}x"}'), RUN, r"template"),
    ("a template that raises", text("tokenizer_config.json", '{"chat_template": "{{ raise_exception(\'no such role\') }}"}'), RUN, r"no such role"),
    ("a template without end", text("tokenizer_config.json", '{"chat_template": "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}"}'), RUN, r"template|range|limit"),
]


def one_error_line(done):
    """None, or what is wrong with the way it failed."""
    lines = [line for line in done.err.splitlines() if line.startswith("tern: error: ")]
    if done.status != 1:
        return f"exit {done.status}, not 1: {done.err.strip()[-200:]}"
    if len(lines) != 1:
        return f"{len(lines)} error lines: {done.err.strip()[-300:]}"
    if done.out:
        return f"wrote to stdout: {done.out[:80]!r}"
    if lines[0].endswith("."):
        return f"ends in a period: {lines[0]}"
    return None


def spent():
    """Seconds of processor time that the children had: on a loaded machine the only honest measure."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def check(tally, label, folder, verb, names):
    start = spent()
    try:
        done = tern(verb[0], folder, *verb[1:])
    except Exception as error:
        tally.fail(label, f"{type(error).__name__}")
        return
    took = spent() - start
    why = one_error_line(done)
    if not why and not re.search(names, done.error_line.replace(str(folder.parent), "")):
        why = f"does not name {names}: {done.error_line}"
    if not why and "config.json:" in done.error_line and f"{folder}/" not in done.error_line:
        why = f"does not say where: {done.error_line}"
    if not why and took > MOST:
        why = f"took {took:.1f} s of processor time"
    tally.check(label, why is None, why)


def main():
    tally = Tally()
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    for label, change, verb, names in CASES:
        if not re.search(only, label):
            continue
        with tempfile.TemporaryDirectory() as scratch:
            folder = st.copy_model(GOOD, Path(scratch) / "subject")
            change(folder)
            check(tally, label, folder, verb, names)
    with tempfile.TemporaryDirectory() as scratch:
        check(tally, "no such folder", Path(scratch) / "nowhere", LOGITS, r"nowhere")
        check(tally, "an empty folder", Path(scratch), LOGITS, r"config\.json")
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
