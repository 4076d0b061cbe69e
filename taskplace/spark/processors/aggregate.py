"""Running aggregates by key, also by window of event time.

The batch is aggregated in Arrow, then merged with what the store has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from taskplace.errors import InputError
from taskplace.spark.processors.base import Context, Layout, forgetting
from taskplace.spark.state.expiry import micros, milliseconds
from taskplace.spark.state.rows import RowCodec, arrow_schema


@dataclass(frozen=True, slots=True)
class Aggregation:
    """One aggregate: how to compute it over a batch's rows, and how to merge two of them."""

    function: str
    column: str | None
    type: str
    merge: str

    def parts(self, name: str) -> dict[str, Aggregation]:
        """Return the columns kept in the store for it."""
        if self.function != "mean":
            return {name: self}
        return {f"{name}_sum": sum_(self.column or "", self.type), f"{name}_count": count(self.column)}


def count(column: str | None = None) -> Aggregation:
    """Count rows, or the rows where `column` is not null."""
    return Aggregation("count" if column else "count_all", column, "int64", "sum")


def sum_(column: str, type: str = "float64") -> Aggregation:
    """Add up `column`; null as long as no value was seen. Integers stay exact; a sum beyond their type is an error."""
    return Aggregation("sum", column, type, "sum")


def min_(column: str, type: str = "float64") -> Aggregation:
    """Keep the least value of `column`."""
    return Aggregation("min", column, type, "min")


def max_(column: str, type: str = "float64") -> Aggregation:
    """Keep the greatest value of `column`."""
    return Aggregation("max", column, type, "max")


def first(column: str, type: str = "string") -> Aggregation:
    """Keep the first value of `column` that is not null."""
    return Aggregation("first", column, type, "first")


def last(column: str, type: str = "string") -> Aggregation:
    """Keep the last value of `column` that is not null."""
    return Aggregation("last", column, type, "last")


