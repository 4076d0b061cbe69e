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
    lag = sum(one.lag for one in placed.placement())
    assert {"executors": "2", "lag": str(lag)}.items() <= figures(report).items()
    assert sum(copy.last for copy in report.copies) == lag > 0
    assert [reason.task for reason in report.reasons] == ["0_0", "0_1"]
    assert report.reasons[0].why == placed.explain("0_0").why
    placed.close()


def test_of_a_stream_that_has_ended_without_its_status_and_with_damage(world):
    placed = stream(world)
    placed.close()
    report, found = report_of_checkpoint(placed.checkpoint), inspect(placed.checkpoint)
    records = str(sum(task.records for task in found.tasks.values()))
    assert {"last batch": "0", "records": records}.items() <= figures(report).items()
    assert (report.state.word, [row.active for row in report.now]) == ("no driver runs", [2])
    size = sum(kind.bytes for kind in found.sizes.values())
    assert any(one.name == "size" and one.note.startswith(f"{size:,} bytes in ") for one in report.figures)

    (placed.checkpoint / "status.json").unlink()
    report = report_of_checkpoint(placed.checkpoint)
    assert (report.timeline, [row.note for row in report.now]) == ((), ["at the last commit"])

    next(placed.checkpoint.glob("changelog/*.segment")).unlink()
    report = report_of_checkpoint(placed.checkpoint)
    assert (report.state.word, report.state.tone) == ("damaged", "bad")
    assert figures(report)["damaged"] != "0" and any("missing" in warning for warning in report.warnings)
