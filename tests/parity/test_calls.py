"""Compares tool calls with the reference's own parsers, live: the same names, arguments and ids.

A made corpus per format of mlx_lm.tool_parsers. Where the reference gives calls, tern must give the same, to the letter
of the arguments' JSON; FIXED lists what it gives otherwise on purpose (docs/server.md), BEYOND what the reference drops
and tern takes. Every text is also cut at every place and fed byte by byte, and must give the same parts. Templates must
choose the format that the reference's own inference chooses, and what they write for a call is read as that call. Usage: test_calls.py LIBRARY, run by the Python that has
mlx_lm.
"""

import ctypes
import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from mlx_lm.tokenizer_utils import _infer_tool_parser  # noqa: E402
from tally import Tally  # noqa: E402
from terncli import BINARY  # noqa: E402

TEMPLATES = Path(os.environ.get("TERN_SHARED_DATA", ROOT.parent / "shared/data")) / "text/templates"


def tool(name, **properties):
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}


TOOLS = [
    tool(
        "get_weather",
        city={"type": "string"},
        days={"type": "integer"},
        share={"type": "number"},
        exact={"type": "boolean"},
        places={"type": "array"},
        options={"type": "object"},
        either={"anyOf": [{"type": "integer"}, {"type": "string"}]},
        level={"enum": ["low", "high"]},
        untyped={"description": "anything"},
        when={"type": ["integer", "null"]},
        kind={"type": "uint8"},
    ),
    tool("ping"),
    tool("write_file", path={"type": "string"}, content={"type": "string"}),
]


def arguments_json(**values):
    return json.dumps(values, ensure_ascii=False)


# Bodies of a JSON call that every format with JSON arguments is tried with.
OBJECTS = [
    "{}",
    '{"city": "Paris"}',
    '{"city":"Zürich 🏔","days":3,"share":0.1,"exact":true,"x":null}',
    '{ "a" : [1, 2.5, -3e2, 1E-7, 1e22, 123456789.125, 1e16, 0.0001, -0.0], "b": {"c": {"d": []}} }',
    '{"text": "a\\"b\\\\c\\n\\t\\u00e9\\ud83d\\ude00/\\/"}',
    '{"s": "</tool"}',
    '{"big": 9223372036854775807, "small": -9223372036854775808}',
    '{"a": 1, "a": 2}',
    '{"c": "\\u0001\\u001f\\u007f"}',
]

XML_VALUES = [
    ("city", "Paris"),
    ("city", "\nLine one\nline two\n"),
    ("city", "null"),
    ("city", ""),
    ("city", "3"),
    ("days", "3"),
    ("days", " 42 "),
    ("days", "-1_000"),
    ("share", "2.5"),
    ("share", "2.0"),
    ("share", "1e3"),
    ("exact", "true"),
    ("exact", "False"),
    ("places", '["a", 1]'),
    ("places", "['a', True, None]"),
    ("options", '{"a": {"b": 1}}'),
    ("options", "{'a': (1, 2)}"),
    ("unknown", "5"),
    ("untyped", "5"),
    ("kind", "7"),
]


def qwen(function, *pairs):
    body = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in pairs)
    return f"\n<function={function}>\n{body}</function>\n"


def minimax(function, *pairs):
    body = "".join(f'<parameter name="{k}">{v}</parameter>\n' for k, v in pairs)
    return f'\n<invoke name="{function}">\n{body}</invoke>\n'


def glm(function, *pairs, prefix=""):
    body = "".join(
        f"<{prefix}arg_key>{k}</{prefix}arg_key>\n<{prefix}arg_value>{v}</{prefix}arg_value>\n" for k, v in pairs
    )
    return f"{function}{body}"


def longcat(function, *pairs):
    return glm(function, *pairs, prefix="longcat_")


GLM_VALUES = [
    *(pair for pair in XML_VALUES if pair[0] in ("city", "days", "share", "places", "options", "unknown")),
    ("days", "0x1f"),
    ("days", "three"),
    ("days", "1, 2"),
    ("places", "('a', 'b')"),
    ("places", "'it''s' \"one\""),
    ("options", "{7: 'a', None: 2, True: 3, 2.5: 4}"),
    ("days", "007"),
    ("days", "# nothing"),
    ("days", "5 # five"),
    ("days", "r'\\d'"),
    ("days", "'\\x41\\u00e9\\101\\q'"),
    ("days", "+5"),
    ("days", "1_000.5"),
    ("days", "'''a\nb'''"),
]

