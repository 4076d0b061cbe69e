"""Reads durations: the one parser for code, YAML and the command line.

A text is one or more numbers with their units, largest unit first: "10 minutes", "1.5 h", "250 ms", "1 day 2 hours".
A `timedelta` is accepted as well. A bare number is accepted if the name contains its unit (`retention_ms`, `*.ms`).
Elsewhere a bare number is still read as milliseconds, which is deprecated and logged; zero needs no unit.

Properties:
- the result is exact, in whole milliseconds: nothing is rounded, and a part of a millisecond is refused;
- a negative duration is always refused, and zero unless the caller allows it;
- months and years are refused: they have no fixed length.

Errors: `InputError` with the path, the value found, the value expected, and the spelling that was probably intended.

>>> milliseconds("1.5 h", "ttl"), milliseconds(timedelta(minutes=1), "ttl"), milliseconds(250, "retention_ms")
(5400000, 60000, 250)
>>> milliseconds("3600000", "ttl")
Traceback (most recent call last):
taskplace.errors.InputError: ttl: found '3600000', expected a duration with its unit, such as '10 minutes'; \
did you mean '3600000 ms'?
"""

from __future__ import annotations

import difflib
import logging
import math
import re
import warnings
from datetime import timedelta
from fractions import Fraction
from functools import lru_cache
from numbers import Integral, Real
from typing import TypeAlias

from taskplace.errors import InputError

log = logging.getLogger(__name__)

#: The type of a parameter that takes a duration.
Duration: TypeAlias = str | timedelta | int | float

#: The longest duration, in milliseconds: its microseconds fit into 64 bits.
MOST = (2**63 - 1) // 1000
#: The endings of names that contain the unit of a bare number.
NAMED = ("_ms", ".ms")

#: Microseconds of each unit, the largest unit first, and the names of the unit.
_UNITS: tuple[tuple[Fraction, tuple[str, ...]], ...] = (
    (Fraction(604_800_000_000), ("w", "week", "weeks")),
    (Fraction(86_400_000_000), ("d", "day", "days")),
    (Fraction(3_600_000_000), ("h", "hr", "hrs", "hour", "hours")),
    (Fraction(60_000_000), ("m", "min", "mins", "minute", "minutes")),
    (Fraction(1_000_000), ("s", "sec", "secs", "second", "seconds")),
    (Fraction(1000), ("ms", "msec", "msecs", "millisecond", "milliseconds")),
    (Fraction(1), ("us", "microsecond", "microseconds")),
    (Fraction(1, 1000), ("ns", "nanosecond", "nanoseconds")),
)
_NAMES = {name: rank for rank, (_, names) in enumerate(_UNITS) for name in names}
_LOOSE = ("mo", "mon", "month", "months", "y", "yr", "yrs", "year", "years", "quarter", "quarters")
_PART = re.compile(r"\s*([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))\s*([^\W\d_]*)\s*")
_LONGEST = 100  # longer texts are refused

_EXPECTED = "a duration with its unit, such as '10 minutes'"


