"""Every pair of types that `cast` converts, against exact arithmetic in plain Python: equal, or refused.

A model says what each value is in the other type: a Python value, or REFUSED. Values lie at and around the limits of
all types, and are drawn, from a seed that a failure shows.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from taskplace.errors import InputError
from taskplace.spark.casts import cast
from taskplace.spark.types import check_cast

T = pa.types
REFUSED = object()
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
DAY = 86_400
INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64()]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
_OF_128 = [(9, 2), (12, 4), (38, 0), (38, 18), (38, 38), (38, -3), (38, -30), (5, 10)]
DECIMALS = [pa.decimal128(p, s) for p, s in _OF_128]
DECIMALS += [pa.decimal256(p, s) for p, s in [(76, 0), (76, 38), (76, 76), (40, 2)]]
DECIMALS += [pa.decimal32(9, 2), pa.decimal64(18, 6)]
TEXTS = [pa.string(), pa.large_string(), pa.binary()]
TIMES = [
    *(pa.date32(), pa.date64()),
    *(pa.timestamp(unit, zone) for unit in UNITS for zone in (None, "UTC")),
    *(pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.duration(unit) for unit in UNITS),
]
KINDS = [pa.bool_(), *INTEGERS, *FLOATS, *DECIMALS, *TEXTS, *TIMES]
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
#: Texts that are almost numbers, and numbers in odd forms.
_ALMOST = """
    1_000 0x10 0X1f 0b1 - + . e5 1e 1e+ --1 1,5 nan(1) nan -NaN inf +Infinity -INF infinit 1f 0x1p3
    1e5.0 1e-999999999 1e999999999 1e99999999999999999999 0e-999999999 0e999
    340282366920938463463374607431768211461 1e400 1e-400 +7 -0 07 7. .5 1E2 1.5e1 12e-1
"""
ALMOST = _ALMOST.split()
ALMOST += [" 1", "1 ", "1\n", "１", "٣", "", "\x001", "1\x00", "½"]
ALMOST += ["0" * 100 + "7", "7." + "0" * 100, "0." + "0" * 100, "0." + "0" * 50 + "1", "9" * 5000]


def limits() -> Iterator[Fraction]:
    """Yield numbers at which some type ends, or Arrow's arithmetic wraps."""
    for bits in (7, 8, 11, 15, 16, 24, 31, 32, 53, 63, 64, 98, 127, 128, 255, 256):
        yield Fraction(2**bits)
    for digits in (0, 1, 2, 3, 7, 9, 10, 17, 18, 19, 20, 27, 30, 33, 34, 36, 37, 38, 39, 75, 76, 77):
        yield from (Fraction(10**digits), Fraction(1, 10**digits))
    for top in (65504, 65520, float(np.finfo(np.float32).max), np.finfo(np.float64).max):
        yield Fraction(top)


def numbers(draw: random.Random, count: int) -> list[Fraction]:
    found = [Fraction(0), Fraction(6105760244780821830681908851878)]
    for limit in limits():
        near = (limit, limit + 1, limit - 1, limit + Fraction(1, 2), limit * Fraction(10**20 + 1, 10**20))
        found += [sign * number for number in near for sign in (1, -1)]
    while len(found) < count:
        digits = draw.randint(1, 77)
        below = 10 ** draw.choice((0, 0, digits, draw.randint(0, 77)))
        found.append(Fraction(draw.randrange(10**digits) * draw.choice((1, -1)), below))
    return draw.sample(found, count)


# --------------------------------------------------------------------------------------- columns of a type


