"""Faust's assignor: together, balanced, a lost member's work to the holders of its standbys, spread over many.

Also what Faust's own tests (tests/meticulous) and its code say of it: global tables, claims, coming and going.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from taskplace.groups import copartitioned as solver
from taskplace.groups.partitions import (
    Member,
    PartitionAssignment,
    Subscriptions,
    TopicPartition,
    assign_partitions,
)
from tests.support.assignments import verify
from tests.support.groups import group, home_of
from tests.support.groups import together as coassign

NOTHING = PartitionAssignment({}, "copartitioned")
TOPICS = {"orders": 60, "users": 60, "totals": 60, "clicks": 12}


def fleet(topics: Mapping[str, int], count: int, replicas: int = 1, **more: object) -> Subscriptions:
    members = {f"m{k:02}": Member(tuple(topics)) for k in range(count)}
    return Subscriptions(topics, members, assignor="copartitioned", replicas=replicas, **more)


def later(
    s: Subscriptions, made: PartitionAssignment, gone: Iterable[str] = (), come: Iterable[str] = ()
) -> Subscriptions:
    """Return what is asked next: members own what they got, some are gone, others have come with nothing."""
    now = s.owning(made.assignment, standby=made.standby).members
    stay = {name: m for name, m in now.items() if name not in gone}
    return replace(s, members=stay | {name: Member(tuple(s.topics)) for name in come})


def verified(s: Subscriptions) -> PartitionAssignment:
    made = assign_partitions(s, "copartitioned")
    assert verify(s, made) == []
    return made


def together(s: Subscriptions, made: PartitionAssignment) -> None:
    """Equal partition numbers of topics with equal counts are on one member, and so are their copies."""
    for held in (*made.assignment.values(), *made.standby.values()):
        for one, other in itertools.combinations(s.topics, 2):
            if s.topics[one] == s.topics[other]:
                assert {tp.partition for tp in held if tp.topic == one} == {
                    tp.partition for tp in held if tp.topic == other
                }


def valid(s: Subscriptions, made: PartitionAssignment) -> None:
    """Every partition is active once and followed `replicas` times; all topics of the group alike."""
    assert verify(s, made) == []
    together(s, made)
    for held, times in ((made.assignment, 1), (made.standby, min(s.replicas, len(s.members) - 1))):
        found = Counter(tp for pairs in held.values() for tp in pairs)
        assert found == {TopicPartition(t, p): times for t, n in s.topics.items() for p in range(n) if times}


def level(values: list[int]) -> bool:
    return max(values) - min(values) <= 1


def tasks(s: Subscriptions, made: PartitionAssignment) -> dict[int, list[int]]:
    """Return, for each count of partitions, how many tasks each member has."""
    return {
        n: [
            len({tp.partition for tp in held if s.topics[tp.topic] == n}) for held in made.assignment.values()
        ]
        for n in sorted(set(s.topics.values()))
    }


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("count", [4, 7, 20])
def test_every_lost_member_is_taken_over_by_many_holders_of_its_standbys(count, seed):
    s = fleet(TOPICS, count, seed=seed)
    made = verified(s)
    assert made.warnings == ()
    together(s, made)
    for lost in s.members:
        left = later(s, made, gone=[lost])
        after = verified(left)
        together(left, after)
        home = home_of(after.assignment)
        heirs = Counter(home[tp] for tp in made.assignment[lost] if tp.topic in ("orders", "clicks"))
        assert all(tp in made.standby[home[tp]] for tp in made.assignment[lost])
        # Spread: nobody takes more than twice its share of the work, rounded up.
        assert max(heirs.values()) <= 2 * -(-heirs.total() // (count - 1)), (lost, heirs)
        # Balance is met now, or after the standbys that are being made.
        last = assign_partitions(later(left, after)) if after.followup else after
        assert not last.followup and all(map(level, tasks(left, last).values()))


def test_a_member_that_comes_back_gets_its_share_and_no_other_moves():
    s = fleet(TOPICS, 6)
    left = later(s, assign_partitions(s), gone=["m03"])
    without = assign_partitions(left)
    back = later(left, without, come=["m03"])
    again = verified(back)
    assert tasks(back, again) == {12: [2] * 6, 60: [10] * 6}
    before = home_of(without.assignment)
    changed = {tp for tp, name in home_of(again.assignment).items() if before[tp] != name}
    assert changed == set(again.assignment["m03"])
    assert again.moved == len(changed) == 3 * 10 + 2


def test_another_seed_spreads_differently_and_the_same_seed_alike():
    first, second, other = (coassign(fleet(TOPICS, 8), 1, seed) for seed in (1, 1, 2))
    assert first == second
    assert first.standby != other.standby


@pytest.mark.parametrize("replicas", [0, 1])
@pytest.mark.parametrize(
    ("stages", "moves"), [(("", "a", "abc"), [0, 0, 4]), (("", "a", "ab", "abc"), [0, 0, 3, 2])]
)
def test_a_topic_that_comes_to_one_member_after_the_other_moves_no_more_than_it_must(stages, moves, replicas):
    """u comes to more and more of the members a, b, c; o is everybody's."""
    held, moved, homes = NOTHING, [], []
    for stage in stages:
        heard = {n: Member(("o", "u") if n in stage else ("o",)) for n in "abc"}
        s = replace(Subscriptions({"o": 6, "u": 6}, heard), replicas=replicas)
        s = s.owning(held.assignment, standby=held.standby)
        held = verified(s)
        home = home_of(held.assignment)
        homes.append({t: [home.get(TopicPartition(t, p)) for p in range(6)] for t in "ou"})
        moved.append(held.moved)
    assert moved == moves
    assert all(home["o"] == homes[0]["o"] for home in homes) and homes[-1]["o"] == homes[-1]["u"]
    if len(stages) == 4:  # in between, u is with o wherever both may be
        assert all(u == o for u, o in zip(homes[2]["u"], homes[2]["o"], strict=True) if o != "c")


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.integers(1, 3), st.data())
def test_split_groups_move_the_fewest_partitions_that_balance_allows(size, members, data):
    names, topics = "abc"[:members], ("t", "u")
    draw = st.sampled_from([*names, ""])
    owner = {(t, p): data.draw(draw) for t in topics for p in range(size)}
    owned = {n: Member(topics, [tp for tp, who in owner.items() if who == n]) for n in names}
    made = verified(Subscriptions(dict.fromkeys(topics, size), owned))
    fewest = min(
        sum(who not in ("", at[p]) for (_, p), who in owner.items())
        for at in itertools.product(names, repeat=size)
        if level([at.count(n) for n in names])
    )
    assert made.moved == fewest


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(0, 1))
def test_different_subscribers_stay_together_and_at_rest(data, replicas):
    topics = data.draw(st.dictionaries(st.sampled_from("tuvw"), st.integers(1, 4), min_size=1))
    heard = {n: data.draw(st.sets(st.sampled_from(sorted(topics)), min_size=1)) for n in "abcd"}
    owned: dict[str, list[tuple[str, int]]] = {n: [] for n in [*heard, ""]}
    for t, p in ((t, p) for t, count in topics.items() for p in range(count)):
        owned[data.draw(st.sampled_from([*heard, ""]))].append((t, p))
    s = Subscriptions(topics, {n: Member(sorted(heard[n]), owned[n]) for n in heard}, replicas=replicas)
    for _ in range(4):
        made = verified(s)
        s = later(s, made)
        if not made.followup:
            break
    again = verified(s)
    assert (again.assignment, again.moved, again.followup) == (made.assignment, 0, False)


