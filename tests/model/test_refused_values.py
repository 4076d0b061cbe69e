"""Values of problems, plans and keys at the limits of what is taken, and just beyond them."""

from __future__ import annotations

from typing import Annotated

import pytest
from msgspec import Meta

from taskplace import Instance, Plan, Problem, Task, TaskId, validation
from taskplace.errors import ConfigError, InputError
from taskplace.model.keys import AboveZero, read
from taskplace.model.placed_options import PlacedOptions

A = TaskId(0, 0)
LAST = 2**31 - 1


@pytest.mark.parametrize(
    ("task", "taken"),
    [
        (Task(TaskId(LAST, LAST)), True),
        (Task(TaskId(LAST + 1, 0)), False),
        (Task(TaskId(0, LAST + 1)), False),
        (Task(A, weight=validation.LEAST_WEIGHT), True),
        (Task(A, weight=validation.LEAST_WEIGHT * 0.999), False),
        (Task(A, weight=validation.MOST_WEIGHT), True),
        (Task(A, weight=validation.MOST_WEIGHT * 1.001), False),
        (Task(A, end_offset=0), True),
        (Task(A, end_offset=2**63 - 1), True),
        (Task(A, end_offset=2**63), False),
        (Task(A, end_offset=None), True),
    ],
)
def test_the_limits_of_a_task_are_taken_and_nothing_beyond(task, taken):
    problem = Problem([task], [Instance("a")])
    if taken:
        assert problem.columns.n == 1
        assert Problem.from_dict(problem.to_dict()) == problem
    else:
        with pytest.raises(InputError, match=r"^tasks"):
            _ = problem.columns


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 5000, '{"tasks":\n'])
def test_a_text_that_python_cannot_read_is_no_problem(text):
    with pytest.raises(InputError, match=r"^problem: found .*, expected a JSON document"):
        Problem.from_json(text)


ASSIGNED = {"assignment": {"a": {"active": ["0_0"]}}}
MOVE = {"task": "0_0", "role": "active", "to": "a"}


@pytest.mark.parametrize(
    ("part", "path", "found"),
    [
        ({"schema": "taskplace.plan/2"}, "schema", "taskplace.plan/2"),
        ({"metrics": {"moves": True}}, "metrics.moves", True),
        ({"metrics": {"moves": "1"}}, "metrics.moves", "1"),
        ({"moves": [MOVE, {"role": "active", "to": "a"}]}, "moves[1].task", None),
        ({"moves": [{"task": "0_0", "to": "a"}]}, "moves[0].role", None),
        ({"moves": [{"task": "0_0", "role": "active"}]}, "moves[0].to", None),
        ({"slots": {"a": [["0_0"], ["0_0"]]}}, "slots.a", "0_0"),
        ({"cleanup": {"a": ["0"]}}, "cleanup.a[0]", "0"),
        ({"assignment": {"a": {"active": ["0"]}}}, "assignment.a.active[0]", "0"),
        ({"assignment": {"a": {"actives": []}}}, "assignment.a.actives", "actives"),
        ({"moves": [{**MOVE, "role": "jump"}]}, "moves[0].role", "jump"),
        ({"optimality": {"moves": -1}}, "optimality.moves", -1),
        ({"followup": 1}, "followup", 1),
    ],
)
def test_a_value_of_a_plan_is_named(part, path, found):
    with pytest.raises(InputError) as caught:
        Plan.from_dict(ASSIGNED | part)
    assert (caught.value.path, caught.value.found) == (path, found)
    with pytest.raises(InputError, match=r"^assignment"):
        Plan.from_dict({})


_NOT_BELOW_ZERO = Annotated[float, Meta(ge=0)]


@pytest.mark.parametrize(
    ("kind", "value", "made"),
    [
        (AboveZero, 0, None),
        (_NOT_BELOW_ZERO, 0, 0.0),
        (AboveZero, True, None),
        (AboveZero, "1.5", None),
        (AboveZero, [1], None),
        (AboveZero, None, None),
        (AboveZero, float("inf"), None),
        (AboveZero, float("nan"), None),
        (AboveZero, 10**400, None),
        (_NOT_BELOW_ZERO, -1e-300, None),
    ],
)
def test_a_number_is_read_or_refused(kind, value, made):
    if made is not None:
        assert read(kind, value, "a.b") == made
        return
    with pytest.raises(ConfigError, match=r"^a\.b: found .*, expected a number"):
        read(kind, value, "a.b")


def test_a_keyword_that_is_no_option_names_the_nearest():
    with pytest.raises(TypeError, match=r"'snapshot_intervall'; did you mean 'snapshot_interval'\?"):
        PlacedOptions.of({"snapshot_intervall": 3})
    with pytest.raises(TypeError, match=r"^unknown option 'x'; \['"):
        PlacedOptions.of({"x": 3})


def test_what_a_document_leaves_out_has_the_defaults_of_the_code():
    bare = {"tasks": [{"id": "0_0"}, {"id": "0_1", "racks": []}], "instances": [{"id": "a"}]}
    read = Problem.from_dict(bare)
    assert read == Problem([Task(A), Task(TaskId(0, 1))], [Instance("a")])
    (task, _), (instance,) = read.tasks, read.instances
    assert (task.stateful, task.end_offset, task.weight, task.logged) == (True, 0, 1.0, True)
    assert (task.racks, task.changelog_racks) == ((), ())
    assert (instance.capacity, instance.draining, instance.restore_rate) == (1, False, None)


def test_ids_of_tasks_that_are_not_in_the_problem_are_read_as_those_that_are():
    there = {"id": "a", "standby": ["0_0", "0_9"], "warmup": ["7_7"], "lags": {"0_0": 4, "0_9": 5}}
    read = Problem.from_dict({"tasks": [{"id": "0_0"}], "instances": [there]}).instances[0]
    far = TaskId(0, 9)
    assert read.lags == {A: 4, far: 5}
    assert (read.standby, read.warmup) == ((A, far), (TaskId(7, 7),))
