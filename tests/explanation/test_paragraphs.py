"""The paragraphs of typical cases, word for word: they are what people read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


CASES: dict[str, tuple[dict[str, Any], list[Instance]]] = {
    "at rest": (
        {"config": STANDBY},
        [
            Instance("a", active=(A,), standby=(B,), lags=BOTH),
            Instance("b", active=(B,), standby=(A,), lags=BOTH),
        ],
    ),
    "catching up at a known rate": (
        {},
        [RAN, Instance("b", warmup=(A,), lags={A: 30_000}, restore_rate=100.0)],
    ),
    "a stalled warm-up": (
        {"seen": {("b", A): Seen(None, "b has read no record for 12 min", "look at its log")}},
        [RAN, Instance("b", warmup=(A,), lags={A: 30_000})],
    ),
    "waiting for a warm-up of a drain": (
        {"tasks": (A, B, C, D), "task": D},
        [Instance("a", active=(A, B, C, D), lags=FULL, draining=True), Instance("b", restore_rate=1_000.0)],
    ),
    "a lost owner": (
        {},
        [Instance("b", standby=(A,), lags={A: 0}), Instance("c", active=(B,), lags={B: 0})],
    ),
    "a lagging owner": (
        {},
        [Instance("a", active=(A,), lags={A: 30_000}), Instance("b", standby=(A,), active=(B,), lags=BOTH)],
    ),
    "the start": (
        {},
        [Instance("a"), Instance("b")],
    ),
    "a parked copy": (
        {},
        [RAN, Instance("b", parked=(A, B), lags={A: END}), Instance("c", warmup=(A,), lags={A: 20_000})],
    ),
    "no state": (
        {"stateful": False},
        [Instance("a", active=(A, B)), Instance("b")],
    ),
    "a move now": (
        {},
        [RAN, Instance("b", lags={A: 5})],
    ),
    "too few instances": (
        {"config": STANDBY},
        [RAN],
    ),
    "a standby that is created": (
        {"config": STANDBY},
        [
            Instance("a", active=(A,), lags={A: 0}),
            Instance("b", active=(B,), lags={B: 0}, restore_rate=500.0),
        ],
    ),
    "a standby that moves to a new instance": (
        {"config": STANDBY, "tasks": (A, B, C)},
        [
            Instance("a", active=(A, B, C), lags=dict.fromkeys((A, B, C), 0), capacity=3),
            Instance("b", standby=(A, B, C), lags=dict.fromkeys((A, B, C), 0), capacity=3),
            Instance("c", capacity=3),
        ],
    ),
    "a standby whose instance drains": (
        {"config": STANDBY},
        [
            Instance("a", active=(A,), lags={A: 0}),
            Instance("b", active=(B,), lags={B: 0}),
            Instance("c", standby=(A, B), lags=BOTH, draining=True),
        ],
    ),
    "no copy is caught up": (
        {"tasks": (A,)},
        [Instance("a", active=(A,), lags={A: 40_000}), Instance("b", lags={A: 45_000})],
    ),
}


def test_the_paragraphs() -> None:
    """Each is a line of paragraphs.txt, behind the name of its case."""
    found = {name: explained(*instances, **given).text for name, (given, instances) in CASES.items()}
    texts = Path(__file__).with_name("paragraphs.txt").read_text().splitlines()
    assert found == dict(line.split(": ", maxsplit=1) for line in texts)


def test_the_first_letter_of_a_name_is_not_raised() -> None:
    names = [Instance("its", active=(A,), lags={A: 40_000}), Instance("b", lags={A: 45_000})]
    text = explained(*names, tasks=(A,)).text
    assert " It stays there" in text
    assert "but its itself lacks 40,000 records" in text


def test_notebooks_show_the_paragraph_and_escape_names() -> None:
    html = explained(Instance("<a>", active=(A, B), lags=BOTH), Instance("b", lags={A: 20_000}))._repr_html_()
    assert html.startswith("<p>0_0 is active on &lt;a&gt;")
    assert "b: 20,000 records behind, without a role" in html
