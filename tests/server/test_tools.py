"""Tools and reasoning through the server, in both dialects: by hand, and with the official packages where
scripts/clients.sh put them. The models say what scripted.py has them say; one real model calls by itself.
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
CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"

# What the prompt is made of can be read back; the last token chooses the script.
TEMPLATE = """{# <tool_call> tool_call.name enable_thinking reasoning_effort #}
{%- if tools %}TOOLS{{ tools|tojson }}{% endif %}
{%- if reasoning_effort is defined %}EFFORT {{ reasoning_effort }};{% endif %}
{%- for m in messages %}[{{ m.role }}{% if m.tool_call_id %} for {{ m.tool_call_id }} of {{ m.name }}{% endif %}]
{%- if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}
{%- for c in m.tool_calls or [] %}<{{ c.id }} {{ c.function.name }} {{ c.function.arguments|tojson }}>{% endfor %}
{{- m.content }}{% endfor %}{% if enable_thinking and think_first %}<think>{% endif %}"""

ONE = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}\n</tool_call>'
SCRIPTS = {
    "§plain": "Just words, no more.",
    "§one": "Let me look.\n" + ONE,
    "§two": '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zurich"}}\n</tool_call>\n',
    "§think": "<think>\nHm, <tool_call>no</tool_call>.\n</think>\n\nIt rains.",
    "§thinkcall": "<think>\nI need it.\n</think>\n\n" + ONE.replace("Paris", "Oslo"),
    "§bad": '<tool_call>\n{"name": get it}\n</tool_call> is no call.',
    "§never": "<think>\nOn and on and on and on",
    "<think>": "so it is\n</think>\n\nIt is five.",
}
PARTS = {  # content, reasoning, calls
    "§plain": (SCRIPTS["§plain"], None, []),
    "§one": ("Let me look.\n", None, [("get_weather", {"city": "Paris", "days": 3})]),
    "§two": (None, None, [("ping", {}), ("get_weather", {"city": "Zurich"})]),
    "§think": ("\n\nIt rains.", "\nHm, <tool_call>no</tool_call>.\n", []),
    "§thinkcall": (None, "\nI need it.\n", [("get_weather", {"city": "Oslo", "days": 3})]),
    "§bad": (SCRIPTS["§bad"], None, []),
    "§never": ("", "\nOn and on and on and on", []),
}
FUNCTIONS = [
    {"name": "get_weather", "description": "The weather of a city", "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}},
    {"name": "ping", "parameters": {"type": "object", "properties": {}}},
]
TOOLS = [{"type": "function", "function": f} for f in FUNCTIONS]
ANTHROPIC_TOOLS = [{"name": f["name"], "description": f.get("description", ""), "input_schema": f["parameters"]} for f in FUNCTIONS]


def ask(s, word, **fields):
    return s.ask(CHAT, chat(word, **{"max_tokens": 200, "tools": TOOLS, **fields}))


def said(message):
    """(content, reasoning, calls) of a whole message."""
    calls = [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message.get("tool_calls", [])]
    return message["content"], message.get("reasoning_content"), calls


def gathered(events, index=0):
    """A message out of a stream's deltas, as clients put it together; and its finish reason."""
    message, finish = {"content": None}, None
    for event in events:
        for choice in event["choices"] if event != "[DONE]" else []:
            if choice["index"] != index:
                continue
            finish = choice["finish_reason"] or finish
            delta = choice["delta"]
            for key in ("content", "reasoning_content"):
                if delta.get(key) is not None:
                    message[key] = (message.get(key) or "") + delta[key]
            for call in delta.get("tool_calls", []):
                calls = message.setdefault("tool_calls", [])
                if call["index"] == len(calls):
                    calls.append({"id": call["id"], "type": call["type"], "function": {"name": call["function"]["name"], "arguments": ""}})
                calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
    return message, finish


def test_whole(s):
    ids = set()
    for word, want in PARTS.items():
        status, got, _ = ask(s, word)
        if not tally.check(f"{word}: 200", status == 200, got):
            continue
        one = got["choices"][0]
        finish = "tool_calls" if want[2] else "stop"
        tally.check(f"{word}: said", said(one["message"]) == want, f"{one['message']} not {want}")
        tally.check(f"{word}: finish_reason", one["finish_reason"] == finish, one["finish_reason"])
        tally.check(f"{word}: reasoning twice", one["message"].get("reasoning") == want[1], one)
        for call in one["message"].get("tool_calls", []):
            tally.check(f"{word}: id", call["type"] == "function" and call["id"].startswith("call_") and call["id"] not in ids, call)
            ids.add(call["id"])
    many = ask(s, "§two", n=3)[1]["choices"]
    all_ids = [c["id"] for one in many for c in one["message"]["tool_calls"]]
    tally.check("ids of several answers", len(set(all_ids)) == 6, all_ids)


def test_streams(s):
    for word, want in PARTS.items():
        message, finish = gathered(s.stream(CHAT, chat(word, max_tokens=200, tools=TOOLS)))
        content, reasoning, calls = said(message)
        tally.check(f"{word}: streamed", (content or "", reasoning, calls) == (want[0] or "", want[1], want[2]), f"{message} not {want}")
        tally.check(f"{word}: streamed finish", finish == ("tool_calls" if want[2] else "stop"), finish)
    two = s.stream(CHAT, chat("§two", max_tokens=200, tools=TOOLS, n=2))
    tally.check("two streams", gathered(two, 0)[0]["tool_calls"][1]["function"] == gathered(two, 1)[0]["tool_calls"][1]["function"])
    deltas = [c["delta"] for e in s.stream(CHAT, chat("§one", max_tokens=200, tools=TOOLS)) if e != "[DONE]" for c in e["choices"]]
    calls = [d["tool_calls"][0] for d in deltas if "tool_calls" in d]
    tally.check("name first", calls[0]["function"] == {"name": "get_weather", "arguments": ""} and calls[0]["index"] == 0, calls)
    tally.check("then arguments alone", all(set(c) == {"index", "function"} and set(c["function"]) == {"arguments"} for c in calls[1:]), calls)
    counted = s.stream(CHAT, chat("§one", max_tokens=200, tools=TOOLS, logprobs=True, stream_options={"include_usage": True}))
    tokens = sum(len(c["logprobs"]["content"]) for e in counted if e != "[DONE]" for c in e["choices"] if c["logprobs"])
    tally.check("log-probabilities of all tokens", tokens == counted[-2]["usage"]["completion_tokens"], f"{tokens} {counted[-2]}")


def test_cut(s):
    """max_tokens within a call: the text is content, whole, and no half call is told of."""
    whole = SCRIPTS["§two"]
    n = ask(s, "§two")[1]["usage"]["completion_tokens"]
    for most in range(1, n):
        one = ask(s, "§two", max_tokens=most)[1]["choices"][0]
        content, _, calls = said(one["message"])
        good = calls == PARTS["§two"][2][: len(calls)] and one["finish_reason"] == "length"
        good = good and (whole.startswith(content) if content and not calls else not content or content.strip() in whole)
        if not tally.check("cut", good, f"{most}: {one}"):
            break
    one = ask(s, "§never", max_tokens=3)[1]["choices"][0]
    tally.check("cut in reasoning", one["finish_reason"] == "length" and one["message"]["content"] == "" and one["message"]["reasoning_content"], one)
    stopped = ask(s, "§one", stop=["Paris"])[1]["choices"][0]
    tally.check("stopped in a call", stopped["finish_reason"] == "stop" and stopped["message"]["content"] == SCRIPTS["§one"].split("Paris")[0], stopped)


def test_without(s):
    """Where no tools are given there are no calls; reasoning is told apart all the same."""
    for fields in ({}, {"tools": []}, {"tools": TOOLS, "tool_choice": "none"}):
        got = s.ask(CHAT, chat("§one", max_tokens=200, **fields))[1]["choices"][0]
        tally.check(f"no tools {fields}", said(got["message"]) == (SCRIPTS["§one"], None, []) and got["finish_reason"] == "stop", got)
    tokens = [s.ask(CHAT, chat("§plain", **f))[1]["usage"]["prompt_tokens"] for f in ({}, {"tools": TOOLS, "tool_choice": "none"}, {"tools": TOOLS})]
    tally.check("tool_choice none shows no tools", tokens[0] == tokens[1] < tokens[2], tokens)
    got = s.ask(CHAT, chat("§think", max_tokens=200))[1]["choices"][0]
    tally.check("reasoning without tools", said(got["message"]) == PARTS["§think"], got)
    raw = s.ask("/v1/completions", {"prompt": "§think", "max_tokens": 200})[1]["choices"][0]
    tally.check("completions are as they came", raw["text"] == SCRIPTS["§think"], raw)


def test_one_call(s):
    got = ask(s, "§two", parallel_tool_calls=False)[1]["choices"][0]
    tally.check("one call", said(got["message"]) == (None, None, PARTS["§two"][2][:1]) and got["finish_reason"] == "tool_calls", got)
    message, finish = gathered(s.stream(CHAT, chat("§two", max_tokens=200, tools=TOOLS, parallel_tool_calls=False)))
    tally.check("one call, streamed", said(message)[2] == PARTS["§two"][2][:1] and finish == "tool_calls", message)
    tally.check("one call of one", said(ask(s, "§one", parallel_tool_calls=False)[1]["choices"][0]["message"]) == PARTS["§one"])


def test_opened(s):
    """The template opens the reasoning: the text has its end alone."""
    on = {"chat_template_kwargs": {"think_first": True}}
    got = s.ask(CHAT, chat("Hello", max_tokens=200, **on))[1]["choices"][0]["message"]
    tally.check("opened", (got["reasoning_content"], got["content"]) == ("so it is\n", "\n\nIt is five."), got)
    message, _ = gathered(s.stream(CHAT, chat("Hello", max_tokens=200, **on)))
    tally.check("opened, streamed", (message["reasoning_content"], message["content"]) == ("so it is\n", "\n\nIt is five."), message)
    # A user's own words open nothing.
    got = s.ask(CHAT, {"messages": [{"role": "user", "content": "What is <think>? §plain"}], "max_tokens": 99})[1]["choices"][0]["message"]
    tally.check("not opened", (got.get("reasoning_content"), got["content"]) == (None, SCRIPTS["§plain"]), got)


def test_messages(s):
    """A conversation with calls and results reaches the template, from either dialect alike."""
    openai = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [{"id": "a1", "type": "function", "function": {"name": "f", "arguments": '{"n": 1}'}}]},
        {"role": "tool", "tool_call_id": "a1", "name": "f", "content": "42"},
        {"role": "user", "content": "§plain"},
    ]
    anthropic = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "x"}, {"type": "tool_use", "id": "a1", "name": "f", "input": {"n": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a1", "content": [{"type": "text", "text": "4"}, {"type": "text", "text": "2"}]}, {"type": "text", "text": "§plain"}]},
    ]
    prompt = s.ask("/apply-template", {"messages": openai, "tools": TOOLS[1:], "chat_template_kwargs": {"enable_thinking": False}})[1]["prompt"]
    want = 'TOOLS[{"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}}][user]Hi[assistant](hm)<a1 f {"n": 1}>[tool for a1 of f]42[user]§plain'
    tally.check("template", prompt == want, prompt)
    one = s.ask(CHAT, {"messages": openai, "tools": TOOLS, "chat_template_kwargs": {"enable_thinking": False}})[1]
    two = s.ask(MESSAGES, {"max_tokens": 200, "messages": anthropic, "tools": [{k: v for k, v in t.items() if v} for t in ANTHROPIC_TOOLS]})[1]
    tally.check("two", "content" in two, two)
    tally.check("answers", one["choices"][0]["message"]["content"] == SCRIPTS["§plain"] == two["content"][0]["text"], f"{one} {two}")
    tokens = two["usage"]["input_tokens"] + two["usage"]["cache_read_input_tokens"]
    tally.check("one prompt", tokens == one["usage"]["prompt_tokens"], f"{tokens} {one['usage']}")


def test_counts(s):
    """Tokens of reasoning are counted where its ends are tokens; letters that spell them are not."""
    got = s.ask(CHAT, chat("Hello", max_tokens=200, chat_template_kwargs={"think_first": True}))[1]["usage"]
    answer = s.ask("/v1/completions", {"prompt": "<think>", "max_tokens": 200, "logprobs": 0})[1]["choices"][0]
    n = answer["logprobs"]["tokens"].index("</think>") + 1
    tally.check("reasoning_tokens", got["completion_tokens_details"]["reasoning_tokens"] == n < got["completion_tokens"], f"{got} {answer}")
    stream = s.stream(CHAT, chat("Hello", max_tokens=200, chat_template_kwargs={"think_first": True}, stream_options={"include_usage": True}))
    tally.check("reasoning_tokens, streamed", stream[-2]["usage"]["completion_tokens_details"] == got["completion_tokens_details"], stream[-2])
    tally.check("none", s.ask(CHAT, chat("§plain"))[1]["usage"]["completion_tokens_details"] == {"reasoning_tokens": 0})
    tally.check("not countable", "completion_tokens_details" not in s.ask(CHAT, chat("§think", max_tokens=200))[1]["usage"])


def test_big_numbers(s):
    """What a tool was called with comes back with all digits; elsewhere such a number is the real that it is nearest to."""
    big = {"a": 123456789012345678901234567890, "b": [-(2**63), 2**64, 9007199254740993], "c": 1.5}
    want = json.dumps(big)
    for arguments in (json.dumps(big), big):
        call = {"id": "c1", "type": "function", "function": {"name": "ping", "arguments": arguments}}
        turns = [{"role": "user", "content": "§one"}, {"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c1", "content": "§plain"}]
        prompt = s.ask("/apply-template", {"messages": turns, "tools": TOOLS})[1].get("prompt", "")
        tally.check("big numbers", want in prompt, prompt)
    longer = []
    for use in ({}, big):
        turns[1]["tool_calls"][0]["function"]["arguments"] = use
        one = s.ask(CHAT, {"messages": turns, "tools": TOOLS, "max_tokens": 1})[1]["usage"]["prompt_tokens"]
        blocks = [turns[0], {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "ping", "input": use}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "§plain"}]}]
        longer.append(one - s.ask(f"{MESSAGES}/count_tokens", {"messages": blocks, "tools": ANTHROPIC_TOOLS})[1]["input_tokens"])
    tally.check("big numbers in both dialects", longer[0] == longer[1], longer)
    got = s.ask("/apply-template", {"messages": [{"role": "user", "content": "§one"}], "tools": [{"type": "function", "function": {"name": "f", "x": 2**70}}]})[1]
    tally.check("elsewhere", got.get("prompt") and "int:" not in got["prompt"], got)
    status, got, _ = s.ask(CHAT, chat("x", seed=2**70))
    tally.check("as a field", status == 400 and "seed" in got["error"]["message"] and "int:" not in got["error"]["message"], got)
    status, got, _ = s.ask(CHAT, {"messages": [{"role": "user", "content": 2**70}]})
    tally.check("as content", status == 400 and "int:" not in got["error"]["message"], got)
    status, got, _ = s.ask(CHAT, {"messages": [{"role": "user", "content": "x"}], "metadata": {"n": 10**400}})
    tally.check("an infinity", status == 400 and "infinities" in got["error"]["message"], got)


