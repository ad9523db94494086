"""Calls that are told of while they are written: in every format, wherever the text is cut, the pieces of a call are the
JSON of the call that is read from the whole text, and what is told of a text's beginning is decided as it is without
pieces. Usage: test_call_pieces.py LIBRARY.
"""

import json
import random
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(Path(__file__).resolve().parent)]

from tally import Tally  # noqa: E402
from test_calls import BEYOND, CORPUS, FIXED, REFUSED, Probe, glm, longcat, minimax, qwen  # noqa: E402

tally = Tally()
NAMES = ["get_weather", "ping", "write_file"]
KEYS = ["city", "path", "content", "a key", "ü", "text", "x1", "y-z"]
WORDS = ["Paris", "", "a, b", "it's", 'say "no"', "{[(", ")]}", "é🏔", "\\n is no end", "two\nlines", "\t", "</tool", "<parameter=", "1", "true", "[ARGS]", "call:f{", "# no comment", "x" * 40]


def value(dice, depth=0, words=WORDS):
    kinds = ["text", "text", "whole", "real", "truth", "null"] + (["list", "object"] if depth < 2 else [])
    kind = dice.choice(kinds)
    if kind == "list":
        return [value(dice, depth + 1, words) for _ in range(dice.randrange(3))]
    if kind == "object":
        return {k: value(dice, depth + 1, words) for k in dice.sample(KEYS, dice.randrange(3))}
    return {"text": dice.choice(words), "whole": dice.randrange(-(10**12), 10**12), "real": dice.uniform(-9, 9) * 10 ** dice.randrange(-8, 20), "truth": dice.random() < 0.5, "null": None}[kind]


def dumped(arguments, dice):
    """JSON as it may be written: with and without spaces, lines and escapes."""
    return json.dumps(arguments, ensure_ascii=dice.random() < 0.3, indent=dice.choice([None, None, 2]), separators=dice.choice([(",", ":"), (", ", ": "), (" , ", " : ")]))


def arguments_of(dice, plain):
    keys = dice.sample(["city", "path", "content"] if plain else KEYS, dice.randrange(4) if not plain else dice.randrange(1, 4))
    return {k: dice.choice(["Paris", "two\nlines", "a, b", "{x}", "7"]) if plain else value(dice) for k in keys}


def objects(dice, calls, keys=("name", "arguments")):
    return [f'{{"{keys[0]}": "{n}", "{keys[1]}": {dumped(a, dice)}}}' for n, a in calls]


def listed(dice, calls, **words):
    return "[" + ",\n ".join(objects(dice, calls, **words)) + "]"


def one_by_one(start, end):
    return lambda dice, calls: "\n".join(f"{start}\n{one}\n{end}" for one in objects(dice, calls))


def tagged(write, start, end):
    return lambda dice, calls: start + "".join(write(n, *((k, v if isinstance(v, str) else json.dumps(v)) for k, v in a.items())) for n, a in calls) + end


def each(write, start, end):
    return lambda dice, calls: "\n".join(start + write(n, *a.items()) + end for n, a in calls)


def mistral(dice, calls):
    return "".join(f"[TOOL_CALLS]{n}{dice.choice(['', '[CALL_ID]abc'])}[ARGS]{dumped(a, dice)}" for n, a in calls)


def kimi(dice, calls):
    body = "".join(f"<|tool_call_begin|>functions.{n}:{i}<|tool_call_argument_begin|>{dumped(a, dice)}<|tool_call_end|>" for i, (n, a) in enumerate(calls))
    return f"<|tool_calls_section_begin|>{body}<|tool_calls_section_end|>"


def deepseek(dice, calls):
    one = dice.choice(["{n}<｜tool▁sep｜>{a}", "function<｜tool▁sep｜>{n}\n```json\n{a}\n```"])
    body = "\n".join("<｜tool▁call▁begin｜>" + one.format(n=n, a=dumped(a, dice)) + "<｜tool▁call▁end｜>" for n, a in calls)
    return f"<｜tool▁calls▁begin｜>{body}<｜tool▁calls▁end｜>"


