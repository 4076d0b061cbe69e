"""Kafka Streams' StickyTaskAssignorTest, case by case; rack strategies beside `sticky` are refused.

That assignor does not look at lags and never asks for a follow-up: it runs here with any lag acceptable. Each method
counts once here, and twice as refused.
"""

from __future__ import annotations

from typing import Any

import pytest

import taskplace
from taskplace.validation import MOST
from tests.support.kafka_cases import (
    STRATEGIES,
    Case,
    Client,
    Expect,
    cases,
    copies,
    done,
    follows,
    holds,
    lacks,
    level,
    no_two_alike,
    runs,
    sizes,
    valid,
)


def ran(tasks: str = "", standby: str = "", slots: int = 1) -> Client:
    return Client(tasks, standby, slots, {f"{tasks} {standby}".strip(): 0} if tasks or standby else {})


def new(n: int, slots: int = 1) -> tuple[Client, ...]:
    return tuple(ran(slots=slots) for _ in range(n))


def sticky(
    name: str, clients: tuple[Client, ...], expect: tuple[Expect, ...], tasks: str, **more: Any
) -> Case:
    return Case(name, clients, (done, *expect), tasks, acceptable=MOST, **more)


ALL = "0:4 1:4 2:4"
LOST = (ran("0_1 1_2 1_3", "0_0 1_1 2_0 2_1 2_3"), ran("0_0 1_1 2_2", "0_1 1_0 0_2 2_0 0_3 1_2 2_1 1_3 2_3"))
EACH_GROUP = tuple(lambda a, k=k: sorted(t.subtopology for t in a.active(k)) == [1, 2] for k in (1, 2, 3))