def test_effort(s):
    prompt = chat("Hello", max_tokens=1)
    plain = s.ask(CHAT, prompt)[1]["usage"]["prompt_tokens"]
    status, got, _ = s.ask(CHAT, {**prompt, "reasoning_effort": "high"})
    tally.check("reasoning_effort", status == 200 and got["usage"]["prompt_tokens"] > plain, got)


def refused(s, path, name, body, words=()):
    status, got, _ = s.ask(path, body)
    message = got["error"]["message"] if status == 400 else ""
    named = path == MESSAGES or got["error"].get("param") == name if status == 400 else False
    tally.check(f"refused {name} {body.get(name)!r}"[:100], status == 400 and named and name in message and all(w in message for w in words), f"{status} {got}")


def test_refused(s):
    for value in ("any", {"type": "function", "function": {"name": "pong"}}, 3):
        refused(s, CHAT, "tool_choice", chat("x", tools=TOOLS, tool_choice=value))
    for value in ({}, "x", [1], [{"type": "web_search"}], [{"type": "function"}], [{"type": "function", "function": {"name": ""}}], [{"type": "function", "function": {"name": "f", "parameters": 3}}]):
        refused(s, CHAT, "tools", chat("x", tools=value))
    refused(s, CHAT, "tools", chat("x", tools=[{"type": "function", "function": {**FUNCTIONS[1], "strict": 1}}]), ["strict"])
    refused(s, CHAT, "parallel_tool_calls", chat("x", tools=TOOLS, parallel_tool_calls=1))
    refused(s, CHAT, "reasoning_effort", chat("x", reasoning_effort=3))
    refused(s, CHAT, "functions", chat("x", functions=FUNCTIONS))
    old = {"role": "assistant", "content": None, "function_call": {"name": "ping", "arguments": "{}"}}
    refused(s, CHAT, "messages", {"messages": [{"role": "user", "content": "x"}, old]}, ["messages[1]", "function_call"])
    for calls in ("x", ["x"], [{"function": "x"}], [{"function": {"name": "f", "arguments": "no"}}], [{"function": {"name": "f", "arguments": [1]}}]):
        refused(s, CHAT, "messages", {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "", "tool_calls": calls}]}, ["messages[1]"])

    def ant(**fields):
        return {"max_tokens": 9, "messages": [{"role": "user", "content": "x"}], **fields}

    for value in ({"type": "all"}, {"type": "tool", "name": "pong"}, {"type": "auto", "x": 1}, "auto", {"type": "auto", "disable_parallel_tool_use": 1}):
        refused(s, MESSAGES, "tool_choice", ant(tools=ANTHROPIC_TOOLS, tool_choice=value))
    for value in (3, [{"name": "f"}], [{"type": "web_search_20250305", "name": "web_search"}], [{"name": "f", "input_schema": {}, "x": 1}]):
        refused(s, MESSAGES, "tools", ant(tools=value))
    for value in ({"type": "enabled"}, {"type": "enabled", "budget_tokens": "x"}, {"type": "adaptive"}, "on", {"type": "disabled", "budget_tokens": 1}):
        refused(s, MESSAGES, "thinking", ant(thinking=value))
    for blocks in (
        [{"type": "tool_result", "tool_use_id": "nobody", "content": "x"}],
        [{"type": "image", "source": {}}],
        [{"type": "document"}, {"type": "text", "text": "x"}],
        ["x"],
    ):
        refused(s, MESSAGES, "messages", ant(messages=[{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}, {"role": "user", "content": blocks}]), ["messages[2]"])
    for blocks in ([{"type": "tool_use", "id": "a", "name": "f", "input": "x"}], [{"type": "redacted_thinking", "data": "x"}], [{"type": "thinking", "thinking": 3}]):
        refused(s, MESSAGES, "messages", ant(messages=[{"role": "user", "content": "x"}, {"role": "assistant", "content": blocks}]), ["messages[1]"])
    image = [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image"}]}]
    refused(s, MESSAGES, "messages", ant(messages=[{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}, {"role": "user", "content": image}]), ["messages[1]"])


def blocks_of(want):
    content, reasoning, calls = want
    out = [("thinking", reasoning)] if reasoning else []
    out += [("text", content)] if content else []
    return out + [("tool_use", call) for call in calls] or [("text", "")]


def seen(blocks):
    return [(b["type"], (b["name"], b["input"]) if b["type"] == "tool_use" else b[b["type"]]) for b in blocks]


def replayed(events):
    """The content blocks that a stream's events make, each in its place; and the stop reason."""
    blocks, partial, reason = [], {}, None
    for e in events:
        if e["type"] == "content_block_start":
            tally.check("block index", e["index"] == len(blocks), e)
            blocks.append(e["content_block"])
        elif e["type"] == "content_block_delta":
            block, delta = blocks[e["index"]], e["delta"]
            key = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}.get(delta["type"])
            if key:
                block[key] += delta[key]
            else:
                partial[e["index"]] = partial.get(e["index"], "") + delta["partial_json"]
        elif e["type"] == "content_block_stop" and e["index"] in partial:
            blocks[e["index"]]["input"] = json.loads(partial[e["index"]])
        elif e["type"] == "message_delta":
            reason = e["delta"]["stop_reason"]
    kinds = [e["type"] for e in events]
    tally.check("every block ends", kinds.count("content_block_start") == kinds.count("content_block_stop") == len(blocks), kinds)
    return blocks, reason


