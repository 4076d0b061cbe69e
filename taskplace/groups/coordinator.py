"""The coordinator's side of groups: state machines without threads and without a clock.

They take messages and the time, and return messages. They never read metadata or states, and never run assignment code.

    Empty --join--> PreparingRebalance --all have joined--> CompletingRebalance --leader's sync--> Stable
                        ^    mode EVERY: directly to Stable                                           |
                        +----------- join, leave, expiry, new metadata -------------------------------+
    Dead: closed. Every request is answered NOT_COORDINATOR, so the members look for another coordinator.

Properties:
- Generations only grow. Each has at most one leader, and only that leader's `Sync` is accepted.
- A rebalance waits until every member has joined again, but at most for the longest `max.poll.interval.ms` of its
  members. Members that have not joined by then are removed; a static member stays until its session ends.
- A leader that is silent, leaves or takes too long is replaced in a new generation, until one answers or no member is
  left. If the leader sends an error, all members get it.
- A member is removed if no message from it arrives during its session. Any message renews the session.
- Late, repeated and reordered messages do no harm. A repeated join gets the same answer, an older one is dropped, and a
  sync for another generation is refused.
- The protocol and the leader are functions of the members alone, so every coordinator chooses the same ones.
- A coordinator that takes over continues from the `generations()` of the last one.

Non-goals: transport and encoding (`taskplace.groups.messages`), choosing among coordinators, durable storage.

Source: "JoinGroup Response", "Protocol" and "Single Client Assignor" in the client-side assignment proposal; KIP-345
(static membership).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, TypeAlias

from msgspec.structs import replace

from taskplace import validation
from taskplace.groups.messages import (
    MOST_32,
    Ack,
    Code,
    Heartbeat,
    Int32,
    Join,
    Joined,
    Leave,
    Mode,
    Positive32,
    Request,
    Response,
    Role,
    StaleGeneration,
    Sync,
)
from taskplace.model.keys import Configuration, about

log = logging.getLogger(__name__)

Pair = tuple[str, int]  # a protocol's name and version
Replies: TypeAlias = list[tuple[str, Response]]  # address, message

# A group continues from a member's generation, but a single jump must not use up the numbers that the wire allows.
_JUMP, _LATEST = 2**32, 2**52
_CLOSED = "the group is closed on this coordinator"


class CoordinatorSettings(Configuration, frozen=True, kw_only=True):
    """The settings of a coordinator: Kafka's keys and defaults, times in milliseconds.

    >>> CoordinatorSettings.from_properties({"group.max.sice": 10})
    Traceback (most recent call last):
    taskplace.errors.ConfigError: config.group.max.sice: found an unknown key, expected one of 4 known keys; \
