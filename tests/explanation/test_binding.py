"""Explanations name the rule that decides: which share, which cost, which tag, or the tie."""

from __future__ import annotations

from typing import Any

import taskplace
from taskplace.explanation import Explainer, TaskExplanation
from taskplace.model.problem import Problem

IDS = ["0_0", "0_1", "0_2", "0_3"]
ALL = dict.fromkeys(IDS, 0)


def _explained(task: str, tasks: list[Any], instances: list[Any], **config: Any) -> TaskExplanation:
    given = {key.replace("__", "."): value for key, value in config.items()}
    problem = Problem.from_dict({"config": given, "tasks": tasks, "instances": instances})
    return Explainer(problem, taskplace.plan(problem)).task(task)


def _refused(found: TaskExplanation, name: str) -> str:
    return dict(found.refused)[name]


def _racks(strategy: str) -> TaskExplanation:
    tasks = [{"id": t, "end_offset": 10**6, "racks": [["r1"] if t < "0_2" else ["r0"]]} for t in IDS]
    instances = [
        {"id": "a", "tags": {"rack": "r0"}, "active": IDS[:2], "lags": ALL},
        {"id": "b", "tags": {"rack": "r1"}, "active": IDS[2:], "lags": ALL},
    ]
    return _explained("0_0", tasks, instances, rack__aware__assignment__strategy=strategy)


def test_a_move_for_less_traffic_says_so() -> None:
    for strategy in ("balance_subtopology", "min_traffic"):
        found = _racks(strategy)
        assert "a reads 1 input partition across racks and b 0 (a read costs 10, a move 1)" in found.why
        assert "so that each instance" not in found.why
        assert "across racks" in _refused(found, "a")


def test_the_share_of_all_tasks_is_told_from_that_of_the_subtopology() -> None:
    total = _explained(
        "0_3",
        [{"id": t, "end_offset": 10**6} for t in IDS],
        [{"id": "a", "active": IDS, "lags": ALL}, {"id": "b"}],
    )
    assert "it is to move to b so that a has 2 of the 4 tasks (it has 4 now)" in total.why
    ids = ["0_0", "0_1", "1_0", "1_1"]
    lags = dict.fromkeys(ids, 0)
    tasks = [{"id": t, "end_offset": 10**6} for t in ids]
    instances = [
        {"id": "a", "active": ids[:2], "lags": lags},
        {"id": "b", "active": ids[2:], "lags": lags},
    ]
    each = [_explained(t, tasks, instances) for t in ids]
    assert {e.why.partition(" so that ")[2] for e in each if e.why.startswith("it moves")} == {
        "a has 1 of the 2 tasks of subtopology 0 (it has 2 now), and b can take over now",
        "b has 1 of the 2 tasks of subtopology 1 (it has 2 now), and a can take over now",
    }
    stays = " has 2 of the 4 tasks and 1 of the 2 tasks of subtopology"
    assert len([e for e in each if e.why.startswith("it stays there so that ") and stays in e.why]) == 2


def test_a_lost_tie_is_called_one() -> None:
    tasks = [{"id": "0_0", "end_offset": 10**6}]
    instances = [{"id": x, "lags": {"0_0": 0}} for x in "abc"]
    found = _explained("0_0", tasks, instances)
    others = {"a", "b", "c"} - {found.instance}
    assert {"breaks the tie" in _refused(found, name) for name in others} == {True}


def test_a_share_that_is_filled_is_named() -> None:
    tasks = [{"id": t, "end_offset": 10**6} for t in IDS]
    first = [{"id": "a", "lags": ALL}, {"id": "b", "lags": ALL}]
    found = _explained("0_0", tasks, first)
    other = "b" if found.instance == "a" else "a"
    assert _refused(found, other).startswith("it could take over, but its share, 2 of the 4 tasks, is full")


def test_tags_say_why_one_copy_is_a_standby() -> None:
    instances = [
        {"id": "a", "tags": {"zone": "x"}, "active": ["0_0"], "lags": {"0_0": 0}},
        {"id": "b", "tags": {"zone": "x"}, "lags": {"0_0": 0}},
        {"id": "c", "tags": {"zone": "y"}},
    ]
    config = {"rack__aware__assignment__tags": ["zone"], "num__standby__replicas": 1}
    found = _explained("0_0", [{"id": "0_0", "end_offset": 10**6}], instances, **config)
    assert "apart from the other copies (zone y)" in found.roles[1].why
    assert _refused(found, "b") == "it could take over, but a may stay, and that would be a move"
