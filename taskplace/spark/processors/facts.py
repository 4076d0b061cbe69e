"""What is known of rows before any exist: their columns, what they are split by, their event time, and changes.

**Idea.** The columns of a source are known before anything starts. So each node can be asked, parents first, what it
sends, given what its inputs send; it refuses what it cannot use. A processor answers in its method `infer`:

    class Latest:
        def infer(self, inputs):
            (rows,) = inputs
            rows.require("id", "by.id")
            rows.require("at", "time", time=True)
            return Facts(columns=rows.columns)

The method is optional. Of the output of a processor without it, nothing is known, and tasks check what then cannot be
known. The same holds for each field of an answer that is left out. `taskplace.spark.compile.infer` asks.

A class that overrides `process` must have its own `infer`. One that is inherited does not get any columns, and of its
answer only the event time counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa

from taskplace.errors import InputError
from taskplace.spark.processors.changes import Changes
from taskplace.spark.processors.times import Times
from taskplace.spark.state.column_types import of_spark
from taskplace.spark.state.columns import arrow_schema
from taskplace.validation import nearest

#: By column name, the type as Spark or Arrow names it; "" for a type that is not known.
Columns = Mapping[str, str]


class TimeColumn(NamedTuple):
    """The input column by whose event time a processor's entries expire.

    - `input`: the number of the input, from 0
    - `path`: the option that names the column, for errors
    - `strict`: it must be an event time of that input
    """

    input: int
    column: str
    path: str = "time"
    strict: bool = True


@dataclass(frozen=True, slots=True, order=True)
class Route:
    """The way of a topic's rows to a node.

    - `source`: the node that reads the topic
    - `key`: the topic's key columns, with their names in the topic; empty for a topic without a key
    - `columns`: the names that these columns have at the node, in the key's order
    - `unsure`: the first node that may have changed the columns' values; "" without one
    """

    topic: str
    source: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    unsure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of the rows that a node sends.

    A processor answers with these fields, each of them optional:
    - `columns`: the columns and their types; None: not known
    - `times`: the time columns; None: the node's `event_time` and `delay` count, or there are none
    - `changes`: None: each row is final. By default, nothing is known of them behind a node that emits changes
    - `time`: the input column by whose event time its entries expire; None: not known, or they never expire

    The walk over the topology adds:
    - `routes`: the topics that the rows come from, each with the columns that they are split by
    - `lag`: how far the entries of the node's stores may be behind the watermark of its inputs, in microseconds

    >>> rows = Facts(columns={"id": "bigint", "at": "timestamp"})
    >>> rows.require("at", "time", time=True)
    >>> rows.require("id", "time", time=True)
    Traceback (most recent call last):
    taskplace.errors.InputError: time: found "'id', bigint", expected a timestamp or date column; cast the column in \
the source, according to its unit
    """

    columns: Columns | None = None
    times: Times | None = None
    changes: Changes | None = field(default_factory=Changes)
    time: TimeColumn | None = None
    routes: frozenset[Route] = frozenset()
    lag: int = 0

    def require(self, name: str, path: str = "", *, time: bool = False) -> None:
        """Refuse rows without a column; with `time`, rows whose column is no timestamp or date.

        `path`: the option that names the column. Errors: `InputError`; none where the columns are not known.
        """
        if self.columns is None:
            return
        if name not in self.columns:
            raise InputError(
                path or name,
                found=f"no column {name!r}",
                expected=f"one of {sorted(self.columns)}",
                hint=nearest(name, self.columns),
            )
        kind = _arrow_type(self.columns[name])
        if time and not holds_times(kind) and not pa.types.is_null(kind):
            raise InputError(
                path or name,
                found=f"{name!r}, {self.columns[name]}",
                expected="a timestamp or date column",
                hint="cast the column in the source, according to its unit",
            )

    def require_all(self, path: str, columns: Mapping[str, object]) -> None:
        """Refuse rows without the columns of an option that has columns with types, such as `by`."""
        for name, kind in columns.items():
            self.require(name, f"{path}.{name}", time=is_time(kind))

    def nulls(self) -> pa.Table | None:
        """Return one row of nulls, in the types in which a task gets the columns; None if they are not known.

        An operation that works on it works on columns of these types. A type that is not known is Arrow's null.
        """
        return None if self.columns is None else row_of_nulls(arrow_types(self.columns))


def columns_sent(columns: Mapping[str, object]) -> dict[str, str]:
    """Return the declared columns as output columns, with Arrow's names of the types.


    >>> columns_sent({"id": "long", "day": "date"})
    {'id': 'int64', 'day': 'date32[day]'}
    """
    return {field.name: str(field.type) for field in arrow_schema(columns)}


def arrow_types(columns: Columns) -> dict[str, pa.DataType]:
    """Return the types in which a task gets columns; null for a type that is not known.


    >>> arrow_types({"id": "bigint", "took": "interval day to second"})
    {'id': DataType(int64), 'took': DurationType(duration[us])}
    """
    return {name: _arrow_type(kind) for name, kind in columns.items()}


@lru_cache(maxsize=1024)
def _arrow_type(kind: str) -> pa.DataType:
    try:
        return of_spark(kind)
    except ValueError:
        return pa.null()


def row_of_nulls(types: Mapping[str, pa.DataType]) -> pa.Table:
    """Return one row of nulls. An operation that works on it works on columns of these types."""
    return pa.table({name: pa.nulls(1, kind) for name, kind in types.items()})


def is_time(kind: object) -> bool:
    """Return whether a type, given as such or by name, is a timestamp or a date."""
    return holds_times(arrow_schema({"column": kind}).field("column").type)


def holds_times(kind: pa.DataType) -> bool:
    """Return whether values of a type are timestamps or dates."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))
