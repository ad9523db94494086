"""Calls that are forced, strict functions and formats beside tools, in every dialect, on checkpoints of random weights
that would never call anything by themselves: each answer that ends by itself is a well-formed call, or a value of the
form, whatever the seed. Arguments are held against the schemas by the package jsonschema_rs where it is there, and by
hand. A model that says what a test wants shows what is left free.
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
from test_tools import gathered, replayed  # noqa: E402

tally = Tally()
CHAT, MESSAGES, RESPONSES, OLLAMA = "/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat"
LONG = 400
PLACE = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 6},
        "unit": {"type": "string", "enum": ["C", "F"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "exact": {"type": "boolean"},
    },
    "required": ["city", "days"],
}
FUNCTIONS = [
    {"name": "get_weather", "description": "The weather of a city", "parameters": PLACE},
    {"name": "ping", "parameters": {"type": "object", "properties": {}}},
    {"name": "stop"},
]
SCHEMAS = {f["name"]: f.get("parameters", {"type": "object", "properties": {}, "additionalProperties": False}) for f in FUNCTIONS}
TOOLS = [{"type": "function", "function": f} for f in FUNCTIONS]
FLAT = [{"type": "function", **f} for f in FUNCTIONS]
# Where strings are written as they are, up to a tag, random weights do not find their end.
CITIES = {**PLACE, "properties": {**PLACE["properties"], "city": {"type": "string", "enum": ["Rome", "Oslo"]}}}
TAGGED_TOOLS = [{"type": "function", "function": {**f, "parameters": CITIES} if f["name"] == "get_weather" else f} for f in FUNCTIONS]
ANTHROPIC_TOOLS = [{"name": f["name"], "input_schema": SCHEMAS[f["name"]]} for f in FUNCTIONS]
NAMED = {"type": "function", "function": {"name": "get_weather"}}
TEMPLATE = "{% if tools %}{{ tools|tojson }}{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}{# enable_thinking #}"
FORMATS = ["json_tools", "hermes", "cohere", "nemotron", "granite", "mistral", "kimi_k2", "deepseek_v31", "llama3_json"]
TAGGED = ["qwen3_coder", "seed_oss", "minimax_m2", "glm47"]
VALUE = {"type": "object", "properties": {"ok": {"type": "boolean"}, "n": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["ok"]}
FORM = {"type": "json_schema", "json_schema": {"name": "v", "schema": VALUE}}

try:
    from jsonschema_rs import validator_for

    CHECKS = {name: validator_for(schema) for name, schema in SCHEMAS.items()}
except ImportError:
    CHECKS = {}


def valid(name, a):
    """By hand, stricter than the schema: no further members."""
    if name in CHECKS and not CHECKS[name].is_valid(a):
        return False
    if name != "get_weather":
        return name in SCHEMAS and a == {}
    if not {"city", "days"} <= set(a) <= set(PLACE["properties"]):
        return False
    typed = type(a["city"]) is str and type(a["days"]) is int and type(a.get("exact", True)) is bool
    return typed and len(a["city"]) <= 6 and 1 <= a["days"] <= 14 and a.get("unit", "C") in ("C", "F")


def is_json(text):
    try:
        return json.loads(text) is not None
    except ValueError:
        return False


def calls_of(message):
    return [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message.get("tool_calls", []) if is_json(c["function"]["arguments"])]


def good(message, finish, names=SCHEMAS, most=99):
    """Whether it is calls alone, or was cut."""
    calls = calls_of(message)
    right = all(name in names and valid(name, a) for name, a in calls) and len(calls) <= most
    if finish == "length":
        return right
    return right and finish == "tool_calls" and calls and not message.get("content")


def ask(s, **fields):
    status, got, _ = s.ask(CHAT, chat("Hello", **{"max_tokens": LONG, "tools": TOOLS, **fields}))
    return got["choices"][0] if status == 200 else {"message": {"content": f"{status} {got}"}, "finish_reason": None}


def content(c):
    return c["message"], c["finish_reason"]


def told(message):
    """Without ids, which differ."""
    return message.get("content") or "", calls_of(message)


def test_format(s, name, tools=TOOLS):
    ended = many = 0
    for seed in range(6):
        draw = {"seed": seed, "temperature": 1.0 if seed else 0, "tool_choice": "required", "tools": tools}
        message, finish = content(ask(s, **draw))
        many += len(calls_of(message)) > 1
        tally.check(f"{name} {seed}", good(message, finish), f"{finish} {message}")
        streamed, why = gathered(s.stream(CHAT, chat("Hello", max_tokens=LONG, **draw)))
        tally.check(f"{name} {seed}: streamed", told(streamed) == told(message) and why == finish, f"{streamed} {message}")
        message, finish = content(ask(s, **{**draw, "tool_choice": NAMED}))
        tally.check(f"{name} {seed}: named", good(message, finish, ["get_weather"]), f"{finish} {message}")
        message, finish = content(ask(s, **draw, parallel_tool_calls=False))
        ended += finish == "tool_calls"
        tally.check(f"{name} {seed}: one", good(message, finish, most=1), f"{finish} {message}")
    tally.check(f"{name}: most end", ended > 3, ended)
    return many


def test_dialects(s):
    """The same call in each: what is drawn depends on the prompt and the seed alone."""
    for seed in range(6):
        draw = {"seed": seed, "temperature": 1}
        want = calls_of(ask(s, **draw, tool_choice="required")["message"])
        hello = [{"role": "user", "content": "Hello"}]
        body = {"input": "Hello", "max_output_tokens": LONG, "tools": FLAT, "tool_choice": "required", **draw}
        whole, events = s.ask(RESPONSES, body)[1], s.stream(RESPONSES, body)
        for label, of in (("whole", whole), ("streamed", events[-1]["response"])):
            made = [(i["name"], json.loads(i["arguments"])) for i in of["output"] if i["type"] == "function_call" and i["status"] == "completed"]
            tally.check(f"responses {seed} {label}", made == want and of["tool_choice"] == "required", f"{of} {want}")
        named = s.ask(RESPONSES, {**body, "tool_choice": {"type": "function", "name": "ping"}})[1]
        made = [(i["name"], json.loads(i["arguments"])) for i in named["output"] if i["type"] == "function_call" and i["status"] == "completed"]
        tally.check(f"responses {seed} named", (made or named["status"] == "incomplete") and all(c == ("ping", {}) for c in made), named)
        anthropic = {"messages": hello, "max_tokens": LONG, "tools": ANTHROPIC_TOOLS, **draw}
        for choice, names in (({"type": "any"}, SCHEMAS), ({"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True}, ["get_weather"])):
            status, got, _ = s.ask(MESSAGES, {**anthropic, "tool_choice": choice})
            uses = [(b["name"], b["input"]) for b in got.get("content", []) if b["type"] == "tool_use"]
            reason = got.get("stop_reason")
            right = status == 200 and all(n in names and valid(n, a) for n, a in uses)
            tally.check(f"anthropic {seed} {choice}", right and (reason == "max_tokens" or (reason == "tool_use" and uses)), got)
            if reason != "max_tokens":
                blocks, why = replayed(s.stream(MESSAGES, {**anthropic, "tool_choice": choice}))
                tally.check(f"anthropic {seed} {choice}: streamed", [(b["name"], b["input"]) for b in blocks] == uses and why == reason, blocks)
            if len(names) == 1:
                tally.check(f"anthropic {seed}: one", len(uses) <= 1, uses)


def allowed(mode, *names):
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [{"type": "function", "function": {"name": n}} for n in names]}}


def test_choice(s):
    for seed in range(4):
        message, finish = content(ask(s, seed=seed, temperature=1, tool_choice=allowed("required", "ping", "stop")))
        tally.check(f"allowed {seed}", good(message, finish, ["ping", "stop"]), message)
        got = s.ask(RESPONSES, {"input": "Hello", "max_output_tokens": LONG, "tools": FLAT, "seed": seed, "temperature": 1, "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "stop"}]}})[1]
        tally.check(f"allowed {seed}, responses", all(i["name"] == "stop" for i in got["output"] if i["type"] == "function_call"), got)
    auto = ask(s, seed=1, temperature=1, tool_choice=allowed("auto", "ping"), max_tokens=50)
    tally.check("allowed, auto", auto["finish_reason"] and not auto["message"].get("tool_calls"), auto)
    many = s.ask(CHAT, chat("Hello", max_tokens=LONG, tools=TOOLS, tool_choice="required", n=4, temperature=1, seed=3))[1]["choices"]
    for i, c in enumerate(many):
        tally.check(f"n {i}", told(c["message"]) == told(ask(s, tool_choice="required", temperature=1, seed=3 + i)["message"]), c)


def test_cut(s):
    """max_tokens within a call: its text is content, and a stream leaves it unfinished."""
    draw = {"seed": 2, "temperature": 1, "tool_choice": NAMED, "parallel_tool_calls": False}
    whole = ask(s, **draw)
    if not tally.check("cut: there is a call", whole["finish_reason"] == "tool_calls", whole):
        return
    seen = {"length": 0}
    for most in range(1, 50, 5):
        message, finish = content(ask(s, **draw, max_tokens=most))
        streamed, why = gathered(s.stream(CHAT, chat("Hello", max_tokens=most, tools=TOOLS, **draw)))
        tally.check(f"cut {most}", why == finish and told(streamed) == told(message), f"{streamed} {message}")
        if finish == "length":
            seen["length"] += 1
            half = [c["function"]["arguments"] for c in streamed.get("tool_calls", [])]
            tally.check(f"cut {most}: content", message["content"] and not message.get("tool_calls") and not any(is_json(h) or not h for h in half), (message, streamed))
    tally.check("cut: some were", seen["length"] > 3, seen)


def test_form(s, name, tools=TOOLS):
    """An answer of the form, or calls: some of each, as the seed has it."""
    kinds = set()
    tools = [{"type": "function", "function": {**t["function"], "strict": True}} for t in tools]
    for seed in range(14):
        message, finish = content(ask(s, tools=tools, response_format=FORM, seed=seed, temperature=1))
        calls = calls_of(message)
        if finish == "length":
            continue
        kinds.add(finish)
        if calls:
            tally.check(f"{name} form {seed}: calls", good(message, finish), message)
            continue
        v = json.loads(message["content"])
        tally.check(f"{name} form {seed}", finish == "stop" and type(v["ok"]) is bool and set(v) <= {"ok", "n"} and 0 <= v.get("n", 0) <= 9, message)
    tally.check(f"{name} form: values", "stop" in kinds, kinds)
    got = s.ask(OLLAMA, {"messages": [{"role": "user", "content": "Hello"}], "stream": False, "tools": tools, "format": VALUE, "options": {"num_predict": LONG, "seed": 1, "temperature": 1}})[1]["message"]
    tally.check(f"{name} form: ollama", got.get("tool_calls") or type(json.loads(got["content"])["ok"]) is bool, got)
    message, finish = content(ask(s, tools=tools, response_format=FORM, tool_choice="required", seed=1, temperature=1))
    tally.check(f"{name} form: forced", good(message, finish), message)
    message, finish = content(ask(s, tools=tools, response_format=FORM, tool_choice="none", seed=1, temperature=1))
    tally.check(f"{name} form: none", finish == "stop" and type(json.loads(message["content"])["ok"]) is bool, message)


def refused(s, path, param, body, words):
    status, got, _ = s.ask(path, body)
    error = got.get("error", {})
    text = error if isinstance(error, str) else error.get("message", "")
    right = status == 400 and all(w in text for w in words) and (isinstance(error, str) or path == MESSAGES or error.get("param") == param)
    tally.check(f"refused {path} {json.dumps(body)[:100]}", right, f"{status} {got}")


def test_wrong(s):
    bad = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}}
    one = [{"type": "function", "function": bad}]
    strict = [{"type": "function", "function": {**bad, "strict": True}}]
    tally.check("auto stays as it is", s.ask(CHAT, chat("x", tools=one, max_tokens=2))[0] == 200)
    refused(s, CHAT, "tools", chat("x", tools=one, tool_choice="required"), ["tools[0].function.parameters.properties.a.uniqueItems"])
    refused(s, CHAT, "tools", chat("x", tools=strict), ["tools[0].function.parameters.properties.a.uniqueItems"])
    tally.check("strict, but none", s.ask(CHAT, chat("x", tools=strict, tool_choice="none", max_tokens=2))[0] == 200)
    flat = [{"type": "function", **bad, "strict": True}]
    refused(s, RESPONSES, "tools", {"input": "x", "tools": flat}, ["tools[0].parameters.properties.a.uniqueItems"])
    anthropic = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 9, "tools": [{"name": "f", "input_schema": bad["parameters"]}]}
    refused(s, MESSAGES, "tools", {**anthropic, "tool_choice": {"type": "any"}}, ["tools[0].input_schema.properties.a.uniqueItems"])
    refused(s, OLLAMA, "tools", {"messages": [{"role": "user", "content": "x"}], "tools": strict}, ["tools[0].function.parameters.properties.a.uniqueItems"])
    refused(s, CHAT, "tools", chat("x", tools=[{"type": "function", "function": {"name": "f", "strict": 1}}]), ["strict"])
    refused(s, CHAT, "tools", chat("x", tools=[TOOLS[1], TOOLS[1]], tool_choice="required"), ["ping"])
    for schema in ({"type": "string"}, {"enum": [{}]}, {"type": "object", "nullable": True}, {"anyOf": [{"type": "object"}, {}]}):
        refused(s, CHAT, "tools", chat("x", tools=[{"type": "function", "function": {"name": "f", "parameters": schema}}], tool_choice="required"), ["tools[0].function.parameters: arguments are an object"])
    refused(s, CHAT, "tool_choice", chat("x", tool_choice="required"), ["no tools"])
    for choice in ("any", 3, {"type": "function"}, {"type": "function", "name": "ping"}, {"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "ping"}, "x": 1}, allowed("always", "ping"), allowed("auto"), allowed("auto", "f")):
        refused(s, CHAT, "tool_choice", chat("x", tools=TOOLS, tool_choice=choice), ["tool_choice"])
    for choice in ("any", {"type": "function", "function": {"name": "ping"}}, {"type": "function", "name": "f"}, {"type": "allowed_tools", "mode": "auto", "tools": []}, {"type": "web_search"}):
        refused(s, RESPONSES, "tool_choice", {"input": "x", "tools": FLAT, "tool_choice": choice}, ["tool_choice"])
    for choice in ("any", {"type": "tool"}, {"type": "tool", "name": "f"}, {"type": "any", "name": "f"}, {"type": "all"}, {"type": "any", "disable_parallel_tool_use": 1}):
        refused(s, MESSAGES, "tool_choice", {**anthropic, "tools": ANTHROPIC_TOOLS, "tool_choice": choice}, ["tool_choice"])
    begun = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    refused(s, MESSAGES, "tool_choice", {**anthropic, "messages": begun, "tools": ANTHROPIC_TOOLS, "tool_choice": {"type": "any"}}, ["tool_choice: with continue_final_message"])


def test_guesses(model):
    arguments = ["--chat-template", TEMPLATE, "--tool-parser", "json_tools"]
    with Server(model, *arguments, "--prompt-lookup") as guessing, Server(model, *arguments) as s:
        for seed in range(4):
            for fields in ({"tool_choice": "required"}, {"response_format": FORM}):
                draw = {**fields, "temperature": 1 if seed else 0, "seed": seed}
                tally.check(f"with guesses {draw}", told(ask(guessing, **draw)["message"]) == told(ask(s, **draw)["message"]))


def test_unsupported(model):
    for parser, words in (("harmony", "harmony"), ("longcat", "longcat"), ("pythonic", "pythonic")):
        with Server(model, "--chat-template", TEMPLATE, "--tool-parser", parser) as s:
            refused(s, CHAT, "tool_choice", chat("x", tools=TOOLS, tool_choice="required"), ["tool_choice", words])
            tally.check(f"{parser}: auto", s.ask(CHAT, chat("x", tools=TOOLS, max_tokens=2))[0] == 200)
    with Server(model, "--chat-template", TEMPLATE, "--tool-parser", "llama3_json") as s:
        refused(s, CHAT, "response_format", chat("x", tools=TOOLS, response_format=FORM), ["response_format", "llama3_json"])
        refused(s, CHAT, "tools", chat("x", tools=[{"type": "function", "function": {**FUNCTIONS[0], "strict": True}}]), ["tools", "llama3_json"])


CALL = '<tool_call>\n{"name": "get_weather", "arguments": %s}\n</tool_call>'
SCRIPTED = "{# enable_thinking <tool_call> tool_call.name #}{% if tools %}{{ tools|tojson }}{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}{% if think_first %}<think>{% endif %}"
SCRIPTS = {
    "§right": "I look. " + CALL % '{"city": "Paris", "days": 3}' + " So.",
    "§wrong": "I look: " + CALL % '{"city": "Paris", "weeks": 3}',
    "§think": "<think>\nA <tool_call> maybe?\n</think>\n\n" + CALL % '{"city": "Oslo", "days": 2}',
    "§mid": "First. <think>now <tool_call></think> then " + CALL % '{"city": "Rome", "days": 5}',
    "§value": '{"ok": true, "n": 4}',
    "<think>": "of it\n</think>\n" + CALL % '{"city": "Bern", "days": 1}',
}


def test_scripted(folder):
    """What is free stays free, and what is not becomes what it may be."""
    strict = [{"type": "function", "function": {**FUNCTIONS[0], "strict": True}}, TOOLS[1]]
    with Server(make_model(Path(folder) / "m", SCRIPTED, SCRIPTS, ["<think>", "</think>", "<tool_call>", "</tool_call>"])) as s:
        def said(word, **fields):
            got = s.ask(CHAT, chat(word, **{"max_tokens": 300, "tools": strict, **fields}))[1]["choices"][0]
            return got["message"].get("content"), got["message"].get("reasoning_content"), calls_of(got["message"]), got["finish_reason"]

        paris = ("get_weather", {"city": "Paris", "days": 3})
        tally.check("strict: text, a call, text", said("§right") == ("I look.  So.", None, [paris], "tool_calls"), said("§right"))
        one = said("§right", parallel_tool_calls=False)
        tally.check("strict: it ends with its one call", one == ("I look. ", None, [paris], "tool_calls"), one)
        free = said("§wrong", tools=TOOLS)
        tally.check("free: as the model has it", free == ("I look: ", None, [("get_weather", {"city": "Paris", "weeks": 3})], "tool_calls"), free)
        held = said("§wrong")
        tally.check("strict: held to the schema", held[0].startswith("I look: ") and all(valid(n, a) for n, a in held[2]), held)
        thought = said("§think")
        tally.check("strict: reasoning", thought == (None, "\nA <tool_call> maybe?\n", [("get_weather", {"city": "Oslo", "days": 2})], "tool_calls"), thought)
        tally.check("forced: reasoning", said("§think", tools=TOOLS, tool_choice="required") == thought, said("§think", tools=TOOLS, tool_choice="required"))
        mid = said("§mid")
        tally.check("strict: reasoning between", mid == said("§mid", tools=TOOLS) and mid[2] == [("get_weather", {"city": "Rome", "days": 5})], mid)
        begun = said("§x", tools=TOOLS, tool_choice=NAMED, chat_template_kwargs={"think_first": True})
        tally.check("forced: reasoning that the prompt began", begun == (None, "of it\n", [("get_weather", {"city": "Bern", "days": 1})], "tool_calls"), begun)
        value = said("§value", tools=TOOLS, response_format=FORM)
        tally.check("form: a value", value == (SCRIPTS["§value"], None, [], "stop"), value)
        called = said("§think", tools=TOOLS, response_format=FORM)
        tally.check("form: a call", called == thought, called)
        tags = s.ask(CHAT, chat("§value", max_tokens=300, tools=TOOLS, tool_choice="required"))[1]["choices"][0]
        tally.check("forced: no value", tags["finish_reason"] == "length" or calls_of(tags["message"]), tags)


def test_tags(folder):
    """A string goes up to its tag, whatever is in it."""
    text = "<tool_call>\n<function=get_weather>\n<parameter=city>\na <b> </tool_call> c\n</parameter>\n<parameter=days>\n4\n</parameter>\n</function>\n</tool_call>"
    function = {"name": "get_weather", "strict": True, "parameters": {**PLACE, "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}
    model = make_model(Path(folder) / "tags", "{# <tool_call>\\n<function= #}{{ tools }}{{ messages[-1].content }}", {"§one": "So: " + text, "§two": text})
    with Server(model) as s:
        for word, fields, content in (("§one", {}, "So: "), ("§two", {"tool_choice": "required"}, None)):
            got = s.ask(CHAT, chat(word, max_tokens=300, tools=[{"type": "function", "function": function}], **fields))[1]["choices"][0]
            tally.check(f"tags {word}", (got["message"]["content"], calls_of(got["message"])) == (content, [("get_weather", {"city": "a <b> </tool_call> c", "days": 4})]), got)


def test_packages(s):
    try:
        import anthropic
        import openai
        from pydantic import BaseModel
    except ImportError:
        tally.skip("openai and anthropic", "the packages are not installed (scripts/clients.sh installs them)")
        return

    class Look(BaseModel):
        ok: bool
        mark: int

    client = openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="none", max_retries=0)
    hello = [{"role": "user", "content": "Hello"}]
    parsed = 0
    for seed in range(4):
        more = {"temperature": 1, "extra_body": {"seed": seed}}
        got = client.chat.completions.create(model=s.name, messages=hello, tools=TOOLS, tool_choice="required", max_tokens=LONG, **more).choices[0]
        made = [(c.function.name, json.loads(c.function.arguments)) for c in got.message.tool_calls or []]
        tally.check(f"package openai {seed}", got.finish_reason == "length" or (made and all(valid(n, a) for n, a in made)), got)
        try:
            got = client.chat.completions.parse(model=s.name, messages=hello, tools=[openai.pydantic_function_tool(Look)], tool_choice="required", max_tokens=LONG, parallel_tool_calls=False, **more).choices[0]
            parsed += isinstance(got.message.tool_calls[0].function.parsed_arguments, Look)
        except openai.LengthFinishReasonError:
            pass
        got = client.responses.create(model=s.name, input="Hello", tools=FLAT, tool_choice={"type": "function", "name": "ping"}, max_output_tokens=LONG, **more)
        tally.check(f"package responses {seed}", got.status == "incomplete" or [i.name for i in got.output if i.type == "function_call"], got)
    tally.check("package openai: parse", parsed > 0, parsed)
    other = anthropic.Anthropic(base_url=f"http://127.0.0.1:{s.port}", api_key="none", max_retries=0)
    for choice in ({"type": "any"}, {"type": "tool", "name": "ping"}):
        with other.messages.stream(model=s.name, messages=hello, tools=ANTHROPIC_TOOLS, tool_choice=choice, max_tokens=LONG) as stream:
            final = stream.get_final_message()
        tally.check(f"package anthropic {choice}", final.stop_reason == "max_tokens" or all(valid(b.name, b.input) for b in final.content), final)


def main():
    python = BUILD / "clients" / "bin" / "python"
    if python.exists() and Path(sys.prefix).resolve() != python.parent.parent.resolve():
        os.execv(python, [str(python), *sys.argv])
    llama, gemma = (GOLDEN / name / "model" for name in ("llama-4bit", "gemma3-bf16"))
    many = 0
    for name in FORMATS:
        with Server(llama, "--chat-template", TEMPLATE, "--tool-parser", name) as s:
            many += test_format(s, name)
            if name == "json_tools":
                for test in (test_dialects, test_choice, test_cut, test_wrong, test_packages):
                    test(s)
            if name in ("json_tools", "mistral"):
                test_form(s, name)
    for name in TAGGED:
        with Server(llama, "--chat-template", TEMPLATE, "--tool-parser", name) as s:
            many += test_format(s, name, TAGGED_TOOLS)
            if name == "qwen3_coder":
                test_form(s, name, TAGGED_TOOLS)
                refused(s, CHAT, "tools", chat("x", tools=TOOLS, tool_choice="required"), ["tools[0].function.parameters.properties.city"])
    with Server(gemma, "--chat-template", TEMPLATE, "--tool-parser", "json_tools") as s:
        test_format(s, "gemma3")
    tally.check("some are several calls", many > 10, many)
    test_guesses(llama)
    test_unsupported(llama)
    with tempfile.TemporaryDirectory() as folder:
        test_scripted(folder)
        test_tags(folder)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
