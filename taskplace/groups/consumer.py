"""The embedded protocol of consumers: turns subscriptions into partitions, in both modes of the proposal.

EVERY: each member computes the whole assignment from the full list, and takes its own part. All members must see the
same topics. So each member compares the metadata hashes of all members with its own view. If one differs, it takes no
partitions, fetches the topics again, and joins again. Two members that accept an outcome have the same view of all
subscribed topics, so they compute the same assignment, and no partition has two owners. If the disagreement lasts, some
members give up: among members with the same subscription, those whose hash is not the most frequent. All members
determine these from the same list. The others continue, if necessary without them. A member with unreadable metadata is
left out by all others.

SINGLE: the leader computes the assignment for all members from its own view. Members need not agree on topics or a
strategy. A leader answers metadata of an unknown version with the newest version that it knows.

Hashed subscriptions ("Dropping Topic Lists", mode EVERY): members send a hash of their topics instead of the list. The
largest sub-group with equal hashes gets the partitions. The other members are dormant until the next rebalance.

Source: the two sections "Consumer Embedded Protocol" and "Dropping Topic Lists" in the client-side assignment
proposal.
"""

from __future__ import annotations

import functools
import logging
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence

from msgspec.structs import replace

from taskplace.errors import InputError
from taskplace.groups.member import TryAgain
from taskplace.groups.messages import Code, GroupFailed, Joined, Mode, Offer, ProtocolError, UnknownVersion
from taskplace.groups.metadata import (
    NEWEST,
    Assignment,
    Held,
    Subscription,
    Topics,
    compiled,
    subscription_hash,
)
from taskplace.groups.partitions import PartitionAssignment
from taskplace.groups.strategies import PartitionAssigner, RoundRobin
from taskplace.groups.subscriptions import NO_GENERATION, Member, by_topic
from taskplace.logs import RepeatedWarnings
from topology.node import TopicPartition

log = logging.getLogger(__name__)

HASHED = "+hashed"  # the suffix of a separate protocol: members with lists and with hashes cannot share one
Said = Mapping[str, Subscription]  # by member
DEFAULT = "default"  # the only protocol of the mode SINGLE, where the leader chooses the strategy


