"""The coordinator's side of one group: a state machine without threads and without a clock.

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
"""

from __future__ import annotations

from taskplace.groups.coordinator import (
    Description,
    GroupState,
    LeaderRule,
    Phases,
    Replies,
    Seat,
    newest_then_latest,
    supported_by_all,
)
from taskplace.groups.messages import Ack, Code, Heartbeat, Join, Joined, Leave, Request, Response, Role, Sync
from taskplace.groups.settings import CoordinatorSettings

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
