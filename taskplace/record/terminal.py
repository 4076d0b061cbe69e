"""A terminal view that stays in place, by rich: the placement per executor and bars for long work, with events above.

A bar has its name, amount, speed, and the time that is left. Narrow terminals get fewer columns: a bar never takes two
lines, which could not be redrawn in place.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, TextIO

from msgspec.structs import replace
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from taskplace.record import words
from taskplace.record.events import BatchDone, ExecutorLost, InstanceView, Rebalanced, Summary, WorkProgress
from taskplace.wording import (
    BOX_EDGE,
    BOX_GAP,
    Column,
    Fitted,
    behind,
    clock,
    count,
    duration,
    fit,
    printable,
)

#: The least and the most width of a bar, and the least of a name.
SHORT_BAR, LONG_BAR, SHORT_NAME = 8, 40, 10
#: How many pieces of work are shown at a time.
MOST = 6
#: How often bars are redrawn in a second.
REDRAWN = 8
WIDTH = 44  # the least width of a table, so that titles stay on one line
#: The columns of the placement; on a narrow terminal the standbys go first, and the lag last.
_COLUMNS = (
    Column("executor", text=True, least=12),
    Column("active", goes=2),
    Column("standby", goes=1),
    Column("warm-up", goes=3),
    Column("lag", goes=4),
)


class Screen(Console):
    """A terminal to draw on, on which control characters in names are text."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(file=behind(stream or sys.stdout))

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield what is drawn."""
        for part in super().render(renderable, options):
            yield part if part.control else part._replace(text=printable(part.text))


class Elapsed(ProgressColumn):
    """How long a bar has been there, in the words of the other bars."""

    def render(self, task: Task) -> Text:
        """Return the text."""
        return Text(f"for {clock(task.elapsed or 0.0)}", style="progress.elapsed")


class TerminalReporter:
    """Shows a run with `rich`.

    - the bars and the table are redrawn in place, a few times a second, by rich's own thread;
    - rebalances, losses and the ends of long work are printed above them and stay in the scrollback;
    - `close()` leaves the last table standing and gives the cursor back.

    `console` is for tests; otherwise it is made for `stream`.
    """

    def __init__(self, stream: TextIO | None = None, console: Console | None = None) -> None:
        self.console = console or Screen(stream)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Elapsed())
        self._progress = Progress(*columns, console=self.console)
        # The bar's clock starts here, so that it includes the time before the first batch.
        self._bar = self._progress.add_task("batches", total=None)
        self._work = WorkBars()
        self._placement: tuple[InstanceView, ...] = ()
        self._generation: int | None = None  # None: there was no batch
        self._new: frozenset[str] = frozenset()  # instances with copies that no batch has seen
        self._lock = threading.Lock()
        self._live: Live | None = None
        self._ended = False

    def batch(self, event: BatchDone) -> None:
        """Move the bar and redraw the placement."""
        speed = f"{count(event.rows, 'row')} in {duration(event.seconds)}"
        self._progress.update(self._bar, completed=event.batch_id + 1, total=event.total, description=speed)
        self._placement, self._generation, self._new = event.placement, event.generation, frozenset()
        self._redraw()

    def rebalance(self, event: Rebalanced) -> None:
        """Print a new assignment, its reason and its first moves."""
        text = Text(words.rebalance_line(event), style="yellow" if event.followup else "green")
        for line in words.move_lines(event):
            text.append(f"\n  {line}", style="dim")
        if self._generation is not None and event.assignment:
            self._generation, self._placement = event.generation, words.views_of(event, self._placement)
            self._new = frozenset(c.to for c in event.changes if c.role in ("standby", "warmup"))
            self._redraw()
        self._print(text)

    def failure(self, event: ExecutorLost) -> None:
        """Print the loss of an instance, and mark it in the placement."""
        if not event.leaving:
            gone = {view.id: replace(view, alive=view.id != event.instance) for view in self._placement}
            self._placement = tuple(gone.values())
        self._print(Text(words.loss_line(event), style="bold red"))

    def note(self, text: str) -> None:
        """Print one line."""
        self._print(Text(text, style="dim"))

    def progress(self, event: WorkProgress) -> None:
        """Move the bar of long work; print a line when it has ended."""
        self._work.show(event)
        if event.ended and event.seconds >= words.LONG_SECONDS:
            self._print(Text(words.work_line(event), style="dim"))
        self._redraw()

    def summary(self, summary: Summary) -> None:
        """Print the summary of the run, with the result of the check as the last line."""
        self.close()
        self.console.print(summary_table(summary))
        if summary.phases:
            self.console.print(phase_table(summary))
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
            return self._work if len(self._work) else self._progress
        table = placement_table(self._placement, self._generation, self._new, self.console.width)
        return Group(table, self._work, self._progress)

    def _print(self, text: Text) -> None:
        # While live, the same console prints above the view.
        self.console.print(text)


def placement_table(
    placement: tuple[InstanceView, ...], generation: int, new: Collection[str] = (), width: int = 80
) -> Table:
    """Return the placement: one row for each executor, and the totals. It has the columns that `width` has room for.

    `new`: the executors with copies whose lags are not known yet.
    """
    rows = [
        (view.id, *_counts([view]), "?" if view.id in new else f"{view.lag:,}")
        if view.alive
        else (view.id, "lost", "", "", "")
        for view in placement
    ]
    if len(placement) > 1:
        alive = [view for view in placement if view.alive]
        rows.append(("all", *_counts(alive), "?" if new else f"{sum(view.lag for view in alive):,}"))
    fitted = fit(_COLUMNS, rows, width, gap=BOX_GAP, edge=BOX_EDGE)
    title = f"placement, generation {generation}"
    table = Table(title=title, title_justify="left", min_width=min(WIDTH, width))
    add_columns(table, fitted)
    for row, view in zip(fitted.rows, placement, strict=False):
        behind = view.alive and (view.lag or view.id in new)
        cells = [
            Text(cell, style="" if view.alive else "red")
            if column.heading != "lag"
            else Text(cell, style="yellow" if behind else "")
            for column, cell in zip(fitted.columns, row, strict=True)
        ]
        table.add_row(*cells)
    for row in fitted.rows[len(placement) :]:
        table.add_section()
        table.add_row(*row)
    return table


def add_columns(table: Table, fitted: Fitted) -> None:
    """Add the columns that have room: texts on the left, numbers on the right, and a line for each row."""
    for column in fitted.columns:
        table.add_column(column.heading, justify="left" if column.text else "right", no_wrap=True)


def _counts(views: Collection[InstanceView]) -> tuple[str, str, str]:
    active, standby, warmup = (
        f"{sum(getattr(view, role) for view in views):,}" for role in ("active", "standby", "warmup")
    )
    return active, standby, warmup


def summary_table(summary: Summary) -> Table:
    """Return the counts of the run."""
    table = Table(title="summary", title_justify="left", min_width=WIDTH, show_header=False)
    table.add_column("what")
    table.add_column("value", justify="right")
    for label, value in words.summary_rows(summary):
        table.add_row(label, value)
    return table


def phase_table(summary: Summary) -> Table:
    """Return the median seconds of a batch per phase."""
    table = Table(
        title="where a batch's time goes (median)", title_justify="left", min_width=WIDTH, show_header=False
    )
    table.add_column("phase")
    table.add_column("seconds", justify="right")
    table.add_column("share", justify="right")
    for row in words.phase_rows(summary.phases):
        table.add_row(*row)
    return table


class WorkBars:
    """The bars of the work that runs, as something that rich draws. The methods may be called from any thread.

    Between two events the time goes on: that of the work grows, and what is left shrinks. `clock` is for tests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._running: dict[str, tuple[WorkProgress, float]] = {}  # by name: the last event, and its time

    def __len__(self) -> int:
        return len(self._running)

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
        rows = [_Row.of(event, now - at) for event, at in running[:MOST]]
        # A bar without an end moves by its colours alone.
        pulse = console.color_system is not None and not console.no_color
        yield _table(rows, options.max_width, lambda event, width: _bar(event, width, now, pulse=pulse))
        if len(running) > MOST:
            yield Text(f"and {len(running) - MOST} more", style="dim")