CORPUS = {
    "json_tools": [
        *(f'\n{{"name": "get_weather", "arguments": {o}}}\n' for o in OBJECTS),
        '{"arguments": {"city": "Rome"}, "name": "get_weather"}',
        '[{"name": "ping", "arguments": {}}, {"name": "get_weather", "arguments": {"days": 1}}]',
    ],
    "qwen3_coder": [
        qwen("ping"),
        *(qwen("get_weather", pair) for pair in XML_VALUES),
        qwen("get_weather", ("city", "a"), ("days", "2"), ("exact", "True")),
        qwen("write_file", ("path", "/tmp/a.py"), ("content", "def f():\n    return '<b>'\n\n\nx = {1: 2}\n")),
        qwen("nobody", ("x", "1")),
        "<function=ping></function>",
        "<function=get_weather><parameter=city>a</parameter></function>",
    ],
    "minimax_m2": [
        minimax("ping"),
        *(minimax("get_weather", pair) for pair in XML_VALUES if pair[0] != "kind"),
        minimax("get_weather", ("either", "5")),
        minimax("get_weather", ("either", "five")),
        minimax("get_weather", ("level", "low")),
        minimax("get_weather", ("exact", "yes")),
        minimax("get_weather", ("exact", "maybe")),
        minimax("get_weather", ("days", "nil")),
        minimax("get_weather", ("days", "3.0")),
        minimax("get_weather", ("days", "three")),
        minimax("ping") + minimax("get_weather", ("city", "b")),
        "<invoke name='ping'></invoke>",
        "<invoke name=ping></invoke>",
    ],
    "glm47": [
        *(glm("get_weather", pair) for pair in GLM_VALUES),
        glm("get_weather", ("city", "a"), ("days", "2")),
        glm("write_file", ("path", "/a"), ("content", '{"a": 1}')),
        "get_weather<arg_key>city</arg_key>\\n<arg_value>x</arg_value>",
        '{"name": "get_weather", "arguments": {"city": "x"}}',
        'get_weather\n{"city": "x"}',
        'get_weather {"city": "x"}',
        "ping",
    ],
    "longcat": [
        *(longcat("get_weather", pair) for pair in GLM_VALUES),
        longcat("get_weather\n", ("city", "a"), ("days", "2")),
        '{"name": "get_weather", "arguments": {"city": "x"}}',
    ],
    "kimi_k2": [
        *(f"functions.get_weather:0<|tool_call_argument_begin|>{o}" for o in OBJECTS),
        "get_weather:12<|tool_call_argument_begin|>{'city': 'x', 'exact': True}",
        "".join(
            f"<|tool_call_begin|>functions.{n}:{i}<|tool_call_argument_begin|>{o}<|tool_call_end|>"
            for i, (n, o) in enumerate([("ping", "{}"), ("get_weather", OBJECTS[2])])
        ),
    ],
    "mistral": [
        *(f"get_weather[ARGS]{o}" for o in OBJECTS),
        " get_weather[ARGS] {}",
    ],
    "gemma4": [
        'call:calculator{expression:"2+2"}',
        'call:ping{}',
        'call:get_weather{city:<|"|>Paris, {France}<|"|>,days:3}',
        'call:get_weather{city:<|"|>a "b" \\ c\nd<|"|>,share:0.5,exact:true,x:null}',
        'call:get-weather{places:[<|"|>a<|"|>,<|"|>b<|"|>],options:{a:{b:1},c:[]}}',
        'call:ping{}call:get_weather{days:1}',
    ],
    "function_gemma": [
        "call:ping{}",
        "call:get_weather{city:<escape>Paris<escape>}",
        "call:get_weather{city:<escape>Paris, a:b<escape>,days:3,share:0.5,exact:true}",
        "call:get_weather{city:plain words,days:3}",
        'call:get_weather{city:"quoted"}',
    ],
    "pythonic": [
        "[ping()]",
        '[get_weather(city="Paris")]',
        '[get_weather(city="Paris, France", days=3, share=0.5, exact=True)]',
        "[get_weather(city='Rome', days=-1)]",
        "[get_weather(days=None)]",
    ],
}

