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
answer only the event time and the states count. Of a class that inherits `infer` and `process`, the routes are not
believed either: its methods may emit other values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeVar

import pyarrow as pa

from taskplace.errors import InputError
from taskplace.spark.processors.changes import Changes
from taskplace.spark.processors.times import Times
from taskplace.spark.types import arrow_schema, text
from taskplace.validation import named, nearest
from topology.errors import TopologyError

Function = TypeVar("Function", bound=Callable[..., Any])

#: By column name, its type as in a task; null for a type that is not known yet.
Columns = Mapping[str, pa.DataType]


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


class State(NamedTuple):
    """What the keys of a processor's store are to the rows of its input.

    `of` says to what an entry belongs:
    - "key": a key of the input. The store's key has to contain the columns that the input is split by. If it did not,
      each task would have a part of one key's state
    - "id": an id that belongs to one key of the input anyway. Its columns are not compared: the author answers for them
    - "task": the task, such as a total of its rows. Nothing is compared

    `made`: the columns of the store's key that the processor computes, such as the start of a window; no other node may
    use such a store.

    Two nodes may share a store of which one of them states this only if both name it in `stores`. Of a store without
    this statement, the key is compared at the start as for "key", and the keys of its entries in the task.
    """

    of: Literal["key", "id", "task"] = "key"
    made: tuple[str, ...] = ()


#: By store.
States = Mapping[str, State]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of the rows that a node sends.

    A processor answers with these fields, each of them optional:
    - `columns`: the columns and their types, which an answer may also name (`taskplace.spark.types`); None: not known
    - `times`: the time columns; None: the node's `event_time` and `delay` count, or there are none
    - `changes`: None: each row is final. By default, nothing is known of them behind a node that emits changes. Those
      of an input hold only for a processor that leaves out none of its rows
    - `time`: the input column by whose event time its entries expire; None: not known, or they never expire
    - `routes`: the topics that the rows come from, each with the columns that they are split by, which have the values
      that they came with (`routes_as`); empty: not known
    - `states`: by store, what its keys are to the rows of the input

    The walk over the topology adds:
    - `lag`: how far the entries of the node's stores may be behind the watermark of its inputs, in microseconds

    >>> rows = Facts(columns={"id": "bigint", "at": "timestamp"})
    >>> rows.require("at", "time", time=True)
    >>> rows.require("id", "time", time=True)
    Traceback (most recent call last):
    taskplace.errors.InputError: time: found "'id', int64", expected a timestamp or date column; cast it in the \
source, according to its unit
    """

    columns: Columns | None = None
    times: Times | None = None
    changes: Changes | None = field(default_factory=Changes)
    time: TimeColumn | None = None
    routes: frozenset[Route] = frozenset()
    states: States = field(default_factory=dict)
    lag: int = 0

    def __post_init__(self) -> None:
        if self.columns is not None:
            schema = arrow_schema(self.columns, "columns")
            object.__setattr__(self, "columns", dict(zip(schema.names, schema.types, strict=True)))

    def routes_as(self, **renamed: str) -> frozenset[Route]:
        """Return the routes of rows whose key columns get new names. `renamed`: the new names, by old name.

        Errors: `TopologyError` if two key columns of a topic get one name.
        """
        routes = set()
        for route in self.routes:
            columns = tuple(renamed.get(column, column) for column in route.columns)
            if len(set(columns)) < len(columns):
                raise TopologyError(
                    f"passes on the columns ({', '.join(route.columns)}), by which {route.topic!r} is partitioned, as "
                    f"({', '.join(columns)}); give each a name of its own"
                )
            routes.add(replace(route, columns=columns))
        return frozenset(routes)

    def require(self, name: str, path: str = "", *, time: bool = False) -> None:
        """Refuse rows without a column; with `time`, rows whose column is no timestamp or date.

        `path`: the option that names the column. Errors: `InputError`; none where the columns are not known.
        """
        if self.columns is None:
            return
        if name not in self.columns:
            known, hint = f"one of {sorted(self.columns)}", nearest(name, self.columns)
            raise InputError(path or name, found=f"no column {name!r}", expected=known, hint=hint)
        kind = self.columns[name]
        if time and not holds_times(kind) and not pa.types.is_null(kind):
            expected = "a timestamp or date column; cast it in the source, according to its unit"
            raise InputError(path or name, found=f"{name!r}, {text(kind)}", expected=expected)

    def require_all(self, path: str, columns: Mapping[str, object]) -> None:
        """Refuse rows without the columns of an option that has columns with types, such as `by`."""
        for name, kind in columns.items():
            self.require(name, f"{path}.{name}", time=is_time(kind))

    def nulls(self) -> pa.Table | None:
        """Return one row of nulls, in the types in which a task gets the columns; None if they are not known.

        An operation that works on it works on columns of these types. A type that is not known is Arrow's null.
        """
        if self.columns is None:
            return None
        return pa.table({name: pa.nulls(1, kind) for name, kind in self.columns.items()})


def passes_keys_on(**renamed: str) -> Callable[[Function], Function]:
    """Declare that a function's output has the columns that its first input is split by, with the same values.

    `renamed`: the new names of such columns, by old name. State behind the function is then checked at the start, by
    these names, and no longer in the task. Errors: `InputError` for what are no names.

    >>> @passes_keys_on(tailnum="plane")
    ... def with_plane(context, rows):
    ...     return rows.rename_columns({"tailnum": "plane"})
    >>> flights = Facts(routes=frozenset({Route("flights", "flights", ("tailnum",), ("tailnum",))}))
    >>> [route.columns for route in with_plane.infer((flights,)).routes]
    [('plane',)]
    """

    def declare(function: Function) -> Function:
        for old, new in renamed.items():
            of = getattr(function, "__name__", "passes_keys_on")
            named(new, f"{of}.{old}", "the new name of the column")
        function.infer = _Passes(renamed)  # type: ignore[attr-defined]
        return function

    return declare


@dataclass(frozen=True, slots=True)
class _Passes:
    """The answer of a function with `passes_keys_on`; a class, since functions with it are pickled."""

    renamed: Mapping[str, str]

    def __call__(self, inputs: tuple[Facts, ...]) -> Facts:
        return Facts(routes=inputs[0].routes_as(**self.renamed))


def is_time(kind: object) -> bool:
    """Return whether a type, given as such or by name, is a timestamp or a date."""
    return holds_times(arrow_schema({"column": kind}).field("column").type)


def holds_times(kind: pa.DataType) -> bool:
    """Return whether values of a type are timestamps or dates."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))
