"""Ollama's dialect: every route by hand, and with the official `ollama` package where scripts/clients.sh put it."""

import json
import os
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from serving import EOS, GOLDEN, Server, chat, until  # noqa: E402
from tally import Tally  # noqa: E402
from terncli import BUILD, tern  # noqa: E402

tally = Tally()
CHAT, GENERATE = "/api/chat", "/api/generate"
NEVER = {"temperature": 0.8, "seed": 4}


def talk(**fields):
    """A body of /api/chat with 24 tokens at most."""
    options = {"num_predict": 24, **fields.pop("options", {})}
    return {"model": "alias", "messages": [{"role": "user", "content": "Hello"}], "stream": False, "options": options, **fields}


def tell(**fields):
    """The same of /api/generate."""
    options = {"num_predict": 24, **fields.pop("options", {})}
    return {"model": "alias", "prompt": "Hello", "stream": False, "options": options, **fields}


def lines(s, path, body):
    """The lines of a stream and its type."""
    status, text, headers = s.ask(path, body)
    return [json.loads(line) for line in text.splitlines()] if status == 200 and isinstance(text, str) else text, headers["Content-Type"]


def same_text(s, label, got, messages, **fields):
    want = s.ask("/v1/chat/completions", {"messages": messages, "max_tokens": 24, **fields})[1]
    ok = got.get("message", {}).get("content") == want["choices"][0]["message"]["content"]
    tally.check(label, ok, f"{got} {want}")
    return want


