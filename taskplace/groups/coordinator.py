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
- A group that has been empty for `forget_after` seconds is removed, except for its generation. So the group continues
  from it when it comes back. A coordinator that takes over needs the value of `generations()`.

Non-goals: transport and encoding (`taskplace.groups.messages`), choosing among coordinators, durable storage.

Source: "JoinGroup Response", "Protocol" and "Single Client Assignor" in the client-side assignment proposal; KIP-345
(static membership).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeAlias, TypeVar

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
    Request,
    Response,
    Role,
    StaleGeneration,
    Sync,
)
from taskplace.groups.settings import CoordinatorSettings

log = logging.getLogger(__name__)

Pair = tuple[str, int]  # a protocol's name and version
Replies: TypeAlias = list[tuple[str, Response]]  # address, message
K = TypeVar("K", bound=Hashable)

# A group continues from a member's generation, but a single jump must not use up the numbers that the wire allows.
_JUMP, _LATEST = 2**32, 2**52
_CLOSED = "the group is closed on this coordinator"
_REMEMBERED = 1_000  # replaced members that get FENCED_INSTANCE_ID; older ones get UNKNOWN_MEMBER_ID


# ------------------------------------------------------------------------------------ the protocol and the leader


def supported_by_all(preferences: Iterable[Sequence[Pair]]) -> list[Pair]:
    """Return the protocols that are in every list, in the order of the first list.

    >>> supported_by_all([[("range", 1), ("range", 0)], [("range", 0)]])
    [('range', 0)]
    """
    lists = [list(dict.fromkeys(listed)) for listed in preferences]
    common = set(lists[0]).intersection(*lists[1:]) if lists else set()
    return [pair for pair in lists[0] if pair in common] if lists else []


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


class Candidate(NamedTuple):
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


# -------------------------------------------------------------------------------------------------- one group


class GroupState(Enum):
    """The states of a group, named as in Kafka."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True)
class Description:
    """The present state of a group, for people and for tests."""

    group: str
    state: GroupState
    generation: int
    protocol: Pair | None
    leader: str
    members: tuple[str, ...]


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


@dataclass
class Outcome:
    """The outcome of a rebalance: the chosen protocol, the leader, and the members' metadata and states."""

    generation: int
    mode: Mode
    protocol: Pair
    leader: str = ""
    members: tuple[tuple[str, bytes], ...] = ()
    states: dict[str, bytes] = field(default_factory=dict)
    code: Code = Code.NONE
    detail: str = ""

    def answer(self, seat: Seat, role: Role = Role.MEMBER) -> Joined:
        """Return the answer to a member: all metadata for the mode EVERY or the leader, and the state of a `MEMBER`."""
        listed = self.code is Code.NONE and (self.mode is Mode.EVERY or role is Role.LEADER)
        return Joined(
            seat.request.group,
            seat.request.member_id,
            seat.sequence,
            seat.request.join,
            self.code,
            self.detail,
            self.generation,
            *self.protocol,
            role=role,
            name=seat.name,
            leader=self.leader,
            members=self.members if listed else (),
            state=self.states.get(seat.name, b"") if role is Role.MEMBER else b"",
        )


