"""What the check of a built topology finds in one that is damaged."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from topology import Store, Topology, violations


def built() -> Any:
    topo = Topology("t")
    left, right = (topo.source(name, key="k", partitions=2) for name in ("left", "right"))
    joined = left.join_table(right, name="join").process(stores=[Store("kept")], name="keep")
    joined.repartition("k", partitions=2, name="again").process(name="after")
    return topo.build()


def found(**answers: Any) -> tuple[str, ...]:
    """Return what is found in a built topology with other answers to these questions."""
    whole = built()
    parts = (
        "name",
        "nodes",
        "subtopologies",
        "order",
        "copartition_groups",
        "partitions",
        "readiness",
        "tasks",
    )
    return violations(SimpleNamespace(**{part: getattr(whole, part) for part in parts} | answers))


READ = "topic partitions are not read by exactly one task each"
LOGGED = "changelog partitions do not belong to exactly one task each"


@pytest.mark.parametrize(
    ("at", "part", "times", "line"),
    [
        (3, "topic_partitions", 0, READ),
        (3, "topic_partitions", 2, READ),
        (1, "changelog_partitions", 0, LOGGED),
        (1, "changelog_partitions", 2, LOGGED),
    ],
)
def test_tasks_that_are_damaged(at, part, times, line):
    tasks = list(built().tasks())
    assert found(tasks=lambda: tasks[::-1]) == ("tasks are not sorted by id",)
    tasks[at] = tasks[at]._replace(**{part: getattr(tasks[at], part) * times})
    assert found(tasks=lambda: tasks) == (line,)


def test_partitions_that_meet_are_in_one_task():
    first, second, *rest = built().tasks()
    (a, b), (c, d) = first.topic_partitions, second.topic_partitions
    tasks = [first._replace(topic_partitions=(a, d)), second._replace(topic_partitions=(c, b)), *rest]
    spread = "partition {} of ('left', 'right') is spread over several tasks"
    assert found(tasks=lambda: tasks) == (spread.format(0), spread.format(1))


def test_subtopologies_run_once_each_and_in_order():
    order = built().order
    assert f"order {(*order, order[0])} is not a permutation of the subtopologies" in found(
        order=(*order, order[0])
    )
    assert found(order=order[::-1]) == ("repartition 'again' is read before it is written",)


def node(name: str, kind: str = "processor", parents: tuple[str, ...] = (), **more: Any) -> Any:
    return SimpleNamespace(
        name=name, kind=kind, parents=parents, **{"topic": None, "internal": False, **more}
    )


A, B_OF_A = node("a"), node("b", parents=("a",))
WRITES, READS = node("w", "repartition", topic="t"), node("r", "source", topic="t", internal=True)


@pytest.mark.parametrize(
    ("subtopologies", "line"),
    [
        ([[A, B_OF_A]], None),
        ([[B_OF_A, A]], "node 'b' does not follow its input 'a'"),
        ([[node("a", parents=("a",))]], "node 'a' does not follow its input 'a'"),
        ([[A], [B_OF_A]], "node 'b' does not follow its input 'a'"),
        ([[WRITES], [READS]], None),
        ([[WRITES, READS]], "repartition 'w' is read before it is written"),
    ],
)
def test_data_flows_from_earlier_to_later_nodes(subtopologies, line):
    subs = [SimpleNamespace(id=i, nodes=nodes, stores=()) for i, nodes in enumerate(subtopologies)]
    nodes = [each for sub in subs for each in sub.nodes]
    damaged = found(subtopologies=subs, nodes=nodes, order=tuple(range(len(subs))), readiness=lambda: False)
    assert damaged == ((line,) if line else ())