def test_chat(s):
    status, got, headers = s.ask(CHAT, talk())
    tally.check("200", status == 200 and headers["Content-Type"] == "application/json", f"{status} {got}")
    want = same_text(s, "chat: text", got, talk()["messages"])
    tally.check("chat: done", got["done"] is True and got["done_reason"] == want["choices"][0]["finish_reason"], got)
    counts = got["prompt_eval_count"], got["eval_count"]
    tally.check("chat: counts", counts == (want["usage"]["prompt_tokens"], want["usage"]["completion_tokens"]), counts)
    times = [got[k] for k in ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")]
    tally.check("chat: times", all(isinstance(t, int) for t in times) and times[0] >= times[2] + times[3] > 0 and times[1] == 0, times)
    tally.check("chat: created_at", re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z", got["created_at"]), got)
    tally.check("chat: model", got["model"] == "alias" and s.ask(CHAT, talk(model="alias:latest"))[1]["model"] == "alias:latest")
    sampled = {"temperature": 0.8, "top_p": 0.9, "top_k": 20, "min_p": 0.01, "seed": 4, "repeat_penalty": 1.2, "presence_penalty": 0.1, "frequency_penalty": 0.1}
    shared = {k: v for k, v in sampled.items() if k != "repeat_penalty"} | {"repetition_penalty": 1.2}
    same_text(s, "chat: sampled", s.ask(CHAT, talk(options=sampled))[1], talk()["messages"], **shared)
    backs = {f"{k}_context_size": 3 for k in ("repetition", "presence", "frequency")}
    same_text(s, "chat: looks back", s.ask(CHAT, talk(options={**sampled, "repeat_last_n": 3}))[1], talk()["messages"], **shared, **backs)
    tally.check("chat: looks back at all", s.ask(CHAT, talk(options={"repeat_last_n": -1}))[0] == 200)
    for most in (-1, -2):
        full = s.ask(CHAT, talk(options={"num_predict": most, "temperature": 1, "seed": 2, "stop": ["nowhere to be found"]}))[1]
        ended = full["done_reason"] == "stop" or full["prompt_eval_count"] + full["eval_count"] == 1025
        tally.check(f"chat: num_predict {most}", ended and full["eval_count"] > 24, full)
    text = got["message"]["content"]
    stopped = s.ask(CHAT, talk(options={"stop": ["nowhere", text[3:5]]}))[1]
    tally.check("chat: stop", stopped["message"]["content"] == text[: text.index(text[3:5])] and stopped["done_reason"] == "stop", stopped)
    tools = [{"role": "user", "content": "a", "images": []}, {"role": "tool", "content": "b", "tool_name": "f"}]
    tally.check("chat: a tool's turn", s.ask(CHAT, talk(messages=tools))[0] == 200)


def test_generate(s):
    got = s.ask(GENERATE, tell())[1]
    want = s.ask(CHAT, talk())[1]
    tally.check("generate: text", got["response"] == want["message"]["content"] and "message" not in got, f"{got} {want}")
    got = s.ask(GENERATE, tell(system="Be brief."))[1]
    want = s.ask(CHAT, talk(messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]))[1]
    tally.check("generate: system", got["response"] == want["message"]["content"] and got["prompt_eval_count"] == want["prompt_eval_count"], f"{got} {want}")
    got = s.ask(GENERATE, tell(raw=True))[1]
    want = s.ask("/v1/completions", {"prompt": "Hello", "max_tokens": 24})[1]
    ok = got["response"] == want["choices"][0]["text"] and got["prompt_eval_count"] == want["usage"]["prompt_tokens"]
    tally.check("generate: raw", ok, f"{got} {want}")


def test_streams(s):
    for path, body, key in ((CHAT, talk(options=NEVER), "message"), (GENERATE, tell(options=NEVER), "response"), (GENERATE, tell(options=NEVER, raw=True), "response")):
        whole = s.ask(path, body)[1]
        for stream in (True, None):
            got, kind = lines(s, path, {**{k: v for k, v in body.items() if k != "stream"}, **({"stream": True} if stream else {})})
            label = f"stream {path} {stream}"
            if not tally.check(f"{label}: lines", kind == "application/x-ndjson" and isinstance(got, list) and len(got) >= 2, got):
                continue
            text = "".join(e[key]["content"] if key == "message" else e[key] for e in got)
            tally.check(f"{label}: text", text == (whole[key]["content"] if key == "message" else whole[key]))
            tally.check(f"{label}: done", [e["done"] for e in got] == [False] * (len(got) - 1) + [True])
            same = all(got[-1][k] == whole[k] for k in ("done_reason", "eval_count", "prompt_eval_count"))
            tally.check(f"{label}: counts", same and "eval_count" not in got[0], got[-1])


def test_logprobs(s):
    """The tokens that a chat has: on the only line, or on the lines of their text."""
    said = s.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 24, "logprobs": True, "top_logprobs": 2})[1]
    never = {"temperature": 0, "num_predict": 24}
    for path, body in ((CHAT, talk(options=never)), (GENERATE, tell(options=never)), (GENERATE, tell(options=never, raw=True))):
        label = f"logprobs {path}{' raw' if 'raw' in body else ''}"
        plain = s.ask(path, body)[1]
        whole = s.ask(path, {**body, "logprobs": True, "top_logprobs": 2})[1]
        tokens = whole["logprobs"]
        tally.check(f"{label}: as many", len(tokens) == whole["eval_count"] and "logprobs" not in plain, whole)
        shape = all(isinstance(t["token"], str) and t["logprob"] <= 0 and len(t["top_logprobs"]) == 2 and set(t["top_logprobs"][0]) <= {"token", "logprob", "bytes"} for t in tokens)
        tally.check(f"{label}: shape", shape and all(t.get("bytes") != [] and t.get("bytes", 1) is not None for t in tokens), tokens[:2])
        alone = s.ask(path, {**body, "logprobs": True})[1]["logprobs"]
        tally.check(f"{label}: without others", alone == [{k: v for k, v in t.items() if k != "top_logprobs"} for t in tokens], alone[:2])
        got, _ = lines(s, path, {**body, "stream": True, "logprobs": True, "top_logprobs": 2})
        tally.check(f"{label}: lines", [t for line in got for t in line.get("logprobs", [])] == tokens, got[:2])
        if path == CHAT:
            want = [(t["token"], t["logprob"]) for t in said["choices"][0]["logprobs"]["content"]]
            tally.check(f"{label}: as in a chat", [(t["token"], t["logprob"]) for t in tokens] == want, f"{tokens} {want}")
    status, got, _ = s.ask(CHAT, talk(options={"num_predict": -3}))
    tally.check("a range in full", status == 400 and got["error"].endswith("-3 is not from -2 to 1073741824"), got)
    for path, body in ((CHAT, talk()), (GENERATE, tell()), (GENERATE, tell(raw=True))):
        status, got, _ = s.ask(path, {**body, "top_logprobs": 2})
        tally.check(f"top_logprobs alone {path}{' raw' if 'raw' in body else ''}", status == 400 and got["error"] == "top_logprobs: needs logprobs to be true", got)
        for quiet in ({"top_logprobs": 0}, {"logprobs": False}, {"logprobs": False, "top_logprobs": 0}):
            status, got, _ = s.ask(path, {**body, **quiet})
            tally.check(f"{quiet} {path}", status == 200 and "logprobs" not in got, got)
    status, got, _ = s.ask(CHAT, talk(format="yaml"))
    tally.check("format is named", status == 400 and got["error"].startswith("format: ") and "JSON Schema" in got["error"], got)


