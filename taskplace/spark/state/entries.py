"""Reads entries of a copy by their keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

import lmdb

from taskplace.spark.state.keys import physical_all, restore_columns

if TYPE_CHECKING:
    from taskplace.spark.state.environment import Txn

#: A store with at most so many entries for each key that is asked for is read from end to end: the next entry takes
#: less than half of the time of a search.
SCANNED = 1.5


def get_values(txn: Txn, db: lmdb._Database, keys: Iterable[bytes]) -> dict[bytes, bytes | None]:
    """Return the value of each key, None for a missing key. It may return other entries of the store, too.

    O(keys x log size). Errors: `DamagedEntry` for an entry that has changed since it was written.
    """
    found: dict[bytes, bytes | None] = dict.fromkeys(keys)
    found.update(zip(*restore_columns(*_stored(txn, db, physical_all([*found]))), strict=True))
    return found


def _stored(txn: Txn, db: lmdb._Database, keys: Sequence[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Return the stored keys and values of these entries; of the whole store, if they are most of it and small."""
    there = txn.stat(db=db)
    if there["entries"] <= SCANNED * len(keys) and not there["overflow_pages"]:
        with txn.cursor(db=db) as cursor:
            return [*cursor.iternext(values=False)], [*cursor.iternext(keys=False)]
    in_order = sorted(keys)  # neighbours are on one page
    found: list[bytes | None] = list(map(partial(txn.get, db=db), in_order))
    if None in found:
        entries = [(key, raw) for key, raw in zip(in_order, found, strict=True) if raw is not None]
        return [key for key, _ in entries], [raw for _, raw in entries]
    return in_order, cast("list[bytes]", found)
