"""Runs a group on threads of one process: for examples, and as a model of a runner over a network.

The coordinator and each member have a thread. They exchange messages through queues; over connections, they would
exchange `encode(message)`. All decisions are in `Coordinator` and `Member`. A runner only waits for the next message or
deadline.
"""

from __future__ import annotations

import logging
import math
import queue
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from taskplace.groups.coordinator import Coordinator
from taskplace.groups.member import Assigned, Effect, Failed, GroupProtocol, Member, Revoked, Send
from taskplace.groups.messages import Code, GroupError, GroupFailed, Request, Response
from taskplace.groups.settings import CoordinatorSettings, MemberSettings
from taskplace.logs import RepeatedWarnings

log = logging.getLogger(__name__)

_Clock = Callable[[], float]
_TIME = object()  # instead of a letter: a deadline has come


class LocalCoordinator:
    """A coordinator on its own thread. It is a context manager.

    >>> with LocalCoordinator() as coordinator:
    ...     coordinator.generations()
    {}
    """

    def __init__(
        self, settings: CoordinatorSettings | None = None, *, clock: _Clock = time.monotonic
    ) -> None:
        self._machine = Coordinator(settings)
        self._clock = clock
        self._inbox: queue.SimpleQueue[tuple[str, Request] | None] = queue.SimpleQueue()
        self._members: dict[str, queue.SimpleQueue[Any]] = {}
        self._lock = threading.Lock()  # guards `_machine`, because any thread may call `fence`
        self._thread = threading.Thread(target=self._run, name="coordinator", daemon=True)

    def __enter__(self) -> LocalCoordinator:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._inbox.put(None)
        self._thread.join()

    def generations(self) -> dict[str, int]:
        """Return the newest generation of every group."""
        with self._lock:
            return self._machine.generations()

    def fence(self, group: str, member_id: str, generation: int) -> None:
        """Raise `StaleGeneration` unless this member may work in this generation now."""
        with self._lock:
            self._machine.fence(group, member_id, generation)

    def connect(self, address: str, inbox: queue.SimpleQueue[Any]) -> None:
        """Deliver messages for `address` to `inbox`."""
        self._members[address] = inbox

    def disconnect(self, address: str) -> None:
        """Stop delivering messages for `address`."""
        self._members.pop(address, None)

    def post(self, address: str, request: Request) -> None:
        """Give the coordinator a message from `address`."""
        self._inbox.put((address, request))

    def _run(self) -> None:
        while True:
            with self._lock:
                deadline = self._machine.next_deadline()
            letter = _next(self._inbox, deadline, self._clock)
            if letter is None:
                return
            with self._lock:
                now = self._clock()
                replies = (
                    self._machine.tick(now)
                    if letter is _TIME
                    else self._machine.handle(letter[0], letter[1], now)
                )
            for address, message in replies:
                inbox = self._members.get(address)
                if inbox is not None:
                    inbox.put(message)


