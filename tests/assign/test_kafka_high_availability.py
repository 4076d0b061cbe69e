"""Kafka Streams' HighAvailabilityTaskAssignorTest, case by case, under three rack strategies."""

from __future__ import annotations

import pytest

from taskplace.validation import MOST
from tests.support.kafka_cases import (
    EVEN,
    FOUR,
    NINE,
    SEVEN,
    STRATEGIES,
    Case,
    Client,
    alike,
    alike_unless_min_traffic,
    cases,
    copies,
    done,
    everywhere,
    following,
    follows,
    level,
    one_has,
    pending,
    runs,
    sizes,
    skewed,
    stateful_level,
    valid,
)

HIGH_AVAILABILITY = (
    Case("sticky while warming up",
        (Client(NINE, lags={NINE: 0}), Client(standby=NINE, lags={NINE: 10}), Client()),
        (copies(9, 9, 2), pending), NINE, standbys=1, warmups=2, acceptable=11),
    Case("no warm-ups if any lag is acceptable", one_has(NINE, 3), (copies(6, 6, 6), done), NINE, standbys=1,
        acceptable=MOST),
    Case("clients divide tasks", everywhere(NINE, 3, 10), (*EVEN, alike_unless_min_traffic), NINE),
    Case("threads divide tasks", everywhere(NINE, 3, 10, 3, 3, 3), (*EVEN, alike_unless_min_traffic), NINE),
    Case("clients do not divide tasks", everywhere(NINE, 2, 10), (*EVEN, alike), NINE),
    Case("uneven threads", everywhere("0:3 1:3", 3, 10, 1, 2, 3), (*EVEN, sizes(1, 2, 3), skewed), "0:3 1:3"),
    Case("more clients than tasks", everywhere("0:2", 3, 10), (*EVEN, alike), "0:2"),
    Case("as many threads as tasks", everywhere(NINE, 3, 10, 9, 9, 9), (*EVEN, alike_unless_min_traffic), NINE),
    Case("level over threads, not over clients", one_has(FOUR, 3, slots=5),
        (pending, following(0, 1, 1), valid(0, 2)), FOUR, warmups=2),
    Case(
        "warmed up to be level over clients",
        (
            Client(FOUR, slots=5, lags={FOUR: 0}),
            Client(standby="0_1", slots=5, lags={"0_1": 0}),
            Client(standby="1_0", slots=5, lags={"1_0": 0}),
        ),
        (*EVEN, alike),
        FOUR, warmups=2,
        racked=(
            Client(FOUR, slots=5, lags={FOUR: 0}),
            Client(standby="1_1", slots=5, lags={"1_1": 0}),
            Client(standby="0_1", slots=5, lags={"0_1": 0}),
        ),
    ),
    Case("level over threads first", everywhere(NINE, 2, 10, 6, 3), (*EVEN, sizes(6, 3)), NINE),
    Case("an active is missing", (Client("0_0", lags={"0_0": 0}),), (done, sizes(2), follows(p1=""), level, alike),
        "0_0", "0_1", warmups=2, acceptable=100),
    Case("a standby is missing", (Client("0_0", lags={"0_0": 0}), Client(lags={"0_0": 0})),
        (*EVEN[:1], valid(1), level, stateful_level, alike, follows(p2="0_0")), "0_0", standbys=1, warmups=2,
        acceptable=100),
    Case("the owner is not caught up", (Client("0_0", lags={"0_0": 500}), Client("0_1", lags={"0_0": 0})),
        (runs(p1="0_1", p2="0_0"), pending, valid(0, 1), level, alike), "0_0", "0_1", warmups=2, acceptable=100,
        differs="fewest moves: p2 keeps the task that was promoted there; Kafka warms it up on p1 to take it back",
        ours=(runs(p1="0_1", p2="0_0"), done, valid(0), level, alike)),
    Case("no copy is caught up", (Client(), Client(lags={"0_0": 1000}), Client(lags={"0_0": 500})),
        (runs(p1="", p2="", p3="0_0"), follows(p1="0_0", p2="0_0", p3=""), pending, valid(1, 1), level, alike),
        "0_0", standbys=1, warmups=2, acceptable=100,
        differs="fewest moves: p3 and p2 are the target; Kafka warms up p1, the first by name, to move the task there",
        ours=(runs(p1="", p2="", p3="0_0"), follows(p1="", p2="0_0", p3=""), valid(1), level, alike)),
    Case("standbys of stateful tasks", (Client("0_0", lags={"0_0": 0}), Client("0_1", lags={"0_1": 0})),
        (runs(p1="0_0", p2="0_1"), follows(p1="0_1", p2="0_0"), done), "0:2", standbys=1, warmups=2,
        acceptable=100),
    Case("no standbys of stateless tasks", (Client(), Client()), (sizes(1, 1), follows(p1="", p2=""), done),
        stateless="0:2", standbys=1, warmups=2, acceptable=100),
    Case("warm-ups without standbys", one_has("0:2", 2), (runs(p1="0:2", p2=""), copies(2, 1), pending), "0:2",
        warmups=2, acceptable=100),
    Case("no more than max.warmup.replicas", one_has("0:4", 2), (runs(p1="0:4", p2=""), copies(4, 1), pending),
        "0:4", acceptable=100),
    Case("no warm-up where a standby is", one_has("0:4", 2),
        (runs(p1="0:4", p2=""), follows(p1="", p2="0:4"), pending), "0:4", standbys=1, acceptable=100),
    Case("no standbys without a second client", one_has("0:2", 1), (runs(p1="0:2"), follows(p1=""), done), "0:2",
        standbys=1, warmups=2, acceptable=100),
    Case("active though not caught up", (Client(),), (runs(p1="0:2"), follows(p1=""), done), "0:2", standbys=1,
        warmups=2, acceptable=100),
    Case("no more than max.warmup.replicas beside standbys", one_has("0:4", 3), (valid(1, 2), pending), "0:4",
        standbys=1, warmups=2, acceptable=100),
    Case("stateless tasks make up for stateful ones", one_has("0:4", 2),
        (valid(1, 2), level, stateful_level, skewed, pending), "0:4", "1:3", standbys=1, warmups=2, acceptable=100),
    Case("every client gets something", everywhere("0:4 1:4 2_0", 3, 0, 100, 50, 1),
        (lambda a: all(a.counts()), done), "0:4 1:4 2_0", warmups=2, acceptable=100),
    Case("what is level is kept", (Client("0_0 0_2", lags={"0_0 0_2": 0}), Client("0_1 0_3", lags={"0_1 0_3": 0})),
        (done, lambda a: not a.plan.moves), "0:4", warmups=2, acceptable=100,
        racked=(Client("0_0 0_3", lags={"0_0 0_3": 0}), Client("0_1 0_2", lags={"0_1 0_2": 0}))),
    Case("nothing to warm up", (Client(), Client()), (done, follows(p1="", p2="")), stateless="0:4", warmups=2),
    Case("something to warm up", one_has("0:2", 2), (pending, copies(2, 1)), "0:2", warmups=2, acceptable=100),
    *(
        Case(f"stateless tasks alone, {name}", clients, (valid(0), level, done), stateless=SEVEN)
        for name, clients in {
            "as many threads": everywhere("", 3, 0, 7, 7, 7),
            "fewer threads": everywhere("", 3, 0, 2, 2, 2),
            "uneven threads": everywhere("", 3, 0, 1, 2, 3),
            "all on one before": (Client(SEVEN, slots=3), Client(slots=3), Client(slots=3)),
        }.items()
    ),
)  # fmt: skip


@pytest.mark.parametrize("strategy", STRATEGIES)
@cases(HIGH_AVAILABILITY)
def test_high_availability(case, strategy):
    case.verdict(strategy)
