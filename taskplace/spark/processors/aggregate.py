"""Running aggregates by key, also by window of event time.

Arrow aggregates the batch; the result is merged with the stored aggregates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from taskplace.spark.processors.aggregate import WINDOW, Tumbling, check_arguments, parts_of
from taskplace.spark.processors.arguments import known_arguments
from taskplace.spark.processors.base import Context, Layout, columns_of, forgetting, store_name
from taskplace.spark.processors.changes import Changes, Column, Course
from taskplace.spark.processors.facts import (
    Columns,
    InputColumn,
    Types,
    columns_sent,
    columns_taken,
    is_time,
    row_of_nulls,
)
from taskplace.spark.processors.parts import Aggregation, Parts, count
from taskplace.spark.processors.times import TimeColumn, Times
from taskplace.spark.processors.traits import Traits
from taskplace.spark.state.store import Store
from taskplace.spark.types import arrow_schema
from taskplace.validation import boolean

#: By function, how an aggregate's value develops as rows are added.
_COURSES: Mapping[str, Course] = {
    "count_all": "rising",
    "count": "rising",
    "max": "rising",
    "min": "falling",
    "first": "settled",
}


class Aggregate:
    """Keeps running aggregates by key in one store, and emits the new value of every key that the batch touched.

    - `store`: the name of its store; `by`: the key's columns, with their types
    - each aggregate is a keyword, the name of its output column: `total=sum_("amount", "int64")`

    With `window`, the key has one more column, `window_start`, and windows expire when they close. Later rows are
    dropped, and counted as late.

    With `ttl`, a key expires the duration `ttl` after the event time in its column `time`. That is a key column, or an
    aggregate such as `seen=max_("at", "timestamp")`. If the new aggregate would already be expired (`last("at")` of
    late rows), it is dropped, and the key is counted as late. The stored value is emitted; without one, the batch's own
    aggregate.

    Each value is cast to the aggregate's type before aggregation: `max_("w", "int64")` of the texts "9" and "10" is 10.
    A value that does not fit is an error: an integer beyond 2^53 that a float64 does not hold, for example. Of a float,
    decimal or text, a float takes the nearest value. So results do not depend on batch boundaries, except for the
    rounding of floats (`sum_`). 0.0 and -0.0 are one value, 0.0.

    Behind a node that emits changes, such as a running count, an aggregate that would count intermediate rows is
    refused at the start. With `over_changes`, each change is a row of its own (`taskplace.spark.processors.changes`).

    Errors: `InputError` that names the processor and the argument, before anything starts; in a batch, with the column,
    for a value that does not fit its type. O(rows + keys) for each batch.

    Source: Kafka Streams' `KGroupedStream.aggregate`, and `TimeWindowedKStream.aggregate` with `window`;
    `emit="final"` is its `suppress(untilWindowCloses)` (KIP-328).

    >>> from taskplace.spark.processors import max_
    >>> delays = Aggregate("delays", by={"tailnum": "string"}, flights=count(), worst=max_("delay", "int64"))
    >>> delays.layouts()["delays"]["value"]
    {'flights': 'int64', 'worst': 'int64'}
    """

    traits = Traits(
        keeps_state_by_key=True,
        by_has_split_key=True,
        keeps_key_columns=True,
        passes_keys_on=False,
        owns_its_store=True,
    )

    @known_arguments()
    def __init__(
        self,
        store: str,
        *,
        by: Mapping[str, object] | pa.Schema,
        window: Tumbling | None = None,
        ttl: Any = None,
        time: str | None = None,
        over_changes: bool = False,
        **aggregates: Aggregation,
    ) -> None:
        self.store = store_name(store, type(self).__name__)
        path = self._path = f"Aggregate({store!r})"
        keys = columns_of(by, f"{path}.by", empty=True)
        check_arguments(path, keys=keys, aggregates=aggregates, window=window, ttl=ttl)
        self._window, self._time = window, time
        self._over_changes = boolean(over_changes, f"{path}.over_changes")
        self._by = keys if window is None else {**keys, WINDOW: "timestamp"}
        self._forgetting = (
            forgetting(path, ttl, time)
            if window is None
            else {"time": WINDOW, "retention_ms": window.closes_ms}
        )
        self._aggregates = aggregates
        self._parts = parts_of(path, by=self._by, aggregates=aggregates, window=window)
        self._stored = Parts(path, self._by, self._parts)

    @property
    def windowed(self) -> bool:
        """Whether the key contains the start of a window, which input rows do not have."""
        return self._window is not None

    @property
    def key_columns_made(self) -> tuple[str, ...]:
        """The columns of the store's key that the processor makes: the start of the window, which no row brings."""
        return (WINDOW,) if self.windowed else ()

    def layouts(self) -> Mapping[str, Layout]:
        """Return the layout of the store: the key's columns, and one column per part.

        Its `meaning` has the function and the column of each part, the size and the column of the windows, and when
        they are emitted. None of these may change while state is stored: sums of two columns would be added up, and an
        open window would never be emitted, or be emitted twice.
        """
        value = {name: part.type for name, part in self._parts.items()}
        meaning = {name: part.function for name, part in self._parts.items()}
        if self._window is not None:
            meaning |= {"window": f"{self._window.size_ms} ms", "emit": self._window.emit}
        columns = {name: part.column for name, part in self._parts.items() if part.column is not None}
        if self._window is not None:
            columns[WINDOW] = self._window.column
        # An aggregate may have any name. If it has one of these, its function counts.
        meaning = {f"column of {name}": column for name, column in columns.items()} | meaning
        return {self.store: {"key": self._by, "value": value, **self._forgetting, "meaning": meaning}}

    def input_columns(self) -> Iterator[InputColumn]:
        """Yield the required input columns: the window's, the key's, and the aggregated ones."""
        if self._window is not None:
            yield InputColumn(0, self._window.column, "window.column", time=True)
        own = {name: kind for name, kind in self._by.items() if name != WINDOW or not self.windowed}
        yield from columns_taken("by", 0, own)
        for name, part in self._parts.items():
            if part.column is not None:
                yield InputColumn(0, part.column, name, part.function != "count" and is_time(part.type))

    def check_types(self, rows: Types) -> None:
        """Refuse columns that cannot be cast to the types of the key and of the aggregates."""
        row = row_of_nulls(rows)
        keyed = row
        if self._window is not None:
            keyed = row.drop_columns([WINDOW]) if WINDOW in rows else row
            keyed = keyed.append_column(WINDOW, self._window.starts(row))
        self._stored.of_rows(keyed, row)

    def output_columns(self, rows: Columns | None) -> Columns | None:
        """Return the output columns: the key's, the aggregates, and the window's time."""
        values = {
            name: "float64" if whole.function == "mean" else whole.type
            for name, whole in self._aggregates.items()
        }
        ends = {self._window.time: "timestamp"} if self._window is not None and self._window.time else {}
        return columns_sent({**self._by, **values, **ends})

    def check_changes(self, rows: Changes | None) -> None:
        """Refuse aggregates over changes whose result depends on the intermediate rows."""
        if rows is None or self._over_changes:
            return
        kinds = arrow_schema({name: part.type for name, part in self._parts.items()})
        for name, whole in self._aggregates.items():
            for part, how in whole.parts(name).items():
                if not rows.harmless(how.function, how.column, kinds.field(part).type, list(self._by)):
                    what = "a count" if how.column is None else f"a {how.function} of {how.column!r}"
                    raise rows.refused(f"{self._path}.{name}", f"{what} over rows of")
        for name in rows.moving(name for name in self._by if name not in self.key_columns_made):
            raise rows.refused(f"{self._path}.by.{name}", f"a key column {name!r} that may change in rows of")
        if self._window is not None and rows.moving([self._window.column]):
            raise rows.refused(
                f"{self._path}.window.column", f"a time {self._window.column!r} that may change in rows of"
            )

    def output_changes(self, node: str, rows: Changes | None) -> Changes | None:
        """Return how the output's columns change until a key's last row; None if each row is final."""
        if self._window is not None and self._window.emit == "final":
            return None
        fixed = dict(self._by)
        if self._window is not None and self._window.time is not None:
            fixed[self._window.time] = "timestamp"
        columns = {field.name: Column("fixed", field.type) for field in arrow_schema(fixed)}
        if self._forgetting and self._window is None:
            return Changes(node, columns)  # after its `ttl`, a key begins anew
        for name, whole in self._aggregates.items():
            course = _COURSES.get(whole.function)
            if course is not None:
                columns[name] = Column(course, arrow_schema({name: whole.type}).field(name).type)
        return Changes(node, columns, tuple(self._by))

    def input_time(self) -> TimeColumn | None:
        """Return the input column whose event time makes keys expire; None if they never expire."""
        if self._window is not None:
            return TimeColumn(0, self._window.column)
        part = self._parts.get(self._time or "")
        column = part.column if part is not None else self._time
        return None if column is None else TimeColumn(0, column)

    def output_times(self, times: Times) -> Times:
        """Return the output's time columns, given the input's."""
        if self._window is None:
            # A key column has a row's own time. `max_` of a key is the time of a row of the batch, or newer.
            sent = {name: name for name in self._by}
            sent |= {name: part.column or "" for name, part in self._parts.items() if part.function == "max"}
            kinds = arrow_schema({**self._by, **{name: part.type for name, part in self._parts.items()}})
            lags = {name: times.lag(column) for name, column in sent.items()}
            stamps = {
                name: lag
                for name, lag in lags.items()
                if lag is not None and pa.types.is_timestamp(kinds.field(name).type)
            }
            return Times(stamps, lost=times.lost, dropped=times.dropped)
        closed = (times.lag(self._window.column) or 0) + 1000 * self._window.closes_ms
        ends = {self._window.time: closed - 1000 * self._window.size_ms} if self._window.time else {}
        return Times({WINDOW: closed - 1, **ends})

    def process(self, context: Context, rows: pa.Table) -> pa.Table:
        """Return key and aggregates of the keys in `rows`, including this batch, or of the windows that closed.

        O(rows + keys). Errors: `InputError` for a value that an aggregate's type cannot hold.
        """
        store = context.store(self.store)
        keyed = rows  # the rows with all key columns; `rows` has no window start
        if self._window is not None:
            keyed, rows = self._in_windows(store, rows)
        batch = self._stored.of_rows(keyed, rows)
        if batch.num_rows:
            old, present = store.get_many(batch)
            if present.any():
                batch = self._stored.merged(old, present, batch)
            batch = self._put(store, batch)
        if self._window is not None and self._window.emit == "final":
            store.expire()
            batch = store.gone
        return self._shown(batch)

    def _in_windows(self, store: Store, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return the rows in open windows twice: with the new `window_start`, and unchanged. The other rows are late.

        Rows are grouped by the first table. Aggregates read the second, because the input may have a column
        `window_start`.
        """
        starts = self._window.starts(rows)  # type: ignore[union-attr]
        if starts.null_count:
            store.late += starts.null_count
            there = pc.is_valid(starts)
            rows, starts = rows.filter(there), starts.filter(there)
        keyed = rows.drop_columns([WINDOW]) if WINDOW in rows.column_names else rows
        keyed = keyed.append_column(WINDOW, starts)
        open_ = pa.array(~store.is_late(keyed))
        return keyed.filter(open_), rows.filter(open_)

    def _put(self, store: Store, batch: pa.Table) -> pa.Table:
        """Put the keys' rows, and return them as stored; a row of a key without a stored one is returned as it is."""
        late = store.late
        store.put_many(batch)
        if store.late == late:
            return batch
        held, there = store.get_many(batch)
        own = np.arange(batch.num_rows)
        rows = pa.array(np.where(there, own + batch.num_rows, own))
        columns = {name: batch[name] for name in self._by}
        for name in self._parts:
            columns[name] = pa.chunked_array([*batch[name].chunks, *held[name].chunks]).take(rows)
        return pa.table(columns)

    def _shown(self, batch: pa.Table) -> pa.Table:
        columns = {key: batch[key] for key in self._by}
        for name, whole in self._aggregates.items():
            columns[name] = self._mean(batch, name) if whole.function == "mean" else batch[name]
        if self._window is not None and self._window.time is not None:
            columns[self._window.time] = self._window.times(batch[WINDOW])
        return pa.table(columns)

    @staticmethod
    def _mean(batch: pa.Table, name: str) -> pa.ChunkedArray:
        counts = batch[f"{name}_count"]
        known = pc.if_else(pc.equal(counts, 0), None, counts)
        sums = batch[f"{name}_sum"].cast(pa.float64(), safe=False)
        return pc.divide(sums, known.cast(pa.float64(), safe=False))


class Count(Aggregate):
    """Counts the rows of each key, in the column `count`; `window`, `ttl`, `time` and errors as in `Aggregate`.

    Source: Kafka Streams' `KGroupedStream.count`.

    >>> Count("orders", by={"customer": "string"}).layouts()["orders"]["value"]
    {'count': 'int64'}
    """

    traits = Aggregate.traits

    @known_arguments()
    def __init__(
        self,
        store: str,
        *,
        by: Mapping[str, object] | pa.Schema,
        window: Tumbling | None = None,
        ttl: Any = None,
        time: str | None = None,
        over_changes: bool = False,
    ) -> None:
        super().__init__(
            store, by=by, window=window, ttl=ttl, time=time, over_changes=over_changes, count=count()
        )
