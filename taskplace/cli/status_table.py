"""The status of a stream on a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from taskplace.cli.status_words import events, headings, introduction
from taskplace.spark.inspection.driver_seen import DriverSeen
from taskplace.spark.operator_messages import Status


def view(seen: DriverSeen) -> RenderableType:
    """Return the status: whether a driver runs, the placement, and the last events."""
    style = "green" if seen.runs else "bold red"
    first, *others = introduction(seen)
    parts: list[RenderableType] = [Text(first, style=style), *map(Text, others)]
    if seen.status is not None:
        parts += [Text(line) for line in headings(seen.status, runs=seen.runs)]
        parts.append(_table(seen.status))
        parts += [Text(line) for line in events(seen.status, seen.root, runs=seen.runs)]
    return Group(*parts)


def _table(status: Status) -> Table:
    table = Table()
    table.add_column("executor")
    table.add_column("host")
    for name in ("active", "standby", "warm-up", "lag"):
        table.add_column(name, justify="right")
    for name, executor in status.executors.items():
        lag = Text(f"{executor.lag:,}", style="yellow" if executor.lag else "")
        counts = (f"{len(part)}" for part in (executor.active, executor.standby, executor.warmup))
        label = Text(f"{name} (drains)", style="yellow") if executor.draining else Text(name)
        table.add_row(label, executor.host, *counts, lag)
    return table
