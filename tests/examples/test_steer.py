"""The example runs as its documentation says, on the first weeks of the year."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from taskplace.spark.steering.status import SteeringStatus
from taskplace.spec.application import ChaosSettings

ROOT = Path(__file__).parents[2]


class Polled:
    """A query and its steering, of which only these batches are seen before it ends."""

    def __init__(self, *batches: int) -> None:
        self.left = list(batches)

    @property
    def isActive(self) -> bool:
        return bool(self.left)

    def exception(self) -> None:
        return None

    def status(self) -> SteeringStatus:
        return SteeringStatus("flights", "steering", batch=self.left.pop(0), executors={"executor-0": (1, 1)})


@pytest.mark.parametrize(
    ("batches", "killed", "missed"),
    [
        ([0, 3, 5, 7, 9], ["one", "two"], []),
        ([0, 6, 6, 7], ["one", "two"], []),
        ([5, 6, 6], ["one"], ["two"]),
        ([9], ["one"], ["two"]),
        ([0, 5], [], ["one", "two"]),
        ([], [], ["one", "two"]),
    ],
)
def test_a_drill_is_held_though_its_batch_was_not_seen_or_it_is_told(
    monkeypatch, capsys, batches, killed, missed
):
    from examples import steer

    done = []
    monkeypatch.setattr(steer, "kill", lambda which, steering: done.append(which) or which)
    polled = Polled(*batches)
    chaos = [ChaosSettings(7, "two"), ChaosSettings(6, "one")]
    left = steer.follow(polled, polled, SimpleNamespace(chaos=chaos))
    assert done == killed
    assert [drill.kill for drill in left] == missed
    assert capsys.readouterr().out.count("killed") == len(killed)


@pytest.mark.spark
@pytest.mark.slow
def test_the_example_holds_its_drill_and_the_replacement_gets_its_share(tmp_path):
    options = [
        "input.files=9",
        "input.pause=4",  # the replacement takes some seconds to come
        f"input.dir={tmp_path / 'input'}",
        f"checkpoint.dir={tmp_path / 'checkpoint'}",
        "chaos=[{batch: 3, kill: executor-with-most-active}]",
    ]
    command = [sys.executable, "examples/steer.py", "conf/steer.yaml", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("killed executor-") == 1
    assert "executor-3 joined" in done.stdout
    *_, last = [line for line in done.stdout.splitlines() if line.startswith("batch ")]
    assert re.search(r"executor-3 [1-9]", last), done.stdout
    assert "the result equals the batch query" in done.stdout


@pytest.mark.spark
@pytest.mark.slow
def test_the_example_steers_the_flights_and_its_result_is_right(tmp_path):
    options = [
        "input.files=5",
        f"input.dir={tmp_path / 'input'}",
        f"checkpoint.dir={tmp_path / 'checkpoint'}",
    ]
    command = [sys.executable, "examples/steer.py", "conf/steer.yaml", *options, "chaos=[]"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the result equals the batch query" in done.stdout
    assert "subtopology 1: dedupe" in done.stdout
    assert done.stdout.count("batch ") >= 5
