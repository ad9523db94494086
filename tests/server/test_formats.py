"""Answers that are JSON, of any form or under a schema, in every dialect: by hand, and with the official packages where
scripts/clients.sh put them. Checkpoints of random weights, which lean towards nothing: their answers must parse and be
valid whatever the seed. A model that says what a test wants, for reasoning; a real one where it is there.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from scripted import make_model  # noqa: E402
from serving import GOLDEN, Server, chat  # noqa: E402
from tally import Tally  # noqa: E402
from terncli import BUILD  # noqa: E402

tally = Tally()
CHAT, RESPONSES, OLLAMA, GENERATE = "/v1/chat/completions", "/v1/responses", "/api/chat", "/api/generate"
SCHEMA = {
    "type": "object",
    "title": "Thing",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "kind": {"enum": ["one", "two"]},
        "n": {"type": "integer", "minimum": 3, "maximum": 120},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
    },
    "required": ["name", "kind", "n"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "thing", "schema": SCHEMA, "strict": True}}
LONG = 200


def valid(text):
    try:
        v = json.loads(text)
    except ValueError:
        return False
    names = [k for k in SCHEMA["properties"] if k in v]
    return (
        list(v) == names and len(v["name"]) <= 8 and v["kind"] in ("one", "two") and type(v["n"]) is int and 3 <= v["n"] <= 120
        and all(type(t) is bool for t in v.get("tags", [])) and len(v.get("tags", [])) <= 2
    )


def content(s, **fields):
    status, got, _ = s.ask(CHAT, chat("Hello", max_tokens=LONG, **fields))
    if status != 200:
        return f"{status} {got}", None
    return got["choices"][0]["message"]["content"], got["choices"][0]["finish_reason"]


def test_chat(s):
    ended = 0
    for seed in range(16):
        text, finish = content(s, response_format=FORMAT, seed=seed, temperature=1.0 if seed else 0)
        ended += finish == "stop"
        tally.check(f"seed {seed}", finish == "length" or (finish == "stop" and valid(text)), f"{finish} {text}")
        again = content(s, response_format=FORMAT, seed=seed, temperature=1.0 if seed else 0)
        tally.check(f"seed {seed} again", again == (text, finish), again)
    tally.check("most end", ended > 12, ended)
    got = s.ask(CHAT, chat("Hello", max_tokens=LONG, response_format=FORMAT, n=4, temperature=1, seed=5))[1]
    tally.check("n", all(valid(c["message"]["content"]) for c in got["choices"] if c["finish_reason"] == "stop"), got)
    events = s.stream(CHAT, chat("Hello", max_tokens=LONG, response_format=FORMAT, temperature=1, seed=3))
    text = "".join(e["choices"][0]["delta"].get("content") or "" for e in events if e != "[DONE]" and e["choices"])
    tally.check("stream", text == content(s, response_format=FORMAT, temperature=1, seed=3)[0], text)
    got = s.ask(CHAT, chat("Hello", max_tokens=LONG, response_format=FORMAT, logprobs=True, top_logprobs=3, temperature=1, seed=3))[1]["choices"][0]
    tops = [t["logprob"] for token in got["logprobs"]["content"] for t in token["top_logprobs"]]
    tally.check("logprobs are of what may come", got["message"]["content"] == text and tops and min(tops) > -1e4, got)
    for seed in range(6):
        text, finish = content(s, response_format={"type": "json_object"}, seed=seed, temperature=0.6)
        ok = text.startswith("{") and (finish == "length" or isinstance(json.loads(text), dict))
        tally.check(f"json_object {seed}", ok, f"{finish} {text}")
    tally.check("cut", content(s, response_format=FORMAT, **{"stop": ["{"]}) == ("", "stop"))
    tally.check("text", content(s, response_format={"type": "text"})[0] == content(s)[0])


def test_dialects(s):
    for seed in range(6):
        want = content(s, response_format=FORMAT, seed=seed, temperature=1)[0]
        got = s.ask(RESPONSES, {"input": "Hello", "max_output_tokens": LONG, "seed": seed, "temperature": 1, "text": {"format": {"type": "json_schema", "name": "thing", "schema": SCHEMA}}})[1]
        text = "".join(p["text"] for item in got.get("output", []) for p in item["content"])
        tally.check(f"responses {seed}", text == want and got["text"]["format"]["schema"] == SCHEMA, f"{got} {want}")
        options = {"num_predict": LONG, "seed": seed, "temperature": 1}
        got = s.ask(OLLAMA, {"messages": [{"role": "user", "content": "Hello"}], "stream": False, "options": options, "format": SCHEMA})[1]
        tally.check(f"ollama chat {seed}", got.get("message", {}).get("content") == want, f"{got} {want}")
        got = s.ask(GENERATE, {"prompt": "Hello", "stream": False, "options": options, "format": SCHEMA})[1]
        tally.check(f"ollama generate {seed}", got.get("response") == want, f"{got} {want}")
        got = s.ask(GENERATE, {"prompt": "Hello", "raw": True, "stream": False, "options": options, "format": SCHEMA})[1]
        tally.check(f"ollama raw {seed}", got.get("done_reason") == "length" or valid(got.get("response", "")), got)
    want = content(s, response_format={"type": "json_object"}, temperature=0.6, seed=2)[0]
    got = s.ask(OLLAMA, {"messages": [{"role": "user", "content": "Hello"}], "stream": False, "options": {"num_predict": LONG, "seed": 2, "temperature": 0.6}, "format": "json"})[1]
    tally.check("ollama json", got["message"]["content"] == want, f"{got} {want}")
    got = s.ask("/v1/completions", {"prompt": "Hello", "max_tokens": LONG, "temperature": 1, "seed": 1, "response_format": FORMAT})[1]["choices"][0]
    tally.check("completions", got["finish_reason"] == "length" or valid(got["text"]), got)


def of(schema):
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


def test_wrong(s):
    wrong = [
        (3, "response_format"),
        ({}, "type"),
        ({"type": "grammar"}, "grammar"),
        ({"type": "json_schema"}, "json_schema"),
        ({"type": "json_schema", "json_schema": {"name": "x"}}, "schema"),
        ({"type": "json_schema", "json_schema": {"schema": {}, "strict": 1}}, "strict"),
        ({"type": "json_object", "schema": {}}, "schema"),
        (of({"type": "string", "pattern": "(?=a)"}), "response_format.json_schema.schema.pattern"),
        (of({"properties": {"a": {"items": {"uniqueItems": True}}}}), "schema.properties.a.items.uniqueItems"),
        (of({"$ref": "#"}), "itself"),
        (of({"type": "string", "maxLength": 10**9}), "more than"),
        (of({"enum": []}), "enum"),
        (of({"type": "string", "pattern": "^(.*a.{300}|.*b.{300}|.*e.{300}|.*[a-z].{200})"}), "too costly"),
        (of({"anyOf": [{"type": "string", "minLength": i + 100, "maxLength": i + 110} for i in range(250)]}), "too costly"),
        (of({"const": {"a": [12345678901234567890]}}), "schema.const"),
        (of({"enum": [1, -123456789012345678901]}), "schema.enum"),
        (of({"type": "integer", "minimum": 2**63 - 1}), "schema.minimum"),
        (of({"type": "integer", "exclusiveMaximum": -(10**18) + 1}), "schema.exclusiveMaximum"),
    ]
    for value, words in wrong:
        status, got, _ = s.ask(CHAT, chat("x", response_format=value))
        ok = status == 400 and got["error"]["param"] == "response_format" and words in got["error"]["message"]
        tally.check(f"wrong {json.dumps(value)[:60]}", ok, f"{status} {got}")
    status, got, _ = s.ask(RESPONSES, {"input": "x", "text": {"format": {"type": "json_schema", "name": "x", "schema": {"not": {}}}}})
    tally.check("responses", status == 400 and got["error"]["param"] == "text" and "text.format.schema.not" in got["error"]["message"], got)
    status, got, _ = s.ask(RESPONSES, {"input": "x", "text": {"verbosity": "low"}})
    tally.check("verbosity", status == 400 and "verbosity" in got["error"]["message"], got)
    status, got, _ = s.ask(OLLAMA, {"messages": [{"role": "user", "content": "x"}], "format": {"properties": {"a": {"not": {}}}}})
    tally.check("ollama", status == 400 and "format.properties.a.not" in got["error"], got)
    status, got, _ = s.ask(OLLAMA, {"messages": [{"role": "user", "content": "x"}], "format": "yaml"})
    tally.check("ollama's word", status == 400 and "format" in got["error"], got)


TEMPLATE = "{# enable_thinking #}{% for m in messages %}{{ m.content }}{% endfor %}{% if think_first %}<think>{% endif %}"
SCRIPTS = {
    "§think": '<think>\nHm, {"a": no}.\n</think>\n\n{"a": 1}',
    "§plain": '{"a": "a <think> in a string </think>"}',
    "<think>": 'so it is\n</think>\n{"a": [true]}',
}


def test_reasoning(folder):
    with Server(make_model(folder, TEMPLATE, SCRIPTS, words=("<think>", "</think>"))) as s:
        tests = [
            ("§think", {}, '\nHm, {"a": no}.\n', {"a": 1}),
            ("§plain", {}, None, {"a": "a <think> in a string </think>"}),
            ("§plain", {"chat_template_kwargs": {"think_first": True}}, "so it is\n", {"a": [True]}),
        ]
        for word, fields, reasoning, value in tests:
            got = s.ask(CHAT, chat(word, max_tokens=200, response_format={"type": "json_object"}, **fields))[1]["choices"][0]
            message = got["message"]
            ok = message.get("reasoning_content", message.get("reasoning")) == reasoning and json.loads(message["content"]) == value and got["finish_reason"] == "stop"
            tally.check(f"reasoning {word} {fields}", ok, got)


def test_real():
    model = BUILD / "models" / "smollm2"
    if not (model / "config.json").exists():
        tally.skip("smollm2", "the model is not there (scripts/models.sh fetches it)")
        return
    with Server(model) as s:
        for temperature in (0, 1):
            message = "Describe a thing named cup, of kind one, with n 7. Answer in JSON."
            got = s.ask(CHAT, chat(message, max_tokens=LONG, response_format=FORMAT, temperature=temperature, seed=1))[1]["choices"][0]
            tally.check(f"smollm2 at {temperature}", got["finish_reason"] == "stop" and valid(got["message"]["content"]), got)


def test_packages(s):
    try:
        import openai
        from pydantic import BaseModel
    except ImportError:
        tally.skip("openai", "the package is not installed (scripts/clients.sh installs it)")
        return

    class Step(BaseModel):
        done: bool

    class Plan(BaseModel):
        steps: list[Step]
        mark: int

    client = openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="none", max_retries=0)
    call = {"model": "alias", "temperature": 0.3, "extra_body": {"seed": 5}}
    plans = 0
    for seed in range(8):
        call["extra_body"] = {"seed": seed}
        try:
            got = client.chat.completions.parse(messages=[{"role": "user", "content": "Hello"}], response_format=Plan, max_tokens=400, **call)
            plans += isinstance(got.choices[0].message.parsed, Plan)
        except openai.LengthFinishReasonError:
            pass
    tally.check("package: parse", plans > 0, plans)
    for seed in range(8):
        call["extra_body"] = {"seed": seed}
        got = client.responses.create(input="Hello", text={"format": {"type": "json_schema", "name": "s", "schema": Step.model_json_schema()}}, max_output_tokens=100, **call)
        tally.check(f"package: responses {seed}", got.status == "incomplete" or type(json.loads(got.output_text)["done"]) is bool, got)
    try:
        import ollama
    except ImportError:
        tally.skip("ollama", "the package is not installed")
        return
    answer = ollama.Client(f"http://127.0.0.1:{s.port}").chat(model="alias", messages=[{"role": "user", "content": "x"}], format=Step.model_json_schema(), options={"num_predict": 100})
    tally.check("package: ollama", type(json.loads(answer.message.content)["done"]) is bool, answer)


def main():
    python = BUILD / "clients" / "bin" / "python"
    if python.exists() and Path(sys.prefix).resolve() != python.parent.parent.resolve():
        os.execv(python, [python, __file__])
    for name in ("llama-4bit", "gemma3-bf16"):
        with Server(GOLDEN / name / "model", "--alias", "alias") as s:
            test_chat(s)
            test_dialects(s)
            test_wrong(s)
            if name == "llama-4bit":
                test_packages(s)
    with Server(GOLDEN / "llama-4bit" / "model", "--prompt-lookup") as guessing, Server(GOLDEN / "llama-4bit" / "model") as s:
        for seed in range(6):
            fields = {"response_format": FORMAT, "temperature": 1 if seed else 0, "seed": seed}
            tally.check(f"with guesses {seed}", content(guessing, **fields) == content(s, **fields))
    with tempfile.TemporaryDirectory() as folder:
        test_reasoning(folder)
    test_real()
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
