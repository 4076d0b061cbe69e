"""Problems and plans as values: JSON in and out, order does not matter, errors name the path."""

from __future__ import annotations

import json
import random
import re

import pytest

import taskplace
from taskplace import Instance, Plan, Problem, Task, TaskId
from taskplace.errors import InputError
from tests.support.scenarios import KINDS, scenario

A, B = TaskId(0, 0), TaskId(0, 1)


FULL = """
{"schema": "taskplace.problem/1",
 "config": {"num.standby.replicas": 1},
 "tasks": [{"id": "0_3", "stateful": true, "end_offset": 123456, "weight": 1.0},
           {"id": "0_4", "stateful": false},
           {"id": "1_0", "end_offset": null, "logged": true, "racks": [["a", "b"], ["c"]]}],
 "instances": [{"id": "executor-1", "capacity": 4, "tags": {"zone": "a"}, "draining": false, "active": ["0_3"],
                "standby": [], "warmup": [], "lags": {"0_3": 0}, "parked": ["1_0"], "restore_rate": 5.0},
               {"id": "executor-2"}]}
"""


@pytest.mark.parametrize("kind", KINDS)
def test_a_scenario_survives_json_and_its_plan_too(kind):
    problem = scenario(kind, 1, largest=0.3).problem
    again = Problem.from_json(json.dumps(problem.to_dict()))
    assert again == problem
    assert again.fingerprint == problem.fingerprint
    plan = taskplace.plan(problem)
    assert Plan.from_dict(json.loads(plan.to_json())) == plan


@pytest.mark.parametrize("seed", range(12))
def test_equal_input_gives_byte_equal_plans_whatever_the_order(seed):
    value = scenario("random-lags", seed, largest=0.4).problem.to_dict()
    rng = random.Random(seed)
    first = taskplace.plan(value).to_json()
    for _ in range(3):
        rng.shuffle(value["tasks"])
        rng.shuffle(value["instances"])
        for instance in value["instances"]:
            lags = list(instance["lags"].items())
            rng.shuffle(lags)
            instance["lags"] = dict(lags)
            for role in ("active", "standby", "warmup"):
                rng.shuffle(instance[role])
        assert taskplace.plan(value).to_json() == first


@pytest.mark.parametrize(
    ("where", "value", "path", "found"),
    [
        (("tasks", 1, "id"), "0-4", "tasks[1].id", "0-4"),
        (("tasks", 1, "id"), "00_4", "tasks[1].id", "00_4"),
        (("tasks", 1, "id"), 4, "tasks[1].id", 4),
        (("tasks", 1, "id"), "0_3", "tasks[1].id", "0_3"),
        (("tasks", 0, "end_offset"), -1, "tasks[0].end_offset", -1),
        (("tasks", 0, "end_offset"), 1.5, "tasks[0].end_offset", 1.5),
        (("tasks", 0, "weight"), 0, "tasks[0].weight", 0),
        (("tasks", 0, "weight"), True, "tasks[0].weight", True),
        (("tasks", 0, "stateful"), "yes", "tasks[0].stateful", "yes"),
        (("tasks", 0, "stateful"), 1, "tasks[0].stateful", 1),
        (("tasks", 0, "logged"), "yes", "tasks[0].logged", "yes"),
        (("tasks", 0, "offset"), 1, "tasks[0].offset", "offset"),
        (("tasks",), {}, "tasks", {}),
        (("tasks", 0), 3, "tasks[0]", 3),
        (("instances", 1, "id"), "", "instances[1].id", ""),
        (("instances", 1, "id"), "executor-1", "instances[1].id", "executor-1"),
        (("instances", 0, "capacity"), -1, "instances[0].capacity", -1),
        (("instances", 0, "active"), "0_3", "instances[0].active", "0_3"),
        (("instances", 0, "standby"), ["x"], "instances[0].standby[0]", "x"),
        (("instances", 0, "lags"), {"0_3": -5}, "instances[0].lags.0_3", -5),
        (("instances", 0, "lags"), {"0_3": -1}, "instances[0].lags.0_3", -1),
        (("instances", 0, "lags"), {"0_3": 2**63}, "instances[0].lags.0_3", 2**63),
        (("instances", 0, "lags"), {"0_3": "0"}, "instances[0].lags.0_3", "0"),
        (("instances", 0, "lags"), ["0_3"], "instances[0].lags", ["0_3"]),
        (("instances", 0, "tags"), {"zone": 1}, "instances[0].tags.zone", 1),
        (("instances", 0, "restore_rate"), 0, "instances[0].restore_rate", 0),
        (("instances", 0, "drain"), True, "instances[0].drain", "drain"),
        (("config", "max.warmup.replicas"), 0, "config.max.warmup.replicas", 0),
        (("tasks", 0, "end_offset"), 2**63, "tasks[0].end_offset", 2**63),
        (("tasks", 0, "weight"), 1e300, "tasks[0].weight", 1e300),
        (("tasks", 0, "weight"), 10**400, "tasks[0].weight", 10**400),
        (("tasks", 0, "weight"), 5e-324, "tasks[0].weight", 5e-324),
        (("instances", 0, "capacity"), 2**63 - 1, "instances[0].capacity", 2**63 - 1),
        (("instances", 0, "lags"), {"0_3": 2**64}, "instances[0].lags.0_3", 2**64),
        (("instances", 1, "id"), "\ud800", "instances[1].id", "\ud800"),
        (("instances", 0, "tags"), {"zone": "\udfff"}, "instances[0].tags.zone", "\udfff"),
        (("instances", 0, "slots"), [["0_3"], ["x"]], "instances[0].slots[1][0]", "x"),
        (("instances", 0, "slots"), [["0_3"], ["0_3"]], "instances[0].slots", "0_3"),
        (("schema",), "taskplace.problem/2", "schema", "taskplace.problem/2"),
        (("nodes",), [], "problem.nodes", "nodes"),
    ],
)
def test_bad_input_names_the_path_and_what_was_found(where, value, path, found):
    document = at = json.loads(FULL)
    for key in where[:-1]:
        at = at[key]
    at[where[-1]] = value
    with pytest.raises(InputError) as caught:
        taskplace.plan(document)
    assert caught.value.path == path
    assert caught.value.found == found


