"""The paragraphs of typical cases, word for word: they are what people read."""

from __future__ import annotations

from typing import Any

import pytest

import taskplace
from taskplace import Instance, PlacementConfig, Problem, Task, TaskId
from taskplace.explanation import Explainer, Seen, TaskExplanation

A, B, C, D = (TaskId(0, p) for p in range(4))
END = 50_000
BOTH = {A: 0, B: 0}
RAN = Instance("a", active=(A, B), lags=BOTH)
STANDBY = {"num.standby.replicas": 1}
FULL = dict.fromkeys((A, B, C, D), 0)


def explained(
    *instances: Instance,
    task: TaskId = A,
    tasks: tuple[TaskId, ...] = (A, B),
    config: dict[str, Any] | None = None,
    seen: dict[tuple[str, TaskId], Seen] | None = None,
    **fields: Any,
) -> TaskExplanation:
    given = [Task(each, end_offset=END, **fields) for each in tasks]
    problem = Problem(given, instances, PlacementConfig.from_properties(config or {}))
    return Explainer(problem, taskplace.plan(problem), seen or {}).task(task)


CASES: dict[str, tuple[dict[str, Any], list[Instance], str]] = {
    "at rest": (
        {"config": STANDBY},
        [
            Instance("a", active=(A,), standby=(B,), lags=BOTH),
            Instance("b", active=(B,), standby=(A,), lags=BOTH),
        ],
        "0_0 is active on a, with a standby on b. It stays there so that a has 1 of the 2 tasks. Nothing is"
        " planned for it.",
    ),
    "catching up at a known rate": (
        {},
        [RAN, Instance("b", warmup=(A,), lags={A: 30_000}, restore_rate=100.0)],
        "0_0 is active on a, with a warm-up on b. It is to move to b so that a has 1 of the 2 tasks (it has"
        " 2 now), but b still lacks 30,000 records. It moves once b lacks at most 10,000 records, in about "
        "3 minutes.",
    ),
    "a stalled warm-up": (
        {"seen": {("b", A): Seen(None, "b has read no record for 12 min", "look at its log")}},
        [RAN, Instance("b", warmup=(A,), lags={A: 30_000})],
        "0_0 is active on a, with a warm-up on b. It is to move to b so that a has 1 of the 2 tasks (it has"
        " 2 now), but b still lacks 30,000 records. b has read no record for 12 min. It moves once b lacks "
        "at most 10,000 records. Look at its log.",
    ),
    "waiting for a warm-up of a drain": (
        {"tasks": (A, B, C, D), "task": D},
        [Instance("a", active=(A, B, C, D), lags=FULL, draining=True), Instance("b", restore_rate=1_000.0)],
        "0_3 is active on a. It is to move to b since a is draining, but b still lacks 50,000 records. b "
        "waits for its turn to warm up: 3 copies are before it, and 2 may warm up at a time. It moves after"
        " that. With max.warmup.replicas=4 b would warm up now.",
    ),
    "a lost owner": (
        {},
        [Instance("b", standby=(A,), lags={A: 0}), Instance("c", active=(B,), lags={B: 0})],
        "0_0 becomes active on b. Its owner is gone, and the copy on b is caught up, so b takes it over. "
        "This plan moves it.",
    ),
    "a lagging owner": (
        {},
        [Instance("a", active=(A,), lags={A: 30_000}), Instance("b", standby=(A,), active=(B,), lags=BOTH)],
        "0_0 moves from a to b, and a becomes a standby. It belongs on a so that a has 1 of the 2 tasks, "
        "but a still lacks 30,000 records, so b runs it until then. It moves once a lacks at most 10,000 "
        "records; the time is not known: no restore rate of a has been measured.",
    ),
    "the start": (
        {},
        [Instance("a"), Instance("b")],
        "0_0 becomes active on a. It starts there so that a has 1 of the 2 tasks. This plan starts it.",
    ),
    "a parked copy": (
        {},
        [RAN, Instance("b", parked=(A, B), lags={A: END}), Instance("c", warmup=(A,), lags={A: 20_000})],
        "0_0 is active on a, with a warm-up on c. It is to move to c so that a has at most 1 of the 2 tasks"
        " (it has 2 now), but c still lacks 20,000 records. Its copy on b made no progress and is parked. "
        "It moves once c lacks at most 10,000 records; the time is not known: no restore rate of c has been"
        " measured.",
    ),
    "no state": (
        {"stateful": False},
        [Instance("a", active=(A, B)), Instance("b")],
        "0_0 is active on a. It has no state, so it goes where loads are level, and stays while they are. "
        "Nothing is planned for it.",
    ),
    "a move now": (
        {},
        [RAN, Instance("b", lags={A: 5})],
        "0_0 moves from a to b. It moves so that a has 1 of the 2 tasks (it has 2 now), and b can take over"
        " now. This plan moves it.",
    ),
    "too few instances": (
        {"config": STANDBY},
        [RAN],
        "0_0 is active on a. It stays there since no other instance can take it. Nothing is planned for it.",
    ),
    "a standby that is created": (
        {"config": STANDBY},
        [
            Instance("a", active=(A,), lags={A: 0}),
            Instance("b", active=(B,), lags={B: 0}, restore_rate=500.0),
        ],
        "0_0 is active on a, and b becomes a standby. It stays there so that a has 1 of the 2 tasks. "
        "Nothing else is planned for it; its standby on b has caught up in about 1 minute.",
    ),
    "a standby that moves to a new instance": (
        {"config": STANDBY, "tasks": (A, B, C)},
        [
            Instance("a", active=(A, B, C), lags=dict.fromkeys((A, B, C), 0), capacity=3),
            Instance("b", standby=(A, B, C), lags=dict.fromkeys((A, B, C), 0), capacity=3),
            Instance("c", capacity=3),
        ],
        "0_0 moves from a to b, a becomes a standby, and c begins a warm-up. It moves so that a has 1 of "
        "the 3 tasks (it has 3 now), and b can take over now. Its standby is to move to c so that instances"
        " have about as many copies, but c still lacks 50,000 records. Its standby moves once c lacks at "
        "most 10,000 records; the time is not known: no restore rate of c has been measured.",
    ),
    "a standby whose instance drains": (
        {"config": STANDBY},
        [
            Instance("a", active=(A,), lags={A: 0}),
            Instance("b", active=(B,), lags={B: 0}),
            Instance("c", standby=(A, B), lags=BOTH, draining=True),
        ],
        "0_0 is active on a, with a standby on c, and b begins a warm-up. It stays there so that a has 1 of"
        " the 2 tasks. Its standby is to move to b since c is draining, but b still lacks 50,000 records. "
        "Its standby moves once b lacks at most 10,000 records; the time is not known: no restore rate of b"
        " has been measured.",
    ),
    "no copy is caught up": (
        {"tasks": (A,)},
        [Instance("a", active=(A,), lags={A: 40_000}), Instance("b", lags={A: 45_000})],
        "0_0 is active on a. It stays there so that a has at most 1 task, but a itself lacks 40,000 "
        "records, and no other copy is far ahead. Nothing is planned for it.",
    ),
}


@pytest.mark.parametrize(("given", "instances", "paragraph"), CASES.values(), ids=CASES)
def test_the_paragraph(given: dict[str, Any], instances: list[Instance], paragraph: str) -> None:
    assert explained(*instances, **given).text == paragraph


def test_the_first_letter_of_a_name_is_not_raised() -> None:
    names = [Instance("its", active=(A,), lags={A: 40_000}), Instance("b", lags={A: 45_000})]
    text = explained(*names, tasks=(A,)).text
    assert " It stays there" in text
    assert "but its itself lacks 40,000 records" in text


def test_notebooks_show_the_paragraph_and_escape_names() -> None:
    html = explained(Instance("<a>", active=(A, B), lags=BOTH), Instance("b", lags={A: 20_000}))._repr_html_()
    assert html.startswith("<p>0_0 is active on &lt;a&gt;")
    assert "b: 20,000 records behind, without a role" in html
