"""The same seed, the same tokens: tern's sampler against mlx-lm's generate_step over a model made of stored logits.

Seeded configurations over every option, three types and vocabularies from 320 to 151936; several tokens each, so that the
random state moves. Compared are the tokens and every bit of the log-probabilities, with SIMD and without.
Usage: test_sampling.py LIBRARY [first [count]], run by the Python that has mlx and mlx-lm.
"""

import ctypes
import sys
import time

import mlx.core as mx
import numpy as np
from mlx_lm.generate import generate_step
from mlx_lm.sample_utils import make_logits_processors, make_sampler
from tally import Tally

CASES = 260
TYPES = (mx.float32, mx.bfloat16, mx.float16)
PROMPT = 5  # tokens; the last of them is the first of the history


def repair_min_tokens_to_keep():
    """mlx-lm's min_p passes a bool where put_along_axis wants an array, so that keeping more than one token always raises a
    TypeError. The comparison uses what it means to do."""
    put = mx.put_along_axis

    def put_along_axis(a, indices, values, axis):
        return put(a, indices, mx.array(values) if isinstance(values, bool) else values, axis=axis)

    mx.put_along_axis = put_along_axis


def pointer(a):
    return a.ctypes.data_as(ctypes.c_void_p)


def pick(rng, values, off=0, chance=0.5):
    """One of the values with some chance, else `off`."""
    return values[rng.integers(len(values))] if rng.random() < chance else off


def make_case(number):
    """Options as Python numbers. The sets are short because every new constant costs the reference a run of g++."""
    rng = np.random.default_rng(1000 + number)
    vocab = int(rng.choice([320, 321, 1000, 4099, 32000, 50257, 151936], p=[0.25, 0.25, 0.2, 0.15, 0.08, 0.05, 0.02]))
    dtype = TYPES[number % 3]
    distinct = lambda n: [int(i) for i in rng.choice(vocab, n, replace=False)]
    return dict(
        number=number,
        vocab=vocab,
        dtype=dtype,
        steps=3 if vocab > 40000 else 7,
        seed=int(rng.integers(2**40)) if number % 5 == 0 else number,
        temp=pick(rng, [0.7, 0.3, 1.0, 0.8, 1.3, 0.95, 3.0, 0.05], 0, 0.88),
        top_p=pick(rng, [0.9, 0.95, 0.5, 0.1, 0.99, 1.0, 0.37], 0),
        min_p=pick(rng, [0.05, 0.1, 0.02, 0.5, 1.0, 0.003], 0, 0.4),
        min_tokens_to_keep=pick(rng, [3, 10, vocab], 1, 0.3),
        top_k=pick(rng, [1, 5, 40, vocab - 1], 0),
        xtc_probability=pick(rng, [0.5, 1.0, 0.3], 0, 0.4),
        xtc_threshold=pick(rng, [0.01, 0.1, 0.5, 0.003], 0, 0.8),
        xtc_special=distinct(3) if rng.random() < 0.5 else [],
        bias={i: float(v) for i, v in zip(distinct(4), rng.normal(0, 4, 4))} if rng.random() < 0.3 else {},
        repetition=(pick(rng, [1.1, 1.3, 0.8], 0, 0.4), pick(rng, [1, 3, 100], 20)),
        presence=(pick(rng, [0.5, 1.1, -0.3], 0, 0.3), pick(rng, [1, 3, 100], 20)),
        frequency=(pick(rng, [0.2, 1.5, -0.1], 0, 0.3), pick(rng, [1, 3, 100], 20)),
        kind=int(rng.integers(5)),
    )


