"""`taskplace status`: what the driver of a checkpoint is doing, once or again and again.

The command first, then the status as lines, and as a view of a terminal that is redrawn.
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
from taskplace.cli.terminal import answer, columns, folded
from taskplace.lag.ranking import Seen
from taskplace.record import words
from taskplace.record.events import ExecutorLost, InstanceView, LateRows, Rebalanced
from taskplace.spark.inspection.driver import DriverState, driver_of
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
from taskplace.wording import Column, ago, before, count, duration, fit, lasting, listed

if TYPE_CHECKING:
    from rich.text import Text

SCHEMA = "taskplace.status-seen/1"
#: The seconds between two readings of the status without `--interval`.
INTERVAL = 1.0
Key = Callable[[DriverState], object]
#: How many rebalances, losses and warm-ups are shown.
SHOWN = 5
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


def status(args: argparse.Namespace) -> int:
    """Print the status, with `--watch` for each change. Return 0 if a driver runs, 4 if none does."""
    for option, given in (("--interval", args.interval), ("--count", args.count)):
        documents.needs(option, given, "--watch", args.watch)
    root = documents.checkpoint(args.checkpoint)
    if not args.watch:
        driver = driver_of(root)
        answer(args.output, to_dict(driver), lines(driver, columns()))
        return codes.DONE if driver.runs else codes.NO_DRIVER
    interval = INTERVAL
    if args.interval is not None:
        interval = validation.positive(args.interval, "--interval") or INTERVAL
    limit = None if args.count is None else validation.integer(args.count, "--count", 1)
    with _shown(args.output) as (update, key):
        return _watch(root, update, key, interval=interval, limit=limit)


def _watch(
    root: Path, update: Callable[[DriverState], None], key: Key, *, interval: float, limit: int | None
) -> int:
    """Show each change, at most `limit` of them. `key`: what is shown again only if it differs."""
    shown, before = 0, None
    while True:
        driver = driver_of(root)
        now = key(driver) if driver.runs else (driver.epoch, driver.written)
        if now != before:
            before = now
            update(driver)
            shown += 1
        if limit is not None and shown >= limit:
            return codes.DONE if driver.runs else codes.NO_DRIVER
        time.sleep(interval)


@contextmanager
def _shown(output: str) -> Iterator[tuple[Callable[[DriverState], None], Key]]:
    """Yield what shows an update, and what tells whether there is one.

    JSON in a line and a table that is redrawn in place: for each status that the driver writes. A line for a log: if it
    is another one.
    """
    if output == "json":
        yield (lambda driver: print(json.dumps(to_dict(driver)), flush=True)), lambda driver: driver.written
    elif sys.stdout.isatty():
        from rich.live import Live

        from taskplace.record.terminal import Screen

        with Live(console=Screen(), auto_refresh=False) as live:
            yield (lambda driver: live.update(view(driver), refresh=True)), lambda driver: driver.written
    else:
        yield (lambda driver: print(line(driver), flush=True)), line


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


def to_dict(driver: DriverState) -> dict[str, Any]:
    """Return a driver's state as a "taskplace.status-seen/1" dict."""
    made: dict[str, Any] = msgspec.to_builtins(
        StatusDocument(driver.runs, driver.why, driver.epoch, driver.age, driver.status)
    )
    return made


# -- in words


def headline(driver: DriverState) -> str:
    """Return whether a driver runs, and how that is known."""
    return f"{'running' if driver.runs else 'no driver runs'}: {driver.why}"


def introduction(driver: DriverState) -> Iterator[str]:
    """Yield whether a driver runs and, if none does, of when the rest is, and how to check the files.

    All times in the rest are relative to the status: to now if a driver runs, and else to the time that is named here.
    """
    yield headline(driver)
    if not driver.runs and driver.status is not None:
        at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(driver.status.written))
        yield f"What follows is its last status, of {at}; times are relative to it."
        yield unchecked(driver.root)


def unchecked(checkpoint: str | Path) -> str:
    """Return that no file of a checkpoint was checked, and how to do that."""
    command = f"taskplace inspect {shlex.quote(str(checkpoint))} --verify"
    return f"This command checks no file of the checkpoint; `{command}` does."