class ConsumerProtocol:
    """A consumer of topics, for a `Member`.

    It subscribes to `topics`, or to all topics whose whole names match `pattern` (`taskplace.groups.metadata`).

    - `fetch`: returns the current view of the topics. It is called before the first join, by a leader before it
      assigns, on a disagreement, and by `refresh` (which `LocalMember` calls every `metadata.max.age.ms`). If it
      raises, the member tries again after a back-off, and a leader uses its last view
    - `assigners`: the strategies, in order of preference. A leader in the mode SINGLE uses the first one
    - `hashed`: send a hash of the subscription instead of the list

    After an assignment, `standby` has the partitions to follow, and `followup` is true if the member should join again
    when these have caught up (strategies with standbys). `dormant` is true if another sub-group got all partitions.

    Errors: `InputError` for contradicting arguments and a bad pattern.

    >>> view = Topics({"orders": 4})
    >>> a, b = (ConsumerProtocol(["orders"], fetch=lambda: view) for _ in "ab")
    >>> members = {name: p.offers()[0].metadata for name, p in (("a", a), ("b", b))}
    >>> outcome = Joined("g", "m1", 1, generation=1, protocol="round-robin", name="a", members=members)
    >>> [p.partition for p in a.accept(outcome)]
    [0, 2]
    """

    protocol_type = "consumer"
    newest = NEWEST
    """The newest metadata version that it reads and writes."""

    def __init__(
        self,
        topics: Sequence[str] = (),
        *,
        fetch: Callable[[], Topics],
        pattern: str = "",
        assigners: Sequence[PartitionAssigner] = (),
        mode: Mode = Mode.EVERY,
        rack: str = "",
        hashed: bool = False,
        compress: bool = True,
    ) -> None:
        self.topics = tuple(sorted(set(topics)))
        if bool(topics) == bool(pattern):
            both = {"topics": list(topics), "pattern": pattern}
            raise InputError("subscription", found=both, expected="either topics or a pattern")
        if pattern:
            compiled(pattern)
        if hashed and mode is not Mode.EVERY:
            expected = "the mode EVERY, because a leader needs the lists"
            raise InputError("hashed", found=mode.name, expected=expected)
        self.mode = mode
        self.pattern = pattern
        self.assigners = tuple(assigners) or (RoundRobin(),)
        self.rack = rack
        self.dormant = False
        self.standby: tuple[TopicPartition, ...] = ()
        self.followup = False
        self._fetch = fetch
        self._repeated = RepeatedWarnings()
        self._view: Topics | None = None
        self._hashed = hashed
        self._compress = compress
        self._readable_version = NEWEST  # the newest version that the leader reads
        self._owned: tuple[TopicPartition, ...] = ()
        self._generation = 0

    @property
    def view(self) -> Topics:
        """This member's view of the topics."""
        if self._view is None:
            self._view = self._look()
        return self._view

    def refresh(self) -> bool:
        """Fetch the topics again, and return whether they have changed. If so, the member must join again.

        Errors: `TryAgain` if `fetch` raises; the view is then unchanged.
        """
        before, self._view = self._view, self._look()
        return before != self._view

    def _look(self) -> Topics:
        try:
            seen = self._fetch()
        except Exception as error:  # any error may be temporary
            self._repeated.warn(log, "the topics cannot be fetched", kind=type(error), exc_info=True)
            detail = f"the topics cannot be fetched: {type(error).__name__}: {error}"
            raise TryAgain(detail, code=Code.TOPICS_UNAVAILABLE) from error
        self._repeated.settle(log, "the topics are fetched again")
        return seen

    # ------------------------------------------------------------------------------- what a member asks for

    def offers(self) -> list[Offer]:
        """Return a protocol for each strategy; in the mode SINGLE, the common protocol of all strategies."""
        if self.mode is Mode.SINGLE:
            _ = self.view  # this member may become the leader, which needs a view
            return [Offer(DEFAULT, 0, self._metadata(self.assigners[0]))]
        return [
            Offer(a.name + (HASHED if self._hashed else ""), a.version, self._metadata(a))
            for a in self.assigners
        ]

    def lead(self, outcome: Joined) -> dict[str, bytes]:
        """Return the states of all members, assigned by this member's own strategy from its own view."""
        readable: dict[str, Subscription] = {}
        states: dict[str, bytes] = {}
        for name, data in outcome.members.items():
            try:
                readable[name] = _read(name, data, self.assigners[0], self.newest)
            except UnknownVersion as error:
                log.info("group %s: %s: %s", outcome.group, name, error)
                states[name] = Assignment(newest=self.newest, probe=True).encode()
        try:
            self._view = self._look()  # only the leader's view counts, so it should be current
        except TryAgain:
            if self._view is None:
                raise
            log.warning("group %s: assigning with the topics of the last fetch", outcome.group)
        made = self._assign(self.assigners[0], readable)
        for name, partitions in made.assignment.items():
            new = readable[name].newest >= 2  # the member can read states with standbys
            follows = by_topic(made.standby.get(name, ())) if new else {}
            state = Assignment(by_topic(partitions), self.newest, follows, made.followup and new)
            states[name] = state.encode()
        return states

    def accept(self, outcome: Joined) -> tuple[TopicPartition, ...]:
        """Return this member's partitions, sorted. A dormant member gets none."""
        if self.mode is Mode.EVERY:
            return self._computed(outcome)
        state = Assignment.decode(outcome.state)
        if outcome.state:  # this leader may know a newer version than the last one
            self._readable_version = state.newest
        if state.probe:
            raise TryAgain(f"the leader reads versions up to {state.newest}", at_once=True)
        return self._take(outcome, _pairs(state.partitions), _pairs(state.standby), followup=state.followup)

    def _take(
        self,
        outcome: Joined,
        partitions: tuple[TopicPartition, ...] = (),
        standby: tuple[TopicPartition, ...] = (),
        *,
        followup: bool = False,
    ) -> tuple[TopicPartition, ...]:
        self._owned, self._generation = partitions, outcome.generation
        self.standby, self.followup = standby, followup
        return partitions

    def lost(self) -> None:
        """Do nothing: the next join contains the owned partitions and their generation."""

    # -------------------------------------------------------------------------------------------- mode EVERY

    def _computed(self, outcome: Joined) -> tuple[TopicPartition, ...]:
        name = outcome.protocol.removesuffix(HASHED)
        assigner = next(a for a in self.assigners if (a.name, a.version) == (name, outcome.version))
        subscriptions = self._readable(outcome, assigner)
        self.dormant = False
        if self._hashed:
            awake = largest_matching({member: s.subscription_hash for member, s in subscriptions.items()})
            self.dormant = outcome.name not in awake
            if self.dormant:
                return self._take(outcome)
            subscriptions = {
                member: replace(s, topics=self.topics, pattern=self.pattern)
                for member, s in subscriptions.items()
                if member in awake
            }
        if assigner.needs_agreement:
            self._agree(outcome, assigner, subscriptions)
        return self._mine(outcome, assigner, subscriptions)

    def _mine(
        self, outcome: Joined, assigner: PartitionAssigner, subscriptions: Said
    ) -> tuple[TopicPartition, ...]:
        made, me = self._assign(assigner, subscriptions), outcome.name
        mine, standby = (tuple(sorted(held.get(me, ()))) for held in (made.assignment, made.standby))
        return self._take(outcome, mine, standby, followup=made.followup)

    def _readable(self, outcome: Joined, assigner: PartitionAssigner) -> dict[str, Subscription]:
        """Return the members' subscriptions, without the unreadable ones.

        Readability depends only on the bytes and on the agreed strategy, so all members leave out the same ones.
        """
        subscriptions: dict[str, Subscription] = {}
        for name, data in outcome.members.items():
            try:
                subscriptions[name] = _read(name, data, assigner, NEWEST)
            except ProtocolError as error:
                if name == outcome.name:
                    raise GroupFailed(Code.INVALID_REQUEST, str(error)) from None
                said = "group %s: a member is ignored because its metadata is invalid: %s"
                log.warning(said, outcome.group, error)
        return subscriptions

    def _agree(self, outcome: Joined, assigner: PartitionAssigner, subscriptions: Said) -> None:
        """Raise `TryAgain` unless all members have this member's view of the topics."""
        away = self._differing(assigner, subscriptions)
        if not away:
            return
        me = outcome.name
        steps = {m: ((s.topics, s.pattern), s.metadata_hash) for m, s in subscriptions.items()}
        usual = in_step(steps)
        why = f"{me} and {min(away - {me}, default=me)} see different topics"
        # This member's own metadata may be older than its view: join again with the current view.
        if self.refresh() or me in away or me not in usual:
            raise TryAgain(why, patience=1 if me not in usual else 4)
        kept = {m: subscriptions[m] for m in sorted(usual)}
        apart = self._differing(assigner, kept)
        if not apart:
            # All members that continue do so with the same members and the same view.
            raise TryAgain(why, otherwise=lambda: self._mine(outcome, assigner, kept))
        # The list alone does not show which of several subscriptions has the outdated view. So the larger side of
        # the members that share topics with this member stays.
        own = subscriptions[me]
        near = frozenset(
            m for m, s in kept.items() if own.pattern or s.pattern or set(own.topics) & set(s.topics)
        )
        mine, other = near - apart, near & apart
        if not other:
            mine, other = usual - apart, apart  # no differing member shares topics: compare all members
        sides = sorted((mine, other), key=lambda side: (-len(side), min((steps[m][1], m) for m in side)))
        if me == min(usual, key=lambda m: (steps[m][1], m)):
            raise TryAgain(why, patience=16)  # one member must be the last to give up
        raise TryAgain(why, patience=1 if me not in sides[0] else 4)

    def _differing(self, assigner: PartitionAssigner, subscriptions: Said) -> frozenset[str]:
        """Return the members whose view of their topics differs from this member's."""
        hash_of = functools.cache(functools.partial(self._hash, assigner))
        return frozenset(
            m for m, s in subscriptions.items() if s.metadata_hash != hash_of(s.topics, s.pattern)
        )

    # ------------------------------------------------------------------------------------------------- both

    def _assign(self, assigner: PartitionAssigner, subscriptions: Said) -> PartitionAssignment:
        consumers = {name: self._consumer(said, assigner) for name, said in sorted(subscriptions.items())}
        seen = self.view.of(topic for consumer in consumers.values() for topic in consumer.topics)
        made = assigner.assign(seen, consumers)
        for warning in made.warnings:
            log.warning("%s: %s", assigner.name, warning)
        return made

    def _consumer(self, said: Subscription, assigner: PartitionAssigner) -> Member:
        return Member(
            self.view.matching(said.pattern) if said.pattern else said.topics,
            _pairs(said.owned),
            said.generation if said.owned else NO_GENERATION,
            said.rack or None,
            standby=_pairs(said.standby),
            metadata=assigner.decode(said.strategy),
        )

    def _metadata(self, assigner: PartitionAssigner) -> bytes:
        compared = assigner.needs_agreement and self.mode is Mode.EVERY
        subscription = Subscription(
            topics=() if self._hashed else self.topics,
            pattern="" if self._hashed else self.pattern,
            metadata_hash=self._hash(assigner, self.topics, self.pattern) if compared else b"",
            strategy=assigner.encode(assigner.metadata()),
            rack=self.rack,
            owned=by_topic(self._owned) if assigner.remembers else {},
            generation=self._generation if assigner.remembers else 0,
            subscription_hash=subscription_hash(self.topics, self.pattern) if self._hashed else b"",
            standby=by_topic(self.standby) if assigner.replicates else {},
            newest=self.newest,
        )
        needed = 2 if subscription.standby else 1
        version = min(needed, self.newest, self._readable_version)
        return subscription.encode(version, compress=self._compress)

    def _hash(self, assigner: PartitionAssigner, topics: Sequence[str], pattern: str) -> bytes:
        # With a pattern, a topic that only another member sees may match. So the hash covers all topics.
        return self.view.hash(None if pattern else topics, leaders=assigner.looks_at_leaders)


