"""Numbers, counts and times in words: one function for each, so that all texts of the project read alike.

Times are in seconds. Imports nothing of the project, so every module can use it.
"""

from __future__ import annotations

from collections.abc import Iterable

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


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
