"""Chooses the protocol, the leader and the sub-group of a group.

Each choice is a function of its arguments alone, so all members make the same choice.

Source: "JoinGroup Response", "Single Client Assignor" and "Dropping Topic Lists" in the proposal.

The coordinator's data about one group: states, members, and the outcome of a rebalance.

Empty --join--> PreparingRebalance --all have joined--> CompletingRebalance --leader's sync--> Stable
                    ^    mode EVERY: directly to Stable                                           |
                    +----------- join, leave, expiry, new metadata -------------------------------+
Dead: closed. Every request is answered NOT_COORDINATOR, so the members look for another coordinator.

The phases of a group's rebalance (prepare, complete, answer), and the removal of members.

`Phases` has the members and the outcome. `taskplace.groups.coordinator` adds the requests.

The coordinator's side of one group: a state machine without threads and without a clock.

It takes messages and the time, and returns messages. It never reads metadata or states, and never runs assignment code.

Properties:
- Generations only grow. Each has at most one leader, and only that leader's `Sync` is accepted.
- A rebalance waits until every member has joined again, but at most for the longest `max.poll.interval.ms` of its
  members. Members that have not joined by then are removed; a static member stays until its session ends.
- A leader that is silent, leaves or takes too long is replaced in a new generation, until one answers or no member is
  left. If the leader sends an error, all members get it.
- A member is removed if no message from it arrives during its session. Any message renews the session.
- Late, repeated and reordered messages do no harm. A repeated join gets the same answer, an older one is dropped, and a
  sync for another generation is refused.

Non-goals: transport and encoding (`taskplace.groups.messages`), choosing among coordinators, durable storage. A new
coordinator needs the generation to continue from.

Source: "Protocol" and "Single Client Assignor" in the client-side assignment proposal; KIP-345 (static membership).

Coordinates any number of groups: dispatches messages to groups, and remembers generations.

Properties: a group that has been empty for `forget_after` seconds is removed, except for its generation. So the group
continues from it when it comes back. A coordinator that takes over needs the value of `generations()`.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias, TypeVar

from taskplace.errors import InputError
from taskplace.groups.messages import (
    Ack,
    Code,
    GroupError,
    Heartbeat,
    Join,
    Joined,
    Leave,
    Mode,
    Offer,
    Request,
    Response,
    Role,
    StaleGeneration,
    Sync,
)
from taskplace.groups.settings import CoordinatorSettings

Pair = tuple[str, int]  # a protocol's name and version
K = TypeVar("K", bound=Hashable)


def supported_by_all(preferences: Iterable[Sequence[Pair]]) -> list[Pair]:
    """Return the protocols that are in every list, in the order of the first list.

    >>> supported_by_all([[("range", 1), ("range", 0)], [("range", 0)]])
    [('range', 0)]
    """
    lists = [list(dict.fromkeys(listed)) for listed in preferences]
    if not lists:
        return []
    common = set(lists[0]).intersection(*lists[1:])
    return [pair for pair in lists[0] if pair in common]


def choose_protocol(preferences: Sequence[Sequence[Pair]], seed: str) -> Pair | None:
    """Return the protocol that the group uses, or None if no protocol is supported by all members.

    - A protocol that *every* member ranks below another common protocol is never chosen. So if all members prefer the
      same protocol, it is chosen.
    - Otherwise one of the remaining protocols is drawn. The draw depends only on `seed` and the candidates, so every
      rebalance and every coordinator draws the same one.

    Work: members x protocols squared.

    >>> choose_protocol([[("sticky", 0), ("range", 0)], [("sticky", 0), ("range", 0)]], "orders")
    ('sticky', 0)
    >>> choose_protocol([[("sticky", 0)], [("range", 0)]], "orders") is None
    True
    """
    common = supported_by_all(preferences)
    if not common:
        return None
    # Most members have the same list: handle each distinct list once.
    orders = {tuple(pair for pair in dict.fromkeys(listed) if pair in common) for listed in preferences}
    places = [{pair: k for k, pair in enumerate(order)} for order in orders]
    wanted = sorted(
        pair
        for pair in common
        if not any(all(place[other] < place[pair] for place in places) for other in common)
    )
    return drawn(wanted, seed)


def drawn(candidates: Sequence[K], seed: str) -> K:
    """Return one of the candidates, chosen by a hash of all candidates and `seed`: the same in every process."""
    digest = hashlib.sha256(repr((seed, list(candidates))).encode()).digest()
    return candidates[int.from_bytes(digest[:8], "big") % len(candidates)]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible leader: its name, the newest metadata version that it knows, and its rank in the order of joining."""

    name: str
    newest: int
    order: int


