"""The official `openai` package against the server. Runs itself with the clients' Python (scripts/clients.sh makes it)."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from serving import GOLDEN, Server  # noqa: E402
from tally import Tally  # noqa: E402
from terncli import BUILD  # noqa: E402

tally = Tally()
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]


def test_chat(client, name):
    whole = client.chat.completions.create(model=name, messages=MESSAGES, max_tokens=24, logprobs=True, top_logprobs=2, seed=1, temperature=0.7)
    tally.check("chat: text", whole.choices[0].message.content and whole.choices[0].message.role == "assistant")
    tally.check("chat: usage", whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens)
    tally.check("chat: logprobs", len(whole.choices[0].logprobs.content) == whole.usage.completion_tokens)
    text, usage, finish = "", None, None
    stream = client.chat.completions.create(
        model=name, messages=MESSAGES, max_tokens=24, seed=1, temperature=0.7, stream=True, stream_options={"include_usage": True}
    )
    for event in stream:
        usage = event.usage or usage
        for choice in event.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
    tally.check("stream: text", text == whole.choices[0].message.content)
    tally.check("stream: usage", usage.total_tokens == whole.usage.total_tokens, f"{usage} {whole.usage}")
    tally.check("stream: finish", finish == whole.choices[0].finish_reason)
    two = client.chat.completions.create(model=name, messages=MESSAGES, max_completion_tokens=5, n=2, extra_body={"top_k": 5, "min_p": 0.1})
    tally.check("n", [c.index for c in two.choices] == [0, 1])


def test_completions(client, name):
    whole = client.completions.create(model=name, prompt="one two", max_tokens=16, logprobs=2)
    tally.check("completion: text", isinstance(whole.choices[0].text, str) and len(whole.choices[0].logprobs.tokens) == whole.usage.completion_tokens)
    text = "".join(e.choices[0].text for e in client.completions.create(model=name, prompt="one two", max_tokens=16, stream=True))
    tally.check("completion: stream", text == whole.choices[0].text)


def test_errors(client, openai, name):
    calls = {
        "tools": (openai.BadRequestError, {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}),
        "model": (openai.NotFoundError, {"model": "gpt-9"}),
        "response_format": (openai.BadRequestError, {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {}}}}}),
    }
    for param, (kind, fields) in calls.items():
        try:
            client.chat.completions.create(**{"model": name, "messages": MESSAGES, **fields})
            tally.fail(param, "no error")
        except kind as error:
            tally.check(f"{param}: named", error.param == param, error)
    tally.check("models", name in [m.id for m in client.models.list()])
    tally.check("model", client.models.retrieve(name).id == name)


def main():
    try:
        import openai
    except ImportError:
        python = BUILD / "clients" / "bin" / "python"
        if python.exists() and Path(sys.prefix).resolve() != python.parent.parent.resolve():
            os.execv(python, [str(python), *sys.argv])
        tally.skip("openai", "the package is not installed (scripts/clients.sh installs it)")
        return tally.close()
    with Server(GOLDEN / "llama-4bit" / "model") as s:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="none", max_retries=0)
        test_chat(client, s.name)
        test_completions(client, s.name)
        test_errors(client, openai, s.name)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
