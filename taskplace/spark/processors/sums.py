"""Overflow-safe sums: the accumulator type, whether overflow is possible, and whether it happened.

Arrow's sums wrap silently: integers modulo 2^64, decimals by the bits of their type. So decimals are summed with twice
the digits. A sum that could still overflow is compared with the same sum in floats: after an overflow, it differs by
far more than the error of floats.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from taskplace.errors import InputError
from taskplace.spark.casts import cast
from taskplace.spark.types import arrow_schema

#: Digits of the accumulator for decimals, and for integers in decimal sums. Sums of 38-digit values fit.
WIDE = 76


def addable(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Cast a column to the accumulator type for a sum that is stored as `kind`.

    If `kind` is exact, each value must fit it, not only the sum: 0.5 + 0.5 is refused for an integer. Errors: Arrow's,
    for a value that does not fit.
    """
    if not is_added(column.type):
        column = cast(column, kind)  # for example, text
    if pa.types.is_floating(column.type) and is_exact(kind):
        column = cast(column, kind)
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    if pa.types.is_decimal(column.type):
        scale = column.type.scale
        if is_exact(kind):
            scale = min(scale, kind.scale if pa.types.is_decimal(kind) else 0)
        column = cast(column, pa.decimal256(WIDE, scale))
    elif pa.types.is_integer(column.type) and pa.types.is_decimal(kind):
        column = column.cast(pa.decimal256(WIDE, 0))
    return (
        column.cast(pa.float64(), safe=False) if pa.types.is_floating(kind) and may_wrap(column) else column
    )


def check_sums(path: str, kinds: Mapping[str, object]) -> None:
    """Refuse sums whose type is not a number. Errors: `InputError` with the sum's path."""
    for field in arrow_schema(kinds, path):
        if not is_added(field.type):
            raise InputError(
                f"{path}.{field.name}",
                found=f"a sum kept as {field.type}",
                expected="a numeric type such as 'int64'",
            )


def is_added(kind: pa.DataType) -> bool:
    """Return whether a type is a number, so that it can hold a sum."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def wraps_by(kind: pa.DataType) -> float:
    """Return the error of a sum that has wrapped once; 0 for types whose sums do not wrap."""
    if pa.types.is_integer(kind):
        return 2.0**64
    return 2.0**256 / 10.0**kind.scale if pa.types.is_decimal(kind) else 0.0


def may_wrap(column: pa.ChunkedArray) -> bool:
    """Return whether the sum of these values could overflow its accumulator type."""
    room = wraps_by(column.type)
    if not room or not len(column):
        return False
    ends = pc.min_max(column).as_py()
    return max(abs(float(ends["min"] or 0)), abs(float(ends["max"] or 0))) * len(column) >= room / 4


def has_wrapped(sums: pa.ChunkedArray, about: pa.ChunkedArray) -> bool:
    """Return whether a sum has overflowed: it differs much from the same sum in floats (`about`)."""
    differ = pc.abs(pc.subtract(sums.cast(pa.float64(), safe=False), about))
    return (pc.max(differ).as_py() or 0) > wraps_by(sums.type) / 4


def is_exact(kind: pa.DataType) -> bool:
    """Return whether a type is exact: an integer or a decimal."""
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def has_digits(column: pa.ChunkedArray) -> bool:
    """Return whether all values have at most the digits of their decimal type. Arrow can hold more in memory."""
    if not pa.types.is_decimal(column.type):
        return True
    nines = Decimal((0, (9,) * column.type.precision, -column.type.scale))
    ends = pc.min_max(column).as_py()
    return all(end is None or end.copy_abs() <= nines for end in ends.values())


def room_of(kind: pa.DataType) -> str:
    """Return the range of an integer or decimal type, in words."""
    if pa.types.is_decimal(kind):
        return f"at most {kind.precision} digits, {kind.scale} of them behind the point, to fit a {kind}"
    signed = pa.types.is_signed_integer(kind)
    return f"at most 2^{kind.bit_width - signed} - 1, to fit {'an' if signed else 'a'} {kind}"
