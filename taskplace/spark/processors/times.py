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
| `Deduplicate`, `TableJoin`, repartition | those of its (stream) input; never the table's: its rows may be old |
| merge | those that all parents have; the largest lag counts |
| `Aggregate` with a window | `window_start`: lag + size + grace; the column of `Tumbling(time=...)`: lag + grace |
| `Aggregate` | time columns among its keys, and `max_` of one |
| `PerKey`, custom | its declaration: `event_time`, an output column, and `delay`, its additional lag |

A processor or function declares its event time with the attributes `event_time` and `delay`, a node with options of
these names (`stream.process(f, event_time="at", delay="5 minutes")`).

**Lost event time.** A stream whose source has an event time may lose it on the way: behind a function without a
declaration, a merge of streams without a common time column, or an `Aggregate` that keeps none. Such a stream is not
one without event time: its sources' watermark makes rows late. A later node that needs event time is refused. A
declaration behind the loss gives the stream an event time again. Its `delay` is relative to the slowest time column
that the stream had before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from taskplace.durations import milliseconds
from taskplace.errors import InputError
from taskplace.validation import named


class Lost(NamedTuple):
    """Where a stream has lost its event time: the node, what is wrong there, and what to change."""

    node: str
    why: str
    remedy: str


@dataclass(frozen=True)
class Times:
    """The time columns of a stream.

    - `lags`: by column, its lag behind the watermark
    - `every`: whether every other column is a time column too, with lag 0, but for the columns of `never`
    - `lost`: where the stream has lost its event time, None if it has not; then there are no time columns
    - `dropped`: the largest lag of the columns that stopped being time columns in a merge or a loss: a function may
      still compute times from them

    Without time columns and without a loss, no source of the application has an event time.

    >>> times = Times({"at": 0, "window_start": 3_600_000_000})
    >>> times.lag("at"), times.lag("id"), times.largest
    (0, None, 3600000000)
    """

    lags: Mapping[str, int] = field(default_factory=dict)
    every: bool = False
    lost: Lost | None = None
    dropped: int = 0
    never: frozenset[str] = frozenset()

    def lag(self, column: str) -> int | None:
        """Return the lag of a column; None if it is not an event time."""
        return self.lags.get(column, 0 if self.every and column not in self.never else None)

    @property
    def largest(self) -> int:
        """The largest lag of the columns, present and dropped, which is a bound for all of them."""
        return max((self.dropped, *self.lags.values()))

    @property
    def known(self) -> bool:
        """Whether the stream has an event time."""
        return self.every or bool(self.lags)

    def losing(self, node: str, why: str, remedy: str) -> Times:
        """Return the times behind a node that loses them. A stream that has none, or has lost them before, stays so.


        >>> Times({"at": 5}).losing("f", "declares none", "declare it").lost.node
        'f'
        """
        return Times(lost=Lost(node, why, remedy), dropped=self.largest) if self.known else self


_DECLARATION = "process(..., event_time='at', delay='0 s')"


def merged(inputs: Mapping[str, Times], node: str) -> Times:
    """Return the time columns of a merge, given those of its parents by name.


    >>> merged({"a": Times({"at": 0, "seen": 5}), "b": Times({"at": 7})}, "both").lags
    {'at': 7}
    >>> merged({"a": Times({"at": 0}), "b": Times({"seen": 0})}, "both").lost.why
    "a merge of streams without a common event time: 'a' has ['at'], 'b' has ['seen']"
    """
    streams = list(inputs.values())
    names: Iterable[str] = dict.fromkeys(name for times in streams for name in times.lags)
    shared = {name: [times.lag(name) for times in streams] for name in names}
    lags = {name: max(lag or 0 for lag in of) for name, of in shared.items() if None not in of}
    both = together(streams)
    if both.lost is not None:
        return both
    every = bool(streams) and all(times.every for times in streams)
    if lags or every:
        gone = [lag for times in streams for name, lag in times.lags.items() if name not in lags]
        dropped = max([*gone, *(times.dropped for times in streams)])
        return Times(lags, every, dropped=dropped, never=both.never)
    own = ", ".join(f"{name!r} has {sorted(times.lags)}" for name, times in inputs.items() if times.lags)
    why = f"a merge of streams without a common event time: {own}"
    remedy = f"or declare the column and its delay in a node behind {node!r}: {_DECLARATION}"
    return both.losing(node, why, f"declare the same column as event_time of all sources, {remedy}")


def together(inputs: Sequence[Times]) -> Times:
    """Return the time columns of all inputs of a node, because it may use any of them; lost if one of them is.


    >>> together([Times({"at": 0}), Times({"at": 7, "seen": 5})]).lags
    {'at': 7, 'seen': 5}
    """
    lags: dict[str, int] = {}
    for times in inputs:
        lags |= {name: max(lag, lags.get(name, 0)) for name, lag in times.lags.items()}
    lost = next((times.lost for times in inputs if times.lost), None)
    dropped = max((times.largest for times in inputs), default=0)
    if lost is not None:
        return Times(lost=lost, dropped=dropped)
    never: frozenset[str] = frozenset().union(*(times.never for times in inputs))
    return Times(lags, any(times.every for times in inputs), dropped=dropped, never=never)


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

    The declared lag is that of the input's slowest time column, plus `delay`. If the input has lost its event time, the
    time columns that it had before count. So the declaration also ends a loss.

    Errors: `InputError` if `event_time` is not a column name, or `delay` not a duration.
    """
    column = options.get("event_time", getattr(processor, "event_time", None))
    delay = options.get("delay", getattr(processor, "delay", None))
    if column is None:
        if delay is not None:
            expected = "event_time as well: the column that the delay applies to"
            raise InputError(f"nodes.{node}.delay", found=delay, expected=expected)
        remedy = f"declare the column and its delay behind the watermark there: {_DECLARATION}"
        return times.losing(node, "which declares no event time for its output", remedy)
    named(column, f"nodes.{node}.event_time", "the name of a column of its output")
    if not times.known and times.lost is None:
        return times
    further = 0 if delay is None else 1000 * milliseconds(delay, f"nodes.{node}.delay", zero=True)
    return Times({column: times.largest + further})
