"""The consumer's embedded protocol: subscriptions in, partitions out, in both modes of the text.

EVERY: each member computes the whole assignment for itself from the full list, and takes its part. All have to
see the same topics, so each compares everybody's metadata hash with what it sees itself; if one differs it
takes nothing, looks at the topics again, and joins again. Two members that both accept see the same for all
topics subscribed to: so they compute the same, and no partition is taken twice.

SINGLE: the leader computes for all from what it sees; nobody has to agree on topics, nor on a strategy.
Metadata of a version that the leader does not know is answered with the highest that it does.

Hashed subscriptions ("Dropping Topic Lists", mode EVERY): members send a hash of their topics in place of the
list; the largest sub-group with one hash takes its partitions, the others are dormant until the next rebalance.

Source: the two sections "Consumer Embedded Protocol" and "Dropping Topic Lists" in the client-side assignment
proposal.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from taskplace.errors import InputError
from taskplace.group.assigner import ConsumerMetadata, PartitionAssigner, RoundRobin
from taskplace.group.choice import largest_matching
from taskplace.group.errors import ProtocolError, UnknownVersion
from taskplace.group.messages import Mode, Offer
from taskplace.group.protocol import Round, TryAgain
from taskplace.group.subscription import NEWEST, Assignment, Probe, Subscription, by_topics
from taskplace.group.topics import Topics, subscription_hash
from topology.node import TopicPartition

log = logging.getLogger(__name__)

HASHED = "+hashed"  # a protocol of its own: lists and hashes of lists do not mix
DEFAULT = "default"  # the one protocol of the mode SINGLE: which strategy is the leader's business


class ConsumerProtocol:
    """A consumer of topics, for a `Member`.

    `topics`, or a regular `pattern` that whole names match. `fetch` returns what is seen of the topics now; it
    is called before the first join, and again on a disagreement or when `refresh` is called. `assigners` by
    preference; in the mode SINGLE the first is the one it would lead with. `newest` is the newest metadata
    version it speaks.

    Errors: `InputError` for a combination that cannot work.

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
        if bool(topics) == bool(pattern):
            found = {"topics": list(topics), "pattern": pattern}
            raise InputError("subscription", found=found, expected="either topics or a pattern")
        if hashed and mode is not Mode.EVERY:
            raise InputError("hashed", found=mode.name, expected="the mode EVERY: a leader needs the lists")
        if not 0 <= newest <= NEWEST:
            raise InputError("newest", found=newest, expected=f"a metadata version from 0 to {NEWEST}")
        self.mode = mode
        self.topics = tuple(sorted(set(topics)))
        self.pattern = pattern
        self.assigners = tuple(assigners) or (RoundRobin(),)
        self.rack = rack
        self.newest = newest
        self.dormant = False
        self._fetch = fetch
        self._view: Topics | None = None
        self._hashed = hashed
        self._compress = compress
        self._speak = newest  # what the leader can read; lower while it is older than this member
        self._owned: tuple[TopicPartition, ...] = ()
        self._generation = 0

    @property
    def view(self) -> Topics:
        """What this member sees of the topics."""
        if self._view is None:
            self._view = self._fetch()
        return self._view

    def refresh(self) -> bool:
        """Look at the topics again; return whether they have changed: then the member has to join again."""
        before, self._view = self._view, self._fetch()
        return before != self._view

    # ------------------------------------------------------------------------------- what a member asks for

    def offers(self) -> list[Offer]:
        """Return a protocol for each strategy; in the mode SINGLE the one that all share."""
        if self.mode is Mode.SINGLE:
            return [Offer(DEFAULT, 0, self._said(self.assigners[0], self._speak))]
        return [
            Offer(a.name + (HASHED if self._hashed else ""), a.version, self._said(a, a.metadata_version))
            for a in self.assigners
        ]

    def lead(self, found: Round) -> dict[str, bytes]:
        """Assign for all, with this member's own strategy, from what it sees."""
        readable: dict[str, Subscription] = {}
        states: dict[str, bytes] = {}
        for name, data in found.members.items():
            try:
                readable[name] = Subscription.decode(data, known=self.newest)
            except UnknownVersion as error:
                log.info("group %s: %s speaks version %d", found.group, name, error.version)
                states[name] = Probe(self.newest).encode()
            except ProtocolError as error:
                # Who sent it is what one looks for in a log.
                raise ProtocolError(
                    f"members[{name!r}].{error.path}", found=error.found, expected=error.expected
                ) from None
        self._view = self._fetch()  # the only view that counts: it had better be new
        assigned = self._assign(self.assigners[0], readable)
        for name, partitions in assigned.items():
            states[name] = Assignment(tuple(sorted(partitions)), self.newest).encode()
        return states

    def accept(self, found: Round) -> tuple[TopicPartition, ...]:
        """Return this member's partitions, sorted; empty when it is dormant."""
        owned = self._given(found) if self.mode is Mode.SINGLE else self._computed(found)
        self._owned, self._generation = owned, found.generation
        return owned

    def lost(self) -> None:
        """Nothing to do: what it owned is said in the next join, with its generation."""

    # ------------------------------------------------------------------------------------------- mode SINGLE

    def _given(self, found: Round) -> tuple[TopicPartition, ...]:
        state = Assignment.decode(found.state)
        if isinstance(state, Probe):
            self._speak = min(self._speak, state.newest)
            raise TryAgain(f"the leader reads versions up to {state.newest}", at_once=True)
        # A leader that knows more than the last one: the next join says more.
        self._speak = min(self.newest, state.newest) if found.state else self._speak
        return state.partitions

    # -------------------------------------------------------------------------------------------- mode EVERY

    def _computed(self, found: Round) -> tuple[TopicPartition, ...]:
        name = found.protocol.removesuffix(HASHED)
        assigner = next(a for a in self.assigners if (a.name, a.version) == (name, found.version))
        said = {member: Subscription.decode(data) for member, data in found.members.items()}
        self.dormant = False
        if self._hashed:
            awake = largest_matching({member: s.subscription_hash for member, s in said.items()})
            self.dormant = found.name not in awake
            if self.dormant:
                return ()
            said = {member: self._as_mine(s) for member, s in said.items() if member in awake}
        if assigner.needs_agreement:
            self._agree(found.name, assigner, said)
        return tuple(sorted(self._assign(assigner, said, only=found.name)[found.name]))

    def _as_mine(self, other: Subscription) -> Subscription:
        """Return the subscription of a member of the same sub-group: it equals this one's."""
        return Subscription(
            self.topics, self.pattern, other.metadata_hash, other.strategy, other.rack, other.owned,
            other.generation,
        )  # fmt: skip

    def _agree(self, me: str, assigner: PartitionAssigner[Any], said: Mapping[str, Subscription]) -> None:
        expected: dict[tuple[tuple[str, ...], str], bytes] = {}
        for name, other in said.items():
            key = (other.topics, other.pattern)
            if key not in expected:
                expected[key] = self._hash(assigner, *key)
            if other.metadata_hash != expected[key]:
                self.refresh()
                raise TryAgain(f"{me} and {name} see different topics")

    # ------------------------------------------------------------------------------------------------- both

    def _assign(
        self, assigner: PartitionAssigner[Any], said: Mapping[str, Subscription], only: str | None = None
    ) -> dict[str, list[TopicPartition]]:
        consumers = [self._consumer(name, said[name], assigner) for name in sorted(said)]
        subscribed = {topic for consumer in consumers for topic in consumer.topics}
        seen = {t: self.view.partitions[t] for t in sorted(subscribed) if t in self.view.partitions}
        assigner.see(self.view)
        if only is not None:
            return {only: assigner.assign(only, seen, consumers)}
        return assigner.assign_all(seen, consumers)

    def _consumer(
        self, name: str, said: Subscription, assigner: PartitionAssigner[Any]
    ) -> ConsumerMetadata[Any]:
        topics = tuple(self.view.matching(said.pattern)) if said.pattern else said.topics
        owned = tuple(TopicPartition(topic, p) for topic, ps in sorted(said.owned.items()) for p in ps)
        return ConsumerMetadata(
            name, topics, assigner.decode(said.strategy), said.rack, owned, said.generation
        )

    def _said(self, assigner: PartitionAssigner[Any], version: int) -> bytes:
        hashed = subscription_hash(self.topics, self.pattern) if self._hashed else b""
        compared = assigner.needs_agreement and self.mode is Mode.EVERY
        said = Subscription(
            () if self._hashed else self.topics,
            "" if self._hashed else self.pattern,
            self._hash(assigner, self.topics, self.pattern) if compared else b"",
            assigner.encode(assigner.metadata()),
            self.rack,
            by_topics(self._owned) if assigner.remembers else {},
            self._generation if assigner.remembers else 0,
            hashed,
        )
        return said.encode(version, newest=self.newest, compress=self._compress)

    def _hash(self, assigner: PartitionAssigner[Any], topics: Sequence[str], pattern: str) -> bytes:
        # With a pattern, a topic that only another member sees may match: the hash covers all of them.
        return self.view.hash(None if pattern else topics, leaders=assigner.looks_at_leaders)