did you mean 'group.max.size'?
    """

    group_initial_rebalance_delay_ms: Annotated[Int32, about("wait for more first members")] = 3000
    group_min_session_timeout_ms: Annotated[Positive32, about("smallest session of a member")] = 6000
    group_max_session_timeout_ms: Annotated[Positive32, about("largest session of a member")] = 1800000
    group_max_size: Annotated[Positive32, about("most members")] = MOST_32

    def _agree(self, path: str) -> None:
        least = self.group_min_session_timeout_ms
        validation.integer(self.group_max_session_timeout_ms, f"{path}.group.max.session.timeout.ms", least)


# ------------------------------------------------------------------------------------------------ the protocol


def supported_by_all(preferences: Iterable[Sequence[Pair]]) -> list[Pair]:
    """Return the protocols that are in every list, in the order of the first list.

    >>> supported_by_all([[("range", 1), ("range", 0)], [("range", 0)]])
    [('range', 0)]
    """
    first, *others = preferences
    return [pair for pair in dict.fromkeys(first) if all(pair in listed for listed in others)]


def choose_protocol(preferences: Sequence[Sequence[Pair]], seed: str) -> Pair:
    """Return the protocol that the group uses. All members must support at least one.

    - A protocol that *every* member ranks below another common protocol is never chosen. So if all members prefer the
      same protocol, it is chosen.
    - Otherwise one of the remaining protocols is drawn. The draw depends only on `seed` and the candidates, so every
      rebalance and every coordinator draws the same one.

    Work: members x protocols squared.

    >>> choose_protocol([[("sticky", 0), ("range", 0)], [("sticky", 0), ("range", 0)]], "orders")
    ('sticky', 0)
    """
    common = supported_by_all(preferences)
    # Most members have the same list: handle each distinct list once.
    orders = {tuple(pair for pair in dict.fromkeys(listed) if pair in common) for listed in preferences}
    places = [{pair: k for k, pair in enumerate(order)} for order in orders]
    wanted = sorted(
        pair
        for pair in common
        if not any(all(place[other] < place[pair] for place in places) for other in common)
    )
    digest = hashlib.sha256(repr((seed, wanted)).encode()).digest()
    return wanted[int.from_bytes(digest[:8], "big") % len(wanted)]


# -------------------------------------------------------------------------------------------------- one group


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

    - `request`: the member's newest join; `waiting`: whether it is unanswered
    - `order`: the position in the order of joining
    - `sequence`: the number of the member's newest message, which arrived at `heard`
    """

    request: Join
    address: str
    order: int
    sequence: int
    heard: float
    waiting: bool = True

    @property
    def name(self) -> str:
        """The name that strategies see: the instance id of a static member, the member id of any other."""
        return _name(self.request)

    @property
    def session(self) -> float:
        """How long the member may be silent."""
        return self.request.session_ms / 1000

    @property
    def rebalance(self) -> float:
        """How long a rebalance waits for the member."""
        return self.request.rebalance_ms / 1000

    @property
    def pairs(self) -> list[Pair]:
        """The protocols that the member supports, by preference."""
        return [offer.pair for offer in self.request.offers]

    def metadata(self, protocol: Pair) -> bytes:
        """Return the member's metadata for the chosen protocol."""
        return next(offer.metadata for offer in self.request.offers if offer.pair == protocol)


def _name(request: Join) -> str:
    return request.instance_id or request.member_id


