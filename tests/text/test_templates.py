"""Renders small templates with jinja2, set up as transformers does, and with tern, and compares text or failure.

  test_templates.py DRIVER [--seed N] [--count N] [--record]

The templates are those of template_snippets.py and, drawn from a seed, random expressions and programs over the same
variables. --record writes template_cases.jsonl from the fixed ones. The reference runs in TERN_ORACLE_PYTHON, or the
build's own (TERN_BUILD/oracle/bin/python); exit 77 where there is none.
"""
import argparse
import copy
import json
import os
import random
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import template_client  # noqa: E402
import template_snippets  # noqa: E402
from tally import Tally  # noqa: E402

# The reference renders what tern leaves out, so only tern's refusal is checked.
LEFT_OUT = template_client.LEFT_OUT
# Python prints addresses and random choices; nothing to compare.
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def use_oracle():
    """Starts over under the reference's interpreter."""
    try:
        import jinja2  # noqa: F401
        import transformers  # noqa: F401
        return True
    except ImportError:
        pass
    own = os.path.join(os.environ.get("TERN_BUILD", ""), "oracle/bin/python")
    for python in (os.environ.get("TERN_ORACLE_PYTHON"), own):
        if python and os.access(python, os.X_OK) and os.environ.get("TERN_TEMPLATE_TEST") != python:
            os.environ["TERN_TEMPLATE_TEST"] = python
            os.execv(python, [python, *sys.argv])
    return False


class Reference:
    def __init__(self):
        import datetime
        from transformers.utils import chat_template_utils

        class Clock(datetime.datetime):
            @classmethod
            def now(cls, tz=None):
                return cls(2026, 1, 15, 12, 0, 0)

        chat_template_utils.datetime = Clock
        self.compile = chat_template_utils._cached_compile_jinja_template

    def render(self, source, variables):
        import jinja2
        import jinja2.exceptions
        try:
            text = self.compile(source).render(**copy.deepcopy(variables))
            text.encode("utf-8")  # lone surrogates are no text
            return {"expected": text, "error": None}
        except RecursionError:
            return {"expected": None, "error": {"kind": "other", "message": "RecursionError"}}
        except jinja2.exceptions.SecurityError as e:
            kind = "security"
            error = e
        except jinja2.exceptions.TemplateSyntaxError as e:
            kind, error = "syntax", e
        except jinja2.exceptions.UndefinedError as e:
            kind, error = "undefined", e
        except jinja2.exceptions.TemplateError as e:
            kind, error = ("raise" if type(e) is jinja2.exceptions.TemplateError else "other"), e
        except (MemoryError, OverflowError) as e:
            kind, error = "other", e
        except Exception as e:  # whatever Python raises is a failure of the template
            kind, error = "type" if isinstance(e, TypeError) else "other", e
        return {"expected": None, "error": {"kind": kind, "message": str(error)[:300]}}


# ---- random templates ----

