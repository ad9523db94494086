"""/v1/responses: by hand, and with the official `openai` package where scripts/clients.sh put it."""

import ctypes
import os
import platform
import struct
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from serving import EOS, GOLDEN, Server, chat, until  # noqa: E402
from tally import Tally  # noqa: E402
from terncli import BUILD, sanitized  # noqa: E402

tally = Tally()
PATH, CHAT = "/v1/responses", "/v1/chat/completions"
USER = {"role": "user", "content": "Hello"}


def body(**fields):
    return {"model": "alias", "input": "Hello", "max_output_tokens": 24, **fields}


def text_of(response):
    return "".join(p["text"] for item in response.get("output", []) if item["type"] == "message" for p in item["content"])


def same(s, label, got, messages, **fields):
    """The response has the text and counts that a chat of these messages has."""
    want = s.ask(CHAT, {"messages": messages, "max_tokens": 24, **fields})[1]
    usage = (got.get("usage", {}).get("input_tokens"), got.get("usage", {}).get("output_tokens"))
    ok = text_of(got) == want["choices"][0]["message"]["content"] and usage == (want["usage"]["prompt_tokens"], want["usage"]["completion_tokens"])
    tally.check(label, ok, f"{got} {want}")


def test_whole(s):
    status, got, _ = s.ask(PATH, body())
    tally.check("200", status == 200 and got["object"] == "response" and got["id"].startswith("resp_"), got)
    same(s, "text", got, [USER])
    item = got["output"][0]
    ok = item["type"] == "message" and item["role"] == "assistant" and item["content"][0]["type"] == "output_text" and item["content"][0]["annotations"] == []
    tally.check("item", ok and len(got["output"]) == 1, got)
    ended = s.ask(PATH, body(logit_bias={str(EOS): 1000}))[1]
    tally.check("completed", ended["status"] == ended["output"][0]["status"] == "completed" and ended["incomplete_details"] is None and text_of(ended) == "", ended)
    cut = s.ask(PATH, body(logit_bias={str(EOS): -1000}))[1]
    tally.check("incomplete", cut["status"] == cut["output"][0]["status"] == "incomplete" and cut["incomplete_details"] == {"reason": "max_output_tokens"}, cut)
    usage = cut["usage"]
    tally.check("usage", usage["total_tokens"] == usage["input_tokens"] + 24 and usage["input_tokens_details"]["cached_tokens"] > 0, usage)
    got = s.ask(PATH, body(instructions="Be brief.", temperature=0.7, top_p=0.9, seed=3, metadata={"a": "b"}))[1]
    same(s, "sampled, with instructions", got, [{"role": "system", "content": "Be brief."}, USER], temperature=0.7, top_p=0.9, seed=3)
    tally.check("echo", (got["instructions"], got["temperature"], got["top_p"], got["metadata"], got["max_output_tokens"]) == ("Be brief.", 0.7, 0.9, {"a": "b"}, 24), got)


