"""Whatever is wrong with a request is told under the name that the field has in the request's own dialect, with the place within it
as the client sees it (standard library only)."""

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from serving import GOLDEN, Server  # noqa: E402
from tally import Tally  # noqa: E402

tally = Tally()
USER = {"role": "user", "content": "Hello"}
SAID = {"role": "assistant", "content": "Hi"}
HUGE, LONG = 1 << 29, "y" * 3000
CALL = {"type": "function_call", "call_id": "c", "name": "f"}
OLD = {"id": "c", "type": "function", "function": {"name": "f"}}
USE = {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "tool_use", "id": "c", "name": "f", "input": {}}]}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}, {"type": "text", "text": "a"}]}

# Path, what every body there has, and wrong fields with what the message begins with.
DIALECTS = {
    "/v1/chat/completions": ({"messages": [USER]}, [
        ({"messages": [USER, {"role": "user", "content": 3}]}, "messages[1]: content: "),
        ({"messages": [USER, 3]}, "messages[1]: "),
        ({"messages": [USER, SAID, {"role": "assistant", "content": "", "tool_calls": [{**OLD, "function": {"name": "f", "arguments": "x"}}]}]}, "messages[2]: arguments of a tool call: "),
        ({"messages": [{"role": "user", "content": LONG}]}, "messages: a prompt of "),
        ({"max_tokens": 5000}, "max_tokens: 5000: "),
        ({"max_completion_tokens": 5000}, "max_completion_tokens: 5000: "),
        ({"temperature": 1, "top_k": HUGE}, "top_k: "),
        ({"stop": [""]}, "stop: "),
        ({"top_logprobs": 3}, "top_logprobs: "),
        ({"reasoning_effort": "high"}, "reasoning_effort: "),
    ]),
    "/v1/completions": ({"prompt": "Hello"}, [
        ({"prompt": LONG}, "prompt: "),
        ({"prompt": [USER]}, "prompt: "),
        ({"max_tokens": 5000}, "max_tokens: 5000: "),
    ]),
    "/v1/responses": ({"input": "Hello"}, [
        ({"input": LONG}, "input: a prompt of "),
        ({"input": [USER, SAID, {"role": "user", "content": 3}]}, "input[2]: "),
        ({"input": [USER, SAID, 3]}, "input[2]: "),
        ({"input": [USER, {**CALL, "arguments": "{}"}, {**CALL, "call_id": "d", "arguments": "x"}]}, "input[2]: arguments: "),
        ({"input": [USER, {"type": "reasoning", "summary": 3, "encrypted_content": "x"}], "instructions": "Be brief."}, "input[1]: "),
        ({"max_output_tokens": 5000}, "max_output_tokens: 5000: "),
        ({"temperature": 1, "top_k": HUGE}, "top_k: "),
        ({"reasoning": {"effort": "high"}}, "reasoning: effort: "),
        ({"reasoning": {"effort": ""}}, "reasoning"),
        ({"tools": [{"type": "function", "parameters": {}}]}, "tools: element 0: "),
    ]),
    "/v1/messages": ({"messages": [USER], "max_tokens": 5}, [
        ({"messages": [USER, {"role": "assistant", "content": 3}], "system": "Be brief."}, "messages[1]: content: "),
        ({"messages": [USER, USE, RESULT, SAID, {"role": "user", "content": [{"type": "text", "text": "a", "more": 1}]}], "system": "Be brief."}, "messages[4]: content: "),
        ({"messages": [USER, USE, RESULT, {"role": "robot", "content": "a"}]}, "messages[3]: role: "),
        ({"system": [{"type": "text", "text": "a", "more": 1}]}, "system: content: "),
        ({"messages": [{"role": "user", "content": LONG}]}, "messages: a prompt of "),
        ({"max_tokens": 5000}, "max_tokens: 5000: "),
        ({"stop_sequences": [""]}, "stop_sequences: "),
        ({"temperature": 1, "top_k": HUGE}, "top_k: "),
    ]),
    "/v1/messages/count_tokens": ({"messages": [USER], "max_tokens": 5}, [
        ({"messages": [USER, {"role": "assistant", "content": 3}], "system": "Be brief."}, "messages[1]: content: "),
    ]),
    "/api/chat": ({"messages": [USER], "stream": False}, [
        ({"messages": [USER, {"role": "user", "content": 3}]}, "messages[1]: content: "),
        ({"messages": [USER, {"role": "user", "content": "a", "images": ["x"]}]}, "messages[1]: images: "),
        ({"messages": [{"role": "user", "content": LONG}]}, "messages: a prompt of "),
        ({"options": {"num_predict": 5000}}, "options.num_predict: 5000: "),
        ({"options": {"temperature": 1, "top_k": HUGE}}, "options.top_k: "),
        ({"options": {"temperature": -1}}, "options.temperature: "),
        ({"options": {"stop": [""]}}, "options.stop: "),
        ({"options": {"stop": [3]}}, "options.stop: "),
        ({"think": "high"}, "think: "),
    ]),
    "/api/generate": ({"prompt": "Hello", "stream": False}, [
        ({"prompt": LONG}, "prompt: a prompt of "),
        ({"prompt": LONG, "system": "Be brief."}, "prompt: a prompt of "),
        ({"prompt": LONG, "raw": True}, "prompt: a prompt of "),
        ({"options": {"num_predict": 5000}}, "options.num_predict: 5000: "),
        ({"options": {"temperature": 1, "top_k": HUGE}, "raw": True}, "options.top_k: "),
    ]),
    "/v1/embeddings": ({"input": "Hello"}, [({"input": [LONG]}, "input: "), ({"input": [[-1]]}, "input: ")]),
    "/api/embed": ({"input": "Hello"}, [({"input": [LONG]}, "input: "), ({"input": 3}, "input: ")]),
    "/api/embeddings": ({"prompt": "Hello"}, [({"prompt": LONG}, "prompt: ")]),
    "/apply-template": ({"messages": [USER]}, [({"messages": [USER, {"role": "user", "content": 3}]}, "messages[1]: content: ")]),
}