def test_anthropic(s):
    for word, want in PARTS.items():
        body = {"max_tokens": 200, "messages": [{"role": "user", "content": word}], "tools": ANTHROPIC_TOOLS}
        status, got, _ = s.ask(MESSAGES, body)
        if not tally.check(f"blocks {word}: 200", status == 200, got):
            continue
        reason = "tool_use" if want[2] else "end_turn"
        tally.check(f"blocks {word}", seen(got["content"]) == blocks_of(want), f"{got['content']} not {blocks_of(want)}")
        tally.check(f"stop_reason {word}", got["stop_reason"] == reason, got["stop_reason"])
        blocks, streamed = replayed(s.stream(MESSAGES, body))
        tally.check(f"blocks {word}, streamed", seen(blocks) == blocks_of(want), f"{blocks} not {blocks_of(want)}")
        tally.check(f"stop_reason {word}, streamed", streamed == reason, streamed)
        signed = [b["signature"] for b in [*got["content"], *blocks] if b["type"] == "thinking"]
        tally.check(f"signed {word}", all(signed), signed)
        ids = [b["id"] for b in [*got["content"], *blocks] if b["type"] == "tool_use"]
        tally.check(f"ids {word}", all(i.startswith("toolu_") for i in ids) and len(set(ids)) == len(ids), ids)
    body = {"max_tokens": 200, "messages": [{"role": "user", "content": "§two"}], "tools": ANTHROPIC_TOOLS, "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
    tally.check("disable_parallel_tool_use", seen(s.ask(MESSAGES, body)[1]["content"]) == blocks_of(PARTS["§two"])[:1])
    body["tool_choice"] = {"type": "none"}
    tally.check("tool_choice none", seen(s.ask(MESSAGES, body)[1]["content"]) == [("text", SCRIPTS["§two"])])
    counted = s.ask(f"{MESSAGES}/count_tokens", {k: body[k] for k in ("messages", "tools")})[1]["input_tokens"]
    usage = s.ask(MESSAGES, {k: body[k] for k in ("messages", "tools", "max_tokens")})[1]["usage"]
    tally.check("count_tokens with tools", counted == usage["input_tokens"] + usage["cache_read_input_tokens"], f"{counted} {usage}")
    thinks = {"max_tokens": 200, "messages": [{"role": "user", "content": "Hello"}], "thinking": {"type": "enabled", "budget_tokens": 1024}, "chat_template_kwargs": {"think_first": True}}
    got = s.ask(MESSAGES, thinks)[1]
    tally.check("thinking", seen(got["content"]) == [("thinking", "so it is\n"), ("text", "\n\nIt is five.")], got)


def test_flags(model, tools):
    with Server(model, "--reasoning-parser", "none") as s:
        got = s.ask(CHAT, chat("§think", max_tokens=200))[1]["choices"][0]["message"]
        tally.check("--reasoning-parser none", got == {"role": "assistant", "content": SCRIPTS["§think"], "refusal": None}, got)
        stream = s.stream(CHAT, chat("§think", max_tokens=200))
        tally.check("--reasoning-parser none, streamed", gathered(stream)[0] == {"content": SCRIPTS["§think"]})
    plain = GOLDEN / "llama-4bit" / "model"
    with Server(plain) as s:
        refused(s, CHAT, "tools", chat("x", tools=tools), ["takes none"])
        refused(s, CHAT, "reasoning_effort", chat("x", reasoning_effort="low"))
        refused(s, MESSAGES, "thinking", {"max_tokens": 9, "messages": [{"role": "user", "content": "x"}], "thinking": {"type": "enabled", "budget_tokens": 9}})
    knows = "{{ tools }}{{ messages[0].content }}"
    with Server(plain, "--chat-template", knows) as s:
        refused(s, CHAT, "tools", chat("x", tools=tools), ["--tool-parser"])
    with Server(plain, "--chat-template", knows, "--tool-parser", "pythonic") as s:
        tally.check("--tool-parser", s.ask(CHAT, chat("x", tools=tools))[0] == 200)
    for flag, name in (("--tool-parser", "gpt5"), ("--reasoning-parser", "x")):
        try:
            Server(plain, flag, name).end()
            tally.fail(flag, "it started")
        except RuntimeError:
            tally.ok()


def test_short_ids():
    """Mistral's templates take ids of nine letters and digits alone."""
    template = "{# [TOOL_CALLS] #}{{ tools }}{{ messages[-1].content }}"
    text = '[TOOL_CALLS]ping[ARGS]{}[TOOL_CALLS]get_weather[ARGS]{"city": "Rome"}'
    with tempfile.TemporaryDirectory() as folder, Server(make_model(folder, template, {"§two": text})) as s:
        ids = []
        for _ in range(3):
            got = ask(s, "§two")[1]["choices"][0]["message"]
            tally.check("mistral", said(got) == (None, None, [("ping", {}), ("get_weather", {"city": "Rome"})]), got)
            ids += [c["id"] for c in got.get("tool_calls", [])]
        tally.check("nine letters", all(len(i) == 9 and i.isalnum() for i in ids) and len(set(ids)) == 6, ids)


def test_harmony():
    """gpt-oss's channels, whose template has levels of reasoning."""
    template = "{# <|channel|>analysis<|message|> functions. reasoning_effort #}{{ tools }}{{ messages[-1].content }}"
    text = '<|channel|>analysis<|message|>I need it.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Rome"}'
    plain = "<|channel|>final<|message|>It rains."
    with tempfile.TemporaryDirectory() as folder, Server(make_model(folder, template, {"§one": text, "§plain": plain}, ["<|channel|>", "<|message|>"])) as s:
        got = ask(s, "§one", reasoning_effort="low")[1]["choices"][0]
        tally.check("harmony", said(got["message"]) == (None, "I need it.", [("get_weather", {"city": "Rome"})]) and got["finish_reason"] == "tool_calls", got)
        got = s.ask(CHAT, chat("§plain"))[1]["choices"][0]["message"]
        tally.check("harmony: final", said(got) == ("It rains.", None, []), got)


def test_named(folder):
    """mlx-lm's conversions may name the parser in tokenizer_config.json."""
    text = "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Bern</arg_value></tool_call>"
    model = make_model(Path(folder) / "named", "{# <tool_call> tool_call.name #}{{ tools }}{{ messages[-1].content }}", {"§one": text})
    settings = json.loads((model / "tokenizer_config.json").read_text())
    for name in ("glm47", "gpt5"):
        (model / "tokenizer_config.json").write_text(json.dumps({**settings, "tool_parser_type": name}))
        with Server(model) as s:
            if name == "glm47":
                got = ask(s, "§one")[1]["choices"][0]["message"]
                tally.check("tool_parser_type", said(got)[2] == [("get_weather", {"city": "Bern"})], got)
            else:
                refused(s, CHAT, "tools", chat("x", tools=TOOLS), ["tool_parser_type", name])


def test_openai_package(s):
    try:
        import openai
    except ImportError:
        tally.skip("openai", "the package is not installed (scripts/clients.sh installs it)")
        return
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="none", max_retries=0)
    call = {"model": s.name, "messages": [{"role": "user", "content": "§thinkcall"}], "tools": TOOLS, "max_tokens": 200}
    message = client.chat.completions.create(**call).choices[0].message
    tally.check("openai: calls", json.loads(message.tool_calls[0].function.arguments) == {"city": "Oslo", "days": 3}, message)
    tally.check("openai: reasoning", message.reasoning_content == "\nI need it.\n", message)
    turn = [*call["messages"], message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "§plain"}]
    after = client.chat.completions.create(**{**call, "messages": turn}).choices[0]
    tally.check("openai: the next turn", after.message.content == SCRIPTS["§plain"] and after.finish_reason == "stop", after)
    if hasattr(client.chat.completions, "stream"):
        with client.chat.completions.stream(**call) as stream:
            final = [e for e in stream][-1] and stream.get_final_completion()
        tally.check("openai: stream", final.choices[0].finish_reason == "tool_calls" and final.choices[0].message.tool_calls[0].function.name == "get_weather", final)