def test_items(s):
    parts = [{"type": "input_text", "text": "Hel"}, {"type": "input_text", "text": "lo"}]
    for label, items in {
        "a message": [USER],
        "a message with its type": [{"type": "message", **USER}],
        "parts": [{"role": "user", "content": parts}],
        "status and id": [{"type": "message", "id": "x", "status": "completed", **USER}],
    }.items():
        same(s, label, s.ask(PATH, body(input=items))[1], [USER])
    answer = {"type": "message", "role": "assistant", "id": "m", "status": "completed", "content": [{"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}]}
    same(s, "an answer", s.ask(PATH, body(input=[USER, answer, USER]))[1], [USER, {"role": "assistant", "content": "Hi"}, USER])
    system = {"role": "developer", "content": "In verse."}
    same(s, "one system message", s.ask(PATH, body(input=[system, USER], instructions="Be brief."))[1], [{"role": "system", "content": "Be brief.\n\nIn verse."}, USER])
    template = (
        "{% for m in messages %}[{{ m.role }}{% if m.name %} {{ m.name }}{% endif %}{% if m.reasoning_content %} ({{ m.reasoning_content }}){% endif %}: {{ m.content }}"
        "{% for c in m.tool_calls or [] %} {{ c.id }} {{ c.function.name }} {{ c.function.arguments.a }}{% endfor %}]{% endfor %}"
    )
    items = [
        USER,
        {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}', "id": "fc", "status": "completed"},
        {"type": "function_call", "call_id": "c2", "name": "g", "arguments": '{"a": 2}'},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]},
    ]
    prompt = "[user: Hello][assistant (hm):  c1 f 1 c2 g 2][tool f: one][tool g: two]"
    with Server(GOLDEN / "llama-4bit" / "model", "--alias", "alias", "--chat-template", template) as other:
        got = other.ask(PATH, body(input=items))[1]
        want = other.ask("/v1/completions", {"prompt": prompt, "max_tokens": 24})[1]
        tally.check("calls and outputs", text_of(got) == want["choices"][0]["text"], f"{got} {want}")


def test_stored(s):
    nul = next(i for i in range(320) if s.ask("/detokenize", {"tokens": [i]})[1]["content"] == "\0")
    ban = {"logit_bias": {str(nul): -1000}}  # no request may hold one
    first = s.ask(PATH, body(instructions="Be brief.", **ban))[1]
    status, got, _ = s.ask(f"{PATH}/{first['id']}")
    tally.check("GET", status == 200 and got == first, f"{got} {first}")
    second = s.ask(PATH, body(input="and?", previous_response_id=first["id"], **ban))[1]
    turns = [USER, {"role": "assistant", "content": text_of(first)}, {"role": "user", "content": "and?"}]
    same(s, "goes on, without the instructions", second, turns, **ban)
    tally.check("names it", second["previous_response_id"] == first["id"])
    third = s.ask(PATH, body(input=[{"role": "user", "content": "so?"}], previous_response_id=second["id"], stream=False, **ban))[1]
    same(s, "goes on again", third, [*turns, {"role": "assistant", "content": text_of(second)}, {"role": "user", "content": "so?"}], **ban)
    listed = s.ask(f"{PATH}/{second['id']}/input_items")[1]
    ok = listed["object"] == "list" and [i["content"] for i in listed["data"]] == [[{"type": "input_text", "text": "and?"}]] and listed["data"][0]["id"] == listed["first_id"]
    tally.check("input_items", ok, listed)
    many = s.ask(PATH, body(input=[{"role": "user", "content": str(i), "id": f"i{i}"} for i in range(30)]))[1]["id"]
    where = f"{PATH}/{many}/input_items"
    for query, want, more in (
        ("", range(29, 9, -1), True), ("?order=asc&limit=3", range(3), True), ("?order=asc&after=i26", range(27, 30), False),
        ("?after=i2", (1, 0), False), ("?limit=100&order=desc", range(29, -1, -1), False), ("?order=asc&after=i29", (), False),
    ):
        got = s.ask(where + query)[1]
        tally.check(f"input_items{query}", [i["id"] for i in got["data"]] == [f"i{k}" for k in want] and got["has_more"] is more, got)
    for query in ("?limit=0", "?limit=101", "?limit=x", "?limit=", "?order=up", "?after=nobody"):
        status, got, _ = s.ask(where + query)
        tally.check(f"wrong input_items{query}", status == 400 and got["error"]["param"] == query[1:].split("=")[0], got)
    for query, want in (("?stream=true", 400), ("?stream=false", 200), ("?starting_after=3", 400)):
        tally.check(f"GET {query}", s.ask(f"{PATH}/{many}{query}")[0] == want)
    status, got, _ = s.ask(f"{PATH}/{first['id']}", method="DELETE")
    tally.check("DELETE", status == 200 and got["deleted"] is True and got["id"] == first["id"], got)
    for method, path in (("GET", first["id"]), ("DELETE", first["id"]), ("GET", "resp_x"), ("GET", f"{first['id']}/input_items"), ("GET", first["id"][:-1])):
        status, got, _ = s.ask(f"{PATH}/{path}", method=method)
        tally.check(f"{method} {path[:12]}: 404", status == 404 and got["error"]["message"], got)
    status, got, _ = s.ask(PATH, body(previous_response_id=first["id"]))
    tally.check("a previous one that went", status == 400 and got["error"]["param"] == "previous_response_id" and got["error"]["code"] == "previous_response_not_found", got)
    tally.check("what came of it stays", s.ask(f"{PATH}/{second['id']}")[0] == 200)
    unkept = s.ask(PATH, body(store=False))[1]
    tally.check("store false", unkept["store"] is False and s.ask(f"{PATH}/{unkept['id']}")[0] == 404)
    oldest = second["id"]
    for _ in range(256):
        s.ask(PATH, body(max_output_tokens=1))
    tally.check("the oldest go", s.ask(f"{PATH}/{oldest}")[0] == 404)


def without_random_numbers():
    """In the child: getrandom is ENOSYS from here on, as on an old system."""
    libc = ctypes.CDLL(None)
    number = {"x86_64": 318, "aarch64": 278}[platform.machine()]
    code = struct.pack("=HBBIHBBIHBBIHBBI", 0x20, 0, 0, 0, 0x15, 0, 1, number, 0x06, 0, 0, 0x00050000 | 38, 0x06, 0, 0, 0x7FFF0000)
    text = ctypes.create_string_buffer(code)
    program = ctypes.create_string_buffer(struct.pack("HP", 4, ctypes.addressof(text)))
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program):
        os._exit(99)


