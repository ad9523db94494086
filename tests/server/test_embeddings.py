"""/v1/embeddings and /api/embed: shapes, pooling, batches; and with the official packages where scripts/clients.sh put them."""

import base64
import json
import math
import os
import struct
import sys
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from serving import EOS, GOLDEN, Server, chat, until  # noqa: E402
from tally import Tally  # noqa: E402
from terncli import BUILD  # noqa: E402

tally = Tally()
PATH = "/v1/embeddings"
TEXTS = ["Hello", "a", "The quick brown fox jumps over the lazy dog. " * 8, "\u00e4\u00f6\u00fc", "x" * 300]


def floats(numbers):
    """As float32, which is what the numbers are."""
    return struct.pack(f"<{len(numbers)}f", *numbers)


def embed(s, given, **fields):
    status, got, _ = s.ask(PATH, {"input": given, **fields})
    if status != 200:
        raise RuntimeError(f"{status}: {got}")
    return [d["embedding"] for d in got["data"]]


def test_shape(s):
    status, got, _ = s.ask(PATH, {"input": "Hello", "model": "alias"})
    tally.check("200", status == 200 and got["object"] == "list" and got["model"] == "alias", got)
    data = got["data"][0]
    tally.check("data", data["object"] == "embedding" and data["index"] == 0 and len(got["data"]) == 1)
    tally.check("of length 1", abs(math.hypot(*data["embedding"]) - 1) < 1e-6, math.hypot(*data["embedding"]))
    ids = s.ask("/tokenize", {"content": "Hello"})[1]["tokens"]
    tally.check("usage", got["usage"] == {"prompt_tokens": len(ids), "total_tokens": len(ids)}, got["usage"])
    tally.check("ids", embed(s, ids) == embed(s, [ids]) == [data["embedding"]])
    text = s.ask(PATH, {"input": "Hello", "encoding_format": "base64"})[1]["data"][0]["embedding"]
    tally.check("base64", base64.b64decode(text) == floats(data["embedding"]))
    raw, width = embed(s, "Hello", normalize=False)[0], len(data["embedding"])
    length = math.hypot(*raw)
    tally.check("normalised", all(abs(a / length - b) < 1e-6 for a, b in zip(raw, data["embedding"])) and abs(length - 1) > 1e-3)
    tally.check("dimensions", embed(s, "Hello", dimensions=width) == [data["embedding"]])
    mean = embed(s, "Hello there", pooling="mean")
    tally.check("pooling", mean != embed(s, "Hello there", pooling="last") == embed(s, "Hello there"))
    one = [ids[0]]
    tally.check("one token is its own mean", floats(embed(s, one, pooling="mean", normalize=False)[0]) == floats(embed(s, one, normalize=False)[0]))


def test_same_bits(s):
    """A vector's bits do not depend on what runs beside it."""
    for pooling in ("last", "mean"):
        alone = [embed(s, t, pooling=pooling)[0] for t in TEXTS]
        tally.check(f"{pooling}: many in a request", embed(s, TEXTS * 5, pooling=pooling) == alone * 5)
        body = json.dumps(chat("Hello", max_tokens=400, logit_bias={str(EOS): -1000})).encode()
        beside = [threading.Thread(target=s.ask, args=["/v1/chat/completions", body]) for _ in range(4)]
        for t in beside:
            t.start()
        tally.check(f"{pooling}: beside answers", [embed(s, t, pooling=pooling)[0] for t in TEXTS] == alone)
        for t in beside:
            t.join()
        with Server(GOLDEN / "llama-4bit" / "model", "--prefill-step-size", 7, "--threads", 1, "--prompt-cache-size", 0) as other:
            tally.check(f"{pooling}: in small pieces", [embed(other, t, pooling=pooling)[0] for t in TEXTS] == alone)
    want = s.ask("/v1/chat/completions", chat("Hello"))[1]["choices"]
    embed(s, TEXTS)
    tally.check("answers stay", s.ask("/v1/chat/completions", chat("Hello"))[1]["choices"] == want)


