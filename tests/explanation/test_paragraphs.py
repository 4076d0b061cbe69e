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
    return Explainer(problem, taskplace.plan(problem), seen or {}).in_full(task)


CASES: dict[str, tuple[dict[str, Any], list[Instance], str]] = {
    "at rest": (
        {"config": STANDBY},
        [
            Instance("a", active=(A,), standby=(B,), lags=BOTH),
            Instance("b", active=(B,), standby=(A,), lags=BOTH),
        ],
        "0_0 is active on a, with a standby on b. Both balances allow it to stay, and any other place would "
        "be a move. Nothing is planned for it. If a drains or is lost, b takes it over at once.",
    ),
    "catching up at a known rate": (
        {},
        [RAN, Instance("b", warmup=(A,), lags={A: 30_000}, restore_rate=100.0)],
        "0_0 is active on a, with a warm-up on b. It belongs on b, since both balances require 1 of 2 tasks "
        "there, and a has more than its share: 2 instead of 1 of 2 tasks. But b is not caught up and a is, so "
        "a keeps the active while b warms up (it lacks 30,000 records). It moves to b in about 3 minutes, "
        "once b lacks at most 10,000 records. If acceptable.recovery.lag is 30,000, it moves to b at once. If "
        "a is lost, it moves to b at once, after 30,000 records were restored there. If num.standby.replicas "
        "is 1, b becomes its standby at once.",
    ),
    "catching up as a driver has measured": (
        {"seen": {("b", A): Seen(2_400.0)}},
        [RAN, Instance("b", warmup=(A,), lags={A: 30_000}, restore_rate=100.0)],
        "0_0 is active on a, with a warm-up on b. It belongs on b, since both balances require 1 of 2 tasks "
        "there, and a has more than its share: 2 instead of 1 of 2 tasks. But b is not caught up and a is, so "
        "a keeps the active while b warms up (it lacks 30,000 records). It moves to b in about 40 minutes, "
        "once b lacks at most 10,000 records. If acceptable.recovery.lag is 30,000, it moves to b at once. If "
        "a is lost, it moves to b at once, after 30,000 records were restored there. If num.standby.replicas "
        "is 1, b becomes its standby at once.",
    ),
    "a stalled warm-up": (
        {"seen": {("b", A): Seen(None, "b has read no record for 12 min", "look at its log")}},
        [RAN, Instance("b", warmup=(A,), lags={A: 30_000})],
        "0_0 is active on a, with a warm-up on b. It belongs on b, since both balances require 1 of 2 tasks "
        "there, and a has more than its share: 2 instead of 1 of 2 tasks. But b is not caught up and a is, so "
        "a keeps the active while b warms up (it lacks 30,000 records). It moves to b once b lacks at most "
        "10,000 records. But b has read no record for 12 min. Look at its log. If acceptable.recovery.lag is "
        "30,000, it moves to b at once. If a is lost, it moves to b at once, after 30,000 records were "
        "restored there, if b can follow by then. If num.standby.replicas is 1, b becomes its standby at once.",
    ),
    "waiting for a warm-up of a drain": (
        {"tasks": (A, B, C, D), "task": D},
        [Instance("a", active=(A, B, C, D), lags=FULL, draining=True), Instance("b", restore_rate=1_000.0)],
        "0_3 is active on a. It belongs on b, since both balances require 4 of 4 tasks there, and a is "
        "draining. But b is not caught up and a is, so a keeps the active while b waits for a warm-up (it "
        "lacks 50,000 records). b waits for its turn to warm up: 3 copies are before it, and 2 copies may "
        "warm up at a time (max.warmup.replicas). Its turn comes in about 2 minutes, and it moves to b in "
        "about 3 minutes. If max.warmup.replicas is 4 or a no longer drains, b warms up at once. If a is "
        "lost, it moves to b at once, after 50,000 records were restored there.",
    ),
    "waiting at an unknown rate": (
        {"tasks": (A, B, C, D), "task": D},
        [Instance("a", active=(A, B, C, D), lags=FULL, draining=True), Instance("b")],
        "0_3 is active on a. It belongs on b, since both balances require 4 of 4 tasks there, and a is "
        "draining. But b is not caught up and a is, so a keeps the active while b waits for a warm-up (it "
        "lacks 50,000 records). b waits for its turn to warm up: 3 copies are before it, and 2 copies may "
        "warm up at a time (max.warmup.replicas). When it moves to b is not known: no restore rate of b has "
        "been measured. If max.warmup.replicas is 4 or a no longer drains, b warms up at once. If a is lost, "
        "it moves to b at once, after 50,000 records were restored there.",
    ),
    "a lost owner": (
        {},
        [Instance("b", standby=(A,), lags={A: 0}), Instance("c", active=(B,), lags={B: 0})],
        "0_0 becomes active on b. Its owner is gone, and the copy on b is caught up: a forced promotion, "
        "nothing is restored. This plan moves it, and nothing is left to do then. If b drains, it moves to c, "
        "which catches up first. If b is lost, c takes it over at once, after 50,000 records were restored "
        "there. If num.standby.replicas is 1, c becomes its standby at once.",
    ),
    "a lagging owner": (
        {},
        [Instance("a", active=(A,), lags={A: 30_000}), Instance("b", standby=(A,), active=(B,), lags=BOTH)],
        "0_0 moves from a to b, and a becomes a standby. It belongs on a, since both balances require 1 of 2 "
        "tasks there. But a is not caught up and b is, so b is promoted while a catches up as a standby (it "
        "lacks 30,000 records). It moves to a once a lacks at most 10,000 records. When that is, is not "
        "known: no restore rate of a has been measured. If acceptable.recovery.lag is 30,000, it moves to a "
        "at once. If b is lost, it moves to a at once, after 30,000 records were restored there. If "
        "num.standby.replicas is 1, b becomes its standby.",
    ),
    "the start": (
        {},
        [Instance("a"), Instance("b")],
        "0_0 becomes active on a. It was not running. It belongs on a, since both balances require 1 of 2 "
        "tasks there. This plan moves it, and nothing is left to do then. If a drains or is lost, b takes it "
        "over at once, after 50,000 records were restored there. If num.standby.replicas is 1, b becomes its "
        "standby at once.",
    ),
    "a parked copy": (
        {},
        [RAN, Instance("b", parked=(A, B), lags={A: END}), Instance("c", warmup=(A,), lags={A: 20_000})],
        "0_0 is active on a, with a warm-up on c. It belongs on c, since both balances require 0 to 1 of 2 "
        "tasks there, and a has more than its share: 2 instead of 0 to 1 of 2 tasks. But c is not caught up "
        "and a is, so a keeps the active while c warms up (it lacks 20,000 records). Its copy on b made no "
        "progress and is parked. It does not count until it is released. It moves to c once c lacks at most "
        "10,000 records. When that is, is not known: no restore rate of c has been measured. If "
        "acceptable.recovery.lag is 20,000, it moves to c at once. If a is lost, it moves to c at once, after "
        "20,000 records were restored there. If num.standby.replicas is 1, c becomes its standby at once.",
    ),
    "no state": (
        {"stateful": False},
        [Instance("a", active=(A, B)), Instance("b")],
        "0_0 is active on a. It has no state, so it goes to the least loaded instance, and stays while its "
        "share allows. Nothing is planned for it. If a drains or is lost, b takes it over at once.",
    ),
    "a move now": (
        {},
        [RAN, Instance("b", lags={A: 5})],
        "0_0 moves from a to b. a has more than its share: 2 instead of 1 of 2 tasks, and b can take over "
        "now. It belongs on b, since both balances require 1 of 2 tasks there. This plan moves it, and "
        "nothing is left to do then. If b drains or is lost, a takes it over at once. If num.standby.replicas "
        "is 1, a becomes its standby at once.",
    ),
    "too few instances": (
        {"config": STANDBY},
        [RAN],
        "0_0 is active on a. Both balances allow it to stay, and any other place would be a move. Nothing is "
        "planned for it. If an instance with 1 slot joins, the new instance becomes its standby at once.",
    ),
    "a standby that is created": (
        {"config": STANDBY},
        [
            Instance("a", active=(A,), lags={A: 0}),
            Instance("b", active=(B,), lags={B: 0}, restore_rate=500.0),
        ],
        "0_0 is active on a, and b becomes a standby. Both balances allow it to stay, and any other place would "
        "be a move. Nothing else is planned for it. Its standby on b has caught up in about 1 minute. If a "
        "drains, it moves to b, which catches up first. If a is lost, b takes it over at once, after 50,000 "
        "records were restored there.",
    ),
    "a standby that moves to a new instance": (
        {"config": STANDBY, "tasks": (A, B, C)},
        [
            Instance("a", active=(A, B, C), lags=dict.fromkeys((A, B, C), 0), capacity=3),
            Instance("b", standby=(A, B, C), lags=dict.fromkeys((A, B, C), 0), capacity=3),
            Instance("c", capacity=3),
        ],
        "0_0 moves from a to b, a becomes a standby, and c begins a warm-up. a has more than its share: 3 "
        "instead of 1 of 3 tasks, and b can take over now. It belongs on b, since both balances require 1 of "
        "3 tasks there. Its standby belongs on c, since c has less than its share: 0 instead of 2 of 6 copies. "
        "When c has caught up is not known: no restore rate of c has been measured. If b drains, b is lost or "
        "a has 4 slots, a takes it over at once.",
    ),
    "a standby whose instance drains": (
        {"config": STANDBY},
        [
            Instance("a", active=(A,), lags={A: 0}),
            Instance("b", active=(B,), lags={B: 0}),
            Instance("c", standby=(A, B), lags=BOTH, draining=True),
        ],
        "0_0 is active on a, with a standby on c, and b begins a warm-up. Both balances allow it to stay, and "
        "any other place would be a move. Its standby belongs on b, since c is draining. Its standby moves to "
        "b once b lacks at most 10,000 records. When that is, is not known: no restore rate of b has been "
        "measured. If a drains, it moves to b, which catches up first. If a is lost, c takes it over at once, "
        "and it goes on to b. If c no longer drains, c stays its standby.",
    ),
    "no copy is caught up": (
        {"tasks": (A,)},
        [Instance("a", active=(A,), lags={A: 40_000}), Instance("b", lags={A: 45_000})],
        "0_0 is active on a. Both balances allow it to stay, and any other place would be a move. a lacks "
        "40,000 records itself, but no other copy is far ahead. Nothing is planned for it. If a drains, it "
        "moves to b, which catches up first. If a is lost, b takes it over at once, after 45,000 records were "
        "restored there. If num.standby.replicas is 1, b becomes its standby at once.",
    ),
    "one record": (
        {"config": {"acceptable.recovery.lag": 0}},
        [RAN, Instance("b", warmup=(A,), lags={A: 1}, restore_rate=1.0)],
        "0_0 is active on a, with a warm-up on b. It belongs on b, since both balances require 1 of 2 tasks "
        "there, and a has more than its share: 2 instead of 1 of 2 tasks. But b is not caught up and a is, so "
        "a keeps the active while b warms up (it lacks 1 record). It moves to b in a few seconds, once b "
        "lacks no record. If acceptable.recovery.lag is 1, it moves to b at once. If a is lost, it moves to b "
        "at once, after 1 record was restored there. If num.standby.replicas is 1, b becomes its standby at "
        "once.",
    ),
}


@pytest.mark.parametrize(("given", "instances", "paragraph"), CASES.values(), ids=CASES)
def test_the_paragraph(given: dict[str, Any], instances: list[Instance], paragraph: str) -> None:
    assert explained(*instances, **given).text == paragraph


def test_the_first_letter_of_a_name_is_not_raised() -> None:
    names = [Instance("its", active=(A,), lags={A: 40_000}), Instance("b", lags={A: 45_000})]
    text = explained(*names, tasks=(A,)).text
    assert " Both balances allow it to stay" in text
    assert " its lacks 40,000 records itself" in text


def test_notebooks_show_the_paragraph_and_escape_names() -> None:
    html = explained(Instance("<a>", active=(A, B), lags=BOTH), Instance("b", lags={A: 20_000}))._repr_html_()
    assert html.startswith("<p>0_0 is active on &lt;a&gt;")
    assert "<td>b</td><td>20,000 records behind, left over</td>" in html