class Maker:
    """Expressions that mostly work: typed, over the variables of the snippets."""

    STRINGS = ["s", "u", "empty", "ws", "long", "html", "crlf", "'x'", "'a,b,c'", "messages[0].role", "d|tojson", "' pad '", "'é😀'"]
    INTS = ["n", "neg", "0", "1", "2", "3", "-1", "l|length", "s|length", "d.a", "10"]
    LISTS = ["l", "mixed", "el", "nested[0]", "[1, 'a', none]", "range(4)|list", "s.split(',')", "d|list", "'abc'|list", "rows|map(attribute='name')|list"]
    DICTS = ["d", "ed", "{'k': 1, 'j': [2]}", "rows[0]", "schema", "messages[0]"]

    def __init__(self, seed):
        self.r = random.Random(seed)

    def pick(self, *makers):
        return self.r.choice(makers)()

    def string(self, depth):
        if depth <= 0:
            return self.r.choice(self.STRINGS)
        s, i, t = self.string, self.integer, self.string
        return self.pick(
            lambda: "(%s + %s)" % (s(depth - 1), t(depth - 1)), lambda: "(%s ~ %s)" % (self.any(depth - 1), t(depth - 1)),
            lambda: "(%s)[%s:%s]" % (s(depth - 1), i(0), i(0)), lambda: "(%s)[::%s]" % (s(depth - 1), self.r.choice(["-1", "2", "-2", "3"])),
            lambda: "(%s)|%s" % (s(depth - 1), self.r.choice(["upper", "lower", "title", "capitalize", "trim", "reverse", "indent(2)", "replace('a', 'bb')", "e|string",
                                                            "truncate(9)", "center(20)", "default('q', true)", "tojson", "string", "urlencode"])),
            lambda: "(%s).%s" % (s(depth - 1), self.r.choice(["upper()", "lower()", "title()", "capitalize()", "swapcase()", "strip()", "lstrip('\\n ')", "rstrip('xyz')", "strip('aeiou')",
                                                            "replace('o', '0')", "replace('l', '', 1)", "zfill(8)", "ljust(12, '.')", "rjust(12)", "center(11, '*')", "removeprefix('He')", "removesuffix('ld')", "expandtabs(4)"])),
            lambda: "(%s)|join(%s)" % (self.list(depth - 1), s(0)), lambda: "(%s if %s else %s)" % (s(depth - 1), self.boolean(depth - 1), t(depth - 1)),
            lambda: "'%%s:%%s' %% (%s, %s)" % (self.any(depth - 1), self.any(depth - 1)), lambda: "'{}-{!r}'.format(%s, %s)" % (self.any(depth - 1), self.any(depth - 1)),
            lambda: "'{:>{}}'.format(%s, %s)" % (s(0), self.r.randint(1, 9)), lambda: "(%s)|tojson(indent=%d)" % (self.any(depth - 1), self.r.randint(0, 4)),
            lambda: "(%s * %d)" % (s(0), self.r.randint(0, 3)), lambda: "(%s)|string" % self.any(depth - 1), lambda: "(%s)|first" % s(depth - 1))

    def integer(self, depth):
        if depth <= 0:
            return self.r.choice(self.INTS)
        i = self.integer
        return self.pick(
            lambda: "(%s %s %s)" % (i(depth - 1), self.r.choice("+-*"), i(depth - 1)), lambda: "(%s %s %d)" % (i(depth - 1), self.r.choice(["//", "%"]), self.r.choice([2, 3, -3, 7])),
            lambda: "(%s)|length" % self.r.choice([self.string, self.list, self.dict])(depth - 1), lambda: "(%s)|abs" % i(depth - 1), lambda: "-%s" % i(0),
            lambda: "(%s).%s" % (self.string(depth - 1), self.r.choice(["find('o')", "count('l')", "rfind('a', 2)", "count('')"])), lambda: "(%s)|int" % self.any(depth - 1), lambda: "(%s)|wordcount" % self.string(depth - 1),
            lambda: "(%s)|round|int" % self.number(depth - 1), lambda: "[%s, %s]|%s" % (i(depth - 1), i(0), self.r.choice(["max", "min", "sum", "first", "last"])))

    def number(self, depth):
        if depth <= 0:
            return self.r.choice(["f", "0.1", "2.5", "1e3", "-1.25", "n", "1e-7", "3.0"])
        return self.pick(lambda: "(%s %s %s)" % (self.number(depth - 1), self.r.choice(["+", "-", "*", "/"]), self.number(depth - 1)), lambda: "(%s)|float" % self.any(depth - 1), lambda: "(%s)|round(%d)" % (self.number(depth - 1), self.r.randint(0, 3)),
                         lambda: "(%s / %s)" % (self.integer(depth - 1), self.r.choice(["3", "7", "2", "-9"])), lambda: "(%s ** %d)" % (self.number(0), self.r.randint(-2, 3)))

    def list(self, depth):
        if depth <= 0:
            return self.r.choice(self.LISTS)
        l, s = self.list, self.string
        return self.pick(
            lambda: "(%s + %s)" % (l(depth - 1), l(depth - 1)), lambda: "(%s)[%s:]" % (l(depth - 1), self.integer(0)), lambda: "(%s)[::-1]" % l(depth - 1), lambda: "[%s, %s]" % (self.any(depth - 1), self.any(depth - 1)),
            lambda: "(%s).%s" % (s(depth - 1), self.r.choice(["split()", "split('o')", "split(',', 1)", "rsplit(' ', 1)", "splitlines()", "rsplit(none, 1)", "split('l')"])),
            lambda: "(%s)|%s" % (l(depth - 1), self.r.choice(["list", "reverse|list", "unique|list", "map('string')|list", "select|list", "reject('none')|list", "map('string')|map('upper')|list", "map('string')|sort", "batch(2)|list", "slice(2)|list",
                                                            "select('string')|list", "reject('string')|list", "map('length')|list", "map('default', 'z', true)|list", "select('in', 'abc')|list"])),
            lambda: "(%s)|list" % s(depth - 1), lambda: "(%s)|%s" % (self.dict(depth - 1), self.r.choice(["list", "dictsort", "items|list", "dictsort(reverse=true)"])), lambda: "(%s).%s|list" % (self.dict(depth - 1), self.r.choice(["keys()", "values()", "items()"])),
            lambda: "range(%s, %s)|list" % (self.integer(0), self.integer(0)), lambda: "(%s if %s else %s)" % (l(depth - 1), self.boolean(depth - 1), l(0)), lambda: "(%s)|sort" % self.r.choice(["l", "mixed", "d", "s"]),
            lambda: "(%s).partition(%s)" % (s(depth - 1), self.r.choice(["'o'", "' '"])))

    def dict(self, depth):
        if depth <= 0:
            return self.r.choice(self.DICTS)
        return self.pick(lambda: "{%s: %s, 'z': %s}" % (self.string(0), self.any(depth - 1), self.any(depth - 1)), lambda: "dict(a=%s, b=%s)" % (self.any(depth - 1), self.any(depth - 1)), lambda: "dict(%s, q=%s)" % (self.dict(depth - 1), self.any(0)),
                         lambda: "(%s).copy()" % self.dict(depth - 1), lambda: "(%s or %s)" % (self.dict(depth - 1), self.dict(0)))

    def boolean(self, depth):
        if depth <= 0:
            return self.r.choice(["yes", "no", "x is defined", "n > 3", "'a' in mixed", "s"])
        b, a = self.boolean, self.any
        return self.pick(lambda: "(%s %s %s)" % (b(depth - 1), self.r.choice(["and", "or"]), b(depth - 1)), lambda: "(not %s)" % b(depth - 1), lambda: "(%s %s %s)" % (self.integer(depth - 1), self.r.choice(["<", "<=", ">", ">=", "==", "!="]), self.integer(depth - 1)),
                         lambda: "(%s %s %s)" % (self.string(depth - 1), self.r.choice(["<", "==", "!=", ">=", "in", "not in"]), self.string(depth - 1)), lambda: "(%s %s %s)" % (a(depth - 1), self.r.choice(["==", "!="]), a(depth - 1)), lambda: "(%s in %s)" % (a(0), self.list(depth - 1)),
                         lambda: "(%s is %s)" % (a(depth - 1), self.r.choice(["string", "none", "mapping", "sequence", "iterable", "number", "defined", "boolean", "not string", "integer", "true", "lower", "not none", "callable"])),
                         lambda: "(%s).%s" % (self.string(depth - 1), self.r.choice(["isdigit()", "isalpha()", "startswith('H')", "endswith(('d', 'x'))", "isupper()", "islower()", "isspace()", "isalnum()", "istitle()"])), lambda: "(%s < %s)" % (self.list(depth - 1), self.list(0)))

    def any(self, depth):
        kinds = [self.string, self.string, self.integer, self.number, self.list, self.dict, self.boolean, lambda _: "none", lambda _: "x"]
        return self.r.choice(kinds)(depth)

    def tag(self, text):
        return "{%%%s %s %s%%}" % (self.r.choice(["", "", "-", "+"]), text, self.r.choice(["", "", "-", "+"]))

    def gap(self):
        return self.r.choice(["", " ", "\n", "\n  ", "  \n", "text", "\n\n", "a\n"])

    def statements(self, depth, in_loop=False):
        return "".join(self.gap() + self.statement(depth, in_loop) for _ in range(self.r.randint(1, 3))) + self.gap()

    def statement(self, depth, in_loop):
        name = self.r.choice(["v", "w", "s", "n", "x"])
        if depth <= 0 or self.r.random() < 0.3:
            return self.pick(lambda: "{{%s %s %s}}" % (self.r.choice(["", "-"]), self.any(1), self.r.choice(["", "-"])), lambda: self.tag("set %s = %s" % (name, self.any(1))), lambda: "{# c #}",
                             lambda: self.tag(self.r.choice(["break", "continue"])) if in_loop else "{{ v }}", lambda: "{{ loop.%s }}" % self.r.choice(["index", "last", "first", "length", "revindex", "nextitem", "previtem"]) if in_loop else "{{ w }}",
                             lambda: self.tag("set ns.%s = %s" % (self.r.choice("pq"), self.any(1))))
        inner = lambda loop=in_loop: self.statements(depth - 1, loop)
        return self.pick(
            lambda: self.tag("if " + self.boolean(1)) + inner() + (self.tag("elif " + self.boolean(1)) + inner() if self.r.random() < 0.3 else "") + (self.tag("else") + inner() if self.r.random() < 0.5 else "") + self.tag("endif"),
            lambda: self.tag("for %s in %s%s" % (self.r.choice(["i", "v", "w"]), self.list(1), self.r.choice(["", "", " if loop is undefined", " if s"]))) + inner(True) + (self.tag("else") + inner() if self.r.random() < 0.3 else "") + self.tag("endfor"),
            lambda: self.tag("for k, v in (%s).items()" % self.dict(1)) + inner(True) + self.tag("endfor"), lambda: self.tag("set " + name) + inner() + self.tag("endset"), lambda: self.tag("with %s = %s" % (name, self.any(1))) + inner() + self.tag("endwith"),
            lambda: self.tag("filter %s" % self.r.choice(["upper", "trim", "indent(2)", "replace('a', 'b')"])) + inner() + self.tag("endfilter"), lambda: self.tag("macro f(v, w=%s)" % self.any(1)) + inner(False) + self.tag("endmacro") + "{{ f(%s) }}" % self.any(1),
            lambda: self.tag("macro g(v)") + "<{{ caller(v) }}>" + inner(False) + self.tag("endmacro") + self.tag("call(w) g(%s)" % self.any(1)) + inner(False) + self.tag("endcall"), lambda: self.tag("generation") + inner(False) + self.tag("endgeneration"))


