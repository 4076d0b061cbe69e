"""Writes control characters as text, so that a name from a file or a checkpoint cannot steer a terminal.

They are written as JSON writes them (`\\u001b`), so that a JSON document stays one. Line ends and tabs stay.
"""

from __future__ import annotations

import re
from typing import Any, TextIO

#: Those of ASCII and Latin-1, those that turn the direction of a text, and surrogates, which no stream takes.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Return a text without control characters.

    >>> print(printable("executor\\x1b[2J"))
    executor\\u001b[2J
    """
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class Printable:
    """A stream of text that writes control characters as text. `behind` is the stream that it writes to."""

    def __init__(self, behind: TextIO) -> None:
        self.behind = behind

    def write(self, text: str) -> int:
        """Write a text."""
        return self.behind.write(printable(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)


def behind(stream: TextIO) -> TextIO:
    """Return the stream that others write to as they like: an application, and what draws on a terminal."""
    return stream.behind if isinstance(stream, Printable) else stream
