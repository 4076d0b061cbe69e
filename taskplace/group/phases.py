"""The phases of a group's rebalance (prepare, complete, answer), and the removal of members.

`Phases` has the members and the outcome. `taskplace.groups.coordinator` adds the requests.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TypeAlias

from taskplace.groups.coordinator import Candidate, GroupState, LeaderRule, Outcome, Seat, choose_protocol
from taskplace.groups.messages import Code, GroupError, Mode, Response, Role
from taskplace.groups.settings import CoordinatorSettings

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
