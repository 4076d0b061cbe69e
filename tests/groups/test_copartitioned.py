"""Faust's assignor: together, balanced, a lost member's work to the holders of its standbys, spread over many."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from taskplace.groups import copartitioned as solver
from taskplace.groups.partitions import (
    Member,
    PartitionAssignment,
    Subscriptions,
    TopicPartition,
    assign_partitions,
)
from tests.support.assignments import verify
from tests.support.groups import home_of
from tests.support.groups import together as coassign

Tasks = dict[str, Counter[int]]


def together(s: Subscriptions, made: PartitionAssignment) -> None:
    """Equal partition numbers of equal topics are on one member, and so are their copies."""
    home = home_of(made.assignment)
    copies = {(name, tp) for name, held in made.standby.items() for tp in held}
    for (one, a), (two, b) in ((x, y) for x in s.topics.items() for y in s.topics.items()):
        if a == b:
            for p in range(a):
                assert home[TopicPartition(one, p)] == home[TopicPartition(two, p)]
                for name in s.members:
                    assert ((name, TopicPartition(one, p)) in copies) == (
                        (name, TopicPartition(two, p)) in copies
                    )


def per_count(s: Subscriptions, held: Mapping[str, tuple[TopicPartition, ...]]) -> dict[int, list[int]]:
    """Return, for each count of partitions, how many tasks each member has."""
    return {
        n: [len({tp.partition for tp in pairs if s.topics[tp.topic] == n}) for pairs in held.values()]
        for n in sorted(set(s.topics.values()))
    }


def level(values: list[int]) -> bool:
    return max(values) - min(values) <= 1


def lose(s: Subscriptions, made: PartitionAssignment, *names: str) -> Subscriptions:
    now = s.owning(made.assignment, standby=made.standby)
    members = {n: m for n, m in now.members.items() if n not in names}
    return Subscriptions(s.topics, members, assignor="copartitioned", replicas=s.replicas, seed=s.seed)


def fleet(topics: Mapping[str, int], count: int, replicas: int = 1, seed: int = 0) -> Subscriptions:
    members = {f"m{k:02}": Member(tuple(topics)) for k in range(count)}
    return Subscriptions(topics, members, assignor="copartitioned", replicas=replicas, seed=seed)


TOPICS = {"orders": 60, "users": 60, "totals": 60, "clicks": 12}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("count", [4, 7, 20])
def test_every_lost_member_is_taken_over_by_many_holders_of_its_standbys(count: int, seed: int) -> None:
    s = fleet(TOPICS, count, seed=seed)
    made = assign_partitions(s)
    assert verify(s, made) == [] and made.warnings == ()
    together(s, made)
    for lost in s.members:
        left = lose(s, made, lost)
        after = assign_partitions(left)
        assert verify(left, after) == []
        together(left, after)
        home = home_of(after.assignment)
        heirs = Counter()
        for n in sorted(set(TOPICS.values())):
            topic = next(t for t in TOPICS if TOPICS[t] == n)
            for tp in made.assignment[lost]:
                if tp.topic == topic:
                    assert tp in made.standby[home[tp]]
                    heirs[home[tp]] += 1
        # Spread: nobody takes more than twice its share of the work, rounded up.
        assert max(heirs.values()) <= 2 * -(-heirs.total() // (count - 1)), (lost, heirs)
        # Balance is met now, or after the standbys that are being made.
        at_rest = left.owning(after.assignment, standby=after.standby)
        last = assign_partitions(at_rest) if after.followup else after
        assert not last.followup
        assert all(level(sizes) for sizes in per_count(left, last.assignment).values())


def test_a_member_that_comes_back_gets_its_share_and_no_other_moves() -> None:
    s = fleet(TOPICS, 6)
    made = assign_partitions(s)
    left = lose(s, made, "m03")
    without = assign_partitions(left)
    members = {
        **left.owning(without.assignment, standby=without.standby).members,
        "m03": Member(tuple(TOPICS)),
    }
    back = Subscriptions(TOPICS, members, assignor="copartitioned", replicas=1)
    again = assign_partitions(back)
    assert verify(back, again) == []
    sizes = per_count(back, again.assignment)
    assert sizes == {12: [2] * 6, 60: [10] * 6}
    before = home_of(without.assignment)
    changed = {tp for tp, name in home_of(again.assignment).items() if before[tp] != name}
    assert changed == set(again.assignment["m03"])
    assert again.moved == len(changed) == 3 * 10 + 2


def test_another_seed_spreads_differently_and_the_same_seed_alike() -> None:
    first, second, other = (coassign(fleet(TOPICS, 8), 1, seed) for seed in (1, 1, 2))
    assert first == second
    assert first.standby != other.standby


def rollout(replicas: int, *stages: str) -> list[PartitionAssignment]:
    """Return the assignments of each stage: u comes to more and more of the members a, b, c; o is everybody's."""
    topics, made = {"o": 6, "u": 6}, []
    held = PartitionAssignment({}, "copartitioned")
    for stage in stages:
        members = {
            n: Member(
                ("o", "u") if n in stage else ("o",),
                held.assignment.get(n, ()),
                standby=held.standby.get(n, ()),
            )
            for n in "abc"
        }
        s = Subscriptions(topics, members)
        held = coassign(s, replicas)
        assert verify(s, held) == []
        made.append(held)
    return made


