"""The server against the command line: same text, streams, usage, stops, cancellation, overload, an orderly end."""

import concurrent.futures
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from serving import DEADLINE, EOS, GOLDEN, Server, chat, until  # noqa: E402
from tally import Tally  # noqa: E402
from terncli import BINARY, sanitized, tern  # noqa: E402
from waiting import worked  # noqa: E402

tally = Tally()
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
PROMPTS = ["Hello", "a", "The quick brown fox jumps over the lazy dog. " * 4, "\u00e4\u00f6\u00fc \u4f60\u597d", "x" * 200, "def f(x):\n  return", "1 2 3", "?"]
MODELS = [("llama-4bit", "exact"), ("gemma3-bf16", "exact"), ("qwen2-mxfp4", "fast")]


def run(model, prompt, *flags):
    done = tern("run", model, "--json", *flags, "--prompt", prompt)
    if done.status:
        raise RuntimeError(done.error_line)
    answer = json.loads(done.out)
    answer["text"] = tern("run", model, *flags, "--prompt", prompt).out[:-1].decode()  # whole, where it holds a NUL too
    return answer


def at_once(calls):
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        return [f.result() for f in [pool.submit(c) for c in calls]]


# ---- the command line's text


def test_same_as_run():
    for name, numerics in MODELS:
        model = GOLDEN / name / "model"
        with Server(model, "--numerics", numerics) as s:
            want = [run(model, p, "--numerics", numerics, "--temp", 0, "--max-tokens", 24) for p in PROMPTS]
            got = at_once([lambda p=p: s.ask(CHAT, chat(p)) for p in PROMPTS])
            raw = at_once([lambda p=p: s.ask(TEXT, {"prompt": p, "max_tokens": 24}) for p in PROMPTS])
            for p, w, (status, g, _), (_, r, _) in zip(PROMPTS, want, got, raw):
                label = f"{name} {p[:10]!r}"
                if not tally.check(f"{label}: 200", status == 200, g):
                    continue
                choice = g["choices"][0]
                tally.check(f"{label}: text", choice["message"]["content"] == w["text"], lambda: f"{choice} != {w['text']!r}")
                tally.check(f"{label}: finish", choice["finish_reason"] == w["finish_reason"])
                same = all(g["usage"][k] == w["usage"][k] for k in ("prompt_tokens", "completion_tokens", "total_tokens"))
                tally.check(f"{label}: usage", same, f"{g['usage']} {w['usage']}")
                w = run(model, p, "--numerics", numerics, "--raw", "--max-tokens", 24)
                tally.check(f"{label}: raw text", r["choices"][0]["text"] == w["text"])
            sampled = ["--temp", 0.9, "--top-p", 0.95, "--seed", 7, "--repetition-penalty", 1.1, "--max-tokens", 24]
            fields = {"temperature": 0.9, "top_p": 0.95, "seed": 7, "repetition_penalty": 1.1}
            got = at_once([lambda p=p: s.ask(CHAT, chat(p, **fields)) for p in PROMPTS])
            for p, (_, g, _) in zip(PROMPTS, got):
                w = run(model, p, "--numerics", numerics, *sampled)
                tally.check(f"{name} {p[:10]!r}: sampled", g["choices"][0]["message"]["content"] == w["text"])


# ---- streams


def joined(events, index=0, key="delta"):
    out = ""
    for e in events:
        for c in e["choices"] if isinstance(e, dict) else []:
            if c["index"] == index:
                out += c["delta"].get("content", "") if key == "delta" else c["text"]
    return out


