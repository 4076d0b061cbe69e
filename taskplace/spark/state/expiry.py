"""Expiry by event time: when an entry of a store has expired, and how expired entries are found.

An entry's time is one of its own columns. It has expired when `time + ttl <= watermark`. Watermarks are fixed before
the batch begins, so every replay and every copy expires the same entries. An entry without a time (null) never
expires. Times may be anywhere within 64 bits of microseconds, far beyond the years of Python's `datetime`, so that a
wild time in one row causes no error. Times beyond 64 bits count as the nearest time within.

An entry that has expired by the watermark of the batch before is invisible, and rows for it are late. An entry that
has expired by the batch's own watermark is removed after the batch's rows were processed. An index finds these entries:

    [due, 8 bytes, big-endian][digest of the key, 16 bytes] -> key

`due` is the end of the time slot of the entry's time. So an entry that is updated often is written to the index only
once per slot. An update leaves the index entry of an older slot behind, which is dropped when it is due. If the time
is a part of the key, as with windows, it never changes, and `due` is the time itself.

So the runtime removes an entry up to a slot after it has expired. Nobody sees that, because the entry is invisible. A
processor that sends what has expired has to send it in the batch in which it expires: later, nodes behind it could take
it for late. So for its stores, the entries of the slot in which the first ones expire are written to the index again,
with their time as `due`. That is once for an entry, shortly before it goes.
Removals go through the changelog like any other change: the active copy decides, and followers replay.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta, timezone

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from taskplace.errors import InputError

#: "~" is not legal in a store's name, so no store has the name of another store's index.
SUFFIX = "~expiry"
#: The most entries of a store that a task removes in one batch, so that a jump of the watermark does not stall it.
REMOVED_PER_BATCH = 50_000
#: The most bytes of encoded keys and values likewise: they are held in memory, and written to the undo record.
REMOVED_BYTES_PER_BATCH = 64 << 20
SLOTS = 32
SECOND = 1_000_000
#: The limits of 64 bits: the first and the last possible time.
FIRST, LAST = -(1 << 63), (1 << 63) - 1

_UNITS = {"s": (SECOND, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}
DAY = 86_400 * SECOND

Times = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def index_of(store: str) -> str:
    """Return the name of a store's expiry index.

    >>> index_of("seen")
    'seen~expiry'
    """
    return store + SUFFIX


def as_datetime(micros: int | None) -> datetime | None:
    """Return microseconds since 1970 (UTC) as a datetime; times beyond the limits of `datetime` give the nearest limit.

    >>> as_datetime(1_000_000)
    datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.timezone.utc)
    >>> as_datetime(2**63 - 1) == datetime.max.replace(tzinfo=timezone.utc)
    True
    """
    if micros is None:
        return None
    try:
        return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=micros)
    except OverflowError:
        return (datetime.min if micros < 0 else datetime.max).replace(tzinfo=timezone.utc)


def check_time(kind: pa.DataType, path: str) -> None:
    """Refuse a time column that is neither a timestamp nor a date: a number has no unit, and a text has no known form.

    >>> check_time(pa.int64(), "Tumbling('at').column")
    Traceback (most recent call last):
    taskplace.errors.InputError: Tumbling('at').column: found 'int64', expected a timestamp or a date; \
cast the column before, according to its unit
    """
    if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_null(kind)):
        hint = "cast the column before, according to its unit"
        raise InputError(path, found=str(kind), expected="a timestamp or a date", hint=hint)


def micros(column: pa.Array | pa.ChunkedArray, path: str = "time") -> tuple[Times, Mask]:
    """Return times in microseconds since 1970 (UTC), and which rows have one; a date counts as its midnight.

    A time between two microseconds counts as the earlier one. O(rows). Errors: `InputError` for other types.
    """
    check_time(column.type, path)
    raw, known, multiplier, divisor = _raw(column)
    if divisor > 1:
        return raw // divisor, known
    if multiplier == 1:
        return raw, known
    least, most = -(-FIRST // multiplier), LAST // multiplier
    times = np.clip(raw, least, most) * multiplier
    times[raw < least] = FIRST
    times[raw > most] = LAST
    return times, known


def _raw(column: pa.Array | pa.ChunkedArray) -> tuple[Times, Mask, int, int]:
    """Return the stored times, which rows have one, and the multiplier and divisor that give microseconds."""
    kind, whole = column.type, pa.int64()
    if pa.types.is_date32(kind):
        (multiplier, divisor), whole = (DAY, 1), pa.int32()
    elif pa.types.is_date64(kind):
        multiplier, divisor = _UNITS["ms"]
    else:
        if not pa.types.is_timestamp(kind):
            column = column.cast(pa.timestamp("us"))  # all nulls
        multiplier, divisor = _UNITS[column.type.unit]
    known = column.is_valid().to_numpy(zero_copy_only=False)
    raw = pc.fill_null(column.cast(whole), 0).to_numpy(zero_copy_only=False)
    return np.asarray(raw, np.int64), np.asarray(known, np.bool_), multiplier, divisor


def expired(column: pa.Array | pa.ChunkedArray, ttl: int, watermark: int | None, path: str = "time") -> Mask:
    """Return which of the entries with these times have expired; `ttl` and `watermark` in microseconds.

    Errors: `InputError` for a column that is no time, for any watermark.
    """
    check_time(column.type, path)
    if watermark is None:
        return np.zeros(len(column), np.bool_)
    raw, known, multiplier, divisor = _raw(column)
    # Computed with Python's unlimited integers in the column's own unit, so that nothing is rounded.
    newest = (watermark - ttl) * divisor // multiplier
    if newest < FIRST:
        return np.zeros(len(column), np.bool_)
    return known & (raw <= min(newest, LAST))


def slot_starts(times: Times, slot: int) -> Times:
    """Return the start of each time's slot; slots follow each other without gaps, and one starts at 1970.

    >>> slot_starts(np.array([-1, 0, 7]), 5).tolist()
    [-5, 0, 5]
    """
    into = times % slot
    return np.asarray(np.maximum(times, FIRST + into) - into, np.int64)


def slot_of(ttl: int) -> int:
    """Return the length of a time slot: a fraction of the TTL, but at least a second."""
    return max(ttl // SLOTS, SECOND)


def due(times: Times, ttl: int) -> Times:
    """Return the end of each time's slot.

    A slot that ends after the last possible time is never due.
    """
    slot = slot_of(ttl)
    left = slot - times % slot
    return np.asarray(np.minimum(times, LAST - left) + left, np.int64)


def index_key(due_at: int, key: bytes) -> bytes:
    """Return the index's key for a store's key. Index keys sort by `due_at`."""
    return (due_at + (1 << 63)).to_bytes(8, "big") + hashlib.blake2b(key, digest_size=16).digest()


def index_start(due_at: int) -> bytes:
    """Return a key that sorts before all index keys with this `due_at`, and behind those with earlier ones.

    >>> index_key(6, b"k") < index_start(7) < index_key(7, b"k")
    True
    """
    return (due_at + (1 << 63)).to_bytes(8, "big")


def due_of(index: bytes) -> int:
    """Return the `due_at` of an index key.

    >>> due_of(index_key(-5, b"k"))
    -5
    """
    return int.from_bytes(index[:8], "big") - (1 << 63)