def avg(column: str, type: str = "float64") -> Aggregation:
    """Average `column`: kept as a sum (of `type`) and a count, sent on as their quotient (float64)."""
    return Aggregation("mean", column, type, "")


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows of event time, one after the other, from 1970 (UTC) on; a row is in just one of them.

    `column`: the rows' event time. `grace`: how long after a window's end rows are still taken, by the watermark;
    then the window closes and is forgotten. `emit`: "changes" sends on every window that a batch touched,
    "final" each window once, when it closes.
    """

    column: str
    size: str | timedelta | int
    grace: str | timedelta | int = 0
    emit: Literal["changes", "final"] = "changes"

    @property
    def size_ms(self) -> int:
        """The length of a window."""
        return milliseconds(self.size, f"Tumbling({self.column!r}).size")

    @property
    def closes_ms(self) -> int:
        """How long after its start a window closes."""
        return self.size_ms + (
            milliseconds(self.grace, f"Tumbling({self.column!r}).grace") if self.grace else 0
        )

    def starts(self, rows: pa.Table) -> pa.Array:
        """Return the start of each row's window; null for a row without a time."""
        times, known = micros(rows[self.column])
        size = 1000 * self.size_ms
        return pa.array(times // size * size, pa.int64(), mask=~known).cast(pa.timestamp("us", tz="UTC"))


WINDOW = "window_start"


class Aggregate:
    """Running aggregates by key, in one store; sends on the new value of every key that the batch touched.

    With `window`, the key has one more column, `window_start`, and windows are forgotten when they close; rows that
    come later are dropped, and counted as late. With `ttl`, a key is forgotten so long after the event time in its
    column `time`: a key column, or an aggregate such as `seen=max_("at", "timestamp")`.

    >>> delays = Aggregate("delays", by={"tailnum": "string"}, flights=count(), worst=max_("delay", "int64"))
    >>> delays.layouts()["delays"]["value"]
    {'flights': 'int64', 'worst': 'int64'}
    """

    def __init__(
        self,
        store: str,
        *,
        by: Mapping[str, object],
        window: Tumbling | None = None,
        ttl: Any = None,
        time: str | None = None,
        **aggregates: Aggregation,
    ) -> None:
        if not by or not aggregates:
            raise InputError(
                f"Aggregate({store!r})",
                found=f"by={dict(by)}",
                expected="at least one key column and one aggregate",
            )
        path = f"Aggregate({store!r})"
        if window is not None and (ttl is not None or WINDOW in {*by, *aggregates}):
            raise InputError(
                path,
                found="a window, and a ttl" if ttl is not None else f"a window, and a column {WINDOW!r}",
                expected=f"the window alone: it adds the column {WINDOW!r}, and says when it is forgotten",
            )
        if window is not None and window.emit not in ("changes", "final"):
            raise InputError(f"{path}.window.emit", found=window.emit, expected="'changes' or 'final'")
        self.store = store
        self._window = window
        self._by = dict(by) if window is None else {**by, WINDOW: "timestamp"}
        self._forgetting = (
            forgetting(path, ttl, time)
            if window is None
            else {"time": WINDOW, "retention_ms": window.closes_ms}
        )
        self._aggregates = aggregates
        self._parts: dict[str, Aggregation] = {}
        for name, whole in aggregates.items():
            parts = whole.parts(name)
            if taken := sorted(set(parts) & {*self._by, *self._parts}):
                raise InputError(
                    f"Aggregate({store!r}).{name}",
                    found=f"the column {taken[0]!r} twice",
                    expected="names unlike the keys and each other; an average x keeps x_sum and x_count",
                )
            self._parts |= parts

    def layouts(self) -> Mapping[str, Layout]:
        """Return the layout of the store: the key's columns, and one column per part."""
        value = {name: part.type for name, part in self._parts.items()}
        return {self.store: {"key": self._by, "value": value, **self._forgetting}}

    def process(self, context: Context, rows: pa.Table) -> pa.Table:
        """Return (key, aggregates) of the keys in `rows`, this batch included, or of the windows that closed.

        O(rows + keys). Errors: `InputError` for a sum of integers that its type cannot hold.
        """
        store = context.store(self.store)
        if self._window is not None:
            rows = rows.append_column(WINDOW, self._window.starts(rows))
            rows = rows.filter(pa.array(~store.is_late(rows)))
        keys = list(self._by)
        batch = self._grouped(
            rows, {name: (part.function, part.column) for name, part in self._parts.items()}
        )
        if batch.num_rows:
            old, found = store.get_many(batch)
            if found.any():
                # What was known comes first: `first` and `last` are order-dependent.
                known = pa.table(
                    {**{key: batch[key] for key in keys}, **{name: old[name] for name in self._parts}}
                )
                both = pa.concat_tables([known.filter(pa.array(found)), batch])
                batch = self._grouped(both, {name: (part.merge, name) for name, part in self._parts.items()})
            store.put_many(batch)
        final = self._window is not None and self._window.emit == "final"
        return self._shown(store.gone if final else batch)

    def _shown(self, batch: pa.Table) -> pa.Table:
        columns = {key: batch[key] for key in self._by}
        for name, whole in self._aggregates.items():
            columns[name] = self._mean(batch, name) if whole.function == "mean" else batch[name]
        return pa.table(columns)

    def _grouped(self, rows: pa.Table, wanted: Mapping[str, tuple[str, str | None]]) -> pa.Table:
        """Group by the key and aggregate; the columns come back named and typed as the store has them."""
        keys = arrow_schema(self._by)
        canonical = RowCodec(keys, f"Aggregate({self.store!r}).by").canonical(rows)
        columns = {name: canonical[name] for name in keys.names}
        specs: list[tuple[str | list[str], str]] = []
        names = []
        exact = []
        for i, (function, column) in enumerate(wanted.values()):
            # Each aggregate gets a column of its own: two of one column and function would get one name.
            if column is None:
                specs.append(([], function))
                names.append(function)
            else:
                columns[f"__{i}"] = rows[column]
                specs.append((f"__{i}", function))
                names.append(f"__{i}_{function}")
                if function == "sum" and _may_wrap(rows[column]):
                    columns[f"__{i}_about"] = rows[column].cast(pa.float64(), safe=False)
                    specs.append((f"__{i}_about", "sum"))
                    exact.append(i)
        grouped = pa.table(columns).group_by(keys.names, use_threads=False).aggregate(specs)
        for i in exact:
            self._check_sum(list(wanted)[i], grouped[f"__{i}_sum"], grouped[f"__{i}_about_sum"])
        types = arrow_schema({name: self._parts[name].type for name in wanted})
        found = {key: grouped[key] for key in keys.names}
        for name, source in zip(wanted, names, strict=True):
            index = grouped.schema.get_all_field_indices(source)[0]
            found[name] = grouped.column(index).cast(types.field(name).type)
        return pa.table(found)

    def _check_sum(self, name: str, sums: pa.ChunkedArray, about: pa.ChunkedArray) -> None:
        """Raise `InputError` where an integer sum is far from the same sum in floats: it has wrapped, by 2^64."""
        differ = pc.abs(pc.subtract(sums.cast(pa.float64(), safe=False), about))
        if (pc.max(differ).as_py() or 0) > 2.0**62:
            raise InputError(
                f"Aggregate({self.store!r}).{name}",
                found=f"a sum of about {pc.max(pc.abs(about)).as_py():.4g}",
                expected="at most 2^63 - 1, what an int64 holds; keep it as 'float64', or in coarser units",
            )

    @staticmethod
    def _mean(batch: pa.Table, name: str) -> pa.ChunkedArray:
        counts = batch[f"{name}_count"]
        known = pc.if_else(pc.equal(counts, 0), None, counts)
        return pc.divide(batch[f"{name}_sum"].cast(pa.float64()), known.cast(pa.float64()))


def _may_wrap(column: pa.ChunkedArray) -> bool:
    """Return whether a sum of these integers could go beyond 64 bits at all."""
    if not pa.types.is_integer(column.type) or not len(column):
        return False
    ends = pc.min_max(column).as_py()
    return max(abs(ends["min"] or 0), abs(ends["max"] or 0)) * len(column) >= 2**62


class Count(Aggregate):
    """A running count of rows by key, in the column `count`; `window`, `ttl` and `time` as in `Aggregate`."""

    def __init__(
        self,
        store: str,
        *,
        by: Mapping[str, object],
        window: Tumbling | None = None,
        ttl: Any = None,
        time: str | None = None,
    ) -> None:
        super().__init__(store, by=by, window=window, ttl=ttl, time=time, count=count())
