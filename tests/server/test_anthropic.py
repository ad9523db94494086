"""The Anthropic dialect: /v1/messages by hand, and with the official `anthropic` package where scripts/clients.sh put it."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from serving import EOS, GOLDEN, Server, chat  # noqa: E402
from tally import Tally  # noqa: E402
from terncli import BUILD  # noqa: E402

tally = Tally()
PATH = "/v1/messages"


def body(**fields):
    return {"model": "alias", "max_tokens": 24, "messages": [{"role": "user", "content": "Hello"}], **fields}


def inputs(message):
    """All input: what was found in a prefix is counted apart."""
    return message["usage"]["input_tokens"] + message["usage"]["cache_read_input_tokens"]


def test_whole(s):
    status, got, _ = s.ask(PATH, body(system="Be brief."))
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    want = s.ask("/v1/chat/completions", {"messages": messages, "max_tokens": 24})[1]
    tally.check("200", status == 200, got)
    tally.check("text", got["content"] == [{"type": "text", "text": want["choices"][0]["message"]["content"]}], got)
    tally.check("kind", got["type"] == "message" and got["role"] == "assistant" and got["id"].startswith("msg"))
    usage = (inputs(got), got["usage"]["output_tokens"])
    tally.check("usage", usage == (want["usage"]["prompt_tokens"], want["usage"]["completion_tokens"]), usage)
    reason = {"length": "max_tokens", "stop": "end_turn"}[want["choices"][0]["finish_reason"]]
    tally.check("stop_reason", got["stop_reason"] == reason and got["stop_sequence"] is None, got)
    parts = body(system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}], thinking={"type": "disabled"}, metadata={"user_id": "u"})
    parts["messages"] = [{"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]}]
    tally.check("parts", s.ask(PATH, parts)[1]["content"] == got["content"])
    text = s.ask(PATH, body())[1]["content"][0]["text"]
    stopped = s.ask(PATH, body(stop_sequences=["nowhere", text[3:5]]))[1]
    tally.check("stop_sequence", stopped["stop_reason"] == "stop_sequence" and stopped["stop_sequence"] == text[3:5], stopped)
    tally.check("stopped text", stopped["content"][0]["text"] == text[: text.index(text[3:5])])
    ended = s.ask(PATH, body(logit_bias={str(EOS): 1000}))[1]
    tally.check("end_turn", ended["stop_reason"] == "end_turn" and ended["usage"]["output_tokens"] == 0, ended)
    counted = s.ask(f"{PATH}/count_tokens", {k: v for k, v in body(system="Be brief.").items() if k != "max_tokens"})[1]
    tally.check("count_tokens", counted == {"input_tokens": inputs(got)}, counted)


def test_prefill(s):
    """An assistant's message at the end is the beginning of the answer, and is continued."""
    begun = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "I am"}]
    got = s.ask(PATH, body(messages=begun))[1]
    prompt = s.ask("/apply-template", {"messages": begun, "chat_template_kwargs": {"continue_final_message": True}})[1]["prompt"]
    tally.check("ends in the message", prompt.endswith("<|assistant|>I am"), prompt)
    want = s.ask("/v1/completions", {"prompt": prompt, "max_tokens": 24})[1]
    tally.check("prefill", got.get("content") and got["content"][0]["text"] == want["choices"][0]["text"], f"{got} {want}")
    parts = [begun[0], {"role": "assistant", "content": [{"type": "text", "text": "I am"}]}]
    tally.check("prefill in parts", s.ask(PATH, body(messages=parts))[1]["content"] == got["content"])


def count(s, **fields):
    return s.ask(f"{PATH}/count_tokens", body(**fields))[1]


def test_count(s):
    """What is too long for an answer is counted all the same."""
    long = [{"role": "user", "content": "x" * 3000}]
    got = count(s, messages=long, max_tokens=5000)
    far = count(s, messages=[{"role": "user", "content": "x" * 300000}])
    tally.check("count_tokens far beyond the context", far.get("input_tokens", 0) > 20000, far)
    tally.check("count_tokens beyond the context", got.get("input_tokens", 0) > 1024, got)


def test_thinking():
    """Not asked for is off here; --chat-template-args and chat_template_kwargs may say otherwise."""
    template = "{{ messages[0].content }}{% if enable_thinking is not defined or enable_thinking %}, think hard about it{% endif %}"
    model = GOLDEN / "llama-4bit" / "model"
    with Server(model, "--alias", "alias", "--chat-template", template) as s:
        off = count(s, thinking={"type": "disabled"})
        tally.check("thinking: absent is off", count(s) == off, f"{count(s)} {off}")
        on = count(s, chat_template_kwargs={"enable_thinking": True})
        tally.check("thinking: asked for", on["input_tokens"] > off["input_tokens"], f"{on} {off}")
    with Server(model, "--alias", "alias", "--chat-template", template, "--chat-template-args", '{"enable_thinking": true}') as s:
        tally.check("thinking: as the server was told", count(s) == on, count(s))
        tally.check("thinking: disabled", count(s, thinking={"type": "disabled"}) == off)


