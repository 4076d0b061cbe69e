"""`taskplace status --watch`, and the words of statuses."""

from __future__ import annotations

import json
import time
from datetime import datetime, timezone
from pathlib import Path

import jsonschema
import pytest
from msgspec.structs import replace

from taskplace.cli import main
from taskplace.cli.status import events, headings, lines
from taskplace.model.schema import schema
from taskplace.record.events import Change, ExecutorLost, Rebalanced, Totals
from taskplace.spark.inspection.driver import DriverState, driver_of
from taskplace.spark.operator_messages import DriverIdentity, ExecutorStatus, RunningBatch, Status
from tests.support.operators import attended, run, write_status

NOW = Status("id", "t", 1, DriverIdentity("h", 7, "app", 0.0), 100.0, 1, 2.0)


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)


@pytest.fixture
def pauses(monkeypatch):
    """What happens at each pause between two readings, by its number; the last one interrupts the command."""
    found, numbers = {}, iter(range(1, 99))

    def pause(_: float) -> None:
        number = next(numbers)
        if number > max(found):
            raise KeyboardInterrupt
        found.get(number, lambda: None)()

    monkeypatch.setattr("taskplace.cli.status.time.sleep", pause)
    return found


def test_status(placed, capsys):
    path = str(placed.checkpoint)
    assert main(["status", path]) == 0
    out = capsys.readouterr().out
    assert out.startswith("running: driver 1 (app-1, process ")
    assert "executor-2  host-2       1        0        0    0\n" in out
    assert "membership: executor-2 joined; 1 move, 1 warm-up; more to come" in out
    assert main(["status", path, "--output", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, schema("status-seen"), cls=jsonschema.Draft202012Validator)
    assert (found["runs"], found["status"]["batch"], found["status"]["late_here"]) == (True, 2, 0)
    assert found["status"]["totals"] == {"since": 0, "rows": 24, "late": 0, "bad": {}}
    placed.close()
    assert main(["status", path]) == 4
    assert capsys.readouterr().out.startswith("no driver runs: driver 1 (app-1, process ")


@pytest.mark.parametrize(
    ("moves", "last"), [(6, "0_5: new standby on executor-1"), (9, "... and 3 more moves")]
)
def test_status_says_how_many_moves_it_leaves_out(moves, last):
    shown = tuple(Change(f"0_{i}", "standby", None, "executor-1", "") for i in range(6))
    first, *lines = events(replace(NOW, rebalances=(Rebalanced(1, 2, "start", shown, more=moves - 6),)))
    assert f"{moves} moves" in first
    assert [line.strip() for line in lines[:6]] == list(map(str, shown))
    assert lines[-1].strip() == last


def test_status_watched(placed, capsys):
    path = str(placed.checkpoint)
    with attended(placed):
        code = main(["status", path, "--watch", "--count", "2", "--interval", "0.05", "--output", "json"])
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert code == 0 and second["status"]["number"] > first["status"]["number"]
    assert main(["status", path, "--watch", "--count", "1"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert "generation 3; 2 executors; 2 active, 0 standby, lag 0" in line


def test_a_line_is_printed_again_only_if_it_differs(world, placed, capsys, pauses):
    """The driver writes its status again and again; then it commits a batch, and at last it ends."""
    again = dict.fromkeys(range(1, 5), lambda: write_status(placed))
    pauses.update(
        {**again, 3: lambda: (run(world, placed, 3), write_status(placed)), 5: placed.close, 7: int}
    )
    assert main(["status", str(placed.checkpoint), "--watch"]) == 130
    first, second, ended = capsys.readouterr().out.splitlines()
    assert first.startswith("batch 2 took") and second.startswith("batch 3 took")
    assert ended.startswith("no driver runs: ")


def test_an_end_is_told_once_although_its_age_grows(placed, capsys, monkeypatch, pauses):
    pauses.update({1: placed.close, 4: int})
    clock = iter(range(1_000))
    aged = "taskplace.cli.status.driver_of"
    monkeypatch.setattr(aged, lambda root: driver_of(root, clock=lambda: time.time() + next(clock)))
    assert main(["status", str(placed.checkpoint), "--watch"]) == 130
    _, ended = capsys.readouterr().out.splitlines()
    assert ended.startswith("no driver runs: ")


def test_the_times_of_a_status_are_relative_to_one_point():
    """That is now while the driver runs. Without one, it is the last status, whose time is said."""
    now = replace(
        NOW,
        followup=True,
        next_probing=30.0,
        running=RunningBatch(18, 97.0),
        rebalances=(Rebalanced(3, 18, "probing", followup=True, time=at(25.0)),),
        losses=(ExecutorLost("executor-2", 18, 4, time=at(99.5)),),
    )
    runs = "\n".join(lines(DriverState(True, "it wrote its status just now", now, 0.5, 1, Path("/c d"))))
    assert "; the next check for moves is due in 30 s" in runs and " has been running for 3 s" in runs
    assert "rebalance   1 min 15 s ago: batch 18, generation 3: probing" in runs
    assert "loss        just now: lost executor-2 in batch 18 with 4 active tasks" in runs
    assert "relative" not in runs and "--verify" not in runs

    ended = "\n".join(lines(DriverState(False, "it has ended, 3 h ago", now, 10_800.0, 1, Path("/c d"))))
    assert ended.splitlines()[:3] == [
        "no driver runs: it has ended, 3 h ago",
        "What follows is its last status, of 1970-01-01 00:01:40 UTC; times are relative to it.",
        "This command checks no file of the checkpoint; `taskplace inspect '/c d' --verify` does.",
    ]
    assert "1 min 15 s before: batch 18, generation 3: probing" in ended
    assert "just before: lost executor-2" in ended
    assert "batch 18 had been running for 3 s" in ended and "the next check" not in ended
    assert ended.count(" ago") == 1


def test_copies_that_are_stuck_for_one_cause_share_a_line():
    full = {f"0_{n}": "DiskFull: /state: 0 of 9 MiB free" for n in range(7)}
    there = {
        "executor-1": ExecutorStatus("host-1", 1, standby=dict.fromkeys(full, 5), errors=full),
        "executor-2": ExecutorStatus("host-2", 1, standby={"0_8": 5}, errors={"0_8": "OSError: gone"}),
    }
    first, second, command = events(replace(NOW, executors=there), "/c")
    assert first.startswith("stuck       0_0, 0_1, 0_2, 0_3, 0_4 and 2 more on executor-1: ")
    assert second.startswith("stuck       0_8 on executor-2: ") and "OSError: gone" in second
    assert command == f"{'':12}`taskplace explain /c --task 0_0` says what follows from it"
    many = dict.fromkeys((f"executor-{n}" for n in range(1, 9)), there["executor-1"])
    *causes, command = events(replace(NOW, executors=many), "/c")
    assert len(causes) == 5 and command.startswith(f"{'':12}and 21 more copies; `taskplace explain ")


LATE = "late rows: 12 since batch 7, 3 of them since this driver started; 5,000 rows in all"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, []),
        ({"totals": Totals(7, 5_000, 12), "late_here": 3}, [LATE]),
        ({"totals": Totals(0, 32, 0)}, ["late rows: 0 of 32"]),
        (
            {
                "totals": Totals(7, 5_000, 12, {"b": 1, "a": 1_200}),
                "late_here": 3,
                "watermark": 1_357_017_120_000_000,
            },
            [
                LATE,
                "dead letters: 1,201 (a: 1,200, b: 1)",
                "watermark: 2013-01-01 05:12:00 (UTC, of all sources)",
            ],
        ),
        (
            {"followup": True, "next_probing": 75.0},
            ["the assignment is not yet the target; the next check for moves is due in 1 min 15 s"],
        ),
        ({"homeless": ("0_0",)}, ["1 task without an executor until the next rebalance"]),
    ],
)
def test_what_stands_above_the_table(more, said):
    first, *others = headings(replace(NOW, running=RunningBatch(18, 97.0), **more))
    assert (first, others) == ("t: batch 18 has been running for 3 s, generation 0", said)
