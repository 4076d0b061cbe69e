"""Tracks event time through the nodes: the event-time columns of each stream, and their lag behind its watermark.

**Idea.** A watermark W means: no rows older than W are expected. Nodes change the columns of rows, and some of the new
values are always older: the start of a window is older than its rows by up to the window's size and grace. So a stream
has *time columns*, each with a *lag*: in rows that are not late, its values are at least W - lag. A node that uses such
a column uses the watermark W - lag.

Units: microseconds.

| node | time columns of its output |
|---|---|
| source with an event time | that column, lag 0 |
| source without one, beside others that have one | every column, lag 0: the others' watermark applies to its rows |
| `Deduplicate`, `TableJoin`, repartition | those of its (stream) input |
| merge | those that all parents have; the largest lag counts |
| `Aggregate` with a window | `window_start`: lag + size + grace; the column of `Tumbling(time=...)`: lag + grace |
| `Aggregate` | time columns among its keys, and `max_` of one |
| `PerKey`, custom | its declaration: `event_time`, an output column, and `delay`, its additional lag |

A processor or function declares its event time with the attributes `event_time` and `delay`, a node with options of
these names (`stream.process(f, event_time="at", delay="5 minutes")`). Without a declaration the time columns are
unknown, and a later node that needs event time is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from taskplace.durations import milliseconds
from taskplace.errors import InputError


@dataclass(frozen=True)
class Times:
    """The time columns of a stream.

    - `lags`: by column, its lag behind the watermark
    - `every`: whether every other column is a time column too, with lag 0
    - `hidden_by`: the node that does not declare its event time; "" if all do


    >>> times = Times({"at": 0, "window_start": 3_600_000_000})
    >>> times.lag("at"), times.lag("id"), times.largest
    (0, None, 3600000000)
    """

    lags: Mapping[str, int] = field(default_factory=dict)
    every: bool = False
    hidden_by: str = ""

    def lag(self, column: str) -> int | None:
        """Return the lag of a column; None if it is not an event time."""
        return self.lags.get(column, 0 if self.every else None)

    @property
    def largest(self) -> int:
        """The largest lag of the columns, which is a bound for all of them."""
        return max(self.lags.values(), default=0)

    @property
    def known(self) -> bool:
        """Whether the stream has an event time."""
        return self.every or bool(self.lags)


class TimeColumn(NamedTuple):
    """The input column that a processor uses as event time. `strict`: it must be an event time of that input."""

    input: int
    column: str
    strict: bool = True


def merged(inputs: Sequence[Times]) -> Times:
    """Return the time columns of a merge of several streams.


    >>> merged([Times({"at": 0, "seen": 5}), Times({"at": 7})]).lags
    {'at': 7}
    """
    hidden = next((times.hidden_by for times in inputs if times.hidden_by), "")
    names: Iterable[str] = dict.fromkeys(name for times in inputs for name in times.lags)
    shared = {name: [times.lag(name) for times in inputs] for name in names}
    lags = {
        name: max(lag or 0 for lag in its_lags) for name, its_lags in shared.items() if None not in its_lags
    }
    return Times(lags, bool(inputs) and all(times.every for times in inputs), hidden)


def event_time(column: str, delay: object = 0) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare the event time of a function's output: its `column`, at most `delay` behind the input.


    >>> @event_time("at", delay="5 minutes")
    ... def late_ones(context, rows):
    ...     return rows
    >>> declared(late_ones, {}, Times({"at": 0}), "late").lags
    {'at': 300000000}
    """

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        function.event_time, function.delay = column, delay  # type: ignore[attr-defined]
        return function

    return declare


def declared(processor: object, options: Mapping[str, Any], times: Times, node: str) -> Times:
    """Return the time columns that a node declares for its output, given its input's.

    Errors: `InputError` if `event_time` is not a column name, or `delay` not a duration.
    """
    column = options.get("event_time", getattr(processor, "event_time", None))
    delay = options.get("delay", getattr(processor, "delay", None))
    if column is None:
        if delay is not None:
            raise InputError(
                f"nodes.{node}.delay",
                found=delay,
                expected="event_time as well: the column that the delay applies to",
            )
        return Times(hidden_by=times.hidden_by or (node if times.known else ""))
    if not isinstance(column, str) or not column:
        raise InputError(
            f"nodes.{node}.event_time", found=column, expected="the name of a column of its output"
        )
    if times.hidden_by or not times.known:
        return Times(hidden_by=times.hidden_by)
    further = 0 if delay is None else 1000 * milliseconds(delay, f"nodes.{node}.delay", zero=True)
    return Times({column: times.largest + further})