def milliseconds(duration: object, path: str, *, zero: bool = False) -> int:
    """Return a duration in milliseconds, above 0 or, with `zero`, at least 0. O(1).

    `path` names the parameter in errors. If it ends in `_ms` or `.ms`, a bare number is accepted without a warning.

    >>> milliseconds("1 day 2 hours", "ttl"), milliseconds("0 minutes", "grace", zero=True)
    (93600000, 0)
    >>> milliseconds("1 month", "ttl")
    Traceback (most recent call last):
    taskplace.errors.InputError: ttl: found '1 month', expected a duration with its unit, such as '10 minutes'; \
a month has no fixed length: give it in days, such as '30 days'
    """
    if isinstance(duration, str):
        micros = _of_text(duration, path)
    elif isinstance(duration, timedelta):
        # A timedelta of pandas has nanoseconds beside the microseconds.
        micros = Fraction(duration // timedelta(microseconds=1))
        micros += Fraction(getattr(duration, "nanoseconds", 0), 1000)
    else:
        micros = _of_number(duration, path)
    if micros < 0 or (micros == 0 and not zero):
        least = "at least 0" if zero else "above 0"
        raise InputError(path, found=duration, expected=f"a duration {least}, such as '10 minutes'")
    if micros > 1000 * MOST:
        raise InputError(path, found=duration, expected=f"a duration of at most {MOST} ms, 292,000 years")
    if (micros / 1000).denominator != 1:
        raise InputError(path, found=duration, expected="whole milliseconds, such as '250 ms'")
    if micros and not isinstance(duration, str | timedelta) and not path.endswith(NAMED):
        _deprecated(path, str(duration))
    return int(micros / 1000)


def _of_text(text: str, path: str) -> Fraction:
    """Return the microseconds of a text."""
    if len(text) > _LONGEST:
        raise InputError(path, found=f"a string of {len(text)} characters", expected=_EXPECTED)
    total, at, before = Fraction(0), 0, -1
    while at < len(text) or before < 0:
        part = _PART.match(text, at)
        name = part[2] if part else ""
        rank = _rank(name)
        if part is None or rank is None or rank <= before or (before >= 0 and part[1][0] in "+-"):
            raise InputError(path, found=text, expected=_EXPECTED, hint=_hint(text, name))
        number, at, before = Fraction(part[1].rstrip(".")), part.end(), rank
        if number < 0:  # the caller refuses it
            return number
        total += number * _UNITS[rank][0]
    return total


def _rank(name: str) -> int | None:
    """Return the index of a unit in `_UNITS`. "M" is not a unit, because elsewhere it means months."""
    return _NAMES.get(name if len(name) == 1 else name.lower())


def _of_number(number: object, path: str) -> Fraction:
    """Return the microseconds of a bare number of milliseconds."""
    try:
        if isinstance(number, bool) or not isinstance(number, Real) or not math.isfinite(number):
            raise InputError(path, found=number, expected=_EXPECTED)
        number_of_ms = (
            Fraction(int(number)) if isinstance(number, Integral) else Fraction(repr(float(number)))
        )
    except TypeError:  # a timedelta64 of numpy counts as an integer
        raise InputError(path, found=number, expected=f"{_EXPECTED}, or a datetime.timedelta") from None
    except OverflowError:  # an integer that no float can hold
        raise InputError(
            path, found="a number of hundreds of digits", expected=f"at most {MOST} ms, 292,000 years"
        ) from None
    return 1000 * number_of_ms


@lru_cache(maxsize=1000)
def _deprecated(path: str, number: str) -> None:
    """Warn, once per parameter and number, that a bare number has no unit."""
    text = f"{path}: found {number}, read as '{number} ms'; a number without a unit is deprecated: "
    text += f"write '{number} ms', or did you mean '{_seconds(number)}'?"
    log.warning("%s", text)
    warnings.warn(text, DeprecationWarning, stacklevel=3)


def _seconds(number: str) -> str:
    return f"{number} {'second' if number == '1' else 'seconds'}"


def _hint(text: str, name: str) -> str:
    """Return a hint with the probably intended spelling of a text that is not a duration."""
    bare = text.strip()
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", bare):
        return (
            f"did you mean '{bare} ms'?"
            if len(bare) > 3
            else f"did you mean '{_seconds(bare)}' or '{bare} ms'?"
        )
    if name.lower() in _LOOSE or name == "M":
        what = "year" if name.lower().startswith("y") else "month"
        return (
            f"a {what} has no fixed length: give it in days, such as '{365 if what == 'year' else 30} days'"
        )
    if name and _rank(name) is None:
        near = difflib.get_close_matches(name.lower(), [name for name in _NAMES if len(name) > 1], n=1)
        if near:
            return f"did you mean {text.replace(name, near[0])!r}?"
    return "units: weeks, days, hours, minutes, seconds, ms, the largest first, each once"