def random_sources(seed, count):
    for i in range(count):
        maker = Maker(seed * 1000003 + i)
        if i % 3:
            yield "random#%d.%d" % (seed, i), "{{ %s }}" % maker.any(1 + i % 4)
        else:
            yield "program#%d.%d" % (seed, i), "{% set ns = namespace(p=1, q='') %}" + maker.statements(2 + i % 2) + "{{ v }}|{{ w }}|{{ ns.p }}|{{ ns.q }}"


CHARACTERS = ("{% for c in s %}{{ c.upper() }}|{{ c.lower() }}|{{ c.title() }}|{{ c.swapcase() }}|{{ [c] }}|{{ c.isalpha() }}{{ c.isdigit() }}"
              "{{ c.isdecimal() }}{{ c.isnumeric() }}{{ c.isalnum() }}{{ c.isspace() }}{{ c.isupper() }}{{ c.islower() }}{{ c.istitle() }}"
              "{{ c.isprintable() }}{{ ('a' ~ c ~ 'b').splitlines()|length }}{{ c|wordcount }}\n{% endfor %}{{ s.title() }}{{ s|title }}{{ s.lower() }}")


def character_cases():
    """Every character that the reference's Unicode version knows, in blocks."""
    import unicodedata
    known = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
    known = [c for c in known if not 0x20000 < ord(c) < 0x2fa00 or ord(c) % 64 == 0]  # a sample of the rare ideographs
    known = [c for c in known if not 0x3400 < ord(c) < 0xd7a0 or ord(c) % 16 == 0 or unicodedata.numeric(c, None) is not None]
    for i in range(0, len(known), 400):
        yield "characters U+%04X" % ord(known[i]), "".join(known[i:i + 400])