# Given otherwise on purpose, with why.
FIXED = {
    ("minimax_m2", minimax("get_weather", ("when", "5"))): [("get_weather", {"when": 5})],  # not null because it may be
    ("glm47", glm("get_weather\n", ("city", "7"))): [("get_weather", {"city": "7"})],  # the name without its line end
    ("pythonic", '[get_weather(city="2")]'): [("get_weather", {"city": "2"})],  # a string stays one
    ("pythonic", "[get_weather(places=[1, 'a'])]"): [("get_weather", {"places": [1, "a"]})],
    ("pythonic", "[ping(), get_weather(days=2)]"): [("ping", {}), ("get_weather", {"days": 2})],
    ("qwen3_coder", qwen("ping") + qwen("get_weather", ("days", "2"))): [("ping", {}), ("get_weather", {"days": 2})],
    ("function_gemma", "call:get_weather{city:<escape>a}b<escape>}"): [("get_weather", {"city": "a}b"})],
    ("function_gemma", "call:get_weather{options:{a:1},days:2}"): [("get_weather", {"options": {"a": 1}, "days": 2})],
    ("mistral", 'get_weather[CALL_ID]abcdefghi[ARGS]{"days": 1}'): [("get_weather", {"days": 1})],
    ("json_tools", '{"name": "get_weather", "arguments": "{\\"days\\": 1}"}'): [("get_weather", {"days": 1})],
}

# Dropped by the reference, taken here.
BEYOND = {
    ("json_tools", "{'name': 'get_weather', 'arguments': {'exact': True}}"): [("get_weather", {"exact": True})],
    ("json_tools", '{"name": "write_file", "arguments": {"content": "a\nb"}}'): [("write_file", {"content": "a\nb"})],
    ("json_tools", '{"name": "ping"}'): [("ping", {})],
    ("json_tools", '{"name": "ping", "parameters": {"a": 1}}'): [("ping", {"a": 1})],
    ("qwen3_coder", qwen("get_weather", ("days", "2026-01-15"))): [("get_weather", {"days": "2026-01-15"})],
    ("qwen3_coder", qwen("get_weather", ("days", "3.0"))): [("get_weather", {"days": 3})],
    ("qwen3_coder", qwen("get_weather", ("when", "soon"))): [("get_weather", {"when": "soon"})],
    ("qwen3_coder", qwen("get_weather", ("places", "a, b"))): [("get_weather", {"places": "a, b"})],
    ("mistral", '[{"name": "ping", "arguments": {}, "id": "abcdefghi"}]'): [("ping", {})],
    ("gemma4", "call:ns.get-weather{city:<|\"|>x<|\"|>, days: 1}"): [("ns.get-weather", {"city": "x", "days": 1})],
}

# No calls: the text must come back whole.
REFUSED = {
    "json_tools": ["", "no", '{"name": "a"', '{"arguments": {}}', '{"name": 1, "arguments": {}}', "[]", '{"name": "a", "arguments": [1]}',
                   '{"name": "a", "arguments": {"x": NaN}}', '{"name": "a", "arguments": ' + '{"a":' * 100 + "1" + "}" * 101],
    "qwen3_coder": ["", "x", "<function=a>", "<function=a><parameter=b></function>", "<function=></function>"],
    "minimax_m2": ["", "<invoke name=\"a\">", "text"],
    "glm47": ["", "some words that are no call", "a<arg_key>b</arg_key>", "a<arg_key>b</arg_key><arg_value>c"],
    "longcat": ["", "a", "a<longcat_arg_key>b"],
    "kimi_k2": ["", "a", "a<|tool_call_argument_begin|>{}", "functions.a:0<|tool_call_argument_begin|>5"],
    "mistral": ["", "a", "a[ARGS]", "a[ARGS]{", "a b[ARGS]{}", 'a[ARGS]{} and more'],
    "gemma4": ["", "call:a", "call:a{b:c}", "call:{}", "call:a{b:1"],
    "function_gemma": ["", "call:a", "call:a{b:1"],
    "pythonic": ["", "[]", "[a(]", "[a(1)]", "a()", "[a(b=1)"],
}


