"""Reads entries of a copy by their keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import lmdb

from taskplace.spark.state.keys import physical_all, restore_columns

if TYPE_CHECKING:
    from taskplace.spark.state.environment import Txn

#: A store with at most so many entries for each key that is asked for is read from end to end. A search for a key takes
#: about four times as long as reading the next entry.
SCANNED = 1.5
#: So many keys are searched at a time. LMDB returns a tuple for each; more that live on would set off Python's garbage
#: collector again and again.
AT_A_TIME = 512


def get_values(txn: Txn, db: lmdb._Database, keys: Iterable[bytes]) -> dict[bytes, bytes | None]:
    """Return the value of each key, None for a missing key. It may return other entries of the store, too.

    O(keys x log size). Errors: `DamagedEntry` for an entry that has changed since it was written.
    """
    found: dict[bytes, bytes | None] = dict.fromkeys(keys)
    found.update(zip(*restore_columns(*_stored(txn, db, physical_all([*found]))), strict=True))
    return found


def _stored(txn: Txn, db: lmdb._Database, keys: Sequence[bytes]) -> tuple[Sequence[bytes], Sequence[bytes]]:
    """Return the stored keys and values of these entries; of the whole store, if they are most of it and small."""
    there = txn.stat(db=db)
    with txn.cursor(db=db) as cursor:
        if there["entries"] <= SCANNED * len(keys) and not there["overflow_pages"]:
            return [*cursor.iternext(values=False)], [*cursor.iternext(keys=False)]
        found: dict[bytes, bytes] = {}
        in_order = sorted(keys)  # LMDB finds a key faster on the page of the one before
        for start in range(0, len(in_order), AT_A_TIME):
            found.update(cursor.getmulti(in_order[start : start + AT_A_TIME]))
        return [*found], [*found.values()]
