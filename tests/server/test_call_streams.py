"""Calls in streams: the name first, then the arguments as they come, in every dialect; what is cut or malformed tells the
same as without a stream, and loses nothing. By hand, and with the official packages where scripts/clients.sh put them.
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
from test_tools import ANTHROPIC_TOOLS, FUNCTIONS, TEMPLATE, TOOLS, gathered  # noqa: E402

tally = Tally()
CHAT, MESSAGES, RESPONSES, OLLAMA = "/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat"
FLAT = [{"type": "function", **f} for f in FUNCTIONS]
TEXT = "Aix, Brest, Caen, Dijon, Evreux, Foix, Gap, Hyeres, Istres"
ONE = f'<tool_call>\n{{"name": "get_weather", "arguments": {{"city": "{TEXT}", "days": 3}}}}\n</tool_call>'
BROKEN = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Lyon, Metz", "days": three}}\n</tool_call>'
LIST = '<tool_call>[{"name": "ping", "arguments": {}}, {"name": "get_weather", "arguments": {"city": "Nice" oh}}]</tool_call>'
EARLY = '<tool_call>\n{"name": "ping", "arguments": [1, 2]}\n</tool_call>'
TWICE = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo", "city": "Rome"}}\n</tool_call>'
SCRIPTS = {
    "§long": "I look.\n" + ONE,
    "§pair": ONE.replace("Aix, Brest", "Pau, Rennes") + '\n<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>',
    "§broken": "So: " + BROKEN + " was that.",
    "§list": LIST,
    "§early": EARLY,
    "§twice": TWICE,
    "§after": "That went wrong.",
}
# What stands in the content, and the whole calls.
WANT = {
    "§long": ("I look.\n", [("get_weather", {"city": TEXT, "days": 3})]),
    "§pair": ("", [("get_weather", {"city": TEXT.replace("Aix, Brest", "Pau, Rennes"), "days": 3}), ("ping", {})]),
    "§broken": (SCRIPTS["§broken"], []),
    "§list": (', {"name": "get_weather", "arguments": {"city": "Nice" oh}}]</tool_call>', [("ping", {})]),
    "§early": (EARLY, []),
    "§twice": ("", [("get_weather", {"city": "Rome"})]),
}
LOST = {"§broken": 1, "§list": 1, "§early": 1}  # calls that were begun for nothing


def is_json(text):
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def calls_of(message):
    return [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message.get("tool_calls", []) if is_json(c["function"]["arguments"])]


def deltas_of(events):
    return [call for e in events if e != "[DONE]" for c in e["choices"] for call in c["delta"].get("tool_calls", [])]


def test_chat(s):
    for word, (content, calls) in WANT.items():
        whole = s.ask(CHAT, chat(word, max_tokens=300, tools=TOOLS))[1]["choices"][0]
        events = s.stream(CHAT, chat(word, max_tokens=300, tools=TOOLS))
        message, finish = gathered(events)
        tally.check(f"{word}: whole", (whole["message"]["content"] or "", calls_of(whole["message"])) == (content, calls), whole)
        tally.check(f"{word}: streamed", (message["content"] or "", calls_of(message)) == (content, calls), message)
        tally.check(f"{word}: finish", finish == whole["finish_reason"] == ("tool_calls" if calls else "stop"), (finish, whole))
        tally.check(f"{word}: lost", len(message.get("tool_calls", [])) == len(calls) + LOST.get(word, 0), message)
        tally.check(f"{word}: no half call without a stream", len(whole["message"].get("tool_calls", [])) == len(calls), whole)
        begun = [d for d in deltas_of(events) if "id" in d]
        tally.check(f"{word}: ids", [d["index"] for d in begun] == [*range(len(begun))] and len({d["id"] for d in begun}) == len(begun) and all(d["function"]["name"] for d in begun), begun)
    first = deltas_of(s.stream(CHAT, chat("§long", max_tokens=300, tools=TOOLS)))
    tally.check("the name first", first[0]["function"] == {"name": "get_weather", "arguments": ""} and len(first) > 1, first)


def test_cut(s):
    """Whatever max_tokens cuts: the same content and the same calls with a stream and without, and all of the text. What
    the stream told of the call by then shows that it did not wait for the rest."""
    told = set()
    for most in range(1, 40, 3):
        whole = s.ask(CHAT, chat("§long", max_tokens=most, tools=TOOLS))[1]["choices"][0]
        message, finish = gathered(s.stream(CHAT, chat("§long", max_tokens=most, tools=TOOLS)))
        same = (message["content"] or "", calls_of(message)) == (whole["message"]["content"] or "", calls_of(whole["message"]))
        tally.check(f"cut {most}", same and finish == whole["finish_reason"], f"{message} {whole}")
        lost = SCRIPTS["§long"].startswith(message["content"] or "") or calls_of(message)
        tally.check(f"cut {most}: its text", lost and (finish != "length" or message["content"]), message)
        half = [c["function"]["arguments"] for c in message.get("tool_calls", []) if finish == "length"]
        tally.check(f"cut {most}: no half call without a letter", "" not in half, half)
        told |= {*half}
        blocks, stop = anthropic_blocks(s.stream(MESSAGES, {**chat("§long", max_tokens=most), "tools": ANTHROPIC_TOOLS}))
        uses = [b["partial"] for b in blocks if b["type"] == "tool_use"]
        tally.check(f"anthropic cut {most}", stop != "max_tokens" or not any(is_json(u) or not u for u in uses), blocks)
        if half:
            turns = [{"role": "user", "content": "§long"}, {"role": "assistant", **message}, {"role": "user", "content": "§after"}]
            prompt = s.ask("/apply-template", {"messages": turns, "tools": TOOLS})[1]["prompt"]
            tally.check(f"cut {most}: left out of the history", f"<{message['tool_calls'][0]['id']}" not in prompt, prompt)
    tally.check("told as it came", len(told) > 8 and all(json.dumps(WANT["§long"][1][0][1]).startswith(t) for t in told), told)


def anthropic_blocks(events):
    blocks, stop = [], None
    for e in events:
        if e["type"] == "content_block_start":
            tally.check("anthropic: index", e["index"] == len(blocks), e)
            blocks.append({**e["content_block"], "partial": ""})
        elif e["type"] == "content_block_delta":
            tally.check("anthropic: an open block", e["index"] == len(blocks) - 1, e)
            blocks[-1]["partial"] += e["delta"].get("text", e["delta"].get("partial_json", ""))
        elif e["type"] == "message_delta":
            stop = e["delta"]["stop_reason"]
    return blocks, stop


def test_anthropic(s):
    for word, (content, calls) in WANT.items():
        body = {**chat(word, max_tokens=300), "tools": ANTHROPIC_TOOLS}
        whole = s.ask(MESSAGES, body)[1]
        blocks, stop = anthropic_blocks(s.stream(MESSAGES, body))
        text = "".join(b["partial"] for b in blocks if b["type"] == "text")
        uses = [(b["name"], json.loads(b["partial"])) for b in blocks if b["type"] == "tool_use" and is_json(b["partial"])]
        tally.check(f"anthropic {word}: streamed", (text, uses) == (content, calls) and stop == whole["stop_reason"], (blocks, whole))
        tally.check(f"anthropic {word}: stop", stop == ("tool_use" if calls else "end_turn"), stop)
        text = "".join(b["text"] for b in whole["content"] if b["type"] == "text")
        uses = [(b["name"], b["input"]) for b in whole["content"] if b["type"] == "tool_use"]
        tally.check(f"anthropic {word}: whole", (text, uses) == (content, calls), whole)


def test_responses(s):
    for word, (content, calls) in WANT.items():
        body = {"input": word, "max_output_tokens": 300, "tools": FLAT}
        whole, events = s.ask(RESPONSES, body)[1], s.stream(RESPONSES, body)
        output = events[-1]["response"]["output"]
        for label, items in (("whole", [*whole["output"]]), ("streamed", output)):
            text = "".join(i["content"][0]["text"] for i in items if i["type"] == "message")
            made = [(i["name"], json.loads(i["arguments"])) for i in items if i["type"] == "function_call" and i["status"] == "completed"]
            tally.check(f"responses {word}: {label}", (text, made) == (content, calls), items)
        half = [i for i in output if i["type"] == "function_call" and i["status"] == "incomplete"]
        tally.check(f"responses {word}: lost", len(half) == LOST.get(word, 0) and not any(is_json(i["arguments"]) for i in half), output)
        for n, item in enumerate(output):
            mine = [e for e in events if e.get("output_index") == n]
            kinds = {e["type"] for e in mine}
            if item["type"] == "function_call":
                pieces = [e["delta"] for e in mine if e["type"].endswith(".delta")]
                tally.check(f"responses {word}: pieces", "".join(pieces) == item["arguments"], pieces)
                tally.check(f"responses {word}: done", ("response.function_call_arguments.done" in kinds) == (item["status"] == "completed"), kinds)
        # What goes on from a stream has the calls that were whole, and all text.
        results = [{"type": "function_call_output", "call_id": i["call_id"], "output": "no"} for i in output if i["type"] == "function_call" and i["status"] == "completed"]
        status, after, _ = s.ask(RESPONSES, {"input": [*results, {"role": "user", "content": "§after"}], "previous_response_id": events[-1]["response"]["id"], "tools": FLAT})
        tally.check(f"responses {word}: goes on", status == 200 and after["output"][0]["content"][0]["text"] == SCRIPTS["§after"], after)


def test_ollama(s):
    """The dialect's calls are whole."""
    for word, (content, calls) in WANT.items():
        body = {"messages": [{"role": "user", "content": word}], "options": {"num_predict": 300}, "tools": TOOLS}
        for stream in (False, True):
            got = s.ask(OLLAMA, {**body, "stream": stream})[1]
            lines = [json.loads(line) for line in got.splitlines()] if stream else [got]
            made = [(c["function"]["name"], c["function"]["arguments"]) for e in lines for c in e["message"].get("tool_calls", [])]
            tally.check(f"ollama {word} {stream}", ("".join(e["message"]["content"] for e in lines), made) == (content, calls), lines)