def test_load(s):
    for path, body in ((CHAT, {"model": "alias"}), (CHAT, {"model": "alias", "messages": []}), (GENERATE, {"model": "alias"}), (GENERATE, {"model": "alias", "prompt": "", "keep_alive": -1})):
        status, got, _ = s.ask(path, body)
        tally.check(f"load {path} {body}", status == 200 and got["done"] is True and got["done_reason"] == "load", got)
    status, got, _ = s.ask(GENERATE, {"model": "alias", "keep_alive": 0})
    tally.check("unload", status == 400 and "keep_alive" in got["error"], got)
    status, got, _ = s.ask(CHAT, {"model": "other"})
    tally.check("load another", status == 404 and "other" in got["error"], got)


WRONG = {
    CHAT: {
        "messages": [1, {}, [1], [{"role": "user", "content": "a", "images": ["x"]}], [{"role": 3, "content": "a"}], [{"role": "user", "content": 3}]],
        "format": ["yaml", {"type": "objekt"}, 3],
        "tools": [[{"type": "function", "function": {"name": "f"}}], 3],
        "think": [True, "high", 3],
        "stream": [1, "yes"],
        "options": [3, []],
        "model": [3],
        "logprobs": [3],
        "top_logprobs": [3, 21, -1],
        "tempreature": [1],
        "keep_alive": [True, {}],
    },
    GENERATE: {
        "prompt": [1, ["a"]],
        "system": [3],
        "raw": [3],
        "suffix": ["x"],
        "template": ["{{ .Prompt }}"],
        "images": [["x"]],
        "context": [[1, 2]],
        "format": ["yaml"],
        "messages": [[]],
    },
}
WRONG_OPTIONS = {
    "temperature": [-1, "hot"],
    "top_p": [1.1],
    "top_k": [-1, 1.5, "a"],
    "min_p": [2],
    "seed": ["a", 1.5],
    "stop": [3, [3], ""],
    "num_predict": [0, -3, 1.5],
    "repeat_penalty": [-1],
    "repeat_last_n": [0, -2],
    "num_ctx": [0, "a"],
    "typical_p": [0.5],
    "tfs_z": [0.5],
    "mirostat": [1],
    "penalize_newline": [False],
    "num_thread": ["a"],
    "dry_multiplier": [1],
    "repetition_penalty": [1],
}