def test_random_numbers(_):
    if platform.machine() not in ("x86_64", "aarch64"):
        return
    with Server(GOLDEN / "llama-4bit" / "model", "--alias", "alias", before=without_random_numbers) as s:
        status, got, _ = s.ask(PATH, body())
        tally.check("nothing is stored under an id that can be guessed", status == 503 and got["error"]["param"] == "store", got)
        status, got, _ = s.ask(PATH, body(store=False))
        tally.check("without storing it answers", status == 200 and got["store"] is False, got)
        tally.check("and goes on", s.ask(CHAT, chat("Hello"))[0] == 200)


def test_stream(s):
    for label, fields in {"cut": {"logit_bias": {str(EOS): -1000}}, "ended": {"logit_bias": {str(EOS): 3}, "temperature": 1, "seed": 3}, "empty": {"logit_bias": {str(EOS): 1000}}}.items():
        whole = s.ask(PATH, body(**fields))[1]
        events = s.stream(PATH, body(**fields))
        kinds = [e["type"].removeprefix("response.") for e in events]
        middle = [k for k in kinds if k != "output_text.delta"]
        end = "incomplete" if whole["status"] == "incomplete" else "completed"
        want = ["created", "in_progress", "output_item.added", "content_part.added", "output_text.done", "content_part.done", "output_item.done", end]
        tally.check(f"{label}: events", middle == want, kinds)
        tally.check(f"{label}: numbers", [e["sequence_number"] for e in events] == list(range(len(events))))
        text = "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
        done = next(e for e in events if e["type"] == "response.output_text.done")
        tally.check(f"{label}: text", text == text_of(whole) == done["text"] == text_of(events[-1]["response"]))
        items = {e["item_id"] for e in events if "item_id" in e} | {e["item"]["id"] for e in events if "item" in e}
        tally.check(f"{label}: one item", len(items) == 1 and events[-1]["response"]["output"][0]["id"] in items, items)
        counts = [{k: r["usage"][k] for k in ("input_tokens", "output_tokens", "total_tokens")} for r in (events[-1]["response"], whole)]
        tally.check(f"{label}: usage", counts[0] == counts[1] and events[0]["response"]["usage"] is None, counts)
        tally.check(f"{label}: status", events[0]["response"]["status"] == "in_progress" and events[-1]["response"]["status"] == whole["status"])
        tally.check(f"{label}: stored", s.ask(f"{PATH}/{events[-1]['response']['id']}")[1] == events[-1]["response"])


LOGPROBS = {"include": ["message.output_text.logprobs"]}


def tokens_of(response):
    return [t for item in response["output"] if item["type"] == "message" for p in item["content"] for t in p["logprobs"]]


def chat_tokens(answer):
    return [{**t, "bytes": t["bytes"] or [], "top_logprobs": [{**o, "bytes": o["bytes"] or []} for o in t["top_logprobs"]]} for t in answer["choices"][0]["logprobs"]["content"]]


