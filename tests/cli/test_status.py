"""`taskplace status --watch`, and the words of statuses."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from taskplace.cli import main
from taskplace.cli.status import events, headings, lines
from taskplace.record.events import ExecutorLost, Rebalanced, Totals
from taskplace.spark.inspection.driver import DriverState, driver_of
from taskplace.spark.operator_messages import (
    DriverIdentity,
    ExecutorStatus,
    RunningBatch,
    Status,
)
from tests.support.operators import attended, run, write_status


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def test_status_watched(placed, capsys):
    path = str(placed.checkpoint)
    with attended(placed):
        assert (
            main(["status", path, "--watch", "--count", "2", "--interval", "0.05", "--output", "json"]) == 0
        )
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert second["status"]["number"] > first["status"]["number"]
    assert main(["status", path, "--watch", "--count", "1"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert "generation 3; 2 executors; 2 active, 0 standby, lag 0" in line


def test_a_line_is_printed_again_only_if_it_differs(world, placed, capsys, monkeypatch):
    """The driver writes its status again and again; then it commits a batch."""
    looks = []

    def pause(_: float) -> None:
        looks.append(0)
        if len(looks) == 3:
            run(world, placed, 3)
        write_status(placed)

    monkeypatch.setattr("taskplace.cli.status.time.sleep", pause)
    assert main(["status", str(placed.checkpoint), "--watch", "--count", "2"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("batch 2 took") and second.startswith("batch 3 took")
    assert len(looks) == 3


def test_an_end_is_told_once(placed, capsys, monkeypatch):
    looks = []

    def pause(_: float) -> None:
        looks.append(0)
        if len(looks) > 4:
            raise KeyboardInterrupt
        if len(looks) == 1:
            placed.close()

    monkeypatch.setattr("taskplace.cli.status.time.sleep", pause)
    clock = iter(range(1_000))
    seen = "taskplace.cli.status.driver_of"
    monkeypatch.setattr(seen, lambda root: driver_of(root, clock=lambda: time.time() + next(clock)))
    assert main(["status", str(placed.checkpoint), "--watch"]) == 130
    _, ended = capsys.readouterr().out.splitlines()
    assert ended.startswith("no driver runs: ")


def test_the_times_of_a_status_are_relative_to_one_point():
    """That is now while the driver runs. Without one, it is the last status, whose time is said."""
    driver = DriverIdentity("h", 7, "app", 0.0)
    rebalance = Rebalanced(3, 18, "probing", followup=True, time=at(25.0))
    now = Status(
        "id",
        "t",
        1,
        driver,
        100.0,
        1,
        2.0,
        followup=True,
        next_probing=30.0,
        running=RunningBatch(18, 97.0),
        rebalances=(rebalance,),
        losses=(ExecutorLost("executor-2", 18, 4, time=at(99.5)),),
    )
    runs = "\n".join(lines(DriverState(True, "it wrote its status just now", now, 0.5, 1, Path("/c d"))))
    assert "; the next check for moves is due in 30 s" in runs and " has been running for 3 s" in runs
    assert (
        "1 min 15 s ago: batch 18, generation 3: probing" in runs
        and "loss        just now: lost executor-2 in batch 18 with 4 active tasks" in runs
    )
    assert "relative" not in runs and "--verify" not in runs

    ended = "\n".join(lines(DriverState(False, "it has ended, 3 h ago", now, 10_800.0, 1, Path("/c d"))))
    first, second, third, *_ = ended.splitlines()
    assert first == "no driver runs: it has ended, 3 h ago"
    assert second == (
        "What follows is its last status, of 1970-01-01 00:01:40 UTC; times are relative to it."
    )
    assert third == (
        "This command checks no file of the checkpoint; `taskplace inspect '/c d' --verify` does."
    )
    assert (
        "1 min 15 s before: batch 18, generation 3: probing" in ended
        and "just before: lost executor-2" in ended
    )
    assert "batch 18 had been running for 3 s" in ended and "the next check" not in ended
    assert ended.count(" ago") == 1


def test_a_status_looks_for_stuck_copies_once(monkeypatch):
    asked = []
    monkeypatch.setattr("taskplace.cli.status.stuck", lambda *_, **__: asked.append(1) or iter(()))
    list(events(Status("id", "t", 1, DriverIdentity("h", 7, "app", 0.0), 9.0, 1, 2.0)))
    assert asked == [1]


def test_copies_that_are_stuck_for_one_cause_share_a_line():
    full = {f"0_{n}": "DiskFull: /state: 0 of 9 MiB free" for n in range(7)}
    there = {
        "executor-1": ExecutorStatus("host-1", 1, standby=dict.fromkeys(full, 5), errors=full),
        "executor-2": ExecutorStatus("host-2", 1, standby={"0_8": 5}, errors={"0_8": "OSError: gone"}),
    }
    now = Status("id", "t", 1, DriverIdentity("h", 7, "app", 0.0), 9.0, 1, 2.0, executors=there)
    first, second, command = events(now, "/c")
    assert first.startswith("stuck       0_0, 0_1, 0_2, 0_3, 0_4 and 2 more on executor-1: ")
    assert second.startswith("stuck       0_8 on executor-2: ") and "OSError: gone" in second
    assert command == f"{'':12}`taskplace explain /c --task 0_0` says what follows from it"

    names = [f"executor-{n}" for n in range(1, 9)]
    now = replace(now, executors=dict.fromkeys(names, there["executor-1"]))
    *causes, command = events(now, "/c")
    assert len(causes) == 5 and command.startswith(f"{'':12}and 21 more copies; `taskplace explain ")


def test_times_of_a_status_are_said_as_they_are_meant():
    driver = DriverIdentity("h", 7, "app", 0.0)
    now = Status(
        "id", "t", 1, driver, 9.0, 1, 2.0, followup=True, next_probing=0.3, running=RunningBatch(18, 6.0)
    )
    head, move = headings(now)
    assert head == "t: batch 18 has been running for 3 s, generation 0"
    assert move == "the assignment is not yet the target; the next check for moves is due now"
    later = list(headings(replace(now, next_probing=75.0)))[1]
    assert later.endswith("; the next check for moves is due in 1 min 15 s")


def test_status_shows_the_late_rows_over_restarts():
    driver = DriverIdentity("h", 7, "app", 0.0)
    now = Status("id", "t", 1, driver, 9.0, 1, 2.0, totals=Totals(7, 5_000, 12), late_here=3)
    late = "late rows: 12 since batch 7, 3 of them since this driver started; 5,000 rows in all"
    assert list(headings(now))[1] == late
    assert len(list(headings(replace(now, totals=None)))) == 1, "an older version wrote it"
    more = replace(now, totals=Totals(7, 5_000, 12, {"b": 1, "a": 1_200}), watermark=1_357_017_120_000_000)
    assert list(headings(more))[1:] == [
        late,
        "dead letters: 1,201 (a: 1,200, b: 1)",
        "watermark: 2013-01-01 05:12:00 (UTC, of all sources)",
    ]
    none = replace(now, totals=Totals(0, 32, 0))
    assert list(headings(none))[1] == "late rows: 0 of 32"


def test_long_names_keep_the_numbers_under_their_headings():
    host = "ip-10-0-11-120.eu-central-1.compute.internal"
    there = {f"executor-{number}": ExecutorStatus(host, 1) for number in (1, 30)}
    now = Status(
        "id", "t", 1, DriverIdentity("h", 7, "app", 0.0), written=9.0, number=1, interval=2.0, executors=there
    )
    heading, *rows = list(lines(DriverState(True, "it runs", now, 0.0, 1, Path("/c"))))[-3:]
    assert heading.startswith("executor ")
    for row in rows:
        assert len(row) == len(heading)
        assert row[heading.index("host") - 1] == " " and row[heading.index("host")] == "i"