def make_logits(case):
    """[steps, vocab] in the case's type: broad, peaked, flat, full of ties, with impossible tokens."""
    rng = np.random.default_rng(5000 + case["number"])
    x = rng.normal(0, 3, (case["steps"], case["vocab"])).astype(np.float32)
    if case["kind"] == 1:
        x = np.abs(x) ** 1.7
    elif case["kind"] == 2:
        x *= np.float32(0.01)
    elif case["kind"] == 3:
        x = np.round(x * 2) / 2
    elif case["kind"] == 4:
        x[rng.random(x.shape) < 0.3] = -np.inf
        x[:, 7] = 1
    x[:, : case["vocab"] // 50] += 6  # a few likely tokens, so that histories repeat
    return mx.array(x).astype(case["dtype"])


def reference(case, logits, prompt):
    """Tokens, and log-probabilities as float32 [steps, vocab]."""
    calls = 0

    def model(tokens, cache):
        nonlocal calls
        row = max(0, calls - 1)  # the first call is the prompt without its last token
        calls += 1
        return mx.broadcast_to(logits[min(row, case["steps"] - 1)], (1, tokens.shape[1], case["vocab"]))

    sampler = make_sampler(
        case["temp"],
        case["top_p"],
        case["min_p"],
        case["min_tokens_to_keep"],
        case["top_k"],
        case["xtc_probability"],
        case["xtc_threshold"],
        case["xtc_special"],
    )
    processors = make_logits_processors(case["bias"], *case["repetition"], *case["presence"], *case["frequency"])
    mx.random.seed(case["seed"])
    tokens, rows = [], []
    steps = generate_step(
        mx.array(prompt), model, max_tokens=case["steps"], sampler=sampler, logits_processors=processors, prompt_cache=[]
    )
    for token, logprobs in steps:
        tokens.append(token)
        rows.append(np.array(logprobs.astype(mx.float32)))
    return tokens, np.stack(rows)


class Library:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.probe_sampler_open.restype = ctypes.c_void_p
        self.lib.probe_sampler_next.restype = ctypes.c_int32
        self.error = ctypes.create_string_buffer(1000)

    def open(self, case):
        numbers = [case[k] for k in ("temp", "top_p", "min_p", "xtc_probability", "xtc_threshold")]
        penalties = [case[k] for k in ("repetition", "presence", "frequency")]
        numbers = np.array(numbers + [p for p, _ in penalties], np.float64)
        counts = np.array([case["min_tokens_to_keep"], case["top_k"]] + [n for _, n in penalties], np.int32)
        special = np.array(case["xtc_special"], np.int32)
        ids = np.array(list(case["bias"]), np.int32)
        values = np.array(list(case["bias"].values()), np.float32)
        self.error.value = b""
        return self.lib.probe_sampler_open(
            pointer(numbers),
            pointer(counts),
            pointer(special),
            ctypes.c_size_t(special.size),
            pointer(ids),
            pointer(values),
            ctypes.c_size_t(ids.size),
            ctypes.c_uint64(case["seed"]),
            case["vocab"],
            TYPES.index(case["dtype"]),
            self.error,
            ctypes.c_size_t(1000),
        )

    def run(self, case, logits, prompt, baseline):
        s = ctypes.c_void_p(self.open(case))
        assert s, self.error.value
        if baseline:
            self.lib.probe_sampler_baseline(s)
        rows = np.ascontiguousarray(np.array(logits.astype(mx.float32)))
        timeline, tokens = list(prompt), []
        for row in rows:
            history = np.array(timeline[PROMPT - 1 :], np.int32)
            token = self.lib.probe_sampler_next(
                s, pointer(row), pointer(history), ctypes.c_size_t(history.size), self.error, ctypes.c_size_t(1000)
            )
            assert token >= 0, self.error.value
            tokens.append(token)
            timeline.append(token)
        self.lib.probe_sampler_close(s)
        return tokens, rows


def check_case(tally, lib, number):
    case = make_case(number)
    logits = make_logits(case)
    prompt = [int(i) for i in np.random.default_rng(number).integers(case["vocab"], size=PROMPT)]
    want, want_rows = reference(case, logits, prompt)
    for baseline in (False, True):
        got, rows = lib.run(case, logits, prompt, baseline)
        name = f"case {number}{' baseline' if baseline else ''}"
        tally.check(f"{name} tokens", got == want, lambda: f"{got}, mlx-lm {want}: {case}")
        wrong = np.argwhere(rows.view(np.uint32) != want_rows.view(np.uint32))
        where = lambda: f"{len(wrong)} log-probabilities, first at {wrong[0]}: {rows[tuple(wrong[0])]}: {case}"
        tally.check(f"{name} logprobs", not len(wrong), where)


def check_refusals(tally, lib):
    """What the reference refuses, tern refuses by the flag's name."""
    good = dict(make_case(0), vocab=320, temp=0.7, top_p=0, min_p=0, top_k=0, min_tokens_to_keep=1)
    good.update(xtc_probability=0, xtc_threshold=0, xtc_special=[], bias={})
    x = mx.zeros((1, 320), good["dtype"])
    for flag, change in (
        ("--top-k", dict(top_k=320)),
        ("--min-p", dict(min_p=1.5)),
        ("--min-p", dict(min_p=-0.1)),
        ("--min-tokens-to-keep", dict(min_p=0.1, min_tokens_to_keep=321)),
        ("--xtc-threshold", dict(xtc_probability=0.5, xtc_threshold=0.6)),
        ("--xtc-probability", dict(xtc_probability=1.5)),
        ("--repetition-penalty", dict(repetition=(-1.0, 20))),
    ):
        case = dict(good, **change)
        try:
            make_logits_processors(None, *case["repetition"])
            keys = ("temp", "top_p", "min_p", "min_tokens_to_keep", "top_k", "xtc_probability", "xtc_threshold")
            mx.eval(make_sampler(*(case[k] for k in keys))(x))
            refused = False
        except ValueError:
            refused = True
        tally.check(f"mlx-lm refuses {change}", refused)
        mine = lib.open(case) is None and lib.error.value.decode().startswith(flag)
        tally.check(f"tern refuses {change}", mine, lib.error.value)


def main():
    mx.set_default_device(mx.cpu)
    repair_min_tokens_to_keep()
    lib = Library(sys.argv[1])
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    count = int(sys.argv[3]) if len(sys.argv) > 3 else CASES
    tally = Tally()
    start = time.time()
    for number in range(first, first + count):
        check_case(tally, lib, number)
    check_refusals(tally, lib)
    print(f"{count} configurations in {time.time() - start:.0f} s against mlx {mx.__version__}")
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
