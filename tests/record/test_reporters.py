"""What a person sees of a run: plain lines and the terminal view, rendered to text; and who gets events."""

from __future__ import annotations

import io
import re
import subprocess
import sys

import pytest
from rich.console import Console

from taskplace.record import PlainReporter, SilentReporter, reporter_for
from taskplace.record.events import (
    BatchDone,
    Change,
    ExecutorLost,
    InstanceView,
    Rebalanced,
    Summary,
    WorkProgress,
)
from taskplace.record.reporters import FanOut
from taskplace.record.terminal import TerminalReporter
from tests.support.run_events import SUMMARY as DONE
from tests.support.run_events import tell_events

PLACEMENT = (
    InstanceView("0", 12, 12, 1, 340),
    InstanceView("1", 12, 0, 0, 0),
    InstanceView("2", 0, 0, 0, 0, alive=False),
)
BATCH = BatchDone(10, 27, 13_421, 5.5, {"state": 4.0, "commit": 0.5}, PLACEMENT, 4)
MOVES = tuple(Change(f"0_{i}", "active", "2", "0", "balance") for i in range(9))
REBALANCE = Rebalanced(4, 10, "executor 2 was lost", MOVES, 8, 2, True)
SUMMARY = Summary(
    batches=27,
    rows=350_123,
    phases={"shuffle": 1.0, "state": 2.0, "commit": 0.05},
    seconds=151.4,
    check="result equals the batch query (7,000 of 7,000 rows)",
    ok=True,
)
WARM_UPS = WorkProgress("catching up warm-ups", 3_000, 12_000, "records", seconds=4.0, rate=750.0, eta=12.0)


def on_terminal(width: int = 140) -> TerminalReporter:
    """A reporter whose `console.file` has what it draws."""
    drawn = {"force_terminal": True, "color_system": None, "legacy_windows": False}
    return TerminalReporter(console=Console(file=io.StringIO(), width=width, **drawn))


def everything(reporter):
    reporter.progress(WorkProgress("starting Spark"))
    reporter.progress(WorkProgress("starting Spark", seconds=12.0, ended=True))
    reporter.note("continuing after batch 9")
    reporter.batch(BATCH)
    reporter.progress(WARM_UPS)
    reporter.failure(ExecutorLost("executor-2", 10, 8, True))
    reporter.rebalance(REBALANCE)
    reporter.summary(SUMMARY)
    reporter.close()
    reporter.close()


@pytest.fixture
def plain():
    stream = io.StringIO()
    everything(PlainReporter(stream))
    return stream.getvalue()


@pytest.fixture
def rich():
    reporter = on_terminal()
    everything(reporter)
    return reporter.console.file.getvalue()


@pytest.mark.parametrize("way", ["plain", "rich"])
def test_both_ways_tell_the_same(way, request):
    text = request.getfixturevalue(way)
    for says in (
        "starting Spark: ended after 12.0 s",
        "continuing after batch 9",
        "catching up warm-ups",
        "3,000 of 12,000 records",
        "lost executor-2 in batch 10 with 8 active tasks; the running stage was stopped, and what had finished counts",
        "executor 2 was lost; 9 moves, 8 promotions, 2 warm-ups; more to come",
        "0_5: moves from 2 to 0 (balance)",
        "... and 3 more moves",
        "350,123",
        "2 min 31 s",
        "active tasks restored from scratch",
        "where a batch's time goes (median)",
        "66 %",
    ):
        assert says in text
    assert text.rstrip().splitlines()[-1].strip() == f"check: {SUMMARY.check}"


def cells(view: str) -> list[list[str]]:
    """The rows of the last table of a view."""
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in view.splitlines() if "│" in line]


def test_the_placement_is_that_of_the_last_batch():
    """A loss is marked at once."""
    shown = on_terminal()
    placement = (InstanceView("a", 2, 0, 0, 7), InstanceView("b", 1, 0, 0, 0))
    shown.batch(BatchDone(9, 27, 100, 1.0, {}, placement, 2))
    shown.failure(ExecutorLost("b", 10, 1))
    shown.close()
    *_, view = shown.console.file.getvalue().split("placement, generation ")
    assert view.startswith("2")
    assert cells(view) == [["a", "2", "0", "0", "7"], ["b", "lost", "", "", ""], ["all", "2", "0", "0", "7"]]
    assert re.search(r"10 of 27 batches +for 0:0\d", view)


def test_the_terminal_shows_what_is_done_before_the_first_batch_and_nothing_after_its_end():
    reporter = on_terminal()
    reporter.progress(WorkProgress("starting Spark"))
    reporter.close()
    before = reporter.console.file.getvalue()
    assert "starting Spark" in before and "batches" not in before
    reporter.progress(WARM_UPS)  # the last words of a thread
    assert reporter.console.file.getvalue() == before


def test_a_wrong_result_is_loud_and_shows_the_rows():
    wrong = Summary(check="differs in 1 row", ok=False, detail=("N1, bad: (3,) instead of (4,)",))
    stream, terminal = io.StringIO(), on_terminal()
    for reporter in (PlainReporter(stream), terminal):
        reporter.summary(wrong)
    for text in (stream.getvalue(), terminal.console.file.getvalue()):
        assert "  N1, bad: (3,) instead of (4,)\ncheck: FAILED: differs in 1 row" in text


def test_auto_is_plain_where_there_is_no_cursor(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("CI", raising=False)
    for mode, stream, kind in (
        ("auto", Terminal(), TerminalReporter),
        ("auto", io.StringIO(), PlainReporter),
        ("rich", io.StringIO(), TerminalReporter),
        ("plain", Terminal(), PlainReporter),
        ("none", Terminal(), SilentReporter),
    ):
        assert isinstance(reporter_for(mode, stream), kind)
    for name, value in (("CI", "true"), ("TERM", "dumb")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert isinstance(reporter_for("auto", Terminal()), PlainReporter)


def test_a_reader_that_has_gone_does_not_stop_the_run():
    stream = io.StringIO()
    stream.close()
    everything(PlainReporter(stream))


@pytest.mark.parametrize("module", ["record.events", "record.prometheus", "cli.status"])
def test_what_takes_long_to_load_or_may_be_missing_is_loaded_when_it_is_needed(module):
    names = ("rich", "pyspark", "prometheus_client")
    code = f"import sys, taskplace.{module}; print([m for m in {names} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# -- several reporters


class Broken(PlainReporter):
    def note(self, text):
        raise RuntimeError("broken")


class Kept:
    def __init__(self):
        self.heard = []

    def __getattr__(self, name):
        return lambda *event: self.heard.append(name)


def test_all_get_all_events():
    first, other = Kept(), Kept()
    reporters = FanOut(first)
    reporters.add(other)
    tell_events(reporters)
    reporters.note("x")
    reporters.summary(DONE)
    reporters.close()
    assert first.heard == other.heard
    assert set(first.heard) == {"batch", "rebalance", "failure", "note", "summary", "close"}


def test_it_is_false_while_nobody_listens():
    reporters, kept = FanOut(), Kept()
    assert not reporters and FanOut(kept)
    reporters.add(kept)
    assert reporters
    reporters.remove(kept)
    assert not reporters


def test_the_error_of_an_onlooker_is_logged_once_and_that_of_the_first_is_raised(caplog):
    reporters, kept = FanOut(), Kept()
    reporters.add(Broken(None))
    reporters.add(kept)
    reporters.note("one")
    reporters.note("two")
    assert kept.heard == ["note", "note"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    with pytest.raises(RuntimeError, match="broken"):
        FanOut(Broken(None)).note("one")