class Probe:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.probe_parts.restype = ctypes.c_void_p
        self.lib.probe_free.argtypes = [ctypes.c_void_p]
        self.lib.probe_format_of.restype = ctypes.c_char_p
        self.lib.probe_format_at.restype = self.lib.probe_format_start.restype = ctypes.c_char_p

    def parts(self, format, pieces, **fields):
        request = json.dumps({"format": format, "pieces": pieces, "tools": TOOLS, **fields}).encode()
        address = self.lib.probe_parts(request)
        text = ctypes.string_at(address).decode()
        self.lib.probe_free(address)
        return json.loads(text)

    def start_of(self, format):
        text = self.lib.probe_format_start(format.encode())
        return text.decode() if text else None

    def format_of(self, template):
        data = template.encode()
        name = self.lib.probe_format_of(data, len(data))
        return name.decode() if name else None


def reference_calls(module, text):
    """What the reference's server would send for the text of a call: [(name, arguments as text, id or None)]."""
    parsed = module.parse_tool_call(text, TOOLS)
    return [
        (c["name"], json.dumps(c["arguments"], ensure_ascii=False), c.get("id"))
        for c in (parsed if isinstance(parsed, list) else [parsed])
    ]


def wrapped(module, text):
    return module.tool_call_start + text + module.tool_call_end


def calls_of(parts):
    return [(p["name"], p["arguments"], p["id"]) for p in parts if p["kind"] == "call"]


def test_cuts(tally, probe, format, whole, want, **fields):
    """The same parts for every cut in two, and for single characters."""
    for pieces in [[whole[:i], whole[i:]] for i in range(len(whole) + 1)] + [list(whole)]:
        got = probe.parts(format, pieces, **fields)
        if not tally.check(f"{format} cut", got == want, f"{pieces!r}: {got} not {want}"):
            return


def test_corpus(tally, probe):
    for format, texts in CORPUS.items():
        module = importlib.import_module(f"mlx_lm.tool_parsers.{format}")
        for text in texts:
            whole = "Let me see.\n" + wrapped(module, text)
            got = probe.parts(format, [whole])
            want = reference_calls(module, text)
            tally.check(format, calls_of(got) == want, f"{text!r}: {got} not {want}")
            tally.check(format, got[0] == {"kind": "content", "text": "Let me see.\n"}, f"{got}")
            test_cuts(tally, probe, format, whole, got)


def test_others(tally, probe):
    for (format, text), want in [*FIXED.items(), *BEYOND.items()]:
        module = importlib.import_module(f"mlx_lm.tool_parsers.{format}")
        got = probe.parts(format, [wrapped(module, text)])
        calls = [(name, json.loads(arguments)) for name, arguments, _ in calls_of(got)]
        tally.check(f"{format} more", calls == want, f"{text!r}: {got} not {want}")
        try:
            theirs = [(n, json.loads(a)) for n, a, _ in reference_calls(module, text)]
        except Exception:
            theirs = None
        if (format, text) in BEYOND:
            tally.check(f"{format} beyond", theirs is None, f"{text!r}: the reference has {theirs}: not beyond it")
        else:
            tally.check(f"{format} fixed", theirs != want, f"{text!r}: the reference has it too")


def test_refused(tally, probe):
    for format, texts in REFUSED.items():
        module = importlib.import_module(f"mlx_lm.tool_parsers.{format}")
        for text in texts:
            whole = "a " + wrapped(module, text) + ("" if format == "mistral" else " b")
            got = probe.parts(format, [whole])
            tally.check(f"{format} refused", got == [{"kind": "content", "text": whole}], f"{whole!r}: {got}")
            test_cuts(tally, probe, format, whole, got)


