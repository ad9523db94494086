"""Compares rendered prompts with stored texts of the reference: the committed cases (template_cases.jsonl, written by
test_templates.py --record), and the shared data with real templates, conversations and tokenizer configurations.

  test_template_data.py DRIVER [-v] [--bench]

Shared data: TERN_SHARED_DATA, else ../shared/data beside the source tree; skipped and named where it is absent.
"""
import json
import os
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import template_client  # noqa: E402
from tally import Tally  # noqa: E402

SHARED = Path(os.environ.get("TERN_SHARED_DATA") or HERE.parents[2] / "shared" / "data")
DATA = SHARED / "text"
NOW = template_client.NOW


def lines(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def request(case, conversations):
    conversation = conversations[case["conversation"]]
    return {"messages": conversation["messages"], "tools": conversation.get("tools"),
            "add_generation_prompt": case["add_generation_prompt"], "kwargs": case["kwargs"], "now": NOW}


def bare(case, conversations):
    conversation = conversations[case["conversation"]]
    return {"messages": conversation["messages"], "tools": conversation.get("tools"), "documents": None,
            "add_generation_prompt": case["add_generation_prompt"], **case["kwargs"]}


def own_cases():
    for case in lines(HERE / "template_cases.jsonl"):
        yield case["case"], {"source": case["source"], "vars": case["vars"], "now": NOW}, case


def shared_cases():
    conversations = json.loads((DATA / "conversations.json").read_text(encoding="utf-8"))
    templates = {}
    for case in lines(DATA / "render.jsonl"):
        name = case["template"]
        if name not in templates:
            templates[name] = (DATA / "templates" / name).read_bytes().decode("utf-8")
        yield case["case"], {"source": templates[name], "request": request(case, conversations)}, case
        if "plain" in case:
            plain = {"source": templates[name], "vars": bare(case, conversations), "now": NOW}
            yield case["case"] + " (bare)", plain, case["plain"]
    for case in lines(DATA / "snippets.jsonl"):
        sent = {"messages": [{"role": "user", "content": "x"}], "tools": None, "add_generation_prompt": True,
                "kwargs": case["kwargs"], "now": NOW}
        yield case["case"], {"source": case["source"], "request": sent}, case
    for case in lines(DATA / "render_model.jsonl"):
        directory = SHARED / "tokenizers" / case["model"]
        yield case["case"], {"model": str(directory), "request": request(case, conversations)}, case


def fault(answer, case):
    """None if the answer is right, else what is wrong."""
    error = case.get("error")
    if error is None and not case.get("left_out"):
        if answer.get("text") == case["expected"]:
            return None
        return f"want {case['expected']!r}\n  got  {answer.get('text', answer.get('error'))!r}"[:3000]
    if case.get("left_out"):
        return None if template_client.LEFT_OUT.search(answer.get("error", "")) else f"left out, but gives {answer}"
    if "text" in answer:
        if error["kind"] == "security" and answer["text"] == case.get("mutable"):
            return None
        return f"want an error ({error['message']})\n  got  {answer['text']!r}"[:3000]
    if error["kind"] == "raise" and re.sub("[\x00-\x1f]", " ", error["message"][:200]) not in answer["error"]:
        return f"the message {error['message']!r} is not in {answer['error']!r}"
    return None


def main():
    driver, tally = sys.argv[1], Tally()
    cases = list(own_cases())
    if DATA.is_dir():
        cases += shared_cases()
    else:
        tally.skip("real templates", f"no shared data at {SHARED}")
    answers = template_client.run(driver, [case[1] for case in cases], 20 if "--bench" in sys.argv else 1)
    for (name, _, case), answer in zip(cases, answers):
        what = fault(answer, case)
        tally.check(name, what is None, what)
    if "--bench" in sys.argv:
        times = sorted((a["microseconds"], c[0]) for a, c in zip(answers, cases) if "request" in c[1] and "text" in a)
        if times:
            print("render: median %.0f us, slowest %.0f us (%s)"
                  % (times[len(times) // 2][0], times[-1][0], times[-1][1]))
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
