"""A running stream explains why a task is where it is; no Spark needed."""

from __future__ import annotations

import pytest

from taskplace.errors import InputError, TaskplaceError
from tests.support.word_counts import counts, words
from topology import TaskId

TASKS = TaskId(0, 0), TaskId(0, 1)
STRICT = {"acceptable.recovery.lag": 0}


def owners(placed) -> dict[TaskId, str]:
    return {task: owner.instance for task, owner in placed.state.owners().items()}


def test_a_task_is_explained_by_the_plan_in_force(world):
    placed = world.open(counts(world), config=STRICT)
    with pytest.raises(TaskplaceError, match=r"^task 0_1: there is no plan yet; the first batch makes one$"):
        placed.explain("0_1")
    world.batch(placed, 0, **{"in": words(*"abcdefgh")})
    (first,) = set(owners(placed).values())
    assert {placed.explain(task).instance for task in TASKS} == {first}

    world.come()
    world.follow(placed)
    world.batch(placed, 1, **{"in": words(*"abcdefgh")})
    (second,) = {member for member in placed.state.members if member != first}
    (moving,) = [each for task in TASKS if len((each := placed.explain(task)).roles) == 2]
    assert [(role.role, role.instance) for role in moving.roles] == [("active", first), ("warmup", second)]
    assert moving.target == (("active", second),)
    assert f"but {second} still lacks 4 records" in moving.why
    assert str(placed.explain(str(moving.task))) == str(moving)

    world.follow(placed)
    world.batch(placed, 2, **{"in": words(*"abcdefgh")})
    moved = placed.explain(moving.task)
    assert (moved.instance, len(moved.roles)) == (second, 1)
    assert owners(placed)[moving.task] == second

    world.lose(placed.state.members[second].executor.id)
    world.batch(placed, 3, **{"in": words(*"abcdefgh")})
    assert placed.explain(moving.task).instance == owners(placed)[moving.task] == first


def test_an_unknown_task_is_refused(world):
    placed = world.open(counts(world))
    world.batch(placed, 0, **{"in": words("a")})
    for unknown in ("0_9", "no task", 3):
        with pytest.raises(InputError, match=r"^task: found .*, expected one of 2 tasks: 0_0, 0_1$"):
            placed.explain(unknown)


def test_a_notebook_shows_the_placement(world):
    placed = world.open(counts(world))
    assert "t: no batch yet, generation 0, 2 tasks" in placed._repr_html_()
    world.come()
    world.batch(placed, 0, **{"in": words(*"abcd")})
    shown = placed._repr_html_()
    assert "t: batch 0, generation 1, 2 tasks" in shown
    for view in placed.placement():
        assert f"<td>{view.id}</td><td>{view.active}</td><td>{view.standby}</td>" in shown
