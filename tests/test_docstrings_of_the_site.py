"""Docstrings become reStructuredText: literals, literal blocks, tables and lists; doctests stay as they are."""

from __future__ import annotations

import sys

from tests.support.pages import ROOT


def test_the_marks_of_a_docstring_are_converted(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    monkeypatch.delitem(sys.modules, "docstrings", raising=False)
    from docstrings import to_rst

    text = """Say `max_`, **bold** and x_ of *args.

    a block `as it is`

- an item
  of two lines
- another

| a | b |
|---|---|
| `k` | 1 |

Tree
├── leaf

>>> print("`a`")
`a`"""
    made = "\n".join(to_rst(text.split("\n")))
    assert "Say ``max_``, **bold** and x\\_ of \\*args." in made
    assert "::\n\n    a block `as it is`\n" in made
    assert "\n\n- an item\n  of two lines\n\n\n- another\n" in made
    assert ".. list-table::\n   :header-rows: 1\n\n   * - a\n     - b\n   * - ``k``\n     - 1\n" in made
    assert "Tree\n\n::\n\n    ├── leaf\n" in made
    assert made.endswith('\n>>> print("`a`")\n`a`')
