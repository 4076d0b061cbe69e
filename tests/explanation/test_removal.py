"""When an instance can be removed: the time until the tasks that wait have caught up elsewhere."""

from __future__ import annotations

import pytest

from taskplace.explanation import can_remove
from taskplace.lag.ranking import Seen
from taskplace.model.problem import Instance, PlacementConfig, Problem, Task
from topology.tasks import TaskId

A, B = TaskId(0, 0), TaskId(0, 1)
TASKS = (Task(A, end_offset=50_000), Task(B, end_offset=50_000))
OWNER = Instance("a", active=(A, B), lags={A: 0, B: 0})
CONFIG = PlacementConfig(acceptable_recovery_lag=1_000)


def follower(rate: float | None, **more: object) -> Instance:
    return Instance("b", standby=(A, B), lags={A: 11_000, B: 3_000}, restore_rate=rate, **more)  # type: ignore[arg-type]


def test_the_last_of_the_copies_that_take_turns_counts():
    found = can_remove(Problem(TASKS, (OWNER, follower(100.0)), CONFIG), "a")
    assert [(w.task, w.seconds) for w in found.waits] == [(str(A), 130.0), (str(B), 130.0)]
    assert found.seconds == 130.0
    assert (
        "2 tasks must catch up elsewhere first, which takes about 2 minutes: 0_0 (b is 11,000" in found.text
    )
    assert found.to_dict()["seconds"] == found.to_dict()["waits"][0]["seconds"] == 130.0


def test_the_rates_of_a_driver_replace_those_of_the_instances():
    problem = Problem(TASKS, (OWNER, follower(100.0)), CONFIG)
    assert can_remove(problem, "a", rates={"b": 13.0}).seconds == 1_000.0
    assert can_remove(problem, "a", rates={"b": None}).seconds is None


@pytest.mark.parametrize(
    ("seen", "seconds"),
    [
        (Seen(7.0), 130.0),
        (Seen(500.0), 500.0),
        (Seen(None), None),
        (Seen(7.0, stalled="its disk is full"), None),
    ],
)
def test_what_a_driver_has_seen_of_a_copy_has_priority(seen, seconds):
    found = can_remove(Problem(TASKS, (OWNER, follower(100.0)), CONFIG), "a", seen={("b", A): seen})
    assert found.seconds == seconds
    assert ("which takes" in found.text) == (seconds is not None)


@pytest.mark.parametrize(
    "other", [follower(None), Instance("b", lags={A: 9_000, B: 9_000}, restore_rate=1e6)]
)
def test_nothing_is_guessed_of_an_unmeasured_instance_and_of_copies_that_do_not_follow(other):
    found = can_remove(Problem(TASKS, (OWNER, other), CONFIG), "a")
    assert len(found.waits) == 2
    assert found.seconds is None
