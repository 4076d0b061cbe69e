"""Reads entries of a copy by their keys."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import TYPE_CHECKING

import lmdb

from taskplace.spark.state.keys import physical_all, restore_values

if TYPE_CHECKING:
    from taskplace.spark.state.environment import Txn

#: A store with at most so many entries for each key that is asked for is read from end to end. A search for a key takes
#: about four times as long as reading the next entry.
SCANNED = 1.5
#: So many keys are searched at a time. LMDB returns a tuple for each; more that live on would set off Python's garbage
#: collector again and again.
AT_A_TIME = 512


def get_values(txn: Txn, db: lmdb._Database, keys: Sequence[bytes]) -> list[bytes | None]:
    """Return the value of each key, None for a missing key. O(keys x log size).

    Errors: `DamagedEntry` for an entry that has changed since it was written.
    """
    wanted = physical_all(keys)
    entries = _entries(txn, db, set(wanted))
    values = dict(zip(entries, restore_values([*entries], [*entries.values()]), strict=True))
    return list(map(values.get, wanted))


def _entries(txn: Txn, db: lmdb._Database, keys: Set[bytes]) -> dict[bytes, bytes]:
    """Return the stored entries with these keys; all of the store, if those are most of it and none is large."""
    there = txn.stat(db=db)
    with txn.cursor(db=db) as cursor:
        if there["entries"] <= SCANNED * len(keys) and not there["overflow_pages"]:
            return dict(cursor.iternext())
        found: dict[bytes, bytes] = {}
        in_order = sorted(keys)  # LMDB finds the next key faster on the page of the last one
        for start in range(0, len(in_order), AT_A_TIME):
            found.update(cursor.getmulti(in_order[start : start + AT_A_TIME]))
        return found
