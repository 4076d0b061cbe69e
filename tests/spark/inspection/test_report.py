"""The report of a checkpoint: of a running driver, of one that has ended, and of a damaged checkpoint."""

from __future__ import annotations

import pytest

from taskplace.spark.driver import operations
from taskplace.spark.inspection.checkpoint import inspect
from taskplace.spark.inspection.report import report_of_checkpoint
from tests.support.operators import run, stream, turn

STANDBY = {"num.standby.replicas": 1, "acceptable.recovery.lag": 0}


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(operations, "LEAST_SECONDS", 0.0)


def figures(report):
    return {figure.name: figure.value for figure in report.figures}


def test_of_a_running_stream(world):
    world.come(1)
    placed = stream(world, config=STANDBY)
    run(world, placed, 1)
    turn(placed)
    report = report_of_checkpoint(placed.checkpoint)
    assert (report.kind, report.title, report.state.word) == ("checkpoint", "t", "running")
    assert [step.label for step in report.steps] == ["batch 1", "now"]
    assert report.steps[1].changes == {}
    assert report.samples.number == (0, 1)
    assert [one.kind for one in report.timeline] == ["rebalance"]
    assert figures(report)["executors"] == "2"
    lag = sum(one.lag for one in placed.placement())
    assert figures(report)["lag"] == str(lag)
    assert sum(copy.last for copy in report.copies) == lag > 0
    assert [reason.task for reason in report.reasons] == ["0_0", "0_1"]
    assert report.reasons[0].why == placed.explain("0_0").why
    placed.close()


def test_of_a_stream_that_has_ended(world):
    placed = stream(world)
    run(world, placed, 1)
    placed.close()
    report = report_of_checkpoint(placed.checkpoint)
    assert report.state.word == "no driver runs"
    found = inspect(placed.checkpoint)
    assert figures(report)["last batch"] == "1"
    assert figures(report)["records"] == str(sum(task.records for task in found.tasks.values()))
    held = sum(kind.bytes for kind in found.sizes.values())
    assert any(one.name == "size" and one.note.startswith(f"{held:,} bytes in ") for one in report.figures)
    assert [row.active for row in report.now] == [2]


def test_without_a_status(world):
    placed = stream(world)
    placed.close()
    (placed.checkpoint / "status.json").unlink()
    report = report_of_checkpoint(placed.checkpoint)
    assert report.timeline == ()
    assert figures(report)["to replay"] == "8"
    assert sum(copy.last for copy in report.copies) == 8
    assert [row.note for row in report.now] == ["at the last commit"]


def test_of_a_damaged_checkpoint(world):
    placed = stream(world)
    placed.close()
    next(placed.checkpoint.glob("changelog/*.segment")).unlink()
    report = report_of_checkpoint(placed.checkpoint)
    assert (report.state.word, report.state.tone) == ("damaged", "bad")
    assert figures(report)["damaged"] != "0"
    assert any("missing" in warning for warning in report.warnings)
