"""What a person sees: plain lines and the terminal view, rendered to text."""

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
from taskplace.record.terminal import TerminalReporter

PLACEMENT = (
    InstanceView("0", 12, 12, 1, 340),
    InstanceView("1", 12, 0, 0, 0),
    InstanceView("2", 0, 0, 0, 0, alive=False),
)
BATCH = BatchDone(10, 27, 13_421, 5.5, {"state": 4.0, "commit": 0.5}, PLACEMENT, 4)
MOVES = tuple(Change(f"0_{i}", "active", "2", "0", "balance") for i in range(9))
REBALANCE = Rebalanced(4, 10, "executor 2 was lost", MOVES, 8, 2, True)
LOST = ExecutorLost("executor-2", 10, 8, True)
SUMMARY = Summary(
    batches=27,
    rows=350_123,
    rebalances=3,
    promotions=8,
    replayed_records=120,
    snapshot_records=44,
    scratch_restores=0,
    elsewhere=2,
    phases={"shuffle": 1.0, "state": 2.0, "commit": 0.05},
    seconds=151.4,
    check="result equals the batch query (7,000 of 7,000 rows)",
    ok=True,
)
WARM_UPS = WorkProgress("catching up warm-ups", 3_000, 12_000, "records", seconds=4.0, rate=750.0, eta=12.0)


def everything(reporter):
    reporter.progress(WorkProgress("starting Spark"))
    reporter.progress(WorkProgress("starting Spark", seconds=12.0, ended=True))
    reporter.note("continuing after batch 9")
    reporter.batch(BATCH)
    reporter.progress(WARM_UPS)
    reporter.failure(LOST)
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
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=140, color_system=None, legacy_windows=False)
    everything(TerminalReporter(console=console))
    return stream.getvalue()


@pytest.mark.parametrize("way", ["plain", "rich"])
@pytest.mark.parametrize(
    "says",
    [
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
        "check: result equals the batch query (7,000 of 7,000 rows)",
    ],
)
def test_both_ways_tell_the_same(way, says, request):
    assert says in request.getfixturevalue(way)


def test_plain_has_a_line_a_batch_with_the_placement(plain):
    line = next(line for line in plain.splitlines() if line.startswith("batch 10 (11 of 27)"))
    assert "13,421 rows in 5.5 s (2,440 rows/s), generation 4" in line
    assert "| 0: 12 active, 12 standby, 1 warm-up, lag 340 | 1: 12 active | 2: lost" in line
    assert "\x1b" not in plain


def test_the_terminal_shows_a_bar_and_the_placement_per_executor(rich):
    assert "11 of 27 batches" in rich
    assert "placement, generation 4" in rich
    row = next(line for line in rich.splitlines() if "340" in line)
    assert row.split("│")[1:-1] == [cell.rjust(len(cell)) for cell in row.split("│")[1:-1]]
    assert [cell.strip() for cell in row.split("│")[1:-1]] == ["0", "12", "12", "1", "340"]
    assert any("all" in line and "24" in line for line in rich.splitlines())


def test_the_placement_is_that_of_the_last_rebalance():
    """It does not wait for the next batch; the lag of a new copy is not known yet."""
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=140, color_system=None, legacy_windows=False)
    shown = TerminalReporter(console=console)
    shown.batch(
        BatchDone(9, 27, 100, 1.0, {}, (InstanceView("a", 2, 0, 0, 7), InstanceView("b", 1, 0, 0, 0)), 2)
    )
    shown.failure(ExecutorLost("b", 10, 1))
    assignment = {"a": {"active": ("0_0", "0_1", "0_2")}, "c": {"warmup": ("0_1",)}}
    change = Change("0_1", "warmup", "a", "c", "balance")
    shown.rebalance(Rebalanced(3, 10, "joined", assignment=assignment, changes=(change,)))
    shown.close()
    view = stream.getvalue().rpartition("placement, generation ")[2]
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in view.splitlines() if "│" in line]
    assert view.startswith("3")
    assert rows == [
        ["a", "3", "0", "0", "7"],
        ["b", "lost", "", "", ""],
        ["c", "0", "0", "1", "?"],
        ["all", "3", "0", "1", "?"],
    ]
    assert re.search(r"10 of 27 batches +for 0:0\d", view)


def test_the_terminal_shows_what_is_done_before_the_first_batch():
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=100, color_system=None, legacy_windows=False)
    reporter = TerminalReporter(console=console)
    reporter.progress(WorkProgress("starting Spark"))
    reporter.close()
    assert "starting Spark" in stream.getvalue()
    assert "batches" not in stream.getvalue()


def test_the_last_words_of_a_thread_do_not_begin_a_new_view():
    stream = io.StringIO()
    reporter = TerminalReporter(console=Console(file=stream, force_terminal=True, width=100))
    reporter.progress(WARM_UPS)
    reporter.close()
    before = stream.getvalue()
    reporter.progress(WARM_UPS)
    assert stream.getvalue() == before


@pytest.mark.parametrize(
    "make", [PlainReporter, lambda s: TerminalReporter(console=Console(file=s, width=100))]
)
def test_a_wrong_result_is_loud_and_shows_the_rows(make):
    stream = io.StringIO()
    detail = ("N1, bad: (3,) instead of (4,)",)
    make(stream).summary(Summary(1, 1, 0, 0, 0, 0, 0, 0, check="differs in 1 row", ok=False, detail=detail))
    assert "  N1, bad: (3,) instead of (4,)\ncheck: FAILED: differs in 1 row" in stream.getvalue()


def test_auto_is_plain_where_there_is_no_cursor(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("CI", raising=False)
    assert isinstance(reporter_for("auto", Terminal()), TerminalReporter)
    assert isinstance(reporter_for("auto", io.StringIO()), PlainReporter)
    assert isinstance(reporter_for("rich", io.StringIO()), TerminalReporter)
    assert isinstance(reporter_for("plain", Terminal()), PlainReporter)
    assert isinstance(reporter_for("none", Terminal()), SilentReporter)
    monkeypatch.setenv("CI", "true")
    assert isinstance(reporter_for("auto", Terminal()), PlainReporter)
    monkeypatch.delenv("CI")
    monkeypatch.setenv("TERM", "dumb")
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
