"""Texts for the tokenizer's tests: a small corpus, awkward samples, and seeded random strings of many scripts."""

CORPUS = [
    "The quick brown fox jumps over the lazy dog. The dog doesn't mind; it's 12:30, and they'll sleep until 1999!",
    "Der Stra\u00dfenbahnf\u00fchrer a\u00df K\u00e4se. \u00c7a va? El ni\u00f1o comi\u00f3 pi\u00f1a. \u0130stanbul na\u00efve fa\u00e7ade co\u00f6perate re-use e-mail",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u039a\u03b1\u03bb\u03b7\u03bc\u03ad\u03c1\u03b1 \u03ba\u03cc\u03c3\u03bc\u03b5. \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "\u4f60\u597d\u4e16\u754c\u3002\u3053\u3093\u306b\u3061\u306f\u3001\u30ab\u30bf\u30ab\u30ca\u3068\u6f22\u5b57\u3002\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4",
    "def f(x):\n    return x + 1\n\n\tif (a == b) { c[0] = \"s\"; } // 3.14e-10 0xFF",
    "aaaa aaa aa a bbbb abab abba hello hello hello world world it is it is the the the thing things thinking",
]
TEXTS = ["", " ", "a", "hello world", "  leading and trailing  ", "the\nthing\n\n", "a--b---c", "\u00a0x\u3000y\u2028z",
         "Hello, world! It's 12:30.", "[MASK] <mask> x<mask>y <mask>", "  <sp>  </sp>  ", "Stra\u00dfe \u0130stanbul \u212b \ufb01 e\u0301\u0323",
         "\u4f60\u597d\u4e16\u754c hello \u30ab\u30bf\u30ab\u30ca", "x\u0000y\ufffdz\u200b\u200d", "aXbX", "word word2 3word", "abc123def456", "\u2581a\u2581 b",
         "1234567890 \u0663\u0664\u0665 \u216b \u00bd", "the the the", "\U0001F468\u200d\U0001F469\u200d\U0001F467 \U0001F1E9\U0001F1EA", "don't can't won't 'tis", "x" * 120]
BLOCKS = [(0x20, 0x7E), (0x20, 0x7E), (0xA0, 0x17F), (0x250, 0x36F), (0x370, 0x3FF), (0x400, 0x52F), (0x590, 0x6FF),
          (0x900, 0x9FF), (0xE00, 0xEFF), (0x1100, 0x11FF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x20A0, 0x214F),
          (0x2190, 0x21FF), (0x2460, 0x24FF), (0x2581, 0x2581), (0x3000, 0x30FF), (0x3300, 0x33FF), (0x4E00, 0x9FFF),
          (0xAC00, 0xD7A3), (0xE000, 0xE010), (0xFB00, 0xFB06), (0xFE00, 0xFEFF), (0xFF00, 0xFFEF), (0x10400, 0x1044F),
          (0x1D400, 0x1D7FF), (0x1F300, 0x1FAFF), (0x20000, 0x20100), (0x30000, 0x3134A), (0xE0020, 0xE007F),
          (0, 0x10FFFF)]
SNIPPETS = [" ", "  ", "    ", "\n", "\n\n", "\r\n", "\t", " \n ", "'s", "'S", "'\u017f", "'ll", "'LL", "'re", "n't", "don't", "I'm", "123",
            "1234567", "\u0663\u0664", "e\u0301", "\u0301\u0316", "\u200d", "\U0001F468\u200d\U0001F469\u200d\U0001F467", "\U0001F1E9\U0001F1EA",
            "hello", "Hello World", "HTTPServer", "the", "function(x) { return x; }", "<s>", "</s>", "<|im_start|>", "<|endoftext|>",
            "<0x41>", "<unk>", "\u2581", "\u2581\u2581the", "\x00", "\x7f", "\ufeff", "\ufffd", "...", "!!!", "://", "\u4f60\u597d", "\u3053\u3093", "\uac00\uac01",
            "\u0130stanbul", "\u00df", "\ufb01", "\u212b", "\u1100\u1161\u11a8", "a" * 30, "=" * 25, "\u00a0", "\u3000", "\u2028"]


def random_text(rng, most=40):
    out = []
    for _ in range(rng.randrange(most)):
        kind = rng.random()
        if kind < 0.35:
            out.append(rng.choice(SNIPPETS))
        elif kind < 0.75:
            low, high = rng.choice(BLOCKS)
            run = 1 if rng.random() < 0.4 else rng.randrange(1, 7)
            for _ in range(run):
                c = rng.randint(low, high)
                out.append("" if 0xD800 <= c < 0xE000 else chr(c))
        else:
            out.append(" " if rng.random() < 0.7 else "")
            out.append("".join(rng.choice("etaoinshrdlucmfwypETAOIN") for _ in range(rng.randrange(1, 9))))
    return "".join(out)
