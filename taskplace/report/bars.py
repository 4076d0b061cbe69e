"""A bar for each long piece of work, by rich: name, bar, amount, speed, and the time that is left.

Narrow terminals get fewer columns: a bar never takes two lines, which could not be redrawn in place.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TextIO

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from taskplace.record import words
from taskplace.record.events import WorkProgress
from taskplace.wording import behind, clock, printable

#: The least and the most width of a bar, and the least of a name.
SHORT_BAR, LONG_BAR, SHORT_NAME = 8, 40, 10
#: How many pieces of work are shown at a time.
MOST = 6
#: How often bars are redrawn in a second.
REDRAWN = 8


class Screen(Console):
    """A terminal to draw on, on which control characters in names are text."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(file=behind(stream or sys.stdout))

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield what is drawn."""
        for part in super().render(renderable, options):
            yield part if part.control else part._replace(text=printable(part.text))


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
