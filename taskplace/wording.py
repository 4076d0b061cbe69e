r"""Texts for people: numbers, counts and times in words; tables and lines of any width; no control characters.

Times are in seconds. Imports nothing of the project, so every module can use it.

**Tables.** Each column says whether its texts may be shortened, and when it may be left out. A table that is too wide
is made narrower step by step: first texts are shortened, then the column that matters least is left out, and so on. A
row is one line, never longer than the given width. Numbers are under their headings. Shortened texts that differ
still look different, or their column is left out.

**Lines** break at spaces only, so a path or a name stays whole, to be copied, and so does a command in backquotes.

**Control characters** are written as text, as JSON writes them (`\u001b`), so that a name from a file or a checkpoint
cannot steer a terminal. Line ends and tabs stay.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TextIO

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))

#: The spaces between two columns.
GAP = 2
#: In a table of rich with its lines: the letters between two columns, and those at both ends of a row together.
BOX_GAP, BOX_EDGE = 3, 4
_ELLIPSIS = "..."
_QUOTED = re.compile(r"`[^`\s][^`]*`")
#: Stands for a space at which no line breaks: no text has this character.
_NO_BREAK = "\0"
#: Those of ASCII and Latin-1, those that turn the direction of a text, and surrogates, which no stream takes.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def count(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun.

    >>> count(1, "task"), count(12_000, "task"), count(2, "copy", "copies")
    ('1 task', '12,000 tasks', '2 copies')
    """
    return f"{number:,} {noun(number, one, many)}"


def noun(number: int, one: str, many: str = "") -> str:
    """Return the noun, or the verb, that fits a number.

    >>> noun(1, "copy", "copies"), noun(2, "lacks", "lack"), noun(0, "task")
    ('copy', 'lack', 'tasks')
    """
    return one if number == 1 else many or one + "s"


def listed(names: Iterable[object], most: int | None = None, last: str = "and") -> str:
    """Return names as a part of a sentence: all of them, or the first `most` and the number of the others.

    >>> listed("a"), listed("ab"), listed("abc"), listed("abcde", most=3)
    ('a', 'a and b', 'a, b and c', 'a, b, c and 2 more')
    >>> listed("ab", last="or"), listed("")
    ('a or b', '')
    """
    texts = [str(name) for name in names]
    if most is not None and len(texts) > most:
        return f"{', '.join(texts[:most])} and {len(texts) - most:,} more"
    return f" {last} ".join(part for part in (", ".join(texts[:-1]), *texts[-1:]) if part)


def one_of(names: Iterable[object], kind: str, most: int = 5) -> str:
    """Return what an error expects instead of an unknown name: their number, and at most `most` of them.

    >>> one_of(["0_0", "0_1"], "task"), one_of("abc", "instance", most=2), one_of("a", "instance")
    ('one of 2 tasks: 0_0, 0_1', 'one of 3 instances, such as a, b', 'a, the only instance')
    """
    texts = [str(name) for name in names]
    if len(texts) == 1:
        return f"{texts[0]}, the only {kind}"
    between = ", such as" if len(texts) > most else ":" if texts else ""
    return f"one of {count(len(texts), kind)}{between} {', '.join(texts[:most])}".rstrip()


def sentence(text: str) -> str:
    """Return a text as a sentence: it ends with a full stop. The first letter stays, because it may begin a name.

    >>> sentence("a is draining"), sentence("")
    ('a is draining.', '')
    """
    return text if not text or text.endswith((".", "?", "!")) else f"{text}."


def duration(seconds: float) -> str:
    """Return a measured time in a readable unit.

    >>> duration(0.0123), duration(4.06), duration(151.4), duration(9_000)
    ('12 ms', '4.1 s', '2 min 31 s', '2 h 30 min')
    """
    if seconds < 0.1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 59.95 else lasting(seconds)


def lasting(seconds: float) -> str:
    """Return a time in whole seconds, in at most two units.

    >>> lasting(5), lasting(75), lasting(3600), lasting(200_000)
    ('5 s', '1 min 15 s', '1 h', '2 d 7 h')
    """
    rest = round(seconds)
    parts: list[str] = []
    for name, size in _UNITS:
        number, rest = divmod(rest, size)
        if number or parts:
            parts.append(f"{number} {name}" if number else "")
    return " ".join(part for part in parts[:2] if part) or "0 s"


def about(seconds: float) -> str:
    """Return an estimated time, as roughly as it is known.

    >>> about(3), about(47), about(58), about(225), about(9_000), about(400_000)
    ('a few seconds', 'about 45 seconds', 'about 1 minute', 'about 4 minutes', 'about 2.5 hours', 'about 4.5 days')
    """
    if seconds < 5:
        return "a few seconds"
    if seconds < 57.5:
        return f"about {5 * round(seconds / 5)} seconds"
    if (minutes := round(seconds / 60)) < 90:
        return f"about {count(minutes, 'minute')}"
    if (hours := round(seconds / 1_800) / 2) < 48:
        return f"about {hours:g} hours"
    return f"about {round(seconds / 43_200) / 2:,g} days"


def clock(seconds: float) -> str:
    """Return a time as a clock that runs.

    >>> clock(7.9), clock(95), clock(3_723)
    ('0:07', '1:35', '1:02:03')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def size(amount: float) -> str:
    """Return bytes in a readable unit, of 1000 each.

    >>> size(999), size(1_234_567), size(3.4e9), size(999_960), size(3.4e15)
    ('999 bytes', '1.2 MB', '3.4 GB', '1.0 MB', '3,400.0 TB')
    """
    if amount < 1000:
        return f"{amount:.0f} bytes"
    units = ["kB", "MB", "GB", "TB"]
    while (amount := amount / 1000) >= 999.95 and len(units) > 1:
        del units[0]
    return f"{amount:,.1f} {units[0]}"


def counted_since(batch: int) -> str:
    """Return since when a checkpoint counts its totals; `batch` is the first one that is counted.

    >>> counted_since(0), counted_since(7)
    ('since the checkpoint was created', 'since batch 7')
    """
    return f"since batch {batch:,}" if batch else "since the checkpoint was created"


def before(seconds: float) -> str:
    """Return a time before a point that the text has named.

    >>> before(0.4), before(75)
    ('just before', '1 min 15 s before')
    """
    return "just before" if seconds < 1 else f"{lasting(seconds)} before"


def ago(seconds: float) -> str:
    """Return a time in the past.

    >>> ago(0.4), ago(75), ago(7300), ago(-3)
    ('just now', '1 min 15 s ago', '2 h 1 min ago', 'just now')
    """
    return "just now" if seconds < 1 else f"{lasting(seconds)} ago"


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

    def lines(self) -> list[str]:
        """Return the heading and the rows, each as a line."""
        every = [[column.heading for column in self.columns], *self.rows]
        widths = [max(len(row[i]) for row in every) for i in range(len(self.columns))]
        return [
            (" " * GAP)
            .join(
                cell.ljust(width) if column.text else cell.rjust(width)
                for column, cell, width in zip(self.columns, row, widths, strict=True)
            )
            .rstrip()
            for row in every
        ]


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
    ...     print(*fit(columns, rows, width).lines(), sep="\\n")
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
