"""The member's side of a group: a state machine without threads and without a clock.

    UNJOINED --start--> JOINING --Joined--> STABLE --a rebalance, or the session has ended--> JOINING
                          |  ^                 |
               leader: LEADING --Sync, Joined--+          FAILED and LEFT are final.

Properties:
- Rebalancing is eager. A member owns its assignment from an `Assigned` to the next `Revoked`, and there is always a
  `Revoked` before it joins again.
- **A member stops in time.** Its own session ends no later than the coordinator's view of it, because it counts from
  when it *sent* the newest message that the coordinator has received. So a member that was cut off has stopped before
  its work goes to others. The clocks must run equally fast, but need not agree.
- A request without an answer is repeated every `heartbeat.interval.ms`. Only answers to the newest join count.
- After a disagreement on metadata, the member joins again, after a back-off that doubles. It gives up after more than
  `metadata.max.retries` disagreements in a row, if they lasted at least two sessions. So the loop ends, but not because
  of a dead member whose session is still running. The members that differ from the majority give up first, and the
  others continue.
- An exception of the protocol ends the membership, and the member leaves the group. Otherwise it would keep its place
  without working.
- A static member leaves without a message, because it is expected back within its session.

The embedded protocol is the part that a program supplies (`GroupProtocol`); `ConsumerProtocol` is one. A member calls
`offers` before every join, `lead` if it is the leader (mode SINGLE), `accept` with the outcome, and `lost` when its
assignment is no longer valid. The calls never overlap.

Source: "Consumer Embedded Protocol" and "Single Client Assignor" in the client-side assignment proposal.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Protocol

from msgspec.structs import replace

from taskplace import validation
from taskplace.groups.messages import (
    Ack,
    Code,
    GroupError,
    GroupFailed,
    Heartbeat,
    Int32,
    Join,
    Joined,
    Leave,
    Mode,
    Offer,
    Positive32,
    Request,
    Response,
    Role,
    Sync,
)
from taskplace.model.keys import Configuration, about

log = logging.getLogger(__name__)

_REJOIN = (Code.REBALANCE_IN_PROGRESS, Code.ILLEGAL_GENERATION, Code.UNKNOWN_MEMBER_ID)


class MemberSettings(Configuration, frozen=True, kw_only=True):
    """The settings of a member: Kafka's keys and defaults, times in milliseconds.

    `max.poll.interval.ms` must be at least `session.timeout.ms`. Otherwise a rebalance could complete without a member
    that is still working.

    >>> MemberSettings(session_timeout_ms=10_000, heartbeat_interval_ms=10_000)
    Traceback (most recent call last):
    taskplace.errors.InputError: config.heartbeat.interval.ms: found 10000, expected an integer of at least 1, \
at most 5000
    """

    session_timeout_ms: Annotated[Positive32, about("a silent member is removed after this long")] = 45000
    heartbeat_interval_ms: Annotated[Positive32, about("interval of heartbeats and repeated requests")] = 3000
    max_poll_interval_ms: Annotated[Positive32, about("longest wait for members to rejoin")] = 300000
    retry_backoff_ms: Annotated[Positive32, about("wait after a disagreement; it doubles each time")] = 100
    retry_backoff_max_ms: Annotated[Positive32, about("longest wait, plus or minus 20 %, at random")] = 1000
    group_instance_id: Annotated[str, about("name that survives restarts (static membership)")] = ""
    metadata_max_retries: Annotated[
        Int32,
        about("disagreements in a row, over two sessions or more, before giving up (not Kafka's)"),
    ] = 10
    metadata_max_age_ms: Annotated[Int32, about("a runner's interval of `refresh`; 0: never")] = 300000

    def _agree(self, path: str) -> None:
        # At least two heartbeats per session.
        most = self.session_timeout_ms // 2
        validation.integer(self.heartbeat_interval_ms, f"{path}.heartbeat.interval.ms", 1, most)
        validation.integer(self.max_poll_interval_ms, f"{path}.max.poll.interval.ms", self.session_timeout_ms)
        validation.integer(self.retry_backoff_max_ms, f"{path}.retry.backoff.max.ms", self.retry_backoff_ms)


class TryAgain(GroupError):
    """Raised by `accept` or `offers`: the member shall join again, with what `offers` returns then.

    - `at_once`: no back-off before the first retry
    - `code`: the error code if the member gives up
    - `patience`: multiplies the limits after which the member gives up (`metadata.max.retries` in a row, and two
      sessions), for members that shall give up after others
    - `otherwise`: if given, the member does not give up, but takes the value that this function returns. `patience`
      then has no effect
    """

    def __init__(
        self,
        reason: str,
        *,
        at_once: bool = False,
        code: Code = Code.METADATA_DISAGREEMENT,
        patience: int = 1,
        otherwise: Callable[[], Any] | None = None,
    ) -> None:
        self.at_once = at_once
        self.code = code
        self.patience = patience
        self.otherwise = otherwise
        super().__init__(reason)


class GroupProtocol(Protocol):
    """The interface of an embedded protocol."""

    protocol_type: str
    mode: Mode

    @property
    def newest(self) -> int:
        """The newest metadata version that it knows. Members with the newest version are preferred as leaders."""

    def offers(self) -> Sequence[Offer]:
        """Return the supported protocols by preference, each with this member's current metadata."""

    def lead(self, outcome: Joined, /) -> Mapping[str, bytes]:
        """Return a state for every name in `outcome.members`. All members get an exception as an error."""

    def accept(self, outcome: Joined, /) -> Any:
        """Return this member's assignment. Raise `TryAgain` to join again, or `GroupFailed` to stop."""

    def lost(self) -> None:
        """Release the value that `accept` returned last. It does not belong to this member any more."""