LeaderRule = Callable[[Sequence[Candidate]], str]


def newest_then_latest(candidates: Sequence[Candidate]) -> str:
    """Return the leader by the proposal's heuristics: the newest metadata version, then the latest to join.

    A member with the newest version can read the metadata of all others. The latest to join is the least likely to have
    gone already.

    >>> newest_then_latest([Candidate("a", 1, 0), Candidate("b", 2, 1), Candidate("c", 2, 2), Candidate("d", 1, 3)])
    'c'
    """
    return max(candidates, key=lambda c: (c.newest, c.order, c.name)).name


def always(name: str) -> LeaderRule:
    """Return the rule that the member `name` leads. Without that member, `newest_then_latest` decides.

    >>> always("driver")([Candidate("worker-1", 9, 1), Candidate("driver", 0, 0)])
    'driver'
    """

    def rule(candidates: Sequence[Candidate]) -> str:
        return name if any(c.name == name for c in candidates) else newest_then_latest(candidates)

    return rule


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

    `views`: member -> (subscription, metadata hash). Hashes of different subscriptions cannot be compared,
    so each subscription is handled separately. The smallest hash breaks ties.

    >>> sorted(in_step({"A": ("t", b"new"), "B": ("t", b"new"), "C": ("t", b"old"), "D": ("u", b"one")}))
    ['A', 'B', 'D']
    """
    by_subscription: dict[Hashable, dict[str, bytes]] = {}
    for name, (subscription, seen) in views.items():
        by_subscription.setdefault(subscription, {})[name] = seen
    return frozenset().union(*(largest_matching(hashes) for hashes in by_subscription.values()))


class GroupState(Enum):
    """The states of a group, named as in Kafka."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass
class Seat:
    """One member, as its coordinator sees it. Times are seconds of the coordinator's clock.

    - `name`: the name that strategies see: the instance id of a static member, the member id of any other
    - `order`: the position in the order of joining
    - `join`, `sequence`: the numbers of the member's newest join and of its newest message
    - `heard`: when that message arrived
    - `waiting`: whether a join is unanswered
    """

    name: str
    member_id: str
    address: str
    static: bool
    order: int
    join: int
    sequence: int
    heard: float
    session: float
    rebalance: float
    newest: int
    offers: tuple[Offer, ...]
    waiting: bool = True

    @property
    def expires(self) -> float:
        """When the session ends if no further message arrives."""
        return self.heard + self.session

    def pairs(self) -> list[tuple[str, int]]:
        """Return the protocols that the member supports, by preference."""
        return [(offer.name, offer.version) for offer in self.offers]

    def metadata(self, protocol: tuple[str, int]) -> bytes:
        """Return the member's metadata for the chosen protocol."""
        return next(o.metadata for o in self.offers if (o.name, o.version) == protocol)

    def is_unchanged(self, join: Join) -> bool:
        """Return whether a new join has the same metadata."""
        return (self.offers, self.newest) == (join.offers, join.newest)