def samples(kind: pa.DataType, draw: random.Random, count: int) -> pa.Array:
    """Return values of a type, of which half are at and around the limits."""
    if T.is_boolean(kind):
        return pa.array([True, False])
    if kind in TEXTS:
        texts = [*ALMOST, *("true", "False")]
        for number in numbers(draw, count):
            with localcontext(prec=160):
                value = Decimal(number.numerator) / Decimal(number.denominator)
            texts.append(draw.choice((str(value), f"{value:f}", f"{value:.20e}")))
        texts += [mutated(draw, text) for text in draw.sample(texts, len(texts) // 3)]
        return pa.array([text.encode() for text in texts]) if kind == pa.binary() else pa.array(texts, kind)
    if T.is_floating(kind):
        wide = [float(n) for n in numbers(draw, count) if abs(n) < 10**308]
        wide += [math.nan, math.inf, -math.inf, -0.0, 5e-324, 2.0**63, -(2.0**63), 2.0**128]
        with np.errstate(over="ignore"):
            return pa.array(np.array(wide, kind.to_pandas_dtype()), kind)
    if T.is_decimal(kind):
        most, shifts = 10**kind.precision, (kind.scale, kind.scale, 0)
        scaled = (int(n * Fraction(10) ** draw.choice(shifts)) for n in numbers(draw, count))
        return decimals([n for n in scaled if abs(n) < most] + [most - 1, 1 - most, 0], kind)
    bits = 32 if T.is_date32(kind) or T.is_time32(kind) else kind.bit_width
    ends = (0, 2**bits - 1) if T.is_unsigned_integer(kind) else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if T.is_time(kind):
        ends = (0, DAY * UNITS[kind.unit] - 1)
    raw = {*ends, ends[0] + 1, ends[1] - 1}
    years = (253_402_300_800, 62_135_596_800, 62_167_219_200, 1_700_000_000)
    for base in (0, 1, DAY, 10**3, 10**6, 10**9, *years):
        for unit in (1, *UNITS.values(), DAY, DAY * 1000):
            raw |= {sign * (base * unit + off) for sign in (1, -1) for off in (-1, 0, 1)}
    raw |= {int(n) for n in numbers(draw, count)} | {draw.randint(*ends) for _ in range(count // 2)}
    if T.is_date64(kind):
        raw = {one // (DAY * 1000) * DAY * 1000 for one in raw}
    inside = sorted(one for one in raw if ends[0] <= one <= ends[1])
    return pa.array(inside, pa.int32() if bits == 32 and T.is_temporal(kind) else raw_type(kind)).view(kind)


def mutated(draw: random.Random, text: str) -> str:
    at = draw.randint(0, len(text))
    return text[:at] + draw.choice("0123456789+-.eE_ xX,\t") + text[at + draw.randint(0, 1) :]


def raw_type(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if T.is_temporal(kind) else kind


def decimals(scaled: list[int], kind: pa.DataType) -> pa.Array:
    """Return decimals by their digits, without Arrow's conversions."""
    size = kind.bit_width // 8
    data = b"".join(one.to_bytes(size, "little", signed=True) for one in scaled)
    return pa.Array.from_buffers(kind, len(scaled), [None, pa.py_buffer(data)])


def raws(column: pa.Array) -> list[Any]:
    """Return what the values are: numbers as fractions, times in their unit, texts; NaN and infinity as floats."""
    kind = column.type
    if T.is_decimal(kind):
        size, data = kind.bit_width // 8, column.buffers()[1].to_pybytes()
        places = range(column.offset * size, (column.offset + len(column)) * size, size)
        whole = (int.from_bytes(data[at : at + size], "little", signed=True) for at in places)
        return [Fraction(n) / Fraction(10) ** kind.scale for n in whole]
    if T.is_temporal(kind):
        return column.view(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist()
    values = column.to_pylist()
    if T.is_integer(kind):
        return list(map(Fraction, values))
    if T.is_floating(kind):
        return [Fraction(v) if math.isfinite(v) else v for v in map(float, values)]
    return [v.decode() if isinstance(v, bytes) else v for v in values]


# ---------------------------------------------------------------------------------------------- the model


def exact(value: Any, given: pa.DataType, kind: pa.DataType) -> Any:
    """Return the value in another type; REFUSED if the type does not hold it; a test for a text."""
    if T.is_temporal(given):
        return as_time(value, given, kind)
    if T.is_boolean(given):
        value = ("true" if value else "false") if kind in TEXTS else Fraction(value)
    if given in TEXTS:
        if kind in TEXTS:
            return value
        if T.is_boolean(kind):
            return {"true": True, "1": True, "false": False, "0": False}.get(value.lower(), REFUSED)
        return parsed(value, kind)
    if kind in TEXTS:
        return value if isinstance(value, str) else lambda text: says(text, value, given)
    if T.is_boolean(kind):
        return bool(value) if value in (0, 1) else REFUSED
    return as_number(value, given, kind)


def parsed(text: str, kind: pa.DataType) -> Any:
    if T.is_floating(kind) and re.fullmatch("[+-]?(nan|inf|infinity)", text, re.IGNORECASE | re.ASCII):
        return float(text)
    if not NUMBER.fullmatch(text) or (T.is_integer(kind) and not re.fullmatch(r"[+-]?\d+", text)):
        return REFUSED
    if T.is_unsigned_integer(kind) and text[0] == "-":
        return REFUSED
    mantissa, _, power = text.lower().partition("e")
    if abs(int(power or 0)) >= 10**18 and T.is_decimal(kind):
        return REFUSED  # also a zero: Python has no such exponent
    if abs(int(power or 0)) > 1000:
        if Fraction(mantissa) == 0:
            return Fraction(0)
        if int(power) > 0:
            return REFUSED
        return Fraction(0) if T.is_floating(kind) else REFUSED
    return as_number(Fraction(Decimal(mantissa)) * Fraction(10) ** int(power or 0), pa.string(), kind)


def as_number(value: Any, given: pa.DataType, kind: pa.DataType) -> Any:
    if T.is_floating(kind):
        if not isinstance(value, Fraction):
            return value
        near = nearest(value, kind)
        lost = math.isinf(near) or (T.is_integer(given) and Fraction(near) != value)
        return REFUSED if lost else Fraction(near)
    if not isinstance(value, Fraction):
        return REFUSED
    if T.is_integer(kind):
        most = 2 ** (kind.bit_width - T.is_signed_integer(kind))
        least = -most if T.is_signed_integer(kind) else 0
        return value if value.denominator == 1 and least <= value < most else REFUSED
    scaled = value * Fraction(10) ** kind.scale
    if T.is_floating(given):
        scaled = Fraction(round(scaled))  # half to even
    held = scaled.denominator == 1 and abs(scaled) < 10**kind.precision
    return scaled / Fraction(10) ** kind.scale if held else REFUSED


def nearest(value: Fraction, kind: pa.DataType) -> float:
    """Return the nearest float, of two the even one; infinity beyond the type."""
    digits, least, most = {16: (11, -24, 16), 32: (24, -149, 128), 64: (53, -1074, 1024)}[kind.bit_width]
    if not value:
        return 0.0
    power = abs(value.numerator).bit_length() - value.denominator.bit_length()
    power += (abs(value) >= Fraction(2) ** power) - 1  # 2^power <= value < 2^(power + 1)
    unit = Fraction(2) ** max(power - digits + 1, least)
    rounded = round(value / unit) * unit
    return math.inf if abs(rounded) >= 2**most else float(rounded)


def says(text: str, value: Any, given: pa.DataType) -> bool:
    """Return whether a text says a number: a decimal or integer exactly, a float so that the float is found again."""
    if not isinstance(value, Fraction):
        return math.isnan(value) if text == "nan" else float(text) == value
    shown = Fraction(Decimal(text))
    return nearest(shown, given) == value if T.is_floating(given) else shown == value


def as_time(value: int, given: pa.DataType, kind: pa.DataType) -> Any:
    unit = DAY if T.is_date32(given) else 1000 if T.is_date64(given) else UNITS[given.unit]
    seconds = Fraction(value * DAY) if T.is_date32(given) else Fraction(value, unit)
    if kind in TEXTS:
        return lambda text: shows(text, seconds, given)
    if T.is_date(kind):
        if T.is_timestamp(given) and not -(2**63) <= seconds * 10**6 < 2**63:
            return REFUSED  # years beyond 290,000
        if not T.is_timestamp(given) and seconds % DAY:
            return REFUSED
        seconds = seconds // DAY * DAY  # of a timestamp, the day
        most, raw = (2**31, seconds // DAY) if T.is_date32(kind) else (2**63, seconds * 1000)
    else:
        most, raw = 2 ** (kind.bit_width - 1), seconds * UNITS[kind.unit]
    return int(raw) if Fraction(raw).denominator == 1 and -most <= raw < most else REFUSED


def shows(text: str, seconds: Fraction, given: pa.DataType) -> bool:
    """Return whether a text shows a time; beyond Python's calendar, whether it is one at all."""
    if T.is_duration(given):
        return text == str(seconds * UNITS[given.unit])
    if T.is_time(given) or not -62_135_596_800 <= seconds < 253_402_300_800:
        return re.fullmatch(r"-?[0-9]+-[0-9-]*( [0-9:.]+Z?)?|[0-9:.]+", text) is not None
    base = datetime(1970, 1, 1) + timedelta(seconds=int(seconds // 1))
    if T.is_date(given):
        return text == (base.date() if isinstance(base, datetime) else date.min).isoformat()
    digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[given.unit]
    part = f".{int(seconds % 1 * UNITS[given.unit]):0{digits}}" if digits else ""
    return text == f"{base:%Y-%m-%d %H:%M:%S}".rjust(19, "0") + part + ("Z" if given.tz else "")


# ------------------------------------------------------------------------------------------ the comparison


def converted(given: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether the project casts one type to the other. Arrow has no casts of half floats and booleans, ..."""
    try:
        check_cast(given, kind, "")
        cast(pa.nulls(1, given), kind)
    except (InputError, pa.ArrowNotImplementedError):
        return False
    return True


PAIRS = [(given, kind) for given in KINDS for kind in KINDS if given != kind and converted(given, kind)]


def compare(given: pa.DataType, kind: pa.DataType, column: pa.Array) -> str:
    """Return what is wrong; nothing if all is right. All values that the type holds are cast at once, others alone."""
    wanted = [exact(value, given, kind) for value in raws(column)]
    held = [at for at, value in enumerate(wanted) if value is not REFUSED]
    fits = [at for at in held if not callable(wanted[at]) or text_of(given, column, at)]
    try:
        made = raws(cast(column.take(pa.array(fits, pa.int64())), kind))
    except pa.ArrowException as error:
        return f"refused: {error}"
    for at, value in zip(fits, made, strict=True):
        want = wanted[at]
        if not (want(value) if callable(want) else want == value or (want != want and value != value)):
            return f"{column[at : at + 1]} became {value}, not {want}"
    for at in sorted({*range(len(column))} - {*fits}):
        try:
            return f"{column[at : at + 1]} became {cast(column[at : at + 1], kind)}"
        except pa.ArrowException:
            continue
    return ""


def text_of(given: pa.DataType, column: pa.Array, at: int) -> bool:
    """Return whether Arrow has a text for a value: of times of a few 10,000 years it has."""
    if not T.is_temporal(given):
        return True
    one = column[at : at + 1]
    plain = one.cast(pa.timestamp(given.unit)) if T.is_timestamp(given) else one
    return not plain.cast(pa.string())[0].as_py().startswith("<")


def test_every_pair_of_types_is_exact():
    run(seed=random.randrange(10**9), count=60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_every_pair_of_types_is_exact_at_length(seed):
    run(seed=seed, count=4_000)


def run(seed: int, count: int) -> None:
    print(f"seed {seed}")
    draw = random.Random(seed)
    columns = {kind: samples(kind, draw, count) for kind in KINDS}
    assert len(PAIRS) > 400
    wrong = {f"{given} to {kind}": compare(given, kind, columns[given]) for given, kind in PAIRS}
    assert not {pair: why for pair, why in wrong.items() if why}, f"seed {seed}"
