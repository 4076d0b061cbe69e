"""Columns along the nodes: what a processor takes from its inputs, and what it sends on.

**Idea.** The columns of a source are known before anything starts. A processor that says which columns it takes is
judged then, and not by its first batch; one that says what it sends on lets the nodes behind it be judged as well.

Both methods are optional, for processors of taskplace and for your own alike:

- `input_columns()` yields an `InputColumn` for each column that it takes;
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
from typing import Any, NamedTuple

import pyarrow as pa

from taskplace.spark.state.rows import arrow_schema

#: By name, the types of columns as Spark calls them; `UNKNOWN` for a type that is not known.
Columns = Mapping[str, str]
UNKNOWN = ""
#: How Spark calls the types of event times.
TIMES = ("timestamp", "timestamp_ntz", "date")


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
    """Return columns of declared types as the columns of an output: what is a time matters, and what is none."""
    return {name: "timestamp" if is_time(kind) else str(kind) for name, kind in columns.items()}


def is_time(kind: object) -> bool:
    """Return whether a type, or what its name means, is a timestamp or a date."""
    found = arrow_schema({"column": kind}).field("column").type
    return bool(pa.types.is_timestamp(found) or pa.types.is_date(found))


def inputs_of(processor: object) -> Iterable[InputColumn]:
    """Return the columns that a processor takes, as far as it says them."""
    says = _says(processor, "input_columns")
    return () if says is None else says()


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
