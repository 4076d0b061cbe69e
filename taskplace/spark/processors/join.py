"""Joins a stream to a table that is itself a stream of updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa

from taskplace.errors import InputError
from taskplace.spark.processors.base import Context, Layout, forgetting
from taskplace.spark.processors.times import TimeColumn, Times


class TableJoin:
    """Keeps the table's rows in a store and adds the current row's columns to each stream row.

    Within a batch the table's rows are applied before any stream row is joined, so the result does not depend
    on how the two were interleaved. `order_by` names columns that decide which of several table rows of one
    key and batch is the last, and so the one that stays. With `ttl`, a table row is forgotten so long after the event
    time in its column `time`; one that comes later than that is not taken, and its key keeps the row it has.

    >>> TableJoin("weather", on={"origin": "string"}, columns={"visib": "float64"}).layouts()
    {'weather': {'key': {'origin': 'string'}, 'value': {'visib': 'float64'}}}
    """

    def __init__(
        self,
        store: str,
        *,
        on: Mapping[str, object],
        columns: Mapping[str, object],
        how: Literal["left", "inner"] = "left",
        order_by: Sequence[str] = (),
        ttl: Any = None,
        time: str | None = None,
    ) -> None:
        if how not in ("left", "inner"):
            raise InputError(f"TableJoin({store!r}).how", found=how, expected="'left' or 'inner'")
        self.store = store
        self._on, self._columns = dict(on), dict(columns)
        self._how = how
        self._forgetting = forgetting(f"TableJoin({store!r})", ttl, time)
        self._order_by = tuple(order_by)
        self._time = time

    def layouts(self) -> Mapping[str, Layout]:
        """Return the layout of the store: the join's key, and the table's columns."""
        return {self.store: {"key": self._on, "value": self._columns, **self._forgetting}}

    def input_time(self) -> TimeColumn | None:
        """Return the table's column by which its rows are forgotten; None if they never are."""
        return None if self._time is None else TimeColumn(1, self._time, strict=False)

    def output_times(self, stream: Times, table: Times) -> Times:
        """Return the time columns of the output: those of the stream, whose rows pass with more columns."""
        return stream

    def process(self, context: Context, stream: pa.Table, table: pa.Table) -> pa.Table:
        """Return the stream's rows with the table's columns behind them.

        A row without a match gets nulls (left) or is left out (inner). A null in a key matches a null.
        Errors: `InputError` when both sides have a column of one name.
        """
        store = context.store(self.store)
        if table.num_rows:
            if self._order_by:
                table = table.sort_by([(column, "ascending") for column in self._order_by])
            store.put_many(table)
        if clash := set(stream.column_names) & set(self._columns):
            raise InputError(
                f"TableJoin({self.store!r})",
                found=f"{sorted(clash)} on both sides",
                expected="different names",
            )
        values, found = store.get_many(stream)
        for name in self._columns:
            stream = stream.append_column(name, values[name])
        return stream if self._how == "left" else stream.filter(pa.array(found))
