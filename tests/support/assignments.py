"""Checks every invariant of a partition assignment. Tests run it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from taskplace.groups.assignment import PartitionAssignment
from taskplace.groups.sticky import balance_score
from taskplace.groups.subscriptions import Pair, Subscriptions
from taskplace.verify import Violation
from topology.node import TopicPartition


def violations(s: Subscriptions, made: PartitionAssignment) -> Iterator[Violation]:
    """Yield every invariant that `made` breaks as an answer to `s`, with an example.

    - complete: each partition with a subscriber is assigned or withheld, exactly once; no other partition is;
    - subscribed: a member gets or follows only partitions of topics that it subscribes to;
    - unassigned: the topics without a subscriber are listed;
    - figures: score, preserved and moved agree with the assignment;
    - balanced (`fair_sticky`, `fair`): KIP-54's definition, no move of one partition improves the score;
    - kept (`sticky_fair`): no owner loses a partition that it may keep;
    - ranges (`range`): of each topic, every subscriber has the floor or the ceiling of its share. Partition p of all
      topics with the same count and subscribers is on one member;
    - apart (if partitions are withheld): a member does not get a partition that it does not own while another claims
      it;
    - standby: a member has no partition twice;
    - everywhere (`copartitioned`): each subscriber of a global topic holds or follows all of its partitions.

    >>> s = Subscriptions.from_dict({"topics": {"t": 1}, "members": {"C0": {"topics": ["t"]}}})
    >>> [str(v) for v in violations(s, PartitionAssignment({"C0": ()}, "fair"))]
    ['complete: t[0] goes to nobody']
    """
    home = {
        tp: name
        for held in (made.assignment, made.withheld)  # a withheld partition counts for its next member
        for name, pairs in held.items()
        for tp in pairs
    }
    owner = _owner(s)
    yield from _complete(s, made)
    yield from _figures(s, made, home, owner)
    if made.assignor in ("fair_sticky", "fair"):
        yield from _balanced(s, home)
    if made.assignor == "sticky_fair":
        yield from _kept(s, home, owner)
    if made.assignor == "range":
        yield from _ranges(s, home)
    if made.assignor == "copartitioned":
        yield from _everywhere(s, made)
    if made.withheld:
        yield from _apart(s, made, owner)
    yield from _standbys(s, made)


def verify(s: Subscriptions, made: PartitionAssignment) -> list[Violation]:
    """Return every invariant that `made` breaks. A correct assignment gives an empty list."""
    return list(violations(s, made))


Home = Mapping[TopicPartition, str]
"""The member of each partition."""


def _owner(s: Subscriptions) -> dict[TopicPartition, str]:
    """Return the owner of each partition that has one."""
    c = s.columns
    return {
        TopicPartition(c.topics[int(c.topic[p])], int(p - c.start[c.topic[p]])): c.members[int(c.owner[p])]
        for p in np.flatnonzero(c.owner >= 0)
    }


def _complete(s: Subscriptions, made: PartitionAssignment) -> Iterator[Violation]:
    subscribed = {t for m in s.members.values() for t in m.topics}
    wanted = {TopicPartition(t, p) for t, n in s.topics.items() if t in subscribed for p in range(n)}
    home: dict[TopicPartition, str] = {}
    for held in (made.assignment, made.withheld):
        for name, pairs in held.items():
            for tp in pairs:
                if tp in home:
                    yield Violation("complete", f"{_text(tp)} goes to {home[tp]} and to {name}")
                if name not in s.members or tp.topic not in s.members[name].topics:
                    yield Violation("subscribed", f"{_text(tp)} goes to {name}")
                home[tp] = name
    for tp in sorted(wanted - home.keys())[:1]:
        yield Violation("complete", f"{_text(tp)} goes to nobody")
    for tp in sorted(home.keys() - wanted)[:1]:
        yield Violation("complete", f"{_text(tp)} goes to {home[tp]}, and should go to nobody")
    unassigned = s.topics.keys() - subscribed
    if set(made.unassigned) != unassigned:
        yield Violation("unassigned", f"listed {made.unassigned}, are {sorted(unassigned)}")


def _figures(s: Subscriptions, made: PartitionAssignment, home: Home, owner: Home) -> Iterator[Violation]:
    score = balance_score(np.array(list(_loads(s, home).values()), np.int64))
    if score != made.balance_score:
        yield Violation("figures", f"the balance score is {score}, not {made.balance_score}")
    stay = sum(home.get(tp) == name for tp, name in owner.items())
    if (made.preserved, made.moved) != (stay, len(owner) - stay):
        stated = f"{made.preserved} preserved and {made.moved} moved"
        yield Violation("figures", f"{stated}, are {stay} and {len(owner) - stay}")


def _loads(s: Subscriptions, home: Home) -> Counter[str]:
    """Return the number of partitions of each member."""
    return Counter({**dict.fromkeys(s.members, 0), **Counter(home.values())})


def _balanced(s: Subscriptions, home: Home) -> Iterator[Violation]:
    loads = _loads(s, home)
    for tp, name in home.items():
        better = [
            m for m, said in s.members.items() if tp.topic in said.topics and loads[m] + 1 < loads[name]
        ]
        if better:
            yield Violation("balanced", f"{_text(tp)} on {name} would be better on {better[0]}")
            return


def _kept(s: Subscriptions, home: Home, owner: Home) -> Iterator[Violation]:
    for tp, name in owner.items():
        if tp.topic in s.members[name].topics and home.get(tp) != name:
            yield Violation("kept", f"{_text(tp)} is taken from {name}")


def _ranges(s: Subscriptions, home: Home) -> Iterator[Violation]:
    alike: dict[tuple[int, tuple[str, ...]], str] = {}  # the first topic of a count and its subscribers
    for topic, count in s.topics.items():
        names = tuple(name for name, m in s.members.items() if topic in m.topics)
        if not names or not count:
            continue
        here = [home.get(TopicPartition(topic, p)) for p in range(count)]
        low, high = count // len(names), -(-count // len(names))
        for name in names:
            count_of = here.count(name)
            if not low <= count_of <= high:
                yield Violation(
                    "ranges", f"{name} has {count_of} of {topic}, and its share is {low} to {high}"
                )
        first = alike.setdefault((count, names), topic)
        apart = [p for p in range(count) if home.get(TopicPartition(first, p)) != here[p]]
        if apart:
            yield Violation("ranges", f"{first}[{apart[0]}] and {topic}[{apart[0]}] are on two members")


def _everywhere(s: Subscriptions, made: PartitionAssignment) -> Iterator[Violation]:
    for name, member in s.members.items():
        held = {*made.assignment.get(name, ()), *made.standby.get(name, ())}
        for topic in s.global_topics:
            if topic in member.topics:
                lacks = {TopicPartition(topic, p) for p in range(s.topics[topic])} - held
                for tp in sorted(lacks)[:1]:
                    yield Violation("everywhere", f"{name} has no copy of {_text(tp)}")


def _apart(s: Subscriptions, made: PartitionAssignment, owner: Home) -> Iterator[Violation]:
    now: dict[Pair, str] = {
        tp: name for name, held in made.assignment.items() for tp in held if owner.get(tp) != name
    }
    for name, member in s.members.items():
        for tp in member.owned:
            if now.get(tp, name) != name:
                yield Violation("apart", f"{tp[0]}[{tp[1]}] goes to {now[tp]}, and {name} still claims it")


def _standbys(s: Subscriptions, made: PartitionAssignment) -> Iterator[Violation]:
    for name, held in made.standby.items():
        if len(set(held)) < len(held) or set(held) & set(made.assignment.get(name, ())):
            yield Violation("standby", f"{name} has a partition twice")
        for tp in held:
            if tp.topic not in s.members[name].topics:
                yield Violation("subscribed", f"{name} follows {_text(tp)}")


def _text(tp: TopicPartition) -> str:
    return f"{tp.topic}[{tp.partition}]"
