"""What a group has to choose: the protocol, the leader, the sub-group."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given
from taskplace.groups.coordinator import Candidate
from taskplace.groups.membership import choose_protocol, largest_matching, newest_then_latest


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
