"""Small tables, as text and as HTML: what results print, and show in a notebook. All texts are escaped."""

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


def table(head: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """Return a table.

    >>> table(["instance", "active"], [["a<b", 3]])
    '<table><thead><tr><th>instance</th><th>active</th></tr></thead><tbody><tr><td>a&lt;b</td><td>3</td></tr></tbody>\
</table>'
    """
    above = f"<caption>{escape(caption)}</caption>" if caption else ""
    body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
    return f"<table>{above}<thead><tr>{_cells('th', head)}</tr></thead><tbody>{body}</tbody></table>"


def _cells(tag: str, cells: Iterable[object]) -> str:
    return "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells)