def test_cut_answers(tally, probe):
    """An answer that max_tokens ended anywhere: whole calls, or all of the text."""
    for format, texts in CORPUS.items():
        module = importlib.import_module(f"mlx_lm.tool_parsers.{format}")
        for text in texts[:6]:
            whole = wrapped(module, text)
            entire = calls_of(probe.parts(format, [whole]))
            for i in range(len(whole)):
                got = probe.parts(format, [whole[:i]], cut=True)
                calls, words = calls_of(got), "".join(p["text"] for p in got if p["kind"] == "content")
                good = calls == entire[: len(calls)] and (calls or words == whole[:i])
                if not tally.check(f"{format} ended", good, f"{whole[:i]!r}: {got}"):
                    break


def test_templates(tally, probe):
    if not TEMPLATES.is_dir():
        tally.skip("templates", "no shared data")
        return
    known = {
        "ByteDance-Seed-OSS": "seed_oss",
        "CohereForAI-c4ai-command-r7b-12-2024-tool_use": "cohere",
        "NVIDIA-Nemotron-Nano-v2": "nemotron",
        "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": "deepseek_v31",
        "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": "deepseek_v31",
        "deepseek-ai-DeepSeek-V3.1": "deepseek_v31",
        "deepseek-ai-DeepSeek-V3.2": "deepseek_v32",
        "ibm-granite-granite-3.3-2B-Instruct": "granite",
        "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": "json_tools",
        "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": "json_tools",
        "openai-gpt-oss-120b": "harmony",
        "openbmb-MiniCPM5-1B": "minicpm5",
        "meta-llama-Llama-3.1-8B-Instruct": "llama3_json",
        "meta-llama-Llama-3.2-3B-Instruct": "llama3_json",
        "meta-llama-Llama-3.3-70B-Instruct": "llama3_json",
    }
    for path in sorted(TEMPLATES.glob("*.jinja")):
        source = path.read_text()
        want = _infer_tool_parser(source) or known.get(path.stem)
        got = probe.format_of(source)
        tally.check(f"template {path.stem}", got == want, f"{got} not {want}")


def rendered(template, messages, generate):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"messages": messages, "tools": TOOLS, "add_generation_prompt": generate, "kwargs": {"bos_token": "", "eos_token": ""}}, file)
        file.flush()
        got = subprocess.run([BINARY, "render", "--template", str(template), "--json", file.name], capture_output=True, text=True)
    return got.stdout if got.returncode == 0 else None


def test_round_trips(tally, probe):
    """What real templates write for an assistant's calls is read as these calls."""
    if not TEMPLATES.is_dir():
        tally.skip("round trips", "no shared data")
        return
    values = {"city": "San José", "days": 3, "exact": True, "places": ["a", {"b": 1}]}
    user = {"role": "user", "content": "Weather?"}
    read = 0
    for path in sorted(TEMPLATES.glob("*.jinja")):
        format = probe.format_of(path.read_text())
        for arguments in (values, json.dumps(values)) if format else ():
            call = {"id": "123456789", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
            turn = {"role": "assistant", "content": "", "tool_calls": [call]}
            before, after = rendered(path, [user], False), rendered(path, [user, turn], False)
            if before is None or after is None or "get_weather" not in after[len(os.path.commonprefix([before, after])) :]:
                continue  # it takes arguments in the other form, or leaves calls out
            text = after[len(os.path.commonprefix([before, after])) :]
            begin = "{" if format == "llama3_json" else probe.start_of(format) or ""
            text = text[text.index(begin) :] if begin in text else text
            got = [(n, json.loads(a)) for n, a, _ in calls_of(probe.parts(format, [text]))]
            if not got:  # what ends the turn is a token that ends the answer
                for end in ("<|eot_id|>", "<|eom_id|>", "</s>", "<|call|>", "<|end_of_text|>", "<turn|>\n", "<|im_end|>\n"):
                    text = text.removesuffix(end)
                got = [(n, json.loads(a)) for n, a, _ in calls_of(probe.parts(format, [text]))]
            if tally.check(f"round trip {path.stem}", got == [("get_weather", values)], f"{format} {text!r}: {got}"):
                read += 1
                break
    tally.check("round trips", read >= 23, f"{read} templates")


def main():
    tally, probe = Tally(), Probe(sys.argv[1])
    for test in (test_corpus, test_others, test_refused, test_cut_answers, test_templates, test_round_trips):
        test(tally, probe)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
