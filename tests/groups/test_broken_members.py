"""Every member assigns for itself: strategies that fail, topics that cannot be fetched, members that cannot be read."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from taskplace.errors import InputError
from taskplace.groups.membership import Code, ConsumerProtocol, Mode, RoundRobin, Topics
from taskplace.groups.messages import Writer
from taskplace.groups.metadata import Subscription
from tests.support.consumers import Odd, consumer, numbers
from tests.support.network import GROUP, Network
from topology import TopicPartition


class Broken(RoundRobin):
    """A strategy of one's own, with a mistake in it."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def metadata(self) -> Any:
        if self.where == "metadata":
            raise KeyError("no such thing")
        return None

    def assign(self, consumer: str, *more: Any) -> list[TopicPartition]:
        if self.where == "assign":
            raise ZeroDivisionError("shares of nobody")
        return super().assign(consumer, *more)


@pytest.mark.parametrize(("where", "what"), [("assign", "shares of nobody"), ("metadata", "no such thing")])
def test_an_exception_of_a_strategy_ends_that_membership_and_gives_its_place_away(
    where: str, what: str
) -> None:
    network = Network()
    network.join("a", consumer({"t": 4}))
    network.join("b", consumer({"t": 4}, assigners=[Broken(where)]))
    network.settle(10)
    assert list(network.failures()) == ["b"] and what in str(network.failures()["b"].error)
    assert numbers(network) == {"a": [0, 1, 2, 3]}
    assert network.coordinator.describe(GROUP).members == ("a",)


@pytest.mark.parametrize("mode", Mode)
def test_topics_that_cannot_be_fetched_are_asked_for_again_with_a_back_off(mode: Mode) -> None:
    network = Network()
    asked: list[float] = []

    def fetch() -> Topics:
        asked.append(network.now)
        if network.now < 5:
            raise ConnectionError("no broker")
        return Topics({"t": 4})

    network.join("b", ConsumerProtocol(["t"], fetch=fetch, mode=mode))
    network.join("a", consumer({"t": 4}, mode=mode))
    network.settle(30)
    assert sum(map(len, numbers(network).values())) == 4 and len(network.owned()) == 2
    assert len(asked) < 20
    gaps = [b - a for a, b in itertools.pairwise(asked)]
    assert mode is Mode.SINGLE or gaps[1] > gaps[0] > 0.05


def test_topics_that_can_never_be_fetched_end_the_membership_with_the_reason() -> None:
    network = Network()

    def fetch() -> Topics:
        raise ConnectionError("no broker")

    network.join("b", ConsumerProtocol(["t"], fetch=fetch))
    network.run(120)
    assert "no broker" in str(network.failures()["b"].error)
    assert network.failures()["b"].error.code is Code.TOPICS_UNAVAILABLE  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "says",
    [b"", b"\xff" * 9, Writer().uint(99).uint(99).take(), Subscription(pattern="(a").encode(version=0),
     Subscription(("t",), strategy=b"{").encode(), Subscription(("t",), generation=2**60).encode()],
    ids=["nothing", "noise", "newer", "pattern", "strategy", "generation"],
)  # fmt: skip
def test_a_member_that_cannot_be_read_is_left_out_by_all_and_named(
    says: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    network = Network()
    for name in "ac":
        network.join(name, consumer({"t": 4}))
    odd = Odd(["t"], fetch=lambda: Topics({"t": 4}))
    odd.says = says
    network.join("b", odd)
    network.settle(20)
    assert list(network.failures()) == ["b"]
    assert "members['b']." in str(network.failures()["b"].error)
    assert "a member is ignored because its metadata is invalid: members['b']." in caplog.text
    assert numbers(network) == {"a": [0, 2], "c": [1, 3]}


@pytest.mark.parametrize(
    ("path", "more"),
    [("pattern", {"pattern": "(a"}), ("pattern", {"pattern": "a{" + "9" * 5_000 + "}"}),
     ("pattern", {"pattern": "(?=a)"}), (r"topics\[0\]", {"topics": ["\ud800"]}), ("topics", {"topics": "t"}),
     ("rack", {"topics": ["t"], "rack": "\udfff"}), ("pattern", {"pattern": "\udc00"})],
)  # fmt: skip
def test_what_an_application_says_wrongly_is_refused_where_it_says_it(
    path: str, more: dict[str, Any]
) -> None:
    with pytest.raises(InputError, match=f"^{path}: found"):
        ConsumerProtocol(**more, fetch=lambda: Topics({}))
    with pytest.raises(InputError, match="surrogates"):
        Topics({"\ud800": 1})
    with pytest.raises(InputError, match="partitions in all"):
        Topics({"t": 9_000_000, "u": 9_000_000})