class Workers(RuleBasedStateMachine):
    """Workers come, go and fail, topics appear; after every assignment all that is promised holds."""

    @initialize(
        topics=st.dictionaries(st.sampled_from("abcde"), st.integers(1, 6), min_size=1),
        replicas=st.integers(0, 2),
    )
    def begin(self, topics, replicas):
        self.topics, self.replicas, self.made_up = topics, replicas, 1
        self.names = ["w0"]
        self.last = NOTHING
        self.assign()

    def question(self) -> Subscriptions:
        members = {name: Member(tuple(self.topics)) for name in self.names}
        s = Subscriptions(self.topics, members, assignor="copartitioned", replicas=self.replicas)
        return s.owning(self.last.assignment, standby=self.last.standby)

    def assign(self) -> None:
        before, s = self.last, self.question()
        self.last = verified(s)
        together(s, self.last)
        now = home_of(self.last.assignment)
        for tp, owner in home_of(before.assignment).items():
            holders = {n for n in self.names if tp in before.standby.get(n, ())}
            if owner not in self.names and holders:
                # The topic may have been new to the group, and followed its partition number.
                assert now[tp] in holders
        copies = Counter(tp for held in self.last.standby.values() for tp in held)
        wanted = min(self.replicas, len(self.names) - 1)
        assert all(copies[tp] >= wanted for tp in now)
        assert bool(self.last.warnings) == (wanted < self.replicas)

    @rule()
    def come(self):
        self.names.append(f"w{self.made_up}")
        self.made_up += 1
        self.assign()

    @precondition(lambda self: len(self.names) > 1)
    @rule(data=st.data())
    def fail(self, data):
        self.names.remove(data.draw(st.sampled_from(self.names)))
        self.assign()

    @rule(name=st.sampled_from("abcde"), count=st.integers(1, 6))
    def create(self, name, count):
        self.topics = {name: count, **self.topics}
        self.assign()

    @rule()
    def come_to_rest(self):
        for _ in range(3):
            if not self.last.followup:
                break
            self.assign()
        assert not self.last.followup
        assert all(map(level, tasks(self.question(), self.last).values()))

    @invariant()
    def at_rest_nothing_changes(self):
        if hasattr(self, "last") and not self.last.followup:
            again, last = assign_partitions(self.question()), self.last
            assert (again.assignment, again.standby, again.moved) == (last.assignment, last.standby, 0)


