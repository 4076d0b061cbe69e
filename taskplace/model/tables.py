"""Two-column tables, as text and as HTML: what results print, and show in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

Row = tuple[str, str]
#: A heading and its rows.
Section = tuple[str, Sequence[Row]]


def text(sections: Iterable[Section]) -> str:
    """Return sections as lines, with all values in one column.

    >>> print(text([("this driver", [("batches", "3"), ("late rows", "12")]), ("empty", [])]))
    this driver
      batches     3
      late rows  12
    """
    shown = [(title, rows) for title, rows in sections if rows]
    label = max((len(name) for _, rows in shown for name, _ in rows), default=0)
    width = max((len(value) for _, rows in shown for _, value in rows), default=0)
    lines = []
    for title, rows in shown:
        lines += [title, *(f"  {name:<{label}}  {value:>{width}}" for name, value in rows)]
    return "\n".join(lines)


def html(sections: Iterable[Section]) -> str:
    """Return sections as an HTML table. All texts are escaped.

    >>> html([("a < b", [("rows", "3")])])
    '<table><tr><th colspan="2">a &lt; b</th></tr><tr><td>rows</td><td style="text-align:right">3</td></tr></table>'
    """
    lines = []
    for title, rows in sections:
        if rows:
            lines.append(f'<tr><th colspan="2">{escape(title)}</th></tr>')
            lines += [
                f'<tr><td>{escape(name)}</td><td style="text-align:right">{escape(value)}</td></tr>'
                for name, value in rows
            ]
    return f"<table>{''.join(lines)}</table>"
