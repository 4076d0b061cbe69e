"""Finds the known name that a wrong one is likely to mean.

**Idea.** A hint that names an unrelated word misleads more than none. So a name is only proposed if it is alike: a
letter or two differ, or its words are those of the wrong name. Other numbers mean another thing: `executor-9` is no
misspelling of `executor-99`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

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
    if difflib.SequenceMatcher(None, left, right).ratio() >= _ALIKE:
        return True
    return abs(len(left) - len(right)) <= 1 and _within_one_edit(left, right)


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


def _within_one_edit(one: str, other: str) -> bool:
    """Return whether one letter was left out, put in, replaced, or swapped with the next."""
    short, long = sorted((one, other), key=len)
    at = next((i for i, letter in enumerate(short) if letter != long[i]), len(short))
    if len(short) < len(long):
        return short[at:] == long[at + 1 :]
    swapped = short[at : at + 2] == long[at : at + 2][::-1] and short[at + 2 :] == long[at + 2 :]
    return short[at + 1 :] == long[at + 1 :] or swapped
