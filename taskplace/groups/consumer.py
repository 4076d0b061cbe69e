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

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from taskplace.errors import InputError
from taskplace.groups.member import Round, TryAgain
from taskplace.groups.messages import Code, GroupFailed, Mode, Offer, ProtocolError, UnknownVersion
from taskplace.groups.metadata import (
    NEWEST,
    Assignment,
    Pattern,
    Probe,
    Subscription,
    Topics,
    by_topic,
    pairs,
    subscription_hash,
)
from taskplace.groups.strategies import ConsumerMetadata, PartitionAssigner, RoundRobin, Shares
from taskplace.groups.subscriptions import topic_names
from taskplace.logs import RepeatedWarnings
from taskplace.validation import optional_text
from topology.node import TopicPartition

log = logging.getLogger(__name__)

HASHED = "+hashed"  # the suffix of a separate protocol: members with lists and with hashes cannot share one
DEFAULT = "default"  # the only protocol of the mode SINGLE, where the leader chooses the strategy


class ConsumerProtocol:
    """A consumer of topics, for a `Member`.

    It subscribes to `topics`, or to all topics whose whole names match `pattern` (`taskplace.groups.metadata`).

    - `fetch`: returns the current view of the topics. It is called before the first join, by a leader before it
      assigns, on a disagreement, and by `refresh` (which `LocalMember` calls every `metadata.max.age.ms`). If it
      raises, the member tries again after a back-off, and a leader uses its last view
    - `assigners`: the strategies, in order of preference. A leader in the mode SINGLE uses the first one
    - `hashed`: send a hash of the subscription instead of the list
    - `newest`: the newest metadata version that it reads and writes

    After an assignment, `standby` has the partitions to follow, and `followup` is true if the member should join again
    when these have caught up (strategies with standbys). `dormant` is true if another sub-group got all partitions.

    Errors: `InputError` for contradicting arguments, a bad pattern, and names that are not strings.

    >>> view = Topics({"orders": 4})
    >>> a, b = (ConsumerProtocol(["orders"], fetch=lambda: view) for _ in "ab")
    >>> members = {name: p.offers()[0].metadata for name, p in (("a", a), ("b", b))}
    >>> [p.partition for p in a.accept(Round("g", 1, "a", "round-robin", 0, members=members))]
    [0, 2]
    """

    protocol_type = "consumer"

    def __init__(
        self,
        topics: Sequence[str] = (),
        *,
        fetch: Callable[[], Topics],
        pattern: str = "",
        assigners: Sequence[PartitionAssigner[Any]] = (),
        mode: Mode = Mode.EVERY,
        rack: str = "",
        hashed: bool = False,
        compress: bool = True,
        newest: int = NEWEST,
    ) -> None:
        self.topics = topic_names(topics, "topics")
        if bool(topics) == bool(pattern):
            both = {"topics": list(topics), "pattern": pattern}
            raise InputError("subscription", found=both, expected="either topics or a pattern")
        if pattern:
            Pattern(pattern, "pattern")
        optional_text(rack, "rack")
        if hashed and mode is not Mode.EVERY:
            expected = "the mode EVERY, because a leader needs the lists"
            raise InputError("hashed", found=mode.name, expected=expected)
        if not 0 <= newest <= NEWEST:
            raise InputError("newest", found=newest, expected=f"a metadata version from 0 to {NEWEST}")
        self.mode = mode
        self.pattern = pattern
        self.assigners = tuple(assigners) or (RoundRobin(),)
        self.rack = rack
        self.newest = newest
        self.dormant = False
        self.standby: tuple[TopicPartition, ...] = ()
        self.followup = False
        self._fetch = fetch
        self._repeated = RepeatedWarnings()
        self._view: Topics | None = None
        self._hashed = hashed
        self._compress = compress
        self._version = newest  # the metadata version to write: lower if the leader cannot read the newest
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

        Errors: `TryAgain` if `fetch` raises or returns anything but `Topics`; the view is then unchanged.
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
        if not isinstance(seen, Topics):
            detail = f"fetch returned {type(seen).__name__}, expected Topics"
            raise TryAgain(detail, code=Code.TOPICS_UNAVAILABLE)
        self._repeated.settle(log, "the topics are fetched again")
        return seen

    # ------------------------------------------------------------------------------- what a member asks for

    def offers(self) -> list[Offer]:
        """Return a protocol for each strategy; in the mode SINGLE, the common protocol of all strategies."""
        if self.mode is Mode.SINGLE:
            _ = self.view  # this member may become the leader, which needs a view
            return [Offer(DEFAULT, 0, self._metadata(self.assigners[0], self._version))]
        return [
            Offer(a.name + (HASHED if self._hashed else ""), a.version, self._metadata(a, a.metadata_version))
            for a in self.assigners
        ]

    def lead(self, outcome: Round) -> dict[str, bytes]:
        """Return the states of all members, assigned by this member's own strategy from its own view."""
        readable: dict[str, Subscription] = {}
        states: dict[str, bytes] = {}
        for name, data in outcome.members.items():
            try:
                readable[name] = _read(name, data, self.assigners[0], self.newest)
            except UnknownVersion as error:
                log.info("group %s: %s uses metadata version %d", outcome.group, name, error.version)
                states[name] = Probe(self.newest).encode()
        try:
            self._view = self._look()  # only the leader's view counts, so it should be current
        except TryAgain:
            if self._view is None:
                raise
            log.warning("group %s: assigning with the topics of the last fetch", outcome.group)
        made = self._assign(self.assigners[0], readable)
        for name, partitions in made.active.items():
            new = readable[name].newest >= 2  # the member can read states with standbys
            follows = tuple(sorted(made.standby.get(name, ()))) if new else ()
            states[name] = Assignment(
                tuple(sorted(partitions)), self.newest, follows, made.followup and new
            ).encode()
        return states

    def accept(self, outcome: Round) -> tuple[TopicPartition, ...]:
        """Return this member's partitions, sorted. A dormant member gets none."""
        given = self._given(outcome) if self.mode is Mode.SINGLE else self._computed(outcome)
        return self._take(outcome, given)

    def _take(self, outcome: Round, given: Assignment) -> tuple[TopicPartition, ...]:
        self._owned, self._generation = given.partitions, outcome.generation
        self.standby, self.followup = given.standby, given.followup
        return given.partitions

    def lost(self) -> None:
        """Do nothing: the next join contains the owned partitions and their generation."""

    # ------------------------------------------------------------------------------------------- mode SINGLE

    def _given(self, outcome: Round) -> Assignment:
        state = Assignment.decode(outcome.state)
        if isinstance(state, Probe):
            self._version = min(self._version, state.newest)
            raise TryAgain(f"the leader reads versions up to {state.newest}", at_once=True)
        # The leader may know a newer version than the last leader: the next join uses it.
        self._version = min(self.newest, state.newest) if outcome.state else self._version
        return state

    # -------------------------------------------------------------------------------------------- mode EVERY

    def _computed(self, outcome: Round) -> Assignment:
        name = outcome.protocol.removesuffix(HASHED)
        assigner = next(a for a in self.assigners if (a.name, a.version) == (name, outcome.version))
        subscriptions = self._readable(outcome, assigner)
        self.dormant = False
        if self._hashed:
            awake = largest_matching({member: s.subscription_hash for member, s in subscriptions.items()})
            self.dormant = outcome.name not in awake
            if self.dormant:
                return Assignment()
            subscriptions = {
                member: replace(s, topics=self.topics, pattern=self.pattern)
                for member, s in subscriptions.items()
                if member in awake
            }
        if assigner.needs_agreement:
            self._agree(outcome, assigner, subscriptions)
        return self._mine(outcome.name, assigner, subscriptions)

    def _mine(
        self, me: str, assigner: PartitionAssigner[Any], subscriptions: Mapping[str, Subscription]
    ) -> Assignment:
        made = self._assign(assigner, subscriptions, only=me)
        standby = tuple(sorted(made.standby.get(me, ())))
        return Assignment(tuple(sorted(made.active[me])), standby=standby, followup=made.followup)

    def _readable(self, outcome: Round, assigner: PartitionAssigner[Any]) -> dict[str, Subscription]:
        """Return the members' subscriptions, without the unreadable ones.

        Readability depends only on the bytes and on the agreed strategy, so all members leave out the same ones.
        """
        subscriptions: dict[str, Subscription] = {}
        for name, data in outcome.members.items():
            try:
                subscriptions[name] = _read(name, data, assigner, assigner.metadata_version)
            except ProtocolError as error:
                bad = error.of(name) if isinstance(error, UnknownVersion) else error
                if name == outcome.name:
                    raise GroupFailed(Code.INVALID_REQUEST, str(bad)) from None
                log.warning(
                    "group %s: a member is ignored because its metadata is invalid: %s", outcome.group, bad
                )
        return subscriptions

    def _agree(
        self, outcome: Round, assigner: PartitionAssigner[Any], subscriptions: Mapping[str, Subscription]
    ) -> None:
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
            raise TryAgain(why, otherwise=lambda: self._take(outcome, self._mine(me, assigner, kept)))
        # The list alone does not show which of several subscriptions has the outdated view. So the larger side of
        # the members that share topics with this member stays.
        near = frozenset(m for m in usual if _meet(subscriptions[me], subscriptions[m]))
        mine, other = near - apart, near & apart
        if not other:
            mine, other = usual - apart, apart  # no differing member shares topics: compare all members
        sides = sorted((mine, other), key=lambda side: (-len(side), min((steps[m][1], m) for m in side)))
        if me == min(usual, key=lambda m: (steps[m][1], m)):
            raise TryAgain(why, patience=16)  # one member must be the last to give up
        raise TryAgain(why, patience=1 if me not in sides[0] else 4)

    def _differing(
        self, assigner: PartitionAssigner[Any], subscriptions: Mapping[str, Subscription]
    ) -> frozenset[str]:
        """Return the members whose view of their topics differs from this member's."""
        expected: dict[tuple[tuple[str, ...], str], bytes] = {}
        away: set[str] = set()
        for name, other in subscriptions.items():
            key = (other.topics, other.pattern)
            if key not in expected:
                expected[key] = self._hash(assigner, *key)
            if other.metadata_hash != expected[key]:
                away.add(name)
        return frozenset(away)

    # ------------------------------------------------------------------------------------------------- both

    def _assign(
        self,
        assigner: PartitionAssigner[Any],
        subscriptions: Mapping[str, Subscription],
        only: str | None = None,
    ) -> Shares:
        consumers = [self._consumer(name, subscriptions[name], assigner) for name in sorted(subscriptions)]
        subscribed = {topic for consumer in consumers for topic in consumer.topics}
        seen = {t: self.view.partitions[t] for t in sorted(subscribed) if t in self.view.partitions}
        assigner.see(self.view)
        if only is not None and not assigner.replicates:
            return Shares({only: assigner.assign(only, seen, consumers)})
        made = assigner.shares(seen, consumers)
        for warning in made.warnings:
            log.warning("%s: %s", assigner.name, warning)
        return made

    def _consumer(
        self, name: str, said: Subscription, assigner: PartitionAssigner[Any]
    ) -> ConsumerMetadata[Any]:
        return ConsumerMetadata(
            name,
            tuple(self.view.matching(said.pattern)) if said.pattern else said.topics,
            assigner.decode(said.strategy),
            said.rack,
            pairs(said.owned),
            said.generation,
            pairs(said.standby),
        )

    def _metadata(self, assigner: PartitionAssigner[Any], version: int) -> bytes:
        hashed = subscription_hash(self.topics, self.pattern) if self._hashed else b""
        compared = assigner.needs_agreement and self.mode is Mode.EVERY
        subscription = Subscription(
            topics=() if self._hashed else self.topics,
            pattern="" if self._hashed else self.pattern,
            metadata_hash=self._hash(assigner, self.topics, self.pattern) if compared else b"",
            strategy=assigner.encode(assigner.metadata()),
            rack=self.rack,
            owned=by_topic(self._owned) if assigner.remembers else {},
            generation=self._generation if assigner.remembers else 0,
            subscription_hash=hashed,
            standby=by_topic(self.standby) if assigner.replicates else {},
        )
        if not subscription.standby and self.mode is Mode.SINGLE:
            version = min(version, 1)  # version 2 would only add empty standbys
        return subscription.encode(version, newest=self.newest, compress=self._compress)

    def _hash(self, assigner: PartitionAssigner[Any], topics: Sequence[str], pattern: str) -> bytes:
        # With a pattern, a topic that only another member sees may match. So the hash covers all topics.
        return self.view.hash(None if pattern else topics, leaders=assigner.looks_at_leaders)


def _meet(a: Subscription, b: Subscription) -> bool:
    """Return whether two members may have a common topic. With a pattern, this is assumed."""
    return bool(a.pattern or b.pattern or set(a.topics) & set(b.topics))


def _read(name: str, data: bytes, assigner: PartitionAssigner[Any], known: int) -> Subscription:
    """Return a member's subscription, up to the version `known`, if the strategy can read its part of it.

    Errors: `UnknownVersion`; `ProtocolError` with the member's name, also for any exception of the strategy.
    """
    try:
        said = Subscription.decode(data, known=known)
        assigner.decode(said.strategy)
    except UnknownVersion:
        raise
    except ProtocolError as error:
        raise error.of(name) from None
    except Exception as error:
        expected = f"metadata of {assigner.name}: {type(error).__name__}: {error}"
        raise ProtocolError(f"members[{name!r}].strategy", found=data[:40], expected=expected) from error
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