def harmony(dice, calls):
    return "<|start|>assistant".join(f"<|channel|>commentary to=functions.{n} <|constrain|>json<|message|>{dumped(a, dice)}<|call|>" for n, a in calls)


def dsml(function, *pairs):
    body = "".join(f'<｜DSML｜parameter name="{k}" string="true">{v}</｜DSML｜parameter>\n' for k, v in pairs)
    return f'<｜DSML｜invoke name="{function}">\n{body}</｜DSML｜invoke>\n'


def minicpm(function, *pairs):
    body = "".join(f'<param name="{k}">{"<![CDATA[" + v + "]]>" if "x" in v else v}</param>' for k, v in pairs)
    return f'<function name="{function}">{body}</function>\n'


def pythonic(dice, calls):
    keyed = [", ".join(f"{k}={v!r}" for k, v in a.items() if re.fullmatch("[a-z0-9]+", k)) for _, a in calls]
    return "<|tool_call_start|>[" + ", ".join(f"{n}({a})" for (n, _), a in zip(calls, keyed)) + "]<|tool_call_end|>"


def words(v, quote):
    if isinstance(v, dict):
        return "{" + ",".join(f"{k}:{words(x, quote)}" for k, x in v.items()) + "}"
    if isinstance(v, list):
        return "[" + ",".join(words(x, quote) for x in v) + "]"
    return quote + v + quote if isinstance(v, str) else json.dumps(v)


def gemma(start, end, quote):
    return lambda dice, calls: start + "".join(f"call:{n}{words(a, quote)}" for n, a in calls) + end


# format: how calls are written, and whether arguments are texts alone
WRITERS = {
    "json_tools": (one_by_one("<tool_call>", "</tool_call>"), False),
    "hermes": (lambda dice, calls: f"<tool_call>{listed(dice, calls)}</tool_call>", False),
    "cohere": (lambda dice, calls: "<|START_ACTION|>" + listed(dice, calls, keys=("tool_name", "parameters")) + "<|END_ACTION|>", False),
    "nemotron": (lambda dice, calls: f"<TOOLCALL>{listed(dice, calls)}</TOOLCALL>", False),
    "granite": (lambda dice, calls: f"<|tool_call|>{listed(dice, calls)}", False),
    "llama3_json": (lambda dice, calls: dice.choice(["", "<|python_tag|>"]) + "; ".join(objects(dice, calls, keys=("name", "parameters"))), False),
    "mistral": (mistral, False),
    "kimi_k2": (kimi, False),
    "deepseek_v31": (deepseek, False),
    "harmony": (harmony, False),
    "qwen3_coder": (tagged(qwen, "<tool_call>", "</tool_call>"), True),
    "seed_oss": (tagged(qwen, "<seed:tool_call>", "</seed:tool_call>"), True),
    "minimax_m2": (tagged(minimax, "<minimax:tool_call>", "</minimax:tool_call>"), True),
    "deepseek_v32": (tagged(dsml, "<｜DSML｜function_calls>", "</｜DSML｜function_calls>"), True),
    "minicpm5": (tagged(minicpm, "", ""), True),
    "glm47": (each(glm, "<tool_call>", "</tool_call>"), True),
    "longcat": (each(longcat, "<longcat_tool_call>", "</longcat_tool_call>"), True),
    "pythonic": (pythonic, False),
    "gemma4": (gemma("<|tool_call>", "<tool_call|>", '<|"|>'), False),
    "function_gemma": (gemma("<start_function_call>", "<end_function_call>", "<escape>"), False),
}
NO_TEXTS = {"gemma4", "function_gemma"}  # no word of WORDS that is letter and sign of the notation at once


def gathered(parts):
    """([(name, arguments' text, id) of whole calls], [the same of lost ones], content) of a stream's parts; None: they are in no order."""
    calls, lost, content, open_call = [], [], "", None
    for p in parts:
        if open_call and p["kind"] not in ("text", "end", "lost"):
            return None
        if p["kind"] == "begin":
            open_call = [p["name"], "", p["id"]]
        elif p["kind"] in ("text", "end", "lost") and not open_call:
            return None
        elif p["kind"] == "text":
            open_call[1] += p["text"]
        elif p["kind"] in ("end", "lost"):
            (calls if p["kind"] == "end" else lost).append(tuple(open_call))
            open_call = None
        elif p["kind"] == "content":
            content += p["text"]
        else:
            return None
    return None if open_call else (calls, lost, content)