def test_streams(s):
    body = chat("Hello", temperature=0.8, seed=3, n=3, logprobs=True, top_logprobs=3, max_tokens=40)
    whole = s.ask(CHAT, body)[1]
    events = s.stream(CHAT, {**body, "stream_options": {"include_usage": True}})
    tally.check("stream: ends with [DONE]", events[-1] == "[DONE]")
    events = events[:-1]
    counts = [{k: v for k, v in u.items() if k != "prompt_tokens_details"} for u in (events[-1]["usage"], whole["usage"])]
    tally.check("stream: usage", counts[0] == counts[1] and events[-1]["choices"] == [], counts)
    tally.check("stream: usage is null before", all(e["usage"] is None for e in events[:-1]))
    tally.check("stream: one id", len({e["id"] for e in events}) == 1)
    for i in range(3):
        w = whole["choices"][i]
        mine = [c for e in events for c in e["choices"] if c["index"] == i]
        tally.check(f"stream {i}: role first", mine[0]["delta"] == {"role": "assistant", "content": ""})
        tally.check(f"stream {i}: text", joined(events, i) == w["message"]["content"])
        tally.check(f"stream {i}: one finish", [c["finish_reason"] for c in mine if c["finish_reason"]] == [w["finish_reason"]])
        tokens = [t for c in mine if c["logprobs"] for t in c["logprobs"]["content"]]
        tally.check(f"stream {i}: logprobs", tokens == w["logprobs"]["content"])
        tally.check(f"stream {i}: as many as usage says", len(tokens) == 40 or w["finish_reason"] == "stop", len(tokens))
        alone = s.ask(CHAT, chat("Hello", temperature=0.8, seed=3 + i, max_tokens=40))[1]
        tally.check(f"choice {i} has seed + {i}", alone["choices"][0]["message"]["content"] == w["message"]["content"])
    for c in whole["choices"]:
        for t in c["logprobs"]["content"]:
            tops = [x["logprob"] for x in t["top_logprobs"]]
            if not tally.check("tops descend", tops == sorted(tops, reverse=True) and len(tops) == 3, tops):
                break
    body = {"prompt": ["one", "two"], "n": 2, "temperature": 1, "seed": 5, "max_tokens": 20, "logprobs": 2}
    whole = s.ask(TEXT, body)[1]
    events = s.stream(TEXT, body)
    for i in range(4):
        tally.check(f"text stream {i}", joined(events[:-1], i, "text") == whole["choices"][i]["text"])
    tally.check("text: index", [c["index"] for c in whole["choices"]] == [0, 1, 2, 3])
    ids = s.ask("/tokenize", {"prompt": "one"})[1]["tokens"]
    again = s.ask(TEXT, {**body, "prompt": [ids, ids]})[1]
    tally.check("ids as prompts", [c["text"] for c in again["choices"]][:2] == [c["text"] for c in whole["choices"]][:2])


def test_stops(s):
    text = s.ask(CHAT, chat("Hello", max_tokens=40))[1]["choices"][0]["message"]["content"]
    for start in range(1, len(text) - 4, 3):
        for n in (1, 2, 4):
            stop = text[start : start + n]
            if "\ufffd" in stop or "\0" in stop:
                continue
            body = chat("Hello", max_tokens=40, stop=[stop, "never to be seen"])
            c = s.ask(CHAT, body)[1]["choices"][0]
            want = text[: text.index(stop)]
            tally.check(f"stop {stop!r}", c["message"]["content"] == want and c["finish_reason"] == "stop", lambda: f"{c} != {want!r}")
            tally.check(f"stop {stop!r}, streamed", joined(s.stream(CHAT, body)[:-1]) == want)
    one = s.ask(CHAT, chat("Hello", stop=text[3:5]))[1]["choices"][0]["message"]["content"]
    tally.check("stop as a string", one == text[: text.index(text[3:5])])
    biased = s.ask(CHAT, chat("Hello", logit_bias={str(EOS): 1000}))[1]
    tally.check("logit_bias", biased["choices"][0]["finish_reason"] == "stop" and biased["usage"]["completion_tokens"] == 0, biased)