@dataclass
class Outcome:
    """The outcome of a rebalance: the chosen protocol, the leader, and the members' metadata and states."""

    group: str
    generation: int
    mode: Mode
    protocol: tuple[str, int]
    leader: str = ""
    members: tuple[tuple[str, bytes], ...] = ()
    states: dict[str, bytes] = field(default_factory=dict)
    code: Code = Code.NONE
    detail: str = ""

    def answer(self, seat: Seat, role: Role = Role.MEMBER) -> Joined:
        """Return the answer to a member: all metadata for the mode EVERY or the leader, and the state of a `MEMBER`."""
        listed = self.mode is Mode.EVERY or role is Role.LEADER
        protocol, version = self.protocol
        return Joined(
            group=self.group,
            member_id=seat.member_id,
            sequence=seat.sequence,
            join=seat.join,
            code=self.code,
            detail=self.detail,
            generation=self.generation,
            protocol=protocol,
            version=version,
            role=role,
            name=seat.name,
            leader=self.leader,
            members=self.members if listed and self.code is Code.NONE else (),
            state=self.states.get(seat.name, b"") if role is Role.MEMBER else b"",
        )


@dataclass(frozen=True)
class Description:
    """The present state of a group, for people and for tests."""

    group: str
    state: GroupState
    generation: int
    protocol: tuple[str, int] | None
    leader: str
    members: tuple[str, ...]


log = logging.getLogger(__name__)

Replies: TypeAlias = list[tuple[str, Response]]  # address, message