TestWorkers = Workers.TestCase
TestWorkers.settings = settings(max_examples=10, stateful_step_count=12, deadline=None)


@pytest.mark.parametrize("topics", [1, 2, 9])
def test_a_home_of_topics_placed_already_outweighs_all_owners_together(topics):
    owner, followed = {0: np.zeros((topics, 1), np.int64)}, {0: np.zeros((2, 1), bool)}
    assert solver.settle(owner, followed, {0: [np.array([1])]}, 2)[0].tolist() == [1]
    assert solver.settle(owner, followed, {0: [np.array([-1])]}, 2)[0].tolist() == [0]


def test_where_costs_have_no_room_for_all_levels_the_upper_ones_still_hold():
    """So many topics, numbers and members that the cost of the last level, the spread of topics, is left out."""
    topics, size, half = 300, 2_000, 1_000
    own = np.arange(size)
    placed = np.where(
        own < half, (own + 1) % half, -1
    )  # one half has another home, with topics placed already
    owner, followed = {0: np.tile(own, (topics, 1))}, {0: np.zeros((size, size), bool)}
    home = solver.settle(owner, followed, {0: [placed]}, size)
    assert home[0].tolist() == np.where(placed >= 0, placed, own).tolist()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 24), st.integers(1, 12), st.integers(0, 3), st.data())
def test_what_faust_wants_of_members_that_are_fresh_added_and_removed(count, members, replicas, data):
    three = dict.fromkeys(("bar", "baz", "foo"), count)
    s = fleet(three, members, min(replicas, members - 1))
    made = assign_partitions(s)
    valid(s, made)
    # Added: nobody else gets anything. Faust wants all to be busy only without standbys; here they are, and at once.
    s = later(s, made, come=[f"x{k}" for k in range(data.draw(st.integers(1, 6), "come"))])
    before = assign_partitions(s)
    valid(s, before)
    assert all(set(before.assignment[name]) <= set(held) for name, held in made.assignment.items())
    assert count < len(s.members) or all(before.assignment.values())
    # Removed: Faust moves what the removed had, and nothing else. Here one that stays may hand a partition over to a
    # standby of it, so that a lost one can go to a standby too.
    gone = sorted(s.members)[: data.draw(st.integers(1, len(s.members) - 1), "gone")]
    s = replace(later(s, before, gone), replicas=min(s.replicas, len(s.members) - len(gone) - 1))
    lost = {tp for name in gone for tp in before.assignment[name]}
    for _ in range(2):
        after = verified(s)
        for name, held in after.assignment.items():
            assert set(held) <= {*before.assignment[name], *before.standby[name]} | lost
        if not after.followup:
            valid(s, after)
            break
        before, s = after, later(s, after)
    assert not after.followup
    assert count < len(s.members) or all(after.assignment.values())


def test_a_lost_members_partitions_go_to_their_standbys_at_once_whatever_the_share():
    # Faust promotes a standby while its worker has less than ceil(partitions / workers), and no further.
    a = Member(["t"], [("t", 0), ("t", 1)], standby=[("t", 2), ("t", 3)])
    s = Subscriptions({"t": 4}, {"a": a, "b": Member(["t"])}, replicas=1)
    made = verified(s)
    assert len(made.assignment["a"]) == 4 and made.followup
    last = verified(later(s, made))
    assert [len(held) for held in last.assignment.values()] == [2, 2] and not last.followup


@pytest.mark.parametrize(("a", "b", "keeps"), [(5, 4, "a"), (4, 5, "b"), (4, 4, None)])
def test_of_two_claims_the_newer_one_counts_and_equal_ones_do_not(a, b, keeps):
    # Faust takes the partition from whichever it comes to first until one claim is left.
    members = {n: Member(["t"], [("t", 0)], g) for n, g in (("a", a), ("b", b))}
    made = verified(Subscriptions({"t": 2}, members))
    assert made.preserved == (keeps is not None)
    assert keeps is None or ("t", 0) in made.assignment[keeps]


def test_topics_group_by_count_and_by_the_set_of_their_subscribers():
    s = group({"a": 4, "b": 4, "c": 4, "d": 2, "e": 4}, x="a b c d", y="c b a d", z="c d e")
    home = home_of(verified(s).assignment)
    at = {t: [home[TopicPartition(t, p)] for p in range(4)] for t in "abce"}
    assert at["a"] == at["b"]
    assert {t: set(names) for t, names in at.items()} == {
        "a": {*"xy"},
        "b": {*"xy"},
        "c": {*"xyz"},
        "e": {"z"},
    }