def line(driver: DriverState) -> str:
    """Return the status in one line."""
    now = driver.status
    if now is None or not driver.runs:
        return headline(driver)
    views = _views(now)
    active, standby, lag = (
        sum(getattr(view, name) for view in views) for name in ("active", "standby", "lag")
    )
    parts = [
        batch_text(now),
        f"generation {now.generation}",
        count(len(views), "executor"),
        f"{active} active, {standby} standby, lag {lag:,}",
        *([f"input lag {sum(topic.lag for topic in now.input.values()):,}"] if now.input else []),
        *(f"{task} on {name}: {eta}" for name, task, _, eta in _warmups(now)[:SHOWN]),
    ]
    return "; ".join(parts)


def lines(driver: DriverState, width: int = sys.maxsize) -> Iterator[str]:
    """Yield the status for people, a line each. Only its tables are fitted to `width`."""
    yield from introduction(driver)
    if (now := driver.status) is None:
        if driver.epoch:
            yield unchecked(driver.root)
        return
    yield from headings(now, runs=driver.runs)
    hosts = {name: one.host for name, one in now.executors.items()}
    draining = [name for name, one in now.executors.items() if one.draining]
    yield ""
    yield from words.placement(_views(now), width, hosts=hosts, draining=draining).lines()
    yield from inputs(now, width, runs=driver.runs)
    yield from events(now, driver.root, runs=driver.runs)


def view(driver: DriverState) -> Text:
    """Return the status in the width that the terminal has now."""
    from rich.text import Text

    first, *others = (folded(each, columns()) for each in lines(driver, columns()))
    return Text.assemble((first, "green" if driver.runs else "bold red"), "\n", "\n".join(others))


def _views(now: Status) -> list[InstanceView]:
    return [
        InstanceView(name, len(one.active), len(one.standby), len(one.warmup), one.lag)
        for name, one in now.executors.items()
    ]


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
    yield from fit(INPUT, cells, width).lines()
    if more := len(rows) - len(cells):
        yield f"and {count(more, 'partition')} with less lag; --output json has all"


def _warmups(now: Status) -> list[tuple[str, str, int, str]]:
    """Return the warm-ups as executor, task, lag, and when it has caught up."""
    return [
        (name, task, copy.lag, warmup_text(copy))
        for name, executor in now.executors.items()
        for task, copy in executor.warmup.items()
    ]


def _stuck_lines(found: Sequence[tuple[str, str, Seen]], checkpoint: str | Path) -> Iterator[str]:
    """Yield a line for each cause that stops copies: the copies, the remedy, and the `explain` command for them."""
    causes: dict[tuple[str, Seen], list[str]] = {}
    for name, task, why in found:
        causes.setdefault((name, why), []).append(task)
    shown = list(causes.items())[:SHOWN]
    for (name, why), tasks in shown:
        yield f"stuck       {listed(tasks, SHOWN)} on {name}: {why.stalled}; {why.remedy}"
    if found:
        left_out = len(found) - sum(len(tasks) for _, tasks in shown)
        more = f"and {count(left_out, 'more copy', 'more copies')}; " if left_out else ""
        command = f"`taskplace explain {shlex.quote(str(checkpoint))} --task {found[0][1]}`"
        yield f"            {more}{command} says what follows from it"


def events(now: Status, checkpoint: str | Path = UNKNOWN, *, runs: bool = True) -> Iterator[str]:
    """Yield the lines below the table of executors: warm-ups, copies that are stuck, rebalances, losses, batches.

    - `checkpoint`: the path that remedies name
    - `runs`: whether the driver still runs; otherwise times are before its last status
    """
    when = ago if runs else before
    waiting, found = _warmups(now), list(stuck(now, checkpoint, runs=runs))
    hindered = {(name, task) for name, task, _ in found}
    for name, task, lag, eta in waiting[:SHOWN]:
        yield f"warm-up     {task} on {name}: lag {lag:,}, {'stuck' if (name, task) in hindered else eta}"
    if len(waiting) > SHOWN:
        yield f"warm-up     and {len(waiting) - SHOWN} more"
    yield from _stuck_lines(found, checkpoint)
    last: dict[str, Sequence[Rebalanced | ExecutorLost]] = {"rebalance": now.rebalances, "loss": now.losses}
    for kind, those in last.items():
        for event in reversed(those[-SHOWN:]):
            text, *moves = words.lines(event)
            yield f"{kind:<12}{when(now.written - event.at)}: {text.removeprefix('rebalance at ')}"
            if event is those[-1]:
                yield from (f"{'':12}{move.strip()}" for move in moves)
    if now.batches:
        times = ", ".join(duration(batch.seconds) for batch in now.batches)
        numbers = dict.fromkeys((now.batches[0].batch_id, now.batches[-1].batch_id))
        yield f"batches     {' to '.join(map(str, numbers))}: {times}"