def test_logprobs(s):
    """The tokens that a chat has, in the whole answer and in pieces."""
    for label, fields, shared in (("plain", {}, {}), ("with others", {"top_logprobs": 3}, {"top_logprobs": 3}), ("ended", {"logit_bias": {str(EOS): 3}, "temperature": 1, "seed": 3, "top_logprobs": 2}, {"top_logprobs": 2})):
        fields = {**fields, **LOGPROBS}
        same_fields = {k: v for k, v in fields.items() if k != "include"}
        want = chat_tokens(s.ask(CHAT, {"messages": [USER], "max_tokens": 24, "logprobs": True, **same_fields})[1])
        whole = s.ask(PATH, body(**fields))[1]
        tally.check(f"logprobs {label}: whole", tokens_of(whole) == want and want, f"{whole} {want}")
        tally.check(f"logprobs {label}: echo", whole["top_logprobs"] == shared.get("top_logprobs", 0), whole["top_logprobs"])
        events = s.stream(PATH, body(**fields))
        pieces = [t for e in events if e["type"] == "response.output_text.delta" for t in e["logprobs"]]
        done = next(e for e in events if e["type"] == "response.output_text.done")
        part = next(e for e in events if e["type"] == "response.content_part.done")
        tally.check(f"logprobs {label}: pieces", pieces == want, lambda: f"{pieces} {want}")
        tally.check(f"logprobs {label}: at the end", done["logprobs"] == part["part"]["logprobs"] == tokens_of(events[-1]["response"]) == want, done)
        tally.check(f"logprobs {label}: stored", tokens_of(s.ask(f"{PATH}/{whole['id']}")[1]) == want)
    none = s.ask(PATH, body(include=["reasoning.encrypted_content"], top_logprobs=0))[1]
    tally.check("no logprobs", tokens_of(none) == [], none)
    answer = {"role": "assistant", "content": s.ask(PATH, body(**LOGPROBS, logit_bias={"0": -1000}))[1]["output"][0]["content"]}
    tally.check("they may come back", s.ask(PATH, body(input=[USER, answer, USER]))[0] == 200)
    status, got, _ = s.ask(PATH, body(**LOGPROBS, tools=[{"type": "function", "name": "f", "parameters": {}}]))
    tally.check("not beside tools", status == 400 and got["error"]["param"] in ("include", "tools"), got)


def test_memory():
    """Tokens with all their alternatives cost what their text has, several times where it is told so, in every dialect."""
    if sanitized():
        tally.skip("memory of tokens", "a sanitizer keeps what was freed")
        return
    n, bias, tops = 2000, {str(EOS): -1000}, {"top_logprobs": 20}
    responses = {"input": "Hello", "max_output_tokens": n, "logit_bias": bias, "top_logprobs": 20, **LOGPROBS}
    asked = (PATH, responses), (PATH, {**responses, "stream": True, "store": False}), ("/api/generate", {"prompt": "Hello", "stream": False, "options": {"num_predict": n, "temperature": 1, "seed": 3}, "logprobs": True, **tops})
    for path, fields in asked:
        with Server(GOLDEN / "llama-4bit" / "model", "--ctx", n + 100) as s:
            s.ask(CHAT, chat("Hello"))
            before = s.memory("VmHWM")
            status, got, _ = s.ask(path, fields)
            grown = s.memory("VmHWM") - before
            tally.check(f"memory of tokens: {path} {'stream' if fields.get('stream') else 'whole'}", status == 200 and grown < 25 << 20, f"{status} {grown} bytes more")


WRONG = {
    "input": [None, 3, {}, [], [1], [{"role": "user"}], [{"role": "robot", "content": "a"}], [{"role": "user", "content": "a", "voice": "b"}], [{"role": "user", "content": 3}],
              [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}], [{"type": "item_reference", "id": "x"}], [{"type": "web_search_call", "id": "x"}],
              [{"type": "function_call", "call_id": "c", "name": "f"}], [{"type": "function_call_output", "output": "x"}], [{"type": "reasoning", "summary": [], "encrypted_content": "x"}],
              [{"type": "function_call_output", "call_id": "c", "output": 3}], [{"type": "function_call_output", "call_id": "nobody", "output": "x"}], [{"type": 3}]],
    "instructions": [3, ["a"]],
    "previous_response_id": [3, "resp_nothing"],
    "store": ["yes"],
    "stream": [1],
    "max_output_tokens": [0, -1, "a", 1.5],
    "temperature": [-1, "hot"],
    "top_p": [2],
    "top_k": [-1],
    "text": [{"format": {"type": "yaml"}}, {"format": {"type": "json_schema"}}, {"verbosity": "low"}, 3],
    "reasoning": [{"effort": "high"}],
    "tools": [[{"type": "function", "name": "f", "parameters": {}}], [{"type": "web_search"}]],
    "tool_choice": ["required", {"type": "function", "name": "f"}],
    "top_logprobs": [5, 21, -1, "a", True],
    "background": [True],
    "include": [["message.input_image.image_url"], [3], "message.output_text.logprobs", ["reasoning.encrypted_content", "x"]],
    "truncation": ["middle"],
    "conversation": ["conv"],
    "prompt": [{"id": "x"}],
    "messages": [[USER]],
    "max_tokens": [3],
    "model": [3],
    "metadata": [3],
}


