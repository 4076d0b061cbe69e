"""`taskplace status`: what the driver of a checkpoint is doing, once or again and again.

Commands first, then the status in words, and as a view of a terminal that is redrawn.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from taskplace import validation
from taskplace.cli import codes, documents
from taskplace.cli.terminal import columns, folded, show
from taskplace.lag.ranking import Seen
from taskplace.record.events import LateRows
from taskplace.spark.inspection.driver_seen import DriverSeen, look
from taskplace.spark.inspection.now import (
    batch_text,
    figures_of,
    followup_text,
    input_rows,
    undone_text,
    warmup_text,
)
from taskplace.spark.operator_messages import Status, TopicStatus
from taskplace.spark.stuck import UNKNOWN, stuck
from taskplace.wording import (
    BOX_EDGE,
    BOX_GAP,
    GAP,
    Column,
    Fitted,
    ago,
    before,
    count,
    duration,
    fit,
    lasting,
    listed,
)

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table

SCHEMA = "taskplace.status-seen/1"
#: The seconds between two readings of the status without `--interval`.
INTERVAL = 1.0
Key = Callable[[DriverSeen], object]
#: How many rebalances, losses and warm-ups are shown.
SHOWN = 5
#: The columns of the table of executors. On a narrow terminal the host goes first, and the lag last.
COLUMNS = (
    Column("executor", text=True, least=12),
    Column("host", text=True, least=12, goes=1),
    Column("active", goes=3),
    Column("standby", goes=2),
    Column("warm-up", goes=4),
    Column("lag", goes=6),
)
#: The columns of the table of partitions that tasks read themselves, and how many of them are shown.
INPUT = (
    Column("topic", text=True, least=12),
    Column("partition"),
    Column("position", goes=1),
    Column("end", goes=2),
    Column("lag"),
    Column("behind", goes=3),
)
PARTITIONS_SHOWN = 20
#: The column that is there if an executor drains.
DRAINS = Column("", text=True, goes=5)


def status(args: argparse.Namespace) -> int:
    """Print the status, with `--watch` for each change. Return 0 if a driver runs, 4 if none does."""
    for option, given in (("--interval", args.interval), ("--count", args.count)):
        documents.needs(option, given, "--watch", args.watch)
    root = documents.checkpoint(args.checkpoint)
    if not args.watch:
        seen = look(root)
        if args.output == "json":
            print(json.dumps(to_dict(seen), indent=1))
        else:
            show(lines(seen, columns()))
        return codes.DONE if seen.runs else codes.NO_DRIVER
    interval = INTERVAL
    if args.interval is not None:
        interval = validation.positive(args.interval, "--interval") or INTERVAL
    limit = None if args.count is None else validation.integer(args.count, "--count", 1)
    with _shown(args.output) as (update, key):
        return _watch(root, update, key, interval=interval, limit=limit)


def _watch(
    root: Path, update: Callable[[DriverSeen], None], key: Key, *, interval: float, limit: int | None
) -> int:
    """Show each change, at most `limit` of them. `key`: what is shown again only if it differs."""
    shown, before = 0, None
    while True:
        seen = look(root)
        now = key(seen) if seen.runs else (seen.epoch, seen.status and seen.status.written)
        if now != before:
            before = now
            update(seen)
            shown += 1
        if limit is not None and shown >= limit:
            return codes.DONE if seen.runs else codes.NO_DRIVER
        time.sleep(interval)


@contextmanager
def _shown(output: str) -> Iterator[tuple[Callable[[DriverSeen], None], Key]]:
    """Yield what shows an update, and what tells whether there is one.

    JSON in a line and a table that is redrawn in place: for each status that the driver writes. A line for a log: if it
    is another one.
    """

    def written(seen: DriverSeen) -> object:
        return seen.status and seen.status.written

    if output == "json":
        yield (lambda seen: print(json.dumps(to_dict(seen)), flush=True)), written
    elif sys.stdout.isatty():
        from rich.live import Live

        from taskplace.record.terminal import Screen

        with Live(console=Screen(), auto_refresh=False) as live:
            yield (lambda seen: live.update(StatusView(seen), refresh=True)), written
    else:
        yield (lambda seen: print(line(seen), flush=True)), line


class StatusDocument(msgspec.Struct, tag_field="schema", tag=SCHEMA):
    """What is known of a checkpoint's driver, and its last status."""

    runs: Annotated[bool, Meta(description="a driver runs")]
    why: Annotated[str, Meta(description="how that is known")]
    epoch: Annotated[int, Meta(description="of the driver that has taken over last; 0: none has")]
    age_seconds: Annotated[float | None, Meta(description="of the status; null: there is none")]
    status: Status | None


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a "taskplace.status-seen/1" document, as in `taskplace/model/schema`."""
    return document_schema(StatusDocument, SCHEMA)


def document_schema(kind: type[msgspec.Struct], name: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a document that a struct describes."""
    _, parts = msgspec.json.schema_components([kind])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": name,
        **parts.pop(kind.__name__),
        "$defs": parts,
    }


