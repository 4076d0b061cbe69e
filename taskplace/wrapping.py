"""Wraps texts into lines: one function, so that all texts of the project break at the same places.

Properties: lines break at spaces only, so a path or a name stays whole, to be copied. A command in backquotes stays
whole as well, although it has spaces. Either may be longer than the width. Imports nothing of the project.
"""

from __future__ import annotations

import re
import textwrap

_QUOTED = re.compile(r"`[^`\s][^`]*`")
#: Stands for a space at which no line breaks: no text has this character.
_NO_BREAK = "\0"


def wrapped(text: str, width: int, first: str = "", others: str = "") -> list[str]:
    """Return a text as lines of at most `width` letters, behind `first`, and behind `others` from the second one on.

    >>> wrapped("make room; then `taskplace status /data` says more", 24, "- ", "  ")
    ['- make room; then', '  `taskplace status /data`', '  says more']
    """
    whole = _QUOTED.sub(lambda found: found[0].replace(" ", _NO_BREAK), text)
    lines = textwrap.wrap(
        whole,
        width,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_NO_BREAK, " ") for line in lines]