def test_wrong(s):
    for name, values in WRONG.items():
        for value in values:
            status, got, _ = s.ask(PATH, body(**{name: value}))
            ok = status == 400 and set(got) == {"error"} and name in got["error"]["message"]
            tally.check(f"wrong {name} {str(value)[:60]}", ok, f"{status} {got}")
    quiet = {"include": ["reasoning.encrypted_content"], "truncation": "auto", "parallel_tool_calls": True, "tools": [], "tool_choice": "auto", "text": {"format": {"type": "text"}}, "user": "u", "reasoning": None}
    same(s, "what is let be", s.ask(PATH, body(**quiet))[1], [USER])
    status, got, _ = s.ask(PATH, body(model="other"))
    tally.check("model", status == 404 and got["error"]["param"] == "model", got)
    status, got, headers = s.ask(PATH + "/resp_x", {}, method="POST")
    tally.check("405", status == 405 and headers["Allow"] == "GET, DELETE", f"{status} {headers['Allow']}")
    status, got, _ = s.ask(PATH, body(max_output_tokens=5000))
    tally.check("too long", status == 400 and got["error"]["code"] == "context_length_exceeded" and got["error"]["param"] == "max_output_tokens" and got["error"]["message"].startswith("max_output_tokens: 5000: "), got)
    status, got, _ = s.ask(PATH, body(input="y" * 3000))
    tally.check("a prompt that is too long", status == 400 and got["error"]["code"] == "context_length_exceeded" and got["error"]["param"] == "input" and got["error"]["message"].startswith("input: "), got)


def test_package(s):
    try:
        import openai
    except ImportError:
        tally.skip("openai", "the package is not installed (scripts/clients.sh installs it)")
        return
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="none", max_retries=0)
    call = {"model": "alias", "input": "Hello", "instructions": "Be brief.", "max_output_tokens": 24, "temperature": 0.7, "extra_body": {"seed": 5}}
    whole = client.responses.create(**call)
    tally.check("package: text", whole.output_text and whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens)
    tally.check("package: retrieve", client.responses.retrieve(whole.id).output_text == whole.output_text)
    more = client.responses.create(model="alias", input=[{"role": "user", "content": "more"}], previous_response_id=whole.id, max_output_tokens=8)
    tally.check("package: goes on", more.previous_response_id == whole.id and more.usage.input_tokens > whole.usage.input_tokens)
    listed = client.responses.input_items.list(client.responses.create(model="alias", input=[{"role": "user", "content": str(i)} for i in range(45)], max_output_tokens=1).id, order="asc")
    tally.check("package: pages", [i.content for i in listed] == [str(i) for i in range(45)])
    tally.check("package: input_items", [i.content[0].text for i in client.responses.input_items.list(whole.id)] == ["Hello"])
    text, seen = "", []
    for event in client.responses.create(stream=True, **call):
        seen.append(event.type)
        text += event.delta if event.type == "response.output_text.delta" else ""
    tally.check("package: events", text == whole.output_text and seen[0] == "response.created" and seen[-1] in ("response.completed", "response.incomplete"), seen)
    with client.responses.stream(**{**call, "extra_body": {"seed": 5, "logit_bias": {str(EOS): 3}}}) as stream:
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        tally.check("package: stream helper", text == stream.get_final_response().output_text)
    told = client.responses.create(include=["message.output_text.logprobs"], top_logprobs=2, **call)
    first = told.output[0].content[0].logprobs[0]
    tally.check("package: logprobs", isinstance(first.token, str) and first.logprob <= 0 and len(first.top_logprobs) == 2 and bytes(first.bytes).decode() == first.token, first)
    client.responses.delete(whole.id)
    try:
        client.responses.retrieve(whole.id)
        tally.fail("package: deleted", "no error")
    except openai.NotFoundError:
        tally.ok()
    try:
        client.responses.create(**{**call, "text": {"format": {"type": "json_schema", "name": "x", "schema": {"not": {}}}}})
        tally.fail("package: format", "no error")
    except openai.BadRequestError as error:
        tally.check("package: format", error.param == "text", error)


def main():
    python = BUILD / "clients" / "bin" / "python"
    if python.exists() and Path(sys.prefix).resolve() != python.parent.parent.resolve():
        os.execv(python, [str(python), *sys.argv])
    with Server(GOLDEN / "llama-4bit" / "model", "--alias", "alias") as s:
        for test in (test_whole, test_items, test_stored, test_random_numbers, test_stream, test_logprobs, test_wrong, test_package):
            test(s)
        tally.check("goes on", s.ask(CHAT, chat("Hello"))[0] == 200)
        tally.check("nothing runs", until(lambda: s.metric("requests_running") == 0))
        tally.check("ends well", s.end() == 0, s.status)
    test_memory()
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