def _pairs(held: Held) -> tuple[TopicPartition, ...]:
    """Return the partitions of `by_topic`, sorted."""
    return tuple(TopicPartition(topic, p) for topic, numbers in sorted(held.items()) for p in numbers)


def _read(name: str, data: bytes, assigner: PartitionAssigner, known: int) -> Subscription:
    """Return a member's subscription, up to the version `known`, if the strategy can read its part of it.

    Errors: `UnknownVersion`; `ProtocolError` with the member's name, also for any exception of the strategy.
    """
    path = f"members[{name!r}]"
    said = Subscription.decode(data, known=known, path=path)
    try:
        assigner.decode(said.strategy)
    except Exception as error:
        expected = f"metadata of {assigner.name}: {type(error).__name__}: {error}"
        raise ProtocolError(path, found=said.strategy[:40], expected=expected) from error
    return said


def largest_matching(hashes: Mapping[str, bytes]) -> frozenset[str]:
    """Return the members of the largest sub-group with equal subscription hashes. The other members are dormant.

    The smallest hash breaks ties. It depends on the subscription and not on member names, so a restart under another
    name does not change the result.

    >>> sorted(largest_matching({"A": b"foo", "B": b"foo", "C": b"foo,bar"}))
    ['A', 'B']
    >>> sorted(largest_matching({"A": b"foo", "B": b"bar"}))
    ['B']
    """
    if not hashes:
        return frozenset()
    counts = Counter(hashes.values())
    winner = min(counts, key=lambda digest: (-counts[digest], digest))
    return frozenset(name for name, digest in hashes.items() if digest == winner)


def in_step(views: Mapping[str, tuple[Hashable, bytes]]) -> frozenset[str]:
    """Return the members whose metadata hash is the most frequent one among members with the same subscription.

    `views`: member -> (subscription, metadata hash). Hashes of different subscriptions cannot be compared, so each
    subscription is handled separately. The smallest hash breaks ties.

    >>> sorted(in_step({"A": ("t", b"new"), "B": ("t", b"new"), "C": ("t", b"old"), "D": ("u", b"one")}))
    ['A', 'B', 'D']
    """
    by_subscription: dict[Hashable, dict[str, bytes]] = {}
    for name, (subscription, digest) in views.items():
        by_subscription.setdefault(subscription, {})[name] = digest
    return frozenset().union(*(largest_matching(hashes) for hashes in by_subscription.values()))
