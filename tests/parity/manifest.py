"""Reads tests/parity/manifest: what is compared live, a row for each type, variant and special case.

    rows = manifest.read()          [Row], or ManifestError with file, line and what is wrong with it

Nothing is guessed: an unknown config case, run, format or note, a value that a note does not take, a row twice, all are
errors. The file itself tells what its columns mean.
"""

import dataclasses
import re
import shlex
from pathlib import Path

FILE = Path(__file__).resolve().with_name("manifest")


class ManifestError(Exception):
    """One line: FILE:LINE: what."""


@dataclasses.dataclass(frozen=True)
class Row:
    config: str  # name in configs.CONFIGS
    name: str = ""  # of a special case: CONFIG/NAME
    runs: tuple = ()  # of cases.RUNS
    formats: object = "all"  # "all", a number, or a tuple of names
    native: str = "yes"  # yes, quantised, no
    dense: bool = False
    group: int = 0  # the largest group; 0: any
    shim: bool = False
    cannot: str = ""
    prompt: int = 0  # 0: as usual
    seed: int = 0
    extras: dict = dataclasses.field(default_factory=dict)  # tensor -> shape

    @property
    def label(self):
        return f"{self.config}/{self.name}" if self.name else self.config

    @property
    def type(self):
        """The model_type, which names the test as well."""
        return self.config.split("@")[0]


def choice(*allowed):
    def take(value):
        if value not in allowed:
            raise ValueError(f"{value!r} is none of {', '.join(allowed)}")
        return value

    return take


def number(low, high):
    def take(value):
        if not re.fullmatch(r"[0-9]+", value or "") or not low <= int(value) <= high:
            raise ValueError(f"{value!r} is no number from {low} to {high}")
        return int(value)

    return take


def sentence(value):
    if not value:
        raise ValueError("it needs a reason")
    return value


def tensor(value):
    if not (match := re.fullmatch(r"([A-Za-z0-9_.]+):([0-9]+(?:x[0-9]+)*)", value or "")):
        raise ValueError(f"{value!r} is not TENSOR:SIZExSIZE")
    return {match[1]: tuple(int(n) for n in match[2].split("x"))}


# note -> (field of Row, what reads its value; None: it takes none)
NOTES = {
    "native": ("native", choice("no", "quantised")),
    "dense": ("dense", None),
    "group": ("group", number(16, 128)),
    "shim": ("shim", None),
    "cannot": ("cannot", sentence),
    "prompt": ("prompt", number(2, 512)),
    "seed": ("seed", number(1, 1 << 31)),
    "extra": ("extras", tensor),
}


def read_note(word, fields):
    name, equals, value = word.partition("=")
    if name not in NOTES:
        raise ValueError(f"no note is called {name!r}: {', '.join(NOTES)}")
    field, take = NOTES[name]
    if field in fields and name != "extra":
        raise ValueError(f"{name} stands twice")
    if (take is None) == bool(equals):
        raise ValueError(f"{name} takes {'no' if take is None else 'a'} value")
    try:
        read = True if take is None else take(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    fields[field] = {**fields.get(field, {}), **read} if name == "extra" else read


def expand(text, known, groups, what):
    """A comma list of names and groups, each name once."""
    names = []
    for part in text.split(","):
        for name in groups.get(part, (part,)):
            if name not in known:
                raise ValueError(f"no {what} is called {name!r}: {', '.join([*groups, *known])}")
            if name not in names:
                names.append(name)
    return tuple(names)


def read_row(line, configs, runs, groups, formats):
    words = shlex.split(line, comments=True)
    if not words:
        return None
    if len(words) < 3:
        raise ValueError("a row has CASE, RUNS, FORMATS and perhaps NOTES")
    config, slash, name = words[0].partition("/")
    if config not in configs:
        raise ValueError(f"tests/oracle/configs.py has no case {config!r}")
    if slash and not re.fullmatch(r"[a-z0-9-]+", name):
        raise ValueError(f"a special case is named in small letters, digits and hyphens, not {name!r}")
    fields = {"config": config, "name": name, "runs": expand(words[1], runs, groups, "run")}
    if words[2] == "all":
        fields["formats"] = "all"
    elif words[2].isdecimal():
        fields["formats"] = number(1, len(formats))(words[2])
    else:
        fields["formats"] = expand(words[2], formats, {}, "format")
    if name and (not isinstance(fields["formats"], tuple) or len(fields["formats"]) != 1):
        raise ValueError("a special case has one format")
    for word in words[3:]:
        read_note(word, fields)
    return Row(**fields)


def read(file=FILE):
    """Every row of the file, in its order."""
    import cases
    import configs

    rows, seen = [], {}
    for number_, line in enumerate(Path(file).read_text().splitlines(), 1):
        try:
            row = read_row(line, configs.CONFIGS, cases.RUNS, cases.RUN_GROUPS, cases.FORMATS)
            if row and row.label in seen:
                raise ValueError(f"{row.label} stands in line {seen[row.label]} already")
        except ValueError as error:
            raise ManifestError(f"{file}:{number_}: {error}") from None
        if row:
            seen[row.label] = number_
            rows.append(row)
    if not rows:
        raise ManifestError(f"{file}: no rows")
    return rows
