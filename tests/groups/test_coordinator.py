"""The coordinator and its members, case by case, as the proposal tells them: choosing, joining, and rolling on."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from taskplace.errors import ConfigError, InputError
from taskplace.groups.coordinator import Candidate
from taskplace.groups.membership import (
    Code,
    Coordinator,
    CoordinatorSettings,
    GroupFailed,
    GroupState,
    MemberSettings,
    Mode,
    Offer,
    choose_protocol,
    largest_matching,
    newest_then_latest,
)
from taskplace.groups.messages import Join, Role
from tests.support.group_protocol import Plain, stable
from tests.support.network import GROUP, Network


# -------------------------------------------------------------------------------------------------- joining
def test_states_and_generations_from_empty_to_empty() -> None:
    settings = CoordinatorSettings(group_initial_rebalance_delay_ms=3_000)
    network = Network(settings=settings)
    network.join("a", Plain())
    network.run(1)
    assert network.coordinator.describe(GROUP).state is GroupState.PREPARING_REBALANCE
    network.join("b", Plain())
    network.run(3)
    found = network.coordinator.describe(GROUP)
    # Both came within the delay: one rebalance.
    assert (found.state, found.generation, found.members) == (GroupState.STABLE, 1, ("a", "b"))
    network.leave("a")
    network.leave("b")
    network.run(1)
    found = network.coordinator.describe(GROUP)
    assert (found.state, found.members) == (GroupState.EMPTY, ())


def test_only_the_leader_gets_the_members_and_followers_their_state() -> None:
    network = stable("a", "b", "c")
    assert network.coordinator.describe(GROUP).leader == "c"
    assert network.owned() == {"a": ("A",), "b": ("B",), "c": ("C",)}
    assert not network.members["a"].protocol.rounds[-1].members
    last = max(m.generation for _, m in network.sent if hasattr(m, "role"))
    roles = [
        (n, m.role) for n, m in network.sent if getattr(m, "role", None) is not None and m.generation == last
    ]
    assert roles[0] == ("c", Role.LEADER)
    assert {name for name, role in roles if role is Role.MEMBER} == {"a", "b", "c"}


def test_in_the_mode_every_all_get_all_and_nobody_leads() -> None:
    network = stable("a", "b", mode=Mode.EVERY)
    assert network.coordinator.describe(GROUP).leader == ""
    for member in network.members.values():
        assert set(member.protocol.rounds[-1].members) == {"a", "b"}
        assert member.protocol.led == 0


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (Plain("q"), "found q 0, expected one of p 0"),
        (Plain(("p", 1)), "found p 1, expected one of p 0"),
        (Plain(mode=Mode.EVERY), "found 'plain' (every), expected 'plain' (single)"),
    ],
)
def test_a_joiner_without_a_common_protocol_is_refused_and_the_group_goes_on(
    other: Plain, message: str
) -> None:
    network = stable("a")
    before = network.coordinator.describe(GROUP)
    network.join("x", other)
    network.run(1)
    error = network.failures()["x"].error
    assert isinstance(error, GroupFailed) and error.code is Code.INCONSISTENT_GROUP_PROTOCOL
    assert message in str(error)
    assert network.coordinator.describe(GROUP) == before


def test_another_protocol_type_is_refused() -> None:
    network = stable("a")
    other = Plain()
    other.protocol_type = "pool"
    network.join("x", other)
    network.run(1)
    assert "found 'pool' (single), expected 'plain' (single)" in str(network.failures()["x"].error)


def test_sessions_sizes_and_ids_are_checked() -> None:
    network = stable("a", settings=CoordinatorSettings(group_initial_rebalance_delay_ms=0, group_max_size=1))
    network.join("b", Plain())
    network.join("c", Plain(), MemberSettings(session_timeout_ms=3_000, heartbeat_interval_ms=500))
    network.run(1)
    codes = {name: failed.error.code for name, failed in network.failures().items()}
    assert codes == {"b": Code.GROUP_MAX_SIZE_REACHED, "c": Code.INVALID_SESSION_TIMEOUT}
    bare = Join("h", "", 1, "", 1, 9_000, 9_000, Mode.EVERY, "t", 0, 0, (Offer("p"),))
    assert Coordinator().handle("x", bare, 0.0)[0][1].code is Code.INVALID_REQUEST
    with pytest.raises(ConfigError, match=r"max\.poll\.interval\.ms: found 1000"):
        MemberSettings(max_poll_interval_ms=1_000)
    with pytest.raises(InputError, match="group: found 'nobody'"):
        network.coordinator.describe("nobody")


# ----------------------------------------------------------------------------------------------- rolling on
def test_the_rolling_upgrade_of_the_text() -> None:
    """Four phases: the group uses version 1 when, and only when, all three members do."""
    old, both = [("round-robin", 0)], [("round-robin", 1), ("round-robin", 0)]
    network = Network()
    for name in "ABC":
        network.join(name, Plain(*old, mode=Mode.EVERY))
    network.settle(30)
    used = [network.coordinator.describe(GROUP).protocol]
    for name in "ABC":
        network.leave(name)
        network.join(f"{name}'", Plain(*both, mode=Mode.EVERY))
        network.settle(30)
        used.append(network.coordinator.describe(GROUP).protocol)
    assert used == [("round-robin", 0)] * 3 + [("round-robin", 1)]


def test_a_member_with_new_metadata_joins_again_and_a_follower_without_gets_what_is_in_force() -> None:
    network = stable("a", "b")
    generation = network.coordinator.describe(GROUP).generation
    network.rejoin("a")  # a follower that says the same
    network.settle(5)
    assert network.coordinator.describe(GROUP).generation == generation
    assert network.owned()["a"] == ("A",)
    network.members["a"].protocol.said = [Offer("p", 0, b"new")]
    network.rejoin("a")
    network.settle(5)
    assert network.coordinator.describe(GROUP).generation == generation + 1
    network.rejoin("b")  # the leader: it wants to assign anew
    network.settle(5)
    assert network.coordinator.describe(GROUP).generation == generation + 2


def test_the_preferred_common_protocol_is_chosen() -> None:
    a, b, c = ("a", 0), ("b", 0), ("c", 0)
    assert choose_protocol([[a, b], [a, b, c]], "g") == a
    assert choose_protocol([[c, b, a], [b, a]], "g") == b
    assert choose_protocol([[a], [b]], "g") is None


@given(st.lists(st.permutations("abcd"), min_size=1, max_size=5), st.text(max_size=5))
def test_what_all_put_behind_another_is_never_chosen(orders: list[list[str]], seed: str) -> None:
    chosen = choose_protocol([[(name, 0) for name in order] for order in orders], seed)
    assert chosen is not None
    for other in "abcd":
        assert any(order.index(chosen[0]) <= order.index(other) for order in orders)
    assert chosen == choose_protocol([[(name, 0) for name in order] for order in reversed(orders)], seed)


def test_preferences_that_disagree_are_settled_by_a_draw_that_stays_the_same() -> None:
    lists = [[("a", 0), ("b", 0)], [("b", 0), ("a", 0)]]
    drawn = {choose_protocol(lists, f"group-{k}") for k in range(40)}
    assert drawn == {("a", 0), ("b", 0)}
    assert len({choose_protocol(lists, "orders") for _ in range(9)}) == 1


def test_the_newest_version_leads_and_then_the_latest_to_join() -> None:
    assert newest_then_latest([Candidate("a", 1, 0), Candidate("b", 1, 5), Candidate("c", 0, 9)]) == "b"


@given(st.dictionaries(st.text(max_size=3), st.sampled_from([b"1", b"2", b"3"]), min_size=1))
def test_the_largest_sub_group_is_one_of_the_largest_whoever_asks(hashes: dict[str, bytes]) -> None:
    found = largest_matching(hashes)
    sizes = [list(hashes.values()).count(h) for h in hashes.values()]
    assert len(found) == max(sizes)
    assert len({hashes[name] for name in found}) == 1
    assert found == largest_matching(dict(reversed(hashes.items())))
