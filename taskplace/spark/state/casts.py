"""Says which casts keep different values different.

**Idea.** Rows are split over tasks by columns as they come, and state is kept by a key of declared types. The rows of
one key meet in one task only if the cast between the two never makes one value of several: `int32` to `int64` does not,
text to a number does ("7" and "07"), a timestamp to a date does.

Properties:
- judged are the checked casts of `RowCodec`. A cast that refuses what does not fit (`int64` to `int32`, decimals to
  fewer digits behind the point, timestamps to a coarser unit) fails for such a value;
- NaN is one value, and so are 0.0 and -0.0: they are hashed so, and kept so;
- a time zone is a way to show an instant: casts to another one, or to none, change nothing;
- what is not listed counts as a cast that merges values. So do floats as integers, which hold only some of them.
"""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types as of


def keeps_apart(found: pa.DataType, kept: pa.DataType) -> bool:
    """Return whether a cast of `found` to `kept` never makes one value of two different ones.

    >>> keeps_apart(pa.int32(), pa.int64()), keeps_apart(pa.string(), pa.int64())
    (True, False)
    >>> keeps_apart(pa.timestamp("us"), pa.timestamp("us", tz="UTC")), keeps_apart(pa.timestamp("us"), pa.date32())
    (True, False)
    """
    if of.is_dictionary(found):
        found = found.value_type
    if found == kept:
        return True
    if _is_text(found):
        return _is_text(kept)  # bytes as text are checked, and stay what they are
    if of.is_boolean(found):
        return of.is_integer(kept) or _is_wide_float(kept) or _is_text(kept)
    if of.is_integer(found):
        return not of.is_boolean(kept) and not of.is_float16(kept) and not of.is_nested(kept)
    if of.is_decimal(found):
        return of.is_decimal(kept) or of.is_integer(kept) or _is_text(kept)
    if of.is_floating(found):
        return (of.is_floating(kept) and found.bit_width <= kept.bit_width) or (
            _is_wide_float(found) and _is_text(kept)
        )
    if of.is_date(found):
        shown = of.is_date32(found) and _is_text(kept)
        return of.is_date(kept) or of.is_timestamp(kept) or of.is_integer(kept) or shown
    if of.is_timestamp(found):
        # In another zone, an hour of autumn is there twice, and offsets of long ago have seconds that do not show.
        shown = found.tz in (None, "UTC") and _is_text(kept)
        return of.is_timestamp(kept) or of.is_integer(kept) or shown
    if of.is_time(found):
        return of.is_time(kept) or of.is_integer(kept) or _is_text(kept)
    return of.is_duration(found) and (of.is_duration(kept) or of.is_integer(kept))


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        of.is_string(kind)
        or of.is_large_string(kind)
        or of.is_binary(kind)
        or of.is_large_binary(kind)
        or of.is_fixed_size_binary(kind)
    )


def _is_wide_float(kind: pa.DataType) -> bool:
    return bool(of.is_float32(kind) or of.is_float64(kind))
