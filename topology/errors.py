"""The errors of this package, and what they show: the value found, and the nearest known name.

ValueError
└── TopologyError         a wrong description of a topology; it names the node
    └── TopologyNotReady  the topology has no tasks yet, because its topics are missing or do not fit

A hint that names an unrelated word misleads more than none. So a name is only proposed if it is alike: a letter or two
differ, or its words are those of the wrong name. Other numbers mean another thing: `executor-9` is no misspelling of
`executor-99`.

Quoted values come from YAML or JSON. So lists, mappings, truth values and null are shown in YAML's flow style. Texts
have quotes, so that an empty one, and blanks at an end, are seen. Secrets are not hidden here: see
`taskplace.redaction`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping


class TopologyError(ValueError):
    """A wrong description of a topology. The message has the place, the value found, and the values expected.

    `node`: the name of the wrong node, store or topic, or None.

    >>> error = TopologyError("source 'flights'.partitions: found 0, expected at least 1", node="flights")
    >>> error.node, str(error)
    ('flights', "source 'flights'.partitions: found 0, expected at least 1")
    """

    def __init__(self, message: str, *, node: str | None = None) -> None:
        super().__init__(message)
        self.node = node


class TopologyNotReady(TopologyError):
    """Tasks were requested of a topology whose topics are missing or do not fit. The message is the reason.

    `BuiltTopology.readiness()` returns the same reason without an error.
    """


_LISTED = 8  # the most known names that a message lists


def nearest(name: object, known: Iterable[str]) -> str:
    """Return the hint for an unknown name: the nearest known name, or else a list of known names.

    >>> nearest("wether", ["flights", "weather"])
    "did you mean 'weather'?"
    >>> nearest("x", ["flights", "weather"])
    'known: flights, weather'
    >>> nearest("x", [])
    'none is known'
    """
    names = sorted(known)
    # Python refuses to print very long integers.
    word = "" if isinstance(name, int) and name.bit_length() > 64 else str(name)
    if near := nearest_name(word, names):
        return f"did you mean {near!r}?"
    if not names:
        return "none is known"
    return "known: " + ", ".join(names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")


#: The share of letters that two names have in common, in the same order, if one is a misspelling of the other.
_ALIKE = 0.7
#: The letters that both begin with, if one is the other's beginning or another form: at least these, and this share.
_SHORTEST, _BEGINNING = 3, 0.75
_WORDS = re.compile(r"[._-]+")


def nearest_name(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most like another one; "" if none is.

    >>> nearest_name("wether", ["flights", "weather"]), nearest_name("end", ["id", "end_offset", "weight"])
    ('weather', 'end_offset')
    >>> nearest_name("format", ["foreach", "kafka", "path"]), nearest_name("fish", ["bash", "zsh"])
    ('', '')
    >>> nearest_name("99", ["9", "98"]), nearest_name("executor-99", ["executor-9"]), nearest_name("int46", ["int64"])
    ('', '', 'int64')
    >>> nearest_name("orders-6x", ["orders-6"])
    'orders-6'
    """
    names = [each for each in known if not _numbered_otherwise(each, name)]
    near = difflib.get_close_matches(name, names, n=5, cutoff=0.5)
    if likely := [each for each in near if alike(name, each)]:
        return likely[0]
    of_words = [each for each in names if _has_words(each, name)]
    return of_words[0] if len(of_words) == 1 else ""


def alike(one: str, other: str) -> bool:
    """Return whether one of two names is likely a misspelling of the other.

    >>> alike("kil", "kill"), alike("max_warmup_replicas", "max.warmup.replicas"), alike("json", "set")
    (True, True, False)
    >>> alike("directory", "dir"), alike("copy", "copies"), alike("format", "foreach")
    (True, True, False)
    """
    left, right = (" ".join(filter(None, _WORDS.split(name.lower()))) for name in (one, other))
    if not left or not right:
        return False
    both = min(len(left), len(right))
    same = next((at for at in range(both) if left[at] != right[at]), both)
    if same >= max(_SHORTEST, _BEGINNING * both):
        return True
    return difflib.SequenceMatcher(None, left, right).ratio() >= _ALIKE


def _numbered_otherwise(one: str, other: str) -> bool:
    """Return whether two names have the same count of words that are numbers, and other numbers.

    `num.standbys` and `int64` have no such word.
    """
    left, right = ([word for word in _WORDS.split(name) if word.isdecimal()] for name in (one, other))
    return len(left) == len(right) and left != right


def _has_words(name: str, part: str) -> bool:
    """Return whether a name has all words of another one, such as `end_offset` those of `end`."""
    words = [word for word in _WORDS.split(part.lower()) if word]
    there = _WORDS.split(name.lower())
    return bool(words) and all(any(word == each or alike(word, each) for each in there) for word in words)


#: The most letters of a value that an error shows.
SHOWN = 1000
#: Keys that need no quotes: YAML reads them as texts.
_PLAIN = re.compile(r"(?!(?:null|true|false|yes|no|on|off|y|n)$)[A-Za-z_][\w.\-]*", re.ASCII | re.IGNORECASE)


def shown(value: object) -> str:
    """Return a value as text for an error: one line of at most `SHOWN` letters.

    >>> shown(None), shown(True), shown("a b"), shown({"a": None, "b": ["x", 1, False], 2: {}})
    ('nothing', 'true', "'a b'", "{a: null, b: ['x', 1, false], 2: {}}")
    >>> shown(10**400)
    'a number of 1329 bits'
    """
    if value is None:
        return "nothing"
    try:
        text = _flow(value)
    except Exception:  # a value whose own repr fails, or that contains itself
        text = f"a value of type {type(value).__name__} that cannot be printed"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text)} letters)"


def _flow(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value.bit_length() > 1024:  # Python refuses to print very long integers
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_key(key)}: {_flow(inner)}' for key, inner in value.items())}}}"
    if type(value) in (list, tuple):
        return f"[{', '.join(map(_flow, value))}]"  # type: ignore[call-overload]
    return repr(value)


def _key(key: object) -> str:
    return key if isinstance(key, str) and _PLAIN.fullmatch(key) else _flow(key)
