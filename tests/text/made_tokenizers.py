"""Tokenizers made up for the differential test: every model, normaliser, pre-tokenizer, post-processor and decoder on
its own, then seeded mixtures of all of them. Imported by test_tokenizer.py."""
import copy
import json
import pathlib
import random
import tempfile

import tokenizers
from tokenizers import models, pre_tokenizers, trainers
from tok_client import Driver, Refused
from tok_texts import CORPUS, TEXTS

def train(model, trainer, pre=None):
    t = tokenizers.Tokenizer(model)
    if pre is not None:
        t.pre_tokenizer = pre
    t.train_from_iterator(CORPUS * 3, trainer)
    return json.loads(t.to_str())["model"]


def base_models():
    quiet = dict(show_progress=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    out = {}
    out["bytes"] = train(models.BPE(), trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, **quiet),
                         pre_tokenizers.ByteLevel(add_prefix_space=False))
    out["chars"] = train(models.BPE(unk_token="<unk>"), trainers.BpeTrainer(vocab_size=400, limit_alphabet=80, special_tokens=["<unk>"], **quiet),
                         pre_tokenizers.Metaspace())
    out["chars_fused"] = dict(copy.deepcopy(out["chars"]), fuse_unk=True)
    out["chars_no_unk"] = dict(copy.deepcopy(out["chars"]), unk_token=None)
    out["chars_ignore"] = dict(copy.deepcopy(out["chars"]), ignore_merges=True)
    fallback = copy.deepcopy(out["chars_fused"])
    for b in range(256):
        fallback["vocab"]["<0x%02X>" % b] = len(fallback["vocab"])
    fallback["byte_fallback"] = True
    out["fallback"] = fallback
    holes = copy.deepcopy(fallback)
    last = len(holes["vocab"])
    holes["vocab"] = {k: v for k, v in holes["vocab"].items() if k not in ("<0xE4>", "<0xF0>", "<0x00>")}
    holes["vocab"]["odd"] = last + 20
    out["fallback_holes"] = holes
    out["prefix"] = train(models.BPE(unk_token="<unk>", continuing_subword_prefix="##"),
                          trainers.BpeTrainer(vocab_size=400, continuing_subword_prefix="##", special_tokens=["<unk>"], **quiet),
                          pre_tokenizers.Whitespace())
    out["suffix"] = train(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"),
                          trainers.BpeTrainer(vocab_size=400, end_of_word_suffix="</w>", special_tokens=["<unk>"], **quiet),
                          pre_tokenizers.Whitespace())
    out["wordpiece"] = train(models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer(vocab_size=400, special_tokens=["[UNK]"], **quiet),
                             pre_tokenizers.BertPreTokenizer())
    out["wordpiece_short"] = dict(copy.deepcopy(out["wordpiece"]), max_input_chars_per_word=5)
    out["wordlevel"] = train(models.WordLevel(unk_token="<unk>"), trainers.WordLevelTrainer(special_tokens=["<unk>"], **quiet), pre_tokenizers.Whitespace())
    out["unigram"] = train(models.Unigram(), trainers.UnigramTrainer(vocab_size=300, unk_token="<unk>", special_tokens=["<unk>"], **quiet), pre_tokenizers.Metaspace())
    bytes_too = copy.deepcopy(out["unigram"])
    bytes_too["vocab"] += [["<0x%02X>" % b, -20.0 - b / 7] for b in range(256)]
    bytes_too["byte_fallback"] = True
    out["unigram_bytes"] = bytes_too
    twins = copy.deepcopy(out["unigram"])
    twins["vocab"] += [["the", -1.5], ["the", -9.25], ["\u2581the", -3.1234567890123456789]]
    out["unigram_twins"] = twins
    return out


def regex(pattern):
    return {"Regex": pattern}


def string(text):
    return {"String": text}