class Phases:
    """The state of one group, and its transitions. Times are seconds.

    Lifetime: `outcome` belongs to the newest generation. `_ready_at` and `_deadline` belong to the current phase.
    `_scope` is the mode and protocol type; an empty group has none.
    """

    def __init__(
        self,
        name: str,
        settings: CoordinatorSettings,
        *,
        generation: int,
        resumed: bool,
        leader_rule: LeaderRule,
    ) -> None:
        self.name = name
        self.settings = settings
        self.generation = generation
        self.state = GroupState.EMPTY
        self.outcome: Outcome | None = None
        self.seats: dict[str, Seat] = {}
        self._scope: tuple[Mode, str] | None = None
        self._by_id: dict[str, str] = {}
        self._ready_at = self._deadline = 0.0
        self._resumed = resumed
        self._resumed_at: float | None = None  # when the first member joined after the resumption
        self._leader_rule = leader_rule

    def tick(self, now: float) -> Replies:
        """Do what is due at `now`: remove members whose session has ended, and end phases."""
        replies = self._remove([s for s in self.seats.values() if now >= s.expires], now)
        if self.state is GroupState.COMPLETING_REBALANCE and now >= self._deadline and self.outcome:
            log.warning("group %s: leader %s did not assign in time", self.name, self.outcome.leader)
            replies += self._remove([self.seats[self.outcome.leader]], now)
        return replies + self._go_on(now)

    def next_deadline(self) -> float | None:
        """Return the next time at which `tick` has something to do, or None."""
        times = [seat.expires for seat in self.seats.values()]
        if self.state is GroupState.PREPARING_REBALANCE:
            if any(self._waiting()):
                everybody = all(seat.waiting for seat in self.seats.values())
                times.append(self._ready_at if everybody else self._deadline)
        elif self.state is GroupState.COMPLETING_REBALANCE:
            times.append(self._deadline)
        return min(times, default=None)

    # ---------------------------------------------------------------------------------------- rebalance

    def _prepare(self, now: float, *, first: bool = False) -> None:
        self.state = GroupState.PREPARING_REBALANCE
        self._ready_at = now
        if first:
            self._ready_at += self.settings.group_initial_rebalance_delay_ms / 1000
        if self._resumed:
            # Members that this coordinator does not know may work until their sessions end. So it waits until a
            # rebalance is complete, even if the first member joins and leaves again.
            if self._resumed_at is None:
                self._resumed_at = now
            longest = max(s.session for s in self.seats.values())
            self._ready_at = max(self._ready_at, self._resumed_at + longest)
        patience = max(s.rebalance for s in self.seats.values())
        self._deadline = max(now + patience, self._ready_at)

    def _go_on(self, now: float) -> Replies:
        """Leave PreparingRebalance if all members have joined, or its time is over."""
        if self.state is not GroupState.PREPARING_REBALANCE or now < self._ready_at:
            return []
        missing = [s for s in self.seats.values() if not s.waiting]
        if (missing and now < self._deadline) or not any(self._waiting()):
            return []
        for seat in missing:
            if not seat.static:
                log.info("group %s: %s did not rejoin in time", self.name, seat.name)
                self._drop(seat)
        return self._complete(now)

    def _complete(self, now: float) -> Replies:
        self._resumed, self._resumed_at = False, None
        self.generation += 1
        protocol = choose_protocol([s.pairs() for s in self.seats.values()], self.name)
        if protocol is None or self._scope is None:  # `_refused` keeps one in common, join by join
            raise GroupError(
                f"group {self.name}: found no protocol that all members {sorted(self.seats)} support, expected one; "
                "start all members with a common protocol"
            )
        mode = self._scope[0]
        members = tuple((name, self.seats[name].metadata(protocol)) for name in sorted(self.seats))
        self.outcome = Outcome(self.name, self.generation, mode, protocol, members=members)
        if mode is Mode.EVERY:
            self.state = GroupState.STABLE
            return self._answer(list(self._waiting()))
        leader = self._leader_rule([Candidate(s.name, s.newest, s.order) for s in self._waiting()])
        self.outcome.leader = leader
        self.state = GroupState.COMPLETING_REBALANCE
        self._deadline = now + self.seats[leader].rebalance
        return self._answer([self.seats[leader]], Role.LEADER)

    def _fail(self, known: Outcome, code: Code, detail: str) -> Replies:
        """End the generation with an error that all members get. The next join starts another generation."""
        log.error("group %s: generation %d failed: %s", self.name, self.generation, detail)
        self.outcome = Outcome(
            self.name, self.generation, known.mode, known.protocol, known.leader, code=code, detail=detail
        )
        self.state = GroupState.STABLE
        return self._answer([self.seats[known.leader], *self._waiting()])

    # ------------------------------------------------------------------------------------------ leaving

    def _remove(self, gone: list[Seat], now: float) -> Replies:
        """Remove members, and continue or start a rebalance."""
        if not gone:
            return []
        leading = self.state is GroupState.COMPLETING_REBALANCE and self.outcome is not None
        lost_leader = leading and any(self.outcome and s.name == self.outcome.leader for s in gone)
        for seat in gone:
            log.info("group %s: %s was removed", self.name, seat.name)
            self._drop(seat)
        if not self.seats:
            self.state, self.outcome, self._scope = GroupState.EMPTY, None, None
            return []
        if self.state is GroupState.PREPARING_REBALANCE:
            return self._go_on(now)
        if lost_leader and any(self._waiting()):
            return self._complete(now)  # the same members, another leader, another generation
        self._prepare(now)
        return self._go_on(now)

    def _drop(self, seat: Seat) -> None:
        del self.seats[seat.name]
        self._by_id.pop(seat.member_id, None)

    def _waiting(self) -> Iterator[Seat]:
        return (seat for seat in self.seats.values() if seat.waiting)

    def _answer(self, seats: list[Seat], role: Role = Role.MEMBER) -> Replies:
        replies: Replies = []
        for seat in seats:
            if self.outcome:
                seat.waiting = False
                replies.append((seat.address, self.outcome.answer(seat, role)))
        return replies


# A group continues from a member's generation, but a single jump must not use up the numbers that the wire allows.
_JUMP, _LATEST = 2**32, 2**52
_CLOSED = "the group is closed on this coordinator"
_REMEMBERED = 1_000  # replaced members that get FENCED_INSTANCE_ID; older ones get UNKNOWN_MEMBER_ID


