#!/usr/bin/env python3
"""Writes src/text/tok_unicode_data.c: what the `tokenizers` library believes about Unicode, asked of the library itself.

Its parts use four different versions of the Unicode database, so no single database can stand in for them. Run with a
Python that has tokenizers 0.23.3:  make_unicode_tables.py > src/text/tok_unicode_data.c
"""
import sys

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn".split()


def ranges(points):
    out = []
    for c in sorted(points):
        if out and (out[-1][1] == c - 1 or (out[-1][1] == 0xD7FF and c == 0xE000)):
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def pieces(pre_tokenizer, text):
    return [p for p, _ in pre_tokenizer.pre_tokenize_str(text)]


def isolated(pre_tokenizer):
    return ranges(c for c in POINTS if len(pieces(pre_tokenizer, "a" + chr(c) + "a")) == 3)


def vanishing(normalizer):
    return ranges(c for c in POINTS if normalizer.normalize_str(chr(c)) == "")


def bert(**on):
    flags = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return normalizers.BertNormalizer(**{**flags, **on})


def composing():
    """Characters that a normalisation form may change, move or join to the one before; all others stand alone."""
    nfd, nfc, nfkd = normalizers.NFD(), normalizers.NFC(), normalizers.NFKD()
    out = set()
    for c in POINTS:
        s = chr(c)
        d = nfd.normalize_str(s)
        if d != s:
            out.add(c)
            if nfc.normalize_str(s) == s:
                out.add(ord(d[-1]))
        elif nfkd.normalize_str(s) != s:
            out.add(c)
        elif nfd.normalize_str(s + "\u0334") != s + "\u0334" or nfd.normalize_str("\u0345" + s) != "\u0345" + s:
            out.add(c)  # a combining class other than 0: it changes places with a neighbour of another class
    return ranges(out)


def lowercase():
    """[low, high, step, shift] rows; U+0130 is the one character that becomes two and is left to the code."""
    lower = normalizers.Lowercase()
    rows = []
    for c in POINTS:
        s = lower.normalize_str(chr(c))
        if s == chr(c) or len(s) != 1:
            continue
        shift = ord(s) - c
        if rows and rows[-1][3] == shift:
            low, high, step, _ = rows[-1]
            if c - high == step or (low == high and c - high <= 2):
                rows[-1] = [low, c, c - high, shift]
                continue
        rows.append([c, c, 1, shift])
    return rows


def scripts():
    """[low, high, script] rows for the characters whose script is not "any". Numbers are names only."""
    p = pre_tokenizers.UnicodeScripts()
    rows, samples = [], []
    for c in POINTS:
        s = chr(c)
        alone = pieces(p, "a" + s) == ["a" + s] and pieces(p, "\u4eac" + s) == ["\u4eac" + s]
        if alone:
            continue
        if rows and rows[-1][1] == c - 1 and len(pieces(p, samples[rows[-1][2]] + s)) == 1:
            rows[-1][1] = c
            continue
        for script, sample in enumerate(samples):
            if len(pieces(p, sample + s)) == 1:
                break
        else:
            script = len(samples)
            samples.append(s)
        rows.append([c, c, script])
    return rows


def categories():
    text = "".join(map(chr, POINTS))
    rows = []
    for number, name in enumerate(CATEGORIES):
        split = pre_tokenizers.Split(Regex(r"\p{%s}+" % name), "removed", True)
        for _, (a, b) in split.pre_tokenize_str(text):
            while a < b:  # the surrogates are not in the text
                end = min(b, 0xD800) if a < 0xD800 else b
                rows.append([POINTS[a], POINTS[end - 1], number])
                a = end
    rows.sort()
    return [r for r in rows if CATEGORIES[r[2]] != "Cn"]


def matched(pattern):
    text = "".join(map(chr, POINTS))
    split = pre_tokenizers.Split(Regex(pattern), "removed", True)
    return ranges(POINTS[i] for _, (a, b) in split.pre_tokenize_str(text) for i in range(a, b))


def emit(kind, name, rows, comment):
    print(f"\n/* {comment} */\nconst {kind} {name}[] = {{")
    line = "   "
    for row in rows:
        item = " {" + ", ".join(("0x%x" % v if i < 2 else "%d" % v) for i, v in enumerate(row)) + "},"
        if len(line) + len(item) > 120:
            print(line)
            line = "   "
        line += item
    print(line + f"\n}};\nconst size_t {name}_count = sizeof {name} / sizeof *{name};")


def main():
    if tokenizers.__version__ != "0.23.3":
        sys.exit("needs tokenizers 0.23.3, found " + tokenizers.__version__)
    print("/* tok_unicode_data.c - written by tests/text/make_unicode_tables.py from tokenizers 0.23.3; do not edit.\n"
          " * Unicode character data: Copyright 1991-2024 Unicode, Inc., https://www.unicode.org/license.txt */\n"
          '#include "text/tok_unicode.h"\n\n/* clang-format off */')
    whitespace = pre_tokenizers.Whitespace()
    word = ranges(c for c in POINTS if len(pieces(whitespace, "a" + chr(c) + "a")) == 1)
    emit("unicode_range", "unicode_word", word, "\\w of the regex crate: Whitespace, single_word")
    emit("unicode_range", "unicode_numeric", isolated(pre_tokenizers.Digits(True)), "numeric: Digits")
    emit("unicode_range", "unicode_punctuation", isolated(pre_tokenizers.Punctuation()), "Punctuation and Bert")
    emit("unicode_range", "unicode_accent", vanishing(normalizers.StripAccents()), "marks that StripAccents drops")
    emit("unicode_range", "unicode_nonspacing", vanishing(bert(strip_accents=True)), "what Bert drops after NFD")
    emit("unicode_range", "unicode_control", vanishing(bert(clean_text=True)), "what Bert drops as control")
    emit("unicode_range", "unicode_composing", composing(), "what takes part in normalisation forms")
    emit("unicode_lower", "unicode_lowercase", lowercase(), "low, high, step, shift")
    emit("unicode_class", "unicode_scripts", scripts(), "script numbers of UnicodeScripts")
    emit("unicode_range", "unicode_regex_word", matched(r"\w+"), "\\w of the regular expressions")
    emit("unicode_range", "unicode_class_word", matched(r"[\w]+"), "[\\w], which is not quite the same")
    emit("unicode_range", "unicode_han", matched(r"\p{Han}+"), "\\p{Han} of the regular expressions")
    emit("unicode_class", "unicode_categories", categories(), "general categories of the regular expressions, Cn left out")


main()
