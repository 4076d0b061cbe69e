"""Tables of text whose columns are as wide as the longest name or number in them, on terminals of any width.

**Idea.** Each column says whether its texts may be shortened, and when it may be left out. A table that is too wide is
made narrower step by step: first texts are shortened, then the column that matters least is left out, and so on.

Properties: a row is one line. It is never longer than the given width. Numbers are under their headings. Shortened
texts that differ still look different, or their column is left out. Imports nothing of the project.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

#: The spaces between two columns.
GAP = 2
#: In a table of rich with its lines: the letters between two columns, and those at both ends of a row together.
BOX_GAP, BOX_EDGE = 3, 4
_ELLIPSIS = "..."


class Column(NamedTuple):
    """A column of a table.

    - `text`: its cells are texts, on the left; otherwise numbers, on the right
    - `least`: the letters to which its texts may be shortened; 0: they are not
    - `goes`: columns with a number may be left out, in the order of these numbers; None: it always stays
    """

    heading: str
    text: bool = False
    least: int = 0
    goes: int | None = None


class Fitted(NamedTuple):
    """What of a table has room: the columns, and the rows with a cell for each of them."""

    columns: list[Column]
    rows: list[list[str]]

    def lines(self) -> tuple[str, list[str]]:
        """Return the heading and the rows, each as a line."""
        every = [[column.heading for column in self.columns], *self.rows]
        widths = [max(len(row[i]) for row in every) for i in range(len(self.columns))]
        heading, *rows = [
            (" " * GAP)
            .join(
                cell.ljust(width) if column.text else cell.rjust(width)
                for column, cell, width in zip(self.columns, row, widths, strict=True)
            )
            .rstrip()
            for row in every
        ]
        return heading, rows


def fit(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    gap: int = GAP,
    edge: int = 0,
) -> Fitted:
    """Return what of a table has room in `width` letters; the first column is always there.

    `gap`: the letters between two columns; `edge`: those at both ends of a row together.

    >>> columns = [Column("executor", text=True), Column("host", text=True, least=8, goes=1), Column("lag", goes=2)]
    >>> rows = [("executor-1", "ip-10-0-1-7.internal", "1,085"), ("executor-2", "ip-10-0-1-8.internal", "0")]
    >>> for width in (80, 33, 25):
    ...     heading, lines = fit(columns, rows, width).lines()
    ...     print(heading, *lines, sep="\\n")
    executor    host                    lag
    executor-1  ip-10-0-1-7.internal  1,085
    executor-2  ip-10-0-1-8.internal      0
    executor    host              lag
    executor-1  ip-10-0-1-7...  1,085
    executor-2  ip-10-0-1-8...      0
    executor      lag
    executor-1  1,085
    executor-2      0
    """
    kept = list(range(len(columns)))
    cells = [[row[i] for row in rows] for i in kept]
    while True:
        widths = {i: max(map(len, [columns[i].heading, *cells[i]])) for i in kept}
        over = sum(widths.values()) + gap * (len(kept) - 1) + edge - width
        going = [i for i in kept[1:] if columns[i].goes is not None]
        short = _shortened(columns, cells, widths, over) if over > 0 else cells
        if short is not None or not going:
            break
        kept.remove(min(going, key=lambda i: columns[i].goes or 0))
    if short is None:  # nothing more can be left out
        short = [*cells]
        room = max(1, widths[0] - over)
        short[0] = _distinct(cells[0], room) or [_cut(text, room, 0) for text in cells[0]]
        kept_columns = [columns[0]._replace(heading=columns[0].heading[:room])]
        kept_columns += [columns[i] for i in kept[1:]]
    else:
        kept_columns = [columns[i] for i in kept]
    return Fitted(kept_columns, [[short[i][row] for i in kept] for row in range(len(rows))])


def _shortened(
    columns: Sequence[Column], cells: list[list[str]], widths: dict[int, int], over: int
) -> list[list[str]] | None:
    """Return the cells with `over` letters less in each row, or None if that cannot be.

    The column that would go first is shortened first.
    """
    short = [*cells]
    for i in sorted(widths, key=lambda i: (columns[i].goes is None, columns[i].goes or 0)):
        column = columns[i]
        if over <= 0 or not column.least:
            continue
        room = max(column.least, len(column.heading), widths[i] - over)
        if room >= widths[i]:
            continue
        found = _distinct(cells[i], room)
        if found is None:
            return None
        short[i] = found
        over -= widths[i] - room
    return short if over <= 0 else None


def _distinct(texts: list[str], room: int) -> list[str] | None:
    """Return texts of at most `room` letters, cut at the end or else in the middle.

    None if texts that differ would look alike.
    """
    for tail in (0, (room - len(_ELLIPSIS)) // 2):
        short = [_cut(text, room, tail) for text in texts]
        if len(set(short)) == len(set(texts)):
            return short
    return None


def _cut(text: str, room: int, tail: int) -> str:
    """Return a text of at most `room` letters, with the last `tail` ones of it.

    >>> _cut("executor-12", 9, 3), _cut("executor-12", 9, 0), _cut("executor-12", 2, 0)
    ('exe...-12', 'execut...', 'ex')
    """
    if len(text) <= room:
        return text
    if room <= len(_ELLIPSIS):
        return text[:room]
    return f"{text[: room - tail - len(_ELLIPSIS)]}{_ELLIPSIS}{text[len(text) - tail :]}"
