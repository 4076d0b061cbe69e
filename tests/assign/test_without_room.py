"""An instance without room changes nothing for the others, and gets nothing, whatever the assignor weighs."""

from __future__ import annotations

import random

import pytest

import taskplace
from taskplace import Instance, PlacementConfig, Problem, Task
from taskplace.assign.weights import load_and_bound
from tests.support.stateful_tasks import END, ids

RACKS = "abc"


def drawn(seed: int, **config: object) -> tuple[list[Task], list[Instance], PlacementConfig]:
    rng = random.Random(seed)
    weights = [1.0, 1.0, 2.0, 9.0] if seed % 2 else [1.0]
    tasks = [
        Task(t, end_offset=END, weight=rng.choice(weights), racks=((rng.choice(RACKS),),))
        for t in (*ids(0, 12), *ids(1, 5))
    ]
    tasks += [Task(t, stateful=False, end_offset=None) for t in ids(2, 6)]
    instances = [Instance(f"i{k}", capacity=rng.randint(1, 3), tags={"rack": RACKS[k % 3]}) for k in range(4)]
    return tasks, instances, PlacementConfig(num_standby_replicas=1, **config)  # type: ignore[arg-type]


@pytest.mark.parametrize("room", [{"capacity": 0}, {"draining": True}])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"task_assignor_class": "sticky"},
        {"rack_aware_assignment_tags": ("rack",)},
        {"rack_aware_assignment_strategy": "min_traffic"},
        {"rack_aware_assignment_strategy": "balance_subtopology", "rack_aware_assignment_tags": ("rack",)},
    ],
    ids=str,
)
def test_an_instance_without_room_gets_nothing_and_shifts_nothing(
    config: dict[str, object], seed: int, room: dict[str, object]
) -> None:
    tasks, instances, settings = drawn(seed, **config)
    alone = taskplace.plan(Problem(tasks, instances, settings))
    idle = Instance("zz", tags={"rack": "a"}, **room)  # type: ignore[arg-type]
    problem = Problem(tasks, [*instances, idle], settings)
    beside = taskplace.plan(problem)
    taskplace.check(problem, beside)
    assert not any(beside.target["zz"]) and not any(beside.assignment["zz"])
    for figure in ("weighted_load_bound", "active_balance"):
        assert beside.metrics.get(figure) == alone.metrics.get(figure), figure


def test_without_tasks_there_is_no_load_and_room_is_what_shares_it() -> None:
    task = Task(ids(0, 1)[0], end_offset=END, weight=3.0)
    columns = Problem([], [Instance("a")]).columns
    assert load_and_bound(columns, columns.owner) == (0.0, 0.0)
    two = Problem(
        [task],
        [Instance("a", capacity=2, active=ids(0, 1), lags={ids(0, 1)[0]: 0}), Instance("b", capacity=0)],
    )
    assert load_and_bound(two.columns, two.columns.owner) == (1.5, 1.5)
