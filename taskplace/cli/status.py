"""`taskplace status`: what the driver of a checkpoint is doing, once or again and again."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from taskplace import validation
from taskplace.cli import codes
from taskplace.report.words import count, duration
from taskplace.spark.inspection.driver_seen import DriverSeen, ago, lasting, look
from taskplace.spark.inspection.opening import checkpoint_at
from taskplace.spark.operator_messages import ExecutorStatus, Status

SCHEMA = "taskplace.status-seen/1"
#: How many rebalances, losses and warm-ups are shown.
SHOWN = 5


def status(args: argparse.Namespace) -> int:
    """Print the status, with `--watch` for each change. Return 0 if a driver runs, 4 if none does."""
    root = checkpoint_at(args.checkpoint)
    if not args.watch:
        seen = look(root)
        print(json.dumps(to_dict(seen), indent=1) if args.output == "json" else "\n".join(lines(seen)))
        return codes.DONE if seen.runs else codes.NO_DRIVER
    interval = validation.positive(args.interval, "--interval") or 1.0
    limit = None if args.count is None else validation.integer(args.count, "--count", 1)
    with _shown(args.output) as show:
        return _watch(root, show, interval=interval, limit=limit)


def _watch(root: Path, show: Callable[[DriverSeen], None], *, interval: float, limit: int | None) -> int:
    """Show each change, at most `limit` of them."""
    shown, before = 0, None
    while True:
        seen = look(root)
        key = (seen.runs, seen.why if not seen.runs else None, seen.status and seen.status.written)
        if key != before:
            before = key
            show(seen)
            shown += 1
        if limit is not None and shown >= limit:
            return codes.DONE if seen.runs else codes.NO_DRIVER
        time.sleep(interval)


@contextmanager
def _shown(output: str) -> Iterator[Callable[[DriverSeen], None]]:
    """Yield what shows an update: JSON in a line, a table that is redrawn in place, or a line for a log."""
    if output == "json":
        yield lambda seen: print(json.dumps(to_dict(seen)), flush=True)
    elif sys.stdout.isatty():
        from rich.live import Live

        from taskplace.cli.status_table import view

        with Live(auto_refresh=False) as live:
            yield lambda seen: live.update(view(seen), refresh=True)
    else:
        yield lambda seen: print(line(seen), flush=True)


def to_dict(seen: DriverSeen) -> dict[str, Any]:
    """Return what was seen as a "taskplace.status-seen/1" dict."""
    return {
        "schema": SCHEMA,
        "runs": seen.runs,
        "why": seen.why,
        "epoch": seen.epoch,
        "age_seconds": seen.age,
        "status": None if seen.status is None else msgspec.to_builtins(seen.status),
    }


def line(seen: DriverSeen) -> str:
    """Return the status in one line."""
    now = seen.status
    if now is None or not seen.runs:
        return f"{'running' if seen.runs else 'no driver runs'}: {seen.why}"
    counts = [sum(len(getattr(e, role)) for e in now.executors.values()) for role in ("active", "standby")]
    etas = [f"{task} on {name}: {eta}" for name, task, _, eta in warmups(now)[:SHOWN]]
    lag = sum(executor.lag for executor in now.executors.values())
    parts = [
        batch_text(now),
        f"generation {now.generation}",
        count(len(now.executors), "executor"),
        f"{counts[0]} active, {counts[1]} standby, lag {lag:,}",
        *etas,
    ]
    return "; ".join(parts)


def lines(seen: DriverSeen) -> Iterator[str]:
    """Yield the status for people, a line each."""
    yield f"{'running' if seen.runs else 'no driver runs'}: {seen.why}"
    if seen.status is None:
        return
    yield from headings(seen.status)
    yield ""
    yield f"{'executor':<16}{'host':<20}{'active':>7}{'standby':>9}{'warm-up':>9}{'lag':>10}"
    for name, executor in seen.status.executors.items():
        yield _executor(name, executor)
    yield from events(seen.status)


def headings(now: Status) -> Iterator[str]:
    """Yield the lines above the table of executors."""
    yield f"{now.topology}: {batch_text(now)}, generation {now.generation}"
    if now.failed is not None:
        yield f"batch {now.failed.batch} failed: {now.failed.error}"
    if now.followup:
        probing = f"; the next probing rebalance is due in {lasting(now.next_probing or 0)}"
        yield f"the assignment is not yet the target{probing if now.next_probing is not None else ''}"
    if now.homeless:
        yield f"{count(len(now.homeless), 'task')} without an executor until the next rebalance"


def batch_text(now: Status) -> str:
    """Return the running batch, or the last one."""
    if now.running is not None:
        return f"batch {now.running.batch} runs for {lasting(max(0.0, now.written - now.running.since))}"
    if now.batches:
        last = now.batches[-1]
        return f"batch {last.batch} took {duration(last.seconds)} for {count(last.rows, 'row')}"
    return f"last batch {now.batch}" if now.batch >= 0 else "no batch yet"


def _executor(name: str, executor: ExecutorStatus) -> str:
    marks = "  drains" if executor.draining else ""
    return (
        f"{name:<16}{executor.host:<20}{len(executor.active):>7}{len(executor.standby):>9}"
        f"{len(executor.warmup):>9}{executor.lag:>10,}{marks}"
    )


def warmups(now: Status) -> list[tuple[str, str, int, str]]:
    """Return the warm-ups as executor, task, lag, and when it has caught up."""
    found = []
    for name, executor in now.executors.items():
        for task, copy in executor.warmup.items():
            eta = "time unknown" if copy.eta_seconds is None else f"about {lasting(copy.eta_seconds)} left"
            text = (
                "caught up" if copy.caught_up else f"{eta}{', restores a snapshot' if copy.restoring else ''}"
            )
            found.append((name, task, copy.lag, f"{text}, a warm-up for {lasting(copy.seconds)}"))
    return found


def events(now: Status) -> Iterator[str]:
    """Yield the lines below the table of executors: warm-ups, rebalances, losses, batches."""
    waiting = warmups(now)
    for name, task, lag, eta in waiting[:SHOWN]:
        yield f"warm-up     {task} on {name}: lag {lag:,}, {eta}"
    if len(waiting) > SHOWN:
        yield f"warm-up     and {len(waiting) - SHOWN} more"
    for change in reversed(now.rebalances[-SHOWN:]):
        moved = f"{count(change.moves, 'move')}{', more to come' if change.followup else ''}"
        when = ago(now.written - change.at)
        yield f"rebalance   generation {change.generation}, batch {change.batch}, {when}: {change.reason}; {moved}"
        if change is now.rebalances[-1]:
            yield from (f"            {shown}" for shown in change.shown)
    for loss in reversed(now.losses[-SHOWN:]):
        verb = "leaves" if loss.leaving else "was lost"
        tasks = count(loss.tasks, "active task")
        yield f"loss        {loss.executor} {verb} in batch {loss.batch} with {tasks}, {ago(now.written - loss.at)}"
    if now.batches:
        times = ", ".join(duration(batch.seconds) for batch in now.batches)
        yield f"batches     {now.batches[0].batch} to {now.batches[-1].batch}: {times}"
