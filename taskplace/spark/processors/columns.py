"""Columns along the nodes: what a processor takes from its inputs, and what it sends on.

**Idea.** The columns of a source are known before anything starts. A processor that says which columns it takes is
judged then, and not by its first batch; one that says what it sends on lets the nodes behind it be judged as well.

All three methods are optional, for processors of taskplace and for your own alike:

- `input_columns()` yields an `InputColumn` for each column that it takes;
- `check_types(*inputs)` gets the columns of each input, `Types`, and raises `InputError` for types that it cannot take.
  A column whose type is not known is of Arrow's type null. It is called when all columns of `input_columns` are there;
- `output_columns(*inputs)` returns the columns of its output, given those of each input; None: not known.

A class that overrides `process` has to say its columns anew: what its base class says is not asked then.

    class Latest:
        def input_columns(self):
            yield InputColumn(0, "id", "by.id")
            yield InputColumn(0, "at", "time", time=True)

        def output_columns(self, rows):
            return rows
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from taskplace.spark.state.column_types import parse
from taskplace.spark.state.rows import arrow_schema

#: By name, the types of columns as Spark or Arrow calls them; `UNKNOWN` for a type that is not known.
Columns = Mapping[str, str]
UNKNOWN = ""
#: By name, the types of columns as they come to a task; null for a type that is not known.
Types = Mapping[str, pa.DataType]


class InputColumn(NamedTuple):
    """A column that a processor takes from one of its inputs.

    `input`: the number of the input, from 0. `path`: the option that names the column, for errors. `time`: it has to
    be a timestamp or a date.
    """

    input: int
    name: str
    path: str = ""
    time: bool = False


def columns_taken(path: str, input: int, columns: Mapping[str, object]) -> Iterator[InputColumn]:
    """Yield columns that are given with their types, such as those of `by`.

    >>> list(columns_taken("by", 0, {"day": "date"}))
    [InputColumn(input=0, name='day', path='by.day', time=True)]
    """
    for name, kind in columns.items():
        yield InputColumn(input, name, f"{path}.{name}", is_time(kind))


def columns_sent(columns: Mapping[str, object]) -> dict[str, str]:
    """Return columns of declared types as the columns of an output, with Arrow's names of the types.

    >>> columns_sent({"id": "long", "day": "date"})
    {'id': 'int64', 'day': 'date32[day]'}
    """
    return {field.name: str(field.type) for field in arrow_schema(columns)}


def arrow_types(columns: Columns) -> dict[str, pa.DataType]:
    """Return the types in which columns come to a task; null for one that is not known.

    >>> arrow_types({"id": "bigint", "took": "interval day to second"})
    {'id': DataType(int64), 'took': DataType(null)}
    """
    return {name: _arrow_type(kind) for name, kind in columns.items()}


@lru_cache(maxsize=1024)
def _arrow_type(kind: str) -> pa.DataType:
    try:
        return parse(kind)
    except ValueError:
        return pa.null()


def row_of_nulls(types: Types) -> pa.Table:
    """Return one row of nulls: what can be done with it can be done with these types."""
    return pa.table({name: pa.nulls(1, kind) for name, kind in types.items()})


def is_time(kind: object) -> bool:
    """Return whether a type, or what its name means, is a timestamp or a date."""
    return holds_times(arrow_schema({"column": kind}).field("column").type)


def holds_times(kind: pa.DataType) -> bool:
    """Return whether values of a type are timestamps or dates."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def inputs_of(processor: object) -> Iterable[InputColumn]:
    """Return the columns that a processor takes, as far as it says them."""
    says = _says(processor, "input_columns")
    return () if says is None else says()


def check_types(processor: object, *inputs: Columns | None) -> None:
    """Have a processor judge the types of its inputs, if it does and all their columns are known.

    Errors: `InputError` of the processor's own.
    """
    judge = _says(processor, "check_types")
    known = [arrow_types(columns) for columns in inputs if columns is not None]
    if judge is not None and len(known) == len(inputs):
        judge(*known)


def output_of(processor: object, *inputs: Columns | None) -> Columns | None:
    """Return the columns of a processor's output, given those of its inputs; None if they are not known."""
    says = _says(processor, "output_columns")
    found: Columns | None = None if says is None else says(*inputs)
    return found


def _says(processor: object, method: str) -> Callable[..., Any] | None:
    """Return a method of a processor; None if it has none, or a class below the one that has it overrides `process`."""
    classes = type(processor).__mro__
    says, runs = (
        next((place for place, each in enumerate(classes) if name in vars(each)), None)
        for name in (method, "process")
    )
    if says is not None and runs is not None and runs < says:
        return None
    found: Callable[..., Any] | None = getattr(processor, method, None)
    return found
