"""Two hundred and more requests that are wrong: each is a clear 4xx in the dialect's own shape, and the server goes on."""

import json
import random
import socket
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from serving import DEADLINE, GOLDEN, Server, chat  # noqa: E402
from tally import Tally  # noqa: E402

tally = Tally()
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"

# Values of every kind; a field is given those that are not its own.
KINDS = {"null": None, "bool": True, "int": 7, "real": 1.5, "string": "x", "list": [1], "object": {"a": 1}}
FIELDS = {
    "model": "string null",
    "messages": "",
    "stream": "bool null",
    "n": "int null",
    "max_tokens": "int null",
    "max_completion_tokens": "int null",
    "temperature": "int real null",
    "top_p": "null",
    "min_p": "null",
    "top_k": "int null",
    "xtc_probability": "null",
    "repetition_penalty": "int real null",
    "presence_penalty": "int real null",
    "frequency_penalty": "int real null",
    "repetition_context_size": "int null",
    "logit_bias": "null",
    "seed": "int null",
    "stop": "string null",
    "logprobs": "bool null",
    "top_logprobs": "null",
    "stream_options": "null",
    "chat_template_kwargs": "object null",
}
RANGES = {
    "n": [0, -1, 17, 10**30],
    "max_tokens": [0, -5, 1 << 40, 1e300],
    "temperature": [-1, 1e300],
    "top_p": [-0.1, 1.1],
    "min_p": [-1, 2],
    "top_k": [-1, 320, 1 << 33],
    "xtc_threshold": [0.6],
    "repetition_penalty": [-1],
    "top_logprobs": [-1, 21],
    "logit_bias": [{"x": 1}, {"320": 1}, {"1": "a"}, {"-1": 0}, {"64": 1, "064": 2}, {"1": 1e39}, {"99999999999999999999": 1}],
    "stop": ["", [""], [1], ["a"] * 17],
    "stream_options": [{"include_usage": 1}, {"other": True}],
    "messages": [[], [1], [{}], [{"role": 1, "content": "x"}], [{"role": "user", "content": 1}],
                 [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
                 [{"role": "user", "content": [1]}], [{"role": "user", "content": [{"type": "text", "text": "a", "voice": "b"}]}], [{"role": "user", "content": [{"type": "text"}]}],
                 [{"role": "assistant", "tool_calls": 1}], [{"role": "assistant", "tool_calls": [1]}],
                 [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{]"}}]}],
                 [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 3}}]}]],
}
UNKNOWN = {
    "tools": [{"type": "function", "function": {"name": "f"}}],
    "tool_choice": "required",
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {}}}},
    "functions": [{}],
    "modalities": ["audio"],
    "audio": {},
    "prediction": {},
    "reasoning_effort": "high",
    "echo": True,
    "best_of": 2,
    "guided_json": {},
    "grammar": "root ::= x",
    "adapters": "a",
    "tempreature": 1,
}
PROMPTS = [None, 1, {}, [], [[]], [1.5], [-1], [320], ["a", 1], [[1], "a", None], ["a"] * 17, True]


def is_error(status, answer, param=None):
    """None, or what is wrong with it as an error."""
    if not 400 <= status < 500:
        return f"status {status}: {str(answer)[:200]}"
    if not isinstance(answer, dict) or set(answer) != {"error"}:
        return f"not an error object: {str(answer)[:200]}"
    e = answer["error"]
    if set(e) != {"message", "type", "param", "code"} or not e["message"] or e["type"] != "invalid_request_error":
        return f"not OpenAI's: {e}"
    if param and e["param"] != param:
        return f"param {e['param']}, not {param}: {e['message']}"
    return None


def refused(s, label, path, body, param=None, status=None):
    got, answer, _ = s.ask(path, body, method="POST")
    why = is_error(got, answer, param)
    if not why and status and got != status:
        why = f"{got}, not {status}"
    tally.check(label, why is None, why)


