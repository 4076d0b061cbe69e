"""The words of a written type, one after the other, and errors that name the place inside it.

Spark's schemas (`taskplace.spark.ddl`) and the names of Arrow's types (`taskplace.spark.types`) are both
read by this. A place is the names on the way to it: `("a", "element")` in `struct<a: array<innt>>`.

>>> tokens = Tokens("array<innt>", WORDS)
>>> tokens.take(), tokens.expect("<")
('array', None)
>>> with tokens.inside("element"):
...     raise tokens.unknown(tokens.take(), ["int", "string"])
Traceback (most recent call last):
taskplace.spark.types.TypeTextError: in element: found 'innt', expected a type; did you mean 'int'?
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from taskplace.validation import nearest
from topology.errors import shown

#: Texts in quotes, names in backticks, signs, words.
WORDS = re.compile(
    r"""\s*+(`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[<>(),:]|[^\s<>(),:`'"]+|\S)"""
)
#: The most digits of a decimal, in Spark and in a store.
DIGITS = 38
#: Letters before a mistake that an error shows.
_SHOWN = 60
#: Types in types, at most.
DEEPEST = 100


class TypeTextError(ValueError):
    """A written type that is none: where in it, what was found, what was expected, the nearest known name."""

    def __init__(self, place: tuple[str, ...], found: str, expected: str, hint: str = "") -> None:
        where = f"in {'.'.join(place)}: " if place else ""
        super().__init__(f"{where}found {shown(found)}, expected {expected}{hint and '; ' + hint}")
        self.place, self.found, self.expected, self.hint = place, found, expected, hint

    @property
    def suffix(self) -> str:
        """The place, as what follows the path of the whole type."""
        return "".join(f".{name}" for name in self.place)


class Tokens:
    """The words of a written type that have not been read yet."""

    def __init__(self, written: str, words: re.Pattern[str]) -> None:
        self.written = written
        self._words = [(match[1], match.start(1), match.end(1)) for match in words.finditer(written.rstrip())]
        self._next = 0
        self._place: tuple[str, ...] = ()

    def peek(self) -> str:
        """Return the next word; "" at the end."""
        return self._words[self._next][0] if self._next < len(self._words) else ""

    def take(self) -> str:
        """Return the next word, and go on behind it; "" at the end."""
        word = self.peek()
        self._next += bool(word)
        return word

    @property
    def begin(self) -> int:
        """Where the next word begins in the text."""
        return self._words[self._next][1] if self._next < len(self._words) else len(self.written)

    @property
    def end(self) -> int:
        """Where the last word that was taken ends."""
        return self._words[self._next - 1][2] if self._next else 0

    def expect(self, *words: str) -> None:
        """Take the next word, one of these. Errors: `TypeTextError` for another one."""
        if self.peek() not in words:
            raise self.unexpected(" or ".join(map(repr, words)))
        self.take()

    def finish(self) -> None:
        """Refuse words that are left."""
        if self.peek():
            raise self.unexpected("nothing more")

    def number(self) -> int:
        """Take the next word, a whole number."""
        if not re.fullmatch(r"-?[0-9]{1,9}", self.peek()):
            raise self.unexpected("a whole number")
        return int(self.take())

    def decimal(self, *, any_scale: bool = False) -> tuple[int, int]:
        """Take the digits of a decimal: `(9, 2)`, or `(9)`; with `any_scale`, the second number may be any."""
        self.expect("(")
        digits, scale = self.number(), 0
        if not any_scale <= digits <= DIGITS:  # Spark has a decimal(0, 0), Arrow has none
            raise self.error(f"{digits} digits", f"a decimal of 1 to {DIGITS} digits")
        if self.peek() == ",":
            self.take()
            scale = self.number()
        if not 0 <= scale <= digits and not any_scale:
            raise self.error(f"a scale of {scale} with a precision of {digits}", f"a scale of 0 to {digits}")
        self.expect(")")
        return digits, scale

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Have errors name a part of the type: the field of a struct, `element`, `key` or `value`."""
        if len(self._place) >= DEEPEST:
            raise TypeTextError((), "types nested too deeply", f"at most {DEEPEST} levels")
        self._place = (*self._place, name)
        yield
        self._place = self._place[:-1]

    def error(self, found: str, expected: str, hint: str = "") -> TypeTextError:
        """Return the error for what was found at this place."""
        return TypeTextError(self._place, found, expected, hint)

    def unexpected(self, expected: str) -> TypeTextError:
        """Return the error for the next word."""
        before = self.written[: self.end].strip()
        before = before if len(before) <= _SHOWN else f"...{before[-_SHOWN:]}"
        behind = f" behind {before!r}" if before else ""
        return self.error(self.peek() or "the end of the type", f"{expected}{behind}")

    def unknown(self, name: str, known: Collection[str]) -> TypeTextError:
        """Return the error for a word that names no type."""
        if not name or name in ("<", ">", "(", ")", ",", ":"):
            self._next -= bool(name)
            return self.unexpected("a type")
        return self.error(name, "a type", nearest(name.lower(), known))


def name_of(word: str) -> str:
    """Return the name that a word stands for: in backticks, it may have any letters."""
    return word[1:-1].replace("``", "`") if word.startswith("`") and len(word) > 1 else word
