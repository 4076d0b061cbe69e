"""Of two caught-up copies, which takes over for now."""

from __future__ import annotations

from taskplace import Instance, PlacementConfig, Problem, Task, TaskId, plan


def test_of_two_copies_that_are_caught_up_the_standby_is_promoted_for_now() -> None:
    lost, of_a, of_b = TaskId(0, 0), TaskId(0, 1), TaskId(0, 2)
    problem = Problem(
        [
            Task(lost, end_offset=50_000),  # the cheapest to restore on c, which has to get a task
            Task(of_a, end_offset=1_000_000),
            Task(of_b, end_offset=1_000_000),
        ],
        [
            Instance("a", active=[of_a], warmup=[lost], lags={of_a: 0, lost: 0}),
            Instance("b", active=[of_b], standby=[lost], lags={of_b: 0, lost: 5}),
            Instance("c"),
        ],
        PlacementConfig(num_standby_replicas=0),
    )
    made = plan(problem)
    assert made.target["c"].active == (lost,)
    assert made.assignment["b"].active == (lost, of_b)
    assert made.assignment["c"].warmup == (lost,)
