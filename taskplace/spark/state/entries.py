"""Reads entries of a copy by their keys."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import lmdb

from taskplace.spark.state.keys import physical_all, restore_columns

if TYPE_CHECKING:
    from taskplace.spark.state.environment import Txn


def get_values(txn: Txn, db: lmdb._Database, keys: Iterable[bytes]) -> dict[bytes, bytes | None]:
    """Return the value of each key, None for a missing key. O(keys x log size).

    Errors: `DamagedEntry` for an entry that has changed since it was written.
    """
    found: dict[bytes, bytes | None] = dict.fromkeys(keys)
    stored = physical_all([*found])
    # Not `getmulti`: it would return a tuple and one more key for each.
    raw = list(map(partial(txn.get, db=db), stored))
    if None in raw:
        stored = [key for key, value in zip(stored, raw, strict=True) if value is not None]
    there = [value for value in raw if value is not None]
    found.update(zip(*restore_columns(stored, there), strict=True))
    return found
