"""De-duplication: emits each key once, for ever or within a period."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from taskplace.errors import InputError
from taskplace.spark.processors.base import Context, Keyed, Layout
from taskplace.spark.processors.facts import Facts, State, TimeColumn
from taskplace.spark.processors.groups import grouped

_BATCH = "seen_in_batch"


class Deduplicate(Keyed):
    """Emits the first row of each key and remembers the key. Later rows of the key are dropped.

    - `store`: the name of its store; `by`: the key's columns, with their types

    The store keeps, per key, the batch in which the key was first seen. Keys with nulls are ordinary keys.

    With `ttl`, a key expires the duration `ttl` after the event time in the column `time` of its first row. A row is
    dropped and counted as late if it is so late that its key may already have expired.

    The key has to contain the columns that the input is split by: otherwise equal ids may reach several tasks. Behind a
    topic keyed by user, ids that belong to one user are de-duplicated by (user, id). Behind a node that emits changes,
    de-duplication is refused, because the row that passes depends on the batches; with `over_changes`, it is accepted.

    Key values are cast to the declared types: with by={"id": "int64"}, the texts "7" and "07" are one key. The store
    has a column `seen_in_batch`, so no key column may have that name, in upper or lower case.

    Errors: `InputError` that names the processor and the argument, before anything starts; in a batch, for a key value
    that does not fit its type. O(rows) for each batch. Without `ttl`, the store grows with the number of keys.

    Source: Spark's `dropDuplicates`, and `dropDuplicatesWithinWatermark` with `ttl`.

    >>> Deduplicate("seen", by={"id": "int64"}).layouts()
    {'seen': {'key': {'id': 'int64'}, 'value': {'seen_in_batch': 'int64'}}}
    """

    def __init__(
        self,
        store: str,
        *,
        by: Mapping[str, object] | pa.Schema,
        ttl: Any = None,
        time: str | None = None,
        over_changes: bool = False,
    ) -> None:
        super().__init__("Deduplicate", store, by, ttl=ttl, time=time, over_changes=over_changes)
        if taken := sorted(name for name in (*self._by, *filter(None, [time])) if name.lower() == _BATCH):
            expected = f"another name: the store adds a column {_BATCH!r} itself"
            raise InputError(self._path, found=f"a column {taken[0]!r}", expected=expected)
        self._kept = [time] if time is not None and time not in self._by else []

    def layouts(self) -> Mapping[str, Layout]:
        """Return the layout of the store."""
        value = {_BATCH: "int64", **dict.fromkeys(self._kept, "timestamp")}
        return {self.store: {"key": self._by, "value": value, **self._forgetting}}

    def infer(self, inputs: tuple[Facts, ...]) -> Facts:
        """Return that rows pass unchanged, each as the final one of its key.

        Refuses missing columns and types that the key cannot have. Refuses changes: the row that passes depends on the
        intermediate rows.
        """
        (rows,) = inputs
        self._check_key(rows)
        for column in self._kept:
            rows.require(column, "time", time=True)
        if rows.changes is not None and not self._over_changes:
            raise rows.changes.refused(self._path, "the first row of a key among rows of")
        path = f"by.{self._time}" if self._time in self._by else "time"
        time = None if self._time is None else TimeColumn(0, self._time, path)
        return replace(rows, changes=None, time=time, states={self.store: State()})

    def process(self, context: Context, rows: pa.Table) -> pa.Table:
        """Return the rows whose key is new, in input order. O(rows)."""
        if not rows.num_rows:
            return rows
        store = context.store(self.store)
        if self._forgetting:
            rows = rows.filter(pa.array(~store.is_late(rows)))
        numbers = pa.chunked_array([pa.array(np.arange(rows.num_rows))])
        _, (first,) = grouped(self._codec(store.schema.key).canonical(rows).columns, [("min", numbers)])
        candidates = rows.take(first)
        new = candidates.filter(pa.array(~store.contains_many(candidates)))
        batch = pa.array(np.full(new.num_rows, context.batch_id, np.int64))
        if new.num_rows:
            store.put_many(new.select([*self._by, *self._kept]).append_column(_BATCH, batch))
        return new
