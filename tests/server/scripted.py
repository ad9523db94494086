"""Makes checkpoints that say what a test wants: after a word of the prompt's end comes a text, token by token.

A llama whose layer adds nothing: the logits of a token depend on it alone, and are highest for the one that is to follow.
Every piece of a text is a token of its own (cut at odd places, markers too), so each has one follower, and greedy answers
are the scripts to the letter. Standard library only.
"""

import json
import random
import struct
from pathlib import Path

from serving import EOS, GOLDEN

WIDTH = 64
SOURCE = GOLDEN / "llama-4bit" / "model"


def cut(text, taken, dice):
    """Pieces of two letters or more, none of which was taken before."""
    for _ in range(1000):
        pieces, left = [], text
        while left:
            free = [n for n in range(2, 13) if n <= len(left) and left[:n] not in taken and left[:n] not in pieces]
            if not free:
                break
            n = dice.choice(free[:4])
            pieces.append(left[:n])
            left = left[n:]
        if not left:
            taken |= {*pieces}
            return pieces
    raise ValueError(f"no pieces of its own: {text!r}")


def tensors(vocab, follower):
    dice = random.Random(2)
    embedding = [[dice.choice((-1.0, 1.0)) for _ in range(WIDTH)] for _ in range(vocab)]
    head = [[0.0] * WIDTH for _ in range(vocab)]
    for token, after in follower.items():
        head[after] = [a + b for a, b in zip(head[after], embedding[token])]
    zeros = {
        "self_attn.q_proj": (WIDTH, WIDTH),
        "self_attn.k_proj": (WIDTH, WIDTH),
        "self_attn.v_proj": (WIDTH, WIDTH),
        "self_attn.o_proj": (WIDTH, WIDTH),
        "mlp.gate_proj": (WIDTH, WIDTH),
        "mlp.up_proj": (WIDTH, WIDTH),
        "mlp.down_proj": (WIDTH, WIDTH),
    }
    yield "model.embed_tokens.weight", (vocab, WIDTH), [x for row in embedding for x in row]
    yield "lm_head.weight", (vocab, WIDTH), [x for row in head for x in row]
    for name in ("model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm"):
        yield f"{name}.weight", (WIDTH,), [1.0] * WIDTH
    for name, (rows, columns) in zeros.items():
        yield f"model.layers.0.{name}.weight", (rows, columns), [0.0] * (rows * columns)


def write_weights(path, vocab, follower):
    header, data = {"__metadata__": {"format": "mlx"}}, bytearray()
    for name, shape, values in tensors(vocab, follower):
        begin = len(data)
        data += struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def split(text, whole):
    """The text in parts, of which those in `whole` stay in one."""
    for word in whole:
        before, found, after = text.partition(word)
        if found:
            return [p for p in (*split(before, whole), word, *split(after, whole)) if p]
    return [text]


def make_model(target, template, scripts, words=(), whole=None):
    """scripts: {word: text}; a prompt whose last token is the word has the text for its answer. words: further tokens.
    whole: {word: those of the words that its text has as one token}; only one text may have each."""
    target = Path(target)
    target.mkdir(parents=True, exist_ok=True)
    tokenizer = json.loads((SOURCE / "tokenizer.json").read_text())
    settings = json.loads((SOURCE / "tokenizer_config.json").read_text())
    config = json.loads((SOURCE / "config.json").read_text())
    dice, taken = random.Random(1), {*tokenizer["model"]["vocab"], *words, *scripts}
    ids = {}

    def token(text):
        if text not in ids:
            ids[text] = 320 + len(ids)
            flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
            tokenizer["added_tokens"].append({"id": ids[text], "content": text, **flags})
        return ids[text]

    follower = {}
    for word in [*words, *scripts]:
        token(word)
    for word, text in scripts.items():
        at, kept = ids[word], (whole or {}).get(word, ())
        for piece in [p for part in split(text, kept) for p in ([part] if part in kept else cut(part, taken, dice))]:
            follower[at] = token(piece)
            at = follower[at]
        follower[at] = EOS
    for key in ("quantization", "quantization_config", "rope_scaling"):
        del config[key]
    vocab = 320 + len(ids)
    config |= {"vocab_size": vocab, "num_hidden_layers": 1, "intermediate_size": WIDTH, "num_key_value_heads": 2, "torch_dtype": "float32"}
    (target / "tokenizer.json").write_text(json.dumps(tokenizer))
    (target / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": template}))
    (target / "config.json").write_text(json.dumps(config))
    write_weights(target / "model.safetensors", vocab, follower)
    return target
