"""Values in the model: exact casts and their limits, times in microseconds, order, and aggregates.

It uses no Arrow: numbers are integers and fractions, instants are microseconds, and dates are days. A value that a
type does not hold is `Unfit`, and then the batch has to be refused. What a type itself asks for is no loss: a float
takes the nearest value, a decimal rounds a float to its digits, and a date takes the day of an instant.
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from tests.differential.case import EXACT, TEMPORAL, Row, canonical

Key = tuple[Any, ...]
DAY = 86_400_000_000
#: The first and the last microsecond of Python's calendar.
CALENDAR = (-62_135_596_800_000_000, 253_402_300_799_999_999)
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_SPECIAL = re.compile(r"([+-]?)(inf(inity)?|nan)", re.IGNORECASE)
_DECIMAL = re.compile(r"decimal\((\d+), (\d+)\)")


class Unfit(Exception):
    """A type does not hold a value: the batch is to be refused."""


def digits(kind: str) -> tuple[int, int] | None:
    """Return the precision and the scale of a decimal type; None for other types."""
    found = _DECIMAL.fullmatch(kind)
    return (int(found[1]), int(found[2])) if found else None


def micros(value: Any, kind: str) -> int | None:
    """Return a time in microseconds; a date is its midnight."""
    return None if value is None else value * DAY if kind == "date" else value


def outside(value: Any, kind: str) -> bool:
    """Return whether a value is a time that Python's calendar does not have."""
    return value is not None and kind in TEMPORAL and not CALENDAR[0] <= micros(value, kind) <= CALENDAR[1]


def cast(value: Any, kind: str, kept: str | None) -> Any:
    """Return a value in another type. Errors: `Unfit`."""
    if value is None or kept in (None, kind):
        return value
    if kept in TEMPORAL:
        at = micros(value, kind)
        return _within(at // DAY, 32) if kept == "date" else _within(at, 64)
    if kept == "string":
        return value.decode() if kind == "binary" else str(value)
    if kept == "binary":
        return value.encode()
    number = _parsed(value, kept) if kind == "string" else value
    if kept == "bool":
        if number not in (0, 1):
            raise Unfit(value)
        return bool(number)
    if kept.startswith("float"):
        return _as_float(number, kind, kept)
    return held(number, kept)


def held(number: Any, kept: str) -> Any:
    """Return a number in an exact type. Errors: `Unfit`."""
    if isinstance(number, float) and (number != number or abs(number) == float("inf")):
        raise Unfit(number)
    exact, size = Fraction(number), digits(kept)
    scaled = exact * 10 ** (size[1] if size else 0)
    if size and isinstance(number, float):
        scaled = Fraction(round(scaled))
    if scaled.denominator > 1:
        raise Unfit(number)
    if size is None:
        return _within(scaled.numerator, int(kept[3:]))
    if abs(scaled) >= 10 ** size[0]:
        raise Unfit(number)
    return Decimal(scaled.numerator).scaleb(-size[1], EXACT)


def _within(number: int, bits: int) -> int:
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise Unfit(number)
    return number


def _parsed(text: str, kept: str) -> Fraction | float:
    if kept.startswith("float") and _SPECIAL.fullmatch(text):
        return float(text)
    if not (_INTEGER if kept.startswith("int") else _NUMBER).fullmatch(text):
        raise Unfit(text)
    mantissa, _, exponent = text.lower().partition("e")
    # Whatever the digits before are, no type holds it, or it is as good as zero.
    power = max(-5000, min(5000, int(exponent or 0)))
    number = Fraction(mantissa.rstrip(".") if mantissa.strip("+-") != "." else 0) * Fraction(10) ** power
    if number == 0 or kept.startswith("float") or abs(power) < 5000:
        return number
    raise Unfit(text)


def _as_float(number: Any, kind: str, kept: str) -> float:
    """Return the nearest float. Integers have to be held exactly."""
    if isinstance(number, float):
        with np.errstate(over="ignore"):
            made = float(np.float32(number)) if kept == "float32" else number
        if abs(made) == float("inf") != abs(number):
            raise Unfit(number)
        return made
    exact = Fraction(number)
    try:
        made = float(exact)
    except OverflowError:
        raise Unfit(number) from None
    if kept == "float32":
        made = _nearest_32(exact, made)
    if abs(made) == float("inf") or (kind.startswith("int") and exact != made):
        raise Unfit(number)
    return made


def _nearest_32(exact: Fraction, about: float) -> float:
    """Return the nearest float32: not by way of float64, which would round twice."""
    with np.errstate(over="ignore"):
        one = np.float32(about)
    if not np.isfinite(one):
        return float(one)
    near = [np.nextafter(one, np.float32(-np.inf)), one, np.nextafter(one, np.float32(np.inf))]
    found = [n for n in near if np.isfinite(n)]
    return float(min(found, key=lambda n: (abs(Fraction(float(n)) - exact), int(n.view(np.uint32)) & 1)))


def rank(value: Any) -> tuple[bool, Any]:
    """Return the sort key of a value, as in Spark: NaN is greater than all other floats."""
    return (True, 0) if value != value else (False, value)


def order(row: Row, columns: list[str]) -> list[Any]:
    """Return the sort key of a table row: column by column, nulls first."""
    return [(row[c] is not None, rank(0 if row[c] is None else canonical(row[c]))) for c in columns]


def aggregated(before: Any, function: str, values: list[Any], kind: str, kept: str) -> Any:
    """Return an aggregate after a batch's values of a key. Nulls are ignored. Errors: `Unfit`."""
    known = [value for value in values if value is not None]
    if function == "count":
        return (before or 0) + len(known)
    if function == "sum":
        return _sum(before, known, kind, kept)
    made = [*([] if before is None else [before]), *(cast(value, kind, kept) for value in known)]
    if not made:
        return None
    if function in ("first", "last"):
        return made[0 if function == "first" else -1]
    return (min if function == "min" else max)(made, key=rank)


def _sum(before: Any, known: list[Any], kind: str, kept: str) -> Any:
    """Return a sum. Those of floats are drawn so that they are exact."""
    if not known:
        return before
    if kept.startswith("float"):
        return float(sum(map(float, known), 0.0 if before is None else before))
    if kind == "string" or kind.startswith("float"):
        known = [cast(value, kind, kept) for value in known]
    size = digits(kept)
    for value in known:
        if (Fraction(value) * 10 ** (size[1] if size else 0)).denominator > 1:
            raise Unfit(value)
    total = Fraction(held(sum(map(Fraction, known)), kept))
    return held(total + Fraction(before or 0), kept)
