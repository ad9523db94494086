"""Tools and reasoning by /v1/responses and by Ollama's dialect: by hand, and with the official packages where
scripts/clients.sh put them. The models say what scripted.py has them say.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from scripted import make_model  # noqa: E402
from serving import Server, chat  # noqa: E402
from tally import Tally  # noqa: E402
from terncli import BUILD  # noqa: E402
from test_tools import FUNCTIONS, PARTS, SCRIPTS, TEMPLATE, TOOLS  # noqa: E402

tally = Tally()
RESPONSES, OLLAMA, CHAT = "/v1/responses", "/api/chat", "/v1/chat/completions"
FLAT = [{"type": "function", **f} for f in FUNCTIONS]


def body(word, **fields):
    return {"input": word, "max_output_tokens": 200, "tools": FLAT, **fields}


def talk(word, **fields):
    return {"messages": [{"role": "user", "content": word}], "stream": False, "options": {"num_predict": 200}, "tools": TOOLS, **fields}


# ---- /v1/responses


def said(output):
    """(content, reasoning, calls) of a response's items."""
    texts = {"message": None, "reasoning": None}
    calls = []
    for item in output:
        if item["type"] == "function_call":
            calls.append((item["name"], json.loads(item["arguments"])))
        else:
            texts[item["type"]] = (texts[item["type"]] or "") + "".join(p["text"] for p in item["content"])
    return texts["message"], texts["reasoning"], calls


def test_items(s):
    for word, want in PARTS.items():
        status, got, _ = s.ask(RESPONSES, body(word))
        if not tally.check(f"{word}: 200", status == 200, got):
            continue
        tally.check(f"{word}: items", said(got["output"]) == (want[0] or None, want[1], want[2]), f"{got['output']} not {want}")
        tally.check(f"{word}: completed", got["status"] == "completed" and all(i["status"] == "completed" for i in got["output"]), got)
        ids = [i["id"] for i in got["output"]] + [i["call_id"] for i in got["output"] if "call_id" in i]
        tally.check(f"{word}: ids", len(set(ids)) == len(ids), ids)
        counted = got["usage"]["output_tokens_details"]["reasoning_tokens"]
        tally.check(f"{word}: reasoning_tokens", (counted > 0) == bool(want[1]) and counted <= got["usage"]["output_tokens"], got["usage"])
        tally.check(f"{word}: tools come back", got["tools"] == FLAT)


def test_events(s):
    want = {
        "message": ["output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done", "output_item.done"],
        "reasoning": ["output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done", "output_item.done"],
        "function_call": ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"],
    }
    for word in PARTS:
        whole = s.ask(RESPONSES, body(word))[1]
        events = s.stream(RESPONSES, body(word))
        tally.check(f"{word}: numbers", [e["sequence_number"] for e in events] == list(range(len(events))))
        tally.check(f"{word}: same items", said(events[-1]["response"]["output"]) == said(whole["output"]), events[-1])
        for i, item in enumerate(whole["output"]):
            mine = [e for e in events if e.get("output_index") == i]
            kinds = [e["type"].removeprefix("response.") for e in mine]
            once = [k for n, k in enumerate(kinds) if not n or kinds[n - 1] != k]
            tally.check(f"{word} {i}: events", once == want[item["type"]], kinds)
            text = "".join(e["delta"] for e in mine if e["type"].endswith(".delta"))
            full = item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
            tally.check(f"{word} {i}: deltas", text == full, text)
            tally.check(f"{word} {i}: item", {k: v for k, v in mine[-1]["item"].items() if "id" not in k} == {k: v for k, v in item.items() if "id" not in k}, mine[-1])
            names = {e["item_id"] for e in mine if "item_id" in e} | {e["item"]["id"] for e in mine if "item" in e}
            tally.check(f"{word} {i}: one id", len(names) == 1, names)


