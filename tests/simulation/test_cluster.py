"""The simulated cluster starts from the problem as it is, and says how far it has come."""

from __future__ import annotations

import json
from typing import Any

import pytest

import taskplace
from taskplace import Plan, Problem, TaskId
from taskplace.cli import main
from taskplace.errors import InputError
from taskplace.simulation import replay, simulate
from taskplace.verify import verify

IDS = [f"0_{q}" for q in range(4)]
TASKS = [{"id": t, "end_offset": 100_000} for t in IDS]
HELD: dict[str, Any] = {"id": "a", "active": IDS, "lags": dict.fromkeys(IDS, 0)}
PROBLEMS: list[dict[str, Any]] = [
    {
        "config": {"acceptable.recovery.seconds": 10, "acceptable.recovery.lag": 0},
        "tasks": TASKS[:1],
        "instances": [
            {"id": "a", "draining": True, "active": ["0_0"], "lags": {"0_0": 0}, "restore_rate": 1000.0},
            {"id": "b", "lags": {"0_0": 5000}, "restore_rate": 1000.0},
        ],
    },
    {"tasks": TASKS, "instances": [HELD, {"id": "b", "parked": IDS}]},
    {"tasks": TASKS, "instances": [{**HELD, "capacity": 2, "slots": [IDS, []]}, {"id": "b"}]},
]


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_first_simulated_plan_is_the_plan(problem):
    assert taskplace.simulate(problem).rounds[0].plan == taskplace.plan(problem)


def test_each_instance_restores_at_its_own_rate():
    slow, fast = (
        {
            "tasks": TASKS,
            "config": {"max.warmup.replicas": 4, "acceptable.recovery.lag": 0},
            "instances": [HELD, {"id": "b", "restore_rate": rate}],
        }
        for rate in (50.0, 500.0)
    )
    # 100,000 records in rounds of 600 s: 30,000 at a time, or all of them.
    assert [len(taskplace.simulate(p).rounds) for p in (slow, fast)] == [5, 2]
    assert len(taskplace.simulate(slow, restore_rate=500.0).rounds) == 5


def test_all_copies_of_unknown_tasks_are_listed(tmp_path, capsys):
    problem = {
        "tasks": TASKS[:1],
        "instances": [
            {"id": "a", "active": ["0_0", "9_1"], "lags": {"0_0": 0, "9_1": 0, "9_0": 4, "7_0": 1}},
            {"id": "b", "standby": ["9_1"], "lags": {}},
        ],
    }
    made = taskplace.plan(problem)
    assert made.cleanup == {"a": (TaskId(7, 0), TaskId(9, 0), TaskId(9, 1)), "b": (TaskId(9, 1),)}
    assert Plan.from_dict(made.to_dict()) == made
    assert verify(Problem.from_dict(problem), made) == ()
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(problem))
    main(["plan", str(path)])
    out = capsys.readouterr().out
    assert "a: can be cleaned up: 7_0, 9_0, 9_1" in out
    assert "b: can be cleaned up: 9_1" in out
    main(["plan", str(path), "--output", "json"])
    assert json.loads(capsys.readouterr().out)["cleanup"] == {"a": ["7_0", "9_0", "9_1"], "b": ["9_1"]}


def test_an_event_that_cannot_happen_is_named():
    events = [
        [{"kind": "drain", "name": "a"}],
        [{"kind": "undrain", "name": "a"}, {"kind": "kill", "name": "x"}],
    ]
    with pytest.raises(InputError, match=r"^events\[1\]\[1\] \(kill x\): simulate\.instance: found 'x'"):
        taskplace.simulate(PROBLEMS[1], events)


PROBLEM = {
    "tasks": [{"id": f"0_{k}", "end_offset": 50_000} for k in range(12)],
    "instances": [{"id": "a"}, {"id": "b"}],
    "config": {"max.warmup.replicas": 1},
}
EVENTS = [[{"kind": "add", "name": "c"}], [{"kind": "kill", "name": "a"}]]


@pytest.fixture(autouse=True)
def each_round(monkeypatch):
    monkeypatch.setattr("taskplace.model.work.LEAST_SECONDS", 0.0)


def test_groups_and_parts_of_them():
    shown = []
    found = simulate(PROBLEM, EVENTS, progress=shown.append)
    first, *rounds, last = shown
    assert (first.name, first.unit, first.done, first.total) == ("simulating", "groups of events", 0, 3)
    assert (last.done, last.ended) == (3, True)
    assert len(rounds) == len(found.rounds)
    assert [event.done for event in rounds] == sorted(event.done for event in rounds)
    parts = [event.done - 1 for event in rounds if 1 <= event.done < 2]
    assert len(parts) > 3 and len(set(parts)) > 3  # one warm-up at a time: the group goes on bit by bit
    assert rounds[-1].detail.startswith("round ")
    assert simulate(PROBLEM, EVENTS) == found

    again = []
    replay(found.to_json(), progress=again.append)
    assert [event.done for event in again] == [event.done for event in shown]


def test_an_error_of_the_function_ends_the_simulation():
    def stop(event):
        if event.done >= 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(PROBLEM, EVENTS, progress=stop)


def test_a_wrong_function_is_refused():
    with pytest.raises(InputError, match="progress: found"):
        simulate(PROBLEM, progress=lambda: None)
    with pytest.raises(InputError, match="progress: found 'bar'"):
        simulate(PROBLEM, progress="bar")
