"""Bad configs of every descriptor row: each has to end in exit 1, with little of the processor's time and one line that names file and key.

The configs are tests/oracle/configs.py's, with one thing made wrong. There are no weights: a config that is let pass
fails for want of them, by name, so it shows. Tensors are made wrong in the goldens' checkpoints. Standard library only.
"""

import json
import re
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "oracle")]

import st  # noqa: E402
from bad_input import MOST, one_error_line, spent  # noqa: E402
from configs import CONFIGS  # noqa: E402
from tally import Tally  # noqa: E402
from terncli import tern  # noqa: E402

# Sizes by all the names that rows have for them.
SIZES = """hidden_size n_embd d_model model_dim num_hidden_layers n_layer n_layers num_layers num_transformer_layers num_attention_heads n_head n_heads
vocab_size embedding_size intermediate_size mlp_hidden_size ff_intermediate_size n_inner num_key_value_heads n_kv_heads head_dim""".split()
WRONG = {"negative": -1, "zero": 0, "huge": 1 << 60, "a word": "many", "a fraction": 1.5, "a list": [1]}
NO_WEIGHTS = "no model\\*\\.safetensors|safetensors"
ZERO_IS_ABSENT = {"head_dim", "n_inner"}

# (type, keys to set in the text model's config, what the line names)
SPECIAL = [
    ("nemotron-nas", {"hidden_act": "spiral"}, "hidden_act: spiral"),
    ("nemotron-nas", {"hidden_act": 3}, "hidden_act"),
    ("nemotron-nas", {"block_configs": []}, "block_configs"),
    ("openelm", {"num_query_heads": [1]}, "num_query_heads"),
    ("openelm", {"ffn_dim_divisor": 0}, "ffn_dim_divisor"),
    ("gemma3_text", {"sliding_window": 0}, "sliding_window"),
    ("gemma3_text", {"sliding_window_pattern": 0}, "sliding_window_pattern"),
    ("cohere2", {"sliding_window": 0}, "sliding_window"),
    ("olmo3", {"sliding_window": 0}, "sliding_window"),
    ("exaone4", {"sliding_window_pattern": "LXG"}, "sliding_window_pattern"),
    ("llama", {"layer_types": ["sliding_attention", "full_attention"] * 8}, "layer_types"),
    ("smollm3", {"no_rope_layers": [1]}, "no_rope_layers"),
    ("ministral3", {"rope_parameters": 3}, "rope_parameters"),
    ("phi3small", {"blocksparse_block_size": 48}, "blocksparse_block_size"),
    ("phi3small", {"mup_use_scaling": False}, "mup_use_scaling"),
    ("qwen3", {"rope_scaling": "yarn"}, "rope_scaling"),
    ("qwen3", {"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
    ("mistral3", {"model_type": "poem"}, None),  # any other text model is llama
    ("granite", {"rms_norm_eps": "tiny"}, "rms_norm_eps"),
    ("qwen2", {"num_attention_heads": 3, "num_key_value_heads": 2}, "head"),
    ("starcoder2", {"num_attention_heads": 3, "num_key_value_heads": 2}, "head"),
    ("gpt_bigcode", {"n_head": 3}, "n_head|head"),
]


def run(folder, config):
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    start = spent()
    done = tern("logits", folder, "--ids", "1")
    took = spent() - start
    why = one_error_line(done) or (f"took {took:.1f} s of processor time" if took > MOST else None)
    return done.error_line.replace(str(folder), "DIR"), why


def changed(config, keys):
    """`keys` set in text_config where there is one."""
    if isinstance(config.get("text_config"), dict):
        return {**config, "text_config": {**config["text_config"], **keys}}
    return {**config, **keys}


def check_sizes(tally, folder, name, config):
    text = config["text_config"] if isinstance(config.get("text_config"), dict) else config
    read = 0
    for key in SIZES:
        if key not in text:
            continue
        line, why = run(folder, changed(config, {key: "many"}))
        if re.search(NO_WEIGHTS, line):
            continue  # the row does not read it
        read += 1
        for label, value in WRONG.items():
            if value == 0 and key in ZERO_IS_ABSENT:
                continue
            line, why = run(folder, changed(config, {key: value}))
            if not why and not re.search(rf"config\.json.*\b{key}\b", line):
                why = f"does not name {key}: {line}"
            tally.check(f"{name}: {key} {label}", why is None, why)
    tally.check(f"{name}: sizes are read", read >= 4, read)


def check_whole(tally, folder, name, config):
    line, why = run(folder, config)
    tally.check(f"{name}: right but for its weights", not why and re.search(NO_WEIGHTS, line), why or line)
    text = json.dumps(config)
    line, why = run(folder, text[:-1] + ', "model_type": "other"}')
    tally.check(f"{name}: a key twice", not why and "model_type" in line, why or line)


def check_tensors(tally, golden):
    """One layer's tensor missing, too many, of another shape, of another dtype; a rope that does not exist."""
    layer = "model.layers.1."
    for label in ("missing", "too many", "another shape", "another dtype", "an unknown rope"):
        with tempfile.TemporaryDirectory() as scratch:
            folder = st.copy_model(golden / "model", Path(scratch) / "subject")
            weights = folder / "model.safetensors"
            head, data = st.read(weights)
            name = next(n for n in sorted(st.names(head)) if n.startswith(layer) and n.endswith("layernorm.weight"))
            config = json.loads((folder / "config.json").read_text())
            if label == "missing":
                st.without(weights, name)
            elif label == "too many":
                name = layer + "self_attn.sinks"
                st.adding(weights, name)
            elif label == "another shape":
                st.change(weights, name, shape=[2, head[name]["shape"][0] // 2])
            elif label == "another dtype":
                st.change(weights, name, dtype={"BF16": "I16", "F16": "U16", "F32": "I32"}[head[name]["dtype"]])
            else:
                name = "spiral"
                config["rope_scaling"] = {"rope_type": "spiral", "factor": 2.0}
            line, why = run(folder, config)
            tally.check(f"{golden.name}: {label}", not why and re.search(rf"\b{re.escape(name)}\b", line), why or line)


def main():
    tally = Tally()
    for golden in sorted((HERE.parent / "golden").iterdir()):
        if (golden / "model").is_dir():
            check_tensors(tally, golden)
    types = [t["type"] for t in json.loads(tern("ls", "--types", "--json").out)]
    missing = [t for t in types if t not in CONFIGS]
    tally.check("a config for every type", not missing, missing)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "subject"
        folder.mkdir()
        for name in types:
            if name in CONFIGS:
                check_whole(tally, folder, name, CONFIGS[name])
                check_sizes(tally, folder, name, CONFIGS[name])
        for name, keys, names in SPECIAL:
            line, why = run(folder, changed(CONFIGS[name], keys))
            fits = re.search(names or NO_WEIGHTS, line) and (not names or "config.json" in line)
            tally.check(f"{name}: {keys}", not why and fits, why or line)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