def to_dict(seen: DriverSeen) -> dict[str, Any]:
    """Return what was seen as a "taskplace.status-seen/1" dict."""
    made: dict[str, Any] = msgspec.to_builtins(
        StatusDocument(seen.runs, seen.why, seen.epoch, seen.age, seen.status)
    )
    return made


# -- in words


def headline(seen: DriverSeen) -> str:
    """Return whether a driver runs, and how that is known."""
    return f"{'running' if seen.runs else 'no driver runs'}: {seen.why}"


def introduction(seen: DriverSeen) -> Iterator[str]:
    """Yield whether a driver runs and, if none does, of when the rest is, and how to check the files.

    All times in the rest are relative to the status: to now if a driver runs, and else to the time that is named here.
    """
    yield headline(seen)
    if not seen.runs and seen.status is not None:
        at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seen.status.written))
        yield f"What follows is its last status, of {at}; times are relative to it."
        yield unchecked(seen.root)


def unchecked(checkpoint: str | Path) -> str:
    """Return that no file of a checkpoint was checked, and how to do that."""
    command = f"taskplace inspect {shlex.quote(str(checkpoint))} --verify"
    return f"This command checks no file of the checkpoint; `{command}` does."


def line(seen: DriverSeen) -> str:
    """Return the status in one line."""
    now = seen.status
    if now is None or not seen.runs:
        return headline(seen)
    counts = [sum(len(getattr(e, role)) for e in now.executors.values()) for role in ("active", "standby")]
    etas = [f"{task} on {name}: {eta}" for name, task, _, eta in warmups(now)[:SHOWN]]
    lag = sum(executor.lag for executor in now.executors.values())
    parts = [
        batch_text(now),
        f"generation {now.generation}",
        count(len(now.executors), "executor"),
        f"{counts[0]} active, {counts[1]} standby, lag {lag:,}",
        *([f"input lag {sum(topic.lag for topic in now.input.values()):,}"] if now.input else []),
        *etas,
    ]
    return "; ".join(parts)


def lines(seen: DriverSeen, width: int = sys.maxsize) -> Iterator[str]:
    """Yield the status for people, a line each. Only the table of executors is fitted to `width`."""
    yield from introduction(seen)
    if seen.status is None:
        if seen.epoch:
            yield unchecked(seen.root)
        return
    yield from headings(seen.status, runs=seen.runs)
    yield ""
    heading, rows = executors(seen.status, width).lines()
    yield from (heading, *rows)
    yield from inputs(seen.status, width, runs=seen.runs)
    yield from events(seen.status, seen.root, runs=seen.runs)


def headings(now: Status, *, runs: bool = True) -> Iterator[str]:
    """Yield the lines above the table of executors. `runs`: whether the driver still runs."""
    yield f"{now.topology}: {batch_text(now, runs=runs)}, generation {now.generation}"
    if (totals := now.totals) is not None:
        late = LateRows(totals.late, now.late_here, totals.since)
        yield f"late rows: {late.text_of(totals.rows)}"
    for figure in figures_of(now):
        yield f"{figure.name}: {figure.value} ({figure.note})"
    if undone := undone_text(now):
        yield undone
    if now.followup:
        yield followup_text(now, runs=runs)
    if now.homeless:
        until = " until the next rebalance" if runs else ""
        yield f"{count(len(now.homeless), 'task')} without an executor{until}"


def executors(now: Status, width: int, *, gap: int = GAP, edge: int = 0) -> Fitted:
    """Return what has room of the table of executors; `gap` and `edge` as in `fit`."""
    some = any(executor.draining for executor in now.executors.values())
    rows = [
        (
            name,
            executor.host,
            *(f"{len(tasks):,}" for tasks in (executor.active, executor.standby, executor.warmup)),
            f"{executor.lag:,}",
            *(["drains" if executor.draining else ""] if some else []),
        )
        for name, executor in now.executors.items()
    ]
    return fit((*COLUMNS, DRAINS) if some else COLUMNS, rows, width, gap=gap, edge=edge)


def inputs(now: Status, width: int, *, runs: bool = True) -> Iterator[str]:
    """Yield a line for each topic that tasks read themselves, and the table of their partitions."""
    for topic, one in now.input.items():
        said = "its brokers have not said where it ends"
        if one.asked is not None:
            said = f"its brokers said where it ends {(ago if runs else before)(now.written - one.asked)}"
        error = f"; the last question failed: {one.error}" if one.error else ""
        yield f"input       {topic}: {one.rate:,.1f} records/s; {said}{error}"
    yield from input_table(now.input, width)