def test_wrong(s):
    for path, fields in WRONG.items():
        make = talk if path == CHAT else tell
        for name, values in fields.items():
            for value in values:
                body = make()
                body[name] = value
                status, got, _ = s.ask(path, body)
                ok = status == 400 and set(got) == {"error"} and name in got["error"]
                tally.check(f"wrong {path} {name} {value}", ok, f"{status} {got}")
    for name, values in WRONG_OPTIONS.items():
        for value in values:
            status, got, _ = s.ask(CHAT, talk(options={name: value}))
            tally.check(f"wrong option {name} {value}", status == 400 and set(got) == {"error"} and name in got["error"], f"{status} {got}")
    quiet = {"num_ctx": 4096, "num_keep": 4, "num_batch": 2, "num_gpu": 99, "num_thread": 3, "use_mmap": True, "mirostat": 0, "typical_p": 1.0, "tfs_z": 1}
    tops = {"keep_alive": "5m", "format": "", "tools": [], "think": False, "truncate": True}
    got, want = s.ask(CHAT, talk(options=quiet, **tops))[1], s.ask(CHAT, talk())[1]
    tally.check("what is let be", got.get("message") == want["message"], got)
    tally.check("a null model", s.ask(CHAT, {"model": None, "messages": None})[1].get("done_reason") == "load")
    nulls = dict.fromkeys(("format", "tools", "think", "keep_alive"))
    tally.check("null is absent", s.ask(CHAT, talk(**nulls))[1].get("message") == want["message"])
    status, got, _ = s.ask(CHAT, talk(model="other"))
    tally.check("404", status == 404 and "other" in got["error"] and "alias" in got["error"], got)
    status, got, _ = s.ask(CHAT, talk(options={"num_predict": 5000}))
    tally.check("too long", status == 400 and "positions" in got["error"] and got["error"].startswith("options.num_predict: 5000: "), got)
    status, got, _ = s.ask(GENERATE, tell(prompt="y" * 3000))
    tally.check("too long a prompt", status == 400 and got["error"].startswith("prompt: "), got)
    for path in ("/api", "/api/nothing", "/api/pull", "/api/chat/x"):
        status, got, _ = s.ask(path, {}, method="POST")
        tally.check(f"404 {path}", status == 404 and set(got) == {"error"}, got)
    status, got, headers = s.ask(CHAT)
    tally.check("405", status == 405 and headers["Allow"] == "POST" and set(got) == {"error"}, got)
    for text in (b"", b"[", b"\xff", b"[1]"):
        status, got, _ = s.ask(CHAT, text, method="POST")
        tally.check(f"body {text!r}", status == 400 and set(got) == {"error"}, got)


def test_thinking():
    template = "{{ messages[0].content }}{% if enable_thinking is not defined or enable_thinking %}, think hard about it{% endif %}"
    with Server(GOLDEN / "llama-4bit" / "model", "--alias", "alias", "--chat-template", template, "--chat-template-args", '{"enable_thinking": true}') as s:
        off, asis = s.ask(CHAT, talk(think=False))[1], s.ask(CHAT, talk())[1]
        tally.check("think false", off["prompt_eval_count"] < asis["prompt_eval_count"], f"{off} {asis}")


def test_info(s):
    version = tern("--version").out.decode().split()[1].rstrip(",")
    tally.check("version", s.ask("/api/version")[1] == {"version": version}, f"{s.ask('/api/version')[1]} {version}")
    tags = s.ask("/api/tags")[1]["models"]
    tally.check("tags", [m["name"] for m in tags] == [f"{s.name}:latest", "alias:latest"], tags)
    tally.check("as it was typed", s.ask(CHAT, talk(model=f"{s.model}:latest"))[0] == 200)
    for m in tags:
        ok = m["model"] == m["name"] and m["size"] > 0 and re.fullmatch("[0-9a-f]{64}", m["digest"]) and m["details"]["family"] == "llama"
        tally.check(f"tags: {m['name']}", ok, m)
        tally.check(f"{m['name']} answers", s.ask(CHAT, talk(model=m["name"]))[0] == 200)
    running = s.ask("/api/ps")[1]["models"]
    tally.check("ps", running[0]["name"] == f"{s.name}:latest" and running[0]["context_length"] == 1024 and running[0]["size_vram"] == 0, running)
    shown = s.ask("/api/show", {"model": "alias:latest"})[1]
    tally.check("show: template", "messages" in shown["template"] and shown["capabilities"] == ["completion"], shown)
    info = shown["model_info"]
    tally.check("show: model_info", info["llama.context_length"] == 1024 and info["general.architecture"] == "llama", info)
    config = json.loads((GOLDEN / "llama-4bit" / "model" / "config.json").read_text())
    want = {"embedding_length": "hidden_size", "block_count": "num_hidden_layers", "feed_forward_length": "intermediate_size", "attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads", "vocab_size": "vocab_size"}
    tally.check("show: numbers", all(info[f"llama.{k}"] == config[v] for k, v in want.items()), info)
    details = shown["details"]
    tally.check("show: details", details["quantization_level"].startswith("affine 4-bit") and details["parameter_size"].endswith("K") and details["context_length"] == 1024 and details["embedding_length"] == config["hidden_size"], details)
    tally.check("show: parameters", 1000 * int(details["parameter_size"][:-1]) - 500 <= info["general.parameter_count"] <= 1000 * int(details["parameter_size"][:-1]) + 500, f"{info} {details}")
    tally.check("tags: details", s.ask("/api/tags")[1]["models"][0]["details"] == details == running[0]["details"], details)
    tally.check("show: name", s.ask("/api/show", {"name": "alias"})[1] == shown)
    status, got, _ = s.ask("/api/show", {"model": "other"})
    tally.check("show: 404", status == 404 and "other" in got["error"], got)
    for body in ({"model": 3}, {"modle": "alias"}, {"system": "x"}):
        status, got, _ = s.ask("/api/show", body)
        tally.check(f"show: wrong {body}", status == 400 and set(got) == {"error"}, got)
    status, text, headers = s.ask("/")
    tally.check("/", status == 200 and "tern" in text and headers["Content-Type"].startswith("text/plain"), text)