def charsmap():
    """A hand-made precompiled map: a Darts double array with a few keys."""
    import base64
    import struct
    rules = {"\u00c4": "AE", "\ufb01": "fi", "\u2460": "1", "\u3000": " ", "e\u0301": "\u00e9", "\u00ad": "", "\u212b": "\u00c5", "A": "a", "B\u0301": "b"}
    blob, offsets = b"", {}
    for key, value in rules.items():
        offsets[key.encode()] = len(blob)
        blob += value.encode() + b"\0"
    units, used, bases = {0: 0}, {0}, set()

    def place(node, keys, depth):
        groups = {}
        for k in keys:
            groups.setdefault(k[depth] if depth < len(k) else 0, []).append(k)
        offset = 1
        while offset in bases or any((node ^ offset ^ label) in used for label in groups):
            offset += 1
        bases.add(offset)
        units[node] |= offset << 10
        for label in groups:
            used.add(node ^ offset ^ label)
            units[node ^ offset ^ label] = label
        if 0 in groups:
            units[node] |= 1 << 8
            units[node ^ offset] = offsets[groups[0][0]] | 1 << 31
        for label, inner in groups.items():
            if label:
                place(node ^ offset ^ label, inner, depth + 1)

    place(0, list(offsets), 0)
    size = (max(units) | 255) + 1
    trie = b"".join(struct.pack("<I", units.get(i, 0)) for i in range(size))
    return base64.b64encode(struct.pack("<I", len(trie)) + trie + blob).decode()


NORMALIZERS = [
    {"type": "NFC"}, {"type": "NFD"}, {"type": "NFKC"}, {"type": "NFKD"}, {"type": "Lowercase"}, {"type": "StripAccents"}, {"type": "Nmt"},
    {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "Strip", "strip_left": True, "strip_right": False},
    {"type": "Strip", "strip_left": False, "strip_right": True},
    {"type": "Prepend", "prepend": "\u2581"}, {"type": "Prepend", "prepend": "xy"},
    {"type": "Replace", "pattern": string(" "), "content": "\u2581"}, {"type": "Replace", "pattern": string("a"), "content": "--"},
    {"type": "Replace", "pattern": regex("\\s+"), "content": " "}, {"type": "Replace", "pattern": regex("x+|\\W"), "content": "y"},
    {"type": "Replace", "pattern": regex("[aeiou]{2,}"), "content": ""}, {"type": "Replace", "pattern": string("``"), "content": "\""},
    {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
    {"type": "BertNormalizer", "clean_text": False, "handle_chinese_chars": True, "strip_accents": True, "lowercase": False},
    {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": False, "strip_accents": False, "lowercase": True},
    {"type": "Precompiled", "precompiled_charsmap": charsmap()}, {"type": "ByteLevel"},
]
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
GPT4 = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
PRE_TOKENIZERS = [
    {"type": "ByteLevel", "add_prefix_space": a, "trim_offsets": True, "use_regex": u} for a in (True, False) for u in (True, False)
] + [
    {"type": "Split", "pattern": p, "behavior": b, "invert": i} for p in (string("-"), string(" "), regex("\\d+|[,.]"), regex("b*")) for b in BEHAVIORS for i in (False, True)
] + [
    {"type": "Split", "pattern": regex(GPT4), "behavior": "Isolated", "invert": False},
    {"type": "Split", "pattern": regex("\\p{Han}|\\p{Mn}+|[^\\p{Lu}]{1,4}"), "behavior": "Isolated", "invert": False},
    {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
    {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True},
    {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False},
    {"type": "Metaspace", "replacement": "_", "prepend_scheme": "never", "split": True},
    {"type": "Metaspace", "replacement": "\u2581", "add_prefix_space": True},
    {"type": "Metaspace", "replacement": "\u2581", "add_prefix_space": False, "prepend_scheme": "never", "str_rep": "\u2581"},
    {"type": "Digits", "individual_digits": True}, {"type": "Digits", "individual_digits": False},
    {"type": "Punctuation"}, *[{"type": "Punctuation", "behavior": b} for b in BEHAVIORS],
    {"type": "Whitespace"}, {"type": "WhitespaceSplit"}, {"type": "BertPreTokenizer"}, {"type": "CharDelimiterSplit", "delimiter": "X"},
    {"type": "UnicodeScripts"}, {"type": "FixedLength", "length": 3}, {"type": "FixedLength", "length": 5},
]
DECODERS = [
    {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Replace", "pattern": string("\u2581"), "content": " "}, {"type": "Replace", "pattern": regex("[aeiou]+"), "content": "V"},
    {"type": "Replace", "pattern": string("th"), "content": "TH!"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0}, {"type": "Strip", "content": "e", "start": 2, "stop": 1}, {"type": "Strip", "content": "\u2581", "start": 0, "stop": 2},
    {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
    {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "never", "split": True}, {"type": "WordPiece", "prefix": "##", "cleanup": True},
    {"type": "WordPiece", "prefix": "##", "cleanup": False}, {"type": "BPEDecoder", "suffix": "</w>"}, {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True},
    {"type": "CTC", "pad_token": "a", "word_delimiter_token": "e", "cleanup": False}, {"type": "CTC", "pad_token": "th", "word_delimiter_token": "e", "cleanup": True},
]


def sequence(kind, steps):
    return {"type": "Sequence", {"n": "normalizers", "p": "pretokenizers", "d": "decoders", "q": "processors"}[kind]: steps}


def token(content, **flags):
    return dict({"id": 0, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}, **flags)


ADDED = [
    token("<mask>", special=True, lstrip=True), token("[MASK]", special=True), token("<sp>", rstrip=True), token("</sp>", lstrip=True, rstrip=True, special=True),
    token("word", single_word=True), token("Hello", normalized=True), token("world!", normalized=True, single_word=True), token("\u00e9t\u00e9", normalized=True, special=True),
    token("\u4f60\u597d"), token("  "), token("\n\n"), token("hello wor"), token("it's", normalized=True, lstrip=True), token("STRASSE", normalized=True),
    token("<|a|>", special=True), token("<|a|b|>"), token("thing", single_word=True, rstrip=True), token("the", special=True), token("\U0001F468"),
]
TEMPLATE = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [3, 4], "tokens": ["[CLS]", "x"]}, "[SEP]": {"id": "[SEP]", "ids": [5], "tokens": ["[SEP]"]}}}
BYTE_LEVEL_POST = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
POST = [TEMPLATE, {"type": "BertProcessing", "sep": ["[SEP]", 7], "cls": ["[CLS]", 8]}, BYTE_LEVEL_POST,
        {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1], "trim_offsets": True, "add_prefix_space": False}, sequence("q", [BYTE_LEVEL_POST, TEMPLATE])]


def make(model, normalizer=None, pre=None, decoder=None, post=None, added=()):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [dict(a, id=90000 + i) for i, a in enumerate(added)], "normalizer": normalizer,
            "pre_tokenizer": pre, "post_processor": post, "decoder": decoder, "model": model}