class Group:
    """One group. `handle` processes a request, `tick` the time; both return messages with their addresses.

    - `generation`: the generation to continue from. A group that continues one (`resumed`, or a member knows a newer
      generation) waits once for a whole session, because unknown members may still be working

    Lifetime: `outcome` belongs to the newest generation. `_ready_at` and `_deadline` belong to the current phase.
    `_scope` is the mode and protocol type; an empty group has none. Times are seconds.

    >>> group = Group("orders", CoordinatorSettings(group_initial_rebalance_delay_ms=0))
    >>> from taskplace.groups.messages import Mode, Offer
    >>> join = Join("orders", "m1", 1, "", 1, 45_000, 300_000, Mode.EVERY, "consumer", 0, 0, (Offer("range"),))
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
        self.name = name
        self.settings = settings
        self.generation = generation
        self.state = GroupState.EMPTY
        self.outcome: Outcome | None = None
        self.seats: dict[str, Seat] = {}
        self._scope: tuple[Mode, str] | None = None
        self._by_id: dict[str, str] = {}
        self._replaced: dict[
            str, str
        ] = {}  # names of static members that others have taken over, by member id
        self._joins = 0
        self._ready_at = self._deadline = 0.0
        self._resumed = resumed
        self._resumed_at: float | None = None  # when the first member joined after the resumption
        self._leader_rule = leader_rule

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

    def describe(self) -> Description:
        """Return the group as it is now."""
        known = self.outcome if self.state is GroupState.STABLE else None
        protocol, leader = (known.protocol, known.leader) if known else (None, "")
        return Description(
            self.name, self.state, self.generation, protocol, leader, members=tuple(sorted(self.seats))
        )

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
            self._fence(before)
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
        least, most = self.settings.group_min_session_timeout_ms, self.settings.group_max_session_timeout_ms
        if not least <= request.session_ms <= most or request.rebalance_ms < request.session_ms:
            detail = f"found a session of {request.session_ms} ms, a rebalance of {request.rebalance_ms} ms"
            expected = f"expected a session of {least} to {most} ms, and a rebalance not shorter"
            return Code.INVALID_SESSION_TIMEOUT, f"{detail}; {expected}"
        furthest = max(self.generation, min(self.generation + _JUMP, _LATEST))
        if request.generation > furthest:
            detail = f"found generation {request.generation}, expected one up to {furthest}"
            return Code.INVALID_REQUEST, detail
        taken = self._by_id.get(request.member_id, _name(request)) != _name(request)
        other_kind = seat is not None and bool(seat.request.instance_id) != bool(request.instance_id)
        if not request.member_id or not request.offers or taken or other_kind:
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
        common = supported_by_all(s.pairs for s in others)
        offers = [offer.pair for offer in request.offers]
        if not set(common) & set(offers):
            offered, expected = (
                ", ".join(f"{name} {version}" for name, version in pairs) for pairs in (offers, common)
            )
            return Code.INCONSISTENT_GROUP_PROTOCOL, f"found {offered}, expected one of {expected}"
        return None

    def _fence(self, seat: Seat) -> None:
        """Fence a static member that another one has replaced."""
        self._by_id.pop(seat.request.member_id, None)
        self._replaced[seat.request.member_id] = seat.name
        if len(self._replaced) > _REMEMBERED:
            del self._replaced[next(iter(self._replaced))]

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
        known.states = {name: state for name, state in request.states if name in self.seats}
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
        if protocol is None or self._scope is None:  # `_refused` keeps one in common, join by join
            raise GroupError(
                f"group {self.name}: the members {sorted(self.seats)} have no protocol in common"
            )
        mode = self._scope[0]
        members = tuple((name, self.seats[name].metadata(protocol)) for name in sorted(self.seats))
        self.outcome = Outcome(self.generation, mode, protocol, members=members)
        if mode is Mode.EVERY:
            self.state = GroupState.STABLE
            return self._answer(list(self._waiting()))
        leader = self._leader_rule([Candidate(s.name, s.request.newest, s.order) for s in self._waiting()])
        self.outcome.leader = leader
        self.state = GroupState.COMPLETING_REBALANCE
        self._deadline = now + self.seats[leader].rebalance
        return self._answer([self.seats[leader]], Role.LEADER)

    def _fail(self, known: Outcome, code: Code, detail: str) -> Replies:
        """End the generation with an error that all members get. The next join starts another generation."""
        log.error("group %s: generation %d failed: %s", self.name, self.generation, detail)
        self.outcome = Outcome(
            self.generation, known.mode, known.protocol, known.leader, code=code, detail=detail
        )
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
            self.state, self.outcome, self._scope = GroupState.EMPTY, None, None
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
        replies: Replies = []
        for seat in seats:
            if self.outcome:
                seat.waiting = False
                replies.append((seat.address, self.outcome.answer(seat, role)))
        return replies

    def _again(self, seat: Seat) -> tuple[str, Response]:
        """Return the answer to a repeated join."""
        known = self.outcome
        completing = self.state is GroupState.COMPLETING_REBALANCE
        others_turn = completing and known is not None and known.leader != seat.name
        if known is None or self.state is GroupState.PREPARING_REBALANCE or others_turn:
            return _error(seat, Code.REBALANCE_IN_PROGRESS)
        return seat.address, known.answer(seat, Role.LEADER if completing else Role.MEMBER)


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
        if request.group not in self.groups and isinstance(request, Join):
            self.groups[request.group] = self._new(request.group)
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
            raise StaleGeneration(
                f"{name}: found {member_id} in generation {generation}, expected a member in generation "
                f"{self.generations().get(name, 0)}: {code.name}"
            )

    def _new(self, name: str) -> Group:
        generation, resumed = self._generations.get(name, 0), name in self._resumed
        self._resumed.discard(name)
        return Group(
            name, self.settings, generation=generation, resumed=resumed, leader_rule=self._leader_rule
        )

    def _known(self, name: str) -> Group:
        if name not in self.groups:
            known = ", ".join(sorted(self.groups)[:20]) or "none"
            raise InputError("group", found=name, expected="a group of this coordinator", hint=known)
        return self.groups[name]

    def _note(self, group: Group, now: float) -> None:
        """Note since when a group is empty."""
        if group.state is not GroupState.EMPTY:
            self._empty_since.pop(group.name, None)
        elif group.name in self.groups:
            self._empty_since.setdefault(group.name, now)
