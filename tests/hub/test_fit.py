"""What fits is known before a weight is read: inspect, ls, run, chat and serve against a model that is larger than the
memory, made of holes (standard library only)."""

import json
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "cli")]

from tally import Tally  # noqa: E402
from terncli import tern  # noqa: E402

MODEL = HERE.parent / "golden" / "llama-4bit" / "model"
GEMMA = HERE.parent / "golden" / "gemma3-bf16" / "model"
tally = Tally()


def memory():
    """Of the whole machine: what is free may be more in a moment, this may not."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0


def vast(folder, share):
    """A llama of one layer whose table takes `share` times the machine's memory: all of it holes."""
    width = 4096
    rows = int(memory() * share) // (2 * width)
    shapes = {
        "model.embed_tokens.weight": [rows, width],
        "model.norm.weight": [width],
        "model.layers.0.input_layernorm.weight": [width],
        "model.layers.0.post_attention_layernorm.weight": [width],
        **{f"model.layers.0.self_attn.{p}_proj.weight": [width, width] for p in "qkvo"},
        **{f"model.layers.0.mlp.{p}_proj.weight": [64, width] for p in ("gate", "up")},
        "model.layers.0.mlp.down_proj.weight": [width, 64],
    }
    at, header = 0, {}
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir(parents=True)
    with open(folder / "model.safetensors", "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        f.truncate(8 + len(text) + at)
    config = {"model_type": "llama", "hidden_size": width, "num_hidden_layers": 1, "intermediate_size": 64, "num_attention_heads": 32, "rms_norm_eps": 1e-5,
              "vocab_size": rows, "num_key_value_heads": 32, "max_position_embeddings": 4096, "tie_word_embeddings": True, "torch_dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(config))
    for name in "tokenizer.json", "tokenizer_config.json":
        shutil.copy(MODEL / name, folder)


def line(label, done, *words):
    said = done.error_line
    tally.check(label, done.status == 1 and said.startswith("tern: error: memory: ") and all(w in said for w in words) and not done.out, done.err)
    return said


def test_weights(folder):
    home = Path(folder) / "home"
    try:
        vast(home / "models" / "vast", 2)
    except OSError as e:
        tally.skip("a model larger than the memory", f"no file of that size here: {e}", 6)
        return
    env = {"TERN_HOME": str(home), "HF_HOME": str(home / "none")}
    done = tern("inspect", "vast", "--json", env=env)
    memory = json.loads(done.out)["memory"] if done.status == 0 else {}
    tally.check("inspect tells", memory.get("largest_context") == 0 and memory["weights"] > memory["free"], done.err)
    tally.check("and in words", b"fits          no: " in tern("inspect", "vast", env=env).out)
    listed = json.loads(tern("ls", "--json", env=env).out)
    tally.check("ls tells", [m["fits"] for m in listed] == [False] and listed[0]["memory"]["largest_context"] == 0, listed)
    line("run refuses", tern("run", "vast", "x", env=env), "weights need", "scratch", "free", "no context fits")
    line("chat refuses", tern("chat", "vast", env=env), "no context fits")
    line("serve refuses", tern("serve", "vast", "--port", "0", env=env), "no context fits")
    for words in ("run", MODEL, "x"), ("chat", MODEL), ("serve", MODEL, "--port", "0"):
        line(f"{words[0]} refuses a draft model that does not fit beside it", tern(*words, "--draft-model", "vast", env=env), "the draft model", "no context fits")


def test_context():
    done = json.loads(tern("inspect", MODEL, "--json", "--ctx", "1000000000").out)["memory"]
    tally.check("inspect of a context that is too long", 0 < done["largest_context"] < 10**9 and done["total"] > done["free"], done)
    tally.check("its parts make its total", done["total"] == done["weights"] + done["owned"] + done["kv"] + done["scratch"], done)
    tally.check("its kinds make its keys and values", sum(k["bytes"] for k in done["kv_kinds"]) == done["kv"] and sum(k["per_token"] for k in done["kv_kinds"]) == done["kv_per_token"], done)
    for _ in range(20):  # memory moves: others may take some between the two
        refusal = tern("run", MODEL, "x", "--raw", "--ctx", "1000000000")
        largest = int(refusal.error_line.split("--ctx ")[1].split()[0]) if "--ctx " in refusal.error_line else 0
        smaller = tern("run", MODEL, "x", "--raw", "--max-tokens", "2", "--ctx", str(largest * 9 // 10))
        if not largest or smaller.status == 0:
            break
    line("run refuses it", refusal, "a context of 1000000000 needs", "bytes a token", "is the largest that fits")
    tally.check("and the context that it names is taken (less a tenth)", largest > 0 and smaller.status == 0, smaller.err)
    quantised = json.loads(tern("inspect", MODEL, "--json", "--ctx", "1000000000", "--kv-bits", "4", "--quantized-kv-start", "0", "--kv-group-size", "32").out)["memory"]
    tally.check("quantised keys leave room for more", quantised["largest_context"] > done["largest_context"], quantised)
    kinds = json.loads(tern("inspect", GEMMA, "--json").out)["memory"]["kv_kinds"]
    tally.check("layers with a window are a kind of their own", len(kinds) == 2 and sorted(k["window"] > 0 for k in kinds) == [False, True], kinds)


def main():
    with tempfile.TemporaryDirectory() as folder:
        test_weights(folder)
    test_context()
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
