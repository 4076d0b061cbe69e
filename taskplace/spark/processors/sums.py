"""Sums that never wrap: in what they are formed, whether they may go beyond it, and whether they have.

Arrow's sums of integers wrap by 2^64, and those of decimals by the bits of their type, without a word. So decimals are
added up with twice the digits, and whatever could still wrap is compared with the same sum in floats: one that has
wrapped is off by far more than floats are.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from taskplace.errors import InputError
from taskplace.spark.state.casts import cast
from taskplace.spark.state.rows import arrow_schema

#: What sums of decimals, and of integers as decimals, are formed in: those of 38 digits cannot go beyond it.
WIDE = 76


def addable(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return a column in a type in which its sum is right, if there is one, for a sum that is kept as `kind`.

    Each value has to have a place in `kind` if that is exact, so that no sum of a batch is kept whose parts alone would
    not be: 0.5 and 0.5 are no integers. Errors: Arrow's, for a value without.
    """
    if not is_added(column.type):
        column = cast(column, kind)  # a text, say
    if pa.types.is_floating(column.type) and is_exact(kind):
        column = cast(column, kind)
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    if pa.types.is_decimal(column.type):
        scale = column.type.scale
        if is_exact(kind):
            scale = min(scale, kind.scale if pa.types.is_decimal(kind) else 0)
        column = column.cast(pa.decimal256(WIDE, scale))
    elif pa.types.is_integer(column.type) and pa.types.is_decimal(kind):
        column = column.cast(pa.decimal256(WIDE, 0))
    return (
        column.cast(pa.float64(), safe=False) if pa.types.is_floating(kind) and may_wrap(column) else column
    )


def check_sums(path: str, kinds: Mapping[str, object]) -> None:
    """Refuse sums that are to be kept as anything but numbers. Errors: `InputError` with the sum's path."""
    for field in arrow_schema(kinds, path):
        if not is_added(field.type):
            raise InputError(
                f"{path}.{field.name}",
                found=f"a sum kept as {field.type}",
                expected="a numeric type such as 'int64'",
            )


def is_added(kind: pa.DataType) -> bool:
    """Return whether sums may be kept in a type: a number."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def wraps_by(kind: pa.DataType) -> float:
    """Return what a sum is off by when it has wrapped once; 0 for types whose sums do not wrap."""
    if pa.types.is_integer(kind):
        return 2.0**64
    return 2.0**256 / 10.0**kind.scale if pa.types.is_decimal(kind) else 0.0


def may_wrap(column: pa.ChunkedArray) -> bool:
    """Return whether a sum of these integers or decimals could go beyond what it is formed in at all."""
    room = wraps_by(column.type)
    if not room or not len(column):
        return False
    ends = pc.min_max(column).as_py()
    return max(abs(float(ends["min"] or 0)), abs(float(ends["max"] or 0))) * len(column) >= room / 4


def has_wrapped(sums: pa.ChunkedArray, about: pa.ChunkedArray) -> bool:
    """Return whether a sum is far from the same sum in floats."""
    differ = pc.abs(pc.subtract(sums.cast(pa.float64(), safe=False), about))
    return (pc.max(differ).as_py() or 0) > wraps_by(sums.type) / 4


def is_exact(kind: pa.DataType) -> bool:
    """Return whether sums of a type are right to the last digit, or wrong altogether."""
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def has_digits(column: pa.ChunkedArray) -> bool:
    """Return whether its type has the digits for all of these values; more of them can be in memory."""
    if not pa.types.is_decimal(column.type):
        return True
    nines = Decimal((0, (9,) * column.type.precision, -column.type.scale))
    ends = pc.min_max(column).as_py()
    return all(end is None or end.copy_abs() <= nines for end in ends.values())


def room_of(kind: pa.DataType) -> str:
    """Return what a type of integers or decimals holds, in words."""
    if pa.types.is_decimal(kind):
        return f"at most {kind.precision} digits, {kind.scale} of them behind the point, what a {kind} holds"
    signed = pa.types.is_signed_integer(kind)
    return f"at most 2^{kind.bit_width - signed} - 1, what {'an' if signed else 'a'} {kind} holds"
