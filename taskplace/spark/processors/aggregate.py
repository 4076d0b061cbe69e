"""Running aggregates by key, also by window of event time.

Arrow aggregates the batch; the result is merged with the stored aggregates. A window says in which slot of event time a
row is, and when that slot closes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from taskplace.durations import Duration, milliseconds
from taskplace.errors import InputError
from taskplace.spark.processors.base import Context, Keyed, Layout
from taskplace.spark.processors.changes import Changes, Column, Course
from taskplace.spark.processors.facts import Facts, State, TimeColumn, is_time
from taskplace.spark.processors.parts import Aggregation, Parts, count
from taskplace.spark.processors.times import Times
from taskplace.spark.state.expiry import LAST, micros, slot_starts
from taskplace.spark.state.store import Store
from taskplace.spark.types import arrow_schema, column_of
from taskplace.validation import named, one_of

#: The column with the start of a row's window, which a windowed processor adds to its key.
WINDOW = "window_start"

#: By function, how an aggregate's value develops as rows are added.
_COURSES: Mapping[str, Course] = {
    "count_all": "rising",
    "count": "rising",
    "max": "rising",
    "min": "falling",
    "first": "settled",
}


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Consecutive windows of event time, counted from 1970 (UTC). Each row is in exactly one window.

    - `column`: the rows' event time, a timestamp
    - `size`: the length of a window, a duration with its unit ("1 hour")
    - `grace`: how long after a window's end rows are still accepted, measured by the watermark; then the window closes
      and expires
    - `emit`: "changes" emits every window that a batch touched; "final" emits each window once, when it closes
    - `time`: adds an output column of this name with the window's event time: its end less a microsecond, as Spark's
      `window_time`. A window over these rows uses this column, or `window_start`

    A row without an event time is in no window: it is dropped, and counted as late.

    Errors: `InputError` for what is no duration above 0 (`grace` may be 0), or a column that is no text.

    Source: Kafka Streams' `TimeWindows.ofSizeAndGrace`. Departure: `grace` is measured by the batch's watermark.

    >>> hours = Tumbling("at", "1 hour", grace="10 minutes")
    >>> hours.size_ms, hours.closes_ms
    (3600000, 4200000)
    """

    column: str
    size: Duration
    grace: Duration = 0
    emit: Literal["changes", "final"] = "changes"
    time: str | None = None

    def __post_init__(self) -> None:
        named(self.column, "Tumbling.column", "the name of a timestamp column")
        if self.time is not None:
            named(self.time, f"Tumbling({self.column!r}).time", "a name for a column")
        one_of(self.emit, f"Tumbling({self.column!r}).emit", ("changes", "final"))
        _ = self.closes_ms  # refuses what is no duration

    @property
    def size_ms(self) -> int:
        """The length of a window, in milliseconds."""
        return milliseconds(self.size, f"Tumbling({self.column!r}).size")

    @property
    def closes_ms(self) -> int:
        """The time from a window's start until it closes, in milliseconds."""
        return self.size_ms + milliseconds(self.grace, f"Tumbling({self.column!r}).grace", zero=True)

    def starts(self, rows: pa.Table) -> pa.Array:
        """Return the start of each row's window; null for a row without an event time."""
        path = f"Tumbling({self.column!r}).column"
        times, known = micros(column_of(rows, self.column, path), path)
        starts = slot_starts(times, 1000 * self.size_ms)
        return pa.array(starts, pa.int64(), mask=~known).cast(pa.timestamp("us", tz="UTC"))

    def times(self, starts: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return the event times of windows with these starts: the last microsecond of each."""
        known, length = starts.is_valid().to_numpy(), 1000 * self.size_ms - 1
        begin = pc.fill_null(starts.cast(pa.int64()), 0).to_numpy()
        ends = np.minimum(begin, LAST - length) + length
        return pa.chunked_array([pa.array(ends, pa.int64(), mask=~known).cast(pa.timestamp("us", tz="UTC"))])


class Aggregate(Keyed):
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
        super().__init__("Aggregate", store, by, ttl=ttl, time=time, over_changes=over_changes, empty=True)
        self._aggregates, self._window = aggregates, window
        self._made = () if window is None else (WINDOW,)
        self._check_arguments(ttl)
        if window is not None:
            self._by = {**self._by, WINDOW: "timestamp"}
            self._forgetting = {"time": WINDOW, "retention_ms": window.closes_ms}
        self._parts = self._stored_parts()
        self._stored = Parts(self._path, self._by, self._parts)

    def _check_arguments(self, ttl: Any) -> None:
        """Refuse arguments of the wrong kind, and arguments that exclude each other."""
        window, names = self._window, {*self._by, *self._aggregates}
        for name, aggregate in self._aggregates.items():
            named(name, self._path, "the name of a column")
            if not isinstance(aggregate, Aggregation):
                expected = "an aggregate, such as count() or sum_('amount')"
                raise InputError(f"{self._path}.{name}", found=aggregate, expected=expected)
        if not self._by or not self._aggregates:
            expected = "at least one key column and one aggregate"
            raise InputError(self._path, found=f"by={self._by}", expected=expected)
        if window is not None and not isinstance(window, Tumbling):
            expected = "Tumbling(column, size), such as Tumbling('at', '1 hour')"
            raise InputError(f"{self._path}.window", found=window, expected=expected)
        if window is not None and (ttl is not None or WINDOW in names):
            found = "a window and a ttl" if ttl is not None else f"a window and a column {WINDOW!r}"
            expected = f"only the window: it adds {WINDOW!r} and defines when entries expire"
            raise InputError(self._path, found=found, expected=expected)

    def _stored_parts(self) -> dict[str, Aggregation]:
        """Return the columns that the store keeps for the aggregates. Refuses names that occur twice."""
        stored: set[str] = set()  # in lower case, because Spark treats K and k as one name
        for key in self._by:
            self._take(key, key, stored)
        sent = set(stored)
        if self._window is not None and self._window.time is not None:
            self._take("window.time", self._window.time, sent)
        parts: dict[str, Aggregation] = {}
        for name, whole in self._aggregates.items():
            self._take(name, name, sent)
            for column, part in whole.parts(name).items():
                self._take(name, column, stored)
                parts[column] = part
        return parts

    def _take(self, name: str, column: str, taken: set[str]) -> None:
        if column.lower() in taken:
            expected = "a different name for each key and aggregate; an average x uses x_sum and x_count"
            raise InputError(f"{self._path}.{name}", found=f"the column {column!r} twice", expected=expected)
        taken.add(column.lower())

    def layouts(self) -> Mapping[str, Layout]:
        """Return the layout of the store: the key's columns, and one column per part.

        Its `meaning` has the function and the column of each part, the size and the column of the windows, and when
        they are emitted. None of these may change while state is stored: sums of two columns would be added up, and an
        open window would never be emitted, or be emitted twice.
        """
        value = {name: part.type for name, part in self._parts.items()}
        meaning = {name: part.function for name, part in self._parts.items()}
        columns = {name: part.column for name, part in self._parts.items() if part.column is not None}
        if self._window is not None:
            meaning |= {"window": f"{self._window.size_ms} ms", "emit": self._window.emit}
            columns[WINDOW] = self._window.column
        # An aggregate may have any name. If it has one of these, its function counts.
        meaning = {f"column of {name}": column for name, column in columns.items()} | meaning
        return {self.store: {"key": self._by, "value": value, **self._forgetting, "meaning": meaning}}

    def infer(self, inputs: tuple[Facts, ...]) -> Facts:
        """Return the key's columns, the aggregates and the window's time; refuse what cannot be aggregated.

        Refused are missing columns, types that cannot be cast to those of the key and the aggregates, and aggregates
        over changes whose result depends on the intermediate rows.
        """
        (rows,) = inputs
        self._check_columns(rows)
        if rows.changes is not None and not self._over_changes:
            self._check_changes(rows.changes)
        values = {n: "float64" if of.function == "mean" else of.type for n, of in self._aggregates.items()}
        keeps_routes = all(set(self._by).issuperset(route.columns) for route in rows.routes)
        return Facts(
            columns={**self._by, **values, **self._ends()},
            times=self._times(rows.times or Times()),
            changes=self._changes(),
            time=self._expires_by(),
            routes=rows.routes if keeps_routes else frozenset(),
            states={self.store: State(made=self._made)},
        )

    def _check_columns(self, rows: Facts) -> None:
        window = self._window
        if window is not None:
            rows.require(window.column, "window.column", time=True)
        rows.require_all("by", {n: kind for n, kind in self._by.items() if n not in self._made})
        for name, part in self._parts.items():
            if part.column is not None:
                rows.require(part.column, name, time=part.function != "count" and is_time(part.type))
        if (row := rows.nulls()) is not None:
            self._stored.of_rows(row if window is None else self._keyed(row, window.starts(row)), row)

    def _check_changes(self, rows: Changes) -> None:
        kinds, path = self._stored.types, self._path
        for name, whole in self._aggregates.items():
            for part, how in whole.parts(name).items():
                if not rows.harmless(how.function, how.column, kinds.field(part).type, list(self._by)):
                    what = "a count" if how.column is None else f"a {how.function} of {how.column!r}"
                    raise rows.refused(f"{path}.{name}", f"{what} over rows of")
        for name in rows.moving(name for name in self._by if name not in self._made):
            raise rows.refused(f"{path}.by.{name}", f"a key column {name!r} that may change in rows of")
        for name in rows.moving([self._window.column] if self._window is not None else []):
            raise rows.refused(f"{path}.window.column", f"a time {name!r} that may change in rows of")

    def _ends(self) -> dict[str, str]:
        """Return the column with the window's time, if it adds one."""
        return {self._window.time: "timestamp"} if self._window is not None and self._window.time else {}

    def _changes(self) -> Changes | None:
        """Return how the output's columns change until a key's last row; None if each row is final."""
        if self._window is not None and self._window.emit == "final":
            return None
        fixed = arrow_schema({**self._by, **self._ends()})
        columns = {field.name: Column("fixed", field.type) for field in fixed}
        if self._forgetting and self._window is None:
            return Changes(columns=columns)  # after its `ttl`, a key begins anew
        for name, whole in self._aggregates.items():
            if (course := _COURSES.get(whole.function)) is not None:
                columns[name] = Column(course, self._stored.types.field(name).type)
        return Changes(columns=columns, key=tuple(self._by))

    def _expires_by(self) -> TimeColumn | None:
        """Return the input column whose event time makes keys expire; None if they never expire."""
        if self._window is not None:
            return TimeColumn(0, self._window.column, "window.column")
        if (time := self._time) is None:
            return None
        if (part := self._parts.get(time)) is None:
            return TimeColumn(0, time, f"by.{time}")
        return None if part.column is None else TimeColumn(0, part.column, time)

    def _times(self, times: Times) -> Times:
        """Return the output's time columns, given the input's."""
        if self._window is None:
            # A key column has a row's own time. `max_` of a key is the time of a row of the batch, or newer.
            sent = {name: name for name in self._by}
            sent |= {name: part.column or "" for name, part in self._parts.items() if part.function == "max"}
            stamps = [
                each for each in (*self._stored.key, *self._stored.types) if pa.types.is_timestamp(each.type)
            ]
            lags = {each.name: times.lag(sent[each.name]) for each in stamps if each.name in sent}
            known = {name: lag for name, lag in lags.items() if lag is not None}
            return Times(known, lost=times.lost, dropped=times.dropped)
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
        keyed = self._keyed(rows, starts)
        open_ = pa.array(~store.is_late(keyed))
        return keyed.filter(open_), rows.filter(open_)

    @staticmethod
    def _keyed(rows: pa.Table, starts: pa.Array) -> pa.Table:
        """Return rows with the start of their window, in place of a column of that name."""
        keyed = rows.drop_columns([WINDOW]) if WINDOW in rows.column_names else rows
        return keyed.append_column(WINDOW, starts)

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

    infer = Aggregate.infer

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
