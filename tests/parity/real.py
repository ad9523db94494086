"""Real weights, as `tern import` wrote them, against the reference loading the same folder: real.py MODEL

    MODEL is a folder in BUILD/models: smollm2, qwen2.5-coder-0.5b, gemma3-270m. Skipped, by name, where it is absent.

Checked in float32: the ids of a text; the rows of a 40-token prompt and 16 greedy steps, bit for bit; the ids of a chat
prompt; the text of a greedy answer. (Native lanes stay with the tiny models: there the reference needs half a minute a
token.) The reference's side is kept in BUILD/real, keyed by the checkpoint's contents.
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "oracle")]

import terncli  # noqa: E402
from compare import difference, rows_of  # noqa: E402
from tally import Tally  # noqa: E402

PROMPT, STEPS, ANSWER = 40, 16, 24
TEXT = (
    "The lighthouse keeper's daughter counted 17 ships before dawn; each carried salt, copper wire, and letters\n"
    "addressed to people nobody in the village had ever met. \"Strange,\" she said — naïve, perhaps, but not wrong.\n"
    "    for (int i = 0; i < 10; i++) { total += values[i] * 0.5; }\n"
)
QUESTION = "Name three primary colours and say in one sentence what they are used for."


def fingerprint(folder):
    digest = hashlib.sha256(Path(__file__).read_bytes() + (HERE.parent / "oracle/requirements.txt").read_bytes())
    for file in sorted(folder.iterdir()):
        with open(file, "rb") as f:
            while block := f.read(1 << 22):
                digest.update(block)
    return digest.hexdigest()[:16]


def ask_reference(folder):
    """What the reference says about this folder."""
    import golden
    import mlx.core as mx
    import mlx_lm

    model, tokenizer = mlx_lm.load(str(folder))
    model.set_dtype(mx.float32)
    mx.eval(model.parameters())
    ids = tokenizer.encode(TEXT)
    prompt = ids[:PROMPT]
    assert len(prompt) == PROMPT, "the text is too short"
    logits, tokens, _ = golden.generate(model, prompt, STEPS + 1)
    if tokenizer.chat_template is None:  # a base model
        chat = tokenizer.encode(QUESTION)
    else:
        chat = tokenizer.apply_chat_template([{"role": "user", "content": QUESTION}], add_generation_prompt=True)
    answer = mlx_lm.generate(model, tokenizer, prompt=list(chat), max_tokens=ANSWER)
    facts = {"ids": list(ids), "prompt": prompt, "tokens": tokens, "chat": list(chat), "raw": tokenizer.chat_template is None, "answer": answer}
    return facts, logits


def reference(folder):
    store = terncli.BUILD / "real"
    file = store / f"{folder.name}-{fingerprint(folder)}.npz"
    if not file.exists():
        print(f"reference: reading {folder.name}", flush=True)
        facts, logits = ask_reference(folder)
        store.mkdir(exist_ok=True)
        partial = file.with_suffix(".partial.npz")
        np.savez(partial, facts=json.dumps(facts), logits=logits)
        partial.rename(file)
    with np.load(file) as arrays:
        return json.loads(str(arrays["facts"])), arrays["logits"]


def main():
    name, tally = sys.argv[1], Tally()
    folder = terncli.BUILD / "models" / name
    if not (folder / "config.json").exists():
        tally.skip(name, f"its weights are not here (scripts/model.sh {name})")
        return tally.close()
    facts, want = reference(folder)

    done = terncli.tern("tokenize", folder, "-", stdin=TEXT.encode())
    tally.check("ids of a text", done.status == 0 and json.loads(done.out) == facts["ids"], done.error_line)

    said, data = terncli.logits(folder, facts["prompt"], "--numerics", "exact", steps=STEPS)
    why = difference(rows_of(said, data), want)
    tally.check(f"rows of {PROMPT} ids and {STEPS} greedy steps", why is None, why)
    tally.check("greedy ids", said["generated"][:STEPS] == facts["tokens"][:STEPS], f"{said['generated']}")

    raw = ["--raw"] if facts["raw"] else []
    done = terncli.tern("run", folder, QUESTION, "--temp", "0", "--max-tokens", ANSWER, "--json", *raw)
    if tally.check("run", done.status == 0, done.error_line):
        answer = json.loads(done.out)
        tally.check("ids of a chat prompt", answer["usage"]["prompt_tokens"] == len(facts["chat"]), f"{answer['usage']}")
        tally.check("text of an answer", answer["text"] == facts["answer"], f"{answer['text']!r} is not {facts['answer']!r}")
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
