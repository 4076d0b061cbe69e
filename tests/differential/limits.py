"""Values at and around the limits of types, texts that are almost numbers, and instants outside of Python's calendar.

A column may be kept in another type. Its values are then drawn around the limits of both types, and among them are
those that only one of them holds, and those that wrap where an engine computes modulo 2^64 or 2^128.
"""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

from tests.differential.case import EXACT, NAN, STAMPS, TEMPORAL
from tests.differential.values import CALENDAR, DAY, Unfit, cast, digits, held

INTEGERS = ("int8", "int16", "int32", "int64")
FLOATS = ("float32", "float64")
#: Texts that some parsers take for numbers. Of some it can be said that none may.
ALMOST = [
    "",
    "1_000",
    " 1.1 ",
    "\uff11\uff12",
    "0x10",
    "1,5",
    "1e",
    "1e-999999999",
    "1e999999999",
    "NaN",
    "inf",
]
#: Around Python's calendar, and the years 0 and 55840.
INSTANTS = [CALENDAR[0] - 1, *CALENDAR, CALENDAR[1] + 1, -62_150_000_000_000_000, 1_700_000_000_000_000_000]
FURTHEST = [-(1 << 63), (1 << 63) - 1]


def kind(draw: Random) -> str:
    """Return a type for a column at its limits."""
    if draw.random() < 0.5:
        return draw.choice([*INTEGERS, *FLOATS, "string", "string", *TEMPORAL])
    precision = draw.choice([1, 9, 18, 19, 28, 37, 38, 38, 38, draw.randint(1, 38)])
    return f"decimal({precision}, {draw.choice([0, precision // 2, precision, draw.randint(0, precision)])})"


def target(draw: Random, given: str) -> str | None:
    """Return a type in which values of another one may be kept; None if there is none."""
    if given in TEMPORAL:
        return draw.choice([one for one in TEMPORAL if one != given])
    if given in ("bool", "binary"):
        return None
    decimals = [one for one in (kind(draw) for _ in range(8)) if digits(one)]
    others = [*INTEGERS, *FLOATS, "decimal(38, 0)", "decimal(38, 18)", *decimals]
    if given in FLOATS:  # of more digits, an engine may round twice
        others = [*INTEGERS, *FLOATS, "bool", *(one for one in decimals if 2 <= digits(one)[1] <= 9)]
    elif given in INTEGERS:
        others += ["string", "bool"]
    found = draw.choice(others)
    return None if found == given else found


def pool(draw: Random, given: str, targets: set[str]) -> tuple[list[Any], list[Any]]:
    """Return values of a type that all targets hold, and others."""
    found = _times(given) if given in TEMPORAL else []
    found = found or [_made(n, given) for n in _numbers(draw, [given, *targets])]
    if given == "string":
        found += [*draw.sample(ALMOST, 4), "0", "1", "07", "+7", "-0"]
    fit, unfit = [None], []
    for value in draw.sample(found, min(len(found), 12)):
        try:
            if value is not None:
                [cast(value, given, target) for target in targets]
                fit.append(value)
        except Unfit:
            unfit.append(value)
    return fit, unfit


def _times(given: str) -> list[int]:
    found = [-1, 0, 1_767_225_600_000_001, *INSTANTS]
    if given in STAMPS:
        return [*found, *FURTHEST]
    return [*(at // DAY for at in found), -(1 << 31), (1 << 31) - 1, *(at // DAY for at in FURTHEST)]


def _numbers(draw: Random, kinds: list[str]) -> list[Fraction]:
    """Return the limits of types, numbers beside them, small ones, and any others of every length."""
    found = [Fraction(n) for n in (-2, -1, 0, 1, 2, 100)] + [Fraction(1, 4)]
    for each in kinds:
        size = digits(each)
        if size:
            unit = Fraction(1, 10 ** size[1])
            most = 10 ** size[0] - 1
            some = [draw.randrange(10 ** draw.randint(1, size[0])) for _ in range(4)]
            ends = [unit * n for n in (1, most, most + 1, -most, *some, -some[0], most // 10)]
            found += [*ends, Fraction(most // 10 ** size[1]), Fraction((1 << 128) + draw.choice([-1, 0, 1]))]
        elif each in INTEGERS:
            end = 1 << int(each[3:]) - 1
            found += map(Fraction, (-end - 1, -end, end - 1, end, 2 * end, draw.randrange(end)))
        elif each in FLOATS:
            found += map(Fraction, ((1 << 24) + 1, (1 << 53) + 1, 1 << 63, 10**39, 10**300))
    return found


def _made(number: Fraction, given: str) -> Any:
    """Return a number as a value of a type; None if the type does not hold it."""
    if given in FLOATS:
        with suppress(OverflowError, Unfit):
            return cast(float(number), "float64", given)
        return NAN
    if given == "string":
        return f"{EXACT.divide(Decimal(number.numerator), Decimal(number.denominator)):f}"
    with suppress(Unfit):
        return held(number, given)
    return None
