"""Joins a stream to a table. The table is itself a stream of updates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from taskplace.errors import InputError
from taskplace.spark.casts import keeps_order
from taskplace.spark.processors.base import Context, Keyed, Layout, columns_of
from taskplace.spark.processors.facts import Facts, State, TimeColumn
from taskplace.spark.processors.groups import grouped, in_order, not_before, ranks
from taskplace.spark.state.rows import codec_of
from taskplace.spark.state.store import Store
from taskplace.spark.types import arrow_schema, column_of
from taskplace.validation import named, one_of


class TableJoin(Keyed):
    """Keeps the table's rows in a store, and adds the columns of the key's table row to each stream row.

    - `store`: the name of its store
    - `by`: the key's columns, with their types; stream and table both have them
    - `columns`: the table's columns to add, with their types
    - `how`: a stream row without a table row gets nulls ("left"), or is dropped ("inner")

    Within a batch, all table rows are applied before any stream row is joined. So the result does not depend on how the
    two were interleaved.

    A null in a key matches nothing, not even a null, as in SQL and Kafka Streams. So a table row with a null in its key
    is not stored.

    If a key has several table rows, the last one is kept: the last to arrive or, with `order_by`, the last in the order
    of these table columns, compared in turn. Null is the lowest value, NaN the greatest float; of equal rows the later
    one wins. If all `order_by` columns are stored (among `by` and `columns`), older rows in later batches are ignored.
    If not, the later batch wins. A stored `order_by` column is compared in the type in which it is kept. A type that
    does not keep its order, such as the date of a timestamp, is refused: at the start if the table's types are known,
    otherwise in the task before it writes anything.

    `deleted` names a boolean column of the table. A row in which it is true removes its key's row, under the same
    rules. Nothing remains of a removed row: a row in a later batch is stored, however old it is.

    With `ttl`, a table row expires the duration `ttl` after the event time in its column `time`. A row that has already
    expired is dropped, and its key keeps the stored row.

    A table may be the changes of another node, such as a running count: the last row of a key is kept. Columns of `by`
    that change in its rows are refused, because outdated rows would stay in the table; with `over_changes`, they are
    accepted.

    Errors: `InputError` that names the processor and the argument, before anything starts; in a batch, for a value that
    does not fit its type. O(rows of both inputs) for each batch.

    Source: Kafka Streams' join of a KStream with a KTable. Departure: within a batch, all of the table's rows count for
    all of the stream's, whatever their times. Kafka topics that tasks read are aligned from batch to batch.

    >>> TableJoin("weather", by={"origin": "string"}, columns={"visib": "float64"}).layouts()
    {'weather': {'key': {'origin': 'string'}, 'value': {'visib': 'float64'}}}
    """

    def __init__(
        self,
        store: str,
        *,
        by: Mapping[str, object] | pa.Schema,
        columns: Mapping[str, object] | pa.Schema,
        how: Literal["left", "inner"] = "left",
        order_by: Sequence[str] = (),
        deleted: str | None = None,
        ttl: Any = None,
        time: str | None = None,
        over_changes: bool = False,
    ) -> None:
        super().__init__("TableJoin", store, by, ttl=ttl, time=time, over_changes=over_changes)
        self._how = one_of(how, f"{self._path}.how", ("left", "inner"))
        self._columns = columns_of(columns, f"{self._path}.columns")
        if not isinstance(order_by, list | tuple):
            raise InputError(f"{self._path}.order_by", found=order_by, expected="a list of column names")
        for option, names in (("order_by", order_by), ("deleted", () if deleted is None else (deleted,))):
            for name in names:
                named(name, f"{self._path}.{option}", "the name of a column of the table")
        self.order_by, self.deleted = tuple(order_by), deleted

    def layouts(self) -> Mapping[str, Layout]:
        """Return the layout of the store: the join's key, and the table's columns."""
        return {self.store: {"key": self._by, "value": self._columns, **self._forgetting}}

    def infer(self, inputs: tuple[Facts, ...]) -> Facts:
        """Return the stream's facts, with the table's columns. A table's columns are no event times: they may be old.

        Refuses missing columns; types that cannot be cast to the store's, cannot be ordered, or are not boolean; a
        column that both sides have; and a table whose rows change their key, because outdated rows would stay.
        """
        stream, table = inputs
        self._check_key(stream)
        self._check_key(table)
        table.require_all("columns", self._columns)
        for option, columns in (("order_by", self.order_by), ("deleted", filter(None, [self.deleted]))):
            for column in columns:
                table.require(column, option)
        if (row := table.nulls()) is not None:
            codec_of(arrow_schema(self._columns), f"{self._path}.columns").canonical(row)
            self._marks(row)
            if self.order_by:
                in_order(self._order(row))
        self._check_names(stream.columns or ())
        if (moves := table.changes) is not None and not self._over_changes:
            for name in moves.moving(self._by):
                what = f"a table's key column {name!r} that may change in rows of"
                raise moves.refused(f"{self._path}.by.{name}", what)
        changes = stream.changes
        if changes is not None and self._how == "inner":  # the last row of a key may find no match
            changes = replace(changes, key=())
        time = None
        if self._time is not None:
            option = "by" if self._time in self._by else "columns"
            time = TimeColumn(1, self._time, f"{option}.{self._time}", strict=False)
        return Facts(
            columns=None if stream.columns is None else {**stream.columns, **self._columns},
            times=stream.times and replace(stream.times, never=stream.times.never | frozenset(self._columns)),
            changes=changes,
            time=time,
            routes=stream.routes,
            states={self.store: State()},
        )

    def process(self, context: Context, stream: pa.Table, table: pa.Table) -> pa.Table:
        """Return the stream's rows, followed by the table's columns.

        A row without a match gets nulls (left) or is dropped (inner).
        Errors: `InputError` if both sides have a column of the same name, in upper or lower case; if a column of
        `order_by` or `deleted` is missing in the table, or has an unsuitable type.
        """
        store = context.store(self.store)
        self._check_names(stream.column_names)
        if table.num_rows:
            keys = [column_of(table, name, f"{self._path}.by") for name in self._by]
            self._update(store, table.filter(reduce(pc.and_, [key.is_valid() for key in keys])))
        values, present = store.get_many(stream)
        for name in self._columns:
            stream = stream.append_column(name, values[name])
        return stream if self._how == "left" else stream.filter(pa.array(present))

    def _check_names(self, stream: Iterable[str]) -> None:
        """Refuse a stream column with the name of a table column, in upper or lower case."""
        mine = {name.lower() for name in self._columns}
        if clash := sorted(name for name in stream if name.lower() in mine):
            found = f"the columns {clash} on both sides"
            raise InputError(self._path, found=found, expected="different column names")

    def _update(self, store: Store, table: pa.Table) -> None:
        """Apply the table's rows of a batch."""
        gone = self._marks(table)
        if self.order_by:
            order = self._order(table)
            places = in_order(order)
            if set(self.order_by) <= {*self._by, *self._columns}:
                kept, present = store.get_many(table)
                stored = {**{n: table[n] for n in self._by}, **{n: kept[n] for n in self._columns}}
                older = present & ~not_before(order, self._order(pa.table(stored)))
                places = places.filter(pa.array(~older).take(places))
            table, gone = table.take(places), gone.take(places)
        if self.deleted is None:
            store.put_many(table)
            return
        if self._forgetting:
            live = pa.array(~store.is_late(table))
            table, gone = table.filter(live), gone.filter(live)
        numbers = pa.chunked_array([pa.array(np.arange(table.num_rows))])
        _, (last,) = grouped(self._codec(store.schema.key).canonical(table).columns, [("max", numbers)])
        table, gone = table.take(last), gone.take(last)
        store.delete_many(table.filter(gone))
        store.put_many(table.filter(pc.invert(gone)))

    def _marks(self, table: pa.Table) -> pa.Array | pa.ChunkedArray:
        """Return which rows remove their key's stored row."""
        if self.deleted is None:
            return pa.array(np.zeros(table.num_rows, np.bool_))
        path = f"{self._path}.deleted"
        column = column_of(table, self.deleted, path)
        if not pa.types.is_boolean(column.type) and not pa.types.is_null(column.type):
            raise InputError(path, found=f"{self.deleted!r}, {column.type}", expected="a boolean column")
        return pc.fill_null(column.cast(pa.bool_()), False)

    def _order(self, table: pa.Table) -> pa.Table:
        """Return the `order_by` columns, stored ones in the store's type, to compare them with stored rows."""
        return pa.table({str(i): self._ranks(table, name) for i, name in enumerate(self.order_by)})

    def _ranks(self, table: pa.Table, name: str) -> pa.ChunkedArray:
        path = f"{self._path}.order_by"
        column = column_of(table, name, path)
        if (kind := {**self._by, **self._columns}.get(name)) is not None:
            schema = arrow_schema({name: kind})
            kept = schema.field(name).type
            if not pa.types.is_null(column.type) and not keeps_order(column.type, kept):
                expected = f"{column.type}, or another type that keeps the order, and different values apart"
                raise InputError(f"{path}.{name}", found=f"{column.type}, kept as {kept}", expected=expected)
            column = codec_of(schema, path).canonical(table)[name]
        if pa.types.is_nested(column.type) or pa.types.is_dictionary(column.type):
            raise InputError(f"{path}.{name}", found=str(column.type), expected="values that can be compared")
        return ranks(column)
