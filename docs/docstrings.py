"""Turns the docstrings of this project, which are plain text with Markdown's marks, into reStructuredText."""

from __future__ import annotations

import re
from collections.abc import Iterator

_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_ITEM = re.compile(r"^(\s*)(?:[-*]|\d+\.) ")
#: Marks that reStructuredText would read: a link at the end of a word, a substitution, an open emphasis.
_MARKS = re.compile(r"(?<=\w)_(?!\w)|\*(?=[\w*])|(?<=[\w*])\*|\|")


def to_rst(lines: list[str]) -> list[str]:
    """Return a docstring's lines as reStructuredText.

    Code spans become literals. A table becomes a list table, an indented block after a blank line a literal block.
    Lists get the blank lines around them that reStructuredText needs. Doctests stay as they are.
    """
    return [line for kind, part in _parts(lines) for line in _written(kind, part)]


def _parts(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the parts of a docstring with their kinds: text, item, table, tree, block, doctest, blank."""
    kind, part = "blank", [""]
    for line in lines:
        now = _kind(line, kind)
        if now != kind or (now == "item" and _ITEM.match(line)):
            yield kind, part
            kind, part = now, []
        part.append(line)
    yield kind, part


def _kind(line: str, before: str) -> str:
    stripped = line.strip()
    if not stripped:
        return "block" if before == "block" else "blank"
    if before == "doctest" or stripped.startswith(">>>"):
        return "doctest"
    if stripped.startswith("|"):
        return "table"
    if stripped[0] in "│├└":
        return "tree"
    if before in ("blank", "block") and line.startswith("    ") and not _ITEM.match(line):
        return "block"
    if _ITEM.match(line) or (before == "item" and line.startswith(" ")):
        return "item"
    return "text"


def _written(kind: str, part: list[str]) -> list[str]:
    if kind in ("blank", "doctest"):
        return ["", *part] if kind == "doctest" else part
    if kind == "block":
        return ["", "::", "", *part, ""]
    if kind == "tree":
        return ["", "::", "", *(f"    {line}" for line in part), ""]
    if kind == "table":
        return ["", *_table(part), ""]
    text = [_spans(line).replace("::", ":") if line.endswith("::") else _spans(line) for line in part]
    return ["", *text, ""] if kind == "item" else text


def _table(rows: list[str]) -> list[str]:
    cells = [
        [cell.strip() for cell in row.strip().strip("|").split("|")] for row in rows if set(row) - set("|-: ")
    ]
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in cells:
        row += [""] * (len(cells[0]) - len(row))
        for number, cell in enumerate(row):
            lines.append(f"   {'*' if not number else ' '} - {_spans(cell)}".rstrip())
    return lines


def _spans(line: str) -> str:
    """Return a line with literals for code spans. Outside of them, and of bold text, stray marks are escaped."""
    parts = re.split(r"(`[^`]+`|\*\*[^*]+\*\*|(?<!\w)\*\w[^*]*\w\*(?!\w))", line)
    return "".join(
        part
        if number % 2 and part.startswith("*")
        else _SPAN.sub(r"``\1``", part)
        if number % 2
        else _MARKS.sub(r"\\\g<0>", part)
        for number, part in enumerate(parts)
    )
