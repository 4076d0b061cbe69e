"""What Faust's own tests and code say of its assignor: global tables, who routes, who leads, coming and going."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import hypothesis.strategies as st
from hypothesis import given, settings

from taskplace.groups.partitions import (
    Member,
    PartitionAssignment,
    Subscriptions,
    TopicPartition,
    assign_partitions,
)
from tests.support.assignments import verify
from tests.support.groups import group, home_of

THREE = {"bar": 0, "baz": 0, "foo": 0}


def workers(
    topics: Mapping[str, int], count: int, replicas: int, global_topics: tuple[str, ...] = ()
) -> Subscriptions:
    members = {f"w{k:02}": Member(tuple(topics)) for k in range(count)}
    return Subscriptions(
        topics, members, assignor="copartitioned", replicas=replicas, global_topics=global_topics
    )


def next_question(s: Subscriptions, made: PartitionAssignment, gone: int = 0, come: int = 0) -> Subscriptions:
    """Return what is asked when the last members are gone and others have come."""
    now = s.owning(made.assignment, standby=made.standby)
    names = list(now.members)[: len(now.members) - gone]
    members = {name: now.members[name] for name in names}
    members |= {f"x{k:02}": Member(tuple(s.topics)) for k in range(come)}
    return Subscriptions(
        s.topics, members, assignor="copartitioned", replicas=s.replicas, global_topics=s.global_topics
    )


def valid(s: Subscriptions, made: PartitionAssignment) -> None:
    """Every partition is active once and followed `replicas` times; all topics of the group alike."""
    assert verify(s, made) == []
    for held, times in ((made.assignment, 1), (made.standby, min(s.replicas, len(s.members) - 1))):
        found = Counter(tp for pairs in held.values() for tp in pairs)
        assert found == {TopicPartition(t, p): times for t, n in s.topics.items() for p in range(n) if times}
        for pairs in held.values():
            of_topic = {t: {tp.partition for tp in pairs if tp.topic == t} for t in s.topics}
            assert len(set(map(frozenset, of_topic.values()))) == 1


# Faust's own tests of its assignor, tests/meticulous: fresh, members added, members removed, and that it ends.

partitions = st.integers(0, 24)
clients = st.integers(1, 12)


@settings(max_examples=60, deadline=None)
@given(partitions, clients, st.integers(0, 3))
def test_a_fresh_assignment_is_valid(count: int, members: int, replicas: int) -> None:
    s = workers(dict.fromkeys(THREE, count), members, min(replicas, members - 1))
    valid(s, assign_partitions(s))


@settings(max_examples=60, deadline=None)
@given(partitions, clients, st.integers(0, 3), st.integers(1, 6))
def test_when_members_are_added_nobody_else_gets_anything_and_all_are_busy(
    count: int, members: int, replicas: int, more: int
) -> None:
    s = workers(dict.fromkeys(THREE, count), members, min(replicas, members - 1))
    made = assign_partitions(s)
    s = next_question(s, made, come=more)
    after = assign_partitions(s)
    valid(s, after)
    for name, held in made.assignment.items():
        assert set(after.assignment[name]) <= set(held)
    # Faust asks for it only without standbys; here it holds in any case, and at once.
    assert count < members + more or all(after.assignment.values())


@settings(max_examples=60, deadline=None)
@given(partitions, st.integers(2, 12), st.integers(0, 3), st.data())
def test_when_members_are_removed_nothing_goes_to_a_member_without_a_copy_but_what_they_had(
    count: int, members: int, replicas: int, data: st.DataObject
) -> None:
    gone = data.draw(st.integers(1, members - 1))
    s = workers(dict.fromkeys(THREE, count), members, min(replicas, members - gone - 1))
    before = assign_partitions(s)
    s = next_question(s, before, gone=gone)
    lost = {tp for name, held in before.assignment.items() if name not in s.members for tp in held}
    for _ in range(2):
        after = assign_partitions(s)
        assert verify(s, after) == []
        for name, held in after.assignment.items():
            # Faust moves what the removed had, and nothing else. Here one that stays may hand a partition over to
            # a standby of it, so that a lost one can go to a standby too.
            assert set(held) <= {*before.assignment[name], *before.standby[name]} | lost
        if not after.followup:
            valid(s, after)
            break
        before, s = after, next_question(s, after)
    assert not after.followup
    assert count < members - gone or all(after.assignment.values())


# What its code does, and its tests leave out.


def test_a_lost_members_partitions_go_to_their_standbys_at_once_whatever_the_share() -> None:
    # Faust promotes a standby while its worker has less than ceil(partitions / workers), and no further.
    s = Subscriptions(
        {"t": 4},
        {
            "a": Member(["t"], [("t", 0), ("t", 1)], standby=[("t", 2), ("t", 3)]),
            "b": Member(["t"]),
        },
        assignor="copartitioned",
        replicas=1,
    )
    made = assign_partitions(s)
    assert len(made.assignment["a"]) == 4 and made.followup
    last = assign_partitions(s.owning(made.assignment, standby=made.standby))
    assert {n: len(held) for n, held in last.assignment.items()} == {"a": 2, "b": 2} and not last.followup


def test_of_two_claims_the_newer_one_counts_and_equal_ones_do_not() -> None:
    # Faust takes the partition from whichever it comes to first until one claim is left.
    def kept_by(a: int, b: int) -> str | None:
        members = {n: Member(["t"], [("t", 0)], g) for n, g in (("a", a), ("b", b))}
        made = assign_partitions(Subscriptions({"t": 2}, members, assignor="copartitioned"))
        return home_of(made.assignment)["t", 0] if made.preserved else None  # type: ignore[index]

    assert (kept_by(5, 4), kept_by(4, 5), kept_by(4, 4)) == ("a", "b", None)


def test_topics_group_by_count_and_by_the_set_of_their_subscribers() -> None:
    s = group({"a": 4, "b": 4, "c": 4, "d": 2, "e": 4}, x="a b c d", y="c b a d", z="c d e")
    home = home_of(assign_partitions(s, "copartitioned").assignment)
    together = [home["a", p] for p in range(4)]  # type: ignore[index]
    assert [home["b", p] for p in range(4)] == together  # type: ignore[index]
    assert set(together) == {"x", "y"}  # nobody gets a topic it does not subscribe to
    assert {home["e", p] for p in range(4)} == {"z"}  # type: ignore[index]
    assert {home["c", p] for p in range(4)} == {"x", "y", "z"}  # type: ignore[index]


def test_the_leader_is_who_has_the_only_partition_of_a_topic() -> None:
    topics = {"__leader": 1, "orders": 5}
    s = workers(topics, 3, 1)
    made = assign_partitions(s)
    leader = made.of("__leader", 0)
    s = next_question(s, made, come=2)
    more = assign_partitions(s)
    assert more.of("__leader", 0).active == leader.active
    members = {
        n: m for n, m in s.owning(more.assignment, standby=more.standby).members.items() if n != leader.active
    }
    after = assign_partitions(Subscriptions(topics, members, assignor="copartitioned", replicas=1))
    assert after.of("__leader", 0).active in more.of("__leader", 0).standby


# Global tables.


def copies(made: PartitionAssignment, topic: str) -> dict[str, tuple[list[int], list[int]]]:
    """Return what each member has of a topic: active, standby."""
    return {
        name: tuple(
            [tp.partition for tp in held.get(name, ()) if tp.topic == topic]
            for held in (made.assignment, made.standby)
        )  # type: ignore[misc]
        for name in made.assignment
    }


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["orders", "users", "codes", "rates"]), st.integers(1, 6), min_size=1),
    st.sets(st.sampled_from(["orders", "users", "codes", "rates"])),
    st.integers(0, 2),
    st.data(),
)
def test_every_worker_holds_all_of_a_global_topic_whoever_comes_and_goes(
    topics: dict[str, int], chosen: set[str], replicas: int, data: st.DataObject
) -> None:
    everywhere = tuple(sorted(chosen & topics.keys()))
    s = workers(topics, data.draw(st.integers(1, 4)), replicas, everywhere)
    for _ in range(4):
        for _ in range(4):
            made = assign_partitions(s)
            assert verify(s, made) == []
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
            s = next_question(s, made)
        assert not made.followup
        again = assign_partitions(next_question(s, made))
        assert (again.assignment, again.standby, again.moved) == (made.assignment, made.standby, 0)
        tasks = [len({(topics[tp.topic], tp.partition) for tp in held}) for held in made.assignment.values()]
        assert max(tasks) - min(tasks) <= 1
        gone = data.draw(st.integers(0, len(s.members) - 1))
        s = next_question(s, made, gone=gone)
        if data.draw(st.booleans()):
            name = f"y{data.draw(st.integers(0, 99)):02}"
            members = {**s.members, name: Member(tuple(topics))}
            s = Subscriptions(
                topics, members, assignor="copartitioned", replicas=replicas, global_topics=everywhere
            )


def test_who_follows_a_global_topic_has_no_copy_of_the_others_in_its_group() -> None:
    # b follows all of codes; only c has a copy of orders, so c takes over.
    members = {
        "b": Member(["orders", "codes"], standby=[("codes", 0)]),
        "c": Member(["orders", "codes"], standby=[("codes", 0), ("orders", 0)]),
    }
    topics = {"orders": 1, "codes": 1}
    for names in ({"b": "b", "c": "c"}, {"b": "c", "c": "b"}):
        told = {names[n]: m for n, m in members.items()}
        s = Subscriptions(topics, told, assignor="copartitioned", replicas=1, global_topics=["codes"])
        home = home_of(assign_partitions(s).assignment)
        assert set(home.values()) == {names["c"]}


def test_a_global_topic_of_its_own_count_goes_to_who_has_it_already() -> None:
    has = [("codes", p) for p in range(3)]
    s = Subscriptions(
        {"codes": 3, "orders": 4},
        {
            "a": Member(["codes", "orders"]),
            "b": Member(["codes", "orders"], standby=has),
            "c": Member(["codes", "orders"], standby=has),
        },
        assignor="copartitioned",
        global_topics=["codes"],
    )
    made = assign_partitions(s)
    sizes = {n: (len(x), len(y)) for n, (x, y) in copies(made, "codes").items()}
    assert sizes == {"a": (1, 2), "b": (1, 2), "c": (1, 2)}
    loads = [len(held) for held in made.assignment.values()]
    assert max(loads) - min(loads) <= 1
    two = Subscriptions({"codes": 2}, s.members, global_topics=["codes"])
    home = home_of(assign_partitions(two, "copartitioned").assignment)
    assert set(home.values()) == {"b", "c"}


def test_in_two_phases_everybody_has_a_copy_while_the_owner_lets_go() -> None:
    s = Subscriptions(
        {"codes": 2},
        {"a": Member(["codes"], [("codes", 0), ("codes", 1)]), "b": Member(["codes"])},
        assignor="copartitioned",
        cooperative=True,
        global_topics=["codes"],
    )
    made = assign_partitions(s)
    assert verify(s, made) == [] and len(made.withheld["b"]) == 1
    (tp,) = made.withheld["b"]
    assert tp in made.standby["a"] and tp in made.standby["b"]


def test_who_does_not_subscribe_to_a_global_topic_is_named() -> None:
    s = Subscriptions(
        {"codes": 2, "orders": 2},
        {"a": Member(["codes", "orders"]), "b": Member(["orders"]), "c": Member(["orders", "codes"])},
        assignor="copartitioned",
        global_topics=["codes"],
    )
    made = assign_partitions(s)
    assert verify(s, made) == [] and copies(made, "codes")["b"] == ([], [])
    assert made.warnings == (
        "1 of 3 members do not subscribe to the global topic codes and have no copy of it: b; subscribe them",
    )