def plain(parts):
    """The same of an answer without pieces."""
    return [(p["name"], p["arguments"], p["id"]) for p in parts if p["kind"] == "call"], "".join(p["text"] for p in parts if p["kind"] == "content")


def parsed(calls):
    return [(name, json.loads(text), id) for name, text, id in calls]


def is_json(text):
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def compare(label, probe, format, pieces, **fields):
    """A stream's parts against the whole's. Returns what the stream came to."""
    whole = plain(probe.parts(format, ["".join(pieces)], **fields))
    parts = probe.parts(format, pieces, stream=True, **fields)
    got = gathered(parts)
    good = got and parsed(got[0]) == parsed(whole[0]) and got[2] == whole[1]
    good = good and all(not is_json(text) for _, text, _ in got[1])
    tally.check(label, good, f"{format} {pieces!r} {fields}: {parts} not {whole}")
    return got if good else None


def every_cut(label, probe, format, text, **fields):
    first = compare(label, probe, format, [text], **fields)
    if first is None:
        return None
    for pieces in [[text[:i], text[i:]] for i in range(1, len(text))] + [list(text)]:
        if compare(label, probe, format, pieces, **fields) != first:
            tally.check(label, False, f"{format} {pieces!r}: another stream than the whole's, {first}")
            return None
    return first


def test_corpus(probe):
    """What parity.calls compares with the reference."""
    texts = [(f, t) for f, all in CORPUS.items() for t in all] + [*FIXED, *BEYOND] + [(f, t) for f, all in REFUSED.items() for t in all]
    ends = {"mistral": "", "gemma4": "<tool_call|>", "function_gemma": "<end_function_call>", "pythonic": "<|tool_call_end|>", "kimi_k2": "<|tool_calls_section_end|>"}
    for format, text in texts:
        start = probe.start_of(format)
        every_cut("corpus", probe, format, "See. " + start + text + ends.get(format, start.replace("<", "</", 1)))


def test_random(probe):
    dice = random.Random(20)
    for format, (write, texts) in WRITERS.items():
        done = 0
        for _ in range(30):
            calls = [(dice.choice(NAMES), arguments_of(dice, texts)) for _ in range(dice.choice([1, 1, 2, 3]))]
            if format in NO_TEXTS:
                calls = [(n, {k: v for k, v in a.items() if re.fullmatch("[a-z0-9]+", k)}) for n, a in calls]
            text = write(dice, calls)
            read = plain(probe.parts(format, [text]))[0]
            done += len(read) == len(calls)
            first = compare("random", probe, format, [text])
            for pieces in (list(text), *([text[:i], text[i:]] for i in dice.sample(range(len(text)), min(12, len(text))))):
                if first is None or compare("random", probe, format, pieces) != first:
                    tally.check("random", False, f"{format} {pieces!r}: not as whole")
                    break
            for i in sorted(dice.sample(range(len(text)), min(15, len(text)))):
                for cut in (False, True):
                    a, b = compare("prefix", probe, format, [text[:i]], cut=cut), compare("prefix", probe, format, list(text[:i]), cut=cut)
                    if not tally.check("prefix", a == b, f"{format} {text[:i]!r}: {a} not {b}"):
                        break
        tally.check("random", done > 24, f"{format}: only {done} of 30 texts were read")


def test_broken(probe):
    """Letters that go missing or are others: the same decision, and never a lost call that looks whole."""
    dice = random.Random(21)
    for format, (write, texts) in WRITERS.items():
        for _ in range(60):
            text = write(dice, [(dice.choice(NAMES), arguments_of(dice, texts)) for _ in range(dice.choice([1, 2]))])
            for _ in range(dice.randrange(1, 3)):
                at = dice.randrange(len(text))
                text = text[:at] + dice.choice(["", '"', "}", "{", "<", ",", "\\", "x", text[max(0, at - 9) : at + 9]]) + text[at + 1 :]
            a, b = compare("broken", probe, format, [text]), compare("broken", probe, format, list(text))
            if not tally.check("broken", a == b, f"{format} {text!r}: {a} not {b}"):
                break