class Group:
    """One group. `handle` processes a request, `tick` the time; both return messages with their addresses.

    - `generation`: the generation of another coordinator to continue from. A group that continues one, also one that a
      member knows, waits once for a whole session, because unknown members may still be working

    Lifetime: `outcome` belongs to the newest generation. `_ready_at` and `_deadline` belong to the current phase.
    `_scope` is the mode and protocol type of its members. Times are seconds.

    >>> group = Group("orders", CoordinatorSettings(group_initial_rebalance_delay_ms=0))
    >>> from taskplace.groups.messages import Mode, Offer
    >>> join = Join("orders", "m1", 1, "", 1, 45_000, 300_000, Mode.EVERY, "consumer", 0, 0, (Offer("range"),))
    >>> [(address, answer)] = group.handle("there", join, now=0.0)
    >>> address, answer.generation, answer.protocol, answer.members, group.state.value
    ('there', 1, 'range', {'m1': b''}, 'Stable')
    """

    def __init__(self, name: str, settings: CoordinatorSettings, *, generation: int | None = None) -> None:
        self.name = name
        self.settings = settings
        self.generation = generation or 0
        self.state = GroupState.EMPTY
        self.outcome: Joined | None = None
        self.seats: dict[str, Seat] = {}
        self._states: dict[str, bytes] = {}
        self._scope = (Mode.EVERY, "")
        self._by_id: dict[str, str] = {}
        # Names of static members that others have taken over, by member id.
        self._replaced: dict[str, str] = {}
        self._joins = 0
        self._ready_at = self._deadline = 0.0
        self._resumed = generation is not None
        self._resumed_at: float | None = None  # when the first member joined after the resumption

    # ------------------------------------------------------------------------------------------ events

    def handle(self, address: str, request: Request, now: float) -> Replies:
        """Process a request that came from `address` at `now` (seconds). Return the messages to send."""
        replies = self.tick(now)
        if self.state is GroupState.DEAD:
            return [*replies, (address, _reply(request, Code.NOT_COORDINATOR, _CLOSED))]
        if request.member_id in self._replaced:
            detail = f"{self._replaced[request.member_id]!r} has been taken over by another member"
            return [*replies, (address, _reply(request, Code.FENCED_INSTANCE_ID, detail))]
        if isinstance(request, Join):
            return [*replies, *self._join(address, request, now)]
        seat = self.seats.get(self._by_id.get(request.member_id, ""))
        if seat is None:
            code = Code.NONE if isinstance(request, Leave) else Code.UNKNOWN_MEMBER_ID
            return [
                *replies,
                (address, _reply(request, code, f"{request.member_id!r} is not a member of the group")),
            ]
        self._heard(seat, address, request.sequence, now)
        if isinstance(request, Leave):
            return [*replies, *self._remove([seat], now), (address, _reply(request, Code.NONE))]
        if isinstance(request, Sync):
            return [*replies, *self._sync(seat, request)]
        code, detail = self._heartbeat(request)
        return [*replies, (address, _reply(request, code, detail, seat.sequence))]

    def tick(self, now: float) -> Replies:
        """Do what is due at `now`: remove members whose session has ended, and end phases."""
        replies = self._remove([s for s in self.seats.values() if now >= s.heard + s.session], now)
        if self.state is GroupState.COMPLETING_REBALANCE and now >= self._deadline and self.outcome:
            log.warning("group %s: leader %s did not assign in time", self.name, self.outcome.leader)
            replies += self._remove([self.seats[self.outcome.leader]], now)
        return replies + self._go_on(now)

    def next_deadline(self) -> float | None:
        """Return the next time at which `tick` has something to do, or None."""
        times = [seat.heard + seat.session for seat in self.seats.values()]
        if self.state is GroupState.COMPLETING_REBALANCE:
            times.append(self._deadline)
        elif self.state is GroupState.PREPARING_REBALANCE and any(self._waiting()):
            everybody = all(seat.waiting for seat in self.seats.values())
            times.append(self._ready_at if everybody else self._deadline)
        return min(times, default=None)

    def check(self, member_id: str, generation: int) -> Code:
        """Return NONE if this member may commit work of `generation` now, else the code of the reason."""
        if member_id in self._replaced:
            return Code.FENCED_INSTANCE_ID
        if member_id not in self._by_id:
            return Code.UNKNOWN_MEMBER_ID
        # The last generation stays in force until the next one has begun.
        begun = self.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE)
        valid = begun and self.outcome is not None and self.outcome.code is Code.NONE
        return Code.NONE if valid and generation == self.generation else Code.ILLEGAL_GENERATION

    def close(self) -> Replies:
        """Close the group. Waiting members, and all later requests, are answered NOT_COORDINATOR."""
        self.state = GroupState.DEAD
        replies = [_error(seat, Code.NOT_COORDINATOR, _CLOSED) for seat in self._waiting()]
        self.seats.clear()
        self._by_id.clear()
        return replies

    # -------------------------------------------------------------------------------------------- joins

    def _join(self, address: str, request: Join, now: float) -> Replies:
        name = _name(request)
        before = self.seats.get(name)
        same = before is not None and before.request.member_id == request.member_id
        if before and same and request.join <= before.request.join:
            if request.join < before.request.join:
                return []  # an older join, overtaken by the newest
            self._heard(before, address, request.sequence, now)
            return [] if before.waiting else [self._again(before)]
        refused = self._refused(request, before)
        if refused:
            return [(address, _reply(request, *refused))]
        old = before.request if before else None
        unchanged = old is not None and (old.offers, old.newest) == (request.offers, request.newest)
        if before is None:
            self._joins += 1
        elif not same:
            self._by_id.pop(before.request.member_id, None)
            self._replaced[before.request.member_id] = name
        order = before.order if before else self._joins
        self.seats[name] = Seat(request, address, order, request.sequence, now)
        self._by_id[request.member_id] = name
        self._scope = (request.mode, request.protocol_type)
        ahead = request.generation > self.generation
        if ahead:
            self.generation, self._resumed, self._resumed_at = request.generation, True, None
        elif unchanged and self._still_holds(name, same=same):
            return self._answer([self.seats[name]])
        completing = self.state is GroupState.COMPLETING_REBALANCE
        still_waits = completing and same and unchanged and before is not None and before.waiting
        if ahead or (self.state is not GroupState.PREPARING_REBALANCE and not still_waits):
            self._prepare(now, first=self.state is GroupState.EMPTY)
        return self._go_on(now)

    def _still_holds(self, name: str, *, same: bool) -> bool:
        """Return whether a rejoin with unchanged metadata gets the assignment in force, without a rebalance.

        A leader that joins again requests a rebalance. A static member that was restarted does not, even if it leads;
        otherwise its restart would move work.
        """
        known = self.outcome
        if self.state is not GroupState.STABLE or known is None or known.code is not Code.NONE:
            return False
        return not (same and name == known.leader)

    def _refused(self, request: Join, seat: Seat | None) -> tuple[Code, str] | None:
        """Return why a member may not join, or None."""
        least, most = self.settings.group_min_session_timeout_ms, self.settings.group_max_session_timeout_ms
        session, rebalance = request.session_ms, request.rebalance_ms
        if not least <= session <= most or rebalance < session:
            expected = f"expected a session of {least} to {most} ms, and a rebalance not shorter"
            found = f"found a session of {session} ms, a rebalance of {rebalance} ms"
            return Code.INVALID_SESSION_TIMEOUT, f"{found}; {expected}"
        furthest = max(self.generation, min(self.generation + _JUMP, _LATEST))
        if request.generation > furthest:
            detail = f"found generation {request.generation}, expected one up to {furthest}"
            return Code.INVALID_REQUEST, detail
        taken = self._by_id.get(request.member_id, _name(request)) != _name(request)
        other_kind = seat is not None and bool(seat.request.instance_id) != bool(request.instance_id)
        if not request.member_id or not request.offers or taken or other_kind:
            found = f"found member id {request.member_id!r} and {len(request.offers)} protocols"
            return Code.INVALID_REQUEST, f"{found}; expected an id of its own and at least one protocol"
        others = [s for s in self.seats.values() if s is not seat]
        if seat is None and len(others) >= self.settings.group_max_size:
            detail = f"found {len(others)} members, expected less than group.max.size"
            return Code.GROUP_MAX_SIZE_REACHED, detail
        asked = (request.mode, request.protocol_type)
        offers = [offer.pair for offer in request.offers]
        common = supported_by_all(s.pairs for s in others) if others else offers
        if others and asked != self._scope:
            (mode, kind), (mine, my_kind) = self._scope, asked
            detail = f"found {my_kind!r} ({mine.name.lower()}), expected {kind!r} ({mode.name.lower()})"
            return Code.INCONSISTENT_GROUP_PROTOCOL, detail
        if not set(common) & set(offers):
            offered, known = (", ".join(f"{name} {version}" for name, version in p) for p in (offers, common))
            return Code.INCONSISTENT_GROUP_PROTOCOL, f"found {offered}, expected one of {known}"
        return None

    # ------------------------------------------------------------------------------- sync and heartbeat

    def _sync(self, seat: Seat, request: Sync) -> Replies:
        known = self.outcome
        preparing = self.state is GroupState.PREPARING_REBALANCE
        leads = known is not None and known.leader == seat.name and request.generation == self.generation
        if known is None or not leads or preparing:
            code = Code.REBALANCE_IN_PROGRESS if leads else Code.ILLEGAL_GENERATION
            return [(seat.address, _reply(request, code, sequence=seat.sequence))]
        if self.state is GroupState.STABLE:
            return [self._again(seat)]
        if request.code is not Code.NONE:
            return self._fail(known, request.code, f"leader {seat.name}: {request.detail}")
        self._states = {name: state for name, state in request.states.items() if name in self.seats}
        self.state = GroupState.STABLE
        return self._answer([seat, *self._waiting()])

    def _heartbeat(self, request: Heartbeat) -> tuple[Code, str]:
        preparing = self.state is GroupState.PREPARING_REBALANCE
        if request.generation != self.generation:
            # During a rebalance, an older generation is no error: the member has to join in any case.
            making = preparing or self.state is GroupState.COMPLETING_REBALANCE
            return (Code.REBALANCE_IN_PROGRESS if making else Code.ILLEGAL_GENERATION), ""
        if preparing:
            return Code.REBALANCE_IN_PROGRESS, ""
        return (self.outcome.code, self.outcome.detail) if self.outcome else (Code.NONE, "")

    def _heard(self, seat: Seat, address: str, sequence: int, now: float) -> None:
        if sequence >= seat.sequence:
            # An overtaken message proves nothing about the present.
            seat.address, seat.sequence, seat.heard = address, sequence, now

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
            if not seat.request.instance_id:
                log.info("group %s: %s did not rejoin in time", self.name, seat.name)
                self._drop(seat)
        return self._complete(now)

    def _complete(self, now: float) -> Replies:
        self._resumed, self._resumed_at = False, None
        self.generation += 1
        protocol = choose_protocol([s.pairs for s in self.seats.values()], self.name)
        self._states = {}
        members = {name: self.seats[name].metadata(protocol) for name in sorted(self.seats)}
        single = self._scope[0] is Mode.SINGLE
        # A member with the newest version can read all metadata. The latest to join is the least likely to have gone.
        leader = max(self._waiting(), key=lambda s: (s.request.newest, s.order, s.name))
        self.outcome = Joined(
            *(self.name, "", 0),
            generation=self.generation,
            protocol=protocol[0],
            version=protocol[1],
            leader=leader.name if single else "",
            members=members,
        )
        if not single:
            self.state = GroupState.STABLE
            return self._answer(list(self._waiting()))
        self.state = GroupState.COMPLETING_REBALANCE
        self._deadline = now + leader.rebalance
        return self._answer([leader], Role.LEADER)

    def _fail(self, known: Joined, code: Code, detail: str) -> Replies:
        """End the generation with an error that all members get. The next join starts another generation."""
        log.error("group %s: generation %d failed: %s", self.name, self.generation, detail)
        self.outcome = replace(known, code=code, detail=detail, members={})
        self.state = GroupState.STABLE
        return self._answer([self.seats[known.leader], *self._waiting()])

    def _remove(self, gone: list[Seat], now: float) -> Replies:
        """Remove members, and continue or start a rebalance."""
        if not gone:
            return []
        leading = (
            self.outcome.leader if self.state is GroupState.COMPLETING_REBALANCE and self.outcome else None
        )
        for seat in gone:
            log.info("group %s: %s was removed", self.name, seat.name)
            self._drop(seat)
        if not self.seats:
            self.state, self.outcome = GroupState.EMPTY, None
            return []
        if self.state is GroupState.PREPARING_REBALANCE:
            return self._go_on(now)
        if any(seat.name == leading for seat in gone) and any(self._waiting()):
            return self._complete(now)  # the same members, another leader, another generation
        self._prepare(now)
        return self._go_on(now)

    def _drop(self, seat: Seat) -> None:
        del self.seats[seat.name]
        self._by_id.pop(seat.request.member_id, None)

    # ------------------------------------------------------------------------------------------ answers

    def _waiting(self) -> Iterator[Seat]:
        return (seat for seat in self.seats.values() if seat.waiting)

    def _answer(self, seats: list[Seat], role: Role = Role.MEMBER) -> Replies:
        for seat in seats:
            seat.waiting = False
        return [self._outcome_of(seat, role) for seat in seats]

    def _outcome_of(self, seat: Seat, role: Role) -> tuple[str, Response]:
        """Return the outcome for a member: all metadata for the mode EVERY or the leader, the state of a `MEMBER`."""
        if self.outcome is None:
            return _error(seat, Code.REBALANCE_IN_PROGRESS)
        listed = not self.outcome.leader or role is Role.LEADER
        return seat.address, replace(
            self.outcome,
            member_id=seat.request.member_id,
            sequence=seat.sequence,
            join=seat.request.join,
            role=role,
            name=seat.name,
            members=self.outcome.members if listed else {},
            state=self._states.get(seat.name, b"") if role is Role.MEMBER else b"",
        )

    def _again(self, seat: Seat) -> tuple[str, Response]:
        """Return the answer to a repeated join."""
        known = self.outcome
        completing = self.state is GroupState.COMPLETING_REBALANCE
        others_turn = completing and known is not None and known.leader != seat.name
        if known is None or self.state is GroupState.PREPARING_REBALANCE or others_turn:
            return _error(seat, Code.REBALANCE_IN_PROGRESS)
        return self._outcome_of(seat, Role.LEADER if completing else Role.MEMBER)