def test_fields(s):
    for name, own in FIELDS.items():
        for kind, value in KINDS.items():
            if kind not in own.split():
                refused(s, f"{name}: {kind}", CHAT, {**chat("a"), name: value}, name.split(".")[0] if name != "stream_options" or kind != "object" else None)
    for name, values in RANGES.items():
        for value in values:
            extra = {"temperature": 1} if name == "top_k" else {"logprobs": True} if name == "top_logprobs" else {}
            refused(s, f"{name}: {str(value)[:60]}", CHAT, {**chat("a"), **extra, name: value})
    for name, value in UNKNOWN.items():
        refused(s, f"unknown {name}", CHAT, {**chat("a"), name: value}, name, 400)
    refused(s, "top_logprobs without logprobs", CHAT, chat("a", top_logprobs=2), "top_logprobs")
    for prompt in PROMPTS:
        refused(s, f"prompt {str(prompt)[:40]}", TEXT, {"prompt": prompt}, "prompt")
    name = "k" * 1000000
    status, answer, _ = s.ask(CHAT, {**chat("a"), name: 1})
    tally.check("a long name", status == 400 and len(json.dumps(answer)) < 1000, f"{status} {str(answer)[:200]}")
    refused(s, "no prompt", TEXT, {}, "prompt")
    refused(s, "messages for a text", TEXT, chat("a"), "messages")
    refused(s, "n times prompts", TEXT, {"prompt": ["a"] * 5, "n": 4}, "n")
    for path, body in (
        ("/tokenize", {}), ("/tokenize", {"content": 1}), ("/tokenize", {"content": "a", "x": 1}), ("/tokenize", {"content": "a", "add_special": 1}),
        ("/detokenize", {}), ("/detokenize", {"tokens": "a"}), ("/detokenize", {"tokens": [1, "a"]}), ("/detokenize", {"tokens": [-1]}),
        ("/apply-template", {}), ("/apply-template", {"messages": 1}), ("/apply-template", {"messages": [{"role": "user"}], "chat_template_kwargs": 1}),
    ):
        refused(s, f"{path} {body}", path, body)


def test_texts(s):
    good = json.dumps(chat("Hello")).encode()
    texts = [
        b"", b" ", b"{", b"}", b"[]", b"null", b"1", b'"x"', b"{'a': 1}", b'{"a"}', good + b"x", good[:-1], good * 2,
        b"\xff\xfe" + good, good.replace(b"Hello", b"\xc3\x28"), good.replace(b"Hello", b"\xed\xa0\x80"), good.replace(b"Hello", b"\xf5\x80\x80\x80"),
        good.replace(b"Hello", b"a\x00b"), good.replace(b"Hello", b"a\\u0000b"), good.replace(b"Hello", b"\\ud800"), good.replace(b"Hello", b"\n"),
        b'{"messages": [{"role": "user", "content": "a"}], "messages": []}',
        b'{"temperature": NaN, "messages": []}', b'{"temperature": Infinity, "messages": []}', b'{"temperature": 1e999, "messages": []}',
        b"[" * 100000, b'{"a":' * 100000, b'{"messages":' + b"[" * 5000 + b"]" * 5000 + b"}", b'{"a": "' + b"x" * 1000000,
        b"\0" * 1000, b"--" * 1000, b"<xml/>", b"a=b&c=d",
    ]
    for i, text in enumerate(texts):
        refused(s, f"text {i} {text[:30]!r}", CHAT, text, status=400)
    dice = random.Random(1)
    for i in range(60):
        text = bytearray(good)
        for _ in range(dice.randrange(1, 6)):
            text[dice.randrange(len(text))] = dice.randrange(256)
        status, answer, _ = s.ask(CHAT, bytes(text))
        tally.check(f"bent {i}", status == 200 or is_error(status, answer) is None, f"{status} {str(answer)[:200]} {bytes(text)!r}")
    big = b'{"messages": [{"role": "user", "content": "' + b"x" * (17 << 20) + b'"}]}'
    refused(s, "17 MB", CHAT, big, status=413)
    refused(s, "10 MB", CHAT, big[: 10 << 20] + b'"}]}', status=400)
    many = b'{"messages": [{"role": "user", "content": "a"}], "stop": [' + b"1," * 2000000 + b"1]}"
    refused(s, "two million values", CHAT, many, status=400)


def raw(s, text, half=False):
    """What comes back for bytes on a socket."""
    sock = socket.create_connection(("127.0.0.1", s.port), timeout=DEADLINE)
    try:
        sock.sendall(text)
        if half:
            sock.shutdown(socket.SHUT_WR)
        return sock.recv(4096)
    except OSError:
        return b""
    finally:
        sock.close()


def test_http(s):
    for i, text in enumerate([
        b"\0\0\0\0\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n", b"GET /" + b"a" * 60000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /health HTTP/1.1\r\n" + b"X: y\r\n" * 10000 + b"\r\n", b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ]):
        answer = raw(s, text, half=True)
        tally.check(f"http {i}", not answer or b" 4" in answer[:14] or b" 5" in answer[:14], answer[:80])
    for i in range(20):  # half a request, then silence and away
        raw(s, b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{\"a\"", half=True)
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "BREW"):
        status = s.ask(CHAT, b"{}", method=method)[0]
        tally.check(f"{method}", 400 <= status < 600, status)
    refused(s, "another path", "/v1/../etc/passwd", {}, status=404)
    refused(s, "a long path", "/" + "a" * 5000, {}, status=404)


def main():
    with Server(GOLDEN / "llama-4bit" / "model") as s:
        want = s.ask(CHAT, chat("Hello"))[1]["choices"]
        for test in (test_fields, test_texts, test_http):
            test(s)
            tally.check(f"after {test.__name__}", s.ask(CHAT, chat("Hello"))[1]["choices"] == want)
        tally.check("nothing runs", s.metric("requests_running") == 0)
        tally.check("ends well", s.end() == 0, s.status)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