def test_turns(s):
    """A call, its output and what follows: stored, and sent by the client, are the prompt of the other dialect."""
    first = s.ask(RESPONSES, body("§thinkcall"))[1]
    call = next(i for i in first["output"] if i["type"] == "function_call")
    output = [{"type": "function_call_output", "call_id": call["call_id"], "output": "rain§plain"}]
    stored = s.ask(RESPONSES, body(output, previous_response_id=first["id"]))[1]
    sent = s.ask(RESPONSES, body([{"role": "user", "content": "§thinkcall"}, *first["output"], *output], store=False))[1]
    messages = [
        {"role": "user", "content": "§thinkcall"},
        {"role": "assistant", "content": "", "reasoning_content": "\nI need it.\n", "tool_calls": [{"id": call["call_id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}]},
        {"role": "tool", "tool_call_id": call["call_id"], "name": call["name"], "content": "rain§plain"},
    ]
    want = s.ask(CHAT, {"messages": messages, "max_tokens": 200, "tools": TOOLS})[1]
    for label, got in (("stored", stored), ("sent", sent)):
        same = said(got["output"])[0] == want["choices"][0]["message"]["content"] == SCRIPTS["§plain"]
        tally.check(f"{label}: goes on", same and got["usage"]["input_tokens"] == want["usage"]["prompt_tokens"], f"{got} {want}")
    items = s.ask(f"{RESPONSES}/{stored['id']}/input_items")[1]["data"]
    tally.check("input_items", [i["type"] for i in items] == ["function_call_output"], items)


def test_choices(s):
    got = s.ask(RESPONSES, body("§two", parallel_tool_calls=False))[1]
    tally.check("one call", len(said(got["output"])[2]) == 1 and got["parallel_tool_calls"] is False, got)
    none = s.ask(RESPONSES, body("§one", tool_choice="none"))[1]
    tally.check("tool_choice none", said(none["output"])[0] == SCRIPTS["§one"], none)
    for name, value in {
        "tool_choice": "any", "tools": [{"type": "web_search"}], "reasoning": {"effort": 3}, "parallel_tool_calls": 1,
    }.items():
        status, got, _ = s.ask(RESPONSES, body("§plain", **{name: value}))
        tally.check(f"wrong {name}", status == 400 and name in got["error"]["message"], got)
    for tool in ({"type": "function"}, {"type": "function", "name": "f", "parameters": 3}, {"type": "function", "name": "f", "strict": 1}):
        status, got, _ = s.ask(RESPONSES, body("§plain", tools=[tool]))
        tally.check(f"wrong tool {tool}", status == 400 and got["error"]["param"] == "tools", got)
    plain = s.ask(RESPONSES, body("§plain"))[1]
    low = s.ask(RESPONSES, body("§plain", reasoning={"effort": "low", "summary": "auto"}))[1]
    tally.check("effort reaches the template", low["usage"]["input_tokens"] > plain["usage"]["input_tokens"] and low["reasoning"]["effort"] == "low", low)
    cut = s.ask(RESPONSES, body("§never", max_output_tokens=3))[1]
    tally.check("cut in reasoning", cut["status"] == "incomplete" and cut["output"][-1]["status"] == "incomplete" and cut["output"][-1]["type"] == "reasoning", cut)


# ---- Ollama


def ollama_said(message):
    calls = [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls", [])]
    return message["content"] or None, message.get("thinking"), calls


def test_ollama(s):
    for word, want in PARTS.items():
        want = (want[0] or None, want[1], want[2])
        status, got, _ = s.ask(OLLAMA, talk(word))
        if not tally.check(f"ollama {word}: 200", status == 200, got):
            continue
        tally.check(f"ollama {word}: said", ollama_said(got["message"]) == want, f"{got} not {want}")
        text = s.ask(OLLAMA, {**talk(word), "stream": True})[1]
        lines = [json.loads(line) for line in text.splitlines()] if isinstance(text, str) else []
        joined = {"content": "".join(e["message"]["content"] for e in lines), "tool_calls": sum((e["message"].get("tool_calls", []) for e in lines), [])}
        thinking = "".join(e["message"].get("thinking", "") for e in lines)
        tally.check(f"ollama {word}: streamed", ollama_said({**joined, **({"thinking": thinking} if thinking else {})}) == want, text)
        tally.check(f"ollama {word}: done_reason", got["done_reason"] == lines[-1]["done_reason"] == "stop")
    got = s.ask("/api/generate", {"prompt": "§think", "stream": False})[1]
    tally.check("ollama generate: thinking", (got["response"], got["thinking"]) == PARTS["§think"][:2], got)
    raw = s.ask("/api/generate", {"prompt": "§think", "stream": False, "raw": True})[1]
    tally.check("ollama raw: all of it", raw["response"] == SCRIPTS["§think"] and "thinking" not in raw, raw)
    asked = s.ask(OLLAMA, talk("§thinkcall"))[1]["message"]
    turns = [{"role": "user", "content": "§thinkcall"}, asked, {"role": "tool", "tool_name": "get_weather", "content": "rain§plain"}]
    got = s.ask(OLLAMA, talk("", messages=turns))[1]
    tally.check("ollama: goes on", got["message"]["content"] == SCRIPTS["§plain"], got)
    shown = s.ask("/api/show", {})[1]
    tally.check("ollama: capabilities", shown["capabilities"] == ["completion", "tools", "thinking"], shown["capabilities"])


def test_think(s):
    first = {"chat_template_kwargs": {"think_first": True}}
    want = s.ask(CHAT, chat("x", **first, max_tokens=50))[1]["choices"][0]["message"]
    tally.check("a template that begins to think", want["reasoning_content"] == "so it is\n", want)
    prompts = {}
    for think in (None, True, False, "low"):
        status, got, _ = s.ask(OLLAMA, talk("§plain", think=think))
        tally.check(f"think {think}", status == 200 and got["message"]["content"] == SCRIPTS["§plain"], got)
        prompts[think] = got["prompt_eval_count"]
    tally.check("a level reaches the template", prompts["low"] > prompts[None], prompts)
    for path, body in ((OLLAMA, talk("§plain", think=3)), ("/api/generate", {"prompt": "x", "raw": True, "think": True})):
        status, got, _ = s.ask(path, body)
        tally.check(f"wrong think {path}", status == 400 and "think" in got["error"], got)


def test_packages(s):
    try:
        import ollama
        import openai
    except ImportError:
        tally.skip("openai and ollama", "the packages are not installed (scripts/clients.sh installs them)")
        return
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="none", max_retries=0)
    got = client.responses.create(model=s.name, input="§thinkcall", tools=FLAT)
    tally.check("package: openai", [i.type for i in got.output] == ["reasoning", "function_call"] and json.loads(got.output[1].arguments)["city"] == "Oslo", got.output)
    with client.responses.stream(model=s.name, input="§two", tools=FLAT) as stream:
        for _ in stream:
            pass
        calls = [i for i in stream.get_final_response().output if i.type == "function_call"]
    tally.check("package: openai stream", [(c.name, json.loads(c.arguments)) for c in calls] == PARTS["§two"][2], calls)
    other = ollama.Client(host=f"http://127.0.0.1:{s.port}")
    got = other.chat(model=s.name, messages=[{"role": "user", "content": "§thinkcall"}], tools=TOOLS, think=True)
    calls = [(c.function.name, dict(c.function.arguments)) for c in got.message.tool_calls]
    tally.check("package: ollama", calls == PARTS["§thinkcall"][2] and got.message.thinking == PARTS["§thinkcall"][1], got)


def main():
    python = BUILD / "clients" / "bin" / "python"
    if python.exists() and Path(sys.prefix).resolve() != python.parent.parent.resolve():
        os.execv(python, [str(python), *sys.argv])
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(Path(folder) / "scripted", TEMPLATE, SCRIPTS, ["</think>"])
        with Server(model) as s:
            for test in (test_items, test_events, test_turns, test_choices, test_ollama, test_think, test_packages):
                test(s)
            tally.check("ends well", s.end() == 0, s.status)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
