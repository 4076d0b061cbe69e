"""What the tests of Kafka's sticky assignors expect, as facts: for the eager and the cooperative assignor alike."""

from __future__ import annotations

import pytest

from tests.support.groups import figures, home_of, text
from tests.support.kafka_sticky import FACTS, KINDS, Fact, ask, home, told

EQUALLY_GOOD = {
    "more members have the ceiling than there are ceilings": Fact(
        {"t": 2, "u": 2},
        {"A": told("t u", "tp0 up0"), "B": told("t u", "tp1 up1"), "C": told("t u")},
        {"A": "tp0", "B": "tp1 up1", "C": "up0"},
        "up0",
    ),
    "two of four go": Fact(
        {"t": 3, "u": 4},
        {"C": told("t u", "tp2 up3"), "D": told("t u", "up2")},
        {"C": "tp2 up3 tp0 up1", "D": "up2 tp1 up0"},
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FACTS)
def test_the_answer_is_theirs(name: str, kind: str) -> None:
    fact = FACTS[name]
    _, made = ask(fact, kind)
    assert home_of(made.assignment) | home_of(made.withheld) == home(fact.expected)
    waits = text(tp for held in made.withheld.values() for tp in held)
    assert waits == (fact.waits if kind == "cooperative-sticky" else "")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", EQUALLY_GOOD)
def test_the_answer_is_as_good_as_theirs(name: str, kind: str) -> None:
    fact = EQUALLY_GOOD[name]
    s, made = ask(fact, kind)
    found = home_of(made.assignment) | home_of(made.withheld)
    assert figures(s, found)[:2] == figures(s, home(fact.expected))[:2]
    withheld = sum(map(len, made.withheld.values()))
    assert withheld == (len(fact.waits.split()) if kind == "cooperative-sticky" else 0)
