"""A terminal view that stays in place, by rich: the placement per executor and bars for long work, with events above.

A bar has its name, amount, speed, and the time that is left. Narrow terminals get fewer columns: a bar never takes two
lines, which could not be redrawn in place.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TextIO

from msgspec.structs import replace
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from taskplace.record import words
from taskplace.record.events import BatchDone, ExecutorLost, InstanceView, Rebalanced, Summary, WorkProgress
from taskplace.wording import BOX_EDGE, BOX_GAP, Column, behind, clock, count, duration, fit, printable

#: The least and the most width of a bar.
SHORT_BAR, LONG_BAR = 8, 40
#: How many pieces of work are shown at a time.
MOST = 6
#: How often bars are redrawn in a second.
REDRAWN = 8
WIDTH = 44  # the least width of a table, so that titles stay on one line
#: The texts beside a bar: name, amount, time, speed, detail. On a narrow terminal the detail goes first.
_WORK = (Column("", text=True), *(Column("", text=True, goes=goes) for goes in (4, 3, 2, 1)))


class Screen(Console):
    """A terminal to draw on, on which control characters in names are text."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(file=behind(stream or sys.stdout))

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield what is drawn."""
        for part in super().render(renderable, options):
            yield part if part.control else part._replace(text=printable(part.text))


class TerminalReporter:
    """Shows a run with `rich`.

    - the bars and the table are redrawn in place, a few times a second, by rich's own thread;
    - rebalances, losses and the ends of long work are printed above them and stay in the scrollback;
    - `close()` leaves the last table standing and gives the cursor back.

    `console` is for tests; otherwise it is made for `stream`.
    """

    def __init__(self, stream: TextIO | None = None, console: Console | None = None) -> None:
        self.console = console or Screen(stream)
        self._began = time.monotonic()  # the clock of batches includes the time before the first one
        self._work, self._batches = WorkBars(), WorkBars()
        self._placement: tuple[InstanceView, ...] = ()
        self._generation: int | None = None  # None: there was no batch
        self._lock = threading.Lock()
        self._live: Live | None = None
        self._ended = False

    def batch(self, event: BatchDone) -> None:
        """Move the bar and redraw the placement."""
        speed, seconds = (
            f"{count(event.rows, 'row')} in {duration(event.seconds)}",
            time.monotonic() - self._began,
        )
        done, total = event.batch_id + 1, event.total
        self._batches.show(WorkProgress("run", done, total, "batches", seconds=seconds, detail=speed))
        self._placement, self._generation = event.placement, event.generation
        self._redraw()

    def rebalance(self, event: Rebalanced) -> None:
        """Print a new assignment, its reason and its first moves."""
        first, *moves = words.lines(event)
        self.console.print(Text(first, style="yellow" if event.followup else "green"))
        for line in moves:
            self.note(line)

    def failure(self, event: ExecutorLost) -> None:
        """Print the loss of an instance, and mark it in the placement."""
        if not event.leaving:
            gone = {view.id: replace(view, alive=view.id != event.instance) for view in self._placement}
            self._placement = tuple(gone.values())
            self._redraw()
        self.console.print(Text(words.loss_line(event), style="bold red"))

    def note(self, text: str) -> None:
        """Print one line."""
        self.console.print(Text(text, style="dim"))

    def progress(self, event: WorkProgress) -> None:
        """Move the bar of long work; print a line when it has ended."""
        self._work.show(event)
        if event.ended and event.seconds >= words.LONG_SECONDS:
            self.note(words.work_line(event))
        self._redraw()

    def summary(self, summary: Summary) -> None:
        """Print the summary of the run, with the result of the check as the last line."""
        self.close()
        self.console.print(_listing("summary", words.summary_rows(summary)))
        if summary.phases:
            self.console.print(_listing(words.PHASES, words.phase_rows(summary.phases)))
        for line in summary.detail:
            self.console.print(Text(f"  {line}"))
        style = {None: "dim", True: "bold green", False: "bold red"}[summary.ok]
        self.console.print(Text(f"check: {words.check_line(summary)}", style=style))

    def close(self) -> None:
        """Stop redrawing; the last view stays."""
        with self._lock:
            self._ended = True
            if self._live is not None:
                self._live.stop()
                self._live = None

    def _redraw(self) -> None:
        with self._lock:
            if self._ended:  # the last words of a thread
                return
            if self._live is None:
                self._live = Live(self._view(), console=self.console, refresh_per_second=4)
                self._live.start()
            else:
                self._live.update(self._view())

    def _view(self) -> RenderableType:
        if self._generation is None:  # nobody waits for batches while the input is prepared, or Spark starts
            return self._work
        table = placement_table(self._placement, self._generation, self.console.width)
        return Group(table, self._work, self._batches)


def placement_table(placement: tuple[InstanceView, ...], generation: int, width: int = 80) -> Table:
    """Return the placement: one row for each executor, and the totals. It has the columns that `width` has room for."""
    fitted = words.placement(placement, width, gap=BOX_GAP, edge=BOX_EDGE, totals=True)
    title = f"placement, generation {generation}"
    table = Table(title=title, title_justify="left", min_width=min(WIDTH, width))
    for column in fitted.columns:
        table.add_column(column.heading, justify="left" if column.text else "right", no_wrap=True)
    for k, row in enumerate(fitted.rows):
        if k == len(placement):  # the totals
            table.add_section()
        view = placement[k] if k < len(placement) else None
        lags = "yellow" if view is not None and view.lag else ""
        for_all = "red" if view is not None and not view.alive else ""
        headings = [column.heading for column in fitted.columns]
        styles = [for_all or (lags if heading == "lag" else "") for heading in headings]
        table.add_row(*map(Text, row, styles))
    return table


def _listing(title: str, rows: Sequence[tuple[str, ...]]) -> Table:
    table = Table(title=title, title_justify="left", min_width=WIDTH, show_header=False)
    for number in range(len(rows[0])):
        table.add_column(justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    return table


class WorkBars:
    """The bars of the work that runs, as something that rich draws. The methods may be called from any thread.

    Between two events the time goes on: that of the work grows, and what is left shrinks. `clock` is for tests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._running: dict[str, tuple[WorkProgress, float]] = {}  # by name: the last event, and its time

    def show(self, event: WorkProgress) -> None:
        """Begin, move or end the bar of a piece of work."""
        with self._lock:
            if event.ended:
                self._running.pop(event.name, None)
            else:
                self._running[event.name] = event, self._clock()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        with self._lock:
            running, now = list(self._running.values()), self._clock()
        if not running:
            return
        shown = running[:MOST]
        fitted = fit(
            _WORK, [_texts(event, now - at) for event, at in shown], options.max_width, gap=1, edge=1
        )
        widths = [max(map(len, column)) for column in zip(*fitted.rows, strict=True)]
        spare = options.max_width - sum(width + 1 for width in widths) - 1
        table = Table.grid(padding=(0, 1, 0, 0))
        table.add_column(no_wrap=True, overflow="ellipsis", max_width=options.max_width)
        # A bar without an end moves by its colours alone.
        pulse = console.color_system is not None and not console.no_color
        for (name, *texts), (event, _) in zip(fitted.rows, shown, strict=True):
            bar: list[RenderableType] = []
            if spare >= SHORT_BAR:
                draws = event.total is not None or pulse
                width = min(LONG_BAR, spare)
                made = ProgressBar(event.total or None, event.done, width=width, animation_time=now)
                bar = [made if draws else Text(" " * width)]
            table.add_row(Text(name), *bar, *map(Text, texts))
        yield table
        if len(running) > MOST:
            yield Text(f"and {len(running) - MOST} more", style="dim")


def _texts(event: WorkProgress, waited: float) -> tuple[str, ...]:
    """Return the texts beside a bar, so many seconds after the event."""
    left = f"for {clock(event.seconds + waited)}"
    if event.eta is not None:
        left = f"{clock(max(0.0, event.eta - waited))} left"
    return event.name, words.work_amount(event), left, words.work_rate(event), event.detail


class LiveBars:
    """Bars at the end of a stream, redrawn in place until `close`, which clears them."""

    def __init__(self, stream: TextIO | None = None, console: Console | None = None) -> None:
        self._bars = WorkBars()
        # What the program prints goes where it belongs: standard output may be a file.
        self._live = Live(
            self._bars,
            console=console or Screen(stream),
            refresh_per_second=REDRAWN,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def show(self, event: WorkProgress) -> None:
        """Begin, move or end the bar of a piece of work."""
        self._bars.show(event)

    def close(self) -> None:
        """Clear the bars, and give the cursor back. May be called again."""
        self._live.stop()
