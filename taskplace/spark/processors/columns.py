"""Column declarations of processors: the columns that they read and emit.

**Idea.** The columns of a source are known before anything starts. If a processor declares the columns that it reads,
they are checked then, and not in its first batch. If it declares the columns that it emits, the nodes behind it can be
checked as well.

All three methods are optional, for taskplace's processors and for custom ones:
- `input_columns()` yields an `InputColumn` for each column that the processor reads;
- `check_types(*inputs)` gets the column types of each input (`Types`), and raises `InputError` for types that the
  processor cannot use. A column of unknown type has Arrow's type null. It is called only if all columns of
  `input_columns` exist;
- `output_columns(*inputs)` returns the output columns, given those of each input; None: not known.

A class that overrides `process` must declare its columns anew: the declarations of its base class are then ignored.

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

from taskplace.spark.types import arrow_schema, of_spark

#: By column name, the type as Spark or Arrow names it; `UNKNOWN` for a type that is not known.
Columns = Mapping[str, str]
UNKNOWN = ""
#: By column name, the type in which a task gets the column; null for a type that is not known.
Types = Mapping[str, pa.DataType]


class InputColumn(NamedTuple):
    """A column that a processor reads from one of its inputs.

    - `input`: the number of the input, from 0
    - `path`: the option that names the column, for errors
    - `time`: whether the column must be a timestamp or a date
    """

    input: int
    name: str
    path: str = ""
    time: bool = False


def columns_taken(path: str, input: int, columns: Mapping[str, object]) -> Iterator[InputColumn]:
    """Yield the input columns of an option that has columns with types, such as `by`.


    >>> list(columns_taken("by", 0, {"day": "date"}))
    [InputColumn(input=0, name='day', path='by.day', time=True)]
    """
    for name, kind in columns.items():
        yield InputColumn(input, name, f"{path}.{name}", is_time(kind))


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


def row_of_nulls(types: Types) -> pa.Table:
    """Return one row of nulls. An operation that works on it works on columns of these types."""
    return pa.table({name: pa.nulls(1, kind) for name, kind in types.items()})


def is_time(kind: object) -> bool:
    """Return whether a type, given as such or by name, is a timestamp or a date."""
    return holds_times(arrow_schema({"column": kind}).field("column").type)


def holds_times(kind: pa.DataType) -> bool:
    """Return whether values of a type are timestamps or dates."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def inputs_of(processor: object) -> Iterable[InputColumn]:
    """Return the input columns that a processor declares; empty without a declaration."""
    declared = _declaring_method(processor, "input_columns")
    return () if declared is None else declared()


def check_types(processor: object, *inputs: Columns | None) -> None:
    """Call a processor's `check_types`, if it has one and the columns of all inputs are known.

    Errors: the processor's `InputError`.
    """
    check = _declaring_method(processor, "check_types")
    known = [arrow_types(columns) for columns in inputs if columns is not None]
    if check is not None and len(known) == len(inputs):
        check(*known)


def output_of(processor: object, *inputs: Columns | None) -> Columns | None:
    """Return a processor's output columns, given those of its inputs; None if they are not known."""
    declared = _declaring_method(processor, "output_columns")
    columns: Columns | None = None if declared is None else declared(*inputs)
    return columns


def _declaring_method(processor: object, method: str) -> Callable[..., Any] | None:
    """Return a processor's declaring method; None if it has none, or if a subclass of its class overrides `process`."""
    if overrides_process(processor, method):
        return None
    declares: Callable[..., Any] | None = getattr(processor, method, None)
    return declares


def overrides_process(processor: object, method: str) -> bool:
    """Return whether a class overrides `process`, and inherits this declaring method from a class above it."""
    classes = type(processor).__mro__
    says, runs = (
        next((place for place, each in enumerate(classes) if name in vars(each)), None)
        for name in (method, "process")
    )
    return says is not None and runs is not None and runs < says