class _Row(NamedTuple):
    """The texts beside a bar."""

    event: WorkProgress
    name: str
    percent: str
    amount: str
    left: str
    rate: str
    detail: str

    @classmethod
    def of(cls, event: WorkProgress, waited: float) -> _Row:
        """Return the texts, so many seconds after the event."""
        if event.eta is not None:
            left = f"{clock(max(0.0, event.eta - waited))} left"
        else:
            left = f"for {clock(event.seconds + waited)}"
        return cls(
            event=event,
            name=event.name,
            percent="" if event.fraction is None else f"{100 * event.fraction:.0f} %",
            amount=words.work_amount(event),
            left=left,
            rate=words.work_rate(event),
            detail=event.detail,
        )


#: The texts that are shown, the most first; the first ones that leave room for a bar are taken.
_CHOICES: tuple[tuple[str, ...], ...] = (
    ("name", "amount", "left", "rate", "detail"),
    ("name", "amount", "left", "rate"),
    ("name", "amount", "left"),
    ("name", "percent", "left"),
)
_NARROW: tuple[tuple[str, ...], ...] = (("name", "percent", "left"), ("name", "percent"), ("name",))


def _bar(event: WorkProgress, width: int, now: float, *, pulse: bool) -> ProgressBar | str:
    if event.total is None and not pulse:
        return ""
    return ProgressBar(event.total or None, event.done, width=width, animation_time=now)


def _table(
    rows: Sequence[_Row], width: int, bar_of: Callable[[WorkProgress, int], ProgressBar | str]
) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    for shown in _CHOICES:
        spare = width - 1 - _width(rows, shown)
        if spare >= SHORT_BAR:
            bar = min(LONG_BAR, spare)
            table.add_column(no_wrap=True)
            table.add_column(width=bar)
            for row in rows:
                table.add_row(row.name, bar_of(row.event, bar), *(getattr(row, text) for text in shown[1:]))
            return table
    for shown in _NARROW:
        names = max(len(row.name) for row in rows)
        room = width - (_width(rows, shown) - names)
        if room >= min(names, SHORT_NAME) or shown is _NARROW[-1]:
            break
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=max(1, room))
    for row in rows:
        table.add_row(*(Text(getattr(row, text)) for text in shown))
    return table


def _width(rows: Sequence[_Row], shown: Sequence[str]) -> int:
    """Return the width of the texts, with a space behind each."""
    return sum(1 + max((len(getattr(row, text)) for row in rows), default=0) for text in shown)


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