def test_stream(s):
    whole = s.ask(PATH, body(temperature=0.8, seed=4))[1]
    events = s.stream(PATH, body(temperature=0.8, seed=4))
    kinds = [e["type"] for e in events]
    middle = [k for k in kinds if k != "content_block_delta"]
    want = ["message_start", "content_block_start", "ping", "content_block_stop", "message_delta", "message_stop"]
    tally.check("events", middle == want, middle)
    text = "".join(e["delta"]["text"] for e in events if e["type"] == "content_block_delta")
    tally.check("stream: text", text == whole["content"][0]["text"])
    end = events[-2]
    tally.check("stream: end", end["delta"]["stop_reason"] == whole["stop_reason"] and end["usage"]["output_tokens"] == whole["usage"]["output_tokens"], end)
    tally.check("stream: start", inputs(events[0]["message"]) == inputs(whole))


def test_errors(s):
    wrong = {
        "tools": [{"name": "f", "input_schema": {}}],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "stop": "x",
        "n": 2,
        "max_tokens": None,
        "system": 3,
        "stop_sequences": "x",
        "messages": [{"role": "system", "content": "x"}],
        "temperature": "hot",
    }
    for name, value in wrong.items():
        status, got, _ = s.ask(PATH, body(**{name: value}))
        ok = status == 400 and got.get("type") == "error" and got["error"]["type"] == "invalid_request_error" and name in got["error"]["message"]
        tally.check(f"wrong {name}", ok, f"{status} {got}")
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    tally.check("tool_choice", s.ask(PATH, body(tool_choice=choice))[0] == 200)
    for name in ("functions", "suffix"):
        tally.check(f"foreign {name}", s.ask(PATH, body(**{name: [] if name == "functions" else ""}))[0] == 400)
    got = s.ask(PATH, body(stop_sequences=["a"] * 17))[1]["error"]["message"]
    tally.check("names stop_sequences", got.startswith("stop_sequences"), got)
    got = s.ask(PATH, body(system="x", messages=[{"role": "user", "content": 3}]))[1]["error"]["message"]
    tally.check("numbers messages as they came", "messages[0]" in got, got)
    got = s.ask(PATH, body(system=[{"type": "image"}]))[1]["error"]["message"]
    tally.check("names system", got.startswith("system"), got)
    status, got, _ = s.ask(PATH + "/batches", body())
    tally.check("404", status == 404 and got["type"] == "error", got)
    status, got, _ = s.ask(PATH, body(model="claude"))
    tally.check("model", status == 404 and got["error"]["type"] == "not_found_error", got)
    for text in (b"", b"[", b"\xff", b"[1]"):
        status, got, _ = s.ask(PATH, text, method="POST")
        tally.check(f"body {text!r}", status == 400 and got["type"] == "error", got)
    status, got, _ = s.ask(PATH)
    tally.check("405", status == 405 and got["type"] == "error", got)


def test_package(s):
    try:
        import anthropic
    except ImportError:
        tally.skip("anthropic", "the package is not installed (scripts/clients.sh installs it)")
        return
    client = anthropic.Anthropic(base_url=f"http://127.0.0.1:{s.port}", api_key="none", max_retries=0)
    call = {"model": s.name, "max_tokens": 24, "system": "Be brief.", "messages": [{"role": "user", "content": "Hello"}]}
    whole = client.messages.create(**call)
    tally.check("package: text", whole.content[0].text and whole.stop_reason in ("max_tokens", "end_turn"))
    with client.messages.stream(**call) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    tally.check("package: stream", text == whole.content[0].text and final.usage.output_tokens == whole.usage.output_tokens)
    counted = client.messages.count_tokens(model=s.name, messages=call["messages"], system="Be brief.")
    tally.check("package: count_tokens", counted.input_tokens == whole.usage.input_tokens + whole.usage.cache_read_input_tokens)
    try:
        client.messages.create(**{**call, "model": "claude"})
        tally.fail("package: model", "no error")
    except anthropic.NotFoundError:
        tally.ok()


def main():
    python = BUILD / "clients" / "bin" / "python"
    if python.exists() and Path(sys.prefix).resolve() != python.parent.parent.resolve():
        os.execv(python, [str(python), *sys.argv])
    with Server(GOLDEN / "llama-4bit" / "model", "--alias", "alias") as s:
        for test in (test_whole, test_prefill, test_count, test_stream, test_errors, test_package):
            test(s)
        tally.check("goes on", s.ask("/v1/chat/completions", chat("Hello"))[0] == 200)
        tally.check("ends well", s.end() == 0, s.status)
    test_thinking()
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