@dataclass(frozen=True, slots=True)
class Send:
    """Effect: send `message` to the coordinator."""

    message: Request


@dataclass(frozen=True, slots=True)
class Assigned:
    """Effect: `value` belongs to this member from now on, in `generation`. `leader`: the leader's name, or ""."""

    generation: int
    value: Any
    leader: str = ""


@dataclass(frozen=True, slots=True)
class Revoked:
    """Effect: the assignment of `generation` does not belong to this member any more. Stop working on it now."""

    generation: int
    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """Effect: the membership has ended with `error`."""

    error: GroupError


Effect = Send | Assigned | Revoked | Failed


class MemberState(Enum):
    """The state of a member."""

    UNJOINED = "unjoined"
    JOINING = "joining"
    LEADING = "leading"
    STABLE = "stable"
    FAILED = "failed"
    LEFT = "left"


_INACTIVE = (MemberState.UNJOINED, MemberState.FAILED, MemberState.LEFT)


class Member:
    """One member of one group. Its methods take the time (seconds of any steady clock) and return effects.

    - `member_id`: a new id for each start of a member, for example a UUID
    - `owned`: the last `Assigned`, or None if it was revoked
    - `generation`: the newest known generation

    >>> from taskplace.groups.consumer import ConsumerProtocol
    >>> from taskplace.groups.metadata import Topics
    >>> member = Member("orders", "m1", ConsumerProtocol(["orders"], fetch=lambda: Topics({"orders": 2})))
    >>> [sent] = member.start(now=0.0)
    >>> sent.message.protocol_type, member.state.value
    ('consumer', 'joining')
    """

    def __init__(
        self, group: str, member_id: str, protocol: GroupProtocol, settings: MemberSettings | None = None
    ) -> None:
        self.group = group
        self.member_id = member_id
        self.protocol = protocol
        self.settings = settings or MemberSettings()
        self.state = MemberState.UNJOINED
        self.generation = 0
        self.owned: Assigned | None = None
        self._join = 0
        self._sequence = 0
        self._sent: dict[int, float] = {}
        self._lease = 0.0
        self._next_send = 0.0
        self._rejoin_at: float | None = None
        self._disagreements = 0
        self._disagreed_at = 0.0  # the time of the first one
        self._request: Join | Sync | None = None  # repeated until it is answered
        # Spreads the back-offs of members that disagree. Seeded, so equal in every run.
        self._chance = random.Random(f"{group}/{member_id}")

    # ------------------------------------------------------------------------------------------ events

    def start(self, now: float) -> list[Effect]:
        """Join the group."""
        return self._begin_join(now)

    def rejoin(self, now: float, reason: str = "metadata has changed") -> list[Effect]:
        """Join again, because this member's metadata has changed, or because a leader wants to assign again."""
        if self.state in _INACTIVE:
            return []
        return [*self._revoke(reason), *self._begin_join(now)]

    def leave(self, now: float, *, for_good: bool = False) -> list[Effect]:
        """Leave the group. A static member sends a message only if it leaves for good."""
        if self.state in _INACTIVE:
            return []
        effects = self._revoke("left")
        self.state = MemberState.LEFT
        if self.settings.group_instance_id and not for_good:
            return effects
        return [*effects, self._send(Leave(self.group, self.member_id, 0), now)]

    def receive(self, message: Response, now: float) -> list[Effect]:
        """Process a message from the coordinator."""
        mine = message.member_id == self.member_id and message.group == self.group
        if self.state in _INACTIVE or not mine:
            return []
        # An ended session stays ended, even if the answer was only slow: another member may have the partitions.
        effects = self._lapse(now)
        if effects or message.code is Code.NOT_COORDINATOR:
            return effects  # the next repetition of the request reaches the new coordinator
        return self._joined(message, now) if isinstance(message, Joined) else self._acked(message, now)

    def tick(self, now: float) -> list[Effect]:
        """Do what is due at `now`: end the session, join again, repeat a request, or send a heartbeat."""
        if self.state in _INACTIVE:
            return []
        effects = self._lapse(now)
        if effects:
            return effects
        if self._rejoin_at is not None and now >= self._rejoin_at:
            return self._begin_join(now)
        if now < self._next_send:
            return []
        if self.state is MemberState.STABLE:
            return [self._send(Heartbeat(self.group, self.member_id, 0, self.generation), now)]
        return [self._send(self._request, now)] if self._request else []

    def next_deadline(self) -> float | None:
        """Return the next time at which `tick` has something to do, or None."""
        if self.state in _INACTIVE:
            return None
        # A member without metadata (its `offers` raised `TryAgain`) has nothing to send.
        silent = self.state is MemberState.JOINING and self._request is None
        times = [] if silent else [self._next_send]
        if self.owned:
            times.append(self._lease)
        if self._rejoin_at is not None:
            times.append(self._rejoin_at)
        return min(times, default=None)

    # ----------------------------------------------------------------------------------------- answers

    def _joined(self, m: Joined, now: float) -> list[Effect]:
        if m.join != self._join:
            return []
        if m.code in _REJOIN:
            return self.rejoin(now, m.code.name.lower())
        if m.code is not Code.NONE:
            return self._fail(GroupFailed(m.code, m.detail), now)
        self._renew(m.sequence)
        if self.state is MemberState.STABLE or m.generation < self.generation:
            return []
        if now >= self._lease:
            return self._begin_join(now)  # the answer took longer than a session
        self.generation = m.generation
        return self._lead(m, now) if m.role is Role.LEADER else self._accept(m, now)

    def _acked(self, m: Ack, now: float) -> list[Effect]:
        if self.state is MemberState.JOINING or m.generation != self.generation:
            return []
        if m.code in _REJOIN:
            if m.code is Code.REBALANCE_IN_PROGRESS:
                self._renew(m.sequence)
            return self.rejoin(now, m.code.name.lower())
        if m.code is not Code.NONE:
            return self._fail(GroupFailed(m.code, m.detail), now)
        self._renew(m.sequence)
        return []

    def _lead(self, outcome: Joined, now: float) -> list[Effect]:
        if isinstance(self._request, Sync) and self._request.generation == outcome.generation:
            return [self._send(self._request, now)]  # the same request to lead, repeated
        try:
            states, code, detail = dict(self.protocol.lead(outcome)), Code.NONE, ""
        except Exception as error:  # the group must learn that there is no assignment
            log.exception("group %s: leader %s could not assign", self.group, outcome.name)
            states, code = {}, Code.ASSIGNMENT_FAILED
            detail = f"{type(error).__name__}: {error}"
        self.state = MemberState.LEADING
        self._request = Sync(self.group, self.member_id, 0, outcome.generation, code, detail, states=states)
        return [self._send(self._request, now)]

    def _accept(self, outcome: Joined, now: float) -> list[Effect]:
        self.state = MemberState.STABLE
        self._request = None
        self._next_send = now + self.settings.heartbeat_interval_ms / 1000
        effects = self._take(outcome, lambda: self.protocol.accept(outcome), now)
        if self.owned:
            self._disagreements = 0
        return effects

    def _take(self, outcome: Joined, value: Callable[[], Any], now: float) -> list[Effect]:
        try:
            self.owned = Assigned(outcome.generation, value(), outcome.leader)
        except TryAgain as retry:
            return self._try_again(retry, now, outcome)
        except Exception as error:
            return self._fail(self._final(error, "could not take over its assignment"), now)
        return [self.owned]

    def _final(self, error: Exception, what: str) -> GroupError:
        """Return the error that ends this membership: a `GroupError` unchanged, any other as a `GroupFailed`."""
        if isinstance(error, GroupError):
            return error
        log.error("group %s: %s %s", self.group, self.member_id, what, exc_info=error)
        return GroupFailed(Code.ASSIGNMENT_FAILED, f"{what}: {type(error).__name__}: {error}")

    def _try_again(self, retry: TryAgain, now: float, outcome: Joined | None = None) -> list[Effect]:
        if not self._disagreements:
            self._disagreed_at = now
        self._disagreements += 1
        times = 1 if retry.otherwise else retry.patience
        patience = times * 2 * self.settings.session_timeout_ms / 1000
        most = times * self.settings.metadata_max_retries
        if self._disagreements > most and now >= self._disagreed_at + patience:
            if retry.otherwise and outcome:
                # The disagreement lasts, so its count is kept.
                log.warning(
                    "group %s: %s continues without the members that disagree: %s",
                    self.group,
                    self.member_id,
                    retry,
                )
                return self._take(outcome, retry.otherwise, now)
            detail = f"gave up after {self._disagreements} rebalances in a row: {retry}"
            return self._fail(GroupFailed(retry.code, detail), now)
        log.info("group %s: %s rejoins: %s", self.group, self.member_id, retry)
        if retry.at_once and self._disagreements == 1 and outcome:
            return self._begin_join(now)
        least, most = self.settings.retry_backoff_ms, self.settings.retry_backoff_max_ms
        wait = min(most, least * 2 ** min(self._disagreements - 1, 31)) / 1000
        self._rejoin_at = now + wait * self._chance.uniform(0.8, 1.2)
        return []

    # ------------------------------------------------------------------------------------------- steps

    def _begin_join(self, now: float) -> list[Effect]:
        try:
            offers = tuple(self.protocol.offers())
        except TryAgain as retry:
            self.state = MemberState.JOINING
            self._request = self._rejoin_at = None
            return self._try_again(retry, now)
        except Exception as error:
            return self._fail(self._final(error, "could not state its subscription"), now)
        self._join += 1
        self.state = MemberState.JOINING
        self._rejoin_at = None
        self._request = Join(
            group=self.group,
            member_id=self.member_id,
            instance_id=self.settings.group_instance_id,
            sequence=0,
            join=self._join,
            session_ms=self.settings.session_timeout_ms,
            rebalance_ms=self.settings.max_poll_interval_ms,
            mode=Mode(self.protocol.mode),
            protocol_type=self.protocol.protocol_type,
            newest=self.protocol.newest,
            generation=self.generation,
            offers=offers,
        )
        return [self._send(self._request, now)]

    def _send(self, request: Request, now: float) -> Send:
        self._sequence += 1
        if len(self._sent) >= 1_000:
            del self._sent[next(iter(self._sent))]  # without answers, the oldest entry is useless by now
        self._sent[self._sequence] = now
        self._next_send = now + self.settings.heartbeat_interval_ms / 1000
        return Send(replace(request, sequence=self._sequence))

    def _renew(self, sequence: int) -> None:
        """Extend the session: it counts from when the message was sent that the coordinator has received."""
        sent = self._sent.get(sequence)
        if sent is not None:
            self._lease = max(self._lease, sent + self.settings.session_timeout_ms / 1000)
            self._sent = {s: at for s, at in self._sent.items() if s >= sequence}

    def _lapse(self, now: float) -> list[Effect]:
        if self.owned is None or now < self._lease:
            return []
        return [*self._revoke("no answer from the coordinator for a whole session"), *self._begin_join(now)]

    def _revoke(self, reason: str) -> list[Effect]:
        if self.owned is None:
            return []
        revoked = Revoked(self.owned.generation, reason)
        self.owned = None
        self.protocol.lost()
        return [revoked]

    def _fail(self, error: GroupError, now: float) -> list[Effect]:
        effects = self._revoke("failed")
        self.state = MemberState.FAILED
        self._request = self._rejoin_at = None
        effects.append(Failed(error))
        if isinstance(error, GroupFailed) and error.code is Code.FENCED_INSTANCE_ID:
            return effects  # another member has the place now
        return [*effects, self._send(Leave(self.group, self.member_id, 0), now)]