def test_histories(s):
    """A client that sends back the half call of a stream is answered; its text stands in the content."""
    message, _ = gathered(s.stream(CHAT, chat("§broken", max_tokens=300, tools=TOOLS)))
    half = message["tool_calls"][0]
    turns = [{"role": "user", "content": "§broken"}, {"role": "assistant", **message}, {"role": "tool", "tool_call_id": half["id"], "content": "no JSON §after"}]
    status, got, _ = s.ask(CHAT, {"messages": turns, "max_tokens": 300, "tools": TOOLS})
    tally.check("a half call in a history", status == 200 and got["choices"][0]["message"]["content"] == SCRIPTS["§after"], got)
    prompt = s.ask("/apply-template", {"messages": turns, "tools": TOOLS})[1]["prompt"]
    tally.check("is what the model wrote", SCRIPTS["§broken"] in prompt and f"<{half['id']}" not in prompt, prompt)
    turns[1]["tool_calls"][0]["function"]["arguments"] = ""
    prompt = s.ask("/apply-template", {"messages": turns, "tools": TOOLS})[1]["prompt"]
    tally.check("and of one without a letter", SCRIPTS["§broken"] in prompt and f"<{half['id']}" not in prompt, prompt)
    turns[1]["tool_calls"][0]["function"]["arguments"] = '{"city": ]'
    tally.check("what was never a beginning", s.ask(CHAT, {"messages": turns, "tools": TOOLS})[0] == 400)
    # A client's own half call, of which no text speaks.
    half["function"]["arguments"] = '{"city": "A'
    for content in (None, "", "So, get_weather", "<tool_call> of another"):
        turns[1] = {"role": "assistant", "content": content, "tool_calls": [half]}
        for history in (turns, [*turns[:2], {"role": "user", "content": "§after"}]):
            status, got, _ = s.ask(CHAT, {"messages": history, "tools": TOOLS})
            tally.check("a half call of the client's", status == 400 and "messages[1]: arguments of a tool call" in got["error"]["message"], got)
    for call, word in (({"id": "c1"}, "tool_calls"), ({"id": "c1", "function": {"arguments": "{}"}}, "name of a tool call")):
        turns[1]["tool_calls"] = [call]
        status, got, _ = s.ask(CHAT, {"messages": turns, "tools": TOOLS})
        tally.check("a call without a name", status == 400 and got["error"]["message"].startswith(f"messages[1]: {word}"), got)
    turns[1]["tool_calls"] = [{"id": "c1", "function": {"name": "ping"}}]
    tally.check("a call without arguments", "<c1 ping {}>" in s.ask("/apply-template", {"messages": turns, "tools": TOOLS})[1]["prompt"])