def test_small_routes(s):
    model = GOLDEN / "llama-4bit" / "model"
    status, models, _ = s.ask("/v1/models")
    ids = [m["id"] for m in models["data"]]
    tally.check("models", status == 200 and ids == [s.name, "alias"], models)
    tally.check("as it was typed, it is not listed a second time", s.ask(f"/v1/models/{model}")[0] == s.ask(CHAT, chat("a", model=str(model)))[0] == 200)
    tally.check("one model", s.ask("/v1/models/alias")[0] == 200 and s.ask("/v1/models/other")[0] == 404)
    for name in ids:
        tally.check(f"model {name}", s.ask(CHAT, chat("a", model=name))[1].get("model") == name)
    status, answer, _ = s.ask(CHAT, chat("a", model="gpt-9"))
    tally.check("another model", status == 404 and answer["error"]["code"] == "model_not_found" and s.name in answer["error"]["message"] and "--alias" in answer["error"]["message"], answer)
    want = json.loads(tern("tokenize", model, "Hello w\u00f6rld").out)
    got = s.ask("/tokenize", {"content": "Hello w\u00f6rld"})[1]
    tally.check("tokenize", got == {"tokens": want, "count": len(want)}, got)
    tally.check("detokenize", s.ask("/detokenize", {"tokens": want})[1] == {"content": "Hello w\u00f6rld"})
    prompt = s.ask("/apply-template", {"messages": chat("Hi")["messages"]})[1]["prompt"]
    tally.check("apply-template", prompt == "<|bos|><|user|>Hi<|end|><|assistant|>", prompt)
    tally.check("health", s.ask("/health")[1] == {"status": "ok"})
    tally.check("HEAD", s.ask("/health", method="HEAD")[0] == 200)
    status, _, headers = s.ask(CHAT)
    tally.check("405", status == 405 and headers["Allow"] == "POST")
    tally.check("404", s.ask("/v1/nothing")[0] == 404)
    parts = [{"role": "developer", "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief"}]}, {"role": "assistant", "content": None}]
    got = s.ask("/apply-template", {"messages": parts})[1]["prompt"]
    tally.check("parts, developer, null", got == "<|bos|><|system|>Be brief<|end|><|assistant|><|end|><|assistant|>", got)
    quiet = {"user": "u", "metadata": {}, "store": False, "tools": [], "tool_choice": "auto", "response_format": {"type": "text"}, "stop": None}
    a, b = s.ask(CHAT, chat("Hello", **quiet)), s.ask(CHAT, chat("Hello"))
    tally.check("harmless fields", a[0] == 200 and a[1]["choices"] == b[1]["choices"], a)
    long = s.ask(CHAT, chat("Hello", max_tokens=5000))
    tally.check("too long", long[0] == 400 and long[1]["error"]["code"] == "context_length_exceeded" and long[1]["error"]["param"] == "max_tokens", long)
    most = int(long[1]["error"]["message"].split(" at most ")[0].split()[-1])
    fits, not_more = (s.ask(CHAT, chat("Hello", max_completion_tokens=n, logit_bias={str(EOS): 1000})) for n in (most, most + 1))
    tally.check("what has room", fits[0] == 200 and not_more[0] == 400 and not_more[1]["error"]["param"] == "max_completion_tokens", f"{fits} {not_more}")
    rest = s.ask(TEXT, {"prompt": "y" * 980, "logit_bias": {str(EOS): -1000}})
    tally.check("the default stops at the context's end", rest[0] == 200 and rest[1]["usage"]["total_tokens"] == 1025, rest)
    wins = s.ask(CHAT, chat("Hello", max_tokens=9, max_completion_tokens=3))[1]
    tally.check("max_completion_tokens wins", wins["usage"]["completion_tokens"] <= 3)
    c = s.connect()
    for _ in range(3):
        c.request("GET", "/health")
        tally.check("keep-alive", c.getresponse().read() == b'{"status":"ok"}')
    c.close()


# ---- leaving, waiting, too many


def endless(s, stream=True, tokens=50000):
    """A socket on which a long answer was asked for."""
    body = json.dumps(chat("Hello", max_tokens=tokens, stream=stream, logit_bias={str(EOS): -1000})).encode()
    sock = socket.create_connection(("127.0.0.1", s.port), timeout=DEADLINE)
    sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    return sock


def inside(s):
    """(running, waiting) at one moment."""
    lines = dict(line.rsplit(" ", 1) for line in s.ask("/metrics")[1].splitlines() if not line.startswith("#"))
    return int(lines["tern_requests_running"]), int(lines["tern_requests_waiting"])


def is_full(slow):
    """One runs, two wait: a first one that is not admitted yet counts as waiting too."""
    return inside(slow) == (1, 2)


def test_disconnect(slow):
    for stream in (True, False):
        label = "stream" if stream else "whole"
        before = slow.metric('requests_total{end="cancelled"}')
        sock = endless(slow, stream)
        tally.check(f"{label}: runs", until(lambda: slow.metric("requests_running") == 1))
        sock.close()
        gone = slow.metric("generated_tokens_total")
        tally.check(f"{label}: cancelled", until(lambda: slow.metric('requests_total{end="cancelled"}') == before + 1))
        after = slow.metric("generated_tokens_total")
        tally.check(f"{label}: at once", after - gone < 2000, f"{after - gone} tokens after the client had gone")
        tally.check(f"{label}: gives its state back", slow.metric("state_bytes") == 0 and slow.metric("requests_running") == 0)
    sock = endless(slow)
    waits = [endless(slow) for _ in range(2)]  # one runs, two wait: a waiting one may leave too
    until(lambda: is_full(slow))
    waits[0].close()
    tally.check("a waiting one leaves", until(lambda: slow.metric("requests_waiting") == 1))
    sock.close()
    waits[1].close()
    tally.check("all leave", until(lambda: inside(slow) == (0, 0)))