def singles(base):
    small = {"bytes": base["bytes"], "chars": base["chars_fused"]}
    level = PRE_TOKENIZERS[2]
    for name, model in base.items():
        yield "model " + name, make(model, pre=level if name == "bytes" else None)
        yield "model " + name + " in words", make(model, normalizer={"type": "NFKC"}, pre={"type": "BertPreTokenizer"} if name != "bytes" else PRE_TOKENIZERS[0])
        yield "model " + name + " in metaspace", make(model, pre={"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True})
    for i, n in enumerate(NORMALIZERS):
        yield "normalizer %d %s" % (i, n["type"]), make(small["bytes"], normalizer=n, pre=level)
        yield "normalizer %d %s, first" % (i, n["type"]), make(base["fallback"], normalizer=n, pre={"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True}, added=ADDED)
    for i, p in enumerate(PRE_TOKENIZERS):
        pre = p if p["type"] == "ByteLevel" else sequence("p", [p, level])
        yield "pre_tokenizer %d %s" % (i, p["type"]), make(small["bytes"], pre=pre)
        yield "pre_tokenizer %d %s, characters" % (i, p["type"]), make(base["fallback"], pre=p)
    for i, d in enumerate(DECODERS):
        for name in ("bytes", "fallback", "suffix", "wordpiece"):
            yield "decoder %d %s, %s" % (i, d["type"], name), make(base[name], decoder=d, pre=level if name == "bytes" else None)
    for i, p in enumerate(POST):
        yield "post_processor %d %s" % (i, p["type"]), make(small["bytes"], pre=level, post=p)
    for i, a in enumerate(ADDED):
        yield "added token %d" % i, make(small["bytes"], pre=level, added=[a], normalizer={"type": "Lowercase"})
        yield "added token %d, not normalized" % i, make(base["wordpiece"], pre={"type": "BertPreTokenizer"}, added=[a])
    yield "all added tokens", make(small["bytes"], pre=level, added=ADDED)
    yield "all added tokens, normalized", make(small["bytes"], pre=level, added=ADDED, normalizer=sequence("n", [{"type": "NFD"}, {"type": "Lowercase"}]))
    yield "llama", make(base["fallback"], normalizer=sequence("n", [NORMALIZERS[10], NORMALIZERS[12]]), decoder=sequence("d", [DECODERS[3], DECODERS[1], DECODERS[2], DECODERS[6]]), added=ADDED)


def mixtures(base, rng, count):
    for i in range(count):
        name = rng.choice(sorted(base))
        normalizer = rng.choice([None, rng.choice(NORMALIZERS), sequence("n", rng.sample(NORMALIZERS, rng.randrange(5)))])
        pre = rng.choice([None, rng.choice(PRE_TOKENIZERS), sequence("p", rng.sample(PRE_TOKENIZERS, rng.randrange(4)))])
        decoder = rng.choice([None, rng.choice(DECODERS), sequence("d", rng.sample(DECODERS, rng.randrange(4)))])
        added = rng.sample(ADDED, rng.randrange(len(ADDED)))
        yield "mixture %d (%s)" % (i, name), make(base[name], normalizer, pre, decoder, rng.choice([None, *POST]), added)


CLASSES = ["L", "M", "N", "P", "S", "Z", "C", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Nd", "No", "Pd", "Po", "Sm", "Sc", "So", "Cf", "Han", "^L"]
CLASS_PATTERNS = ["\\p{%s}+" % c for c in CLASSES] + ["[^\\P{L}\\d]+", "\\w+", "[\\W&&\\S]+", "\\d+", "\\s+", "(?i:\\p{Lu}+)", "[a\\w]+", "(?i:[^\\W]{2})", "[\\p{N}&&[^\\p{Nd}]]+", "[]\\p{Ps}x]+"]


def every_character(base):
    """Tokenizers that are shown (nearly) every character there is."""
    level = PRE_TOKENIZERS[3]
    for n in NORMALIZERS:
        yield "normalizer " + n["type"], make(base["bytes"], normalizer=n, pre=level)
    for p in PRE_TOKENIZERS[44:]:
        yield "pre_tokenizer " + p["type"], make(base["fallback"], pre=p)
    for c in CLASS_PATTERNS:
        yield "class " + c, make(base["bytes"], pre=sequence("p", [{"type": "Split", "pattern": regex(c), "behavior": "Removed", "invert": False}, level]))
    yield "single word", make(base["bytes"], pre=level, added=[token("word", single_word=True), token("<sp>", lstrip=True, rstrip=True)])


def character_texts(step):
    points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000 and (step > 2000 or c < 0x32400 or 0xE0000 <= c < 0xE0200)]
    for i in range(0, len(points), step):
        yield "".join(map(chr, points[i:i + step]))
    for i in range(0, 0x3000, 500):
        yield "".join(chr(c) + "word" + chr(c) + " <sp>" for c in range(i, i + 500))


def run_characters(program, name, spec, tally, attempt, where, step):
    text = json.dumps(spec, ensure_ascii=False)
    reference = tokenizers.Tokenizer.from_str(text)
    (where / "tokenizer.json").write_text(text, encoding="utf-8")
    with Driver(program, where) as driver:
        for sample in character_texts(step):
            tally.check("%s: from U+%04X" % (name, ord(sample[0])), attempt(driver.encode, sample), reference.encode(sample, add_special_tokens=False).ids)


def run_one(program, name, spec, tally, args, random_cases, attempt, where, count):
    text = json.dumps(spec, ensure_ascii=False)
    try:
        reference = tokenizers.Tokenizer.from_str(text)
    except BaseException as e:
        reference = None
        why = str(e)
    (where / "tokenizer.json").write_text(text, encoding="utf-8")
    try:
        driver = Driver(program, where)
    except Refused as e:
        tally.check("%s: opens, though the reference refuses: %s" % (name, e), reference is None, True)
        return
    with driver:
        if reference is None:
            tally.check("%s: is refused by the reference (%s)" % (name, why), "opened", "refused")
            return
        rng = random.Random(args.seed)
        for i, sample in enumerate(TEXTS):
            for special in (False, True):
                try:
                    want = reference.encode(sample, add_special_tokens=special).ids
                except BaseException:
                    continue
                tally.check("%s: text %d %s" % (name, i, ascii(sample)), attempt(driver.encode, sample, special), want)
        random_cases(driver, reference, name, tally, rng, count)


def run(program, tally, args, random_cases, attempt):
    base = base_models()
    with tempfile.TemporaryDirectory() as folder:
        where = pathlib.Path(folder)
        specs = [(s, 12) for s in singles(base)] + [(s, 15) for s in mixtures(base, random.Random(args.seed), args.mixtures)]
        for (name, spec), count in specs:
            run_one(program, name, spec, tally, args, random_cases, attempt, where, count)
        for name, spec in every_character(base):
            run_characters(program, name, spec, tally, attempt, where, args.characters)
    print("made tokenizers: %d" % len(specs))
