"""The status of a stream on a terminal, to be redrawn."""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from taskplace.cli.status import events, executors, headings, inputs, introduction
from taskplace.cli.terminal import folded
from taskplace.record.terminal import add_columns
from taskplace.spark.inspection.driver_seen import DriverSeen
from taskplace.spark.operator_messages import Status
from taskplace.wording import BOX_EDGE, BOX_GAP


class StatusView:
    """Whether a driver runs, the placement, and the last events, in the width that the terminal has."""

    def __init__(self, seen: DriverSeen) -> None:
        self._seen = seen

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
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