def test_overload(slow):
    socks = [endless(slow) for _ in range(3)]  # one runs, two wait
    tally.check("full", until(lambda: is_full(slow)))
    status, answer, headers = slow.ask(CHAT, chat("Hello"))
    ok = status == 429 and headers["Retry-After"] == "1" and answer["error"]["type"] == "rate_limit_error"
    tally.check("429", ok, f"{status} {answer}")
    status, answer, _ = slow.ask(CHAT, chat("Hello", n=4))
    tally.check("more than ever fit", status == 400, f"{status} {answer}")
    tally.check("turned away", slow.metric('requests_total{end="turned_away"}') == 1)
    for sock in socks:
        sock.close()
    tally.check("room again", until(lambda: slow.ask(CHAT, chat("Hello", max_tokens=2))[0] == 200))


def test_prefixes(s, name="llama-4bit"):
    """Turns of two conversations find their state again, and have the text of a server that keeps none."""
    with Server(GOLDEN / name / "model", "--prompt-cache-size", 0) as plain:
        talks = [[{"role": "user", "content": "Hello"}], [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "a"}]]
        for turn in range(4):
            for talk in talks:
                body = {"messages": talk, "max_tokens": 20, "temperature": 0.7, "seed": turn}
                got, want = s.ask(CHAT, body)[1], plain.ask(CHAT, body)[1]
                tally.check(f"turn {turn}: text", got["choices"] == want["choices"], lambda: f"{got} {want}")
                cached = got["usage"]["prompt_tokens_details"]["cached_tokens"]
                tally.check(f"turn {turn}: cached", turn == 0 or 0 < cached < got["usage"]["prompt_tokens"], got["usage"])
                tally.check(f"turn {turn}: none", want["usage"]["prompt_tokens_details"]["cached_tokens"] == 0)
                talk += [got["choices"][0]["message"], {"role": "user", "content": f"and {turn}?"}]
    tally.check("metrics of prefixes", s.metric("cached_tokens_total") > 0 and 0 < s.metric("prefixes") <= 10 and s.metric("prefix_bytes") > 0)


def test_sliding_prefixes():
    """The same with windows past which keys are dropped: a short first prompt, turns that alternate, then another system prompt."""
    model = GOLDEN / "gemma3-bf16" / "model"
    with Server(model) as s:
        test_prefixes(s, "gemma3-bf16")
        with Server(model, "--prompt-cache-size", 0) as plain:
            said = "the quick brown fox jumps over the lazy dog and then over all the others that lie there"
            for system in ("Be brief.", "Be long.", "Be brief.", "Be brief and kind."):
                body = {"messages": [{"role": "system", "content": system}, {"role": "user", "content": said}], "max_tokens": 16}
                for turn in range(3):
                    got, want = s.ask(CHAT, body)[1], plain.ask(CHAT, body)[1]
                    tally.check(f"{system} turn {turn}: text", got["choices"] == want["choices"], lambda: f"{got} {want}")
                    cached = got["usage"]["prompt_tokens_details"]["cached_tokens"]
                    tally.check(f"{system} turn {turn}: cached", turn == 0 or cached > 0, got["usage"])
                    body["messages"] += [got["choices"][0]["message"], {"role": "user", "content": f"and {turn}?"}]


