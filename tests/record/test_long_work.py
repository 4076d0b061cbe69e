"""Long work of single commands: bars on a terminal, few lines elsewhere, nothing on standard output."""

from __future__ import annotations

import io
import os
import sys

import pytest
from rich.console import Console

from taskplace.record import PlainReporter, long_work
from taskplace.record.events import WorkProgress
from taskplace.record.terminal import MOST, WorkBars
from tests.support.clocks import Clock
from tests.support.terminal import DECIDING, Terminal


@pytest.fixture
def clock():
    return Clock()


def lines_of(seconds: int, unit: str = "files") -> list[str]:
    """The lines about work of so many seconds, which says every second how far it is."""
    total, stream = seconds if unit else None, io.StringIO()
    reporter = PlainReporter(stream)
    for at in range(seconds):
        reporter.progress(WorkProgress("reading", at, total, unit, seconds=at))
    reporter.progress(WorkProgress("reading", seconds, total, unit, seconds=seconds, ended=True))
    return stream.getvalue().splitlines()


def test_short_work_has_no_line():
    assert lines_of(1) == []
    assert lines_of(2) == ["reading: 2 of 2 files (100 %), ended after 2.0 s"]


def test_lines_come_seldom_and_ever_more_seldom():
    assert [line.partition(" of")[0] for line in lines_of(60)] == [
        *(f"reading: {at}" for at in (2, 7, 12, 18, 27, 41)),
        "reading: 60",
    ]
    assert len(lines_of(24 * 3600)) < 30


def test_work_that_is_not_counted_is_named_at_once():
    assert lines_of(1, "") == ["reading"]
    assert lines_of(9, "") == ["reading", "reading: for 5.0 s", "reading: ended after 9.0 s"]


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal_settings(monkeypatch):
    for name in DECIDING:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("taskplace.record.reporters.BAR_SECONDS", 0.0)
    return monkeypatch


def reading(stream: io.StringIO) -> str:
    with long_work(stream) as show:
        for done in range(10):
            show(WorkProgress("reading", done, 10, "files", seconds=done))
        show(WorkProgress("reading", 10, 10, "files", seconds=10.0, ended=True))
    return stream.getvalue()


@pytest.mark.parametrize(("name", "value"), [("CI", "true"), ("TERM", "dumb")])
def test_a_terminal_that_cannot_be_redrawn_gets_lines(terminal_settings, name, value):
    terminal_settings.setenv(name, value)
    assert "\x1b" not in (text := reading(Tty()))
    assert text.splitlines()[-1] == "reading: 10 of 10 files (100 %), ended after 10.0 s"


def test_short_commands_do_not_load_rich(tmp_path):
    terminal = Terminal()
    code = """
import sys
from taskplace.model.work import Work
from taskplace.record import long_work, reporters
reporters.BAR_SECONDS = 60.0
with long_work() as show, Work("reading", "files", 1, show=show) as reading:
    reading.add(1)
print([name for name in ("rich",) if name in sys.modules])
"""
    assert terminal.python(code) == 0
    assert terminal.screen == ("[]",)


#: Work on whose bars a test looks: it goes on when something was written to a pipe, so that no bar is missed.
WORK = """
import sys
from pathlib import Path
from taskplace.record.events import WorkProgress
from taskplace.record import reporters
reporters.BAR_SECONDS = 0.0
with reporters.long_work() as show:
    show(WorkProgress("verifying", 1.2e9, 3.4e9, "bytes", seconds=12.0, rate=1e8, eta=22.0))
    show(WorkProgress("starting Spark", seconds=3.0))
    Path(sys.argv[1]).read_bytes()
    show(WorkProgress("verifying", ended=True))
print("the answer")
"""


def looked_at(terminal: Terminal, tmp_path, **env) -> tuple[str, ...]:
    """Run `WORK` until both bars are seen, and return that screen."""
    found: list[tuple[str, ...]] = []
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    def seen(screen: tuple[str, ...]) -> None:
        if not found and any(line.startswith("verif") for line in screen) and len(screen) >= 2:
            found.append(screen)
            gate.write_bytes(b"on")

    with (tmp_path / "out").open("w") as out:
        assert terminal.run([sys.executable, "-c", WORK, gate], stdout=out, seen=seen, **env) == 0
    return found[0]


def test_bars_are_on_standard_error_and_are_gone_at_the_end(tmp_path):
    terminal = Terminal(columns=100)
    first, second = looked_at(terminal, tmp_path)
    assert first.startswith("verifying")
    assert "1.2 GB of 3.4 GB" in first and "left" in first and "100.0 MB/s" in first and "━" in first
    assert second.startswith("starting Spark") and "0:0" in second
    assert terminal.screen == ()
    assert not terminal.cursor_hidden
    assert (tmp_path / "out").read_text() == "the answer\n"


def test_bars_take_one_line_each_on_a_terminal_of_any_width():
    bars = WorkBars()
    bars.show(WorkProgress("verifying", 1.2e9, 3.4e9, "bytes", seconds=12.0, rate=1e8, eta=22.0))
    bars.show(WorkProgress("starting Spark", seconds=3.0))
    bars.show(WorkProgress("simulating", 3, 20, "groups of events", seconds=3.0, detail="round 12"))
    for width in range(1, 160):
        lines = printed(bars, width)
        assert len(lines) == 3, width
        assert max(map(len, lines)) <= width
    assert "100.0 MB/s" in lines[0] and lines[2].rstrip().endswith("round 12")


def test_bars_without_colour(tmp_path):
    terminal = Terminal(columns=100)
    first, second = looked_at(terminal, tmp_path, NO_COLOR="1")
    assert "━" in first
    assert "━" not in second  # without colours, a bar without an end would look complete
    assert not any(f"\x1b[{code}".encode() in terminal.bytes for code in ("3", "38", "9"))


def printed(bars: WorkBars, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(bars)
    return console.file.getvalue().splitlines()


def test_more_work_than_fits_is_counted(terminal_settings):
    bars = WorkBars()
    for k in range(MOST + 3):
        bars.show(WorkProgress(f"work {k}"))
    assert printed(bars, 60)[-1] == "and 3 more"


def test_the_time_goes_on_between_two_events(clock):
    bars = WorkBars(clock)
    bars.show(WorkProgress("verifying", 1, 4, "files", seconds=2.0, eta=90.0))
    bars.show(WorkProgress("starting Spark", seconds=2.0))
    clock.seconds += 31.0
    first, second = printed(bars, 60)
    assert "0:59 left" in first
    assert "0:33" in second
