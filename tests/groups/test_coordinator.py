"""The coordinator and its members, case by case: choosing, joining, rolling on, failures, static members, fencing."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from taskplace.errors import InputError
from taskplace.groups.consumer import ConsumerProtocol
from taskplace.groups.coordinator import (
    Coordinator,
    CoordinatorSettings,
    GroupState,
    choose_protocol,
)
from taskplace.groups.member import Assigned, Member, MemberSettings, MemberState, Revoked, TryAgain
from taskplace.groups.messages import (
    Code,
    GroupFailed,
    Join,
    Joined,
    Mode,
    Offer,
    Role,
    StaleGeneration,
    Sync,
)
from taskplace.groups.metadata import Topics
from tests.support.group_protocol import Plain, stable
from tests.support.network import GROUP, SETTINGS, Network


# -------------------------------------------------------------------------------------------------- joining
def test_states_and_generations_from_empty_to_empty() -> None:
    settings = CoordinatorSettings(group_initial_rebalance_delay_ms=3_000)
    network = Network(settings=settings)
    network.join("a", Plain())
    network.run(1)
    assert network.group.state is GroupState.PREPARING_REBALANCE
    network.join("b", Plain())
    network.run(3)
    # Both came within the delay: one rebalance.
    group = network.group
    assert (group.state, group.generation, network.names) == (GroupState.STABLE, 1, ("a", "b"))
    network.leave("a")
    network.leave("b")
    network.run(1)
    assert (group.state, network.names) == (GroupState.EMPTY, ())


def test_only_the_leader_gets_the_members_and_followers_their_state() -> None:
    network = stable("a", "b", "c")
    assert network.leader == "c"
    assert network.owned() == {"a": ("A",), "b": ("B",), "c": ("C",)}
    assert not network.members["a"].protocol.rounds[-1].members
    last = max(m.generation for _, m in network.sent if hasattr(m, "role"))
    roles = [
        (n, m.role) for n, m in network.sent if getattr(m, "role", None) is not None and m.generation == last
    ]
    assert roles[0] == ("c", Role.LEADER)
    assert {name for name, role in roles if role is Role.MEMBER} == {"a", "b", "c"}


def pool() -> Plain:
    other = Plain()
    other.protocol_type = "pool"
    return other


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (Plain("q"), "found q 0, expected one of p 0"),
        (Plain(("p", 1)), "found p 1, expected one of p 0"),
        (Plain(mode=Mode.EVERY), "found 'plain' (every), expected 'plain' (single)"),
        (pool(), "found 'pool' (single), expected 'plain' (single)"),
    ],
)
def test_a_joiner_without_a_common_protocol_is_refused_and_the_group_goes_on(
    other: Plain, message: str
) -> None:
    network = stable("a")
    before = network.group.generation
    network.join("x", other)
    network.run(1)
    error = network.failures()["x"].error
    assert isinstance(error, GroupFailed) and error.code is Code.INCONSISTENT_GROUP_PROTOCOL
    assert message in str(error)
    assert network.group.generation == before


def test_sessions_sizes_and_ids_are_checked() -> None:
    network = stable("a", settings=CoordinatorSettings(group_initial_rebalance_delay_ms=0, group_max_size=1))
    network.join("b", Plain())
    network.join("c", Plain(), MemberSettings(session_timeout_ms=3_000, heartbeat_interval_ms=500))
    network.run(1)
    codes = {name: failed.error.code for name, failed in network.failures().items()}
    assert codes == {"b": Code.GROUP_MAX_SIZE_REACHED, "c": Code.INVALID_SESSION_TIMEOUT}
    bare = Join("h", "", 1, "", 1, 9_000, 9_000, Mode.EVERY, "t", 0, 0, (Offer("p"),))
    assert Coordinator().handle("x", bare, 0.0)[0][1].code is Code.INVALID_REQUEST
    with pytest.raises(InputError, match=r"max\.poll\.interval\.ms: found 1000"):
        MemberSettings(max_poll_interval_ms=1_000)


# ----------------------------------------------------------------------------------------------- rolling on
def test_the_rolling_upgrade_of_the_text() -> None:
    """Four phases: the group uses version 1 when, and only when, all three members do."""
    old, both = [("round-robin", 0)], [("round-robin", 1), ("round-robin", 0)]
    network = Network()
    for name in "ABC":
        network.join(name, Plain(*old, mode=Mode.EVERY))
    network.settle(30)
    used = [network.protocol]
    for name in "ABC":
        network.leave(name)
        network.join(f"{name}'", Plain(*both, mode=Mode.EVERY))
        network.settle(30)
        used.append(network.protocol)
    assert used == [("round-robin", 0)] * 3 + [("round-robin", 1)]


def test_a_member_with_new_metadata_joins_again_and_a_follower_without_gets_what_is_in_force() -> None:
    network = stable("a", "b")
    generation = network.group.generation
    network.rejoin("a")  # a follower that says the same
    network.settle(5)
    assert network.group.generation == generation
    assert network.owned()["a"] == ("A",)
    network.members["a"].protocol.said = [Offer("p", 0, b"new")]
    network.rejoin("a")
    network.settle(5)
    assert network.group.generation == generation + 1
    network.rejoin("b")  # the leader: it wants to assign anew
    network.settle(5)
    assert network.group.generation == generation + 2


@given(st.lists(st.permutations("abcd"), min_size=1, max_size=5), st.text(max_size=5))
def test_what_all_put_behind_another_is_never_chosen(orders: list[list[str]], seed: str) -> None:
    chosen = choose_protocol([[(name, 0) for name in order] for order in orders], seed)
    for other in "abcd":
        assert any(order.index(chosen[0]) <= order.index(other) for order in orders)
    assert chosen == choose_protocol([[(name, 0) for name in order] for order in reversed(orders)], seed)
    lists = [[("a", 0), ("b", 0)], [("b", 0), ("a", 0)]]
    assert {choose_protocol(lists, f"group-{k}") for k in range(40)} == {("a", 0), ("b", 0)}


def test_a_silent_member_expires_and_its_place_is_given_away_after_it_has_stopped() -> None:
    network = stable("a", "b")
    network.cut.add("a")
    network.run(25)
    assert network.members["a"].owned is None
    assert network.names == ("b",)
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
    dying = network.group.generation
    network.crash("c")
    assert network.group.state is GroupState.COMPLETING_REBALANCE
    network.settle(60)
    assert network.names == ("a", "b") and network.leader == "b"
    assert network.group.generation == dying + 1


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
    late = Sync(GROUP, "b", 99, asked.generation, Code.NONE, "", {"a": b"old"})
    assert coordinator.handle("b", late, now)[-1][1].code is not Code.NONE


def test_a_sync_of_an_older_generation_is_refused_even_from_the_same_leader() -> None:
    coordinator = Coordinator(CoordinatorSettings(group_initial_rebalance_delay_ms=0))

    def join(number: int) -> Any:
        request = Join(GROUP, "a", number, "", number, 10_000, 20_000, Mode.SINGLE, "t", 0, 0, (Offer("p"),))
        return coordinator.handle("a", request, 0.0)[-1][1]

    def sync(generation: int, state: bytes) -> Any:
        request = Sync(GROUP, "a", 9, generation, Code.NONE, "", {"a": state})
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
    assert network.group.state is GroupState.EMPTY


def test_a_member_that_keeps_wanting_another_try_gives_up_in_the_end() -> None:
    class Never(Plain):
        def accept(self, found: Joined) -> Any:
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
    generation = network.group.generation
    network.coordinator.close(GROUP)
    network.rejoin("a")
    network.run(3)
    assert network.members["a"].state is MemberState.JOINING
    network.replace_coordinator(remembers=True)
    network.settle()
    assert network.group.generation == generation + 1


def test_a_coordinator_that_remembers_nothing_learns_the_generation_from_the_members() -> None:
    network = stable("a", "b")
    network.join("c", Plain())
    network.settle(10)
    generation = network.group.generation
    network.replace_coordinator(remembers=False)
    network.settle()
    assert network.group.generation > generation


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
    generation = network.group.generation
    network.leave("a")  # silently
    network.run(3)
    network.join("a2", Plain(), static("db-1"))
    network.settle(10)
    assert network.owned() == {"a2": ("DB-1",), "b": ("B",)}
    assert network.group.generation == generation


def test_a_static_member_that_stays_away_expires() -> None:
    network = Network()
    network.join("a", Plain(), static("db-1"))
    network.join("b", Plain())
    network.settle(10)
    network.leave("a")
    network.run(9)
    assert network.names == ("b", "db-1")
    network.settle(20)
    assert network.names == ("b",)


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
    old = network.group.generation
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
    assert network.group.generation < 10
