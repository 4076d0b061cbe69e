"""Small tables in HTML, as notebooks show them. Everything is escaped; colours are left to the notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


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