def told(probe, format, text):
    """What of the open call was told after so much of its text."""
    got = compare("told", probe, format, [text], cut=True)
    return got[1][-1] if got and got[1] else None


def test_incremental(probe):
    """Names come first, and arguments as they do."""
    long = "word " * 20
    for format, (write, _) in WRITERS.items():
        text = write(random.Random(2), [("write_file", {"path": "/tmp/x", "content": long + "END"}), ("ping", {})][: 1 if format in ("glm47", "longcat") else 2])
        middle, early = text.index(long) + 50, text.index("/tmp/x")
        first = told(probe, format, text[:early])
        tally.check("incremental", first and first[0] == "write_file" and "tmp" not in first[1], f"{format}: {first} of {text[:early]!r}")
        if probe.lib.probe_format_letters(format.encode()):
            then = told(probe, format, text[:middle])
            good = then and then[1].endswith(long[:50]) and "/tmp/x" in then[1]
        else:
            then = told(probe, format, text[: text.index(long)])
            good = then and then[1] == '{"path": "/tmp/x"'
        tally.check("incremental", good, f"{format}: {then} of {text[:middle]!r}")


def test_unknown(probe):
    """A tool that is not the request's is told of once it is whole."""
    for format, (write, _) in WRITERS.items():
        text = write(random.Random(3), [("nobody", {"city": "x", "path": "y"})])
        half = probe.parts(format, [text[: text.rindex("y")]], stream=True, cut=True)
        tally.check("unknown", all(p["kind"] == "content" for p in half), f"{format}: {half}")
        every_cut("unknown", probe, format, text)


def test_calls_before_a_broken_one(probe):
    """What was whole stays; the rest of the block is content."""
    cases = {
        "hermes": ('<tool_call>[{"name": "ping", "arguments": {}}, {"name": "get_weather", "arguments": {"a": oh}}]</tool_call>', ', {"name": "get_weather", "arguments": {"a": oh}}]</tool_call>'),
        "minimax_m2": ('<minimax:tool_call><invoke name="ping"></invoke>\n<invoke name="ping"><parameter oh</invoke></minimax:tool_call>', '\n<invoke name="ping"><parameter oh</invoke></minimax:tool_call>'),
        "pythonic": ("<|tool_call_start|>[ping(), ping(1)]<|tool_call_end|>", ", ping(1)]<|tool_call_end|>"),
        "kimi_k2": (kimi(random.Random(1), [("ping", {}), ("ping", {})]).replace(":1<", ":1<").replace("{}<|tool_call_end|><|tool_calls", "{<|tool_call_end|><|tool_calls"), None),
    }
    for format, (text, rest) in cases.items():
        got = every_cut("before", probe, format, text)
        good = got and [c[0] for c in got[0]] == ["ping"] and len(got[1]) == 1 and (rest is None or got[2] == rest)
        tally.check("before", good, f"{format}: {got}")


def test_table(probe):
    """docs/server.md says of every format how its arguments come."""
    rows = {}
    for line in (ROOT / "docs" / "server.md").read_text().splitlines():
        cells = [c.strip() for c in re.split(r"(?<!\\)\|", line)]
        if len(cells) == 6 and cells[3] in ("letters", "members"):
            rows |= {name: cells[3] for name in re.findall(r"`(\w+)`", cells[1])}
    i, names = 0, set()
    while name := probe.lib.probe_format_at(i):
        names.add(name.decode())
        i += 1
    tally.check("table", names == {*rows}, f"{names ^ {*rows}}")
    tally.check("table", {*WRITERS} == names, f"not tested: {names ^ {*WRITERS}}")
    for name, word in rows.items():
        letters = probe.lib.probe_format_letters(name.encode()) == 1
        tally.check("table", (word == "letters") == letters, f"{name}: {word}")


def main():
    probe = Probe(sys.argv[1])
    for test in (test_table, test_corpus, test_random, test_broken, test_incremental, test_unknown, test_calls_before_a_broken_one):
        test(probe)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
