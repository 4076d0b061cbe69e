"""Static membership and fencing: who gets its part back, and whose work is refused."""

from __future__ import annotations

import pytest
from taskplace.groups.membership import Code, Member, MemberSettings, StaleGeneration

from tests.support.group_protocol import Plain, stable
from tests.support.network import GROUP, SETTINGS, Network, Weather


def static(name: str) -> MemberSettings:
    return MemberSettings(
        session_timeout_ms=10_000,
        heartbeat_interval_ms=1_000,
        max_poll_interval_ms=20_000,
        group_instance_id=name,
    )


# ------------------------------------------------------------------------------------- static membership
def test_a_static_member_that_restarts_gets_its_part_back_without_a_rebalance() -> None:
    network = Network()
    network.join("a", Plain(), static("db-1"))
    network.join("b", Plain())
    network.settle(10)
    generation = network.coordinator.describe(GROUP).generation
    network.leave("a")  # silently
    network.run(3)
    network.join("a2", Plain(), static("db-1"))
    network.settle(10)
    assert network.owned() == {"a2": ("DB-1",), "b": ("B",)}
    assert network.coordinator.describe(GROUP).generation == generation


def test_a_static_member_that_stays_away_expires() -> None:
    network = Network()
    network.join("a", Plain(), static("db-1"))
    network.join("b", Plain())
    network.settle(10)
    network.leave("a")
    network.run(9)
    assert network.coordinator.describe(GROUP).members == ("b", "db-1")
    network.settle(20)
    assert network.coordinator.describe(GROUP).members == ("b",)


def test_who_takes_over_an_instance_id_fences_the_one_before() -> None:
    network = Network(exclusive=False)  # until the old one hears of it, both are at work
    network.join("a", Plain(), static("db-1"))
    network.settle(10)
    network.join("a2", Plain(), static("db-1"))
    network.settle(10)
    assert network.failures()["a"].error.code is Code.FENCED_INSTANCE_ID
    assert set(network.owned()) == {"a2"}
    with pytest.raises(StaleGeneration, match="FENCED_INSTANCE_ID"):
        network.coordinator.fence(GROUP, "a", network.members["a"].generation)


# ------------------------------------------------------------------------------------------------ fencing
def test_work_of_an_older_generation_is_refused() -> None:
    network = stable("a")
    old = network.coordinator.describe(GROUP).generation
    network.coordinator.fence(GROUP, "a", old)
    network.join("b", Plain())
    network.run(0.5)
    network.coordinator.fence(GROUP, "a", old)  # still in force: the next has not begun
    network.settle(10)
    with pytest.raises(StaleGeneration, match="expected a member in generation 2: ILLEGAL_GENERATION"):
        network.coordinator.fence(GROUP, "a", old)
    network.coordinator.fence(GROUP, "a", 2)
    with pytest.raises(StaleGeneration, match="UNKNOWN_MEMBER_ID"):
        network.coordinator.fence(GROUP, "stranger", 2)


@pytest.mark.parametrize("seed", range(3))
def test_doubled_and_late_messages_change_nothing(seed: int) -> None:
    print(f"seed {seed}")
    network = Network(seed, weather=Weather(delay=3.0, double=0.9))
    for name in "abc":
        network.join(name, Plain(), SETTINGS)
    network.run(60)
    network.settle()
    assert network.owned() == {"a": ("A",), "b": ("B",), "c": ("C",)}


def test_a_generation_that_nobody_can_have_reached_is_refused_and_does_no_harm() -> None:
    network = Network()
    liar = Member(GROUP, "liar", Plain(), SETTINGS)
    liar.generation = 2**53
    network.members["liar"] = liar
    network._apply("liar", liar.start(network.now))
    network.run(2)
    assert "found generation 9007199254740992, expected one up to" in str(network.failures()["liar"].error)
    del network.members["liar"]
    network.join("a", Plain())
    network.settle(20)
    assert network.coordinator.describe(GROUP).generation < 10
