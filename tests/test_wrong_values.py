"""Wrong values given to the engine's calls are named; none ends in a traceback of Python's or numpy's."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

import taskplace
from taskplace import Instance, Problem, Task, TaskId
from taskplace.errors import InputError, TaskplaceError
from taskplace.groups.partitions import assign_partitions

A = TaskId(0, 0)
WRONG = [
    None, 3, -1, 2.5, float("nan"), 10**30, "x", "", b"x", True, [], [1], ["x"], [None], (1, 2), {1}, {}, {"x": 1},
    {1: 2}, {"x": [1]}, object(), int, len, datetime.timedelta(1),
]  # fmt: skip
PROBLEM: dict[str, Any] = {"tasks": [{"id": "0_0"}], "instances": [{"id": "a"}]}
GROUP: dict[str, Any] = {"topics": {"t": 2}, "members": {"a": {"topics": ["t"]}}}


def clean(call: Any) -> None:
    """Call it; it may work, or be refused as bad input."""
    try:
        call()
    except TaskplaceError as error:
        assert str(error)


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: repr(wrong).partition(" at 0x")[0])
def test_nothing_ends_in_a_traceback(wrong):
    problem, made = Problem.from_dict(PROBLEM), taskplace.plan(PROBLEM)
    clean(lambda: taskplace.plan(wrong))
    for part in ("tasks", "instances", "config"):
        clean(lambda part=part: taskplace.plan({**PROBLEM, part: wrong}))
        given = {"tasks": [Task(A)], "instances": [Instance("a")], part: wrong}
        clean(lambda given=given: taskplace.plan(Problem(**given)))
    for field in ("id", "stateful", "end_offset", "weight", "logged", "racks"):
        clean(lambda field=field: taskplace.plan(Problem([Task(**{"id": A, field: wrong})], [Instance("a")])))
    for field in (
        "id",
        "capacity",
        "tags",
        "draining",
        "active",
        "standby",
        "lags",
        "parked",
        "slots",
        "restore_rate",
    ):
        clean(lambda field=field: taskplace.plan(Problem([Task(A)], [Instance(**{"id": "a", field: wrong})])))
    clean(lambda: taskplace.explain(wrong, made, "0_0"))
    clean(lambda: taskplace.explain(problem, wrong, "0_0"))
    clean(lambda: taskplace.explain(problem, made, wrong))
    clean(lambda: taskplace.check(wrong, made))
    clean(lambda: taskplace.check(problem, wrong))
    for events in (wrong, [wrong], [[wrong]]):
        clean(lambda events=events: taskplace.simulate(PROBLEM, events))
    clean(lambda: taskplace.simulate(PROBLEM, restore_rate=wrong))
    clean(lambda: assign_partitions(wrong))
    clean(lambda: assign_partitions(GROUP, wrong))
    for field in ("topics", "members", "racks", "assignor", "cooperative", "replicas", "seed"):
        clean(lambda field=field: assign_partitions({**GROUP, field: wrong}))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Problem("tasks", [Instance("a")]), r"^tasks: found 'tasks', expected a list of Tasks"),
        (lambda: Problem([Task(A)], ["a"]), r"^instances\[0\]: found 'a', expected an Instance"),
        (lambda: taskplace.plan(Problem([Task(A)], [Instance("a")], {})), "^config: found {}, expected a Pla"),
        (lambda: Instance("a", capacity=None), r"^instances\[a\]\.capacity: found nothing, expected an integer"),
        (lambda: Instance("a", active=5), r"^instances\[a\]\.active: found 5, expected a list of TaskIds"),
        (lambda: taskplace.plan(Problem([Task(A)], [Instance("a", lags=[1])])), r"^instances\[a\]\.lags: found \[1\]"),
        (lambda: taskplace.simulate(PROBLEM, 5), "^events: found 5, expected a list of groups of events, such as"),
        (lambda: taskplace.check(PROBLEM, taskplace.plan(PROBLEM)), r"^problem: found .*expected a Problem"),
        (lambda: assign_partitions(GROUP, 5), r"^assignor: found 5, expected one of"),
    ],
)  # fmt: skip
def test_the_value_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()