def test_repeated_key(s):
    """The last one counts; what the stream told is taken back as it was told."""
    message, _ = gathered(s.stream(CHAT, chat("§twice", max_tokens=300, tools=TOOLS)))
    call = message["tool_calls"][0]
    turns = [{"role": "user", "content": "§twice"}, {"role": "assistant", **message}, {"role": "tool", "tool_call_id": call["id"], "content": "§after"}]
    got = s.ask("/apply-template", {"messages": turns, "tools": TOOLS})[1]
    tally.check("a key twice in a history", f'<{call["id"]} get_weather {{"city": "Rome"}}>' in got["prompt"], got)


def test_items(s):
    """A call of /v1/responses that was never whole, as clients send it back."""
    text = {"role": "assistant", "content": [{"type": "output_text", "text": BROKEN}]}
    half = {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": '{"city": "Lyon, Metz"'}
    after = {"role": "user", "content": "§after"}
    for status in ({}, {"status": "incomplete"}):
        call = {**half, **status}
        for items in ([call, text, after], [call, text, {"type": "function_call_output", "call_id": "c1", "output": "§after"}]):
            code, got, _ = s.ask(RESPONSES, {"input": items, "tools": FLAT})
            tally.check(f"a half item {status}", code == 200 and got["output"][0]["content"][0]["text"] == SCRIPTS["§after"], got)
        answer = {"type": "function_call_output", "call_id": "c1", "output": "§after"}
        for items in ([call, answer, after], [call, after, text, answer], [text, call, after, answer]):
            code, got, _ = s.ask(RESPONSES, {"input": items, "tools": FLAT})
            tally.check(f"a half item of which no text speaks, with an output {status}", code == 400 and "arguments" in got["error"]["message"], got)
    code, got, _ = s.ask(RESPONSES, {"input": [half, after], "tools": FLAT})
    tally.check("a half item that does not say so", code == 400 and "input[0]: arguments" in got["error"]["message"], got)
    code, got, _ = s.ask(RESPONSES, {"input": [{**half, "status": "incomplete"}, after], "tools": FLAT})
    tally.check("a half item that says so, without an output", code == 200, got)


def test_one_call(s):
    message, finish = gathered(s.stream(CHAT, chat("§pair", max_tokens=300, tools=TOOLS, parallel_tool_calls=False)))
    tally.check("one call", calls_of(message) == WANT["§pair"][1][:1] and len(message["tool_calls"]) == 1 and finish == "tool_calls", message)
    message, finish = gathered(s.stream(CHAT, chat("§list", max_tokens=300, tools=TOOLS, parallel_tool_calls=False)))
    tally.check("one call, and none begun behind it", calls_of(message) == WANT["§list"][1] and len(message["tool_calls"]) == 1 and finish == "tool_calls", message)
    two = s.stream(CHAT, chat("§pair", max_tokens=300, tools=TOOLS, n=2))
    for i in range(2):
        tally.check("two choices", calls_of(gathered(two, i)[0]) == WANT["§pair"][1], two)


def test_packages(s):
    try:
        import anthropic
        import openai
    except ImportError:
        tally.skip("openai and anthropic", "the packages are not installed (scripts/clients.sh installs them)")
        return
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="none", max_retries=0)
    for word, (content, calls) in WANT.items():
        with client.chat.completions.stream(model=s.name, messages=[{"role": "user", "content": word}], tools=TOOLS, max_tokens=300) as stream:
            kinds = [e.type for e in stream]
            final = stream.get_final_completion().choices[0]
        made = [(c.function.name, json.loads(c.function.arguments)) for c in final.message.tool_calls or [] if is_json(c.function.arguments)]
        tally.check(f"package openai {word}", (final.message.content or "", made) == (content, calls), final)
        tally.check(f"package openai {word}: events", not calls or kinds.count("tool_calls.function.arguments.delta") >= len(calls), kinds)
        with client.responses.stream(model=s.name, input=word, tools=FLAT) as stream:
            kinds = [e.type for e in stream]
            items = stream.get_final_response().output
        made = [(i.name, json.loads(i.arguments)) for i in items if i.type == "function_call" and i.status == "completed"]
        tally.check(f"package responses {word}", made == calls and kinds.count("response.function_call_arguments.done") == len(calls), items)
    other = anthropic.Anthropic(base_url=f"http://127.0.0.1:{s.port}", api_key="none", max_retries=0)
    for word, (content, calls) in WANT.items():
        with other.messages.stream(model=s.name, messages=[{"role": "user", "content": word}], tools=ANTHROPIC_TOOLS, max_tokens=300) as stream:
            pieces = "".join(e.partial_json for e in stream if e.type == "input_json")
            final = stream.get_final_message()
        uses = [(b.name, b.input) for b in final.content if b.type == "tool_use"]
        # The package takes what there is of a call that was lost; what there was does not parse, and the reason is another.
        want = {"§broken": [("get_weather", {"city": "Lyon, Metz"})], "§list": [*calls, ("get_weather", {})], "§early": [("ping", {})]}
        tally.check(f"package anthropic {word}: input", uses == want.get(word, calls), uses)
        tally.check(f"package anthropic {word}: reason", final.stop_reason == ("tool_use" if calls else "end_turn"), final)
        tally.check(f"package anthropic {word}", len(uses) == len(calls) + LOST.get(word, 0) and "".join(b.text for b in final.content if b.type == "text") == content, final)
        tally.check(f"package anthropic {word}: pieces", word != "§long" or json.loads(pieces) == calls[0][1], pieces)


def main():
    python = BUILD / "clients" / "bin" / "python"
    if python.exists() and Path(sys.prefix).resolve() != python.parent.parent.resolve():
        os.execv(python, [str(python), *sys.argv])
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(Path(folder) / "scripted", TEMPLATE, SCRIPTS)
        with Server(model) as s:
            for test in (test_chat, test_cut, test_anthropic, test_responses, test_ollama, test_histories, test_repeated_key, test_items, test_one_call, test_packages):
                test(s)
            tally.check("ends well", s.end() == 0, s.status)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