class Group(Phases):
    """One group. `handle` processes a request, `tick` the time; both return messages with their addresses.

    `generation`: the generation to continue from. A group that continues one (`resumed`, or a member knows a newer
    generation) waits once for a whole session, because unknown members may still be working.

    >>> group = Group("orders", CoordinatorSettings(group_initial_rebalance_delay_ms=0))
    >>> from taskplace.groups.messages import Mode, Offer
    >>> join = Join("orders", "m1", "", 1, 1, 45_000, 300_000, Mode.EVERY, "consumer", 0, 0, (Offer("range"),))
    >>> [(address, answer)] = group.handle("there", join, now=0.0)
    >>> address, answer.generation, answer.protocol, answer.members, group.state.value
    ('there', 1, 'range', (('m1', b''),), 'Stable')
    """

    def __init__(
        self,
        name: str,
        settings: CoordinatorSettings,
        *,
        generation: int = 0,
        resumed: bool = False,
        leader_rule: LeaderRule = newest_then_latest,
    ) -> None:
        super().__init__(name, settings, generation=generation, resumed=resumed, leader_rule=leader_rule)
        self._replaced: dict[
            str, str
        ] = {}  # member ids of static members that others have taken over, with their names
        self._order = 0

    # ------------------------------------------------------------------------------------------ events

    def handle(self, address: str, request: Request, now: float) -> Replies:
        """Process a request that came from `address` at `now` (seconds). Return the messages to send."""
        replies = self.tick(now)
        if self.state is GroupState.DEAD:
            return [*replies, (address, _refusal(request, Code.NOT_COORDINATOR, _CLOSED))]
        if request.member_id in self._replaced:
            detail = f"{self._replaced[request.member_id]!r} has been taken over by another member"
            return [*replies, (address, _refusal(request, Code.FENCED_INSTANCE_ID, detail))]
        if isinstance(request, Join):
            return [*replies, *self._join(address, request, now)]
        seat = self.seats.get(self._by_id.get(request.member_id, ""))
        if seat is None:
            code = Code.NONE if isinstance(request, Leave) else Code.UNKNOWN_MEMBER_ID
            detail = f"{request.member_id!r} is not a member of the group"
            return [*replies, (address, _refusal(request, code, detail))]
        self._heard(seat, address, request.sequence, now)
        if isinstance(request, Leave):
            ack = (address, _refusal(request, Code.NONE, ""))
            return [*replies, *self._remove([seat], now), ack]
        if isinstance(request, Sync):
            return [*replies, *self._sync(seat, request)]
        return [*replies, (address, self._heartbeat(seat, request))]

    def check(self, member_id: str, generation: int) -> Code:
        """Return NONE if this member may commit work of `generation` now, else the code of the reason."""
        if member_id in self._replaced:
            return Code.FENCED_INSTANCE_ID
        if member_id not in self._by_id:
            return Code.UNKNOWN_MEMBER_ID
        # The last generation stays in force until the next one has begun.
        begun = self.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE)
        if (
            not begun
            or generation != self.generation
            or not self.outcome
            or self.outcome.code is not Code.NONE
        ):
            return Code.ILLEGAL_GENERATION
        return Code.NONE

    def close(self) -> Replies:
        """Close the group. Waiting members, and all later requests, are answered NOT_COORDINATOR."""
        self.state = GroupState.DEAD
        replies: Replies = [
            (s.address, self._error(s, Code.NOT_COORDINATOR, _CLOSED)) for s in self._waiting()
        ]
        self.seats.clear()
        self._by_id.clear()
        return replies

    def describe(self) -> Description:
        """Return the group as it is now."""
        known = self.outcome if self.state is GroupState.STABLE else None
        return Description(
            group=self.name,
            state=self.state,
            generation=self.generation,
            protocol=known.protocol if known else None,
            leader=known.leader if known else "",
            members=tuple(sorted(self.seats)),
        )

    # -------------------------------------------------------------------------------------------- joins

    def _join(self, address: str, request: Join, now: float) -> Replies:
        name = request.instance_id or request.member_id
        seat = self.seats.get(name)
        same = seat is not None and seat.member_id == request.member_id
        if seat and same and request.join <= seat.join:
            if request.join < seat.join:
                return []  # an older join, overtaken by the newest
            self._heard(seat, address, request.sequence, now)
            return [] if seat.waiting else [self._again(seat)]
        refused = self._refused(request, seat)
        if refused:
            return [(address, _refusal(request, *refused))]
        unchanged = seat is not None and seat.is_unchanged(request)
        if seat is None:
            self._order += 1
        elif not same:
            self._forget(seat)
        self.seats[name] = Seat(
            name=name,
            member_id=request.member_id,
            address=address,
            static=bool(request.instance_id),
            order=seat.order if seat else self._order,
            join=request.join,
            sequence=request.sequence,
            heard=now,
            session=request.session_ms / 1000,
            rebalance=request.rebalance_ms / 1000,
            newest=request.newest,
            offers=request.offers,
        )
        self._by_id[request.member_id] = name
        self._scope = (request.mode, request.protocol_type)
        ahead = request.generation > self.generation
        if ahead:
            self.generation, self._resumed, self._resumed_at = request.generation, True, None
        if seat and not ahead and self._still_holds(seat, unchanged, same):
            return self._answer([self.seats[name]])
        completing = self.state is GroupState.COMPLETING_REBALANCE
        still_waits = completing and same and unchanged and seat is not None and seat.waiting
        if ahead or (self.state is not GroupState.PREPARING_REBALANCE and not still_waits):
            self._prepare(now, first=self.state is GroupState.EMPTY)
        return self._go_on(now)

    def _still_holds(self, seat: Seat, unchanged: bool, same: bool) -> bool:
        """Return whether a rejoin gets the assignment in force instead of starting a rebalance.

        That is so if its metadata is unchanged and it does not come from the leader. A leader that joins again requests
        a rebalance. A static member that was restarted does not, even if it leads; otherwise its restart would move
        work.
        """
        known = self.outcome
        if self.state is not GroupState.STABLE or known is None or known.code is not Code.NONE:
            return False
        return unchanged and not (same and seat.name == known.leader)

    def _refused(self, request: Join, seat: Seat | None) -> tuple[Code, str] | None:
        least, most = self.settings.group_min_session_timeout_ms, self.settings.group_max_session_timeout_ms
        if not least <= request.session_ms <= most or request.rebalance_ms < request.session_ms:
            detail = f"found a session of {request.session_ms} ms, a rebalance of {request.rebalance_ms} ms"
            expected = f"expected a session of {least} to {most} ms, and a rebalance not shorter"
            return Code.INVALID_SESSION_TIMEOUT, f"{detail}; {expected}"
        furthest = max(self.generation, min(self.generation + _JUMP, _LATEST))
        if request.generation > furthest:
            detail = f"found generation {request.generation}, expected one up to {furthest}"
            return Code.INVALID_REQUEST, detail
        taken = self._by_id.get(request.member_id, request.instance_id or request.member_id)
        if (
            not (request.member_id and request.offers)
            or taken != (request.instance_id or request.member_id)
            or (seat and seat.static != bool(request.instance_id))
        ):
            detail = f"found member id {request.member_id!r} and {len(request.offers)} protocols"
            return Code.INVALID_REQUEST, f"{detail}; expected an id of its own and at least one protocol"
        others = [s for s in self.seats.values() if s is not seat]
        if not others:
            return None
        if seat is None and len(others) >= self.settings.group_max_size:
            detail = f"found {len(others)} members, expected fewer than {self.settings.group_max_size}"
            return Code.GROUP_MAX_SIZE_REACHED, f"{detail}, the value of group.max.size"
        asked = (request.mode, request.protocol_type)
        if self._scope and asked != self._scope:
            (mode, kind), (mine, my_kind) = self._scope, asked
            detail = f"found {my_kind!r} ({mine.name.lower()}), expected {kind!r} ({mode.name.lower()})"
            return Code.INCONSISTENT_GROUP_PROTOCOL, detail
        common = supported_by_all(s.pairs() for s in others)
        if not set(common) & {(o.name, o.version) for o in request.offers}:
            offered = ", ".join(f"{o.name} {o.version}" for o in request.offers)
            expected = ", ".join(f"{name} {version}" for name, version in common)
            return Code.INCONSISTENT_GROUP_PROTOCOL, f"found {offered}, expected one of {expected}"
        return None

    # ------------------------------------------------------------------------------- sync and heartbeat

    def _sync(self, seat: Seat, request: Sync) -> Replies:
        known = self.outcome
        if known is None or known.leader != seat.name or request.generation != self.generation:
            return [(seat.address, self._ack(seat, request, Code.ILLEGAL_GENERATION))]
        if self.state is GroupState.PREPARING_REBALANCE:
            return [(seat.address, self._ack(seat, request, Code.REBALANCE_IN_PROGRESS))]
        if self.state is GroupState.STABLE:
            return [self._again(seat)]
        if request.code is not Code.NONE:
            return self._fail(known, request.code, f"leader {seat.name}: {request.detail}")
        known.states = {name: state for name, state in request.states if name in self.seats}
        self.state = GroupState.STABLE
        return self._answer([seat, *self._waiting()])

    def _heartbeat(self, seat: Seat, request: Heartbeat) -> Ack:
        if request.generation != self.generation:
            # During a rebalance, an older generation is no error: the member has to join in any case.
            making = self.state in (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)
            code = Code.REBALANCE_IN_PROGRESS if making else Code.ILLEGAL_GENERATION
            return self._ack(seat, request, code)
        if self.state is GroupState.PREPARING_REBALANCE:
            return self._ack(seat, request, Code.REBALANCE_IN_PROGRESS)
        if self.outcome and self.outcome.code is not Code.NONE:
            return self._ack(seat, request, self.outcome.code, self.outcome.detail)
        return self._ack(seat, request, Code.NONE)

    def _forget(self, seat: Seat) -> None:
        """Fence a static member that another one has replaced."""
        self._by_id.pop(seat.member_id, None)
        self._replaced[seat.member_id] = seat.name
        if len(self._replaced) > _REMEMBERED:
            del self._replaced[next(iter(self._replaced))]

    # ------------------------------------------------------------------------------------------ answers

    def _again(self, seat: Seat) -> tuple[str, Response]:
        known = self.outcome
        leads = known is not None and known.leader == seat.name
        completing = self.state is GroupState.COMPLETING_REBALANCE
        if known is None or self.state is GroupState.PREPARING_REBALANCE or (completing and not leads):
            return seat.address, self._error(seat, Code.REBALANCE_IN_PROGRESS, "")
        return seat.address, known.answer(seat, Role.LEADER if completing else Role.MEMBER)

    def _heard(self, seat: Seat, address: str, sequence: int, now: float) -> None:
        if sequence >= seat.sequence:
            # An overtaken message proves nothing about the present.
            seat.address, seat.sequence, seat.heard = address, sequence, now

    def _error(self, seat: Seat, code: Code, detail: str) -> Joined:
        return Joined(
            group=self.name,
            member_id=seat.member_id,
            sequence=seat.sequence,
            join=seat.join,
            code=code,
            detail=detail,
        )

    def _ack(self, seat: Seat, request: Sync | Heartbeat, code: Code, detail: str = "") -> Ack:
        return Ack(
            group=self.name,
            member_id=seat.member_id,
            sequence=seat.sequence,
            generation=request.generation,
            code=code,
            detail=detail,
        )


