"""What standard output has room for: the width of a terminal, and lines that are folded to it."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable

from taskplace.wording import wrapped

#: Where the text of a line begins, behind its label.
INDENT = " " * 12


def columns() -> int:
    """Return the width of standard output. What is no terminal gets whole lines: its width has no limit."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize


def show(lines: Iterable[str]) -> None:
    """Print lines, folded to the width of the terminal."""
    print(shown(lines))


def shown(lines: Iterable[str]) -> str:
    """Return lines as a text, folded to the width of the terminal."""
    width = columns()
    return "\n".join(folded(line, width) for line in lines)


def folded(text: str, width: int) -> str:
    """Return a line as several ones of at most `width` letters.

    What goes on is under the text of the first line if that has a label or is indented; other lines go on after two
    spaces.

    >>> print(folded("loss        executor-2 was lost in batch 10", 31))
    loss        executor-2 was lost
                in batch 10
    >>> print(folded("This command checks no file of the checkpoint", 31))
    This command checks no file of
      the checkpoint
    """
    if len(text) <= width or width <= 2 * len(INDENT):
        return text
    begin = len(text) - len(text.lstrip())
    labelled = text[len(INDENT) - 1 : len(INDENT)] == " " != text[len(INDENT) : len(INDENT) + 1]
    others = INDENT if begin or (labelled and "  " in text[: len(INDENT)].lstrip()) else "  "
    return "\n".join(wrapped(text[begin:], width, text[:begin], others))


def answer(output: str, document: object, lines: Iterable[str]) -> None:
    """Print what a command has found: as a JSON document with `--output json`, else as lines for people."""
    if output == "json":
        print(json.dumps(document, indent=1))
    else:
        show(lines)