def test_the_leader_is_who_has_the_only_partition_of_a_topic():
    s = fleet({"__leader": 1, "orders": 5}, 3)
    made = assign_partitions(s)
    leader = made.of("__leader", 0).active
    s = later(s, made, come=["x0", "x1"])
    more = assign_partitions(s)
    assert more.of("__leader", 0).active == leader
    after = assign_partitions(later(s, more, gone=[leader]))
    assert after.of("__leader", 0).active in more.of("__leader", 0).standby


def copies(made: PartitionAssignment, topic: str) -> dict[str, tuple[list[int], list[int]]]:
    """Return what each member has of a topic: active, standby."""
    return {
        name: tuple(
            [tp.partition for tp in held.get(name, ()) if tp.topic == topic]
            for held in (made.assignment, made.standby)
        )
        for name in made.assignment
    }


FAUSTS = st.sampled_from(["orders", "users", "codes", "rates"])


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(FAUSTS, st.integers(1, 6), min_size=1), st.sets(FAUSTS), st.integers(0, 2), st.data())
def test_every_worker_holds_all_of_a_global_topic_whoever_comes_and_goes(topics, chosen, replicas, data):
    everywhere = tuple(sorted(chosen & topics.keys()))
    s = fleet(topics, data.draw(st.integers(1, 4)), replicas, global_topics=everywhere)
    for _ in range(4):
        for _ in range(4):
            made = verified(s)
            for topic in everywhere:
                for active, standby in copies(made, topic).values():
                    assert sorted(active + standby) == list(range(topics[topic]))
            for topic in topics.keys() - set(everywhere):
                wanted = min(replicas, len(s.members) - 1)
                followed = Counter(tp for held in made.standby.values() for tp in held if tp.topic == topic)
                assert made.followup or set(followed.values()) <= {wanted}
            assert bool(made.warnings) == (replicas >= len(s.members) and set(everywhere) != set(topics))
            if not made.followup:
                break
            s = later(s, made)
        assert not made.followup
        again = assign_partitions(later(s, made))
        assert (again.assignment, again.standby, again.moved) == (made.assignment, made.standby, 0)
        assert level(
            [len({(topics[tp.topic], tp.partition) for tp in held}) for held in made.assignment.values()]
        )
        gone = sorted(s.members)[len(s.members) - data.draw(st.integers(0, len(s.members) - 1)) :]
        s = later(s, made, gone, data.draw(st.lists(st.sampled_from(["y1", "y2"]), max_size=1)))


@pytest.mark.parametrize(("b", "c"), ["bc", "cb"])
def test_who_follows_a_global_topic_has_no_copy_of_the_others_in_its_group(b, c):
    # b follows all of codes; only c has a copy of orders, so c takes over.
    members = {
        b: Member(["orders", "codes"], standby=[("codes", 0)]),
        c: Member(["orders", "codes"], standby=[("codes", 0), ("orders", 0)]),
    }
    made = verified(Subscriptions({"orders": 1, "codes": 1}, members, replicas=1, global_topics=["codes"]))
    assert len(made.assignment[c]) == 2


def test_a_global_topic_of_its_own_count_goes_to_who_has_it_already():
    has = [("codes", p) for p in range(3)]
    members = {n: Member(["codes", "orders"], standby=has if n != "a" else ()) for n in "abc"}
    made = verified(Subscriptions({"codes": 3, "orders": 4}, members, global_topics=["codes"]))
    assert [tuple(map(len, held)) for held in copies(made, "codes").values()] == [(1, 2)] * 3
    assert level([len(held) for held in made.assignment.values()])
    two = verified(Subscriptions({"codes": 2}, members, global_topics=["codes"]))
    assert set(home_of(two.assignment).values()) == {"b", "c"}


def test_in_two_phases_everybody_has_a_copy_while_the_owner_lets_go():
    members = {"a": Member(["codes"], [("codes", 0), ("codes", 1)]), "b": Member(["codes"])}
    made = verified(Subscriptions({"codes": 2}, members, cooperative=True, global_topics=["codes"]))
    (tp,) = made.withheld["b"]
    assert tp in made.standby["a"] and tp in made.standby["b"]


def test_who_does_not_subscribe_to_a_global_topic_is_named():
    s = replace(
        group({"codes": 2, "orders": 2}, a="codes orders", b="orders", c="codes orders"),
        global_topics=["codes"],
    )
    made = verified(s)
    assert copies(made, "codes")["b"] == ([], [])
    assert made.warnings == (
        "1 of 3 members do not subscribe to the global topic codes and have no copy of it: b; subscribe them",
    )