WRONG = {
    "input": [None, "", [], 3, {}, [[]], [1.5], [-1], [320], ["a", 1], [None], [[1], [320]], ["a"] * 2049, "x" * 3000, "1" * 1000000],
    "encoding_format": ["int8", 3],
    "dimensions": [3, 0, "a"],
    "pooling": ["cls", 3],
    "normalize": ["yes"],
    "model": [3],
    "user": [3],
    "instruction": ["x"],
}


def test_wrong(s):
    for name, values in WRONG.items():
        for value in values:
            status, got, _ = s.ask(PATH, {"input": "a", name: value})
            ok = status == 400 and set(got) == {"error"} and (name in got["error"]["message"] or got["error"]["param"] == name)
            tally.check(f"wrong {name} {str(value)[:40]}", ok, f"{status} {str(got)[:300]}")
    status, got, _ = s.ask(PATH, {"input": "a", "model": "other"})
    tally.check("model", status == 404 and got["error"]["param"] == "model", got)
    for path in ("/tokenize", "/detokenize", "/apply-template"):
        status, got, _ = s.ask(path, {"content": "a", "tokens": [1], "messages": chat("a")["messages"], "model": "other"})
        tally.check(f"{path}: model", status == 404 and got["error"]["param"] == "model", got)


def test_ollama(s):
    want = embed(s, TEXTS[:3])
    status, got, _ = s.ask("/api/embed", {"model": "alias:latest", "input": TEXTS[:3], "options": {"num_ctx": 99}, "keep_alive": "5m"})
    tally.check("/api/embed", status == 200 and got["embeddings"] == want and got["model"] == "alias:latest" and got["prompt_eval_count"] > 0, got)
    tally.check("/api/embed: one", s.ask("/api/embed", {"model": "alias", "input": "Hello"})[1]["embeddings"] == want[:1])
    status, got, _ = s.ask("/api/embeddings", {"model": "alias", "prompt": "Hello"})
    tally.check("/api/embeddings", status == 200 and got == {"embedding": embed(s, "Hello", normalize=False)[0]}, got)
    for body in ({"model": "alias"}, {"model": "alias", "input": ""}, {"model": "alias", "input": 3}, {"model": "alias", "input": "a", "dimensions": 3}, {"model": "alias", "input": "a", "pooling": "mean"}):
        status, got, _ = s.ask("/api/embed", body)
        tally.check(f"/api/embed: wrong {body}", status == 400 and set(got) == {"error"}, got)
    tally.check("/api/embed: model", s.ask("/api/embed", {"model": "other", "input": "a"})[0] == 404)


def test_leaving(s):
    """A client that leaves takes its jobs along."""
    c = s.connect()
    c.request("POST", PATH, json.dumps({"input": ["x" * 1000] * 1500}))
    until(lambda: s.metric("requests_running") > 0)
    c.close()
    tally.check("leaves", until(lambda: s.metric("requests_running") == 0 and s.metric("requests_waiting") == 0))
    tally.check("gives its state back", s.metric("state_bytes") == 0)


def test_packages(s):
    try:
        import ollama
        import openai
    except ImportError:
        tally.skip("openai and ollama", "the packages are not installed (scripts/clients.sh installs them)")
        return
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="none", max_retries=0)
    got = client.embeddings.create(model="alias", input=TEXTS[:2])  # asks for base64
    tally.check("package: openai", [floats(d.embedding) for d in got.data] == [floats(v) for v in embed(s, TEXTS[:2])])
    other = ollama.Client(host=f"http://127.0.0.1:{s.port}")
    tally.check("package: ollama", other.embed(model="alias", input=TEXTS[:2]).embeddings == embed(s, TEXTS[:2]))
    tally.check("package: ollama, the older", list(other.embeddings(model="alias", prompt="a").embedding) == embed(s, "a", normalize=False)[0])


def main():
    python = BUILD / "clients" / "bin" / "python"
    if python.exists() and Path(sys.prefix).resolve() != python.parent.parent.resolve():
        os.execv(python, [str(python), *sys.argv])
    with Server(GOLDEN / "llama-4bit" / "model", "--alias", "alias") as s:
        for test in (test_shape, test_same_bits, test_wrong, test_ollama, test_leaving, test_packages):
            test(s)
        tally.check("ends well", s.end() == 0, s.status)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