def message_of(answer):
    error = answer.get("error")
    return error["message"] if isinstance(error, dict) else error


def tells_param(path, got, field):
    """Whether error.param is the field where the dialect has such a key, OpenAI's, and absent elsewhere."""
    error = got.get("error")
    if path.startswith(("/v1/messages", "/api/")):
        return not isinstance(error, dict) or "param" not in error
    return error["param"] == field


def test_names(s):
    for path, (body, wrong) in DIALECTS.items():
        status, got, _ = s.ask(path, body)
        tally.check(f"{path}: well", status == 200, f"{status} {got}")
        for fields, begins in wrong:
            status, got, _ = s.ask(path, {**body, **fields})
            message = message_of(got) or ""
            tally.check(f"{path}: {begins}", status == 400 and message.startswith(begins), f"{status} {got}")
            tally.check(f"{path}: {begins}: its param", tells_param(path, got, re.match(r"\w+", begins)[0]), got)


def test_later_input(s):
    """Items of a stored response do not count: the client did not send them."""
    first = s.ask("/v1/responses", {"input": [USER, SAID, USER], "max_output_tokens": 2, "logit_bias": {"0": -1000}})[1]
    status, got, _ = s.ask("/v1/responses", {"input": [USER, 3], "previous_response_id": first.get("id", "")})
    tally.check("input behind a stored one", status == 400 and message_of(got).startswith("input[1]: "), f"{status} {got} {first}")
    status, got, _ = s.ask("/v1/responses", {"input": [USER, {"role": "robot", "content": ""}], "previous_response_id": first.get("id", "")})
    tally.check("a role behind a stored one", status == 400 and message_of(got).startswith("input[1]: "), f"{status} {got}")


def test_no_template():
    """A template that fails, and none at all."""
    asks = {"/v1/responses": {"input": "Hello"}, "/v1/chat/completions": {"messages": [USER]}, "/v1/messages": {"messages": [USER], "max_tokens": 4}, "/api/generate": {"prompt": "Hello", "stream": False}}
    with Server(GOLDEN / "llama-4bit" / "model", "--chat-template", "{{ raise_exception('not so') }}") as s:
        for path, body in asks.items():
            status, got, _ = s.ask(path, body)
            ok = status == 400 and "not so" in message_of(got) and tells_param(path, got, next(iter(body)))
            tally.check(f"{path}: a template that raises", ok, f"{status} {got}")


def main():
    with Server(GOLDEN / "llama-4bit" / "model") as s:
        test_names(s)
        test_later_input(s)
        tally.check("ends well", s.end() == 0, s.status)
    test_no_template()
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
