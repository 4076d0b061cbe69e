"""Running aggregates by key: the batch is aggregated in Arrow, then merged with what the store has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from taskplace.errors import InputError
from taskplace.spark.processors.base import Context, Layout
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
    """Add up `column`; null as long as no value was seen. Integers stay exact."""
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


class Aggregate:
    """Running aggregates by key, in one store; sends on the new value of every key that the batch touched.

    >>> delays = Aggregate("delays", by={"tailnum": "string"}, flights=count(), worst=max_("delay", "int64"))
    >>> delays.layouts()["delays"]["value"]
    {'flights': 'int64', 'worst': 'int64'}
    """

    def __init__(self, store: str, *, by: Mapping[str, object], **aggregates: Aggregation) -> None:
        if not by or not aggregates:
            raise InputError(
                f"Aggregate({store!r})",
                found=f"by={dict(by)}",
                expected="at least one key column and one aggregate",
            )
        self.store = store
        self._by = dict(by)
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
        return {
            self.store: {"key": self._by, "value": {name: part.type for name, part in self._parts.items()}}
        }

    def process(self, context: Context, rows: pa.Table) -> pa.Table:
        """Return (key, aggregates) of the keys in `rows`, this batch included. O(rows + keys)."""
        store = context.store(self.store)
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
        columns = {key: batch[key] for key in keys}
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
        for i, (function, column) in enumerate(wanted.values()):
            # Each aggregate gets a column of its own: two of one column and function would get one name.
            if column is None:
                specs.append(([], function))
                names.append(function)
            else:
                columns[f"__{i}"] = rows[column]
                specs.append((f"__{i}", function))
                names.append(f"__{i}_{function}")
        grouped = pa.table(columns).group_by(keys.names, use_threads=False).aggregate(specs)
        types = arrow_schema({name: self._parts[name].type for name in wanted})
        found = {key: grouped[key] for key in keys.names}
        for name, source in zip(wanted, names, strict=True):
            index = grouped.schema.get_all_field_indices(source)[0]
            found[name] = grouped.column(index).cast(types.field(name).type)
        return pa.table(found)

    @staticmethod
    def _mean(batch: pa.Table, name: str) -> pa.ChunkedArray:
        counts = batch[f"{name}_count"]
        known = pc.if_else(pc.equal(counts, 0), None, counts)
        return pc.divide(batch[f"{name}_sum"].cast(pa.float64()), known.cast(pa.float64()))


class Count(Aggregate):
    """A running count of rows by key, in the column `count`."""

    def __init__(self, store: str, *, by: Mapping[str, object]) -> None:
        super().__init__(store, by=by, count=count())