def plain(value):
    """Whether a text says nothing that Python leaves open."""
    return not ADDRESS.search(value)


def compare(tally, name, source, want, answer):
    if want["error"] is None:
        if not plain(want["expected"]) or (name.startswith("own#") and LEFT_OUT.search(answer.get("error", ""))):
            tally.ok()  # left out, and said so by name
            return
        if "error" in answer and LEFT_OUT.search(answer["error"]):
            tally.skip(name, answer["error"][:100])
            return
        tally.check(name, answer.get("text") == want["expected"],
                    lambda: "%s\n  want %s\n  got  %s" % (ascii(source)[:600], ascii(want["expected"])[:600], ascii(answer.get("text", answer.get("error")))[:600]))
        return
    raised = want["error"]["kind"] == "raise" and re.sub("[\x00-\x1f]", " ", want["error"]["message"][:200]) or ""
    tally.check(name, "error" in answer and raised in answer["error"],
                lambda: "%s\n  want an error: %s\n  got  %s" % (ascii(source)[:600], want["error"]["message"], ascii(answer.get("text", answer.get("error")))[:600]))


def record(reference, driver):
    own = template_snippets.all_snippets()
    answers = template_client.run(driver, [{"source": source, "vars": template_snippets.VARS, "now": template_client.NOW} for _, source in own])
    with open(HERE / "template_cases.jsonl", "w", encoding="ascii") as f:
        for (name, source), answer in zip(own, answers):
            result = reference.render(source, template_snippets.VARS)
            if result["error"] is None and not plain(result["expected"]):
                continue
            used = {k: v for k, v in template_snippets.VARS.items() if re.search(r"\b%s\b" % k, source)}
            again = reference.render(source, used)
            assert again == result, (source, again, result)
            if result["error"] is None and LEFT_OUT.search(answer.get("error", "")):
                result = {"left_out": True}
            f.write(json.dumps({"case": name, "source": source, "vars": used, **result}) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("driver")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=900)
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()
    if not use_oracle():
        print("SKIP all: no Python with jinja2 and transformers (TERN_ORACLE_PYTHON)")
        return 77
    reference, tally = Reference(), Tally()
    if args.record:
        record(reference, args.driver)
    sources = template_snippets.all_snippets() + list(random_sources(args.seed, args.count))
    answers = template_client.run(args.driver, [{"source": source, "vars": template_snippets.VARS, "now": template_client.NOW} for _, source in sources])
    for (name, source), answer in zip(sources, answers):
        compare(tally, name, source, reference.render(source, template_snippets.VARS), answer)
    blocks = list(character_cases())
    answers = template_client.run(args.driver, [{"source": CHARACTERS, "vars": {"s": text}} for _, text in blocks])
    for (name, text), answer in zip(blocks, answers):
        compare(tally, name, CHARACTERS, reference.render(CHARACTERS, {"s": text}), answer)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
