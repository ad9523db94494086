"""Conversations of agents, replayed: requests as agents send them, with tools, results, several calls at once, thinking and
stored responses, in every dialect, streamed and not.

transcripts/*.json were written for this purpose. A turn has the request's body, what the model says to it (scripted.py;
the last word of a prompt chooses), and what that is to become. Then every turn's history is rendered with the real
templates of the shared data, by the server and by the reference: the same text, and as many tokens in the answer's usage.
Without the reference, or the data, that part is skipped.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from scripted import make_model  # noqa: E402
from serving import Server  # noqa: E402
from tally import Tally  # noqa: E402
from terncli import BUILD  # noqa: E402
from test_tools import TEMPLATE, gathered  # noqa: E402

tally = Tally()
TEMPLATES = Path(os.environ.get("TERN_SHARED_DATA", HERE.parents[2] / "shared/data")) / "text/templates"
MOST = 300


# ---- dialects: what an answer says as (text, calls, ids of calls, input tokens, whether it calls)


def chat_whole(got):
    m, one = got["choices"][0]["message"], got["choices"][0]
    calls = m.get("tool_calls", [])
    return m["content"] or "", [[c["function"]["name"], json.loads(c["function"]["arguments"])] for c in calls], [c["id"] for c in calls], got["usage"]["prompt_tokens"], one["finish_reason"] == "tool_calls"


def chat_stream(events):
    message, finish = gathered(events)
    choices = [e["choices"][0] for e in events[:-2]]
    order = events[-1] == "[DONE]" and events[-2]["choices"] == [] and choices[0]["delta"].get("role") == "assistant"
    order = order and [c["finish_reason"] is not None for c in choices] == [False] * (len(choices) - 1) + [True]
    tally.check("chat: order of events", order, events)
    return chat_whole({"choices": [{"message": message, "finish_reason": finish}], "usage": events[-2]["usage"]})


def messages_whole(got):
    uses = [b for b in got["content"] if b["type"] == "tool_use"]
    text = "".join(b["text"] for b in got["content"] if b["type"] == "text")
    used = got["usage"]
    return text, [[b["name"], b["input"]] for b in uses], [b["id"] for b in uses], used["input_tokens"] + used["cache_read_input_tokens"], got["stop_reason"] == "tool_use"


def messages_stream(events):
    kinds = [e["type"] for e in events]
    blocks, open_block = [], None
    for e in events:
        if e["type"] == "content_block_start":
            tally.check("messages: one block at a time", open_block is None and e["index"] == len(blocks), e)
            open_block = {**e["content_block"], "json": ""}
            blocks.append(open_block)
        elif e["type"] == "content_block_delta":
            open_block["text" if "text" in e["delta"] else "json"] += e["delta"].get("text", e["delta"].get("partial_json"))
        elif e["type"] == "content_block_stop":
            if open_block["type"] == "tool_use":
                open_block["input"] = json.loads(open_block["json"])
            open_block = None
    tally.check("messages: order of events", kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"] and open_block is None, kinds)
    return messages_whole({"content": blocks, "usage": events[-2]["usage"], "stop_reason": events[-2]["delta"]["stop_reason"]})


def responses_whole(got):
    calls = [i for i in got["output"] if i["type"] == "function_call"]
    text = "".join(i["content"][0]["text"] for i in got["output"] if i["type"] == "message")
    return text, [[c["name"], json.loads(c["arguments"])] for c in calls], [c["call_id"] for c in calls], got["usage"]["input_tokens"], bool(calls)


def responses_stream(events):
    kinds = [e["type"] for e in events]
    good = kinds[:2] == ["response.created", "response.in_progress"] and kinds[-1] == "response.completed"
    tally.check("responses: order of events", good and [e["sequence_number"] for e in events] == [*range(len(events))], kinds)
    added = [e["output_index"] for e in events if e["type"] == "response.output_item.added"]
    done = [e["output_index"] for e in events if e["type"] == "response.output_item.done"]
    tally.check("responses: items", added == done == [*range(len(events[-1]["response"]["output"]))], kinds)
    return responses_whole(events[-1]["response"])


def ollama_whole(got):
    calls = got["message"].get("tool_calls", [])
    return got["message"]["content"], [[c["function"]["name"], c["function"]["arguments"]] for c in calls], [c["id"] for c in calls], got["prompt_eval_count"], bool(calls)


def ollama_stream(lines):
    tally.check("ollama: order of lines", [e["done"] for e in lines] == [False] * (len(lines) - 1) + [True], lines)
    message = {"content": "".join(e["message"]["content"] for e in lines), "tool_calls": sum((e["message"].get("tool_calls", []) for e in lines), [])}
    return ollama_whole({**lines[-1], "message": message})


# path, the field of the answer's length, how whole answers and streams are read
DIALECTS = {
    "chat": ("/v1/chat/completions", lambda n: {"max_tokens": n}, chat_whole, chat_stream),
    "messages": ("/v1/messages", lambda n: {"max_tokens": n}, messages_whole, messages_stream),
    "responses": ("/v1/responses", lambda n: {"max_output_tokens": n}, responses_whole, responses_stream),
    "ollama": ("/api/chat", lambda n: {"options": {"num_predict": n}}, ollama_whole, ollama_stream),
}


def replaced(value, words):
    """The body with what only the run knows: ids of the answer before."""
    text = json.dumps(value)
    for word, for_it in words.items():
        text = text.replace(word, for_it)
    return json.loads(text)


def body_of(transcript, turn, most):
    body = {**turn["body"], **DIALECTS[transcript["dialect"]][1](most)}
    if transcript["dialect"] == "chat":
        body["tools"] = transcript["tools"]
    return body


def streamed(s, dialect, path, body):
    if dialect == "ollama":
        return [json.loads(line) for line in s.ask(path, {**body, "stream": True})[1].splitlines()]
    return s.stream(path, {**body, "stream_options": {"include_usage": True}} if dialect == "chat" else body)


def replay(name, transcript, s):
    dialect = transcript["dialect"]
    path, _, whole, stream = DIALECTS[dialect]
    for streams in (False, True):
        known = {}
        for i, turn in enumerate(transcript["turns"]):
            label = f"{name} {i} {'streamed' if streams else 'whole'}"
            body = replaced(body_of(transcript, turn, MOST), known)
            if streams:
                events = streamed(s, dialect, path, body)
                got, last = stream(events), events[-1]
            else:
                status, last, _ = s.ask(path, {**body, "stream": False})
                if not tally.check(f"{label}: status", status == 200, last):
                    return
                got = whole(last)
            tally.check(f"{label}: said", [got[0], got[1]] == turn["said"] and got[4] == bool(turn["said"][1]), f"{got} not {turn['said']}")
            tally.check(f"{label}: ids", len({*got[2]}) == len(got[2]), got[2])
            turn.setdefault("tokens", got[3])
            tally.check(f"{label}: input", got[3] == turn["tokens"] > 0, f"{got[3]} not {turn['tokens']}")
            known = {f"$call{k}": id for k, id in enumerate(got[2])}
            if dialect == "responses":
                known["$previous"] = last.get("response", last)["id"]


# ---- histories as the reference renders them


def plain(messages):
    """What templates are given: texts, and arguments as objects."""
    out = []
    for m in messages:
        m = json.loads(json.dumps(m))
        m["content"] = m["content"] or "" if not isinstance(m["content"], list) else "".join(p["text"] for p in m["content"])
        for call in m.get("tool_calls", []):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        out.append(m)
    return out


def reference(source, messages, tools, variables):
    """None: the template refuses the conversation."""
    from transformers.utils.chat_template_utils import render_jinja_template

    try:
        texts, _ = render_jinja_template([messages], tools=tools, chat_template=source, add_generation_prompt=True, **variables)
    except Exception:
        return None
    return texts[0]


def histories(transcripts, model):
    try:
        import transformers  # noqa: F401
    except ImportError:
        tally.skip("histories", "the reference is not installed (scripts/oracle.sh installs it)")
        return
    if not TEMPLATES.is_dir():
        tally.skip("histories", "no shared data")
        return
    settings = json.loads((model / "tokenizer_config.json").read_text())
    # The tokenizer has no marks of thinking: enable_thinking is then false, in the reference too.
    specials = {k: settings[k] if isinstance(settings[k], str) else settings[k]["content"] for k in ("bos_token", "eos_token") if settings.get(k)}
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 1 << 15}))  # some templates are long
    rendered = 0
    for path in sorted(TEMPLATES.glob("*.jinja")):
        source = path.read_text()
        if "tools" not in source or "strftime_now" in source:  # without tools, or with a clock
            continue
        with Server(model, "--chat-template", path, "--tool-parser", "hermes") as s:
            for name, transcript in transcripts.items():
                for i, turn in enumerate(transcript["turns"]):
                    if transcript["dialect"] == "chat":
                        messages = turn["body"]["messages"]
                    elif "messages" not in turn:
                        continue
                    else:
                        messages = turn["messages"]
                    want = reference(source, plain(messages), transcript["tools"], {**specials, "enable_thinking": False})
                    status, got, _ = s.ask("/apply-template", {"messages": messages, "tools": transcript["tools"]})
                    label = f"{path.stem} {name} {i}"
                    if want is None:
                        tally.check(f"{label}: refused", status == 400, got)
                        continue
                    if not tally.check(f"{label}: text", status == 200 and got["prompt"] == want, f"{got} not {want!r}"):
                        continue
                    rendered += 1
                    count = s.ask("/tokenize", {"content": want, "add_special": False})[1]["count"]
                    where, _, whole, _ = DIALECTS[transcript["dialect"]]
                    status, answer, _ = s.ask(where, {**body_of(transcript, turn, 1), "stream": False})
                    tally.check(f"{label}: tokens", status == 200 and whole(answer)[3] == count, f"{answer} not {count}")
    tally.check("histories were rendered", rendered > 100, rendered)


def main():
    python = BUILD / "oracle" / "bin" / "python"
    if python.exists() and Path(sys.prefix).resolve() != python.parent.parent.resolve():
        os.execv(python, [str(python), *sys.argv])
    transcripts = {p.stem: json.loads(p.read_text()) for p in sorted((HERE / "transcripts").glob("*.json"))}
    with tempfile.TemporaryDirectory() as folder:
        for name, transcript in transcripts.items():
            words = [w for t in transcript["turns"] for w in json.dumps(t["body"], ensure_ascii=False).replace('"', " ").split() if w.startswith("§")]
            scripts = dict(zip(dict.fromkeys(words), (t["says"] for t in transcript["turns"])))
            model = make_model(Path(folder) / name, TEMPLATE, scripts)
            with Server(model) as s:
                replay(name, transcript, s)
                tally.check(f"{name}: ends well", s.end() == 0, s.status)
        histories(transcripts, Path(folder) / next(iter(transcripts)))
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
