"""What the check of a built topology finds in one that is damaged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from topology import Store, Task, Topology, violations


def built() -> Any:
    topo = Topology("t")
    left, right = (topo.source(name, key="k", partitions=2) for name in ("left", "right"))
    joined = left.join_table(right, name="join").process(stores=[Store("kept")], name="keep")
    joined.repartition("k", partitions=2, name="again").process(name="after")
    return topo.build()


@dataclass
class Damaged:
    """A built topology with another answer to one question."""

    whole: Any
    answers: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        return self.answers[name] if name in self.answers else getattr(self.whole, name)


def found(change: Callable[[list[Task]], object]) -> tuple[str, ...]:
    whole = built()
    tasks = list(whole.tasks())
    change(tasks)
    return violations(Damaged(whole, {"tasks": lambda: tuple(tasks)}))


def change(at: int, **parts: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> Callable[[list[Task]], None]:
    def changed(tasks: list[Task]) -> None:
        tasks[at] = tasks[at]._replace(**{part: to(getattr(tasks[at], part)) for part, to in parts.items()})

    return changed


READ = "topic partitions are not read by exactly one task each"
LOGGED = "changelog partitions do not belong to exactly one task each"


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (list.reverse, "tasks are not sorted by id"),
        (change(3, topic_partitions=lambda there: ()), READ),
        (change(3, topic_partitions=lambda there: there * 2), READ),
        (change(1, changelog_partitions=lambda there: ()), LOGGED),
        (change(1, changelog_partitions=lambda there: there * 2), LOGGED),
    ],
    ids=["order", "not read", "read twice", "not logged", "logged twice"],
)
def test_tasks_that_are_damaged(damage, line):
    assert found(damage) == (line,)


def test_partitions_that_meet_are_in_one_task():
    def exchanged(tasks):
        first, second = (task.topic_partitions for task in tasks[:2])
        tasks[0] = tasks[0]._replace(topic_partitions=(first[0], *second[1:]))
        tasks[1] = tasks[1]._replace(topic_partitions=(second[0], *first[1:]))

    lines = found(exchanged)
    assert len(lines) == 2
    assert all(line.startswith(f"partition {p} of ") for p, line in enumerate(lines))
    assert all(line.endswith("is spread over several tasks") for line in lines)


def test_subtopologies_run_once_each_and_in_order():
    whole = built()
    order = tuple(whole.order)
    twice = violations(Damaged(whole, {"order": (*order, order[0])}))
    assert any(line.endswith("is not a permutation of the subtopologies") for line in twice)
    backwards = violations(Damaged(whole, {"order": order[::-1]}))
    assert backwards == ("repartition 'again' is read before it is written",)


def node(name: str, kind: str = "processor", parents: tuple[str, ...] = (), **more: Any) -> Any:
    return SimpleNamespace(
        name=name, kind=kind, parents=parents, **({"topic": None, "internal": False} | more)
    )


@pytest.mark.parametrize(
    ("subtopologies", "line"),
    [
        ([[node("a"), node("b", parents=("a",))]], None),
        ([[node("b", parents=("a",)), node("a")]], "node 'b' does not follow its input 'a'"),
        ([[node("a", parents=("a",))]], "node 'a' does not follow its input 'a'"),
        ([[node("a")], [node("b", parents=("a",))]], "node 'b' does not follow its input 'a'"),
        ([[node("w", "repartition", topic="t")], [node("r", "source", topic="t", internal=True)]], None),
        (
            [[node("w", "repartition", topic="t"), node("r", "source", topic="t", internal=True)]],
            "repartition 'w' is read before it is written",
        ),
    ],
)
def test_data_flows_from_earlier_to_later_nodes(subtopologies, line):
    subs = [SimpleNamespace(id=i, nodes=nodes, stores=()) for i, nodes in enumerate(subtopologies)]
    nodes = [each for sub in subtopologies for each in sub]
    order = tuple(range(len(subs)))
    damaged = SimpleNamespace(subtopologies=subs, nodes=nodes, order=order, readiness=lambda: False)
    assert violations(damaged) == ((line,) if line else ())