def test_leaving(s):
    """A reader that leaves a stream of lines cancels its answer."""
    c = s.connect()
    before = s.metric('requests_total{end="cancelled"}')
    c.request("POST", GENERATE, json.dumps({**tell(raw=True, options={"num_predict": 900}), "stream": True}))
    c.getresponse().read(10)
    c.close()
    tally.check("leaves", until(lambda: s.metric("requests_running") == 0) and s.metric('requests_total{end="cancelled"}') >= before)


def test_package(s):
    try:
        import ollama
    except ImportError:
        tally.skip("ollama", "the package is not installed (scripts/clients.sh installs it)")
        return
    client = ollama.Client(host=f"http://127.0.0.1:{s.port}")
    call = {"model": "alias", "options": {"num_predict": 24, **NEVER}}
    whole = client.chat(messages=talk()["messages"], **call)
    tally.check("package: chat", whole.message.content and whole.done and whole.eval_count > 0)
    parts = list(client.chat(messages=talk()["messages"], stream=True, **call))
    told = client.chat(messages=talk()["messages"], logprobs=True, top_logprobs=2, **call).logprobs
    tally.check("package: logprobs", told and told[0].token and told[0].logprob <= 0 and len(told[0].top_logprobs) == 2, told)
    tally.check("package: chat stream", "".join(p.message.content for p in parts) == whole.message.content and parts[-1].done_reason == whole.done_reason)
    whole = client.generate(prompt="Hello", system="Be brief.", keep_alive="5m", **call)
    parts = list(client.generate(prompt="Hello", system="Be brief.", stream=True, **call))
    tally.check("package: generate", "".join(p.response for p in parts) == whole.response and parts[-1].eval_count == whole.eval_count)
    options = ollama.Options(num_predict=8, temperature=0.5, seed=1, top_k=5, num_ctx=2048)
    tally.check("package: options", client.generate(model="alias", prompt="Hello", raw=True, options=options).eval_count == 8)
    tally.check("package: list", [m.model for m in client.list().models] == [f"{s.name}:latest", "alias:latest"])
    tally.check("package: ps", client.ps().models[0].expires_at.year > 2300)
    shown = client.show("alias")
    tally.check("package: show", shown.modelinfo["llama.context_length"] == 1024 and shown.details.family == "llama")
    for label, call in {"format": {"format": {"not": {}}}, "think": {"think": True}, "model": {"model": "other"}}.items():
        try:
            client.chat(**{"model": "alias", "messages": talk()["messages"], **call})
            tally.fail(f"package: {label}", "no error")
        except ollama.ResponseError as error:
            tally.check(f"package: {label}", label in error.error and error.status_code == (404 if label == "model" else 400), error)


def main():
    python = BUILD / "clients" / "bin" / "python"
    if python.exists() and Path(sys.prefix).resolve() != python.parent.parent.resolve():
        os.execv(python, [str(python), *sys.argv])
    model = GOLDEN / "llama-4bit" / "model"
    with Server(model, "--alias", "alias") as s:
        s.model = str(model)
        for test in (test_chat, test_generate, test_streams, test_logprobs, test_load, test_wrong, test_info, test_leaving, test_package):
            test(s)
        tally.check("goes on", s.ask("/v1/chat/completions", chat("Hello", logit_bias={str(EOS): -100}))[0] == 200)
        tally.check("ends well", s.end() == 0, s.status)
    test_thinking()
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
