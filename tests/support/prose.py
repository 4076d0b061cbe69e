"""Splits Markdown pages and docstrings into sentences, without code, tables of figures and doctests."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

_CODE = re.compile(r"`[^`]+`")
_LINK = re.compile(r"\[([^\]]*)\]\([^)\s]*\)")
_ITEM = re.compile(r"^(?:[-*>]|\d+\.)\s+")
_OTHER = re.compile(r"^[#|]")
_ROW = re.compile(r"\S {3,}\S|^[│├└]")
_END = re.compile(r"(?<=[.?!:;])[\"')*]*\s+")


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a page or docstring. A colon and a semicolon end one too, so that lists count by item.

    A code span and the target of a link count as one word. Cells of tables are sentences of their own.
    """
    for paragraph in _paragraphs(text):
        plain = _LINK.sub(r"\1", _CODE.sub("code", paragraph))
        yield from (part for part in _END.split(plain) if part)


def docstrings(path: Path) -> Iterator[str]:
    """Yield the docstrings of a module, its classes and its functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text


def _paragraphs(text: str) -> Iterator[str]:
    lines: list[str] = []
    for line in [*_prose(text), ""]:
        stripped = line.strip()
        begins = _ITEM.match(stripped) or _OTHER.match(stripped) or _ROW.search(stripped)
        if lines and (not stripped or begins):
            yield " ".join(lines)
            lines = []
        if stripped.startswith("|"):
            yield from (cell.strip() for cell in stripped.split("|") if cell.strip(" -:"))
        elif stripped and not _OTHER.match(stripped):
            lines.append(_ITEM.sub("", stripped))


def _prose(text: str) -> Iterator[str]:
    """Yield the lines that are no code: neither fenced, nor indented as a block, nor of a doctest."""
    fenced = doctest = block = False
    blank = True
    for line in textwrap.dedent(text).split("\n"):
        stripped = line.strip()
        if stripped.startswith("```"):
            fenced = not fenced
            yield ""
            continue
        doctest = bool(stripped) and (doctest or stripped.startswith(">>>"))
        block = (line.startswith("    ") and (block or blank)) or (block and not stripped)
        blank = not stripped
        yield "" if fenced or doctest or block else line