def test_no_instance_is_an_error():
    with pytest.raises(InputError, match="instances: found 'no instance', expected at least one"):
        taskplace.plan({"tasks": [], "instances": []})


# --- of several, the first is named -----------------------------------------------------------------------------------

C, D = TaskId(0, 2), TaskId(0, 3)
THREE = [Task(t, end_offset=10) for t in (B, C, D)]


@pytest.mark.parametrize(
    ("tasks", "instances", "message"),
    [
        ([*THREE, *THREE], [Instance("a")], r"tasks: found '?0_1'?, expected each task once"),
        ([Task(B), Task(C, weight=-2), Task(D, weight=-3)], [Instance("a")], r"tasks\[0_2\]\.weight: found -2"),
        ([Task(B), Task(C, end_offset=-2), Task(D, end_offset=-3)], [Instance("a")], r"tasks\[0_2\]\.end_off"),
        (THREE, [Instance("b"), Instance("b"), Instance("c"), Instance("c")], "instances: found '?b'?"),
        (THREE, [Instance("b", active=[C], standby=[C]), Instance("c", active=[D], warmup=[D])],
            r"instances\[b\]: found '?0_2 as active and standby"),
        (THREE, [Instance("b", lags={B: 1, C: -5}), Instance("c", lags={D: -6})], r"instances\[b\]\.lags.*-5"),
    ],
)  # fmt: skip
def test_of_several_wrong_values_the_first_is_named(tasks, instances, message):
    with pytest.raises(InputError, match=message):
        taskplace.plan(Problem(tasks, instances))


@pytest.mark.parametrize(
    ("instances", "warning"),
    [
        ([Instance("a", lags={C: 20}), Instance("b", lags={D: 20})], "2 copies are further .* e.g. 0_2 on a"),
        ([Instance("a", active=[C, D], lags={C: 0, D: 0}), Instance("b", active=[C, D])], "e.g. not 0_2 on b"),
        ([Instance("a", lags={TaskId(7, 1): 0, TaskId(7, 2): 0})], "2 copies belong to .* e.g. 7_1 on a"),
        ([Instance(name, parked=[C, D]) for name in "ab"], "2 tasks are parked on every .* e.g. 0_2: "),
    ],
)  # fmt: skip
def test_of_several_that_are_warned_of_the_first_is_the_example(instances, warning):
    found = taskplace.plan(Problem(THREE, instances)).warnings
    assert any(re.search(warning, text) for text in found), found


def test_an_unknown_instance_is_an_error_that_names_the_first_twenty():
    problem = Problem([Task(A)], [Instance(f"i{number:02}") for number in range(25)])
    assert problem.instance("i24").id == "i24"
    with pytest.raises(InputError) as error:
        problem.instance("i25")
    known = ", ".join(f"i{number:02}" for number in range(20))
    assert str(error.value).startswith("instance: found 'i25', expected one of 25 instances, such as i00")
    assert known in str(error.value) and "i20" not in str(error.value)