STICKY = (
    sticky("as many tasks as clients", new(3), (sizes(1, 1, 1),), "0:3"),
    sticky("each subtopology evenly", new(3, 2), EACH_GROUP, "1:3 2:3"),
    sticky("each subtopology evenly, with standbys", new(3, 2), EACH_GROUP, "1:3 2:3", standbys=1),
    sticky("actives stay", (ran("0_0"), ran("0_1")), (holds(p1="0_0", p2="0_1"), valid(0)), "0:3"),
    sticky("actives stay, the other way round", (ran("0_1"), ran("0_2")), (holds(p1="0_1", p2="0_2"), valid(0)),
        "0:3", first_half=False),
    sticky("a new client takes one", (ran("0_0 0_2"), ran("0_1"), ran()), (runs(p2="0_1"), sizes(1, 1, 1)), "0:3"),
    sticky("by capacity", (ran(), ran(slots=2)), (sizes(1, 2),), "0:3"),
    sticky("subtopologies of unequal size", (ran("0:6 1_0"), ran()),
        (valid(0), lambda a: sorted(a.counts()) == [3, 4]), "0:6 1_0"),
    sticky("actives stay among more clients", (ran("0_0"), ran("0_2"), ran("0_1"), ran(), ran()),
        (runs(p1="0_0", p2="0_2", p3="0_1"),), "0:3"),
    sticky("actives stay among more clients, changed", (ran(), ran("0_0"), ran(), ran("0_2"), ran("0_1")),
        (runs(p2="0_0", p4="0_2", p5="0_1"),), "0:3", first_half=False),
    sticky("where the standby was", (ran("", "0_2"), ran("", "0_1"), ran("", "0_0")),
        (runs(p1="0_2", p2="0_1", p3="0_0"),), "0:3"),
    sticky("of several standbys by capacity", (ran("0_0", "0_1"), ran("0_2", "0_1", 2)),
        (runs(p1="0_0", p2="0_1 0_2"),), "0:3"),
    sticky(
        "standbys away from actives", (ran("0_0"), ran("0_1"), ran("0_2"), ran("0_3")),
        (
            valid(1), lambda a: all(len(a.standby(k)) <= 2 for k in range(1, 5)),
            lambda a: sum(bool(a.standby(k)) for k in range(1, 5)) >= 3,
        ),
        "0:4", standbys=1,
    ),
    sticky("two standbys", (ran("0_0"), ran("0_1"), ran("0_2")),
        (follows(p1="0_1 0_2", p2="0_2 0_0", p3="0_0 0_1"),), "0:3", standbys=2),
    sticky("nobody for a standby", new(1), (follows(p1=""),), "0_0", standbys=1),
    sticky("actives and standbys", new(3), (valid(1),), "0:3", standbys=1),
    sticky("one for each client at least", (ran(slots=3), ran(), ran()), (copies(1, 1, 1),), "0:3"),
    sticky("more clients than tasks", new(6), (valid(0),), "0:3"),
    sticky("copies over all clients", new(6), (copies(1, 1, 1, 1, 1, 1),), "0:3", standbys=1),
    sticky("more to the larger client", (ran(), ran(slots=2)), (copies(4, 8),), "0:3 1:3 2:3 3:3"),
    sticky("evenly by id and partition", new(4, 4),
        (runs(**{f"p{k + 1}": f"0_{k} 0_{k + 4} 1_{k} 1_{k + 4}" for k in range(4)}),), "0:8 1:8", standbys=1),
    sticky("no two clients hold the same", new(4), (no_two_alike(4),), "0:4", standbys=1),
    sticky("nor with actives from before", (ran("0_1 0_2"), ran("0_3"), ran("0_0"), ran()), (no_two_alike(3),),
        "0:4", standbys=1),
    sticky("nor with standbys from before", (ran("0_1 0_2", "0_3 0_0"), ran("0_3 0_0", "0_1 0_2"), ran(), ran()),
        (no_two_alike(4),), "0:4", standbys=1,
        differs="standbys in force stay, which saves making copies; only new ones keep pairs of clients apart",
        ours=(valid(1), copies(2, 2, 2, 2), lambda a: not no_two_alike(4)(a))),
    sticky("as many clients as tasks", (*new(2), ran("0:4"), *new(1)), (copies(1, 1, 1, 1),), "0:4"),
    sticky("fewer clients than tasks", (*new(2), ran("0:4")), (copies(1, 1, 2),), "0:4"),
    sticky("a larger client joins", (ran("0_0 0_2 0_3"), ran(slots=2)), (copies(1, 2),), "0_0 0_2 0_3"),
    sticky("fewest moves to a new client", (ran("0_0 0_2"), ran("0_1 0_3"), ran()),
        (lambda a: a.counts()[2] == 1, lambda a: len(a.plan.moves) == 1), "0:4"),
    sticky("new tasks move nothing", (ran("0_0 0_1"), ran("0_2 0_3")), (holds(p1="0:2", p2="0_2 0_3"),), "0:6"),
    sticky("new tasks to a new client", (ran("0_2 0_1"), ran("0_0 0_3"), ran()),
        (holds(p1="0_1 0_2", p2="0_0 0_3", p3="0_4 0_5"),), "0:6"),
    sticky("what nobody ran to a new client",
        (*LOST, ran("2_0 2_1 2_3", "0_2 1_2"), ran("", "0_0 1_0 0_1 0_2 1_1 2_0 0_3 1_2 2_1 1_3 2_2 2_3")),
        (runs(p1="0_1 1_2 1_3", p2="0_0 1_1 2_2", p3="2_0 2_1 2_3", p4="0_2 0_3 1_0"),), ALL),
    sticky("what nobody ran to two that came back", (*LOST, ran("", "2_0 2_1 2_3"), ran("", "0_2 0_3 1_0")),
        (runs(p1="0_1 1_2 1_3", p2="0_0 1_1 2_2", p3="2_0 2_1 2_3", p4="0_2 0_3 1_0"),), ALL),
    sticky("one of two to a new client", (ran("0_1 0_2"), ran()), (sizes(1, 1),), "0_1 0_2"),
    sticky("nothing flips between old clients", (ran("0:3"), ran("0_3 0_4 0_5"), ran()),
        (sizes(2, 2, 2), lacks(p1="0_3 0_4 0_5", p2="0:3")), "0:6"),
    sticky("nothing flips with one that came back", (ran("0:3 0_6"), ran("", "0_3 0_4 0_5"), ran()),
        (lacks(p1="0_3 0_4 0_5", p2="0:3"), lambda a: min(a.counts()[:2]) >= 2 and a.counts()[2] == 2), "0:7"),
    sticky("balance given up for stickiness", (ran("0:3"), ran()), (runs(p1="0:3", p2=""),), "0:3",
        differs="that is the fallback assignor of an unstable group, which is not offered: balance comes first",
        ours=(sizes(2, 1),)),
    sticky("stateful and stateless traffic", (ran("0:3"), ran("1_0 1_1 0_3 1_3"), ran("1_2")),
        (runs(p1="0_1 0_2 1_3", p2="0_3 1_0 1_1", p3="0_0 1_2"), follows(p1="0_0", p2="0_1", p3="1_0 1_1")),
        "0:2 1:2", stateless="0_2 0_3 1_2 1_3", standbys=1,
        differs="another placement that moves one stateful task as well: which one is a tie",
        ours=(valid(1), level, lambda a: a.plan.optimality.moves == 1)),
)  # fmt: skip


@cases(STICKY)
def test_sticky(case):
    case.verdict("none", task_assignor_class="sticky")


def test_rack_strategies_beside_sticky_are_refused():
    for strategy in STRATEGIES[1:]:
        with pytest.raises(taskplace.errors.ConfigError, match="does not use the racks"):
            STICKY[0].answer(strategy, task_assignor_class="sticky")