@pytest.mark.parametrize("replicas", [0, 1])
def test_a_topic_that_comes_to_one_member_after_the_other_moves_no_more_than_it_must(replicas: int) -> None:
    for stages, moves in ((("", "a", "abc"), [0, 0, 4]), (("", "a", "ab", "abc"), [0, 0, 3, 2])):
        made = rollout(replicas, *stages)
        assert [m.moved for m in made] == moves, stages
        homes = [home_of(m.assignment) for m in made]
        for home in homes:
            assert [home[TopicPartition("o", p)] for p in range(6)] == [
                homes[0][TopicPartition("o", p)] for p in range(6)
            ]
        last = homes[-1]
        assert all(last[TopicPartition("o", p)] == last[TopicPartition("u", p)] for p in range(6))
        if len(stages) == 4:  # in between, u is with o wherever both may be
            there = [homes[2][TopicPartition("o", p)] for p in range(6)]
            assert all(homes[2][TopicPartition("u", p)] == n for p, n in enumerate(there) if n != "c")


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.integers(1, 3), st.data())
def test_split_groups_move_the_fewest_partitions_that_balance_allows(
    size: int, members: int, data: st.DataObject
) -> None:
    names, topics = "abc"[:members], ("t", "u")
    draw = st.sampled_from([*names, ""])
    owner = {(t, p): data.draw(draw) for t in topics for p in range(size)}
    s = Subscriptions(
        dict.fromkeys(topics, size),
        {n: Member(topics, [tp for tp, who in owner.items() if who == n]) for n in names},
    )
    made = coassign(s, 0)
    assert verify(s, made) == []
    fewest = min(
        sum(who not in ("", at[p]) for (_, p), who in owner.items())
        for at in itertools.product(names, repeat=size)
        if level([at.count(n) for n in names])
    )
    assert made.moved == fewest


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(0, 1))
def test_different_subscribers_stay_together_and_at_rest(data: st.DataObject, replicas: int) -> None:
    topics = data.draw(st.dictionaries(st.sampled_from("tuvw"), st.integers(1, 4), min_size=1))
    heard = {n: data.draw(st.sets(st.sampled_from(sorted(topics)), min_size=1)) for n in "abcd"}
    owned: dict[str, list[tuple[str, int]]] = {n: [] for n in heard}
    for t, count in topics.items():
        for p in range(count):
            who = data.draw(st.sampled_from([*heard, ""]))
            if who:
                owned[who].append((t, p))
    s = Subscriptions(topics, {n: Member(sorted(heard[n]), owned[n]) for n in heard})
    for _ in range(4):
        made = coassign(s, replicas)
        assert verify(s, made) == []
        s = s.owning(made.assignment, standby=made.standby)
        if not made.followup:
            break
    again = coassign(s, replicas)
    assert (again.assignment, again.moved, again.followup) == (made.assignment, 0, False)


class Workers(RuleBasedStateMachine):
    """Workers come, go and fail, topics appear; after every assignment all that is promised holds."""

    @initialize(
        topics=st.dictionaries(st.sampled_from("abcde"), st.integers(1, 6), min_size=1),
        replicas=st.integers(0, 2),
    )
    def begin(self, topics: dict[str, int], replicas: int) -> None:
        self.topics, self.replicas, self.made_up = topics, replicas, 1
        self.names = ["w0"]
        self.last = PartitionAssignment({}, "copartitioned")
        self.assign()

    def question(self) -> Subscriptions:
        return Subscriptions(
            self.topics,
            {
                n: Member(
                    tuple(self.topics), self.last.assignment.get(n, ()), standby=self.last.standby.get(n, ())
                )
                for n in self.names
            },
            assignor="copartitioned",
            replicas=self.replicas,
        )

    def assign(self) -> None:
        before, s = self.last, self.question()
        self.last = assign_partitions(s)
        assert verify(s, self.last) == []
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
    def come(self) -> None:
        self.names.append(f"w{self.made_up}")
        self.made_up += 1
        self.assign()

    @precondition(lambda self: len(self.names) > 1)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        self.names.remove(data.draw(st.sampled_from(self.names)))
        self.assign()

    @rule(name=st.sampled_from("abcde"), count=st.integers(1, 6))
    def create(self, name: str, count: int) -> None:
        self.topics = {name: count, **self.topics}
        self.assign()

    @rule()
    def come_to_rest(self) -> None:
        for _ in range(3):
            if not self.last.followup:
                break
            self.assign()
        assert not self.last.followup
        assert all(level(sizes) for sizes in per_count(self.question(), self.last.assignment).values())

    @invariant()
    def at_rest_nothing_changes(self) -> None:
        if hasattr(self, "last") and not self.last.followup:
            again = assign_partitions(self.question())
            assert (again.assignment, again.standby, again.moved) == (
                self.last.assignment,
                self.last.standby,
                0,
            )


TestWorkers = Workers.TestCase
TestWorkers.settings = settings(max_examples=10, stateful_step_count=12, deadline=None)


@pytest.mark.parametrize("topics", [1, 2, 9])
def test_a_home_of_topics_placed_already_outweighs_all_owners_together(topics: int) -> None:
    owner, followed = {0: np.zeros((topics, 1), np.int64)}, {0: np.zeros((2, 1), bool)}
    assert solver.settle(owner, followed, {0: [np.array([1])]}, 2)[0].tolist() == [1]
    assert solver.settle(owner, followed, {0: [np.array([-1])]}, 2)[0].tolist() == [0]


def test_where_costs_have_no_room_for_all_levels_the_upper_ones_still_hold() -> None:
    """So many topics, numbers and members that the cost of the last level, the spread of topics, is left out."""
    topics, size, half = 300, 2_000, 1_000
    own = np.arange(size)
    placed = np.where(
        own < half, (own + 1) % half, -1
    )  # one half has another home, with topics placed already
    owner, followed = {0: np.tile(own, (topics, 1))}, {0: np.zeros((size, size), bool)}
    home = solver.settle(owner, followed, {0: [placed]}, size)
    assert home[0].tolist() == np.where(placed >= 0, placed, own).tolist()