def input_table(input: Mapping[str, TopicStatus], width: int) -> Iterator[str]:
    """Yield the table of the partitions of topics, those with the largest lags first."""
    if not (rows := input_rows(input)):
        return
    cells = [
        (
            row.topic,
            str(row.partition),
            *("?" if one is None else f"{one:,}" for one in (row.position, row.end, row.lag)),
            "?" if row.seconds is None else lasting(row.seconds),
        )
        for row in rows[:PARTITIONS_SHOWN]
    ]
    heading, lines = fit(INPUT, cells, width).lines()
    yield from (heading, *lines)
    if more := len(rows) - len(cells):
        yield f"and {count(more, 'partition')} with less lag; --output json has all"


def warmups(now: Status) -> list[tuple[str, str, int, str]]:
    """Return the warm-ups as executor, task, lag, and when it has caught up."""
    found = []
    for name, executor in now.executors.items():
        for task, copy in executor.warmup.items():
            found.append((name, task, copy.lag, warmup_text(copy)))
    return found


def _stuck_lines(found: Sequence[tuple[str, str, Seen]], checkpoint: str | Path) -> Iterator[str]:
    """Yield a line for each cause that stops copies: the copies, the remedy, and the `explain` command for them."""
    causes: dict[tuple[str, Seen], list[str]] = {}
    for name, task, why in found:
        causes.setdefault((name, why), []).append(task)
    for (name, why), tasks in list(causes.items())[:SHOWN]:
        yield f"stuck       {listed(tasks, SHOWN)} on {name}: {why.stalled}; {why.remedy}"
    if found:
        unseen = len(found) - sum(len(tasks) for tasks in list(causes.values())[:SHOWN])
        more = f"and {count(unseen, 'more copy', 'more copies')}; " if unseen else ""
        command = f"`taskplace explain {shlex.quote(str(checkpoint))} --task {found[0][1]}`"
        yield f"            {more}{command} says what follows from it"


def events(now: Status, checkpoint: str | Path = UNKNOWN, *, runs: bool = True) -> Iterator[str]:
    """Yield the lines below the table of executors: warm-ups, copies that are stuck, rebalances, losses, batches.

    - `checkpoint`: the path that remedies name
    - `runs`: whether the driver still runs; otherwise times are before its last status
    """
    when = ago if runs else before
    waiting, found = warmups(now), list(stuck(now, checkpoint, runs=runs))
    hindered = {(name, task) for name, task, _ in found}
    for name, task, lag, eta in waiting[:SHOWN]:
        yield f"warm-up     {task} on {name}: lag {lag:,}, {'stuck' if (name, task) in hindered else eta}"
    if len(waiting) > SHOWN:
        yield f"warm-up     and {len(waiting) - SHOWN} more"
    yield from _stuck_lines(found, checkpoint)
    for change in reversed(now.rebalances[-SHOWN:]):
        moved = f"{count(change.moved, 'move')}{', more to come' if change.followup else ''}"
        at = when(now.written - change.at)
        yield f"rebalance   generation {change.generation}, batch {change.batch_id}, {at}: {change.reason}; {moved}"
        if change is now.rebalances[-1]:
            yield from (f"            {move}" for move in change.changes)
            if change.more:
                yield f"            and {change.more:,} more"
    for loss in reversed(now.losses[-SHOWN:]):
        verb = "leaves" if loss.leaving else "was lost"
        tasks = count(loss.tasks, "active task")
        yield f"loss        {loss.instance} {verb} in batch {loss.batch_id} with {tasks}, {when(now.written - loss.at)}"
    if now.batches:
        times = ", ".join(duration(batch.seconds) for batch in now.batches)
        first, last = now.batches[0].batch_id, now.batches[-1].batch_id
        yield f"batches     {first if first == last else f'{first} to {last}'}: {times}"


# -- on a terminal


class StatusView:
    """Whether a driver runs, the placement, and the last events, in the width that the terminal has."""

    def __init__(self, seen: DriverSeen) -> None:
        self._seen = seen

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        seen, width = self._seen, options.max_width
        style = "green" if seen.runs else "bold red"
        first, *others = introduction(seen)
        yield Text(folded(first, width), style=style)
        yield from (Text(folded(line, width)) for line in others)
        if seen.status is not None:
            yield from (Text(folded(line, width)) for line in headings(seen.status, runs=seen.runs))
            yield _table(seen.status, width)
            lines = inputs(seen.status, width, runs=seen.runs)
            yield from (Text(folded(line, width)) for line in lines)
            for line in events(seen.status, seen.root, runs=seen.runs):
                yield Text(folded(line, width))


def _table(status: Status, width: int) -> Table:
    from rich.table import Table
    from rich.text import Text

    from taskplace.record.terminal import add_columns

    fitted = executors(status, width, gap=BOX_GAP, edge=BOX_EDGE)
    table = Table()
    add_columns(table, fitted)
    names = [column.heading for column in fitted.columns]
    for row, executor in zip(fitted.rows, status.executors.values(), strict=True):
        styles = dict.fromkeys(names, "")
        if executor.lag:
            styles["lag"] = "yellow"
        if executor.draining:
            styles["executor"] = styles[""] = "yellow"
        table.add_row(*(Text(cell, style=styles[name]) for name, cell in zip(names, row, strict=True)))
    return table
