"""Failures in a group: silent members, leaders that die, coordinators that are gone or replaced, static members."""

from __future__ import annotations

from typing import Any

import pytest

from taskplace.groups.membership import (
    Assigned,
    Code,
    ConsumerProtocol,
    Coordinator,
    CoordinatorSettings,
    GroupFailed,
    GroupState,
    Member,
    MemberSettings,
    MemberState,
    Mode,
    Offer,
    Revoked,
    Round,
    StaleGeneration,
    Topics,
    TryAgain,
)
from taskplace.groups.messages import Join, Role, Sync
from tests.support.group_protocol import Plain, stable
from tests.support.network import GROUP, SETTINGS, Network, Weather


def test_a_silent_member_expires_and_its_place_is_given_away_after_it_has_stopped() -> None:
    network = stable("a", "b")
    network.cut.add("a")
    network.run(25)
    assert network.members["a"].owned is None
    assert network.coordinator.describe(GROUP).members == ("b",)
    lost = [
        at
        for at, name, e in network.log
        if isinstance(e, Revoked) and name == "a" and "no answer from the coordinator" in e.reason
    ]
    left = [at for at, name, e in network.log if isinstance(e, Assigned) and name == "b"]
    assert lost[0] < left[-1]
    network.settle()
    assert set(network.owned()) == {"a", "b"}


def test_a_leader_that_dies_is_replaced_under_a_new_generation() -> None:
    network = stable("a", "b")
    network.join("c", Plain())
    while not any(getattr(m, "role", None) is Role.LEADER and n == "c" for n, m in network.sent):
        network.run(0.001)
    dying = network.coordinator.describe(GROUP).generation
    network.crash("c")
    assert network.coordinator.describe(GROUP).state is GroupState.COMPLETING_REBALANCE
    network.settle(60)
    found = network.coordinator.describe(GROUP)
    assert found.members == ("a", "b") and found.leader == "b"
    assert found.generation == dying + 1


def test_a_leader_that_answers_but_never_assigns_is_replaced_too() -> None:
    coordinator = Coordinator(CoordinatorSettings(group_initial_rebalance_delay_ms=0))

    def join(name: str, sequence: int, number: int, now: float) -> list[tuple[str, Any]]:
        times = (10_000, 20_000)
        request = Join(GROUP, name, sequence, "", number, *times, Mode.SINGLE, "t", 0, 0, (Offer("p"),))
        return coordinator.handle(name, request, now)

    join("a", 1, 1, 0.0)
    join("b", 1, 1, 0.0)
    [(leader, asked)] = join("a", 2, 2, 0.0)
    assert leader == "b" and asked.role is Role.LEADER
    now, taken_over = 0.0, []
    while now < 30 and not taken_over:
        now += 5
        # Both repeat their joins, so neither falls silent.
        replies = join("a", int(now) + 9, 2, now) + join("b", int(now) + 9, 1, now)
        taken_over = [m for to, m in replies if to == "a" and m.role is Role.LEADER]
    assert now == 20 and taken_over[0].generation == asked.generation + 1
    late = Sync(GROUP, "b", 99, asked.generation, Code.NONE, "", (("a", b"old"),))
    assert coordinator.handle("b", late, now)[-1][1].code is not Code.NONE


def test_a_sync_of_an_older_generation_is_refused_even_from_the_same_leader() -> None:
    coordinator = Coordinator(CoordinatorSettings(group_initial_rebalance_delay_ms=0))

    def join(number: int) -> Any:
        request = Join(GROUP, "a", number, "", number, 10_000, 20_000, Mode.SINGLE, "t", 0, 0, (Offer("p"),))
        return coordinator.handle("a", request, 0.0)[-1][1]

    def sync(generation: int, state: bytes) -> Any:
        request = Sync(GROUP, "a", 9, generation, Code.NONE, "", (("a", state),))
        return coordinator.handle("a", request, 0.0)[-1][1]

    assert (join(1).generation, join(2).generation) == (1, 2)
    assert sync(1, b"old").code is Code.ILLEGAL_GENERATION
    assert (sync(2, b"new").state, sync(2, b"repeated").state) == (b"new", b"new")


def test_an_error_of_the_leader_reaches_all_members() -> None:
    network = Network()
    for name, broken in (("a", ""), ("b", ""), ("c", "cannot read the metadata of 'a'")):
        network.join(name, Plain(broken=broken))
    network.run(5)
    assert set(network.failures()) == {"a", "b", "c"}
    for failed in network.failures().values():
        assert failed.error.code is Code.ASSIGNMENT_FAILED
        assert "leader c: ValueError: cannot read the metadata of 'a'" in str(failed.error)
    network.run(30)
    assert network.coordinator.describe(GROUP).state is GroupState.EMPTY


def test_a_member_that_keeps_wanting_another_try_gives_up_in_the_end() -> None:
    class Never(Plain):
        def accept(self, found: Round) -> Any:
            raise TryAgain("sees other topics")

    network = Network()
    network.join("a", Never())
    network.run(60)
    error = network.failures()["a"].error
    assert isinstance(error, GroupFailed) and error.code is Code.METADATA_DISAGREEMENT
    assert "sees other topics" in str(error)
    joins = [m for _, name, m in network.log if name == "a" and isinstance(m, Join)]
    assert len(joins) < 40  # backed off: two sessions of 10 s, a second at most between two tries


def test_nobody_hears_anything_from_a_coordinator_that_is_gone_and_all_find_the_next() -> None:
    network = stable("a", "b")
    generation = network.coordinator.describe(GROUP).generation
    network.coordinator.close(GROUP)
    network.rejoin("a")
    network.run(3)
    assert network.members["a"].state is MemberState.JOINING
    network.replace_coordinator(remembers=True)
    network.settle()
    assert network.coordinator.describe(GROUP).generation == generation + 1


def test_a_coordinator_that_remembers_nothing_learns_the_generation_from_the_members() -> None:
    network = stable("a", "b")
    network.join("c", Plain())
    network.settle(10)
    generation = network.coordinator.describe(GROUP).generation
    network.replace_coordinator(remembers=False)
    network.settle()
    assert network.coordinator.describe(GROUP).generation > generation


def test_a_forgotten_group_goes_on_with_its_generations() -> None:
    network = Network()
    network.coordinator = Coordinator(network.settings, forget_after=30.0)
    network.join("a", Plain())
    network.settle(10)
    network.leave("a")
    network.run(40)
    assert not network.coordinator.groups
    network.join("b", Plain())
    network.settle(10)
    assert network.coordinator.describe(GROUP).generation == 2


TOPICS = Topics({"t": 6})


def protocol(mode: Mode) -> ConsumerProtocol:
    return ConsumerProtocol(["t"], fetch=lambda: TOPICS, mode=mode)


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("seed", range(20))
def test_a_newcomer_that_leaves_again_does_not_end_the_wait(mode: Mode, seed: int) -> None:
    """`Network.check` looks after every event that no partition has two owners."""
    network = Network(seed)
    for name in ("a", "b"):
        network.join(name, protocol(mode))
    network.settle()
    assert all(network.owned()[name] for name in ("a", "b"))
    network.replace_coordinator(remembers=True)
    for name in ("c", "d", "e"):
        network.join(name, protocol(mode))
    network.leave("d")
    network.run(0.01)
    network.leave("e")
    network.settle()
    assert sorted(network.members) == ["a", "b", "c"]
    assert sum(map(len, network.owned().values())) == 6


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