def test_anthropic_package(s):
    try:
        import anthropic
    except ImportError:
        tally.skip("anthropic", "the package is not installed (scripts/clients.sh installs it)")
        return
    client = anthropic.Anthropic(base_url=f"http://127.0.0.1:{s.port}", api_key="none", max_retries=0)
    call = {"model": s.name, "messages": [{"role": "user", "content": "§thinkcall"}], "tools": ANTHROPIC_TOOLS, "max_tokens": 200}
    with client.messages.stream(**call) as stream:
        final = stream.get_final_message()
    want = blocks_of(PARTS["§thinkcall"])
    tally.check("anthropic: stream", seen(b.model_dump() for b in final.content) == want and final.stop_reason == "tool_use", final)
    use = final.content[-1]
    turn = [*call["messages"], {"role": "assistant", "content": final.content}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "§plain"}]}]
    after = client.messages.create(**{**call, "messages": turn})
    tally.check("anthropic: the next turn", after.content[0].text == SCRIPTS["§plain"] and after.stop_reason == "end_turn", after)


def test_real():
    """A real model calls a tool. It forgets the tags that its template asks for, and writes its calls
    as a llama does."""
    model = BUILD / "models" / "qwen2.5-coder-0.5b"
    if not (model / "config.json").exists():
        tally.skip("qwen2.5-coder", "not fetched")
        return
    question = [{"role": "user", "content": "What is the weather in Paris?"}]
    body = {"messages": question, "tools": TOOLS[:1], "max_tokens": 80}
    with Server(model) as s:
        got = s.ask(CHAT, body)[1]["choices"][0]
        tally.check("real: a call without tags is content", got["message"]["content"].startswith('{"name"') and got["finish_reason"] == "stop", got)
    with Server(model, "--tool-parser", "llama3_json") as s:
        got = s.ask(CHAT, body)[1]["choices"][0]
        calls = said(got["message"])[2]
        good = len(calls) == 1 and calls[0][0] == "get_weather" and calls[0][1]["city"] == "Paris"
        if tally.check("real: a call", good and got["finish_reason"] == "tool_calls", got):
            turn = [*question, got["message"], {"role": "tool", "tool_call_id": got["message"]["tool_calls"][0]["id"], "content": "17 degrees and rain"}]
            prompt = s.ask("/apply-template", {"messages": turn, "tools": TOOLS[:1]})[1]["prompt"]
            call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"'
            tally.check("real: the next turn", call in prompt and "<tool_response>\n17 degrees and rain\n</tool_response>" in prompt, prompt)
            status, after, _ = s.ask(CHAT, {**body, "messages": turn})
            tally.check("real: its answer", status == 200 and after["usage"]["completion_tokens"] > 0, after)
        message, finish = gathered(s.stream(CHAT, body))
        tally.check("real: streamed", said(message)[2] == calls and finish == "tool_calls", message)


def main():
    python = BUILD / "clients" / "bin" / "python"
    if python.exists() and Path(sys.prefix).resolve() != python.parent.parent.resolve():
        os.execv(python, [str(python), *sys.argv])
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(Path(folder) / "scripted", TEMPLATE, SCRIPTS, ["</think>"], {"<think>": ["</think>"]})
        with Server(model) as s:
            for test in (test_whole, test_streams, test_cut, test_without, test_one_call, test_opened, test_messages, test_counts, test_big_numbers, test_effort, test_refused, test_anthropic, test_openai_package, test_anthropic_package):
                test(s)
            tally.check("ends well", s.end() == 0, s.status)
        test_flags(model, TOOLS)
        test_named(folder)
    test_short_ids()
    test_harmony()
    test_real()
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