class LocalMember:
    """A member on its own thread. Callbacks run on that thread, in order, and should be short.

    The callbacks are `on_assigned(Assigned)`, `on_revoked(Revoked)` and `on_failed(GroupError)`. If one raises an
    exception, the member leaves the group. If the protocol has a method `refresh`, as `ConsumerProtocol` has, it is
    called every `metadata.max.age.ms`; if it returns true, the member joins again. `kill` simulates a crash: the member
    stops without a message.

    >>> from taskplace.groups.membership import ConsumerProtocol, Topics
    >>> view = Topics({"orders": 2})
    >>> with LocalCoordinator(CoordinatorSettings(group_initial_rebalance_delay_ms=0)) as coordinator:
    ...     member = LocalMember(coordinator, "shop", ConsumerProtocol(["orders"], fetch=lambda: view))
    ...     got = member.wait_for(lambda owned: owned is not None, timeout=10)
    ...     member.leave()
    >>> [p.partition for p in got.value]
    [0, 1]
    """

    def __init__(
        self,
        coordinator: LocalCoordinator,
        group: str,
        protocol: GroupProtocol,
        settings: MemberSettings | None = None,
        *,
        on_assigned: Callable[[Assigned], None] | None = None,
        on_revoked: Callable[[Revoked], None] | None = None,
        on_failed: Callable[[GroupError], None] | None = None,
        clock: _Clock = time.monotonic,
    ) -> None:
        self.member_id = uuid.uuid4().hex
        self.error: GroupError | None = None
        self._machine = Member(group, self.member_id, protocol, settings)
        self._repeated = RepeatedWarnings()
        self._refresh: Callable[[], bool] | None = getattr(protocol, "refresh", None)
        self._max_age = (settings or MemberSettings()).metadata_max_age_ms / 1000
        self._coordinator = coordinator
        self._clock = clock
        self._on_assigned, self._on_revoked, self._on_failed = on_assigned, on_revoked, on_failed
        self._inbox: queue.SimpleQueue[Response | str] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._owned: Assigned | None = None
        coordinator.connect(self.member_id, self._inbox)
        self._thread = threading.Thread(target=self._run, name=f"member-{self.member_id[:8]}", daemon=True)
        self._thread.start()

    @property
    def owned(self) -> Assigned | None:
        """The present assignment of this member, or None."""
        with self._changed:
            return self._owned

    def wait_for(self, wanted: Callable[[Assigned | None], bool], timeout: float) -> Assigned | None:
        """Wait until `wanted` returns true for the member's assignment, and return the assignment.

        Errors: the error that ended the membership; `TimeoutError` after `timeout` seconds.
        """
        with self._changed:
            self._changed.wait_for(lambda: self.error is not None or wanted(self._owned), timeout)
            if self.error:
                raise self.error
            if not wanted(self._owned):
                raise TimeoutError(f"after {timeout} s, {self.member_id} still has {self._owned}")
            return self._owned

    def rejoin(self) -> None:
        """Join again, because this member's metadata has changed."""
        self._inbox.put("rejoin")

    def leave(self) -> None:
        """Leave the group and end the thread."""
        self._end("leave")

    def kill(self) -> None:
        """End the thread without a message to the group."""
        self._end("kill")

    def _end(self, how: str) -> None:
        self._inbox.put(how)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:  # of a callback: a member that cannot work must not keep its place
            log.exception("%s ends", self.member_id)
            for effect in self._machine.leave(self._clock(), for_good=True):
                if isinstance(effect, Send):
                    self._coordinator.post(self.member_id, effect.message)
            with self._changed:
                self._owned = None
                detail = f"a callback: {type(error).__name__}: {error}"
                self.error = GroupFailed(Code.ASSIGNMENT_FAILED, detail)
                self._changed.notify_all()
        self._coordinator.disconnect(self.member_id)

    def _serve(self) -> None:
        self._apply(self._machine.start(self._clock()))
        refresh_at = self._clock() + self._max_age if self._refresh and self._max_age else math.inf
        while True:
            deadline = self._machine.next_deadline()
            letter = _next(
                self._inbox, min(refresh_at, refresh_at if deadline is None else deadline), self._clock
            )
            if letter is _TIME:
                self._apply(self._machine.tick(self._clock()))
                if self._clock() >= refresh_at:
                    refresh_at = self._clock() + self._max_age
                    self._look()
            elif letter == "kill":
                break
            elif letter == "leave":
                self._apply(self._machine.leave(self._clock()))
                break
            elif letter == "rejoin":
                self._apply(self._machine.rejoin(self._clock()))
            else:
                self._apply(self._machine.receive(letter, self._clock()))

    def _look(self) -> None:
        """Join again if the protocol's view has changed. After an error, the next interval tries again."""
        try:
            changed = self._refresh is not None and self._refresh()
        except Exception as error:
            said = "%s could not fetch its topics: %s"
            self._repeated.warn(log, said, self.member_id, error, kind=type(error))
            return
        self._repeated.settle(log, "%s fetches its topics again", self.member_id)
        if changed:
            self._apply(self._machine.rejoin(self._clock()))

    def _apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._coordinator.post(self.member_id, effect.message)
                continue
            # The revocation callback ends before other threads can see that the member owns nothing.
            if isinstance(effect, Revoked) and self._on_revoked:
                self._on_revoked(effect)
            with self._changed:
                self._owned = effect if isinstance(effect, Assigned) else None
                self.error = effect.error if isinstance(effect, Failed) else self.error
                self._changed.notify_all()
            if isinstance(effect, Assigned) and self._on_assigned:
                self._on_assigned(effect)
            if isinstance(effect, Failed) and self._on_failed:
                self._on_failed(effect.error)


def _next(inbox: queue.SimpleQueue[Any], deadline: float | None, clock: _Clock) -> Any:
    """Return the next letter, or `_TIME` at the deadline."""
    wait = None if deadline is None or deadline == math.inf else max(0.0, deadline - clock())
    try:
        return inbox.get(timeout=wait)
    except queue.Empty:
        return _TIME