def _error(seat: Seat, code: Code, detail: str = "") -> tuple[str, Response]:
    """Return the answer to a member's newest join that there is no outcome."""
    return seat.address, _reply(seat.request, code, detail, seat.sequence)


def _reply(request: Request, code: Code, detail: str = "", sequence: int | None = None) -> Response:
    """Return the answer to a request that has no outcome. `sequence`: the member's highest, if it is a member."""
    head = (request.group, request.member_id, request.sequence if sequence is None else sequence)
    if isinstance(request, Join):
        return Joined(*head, request.join, code, detail)
    return Ack(*head, 0 if isinstance(request, Leave) else request.generation, code, detail)


# ------------------------------------------------------------------------------------------------ all groups


class Coordinator:
    """Coordinates any number of groups. Methods take messages and the time (seconds), and return messages.

    - `resume`: the generations of groups of another coordinator; these groups continue from them

    The first rebalance of a resumed group waits for a session, because members of the other coordinator may still be
    working.

    >>> coordinator = Coordinator()
    >>> from taskplace.groups.messages import Heartbeat
    >>> [(address, ack)] = coordinator.handle("there", Heartbeat("orders", "m1", 1, 7), now=0.0)
    >>> ack.code.name
    'UNKNOWN_MEMBER_ID'
    """

    def __init__(
        self, settings: CoordinatorSettings | None = None, *, resume: Mapping[str, int] | None = None
    ) -> None:
        self.settings = settings or CoordinatorSettings()
        self.groups: dict[str, Group] = {}
        self._resume = dict(resume or {})

    def handle(self, address: str, request: Request, now: float) -> Replies:
        """Process a request from `address`. Return the messages to send, each with its address."""
        name = request.group
        group = self.groups.get(name)
        if group is None:
            group = Group(name, self.settings, generation=self._resume.get(name))
            if isinstance(request, Join):  # any other request to an unknown group gets a temporary one
                self.groups[name] = group
        return group.handle(address, request, now)

    def tick(self, now: float) -> Replies:
        """Do what is due at `now`: end sessions and phases."""
        return [reply for group in self.groups.values() for reply in group.tick(now)]

    def next_deadline(self) -> float | None:
        """Return the next time at which `tick` has something to do, or None."""
        times = (group.next_deadline() for group in self.groups.values())
        return min((t for t in times if t is not None), default=None)

    def close(self, name: str) -> Replies:
        """Close a group, for example because another coordinator takes it over. Its members then look for that one."""
        return self.groups[name].close()

    def generations(self) -> dict[str, int]:
        """Return the newest generation of every group, in the form of `resume`."""
        return self._resume | {name: group.generation for name, group in self.groups.items()}

    def fence(self, name: str, member_id: str, generation: int) -> None:
        """Raise `StaleGeneration` unless this member may do work of this generation now.

        >>> Coordinator().fence("orders", "m1", 3)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        taskplace.groups.messages.StaleGeneration: orders: found m1 in generation 3, expected ... UNKNOWN_MEMBER_ID
        """
        group = self.groups.get(name)
        code = group.check(member_id, generation) if group else Code.UNKNOWN_MEMBER_ID
        if code is not Code.NONE:
            newest = self.generations().get(name, 0)
            found = f"{name}: found {member_id} in generation {generation}"
            raise StaleGeneration(f"{found}, expected a member in generation {newest}: {code.name}")