def test_prompt_cache_dir():
    """A server that ends leaves its conversations in a folder, and the next one goes on from there in the same words."""
    for name, flags in (("gemma3-bf16", ()), ("llama-4bit", ("--numerics", "fast", "--kv-bits", 8, "--kv-group-size", 32, "--quantized-kv-start", 0))):
        model = GOLDEN / name / "model"
        with tempfile.TemporaryDirectory() as folder:
            kept = Path(folder) / "kept"
            flags = (*flags, "--prompt-cache-dir", kept)
            talk, cached = [], []
            for turn in range(4):
                talk += [{"role": "user", "content": f"and what of {turn}, then?"}]
                body = {"messages": talk, "max_tokens": 20, "temperature": 0.7, "seed": turn}
                with Server(model, *flags[:-2]) as plain:
                    want = plain.ask(CHAT, body)[1]
                with Server(model, *flags) as s:
                    got = s.ask(CHAT, body)[1]
                    tally.check(f"{name}, turn {turn}: ends well", s.end() == 0 and "warning" not in s.err, s.err)
                tally.check(f"{name}, turn {turn}: the same answer", got["choices"] == want["choices"], lambda: f"{got} {want}")
                cached.append(got["usage"]["prompt_tokens_details"]["cached_tokens"])
                talk += [got["choices"][0]["message"]]
            tally.check(f"{name}: found after each restart", cached[0] == 0 and all(c > 0 for c in cached[1:]), cached)
            files = sorted(kept.iterdir())
            tally.check(f"{name}: files for their user alone", files and all(f.stat().st_mode & 0o77 == 0 for f in files), files)
            for file in files:
                with open(file, "r+b") as f:
                    f.seek(file.stat().st_size // 2)
                    byte = f.read(1)
                    f.seek(-1, 1)
                    f.write(bytes([byte[0] ^ 1]))
            body["messages"] = talk[:-1]
            with Server(model, *flags) as s:
                got = s.ask(CHAT, body)[1]
                tally.check(f"{name}, damaged: the same answer", got["choices"] == want["choices"], lambda: f"{got} {want}")
                tally.check(f"{name}, damaged: nothing found", got["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, got["usage"])
                tally.check(f"{name}, damaged: ends well", s.end() == 0, s.status)
            aside = [f for f in kept.iterdir() if f.name.endswith(".aside")]
            tally.check(f"{name}, damaged: set aside", aside, aside)
            with Server(model, *flags) as s:
                again = s.ask(CHAT, body)[1]
                tally.check(f"{name}: whole again", again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0 and again["choices"] == want["choices"], again)
    for flags, words in (((0, "--prompt-cache-dir", "/tmp"), "nothing is kept"), ((5, "--prompt-cache-dir", "/proc/no/where"), "/proc/no/where"), ((5, "--prompt-cache-dir-mb", "9"), "changes nothing without")):
        done = tern("serve", GOLDEN / "llama-4bit" / "model", "--port", "0", "--prompt-cache-size", *flags)
        tally.check(f"refused: {words}", done.status in (1, 2) and words in done.err, done.err)


def test_speculation():
    """Guessing ahead, by lookup and by a model: the same answers, alone and at once; usage and metrics count the guesses."""
    model, other = GOLDEN / "gemma3-bf16" / "model", GOLDEN / "qwen3-f16" / "model"
    bodies = [chat(p, max_tokens=30, temperature=0.3 * (i % 3), seed=i) for i, p in enumerate(PROMPTS)]
    bodies[1] |= {"logprobs": True, "top_logprobs": 3}
    bodies[4] |= {"stop": ["e", "zz"], "frequency_penalty": 0.5, "logit_bias": {"7": 3}, "n": 2}
    with Server(model) as plain:
        want = at_once([lambda b=b: plain.ask(CHAT, b)[1]["choices"] for b in bodies])
        usage = plain.ask(CHAT, bodies[0])[1]["usage"]
        tally.check("no guesses: no details", "completion_tokens_details" not in usage, usage)
    for flags in (("--prompt-lookup", "--num-draft-tokens", 20), ("--draft-model", other)):
        with Server(model, *flags) as s:
            for round in range(2):
                got = at_once([lambda b=b: s.ask(CHAT, b)[1] for b in bodies])
                for w, g, p in zip(want, got, PROMPTS):
                    tally.check(f"{flags[0]}, round {round}, {p[:10]!r}: the same answer", g.get("choices") == w, lambda: f"{g} {w}")
            details = [g["usage"]["completion_tokens_details"] for g in got]
            tally.check(f"{flags[0]}: details", all(d["accepted_prediction_tokens"] >= 0 and d["rejected_prediction_tokens"] >= 0 for d in details), details)
            drafted, accepted = s.metric("drafted_tokens_total"), s.metric("accepted_tokens_total")
            tally.check(f"{flags[0]}: metrics", 0 < drafted and 0 <= accepted <= drafted, (drafted, accepted))
            last = [e for e in s.stream(CHAT, {**bodies[2], "stream_options": {"include_usage": True}}) if e != "[DONE]"][-1]
            tally.check(f"{flags[0]}: a stream's usage", "completion_tokens_details" in last["usage"], last)
            tally.check(f"{flags[0]}: ends well", s.end() == 0, s.status)


def test_slow_reader(s):
    """Ten who never read do not hold up others, nor does one who sends half a request."""
    socks = [endless(s, tokens=900) for _ in range(10)]
    half = socket.create_connection(("127.0.0.1", s.port))
    half.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n\r\n{")
    want = s.ask(CHAT, chat("Hello"))
    tally.check("beside slow readers", want[0] == 200)
    tally.check("their answers end", until(lambda: s.metric("requests_running") == 0))
    for sock in [*socks, half]:
        sock.close()


def test_late_reader(s):
    """What has gathered for one who reads late comes in events of bounded size, whole and in order."""
    # Much to send and little to compute: who takes nothing for a minute is cut off.
    body = chat("Hello", max_tokens=300, n=3, logprobs=True, top_logprobs=20, temperature=1, seed=1, logit_bias={str(EOS): -1000})
    text = json.dumps({**body, "stream": True}).encode()
    c = s.connect()
    c.connect()
    c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    before = s.metric("generated_tokens_total")
    c.request("POST", CHAT, text)
    tally.check("nobody reads", until(lambda: s.metric("generated_tokens_total") == before + 900 and s.metric("requests_running") == 0))
    got = [json.loads(line[6:]) for line in c.getresponse().read().decode().split("\n") if line.startswith("data: {")]
    c.close()
    whole = s.ask(CHAT, body)[1]["choices"]
    for i in range(3):
        parts = [p["logprobs"]["content"] for e in got for p in e["choices"] if p["index"] == i and p["logprobs"]]
        tally.check(f"late reader {i}: pieces", max(map(len, parts)) <= 64, max(map(len, parts)))
        tally.check(f"late reader {i}: tokens", sum(parts, []) == whole[i]["logprobs"]["content"])
        tally.check(f"late reader {i}: text", joined(got, i) == whole[i]["message"]["content"])


def test_mixed(s):
    """Requests with penalties, biases and log-probabilities beside plain ones, of all lengths: each has its own answer."""
    kinds = [{}, {"repetition_penalty": 1.3}, {"logit_bias": {"70": 5}, "temperature": 0.8, "seed": 5}, {"frequency_penalty": 1, "logprobs": True, "top_logprobs": 3}, {"top_k": 3, "temperature": 1, "seed": 9}]
    bodies = [chat(p, **kinds[i % len(kinds)]) for i, p in enumerate(PROMPTS * 2)]
    alone = [s.ask(CHAT, b)[1]["choices"] for b in bodies]
    together = [got["choices"] for _, got, _ in at_once([lambda b=b: s.ask(CHAT, b) for b in bodies])]
    tally.check("mixed requests", together == alone, lambda: next(f"{a} {b}" for a, b in zip(alone, together) if a != b))


def test_idle(s):
    """Nobody waits by running: three times in a row, as what was asked before may have something to put away at first."""
    sock = socket.create_connection(("127.0.0.1", s.port))
    used = []
    while len(used) < 20 and (len(used) < 3 or max(used[-3:]) > 0.05):
        before = worked(s.process.pid)
        time.sleep(1)
        used.append(worked(s.process.pid) - before)
    tally.check("idle", max(used[-3:]) <= 0.05, used)
    sock.close()


def test_long_prompt():
    """A prompt of 24,000 tokens is answered, and others beside it."""
    if sanitized():
        tally.skip("a long prompt", "a sanitizer takes minutes")
        return
    with Server(GOLDEN / "llama-4bit" / "model", "--ctx", 30000) as s:
        got = []
        ids = [5 + i % 250 for i in range(24000)]
        reader = threading.Thread(target=lambda: got.append(s.ask(TEXT, {"prompt": ids, "max_tokens": 8, "logit_bias": {str(EOS): -1000}})))
        reader.start()
        until(lambda: s.metric("requests_running") == 1)
        tally.check("beside a long prompt", s.ask(CHAT, chat("Hello", max_tokens=2))[0] == 200)
        reader.join()
        tally.check("a long prompt", got[0][0] == 200 and got[0][1]["usage"] | {"prompt_tokens_details": 0} == {"prompt_tokens": 24000, "completion_tokens": 8, "total_tokens": 24008, "prompt_tokens_details": 0}, got)


def test_memory(s):
    def rounds(n):
        for _ in range(n):
            at_once([lambda k=k: s.ask(CHAT, chat(f"Hello {k}", temperature=0.5, stream=k % 2 == 0)) for k in range(10)])

    if sanitized():
        tally.skip("memory after 200 requests more", "a sanitizer keeps what was freed")
        return
    def grows(most, work):
        """How far memory grew, time after time, until it was less than `most` in the last three together. Threads that run at
        once for the first time cost some once; a leak costs some again and again."""
        grown = []
        while len(grown) < 8 and (len(grown) < 3 or sum(grown[-3:]) >= most):
            before = s.memory()
            work()
            grown.append(s.memory() - before)
        return grown

    rounds(20)
    grown = grows(4 << 20, lambda: rounds(20))
    tally.check("memory after 200 requests more", sum(grown[-3:]) < 4 << 20, f"{grown} bytes more")
    body = chat("Hello", n=8, max_tokens=900, logprobs=True, top_logprobs=20, logit_bias={str(EOS): -1000})
    status = []
    grown = grows(32 << 20, lambda: status.append(s.ask(CHAT, body)[0]))
    tally.check("memory after a large answer", {*status} == {200} and sum(grown[-3:]) < 32 << 20, f"{status} {grown} bytes more")


# ---- who may ask


def raw_status(s, head, body=b""):
    """The status that comes back for a request written by hand."""
    sock = socket.create_connection(("127.0.0.1", s.port), timeout=DEADLINE)
    sock.sendall(head.replace("\n", "\r\n").encode() + b"\r\n" + body)
    got = sock.recv(100).split()
    sock.close()
    return int(got[1]) if len(got) > 1 else 0


def test_pages(s):
    """Pages from elsewhere get no answer, whatever name their browser has for this machine."""
    own = f"127.0.0.1:{s.port}"
    for host, origin, want in (
        (own, None, 200),
        ("localhost", None, 200),
        ("model.localhost:80", None, 200),
        ("[::1]:80", None, 200),
        ("192.168.1.7", None, 200),
        ("evil.example", None, 403),
        ("localhost.evil.example", None, 403),
        ("127.0.0.1.evil.example", None, 403),
        ("[::1].evil.example", None, 403),
        (own, "http://evil.example", 403),
        (own, "http://localhost.evil.example", 403),
        (own, "http://127.0.0.1.evil.example", 403),
        (own, "http://[::1].evil.example", 403),
        (own, "null", 403),
        (own, "http://localhost:3000", 200),
        (own, "http://[::1]:3000", 200),
        (own, f"http://{own}", 200),
        ("evil.example", "http://evil.example", 403),
    ):
        head = f"GET /health HTTP/1.1\nHost: {host}\n" + (f"Origin: {origin}\n" if origin else "")
        tally.check(f"Host {host}, Origin {origin}", raw_status(s, head) == want, raw_status(s, head))


def test_framing(s):
    """Requests whose end or target is in doubt."""
    text = json.dumps(chat("a", max_tokens=1)).encode()
    post, length = "POST /v1/chat/completions HTTP/1.1\nHost: localhost\n", f"Content-Length: {len(text)}\n"
    for label, head, want in (
        ("whole", post + length, 200),
        ("two lengths", post + length + length, 400),
        ("a packed body", post + length + "Content-Encoding: gzip\n", 415),
        ("a length and an encoding", post + length + "Transfer-Encoding: chunked\n", 400),
        ("no Host", "GET /health HTTP/1.1\n", 400),
        ("NUL in the path", "GET /health%00x HTTP/1.1\nHost: localhost\n", 404),
        ("a terabyte", post + "Content-Length: 1099511627776\n", 413),
        ("too much, announced", post + "Content-Length: 20000000\nExpect: 100-continue\n", 413),
    ):
        got = raw_status(s, head, text if "200" in str(want) else b"")
        tally.check(label, got == want, got)


# ---- beginning and end


def test_end():
    model = GOLDEN / "llama-4bit" / "model"
    s = Server(model)
    tally.check("SIGINT: 0", s.end(signal.SIGINT) == 0, s.status)
    tally.check("nothing on stdout", s.out == "", s.out)
    with Server(model, "--backend", "ref", "--threads", 1, "--drain", 2 * DEADLINE) as s:
        got = []
        reader = threading.Thread(target=lambda: got.append(s.ask(CHAT, chat("Hello", max_tokens=400, logit_bias={str(EOS): -1000}))))
        reader.start()
        until(lambda: s.metric("requests_running") == 1)
        tally.check("SIGTERM: 0", s.end(signal.SIGTERM) == 0, s.status)
        reader.join()
        ok = got and got[0][0] == 200 and got[0][1]["usage"]["completion_tokens"] == 400
        tally.check("a running answer is let end", ok, got)
    with Server(model, "--drain", 10 * DEADLINE) as s:
        half = socket.create_connection(("127.0.0.1", s.port))
        half.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n\r\n{")
        s.ask("/health")  # a later connection was served, so the server has read the first one
        tally.check("half a request is not waited for", s.end(signal.SIGTERM) == 0, s.status)
        half.close()
    with Server(model) as s:
        done = tern("serve", model, "--port", s.port)
        tally.check("port in use", done.status == 1 and len(done.err.strip().splitlines()) == 1 and str(s.port) in done.err, done.err)
    done = tern("serve", model, "--host", "256.1.1.1")
    tally.check("no such host", done.status == 1 and "256.1.1.1" in done.error_line, done.err)
    done = tern("serve", model, "--port", 0, "--top-k", 99999)
    tally.check("a top_k that no request could have", done.status == 2 and "--top-k: 99999" in done.error_line, done.err)
    done = tern("serve", model, "--port", 0, "--alias", "")
    tally.check("an empty alias", done.status == 2 and "--alias" in done.err, done.err)
    done = tern("serve", model, "--port", 0, "--alias", os.fsdecode(b"a\xff"), timeout=20)
    tally.check("an alias that is no text", done.status == 2 and "--alias" in done.err, done.err)
    with tempfile.TemporaryDirectory() as folder:
        odd = os.path.join(os.fsencode(folder), b"mod\xffel")
        shutil.copytree(os.fsencode(model), odd)
        with Server(os.fsdecode(odd)) as s:
            ids = [m["id"] for m in s.ask("/v1/models")[1]["data"]]
            got = s.ask(CHAT, chat("Hello", max_tokens=2, model="mod?el"))
            tally.check("a directory that is no text", ids == ["mod?el"] and got[0] == 200 and got[1]["model"] == "mod?el", f"{ids} {got}")
            tally.check("other dialects too", s.ask("/api/tags")[1]["models"][0]["name"] == "mod?el:latest" and s.ask("/v1/responses", {"input": "Hello"})[0] == 200)
    with Server(f"{model}/.") as s:
        tally.check("a directory's own name", s.name == "model", s.name)
    done = tern("serve", model, "--port", "70000")
    tally.check("no such port", done.status == 2, done.err)


def test_full_log():
    """A log that nobody reads holds up no request."""
    with Server(GOLDEN / "llama-4bit" / "model", "-v") as s:
        paths = [f"/nothing/{i}/" + "x" * 90 for i in range(1000)]  # more than a pipe of 64 KiB takes
        got = {s.ask(p)[0] for p in paths}
        tally.check("answers beside a full log", got == {404}, got)
        tally.check("ends beside a full log", s.end() == 0, s.status)
        tally.check("lost lines", 100 < len(s.err.splitlines()) < 1000, len(s.err.splitlines()))


def test_death():
    """The weights vanish beneath the worker: its requests fail, and the process ends with the error."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "m"
        shutil.copytree(GOLDEN / "llama-4bit" / "model", model)
        with Server(model, "--no-prepare") as s:
            with open(model / "model.safetensors", "r+b") as f:
                f.truncate(4096)
            try:
                status = s.ask(CHAT, chat("Hello"))[0]
            except OSError:
                status = 500
            tally.check("a request when the worker dies", status >= 500, status)
            s.process.wait(DEADLINE)
            s.end()
            tally.check("the process ends", s.status == 1 and "model.safetensors" in s.err, f"{s.status} {s.err}")


def main():
    test_same_as_run()
    with Server(GOLDEN / "llama-4bit" / "model", "--alias", "alias") as s:
        for test in (test_streams, test_stops, test_small_routes, test_prefixes, test_slow_reader, test_late_reader, test_mixed, test_idle, test_pages, test_framing, test_memory):
            test(s)
        tally.check("ends well", s.end() == 0, s.status)
    with Server(GOLDEN / "llama-4bit" / "model", "--backend", "ref", "--threads", 1, "--ctx", 100000, "--decode-concurrency", 1, "--queue", 2) as s:
        test_disconnect(s)
        test_overload(s)
    test_long_prompt()
    test_speculation()
    test_sliding_prefixes()
    test_prompt_cache_dir()
    test_end()
    test_full_log()
    test_death()
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