def _refusal(request: Request, code: Code, detail: str) -> Response:
    if isinstance(request, Join):
        return Joined(
            group=request.group,
            member_id=request.member_id,
            sequence=request.sequence,
            join=request.join,
            code=code,
            detail=detail,
        )
    generation = 0 if isinstance(request, Leave) else request.generation
    return Ack(
        group=request.group,
        member_id=request.member_id,
        sequence=request.sequence,
        generation=generation,
        code=code,
        detail=detail,
    )


class Coordinator:
    """Coordinates groups. Methods take messages and the time (seconds), and return messages.

    - `resume`: the generations of groups of another coordinator; these groups continue from them
    - `wait_for_sessions`: the first rebalance of a resumed group waits for a session, because members of the other
      coordinator may still be working
    - `leader_rule`: chooses the leaders; by default, the newest metadata version, then the latest to join
    - `forget_after`: an empty group is removed after this many seconds

    >>> coordinator = Coordinator()
    >>> from taskplace.groups.messages import Heartbeat
    >>> [(address, ack)] = coordinator.handle("there", Heartbeat("orders", "m1", 1, 7), now=0.0)
    >>> ack.code.name
    'UNKNOWN_MEMBER_ID'
    """

    def __init__(
        self,
        settings: CoordinatorSettings | None = None,
        *,
        resume: Mapping[str, int] | None = None,
        wait_for_sessions: bool = True,
        leader_rule: LeaderRule = newest_then_latest,
        forget_after: float = 3_600.0,
    ) -> None:
        self.settings = settings or CoordinatorSettings()
        self.groups: dict[str, Group] = {}
        self._generations = dict(resume or {})
        self._resumed = set(self._generations) if wait_for_sessions else set()
        self._leader_rule = leader_rule
        self._forget_after = forget_after
        self._empty_since: dict[str, float] = {}

    def handle(self, address: str, request: Request, now: float) -> Replies:
        """Process a request from `address`. Return the messages to send, each with its address."""
        if isinstance(request, Join):
            group = self._group(request.group)
        else:
            # Only a join creates a group. Any other request to an unknown group gets a temporary one.
            group = self.groups.get(request.group) or Group(request.group, self.settings)
        replies = group.handle(address, request, now)
        self._note(group, now)
        return replies

    def tick(self, now: float) -> Replies:
        """Do what is due at `now`: end sessions and phases, and remove empty groups."""
        replies: Replies = []
        for group in list(self.groups.values()):
            replies += group.tick(now)
            self._note(group, now)
        for name, since in list(self._empty_since.items()):
            if now >= since + self._forget_after:
                self._generations[name] = self.groups.pop(name).generation
                del self._empty_since[name]
        return replies

    def next_deadline(self) -> float | None:
        """Return the next time at which `tick` has something to do, or None."""
        times = [t for group in self.groups.values() if (t := group.next_deadline()) is not None]
        times += [since + self._forget_after for since in self._empty_since.values()]
        return min(times, default=None)

    def close(self, name: str) -> Replies:
        """Close a group, for example because another coordinator takes it over. Its members then look for that one."""
        return self._known(name).close()

    def generations(self) -> dict[str, int]:
        """Return the newest generation of every group, in the form of `resume`."""
        return self._generations | {name: group.generation for name, group in self.groups.items()}

    def describe(self, name: str) -> Description:
        """Return the present state of a group. Errors: `InputError` for an unknown group."""
        return self._known(name).describe()

    def fence(self, name: str, member_id: str, generation: int) -> None:
        """Raise `StaleGeneration` unless this member may do work of this generation now.

        >>> Coordinator().fence("orders", "m1", 3)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        taskplace.groups.messages.StaleGeneration: orders: found m1 in generation 3, expected ... UNKNOWN_MEMBER_ID
        """
        group = self.groups.get(name)
        code = group.check(member_id, generation) if group else Code.UNKNOWN_MEMBER_ID
        if code is not Code.NONE:
            in_force = group.generation if group else self._generations.get(name, 0)
            raise StaleGeneration(
                f"{name}: found {member_id} in generation {generation}, expected a member in generation "
                f"{in_force}: {code.name}"
            )

    def _group(self, name: str) -> Group:
        if name not in self.groups:
            self.groups[name] = Group(
                name,
                self.settings,
                generation=self._generations.get(name, 0),
                resumed=name in self._resumed,
                leader_rule=self._leader_rule,
            )
            self._resumed.discard(name)
        return self.groups[name]

    def _known(self, name: str) -> Group:
        if name not in self.groups:
            known = ", ".join(sorted(self.groups)[:20]) or "none"
            raise InputError("group", found=name, expected="a group of this coordinator", hint=known)
        return self.groups[name]

    def _note(self, group: Group, now: float) -> None:
        if group.name not in self.groups:
            return
        if group.state is GroupState.EMPTY:
            self._empty_since.setdefault(group.name, now)
        else:
            self._empty_since.pop(group.name, None)
