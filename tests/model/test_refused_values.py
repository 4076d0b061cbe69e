"""Values of problems, plans and keys at the limits of what is taken, and just beyond them."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import pytest
from msgspec import Meta

from taskplace import Instance, Plan, Problem, Task, TaskId, validation
from taskplace.errors import ConfigError, InputError
from taskplace.model.config import PlacementConfig
from taskplace.model.keys import AboveZero, read
from taskplace.model.placed_options import PlacedOptions
from taskplace.model.problem import judge
from taskplace.model.shares import floors_and_ceilings
from taskplace.record.events import BatchDone, InstanceView

A = TaskId(0, 0)
LAST = 2**31 - 1


@pytest.mark.parametrize(
    ("instance", "path", "found"),
    [
        ({"id": ""}, "instances.id", ""),
        ({"tags": {"zone": 1}}, "instances[a].tags.zone", 1),
        ({"tags": {1: "x"}}, "instances[a].tags", 1),
        ({"tags": ["zone"]}, "instances[a].tags", ["zone"]),
        ({"lags": [A]}, "instances[a].lags", [A]),
        ({"lags": {A: "1"}}, "instances[a].lags.0_0", "1"),
        ({"lags": {"0_0": 1}}, "instances[a].lags", "0_0"),
        ({"slots": [["0_0"]]}, "instances[a].slots[0]", "0_0"),
        ({"slots": [(), [(0, "0")]]}, "instances[a].slots[1]", (0, "0")),
        ({"slots": ["0_0"]}, "instances[a].slots[0]", "0_0"),
        ({"active": [(0, 0, 0)]}, "instances[a].active", (0, 0, 0)),
        ({"active": [[0, 0]]}, "instances[a].active", [0, 0]),
        ({"active": [("0", 0)]}, "instances[a].active", ("0", 0)),
        ({"draining": 1}, "instances[a].draining", 1),
        ({"restore_rate": "1"}, "instances[a].restore_rate", "1"),
    ],
)
def test_a_value_of_an_instance_that_is_made_in_code_is_named(
    instance: dict[str, Any], path: str, found: object
) -> None:
    with pytest.raises(InputError) as caught:
        judge([Task(A)], [Instance(**{"id": "a", **instance})], PlacementConfig())
    assert (caught.value.path, caught.value.found) == (path, found)


@pytest.mark.parametrize("name", ["racks", "changelog_racks"])
@pytest.mark.parametrize(
    ("racks", "path"), [(["r"], "[0]"), ([["r", 1]], "[0]"), ("r", ""), ([["r"], [""]], "[1]")]
)
def test_racks_of_a_task_that_is_made_in_code_are_named(name: str, racks: object, path: str) -> None:
    with pytest.raises(InputError) as caught:
        judge([Task(A, **{name: racks})], [], PlacementConfig())  # type: ignore[arg-type]
    assert caught.value.path == f"tasks[0_0].{name}{path}"


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
def test_the_limits_of_a_task_are_taken_and_nothing_beyond(task: Task, taken: bool) -> None:
    problem = Problem([task], [Instance("a")])
    if taken:
        assert problem.columns.n == 1
        assert Problem.from_dict(problem.to_dict()) == problem
    else:
        with pytest.raises(InputError, match=r"^tasks"):
            _ = problem.columns


@pytest.mark.parametrize(
    ("part", "expected"), [("tasks", "a task id like '0_3'"), ("instances", "a non-empty string")]
)
def test_what_has_no_id_is_named(part: str, expected: str) -> None:
    document = {"tasks": [{"id": "0_0"}], "instances": [{"id": "a"}]}
    document[part].append({})
    with pytest.raises(InputError) as caught:
        Problem.from_dict(document)
    assert (caught.value.path, caught.value.found, caught.value.expected) == (f"{part}[1].id", None, expected)


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 5000])
def test_a_text_that_python_cannot_read_is_no_problem(text: str) -> None:
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
    ],
)
def test_a_value_of_a_plan_is_named(part: dict[str, Any], path: str, found: object) -> None:
    with pytest.raises(InputError) as caught:
        Plan.from_dict(ASSIGNED | part)
    assert (caught.value.path, caught.value.found) == (path, found)


def test_numbers_of_a_plan_are_read() -> None:
    made = Plan.from_dict(ASSIGNED | {"metrics": {"a": 1, "b": 0.5}, "moves": [MOVE]})
    assert made.metrics == {"a": 1, "b": 0.5}
    assert (made.moves[0].from_, made.moves[0].why) == (None, "")
    assert made.optimality == type(made.optimality)(0, 0, 0)
    assert (made.followup, made.stable) == (False, False)


def test_the_instance_of_a_task_is_asked_by_its_id() -> None:
    made = Plan.from_dict(ASSIGNED)
    assert made.active(A) == "a"
    with pytest.raises(InputError, match=r"^task: found '0_1', expected a task of this plan"):
        made.active(TaskId(0, 1))


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
def test_a_number_is_read_or_refused(kind: Any, value: object, made: float | None) -> None:
    if made is not None:
        assert read(kind, value, "a.b") == made
        return
    with pytest.raises(ConfigError, match=r"^a\.b: found .*, expected a number"):
        read(kind, value, "a.b")


@pytest.mark.parametrize(("value", "made"), [("1.5", 1.5), (2, 2.0), ("much", None), (False, None)])
def test_a_number_of_a_properties_file_may_be_a_text(value: object, made: float | None) -> None:
    key = "acceptable.recovery.seconds"
    if made is not None:
        assert PlacementConfig.from_properties({key: value}).acceptable_recovery_seconds == made
        return
    with pytest.raises(ConfigError, match=rf"^config\.{key}: found .*, expected a number above 0"):
        PlacementConfig.from_properties({key: value})


def test_a_keyword_that_is_no_option_names_the_nearest() -> None:
    with pytest.raises(
        TypeError, match=r"^unknown option 'snapshot_intervall'; did you mean 'snapshot_interval'\?"
    ):
        PlacedOptions.of({"snapshot_intervall": 3})
    with pytest.raises(TypeError, match=r"^unknown option 'x'; \['"):
        PlacedOptions.of({"x": 3})


def test_nothing_is_shared_out_without_open_slots() -> None:
    with pytest.raises(ValueError, match="no instance has open slots"):
        floors_and_ceilings(3, np.zeros(2, np.int64))


def test_what_an_event_says_of_copies_and_speed() -> None:
    view = InstanceView("a", active=1, standby=20, warmup=300, lag=0)
    assert view.copies == 321
    batch = BatchDone(1, None, rows=10, seconds=4.0, phases={}, placement=(), generation=1)
    assert batch.rows_per_second == 2.5
    assert BatchDone(1, None, 10, 0.0, {}, (), 1).rows_per_second == 0.0


def test_what_a_document_leaves_out_has_the_defaults_of_the_code() -> None:
    read = Problem.from_dict(
        {"tasks": [{"id": "0_0"}, {"id": "0_1", "racks": []}], "instances": [{"id": "a"}]}
    )
    assert read == Problem([Task(A), Task(TaskId(0, 1))], [Instance("a")])
    (task, _), (instance,) = read.tasks, read.instances
    assert (task.stateful, task.end_offset, task.weight, task.logged) == (True, 0, 1.0, True)
    assert (task.racks, task.changelog_racks) == ((), ())
    assert (instance.capacity, instance.draining, instance.restore_rate) == (1, False, None)


def test_ids_of_tasks_that_are_not_in_the_problem_are_read_as_those_that_are() -> None:
    there = {
        "id": "a",
        "capacity": 3,
        "standby": ["0_0", "0_9"],
        "warmup": ["7_7"],
        "lags": {"0_0": 4, "0_9": 5},
    }
    read = Problem.from_dict({"tasks": [{"id": "0_0"}], "instances": [there]}).instances[0]
    far = TaskId(0, 9)
    assert read.lags == {A: 4, far: 5}
    assert (read.standby, read.warmup, read.capacity) == ((A, far), (TaskId(7, 7),), 3)
