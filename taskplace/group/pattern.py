"""Patterns of topic names that a stranger may send: regular expressions of a plain kind, matched in linear time.

A pattern comes out of another member's metadata, so neither reading nor using it may take long, whatever it says.
Python's `re` tries alternatives one after the other, which can take exponential time; here all places of the pattern
that a name can have reached are followed at once, as bits of one number.

    letters   .   [a-z_]   [^0-9]   \\d \\w \\s \\D \\W \\S   \\.   (...)   (?:...)   a|b   *  +  ?  {2}  {2,}  {2,5}

Properties:
- a pattern matches what `re.fullmatch` matches with `re.ASCII`; `^` at its start and `$` at its end say nothing new;
- reading takes at most `MOST_LETTERS` steps; a name of n letters takes at most n * `MOST_PLACES`;
- repetition is paid by its size: a{50} has 50 places. Whatever is larger or of another kind is refused.

Errors: `InputError` with the place of what is wrong.

Non-goals: look-around, references, flags, and anything else that cannot be matched in one pass.

Source: "Subscription" by regular expression in the client-side assignment proposal; Glushkov's construction.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from taskplace.errors import InputError

MOST_LETTERS = 512
MOST_PLACES = 256
MOST_DEPTH = 20
_MOST_REMEMBERED = 4_096

_DIGITS = ((48, 57),)
_WORD = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE = ((9, 13), (32, 32))
_ALL = 0x10FFFF
_KINDS = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v"}
_SPECIAL = "*+?{^$)|("

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Node:
    """A part of a pattern: `kind` is one of set, cat, alt, repeat; `size` its places, or more."""

    kind: str
    size: int
    ranges: Ranges = ()
    parts: tuple[_Node, ...] = ()
    least: int = 0
    most: int | None = None


def check(pattern: str, path: str = "pattern") -> None:
    """Raise `InputError` unless this is a pattern; nothing is matched or built.

    >>> check("orders-[0-9]+")
    >>> check("(a")
    Traceback (most recent call last):
    taskplace.errors.InputError: pattern: found '(a', expected ')' at letter 2
    """
    _Parser(pattern, path).parse()


class Pattern:
    """A pattern that is ready to match.

    >>> dated = compiled(r"(orders|users)-\\d{4}")
    >>> dated.matches("orders-2026"), dated.matches("orders-20261")
    (True, False)
    """

    def __init__(self, pattern: str) -> None:
        self._sets: list[Ranges] = []
        self._follow: list[int] = []
        nullable, self._first, self._last = self._build(_Parser(pattern, "pattern").parse())
        self._empty = nullable
        self._masks: dict[str, int] = {}
        self._next: dict[int, int] = {}

    def matches(self, name: str) -> bool:
        """Return whether the whole name matches."""
        if not name:
            return self._empty
        reached = self._first & self._mask(name[0])
        for letter in name[1:]:
            if not reached:
                return False
            reached = self._after(reached) & self._mask(letter)
        return bool(reached & self._last)

    def _mask(self, letter: str) -> int:
        """Return the places that the letter can stand at."""
        known = self._masks.get(letter)
        if known is None:
            code = ord(letter)
            known = sum(
                1 << k for k, ranges in enumerate(self._sets) if any(a <= code <= b for a, b in ranges)
            )
            if len(self._masks) >= _MOST_REMEMBERED:
                self._masks.clear()
            self._masks[letter] = known
        return known

    def _after(self, reached: int) -> int:
        """Return the places that can come after these."""
        known = self._next.get(reached)
        if known is None:
            known = _union(self._follow, reached)
            if len(self._next) >= _MOST_REMEMBERED:
                self._next.clear()
            self._next[reached] = known
        return known

    def _build(self, node: _Node) -> tuple[bool, int, int]:
        """Give the node its places; return whether it may be empty, its first places, and its last."""
        if node.kind == "set":
            bit = 1 << len(self._sets)
            self._sets.append(node.ranges)
            self._follow.append(0)
            return False, bit, bit
        if node.kind == "cat":
            found = (True, 0, 0)
            for part in node.parts:
                found = self._join(found, self._build(part))
            return found
        if node.kind == "alt":
            made = [self._build(part) for part in node.parts]
            first = last = 0
            for _, a, b in made:
                first, last = first | a, last | b
            return any(nullable for nullable, _, _ in made), first, last
        found = (True, 0, 0)
        [inner] = node.parts
        copies = max(node.least, 1) if node.most is None else node.most
        for k in range(copies):
            nullable, first, last = self._build(inner)
            if node.most is None and k == copies - 1:  # the last one again and again
                self._link(last, first)
            found = self._join(found, (nullable or k >= node.least, first, last))
        return found

    def _join(self, a: tuple[bool, int, int], b: tuple[bool, int, int]) -> tuple[bool, int, int]:
        self._link(a[2], b[1])
        return a[0] and b[0], a[1] | (b[1] if a[0] else 0), b[2] | (a[2] if b[0] else 0)

    def _link(self, lasts: int, firsts: int) -> None:
        while lasts:
            low = lasts & -lasts
            self._follow[low.bit_length() - 1] |= firsts
            lasts ^= low


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Pattern:
    """Return the pattern ready to match; those in use are remembered."""
    return Pattern(pattern)


def _union(sets: list[int], bits: int) -> int:
    found = 0
    while bits:
        low = bits & -bits
        found |= sets[low.bit_length() - 1]
        bits ^= low
    return found


class _Parser:
    """Reads a pattern from left to right, once."""

    def __init__(self, pattern: str, path: str) -> None:
        self._text, self._path, self._at, self._depth = pattern, path, 0, 0

    def parse(self) -> _Node:
        if len(self._text) > MOST_LETTERS:
            found = f"{self._text[:20]}... ({len(self._text)} letters)"
            raise InputError(self._path, found=found, expected=f"a pattern of at most {MOST_LETTERS} letters")
        self._at = 1 if self._text.startswith("^") else 0
        found_ = self._alternatives()
        if self._at < len(self._text):
            raise self._error("no ')' without its '('")
        return found_

    def _alternatives(self) -> _Node:
        parts = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else self._node("alt", parts)

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while self._peek() not in ("", "|", ")"):
            if self._peek() == "$" and self._at == len(self._text) - 1:
                self._at += 1
                break
            parts.append(self._repeated(self._atom()))
        return self._node("cat", parts)

    def _atom(self) -> _Node:
        letter = self._take()
        if letter == "(":
            if self._text.startswith("?:", self._at):
                self._at += 2
            elif self._peek() == "?":
                raise self._error("a group without options, '(...)' or '(?:...)'")
            self._depth += 1
            if self._depth > MOST_DEPTH:
                raise self._error(f"at most {MOST_DEPTH} groups in each other")
            inner = self._alternatives()
            if self._peek() != ")":
                raise self._error("')'")
            self._at += 1
            self._depth -= 1
            return inner
        if letter == "[":
            return self._set(self._class())
        if letter == "\\":
            return self._set(self._escape())
        if letter == ".":
            return self._set(_others(((10, 10),)))
        if letter in _SPECIAL:
            self._at -= 1
            raise self._error(f"a letter, or '\\{letter}' for the letter itself")
        return self._set(((ord(letter), ord(letter)),))

    def _repeated(self, node: _Node) -> _Node:
        letter = self._peek()
        if letter not in ("*", "+", "?", "{"):
            return node
        self._at += 1
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(letter) or self._counts()
        if self._peek() == "?":
            self._at += 1  # lazy: the same whole names
        if self._peek() in ("*", "+", "?", "{"):
            raise self._error("one repetition at a time; put brackets around what is repeated again")
        copies = max(least, 1) if most is None else most
        size = copies * max(1, node.size)
        self._afford(size)
        return _Node("repeat", size, (), (node,), least, most)

    def _counts(self) -> tuple[int, int | None]:
        end = self._text.find("}", self._at)
        inside = self._text[self._at : end] if end >= 0 else ""
        low, comma, high = inside.partition(",")
        if not all(t.isascii() and t.isdigit() and len(t) <= 4 for t in (low, *((high,) if high else ()))):
            raise self._error("'{m}', '{m,}' or '{m,n}' with small numbers, or '\\{' for the letter itself")
        least = int(low)
        most = (int(high) if high else None) if comma else least
        if most is not None and most < least:
            raise self._error("a repetition from a number to one that is not smaller")
        self._at = end + 1
        return least, most

    def _class(self) -> Ranges:
        negated = self._peek() == "^"
        self._at += negated
        found: list[tuple[int, int]] = []
        start = True
        while start or self._peek() != "]":
            start = False
            one = self._member()
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("", "]"):
                self._at += 1
                other = self._member()
                if len(one) > 1 or len(other) > 1 or one[0][0] != one[0][1] or other[0][0] != other[0][1]:
                    raise self._error("a range from letter to letter")
                if other[0][0] < one[0][0]:
                    raise self._error("a range that goes up")
                one = ((one[0][0], other[0][0]),)
            found += one
        self._at += 1
        ranges = tuple(found)
        return _others(ranges) if negated else ranges

    def _member(self) -> Ranges:
        letter = self._take()
        if letter == "\\":
            return self._escape()
        if letter == "[":
            self._at -= 1
            raise self._error("no '[' within '[...]'; '\\[' for the letter itself")
        return ((ord(letter), ord(letter)),)

    def _escape(self) -> Ranges:
        letter = self._take()
        if letter.lower() in _KINDS:
            ranges: Ranges = _KINDS[letter.lower()]
            return _others(ranges) if letter.isupper() else ranges
        if letter.isalnum() and letter not in _CONTROLS:
            self._at -= 1
            raise self._error("one of \\d \\w \\s \\D \\W \\S \\t \\n \\r \\f \\v, or a sign")
        code = ord(_CONTROLS.get(letter, letter))
        return ((code, code),)

    def _set(self, ranges: Ranges) -> _Node:
        return _Node("set", 1, ranges)

    def _node(self, kind: str, parts: list[_Node]) -> _Node:
        size = sum(part.size for part in parts)
        self._afford(size)
        return _Node(kind, size, (), tuple(parts))

    def _afford(self, size: int) -> None:
        if size > MOST_PLACES:
            raise self._error(f"at most {MOST_PLACES} letters, repetitions counted")

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        letter = self._peek()
        if not letter:
            raise self._error("more letters")
        self._at += 1
        return letter

    def _error(self, expected: str) -> InputError:
        return InputError(self._path, found=self._text, expected=f"{expected} at letter {self._at}")


def _others(ranges: Ranges) -> Ranges:
    """Return all letters but these."""
    found, at = [], 0
    for low, high in sorted(ranges):
        if low > at:
            found.append((at, low - 1))
        at = max(at, high + 1)
    return (*found, (at, _ALL)) if at <= _ALL else tuple(found)
