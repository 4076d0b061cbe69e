"""The coordinator and its members, case by case: choosing, joining, rolling on, failures, static members, fencing."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from taskplace.errors import InputError
from taskplace.groups.consumer import ConsumerProtocol
from taskplace.groups.coordinator import Coordinator, CoordinatorSettings, GroupState, choose_protocol
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
from tests.support.network import FAST, GROUP, SETTINGS, Network


class Plain:
    """The smallest protocol: every member is assigned its own name, in upper case."""

    protocol_type = "plain"

    def __init__(self, *offers: Any, mode: Mode = Mode.SINGLE, broken: str = "", kind: str = "plain") -> None:
        self.mode, self.broken, self.newest, self.protocol_type = mode, broken, 0, kind
        self.said = [
            Offer(*offer) if isinstance(offer, tuple) else Offer(offer) for offer in offers or ("p",)
        ]
        self.rounds: list[Joined] = []

    def offers(self) -> list[Offer]:
        return self.said

    def lead(self, found: Joined) -> dict[str, bytes]:
        if self.broken:
            raise ValueError(self.broken)
        return {name: name.upper().encode() for name in found.members}

    def accept(self, found: Joined) -> tuple[str, ...]:
        self.rounds.append(found)
        return (found.state.decode() or found.name.upper(),)

    def lost(self) -> None:
        pass


def stable(*names: str, **more: Any) -> Network:
    network = Network(**more)
    for name in names:
        network.join(name, Plain())
        network.run(0.5)
    network.settle(10)
    return network


def error(network: Network, name: str) -> GroupFailed:
    return network.failures()[name].error


def join(
    coordinator: Coordinator, name: str, sequence: int, number: int = 1, now: float = 0.0
) -> list[tuple[str, Any]]:
    """Send a join of a member that offers one protocol, and return the replies."""
    request = Join(GROUP, name, sequence, "", number, 10_000, 20_000, Mode.SINGLE, "t", 0, 0, (Offer("p"),))
    return coordinator.handle(name, request, now)


# -------------------------------------------------------------------------------------------------- joining


def test_states_and_generations_from_empty_to_empty():
    network = Network(settings=CoordinatorSettings(group_initial_rebalance_delay_ms=3_000))
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


def test_only_the_leader_gets_the_members_and_followers_their_state():
    network = stable("a", "b", "c")
    assert network.leader == "c"
    assert network.owned() == {"a": ("A",), "b": ("B",), "c": ("C",)}
    assert not network.members["a"].protocol.rounds[-1].members
    last = max(m.generation for _, m in network.sent if hasattr(m, "role"))
    roles = [(n, m.role) for n, m in network.sent if hasattr(m, "role") and m.generation == last]
    assert roles[0] == ("c", Role.LEADER)
    assert {name for name, role in roles if role is Role.MEMBER} == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (Plain("q"), "found q 0, expected one of p 0"),
        (Plain(("p", 1)), "found p 1, expected one of p 0"),
        (Plain(mode=Mode.EVERY), "found 'plain' (every), expected 'plain' (single)"),
        (Plain(kind="pool"), "found 'pool' (single), expected 'plain' (single)"),
    ],
)
def test_a_joiner_without_a_common_protocol_is_refused_and_the_group_goes_on(other, message):
    network = stable("a")
    before = network.group.generation
    network.join("x", other)
    network.run(1)
    assert error(network, "x").code is Code.INCONSISTENT_GROUP_PROTOCOL and message in str(
        error(network, "x")
    )
    assert network.group.generation == before


def test_sessions_sizes_and_ids_are_checked():
    network = stable("a", settings=CoordinatorSettings(group_initial_rebalance_delay_ms=0, group_max_size=1))
    network.join("b", Plain())
    network.join("c", Plain(), MemberSettings(session_timeout_ms=3_000, heartbeat_interval_ms=500))
    network.run(1)
    assert error(network, "b").code is Code.GROUP_MAX_SIZE_REACHED
    assert error(network, "c").code is Code.INVALID_SESSION_TIMEOUT
    assert join(Coordinator(), "", 1)[0][1].code is Code.INVALID_REQUEST
    with pytest.raises(InputError, match=r"max\.poll\.interval\.ms: found 1000"):
        MemberSettings(max_poll_interval_ms=1_000)


# ----------------------------------------------------------------------------------------------- rolling on


def test_the_rolling_upgrade_of_the_text():
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


def test_a_member_with_new_metadata_joins_again_and_a_follower_without_gets_what_is_in_force():
    network = stable("a", "b")
    generation = network.group.generation

    def rejoined(name):
        network.rejoin(name)
        network.settle(5)
        return network.group.generation - generation

    assert rejoined("a") == 0  # a follower that says the same
    assert network.owned()["a"] == ("A",)
    network.members["a"].protocol.said = [Offer("p", 0, b"new")]
    assert rejoined("a") == 1
    assert rejoined("b") == 2  # the leader: it wants to assign anew


@given(st.lists(st.permutations("abcd"), min_size=1, max_size=5), st.text(max_size=5))
def test_what_all_put_behind_another_is_never_chosen(orders, seed):
    chosen = choose_protocol([[(name, 0) for name in order] for order in orders], seed)
    for other in "abcd":
        assert any(order.index(chosen[0]) <= order.index(other) for order in orders)
    assert chosen == choose_protocol([[(name, 0) for name in order] for order in reversed(orders)], seed)
    lists = [[("a", 0), ("b", 0)], [("b", 0), ("a", 0)]]
    assert {choose_protocol(lists, f"group-{k}") for k in range(40)} == {("a", 0), ("b", 0)}


def test_a_silent_member_expires_and_its_place_is_given_away_after_it_has_stopped():
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


def test_a_leader_that_dies_is_replaced_under_a_new_generation():
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


def test_a_leader_that_answers_but_never_assigns_is_replaced_too():
    coordinator = Coordinator(FAST)
    join(coordinator, "a", 1)
    join(coordinator, "b", 1)
    [(leader, asked)] = join(coordinator, "a", 2, 2)
    assert leader == "b" and asked.role is Role.LEADER
    now, taken_over = 0.0, []
    while now < 30 and not taken_over:
        now += 5
        # Both repeat their joins, so neither falls silent.
        replies = join(coordinator, "a", int(now) + 9, 2, now) + join(coordinator, "b", int(now) + 9, 1, now)
        taken_over = [m for to, m in replies if to == "a" and m.role is Role.LEADER]
    assert now == 20 and taken_over[0].generation == asked.generation + 1
    late = Sync(GROUP, "b", 99, asked.generation, Code.NONE, "", {"a": b"old"})
    assert coordinator.handle("b", late, now)[-1][1].code is not Code.NONE


def test_a_sync_of_an_older_generation_is_refused_even_from_the_same_leader():
    coordinator = Coordinator(FAST)

    def sync(generation, state):
        request = Sync(GROUP, "a", 9, generation, Code.NONE, "", {"a": state})
        return coordinator.handle("a", request, 0.0)[-1][1]

    assert [join(coordinator, "a", k, k)[-1][1].generation for k in (1, 2)] == [1, 2]
    assert sync(1, b"old").code is Code.ILLEGAL_GENERATION
    assert (sync(2, b"new").state, sync(2, b"repeated").state) == (b"new", b"new")


def test_an_error_of_the_leader_reaches_all_members():
    network = Network()
    for name in "abc":
        network.join(name, Plain(broken="cannot read the metadata of 'a'" if name == "c" else ""))
    network.run(5)
    assert set(network.failures()) == {"a", "b", "c"}
    for name in "abc":
        assert error(network, name).code is Code.ASSIGNMENT_FAILED
        assert "leader c: ValueError: cannot read the metadata of 'a'" in str(error(network, name))
    network.run(30)
    assert network.group.state is GroupState.EMPTY


def test_a_member_that_keeps_wanting_another_try_gives_up_in_the_end():
    class Never(Plain):
        def accept(self, found):
            raise TryAgain("sees other topics")

    network = Network()
    network.join("a", Never())
    network.run(60)
    assert error(network, "a").code is Code.METADATA_DISAGREEMENT
    assert "sees other topics" in str(error(network, "a"))
    joins = [m for _, name, m in network.log if name == "a" and isinstance(m, Join)]
    assert len(joins) < 40  # backed off: two sessions of 10 s, a second at most between two tries


def test_nobody_hears_anything_from_a_coordinator_that_is_gone_and_all_find_the_next():
    network = stable("a", "b")
    generation = network.group.generation
    network.coordinator.close(GROUP)
    network.rejoin("a")
    network.run(3)
    assert network.members["a"].state is MemberState.JOINING
    network.replace_coordinator(remembers=True)
    network.settle()
    assert network.group.generation == generation + 1


def test_a_coordinator_that_remembers_nothing_learns_the_generation_from_the_members():
    network = stable("a", "b", "c")
    generation = network.group.generation
    network.replace_coordinator(remembers=False)
    network.settle()
    assert network.group.generation > generation > 1


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("seed", range(20))
def test_a_newcomer_that_leaves_again_does_not_end_the_wait(mode, seed):
    """`Network.check` looks after every event that no partition has two owners."""
    network = Network(seed)

    def come(names):
        for name in names:
            network.join(name, ConsumerProtocol(["t"], fetch=lambda: Topics({"t": 6}), mode=mode))

    come("ab")
    network.settle()
    assert all(network.owned()[name] for name in "ab")
    network.replace_coordinator(remembers=True)
    come("cde")
    network.leave("d")
    network.run(0.01)
    network.leave("e")
    network.settle()
    assert sorted(network.members) == ["a", "b", "c"]
    assert sum(map(len, network.owned().values())) == 6


# ------------------------------------------------------------------------------------- static membership

STATIC = MemberSettings(
    session_timeout_ms=10_000,
    heartbeat_interval_ms=1_000,
    max_poll_interval_ms=20_000,
    group_instance_id="db-1",
)


def with_static() -> Network:
    network = Network()
    network.join("a", Plain(), STATIC)
    network.join("b", Plain())
    network.settle(10)
    return network


def test_a_static_member_that_restarts_gets_its_part_back_without_a_rebalance():
    network = with_static()
    generation = network.group.generation
    network.leave("a")  # silently
    network.run(3)
    network.join("a2", Plain(), STATIC)
    network.settle(10)
    assert network.owned() == {"a2": ("DB-1",), "b": ("B",)}
    assert network.group.generation == generation


def test_a_static_member_that_stays_away_expires():
    network = with_static()
    network.leave("a")
    network.run(9)
    assert network.names == ("b", "db-1")
    network.settle(20)
    assert network.names == ("b",)


def test_who_takes_over_an_instance_id_fences_the_one_before():
    network = Network(exclusive=False)  # until the old one hears of it, both are at work
    for name in ("a", "a2"):
        network.join(name, Plain(), STATIC)
        network.settle(10)
    assert error(network, "a").code is Code.FENCED_INSTANCE_ID
    assert set(network.owned()) == {"a2"}
    with pytest.raises(StaleGeneration, match="FENCED_INSTANCE_ID"):
        network.coordinator.fence(GROUP, "a", network.members["a"].generation)


# ------------------------------------------------------------------------------------------------ fencing


def test_work_of_an_older_generation_is_refused():
    network = stable("a")
    fence, old = network.coordinator.fence, network.group.generation
    fence(GROUP, "a", old)
    network.join("b", Plain())
    network.run(0.5)
    fence(GROUP, "a", old)  # still in force: the next has not begun
    network.settle(10)
    with pytest.raises(StaleGeneration, match="expected a member in generation 2: ILLEGAL_GENERATION"):
        fence(GROUP, "a", old)
    fence(GROUP, "a", 2)
    with pytest.raises(StaleGeneration, match="UNKNOWN_MEMBER_ID"):
        fence(GROUP, "stranger", 2)


def test_a_generation_that_nobody_can_have_reached_is_refused_and_does_no_harm():
    network = Network()
    liar = Member(GROUP, "liar", Plain(), SETTINGS)
    liar.generation = 2**53
    network.members["liar"] = liar
    network._apply("liar", liar.start(network.now))
    network.run(2)
    assert "found generation 9007199254740992, expected one up to" in str(error(network, "liar"))
    del network.members["liar"]
    network.join("a", Plain())
    network.settle(20)
    assert network.group.generation < 10
