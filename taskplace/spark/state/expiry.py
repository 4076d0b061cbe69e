"""Forgetting by event time: when an entry of a store has had its time, and how the ones that have are found.

An entry's time is one of its own columns. It has expired when `time + ttl <= watermark`; the watermark is that of
the batch, fixed before the batch begins, so every replay and every copy forgets the same entries. An entry without
a time (null) never expires.

Expired entries are invisible at once. They are removed a batch at a time, through an index beside the store:

    [due, 8 bytes, big-endian][digest of the key, 16 bytes] -> key

`due` is the end of the time slot that the entry's time fell into, so an entry that is updated often is written to
the index once a slot. An update leaves the older slot's entry behind; when that comes up, it is dropped.
Removals go through the changelog like any other change: followers replay them, nobody else judges.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from taskplace.errors import InputError

#: Not a legal character of a store's name, so that no store is ever called like another one's index.
SUFFIX = "~expiry"
#: How many entries of a store are removed in one batch at most, so that a jump of the watermark stalls nothing.
REMOVED_PER_BATCH = 50_000
SLOTS = 32
SECOND = 1_000_000

Times = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def index_of(store: str) -> str:
    """Return the name of the index that lies beside a store.

    >>> index_of("seen")
    'seen~expiry'
    """
    return store + SUFFIX


def milliseconds(duration: str | int | float | timedelta, path: str) -> int:
    """Return a duration in ms; text is what pandas reads as one. Errors: `InputError` if it is none, or not above 0.

    >>> milliseconds("7 days", "ttl"), milliseconds(timedelta(minutes=1), "ttl"), milliseconds(250, "ttl")
    (604800000, 60000, 250)
    """
    import pandas as pd

    try:
        if isinstance(duration, bool):
            raise ValueError(duration)
        found = (
            pd.Timedelta(duration, unit="ms") if isinstance(duration, int | float) else pd.Timedelta(duration)
        )
        ms = int(found.total_seconds() * 1000)
    except (ValueError, TypeError, OverflowError):
        ms = 0
    if ms < 1:
        raise InputError(path, found=duration, expected="a time above 0, such as '7 days', or milliseconds")
    return ms


def as_datetime(micros: int | None) -> datetime | None:
    """Return microseconds since 1970 (UTC) as a datetime.

    >>> as_datetime(1_000_000)
    datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.timezone.utc)
    """
    return None if micros is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def micros(column: pa.Array | pa.ChunkedArray) -> tuple[Times, Mask]:
    """Return times in microseconds since 1970 (UTC), and which there are; a date is its midnight."""
    if not pa.types.is_timestamp(column.type) or column.type.unit != "us":
        column = column.cast(pa.timestamp("us", tz=getattr(column.type, "tz", None)), safe=False)
    known = column.is_valid().to_numpy(zero_copy_only=False)
    times = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return np.asarray(times, np.int64), np.asarray(known, np.bool_)


def expired(column: pa.Array | pa.ChunkedArray, ttl: int, watermark: int | None) -> Mask:
    """Return which of the entries with these times have expired; `ttl` and `watermark` in microseconds."""
    if watermark is None:
        return np.zeros(len(column), np.bool_)
    times, known = micros(column)
    return known & (times <= watermark - ttl)


def due(times: Times, ttl: int) -> Times:
    """Return the end of each time's slot; a slot is a fraction of the TTL, and a second at least."""
    slot = max(ttl // SLOTS, SECOND)
    return (times // slot + 1) * slot


def index_key(due_at: int, key: bytes) -> bytes:
    """Return the index's key for a store's key. They sort by `due_at`."""
    return (due_at + (1 << 63)).to_bytes(8, "big") + hashlib.blake2b(key, digest_size=16).digest()


def due_of(index: bytes) -> int:
    """Return the `due_at` that `index_key` was given.

    >>> due_of(index_key(-5, b"k"))
    -5
    """
    return int.from_bytes(index[:8], "big") - (1 << 63)
