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

from taskplace.groups.coordinator import Coordinator, CoordinatorSettings
from taskplace.groups.member import (
    Assigned,
    Effect,
    Failed,
    GroupProtocol,
    Member,
    MemberSettings,
    Revoked,
    Send,
)
from taskplace.groups.messages import Code, GroupError, GroupFailed, Request
from taskplace.logs import RepeatedWarnings

log = logging.getLogger(__name__)

_TIME = object()  # instead of a letter: a deadline has come
_now = time.monotonic


class LocalCoordinator:
    """A coordinator on its own thread. It is a context manager.

    >>> with LocalCoordinator() as coordinator:
    ...     coordinator.generations()
    {}
    """

    def __init__(self, settings: CoordinatorSettings | None = None) -> None:
        self._machine = Coordinator(settings)
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
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

    def connect(self, address: str, inbox: queue.SimpleQueue[Any] | None) -> None:
        """Deliver messages for `address` to `inbox`, or no longer if that is None."""
        if inbox is None:
            self._members.pop(address, None)
        else:
            self._members[address] = inbox

    def post(self, address: str, request: Request) -> None:
        """Give the coordinator a message from `address`."""
        self._inbox.put((address, request))

    def _run(self) -> None:
        while True:
            with self._lock:
                deadline = self._machine.next_deadline()
            letter = _next(self._inbox, deadline)
            if letter is None:
                return
            with self._lock:
                machine = self._machine
                replies = (
                    machine.tick(_now()) if letter is _TIME else machine.handle(letter[0], letter[1], _now())
                )
            for address, message in replies:
                inbox = self._members.get(address)
                if inbox is not None:
                    inbox.put(message)


class LocalMember:
    """A member on its own thread.

    `on_change` is called on that thread with each `Assigned`, `Revoked` and `Failed`, in order, and should be short. If
    it raises an exception, the member leaves the group. If the protocol has a method `refresh`, as `ConsumerProtocol`
    has, it is called every `metadata.max.age.ms`; if it returns true, the member joins again.

    - `owned`: the present assignment, or None
    - `error`: the error that ended the membership, or None

    >>> from taskplace.groups.consumer import ConsumerProtocol
    >>> from taskplace.groups.metadata import Topics
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
        on_change: Callable[[Assigned | Revoked | Failed], None] = lambda effect: None,
    ) -> None:
        self.member_id = uuid.uuid4().hex
        self.error: GroupError | None = None
        self._machine = Member(group, self.member_id, protocol, settings)
        self._repeated = RepeatedWarnings()
        self._refresh: Callable[[], bool] | None = getattr(protocol, "refresh", None)
        self._max_age = self._machine.settings.metadata_max_age_ms / 1000 or math.inf
        self._coordinator = coordinator
        self._on_change = on_change
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self.owned: Assigned | None = None
        coordinator.connect(self.member_id, self._inbox)
        self._thread = threading.Thread(target=self._run, name=f"member-{self.member_id[:8]}", daemon=True)
        self._thread.start()

    def wait_for(self, wanted: Callable[[Assigned | None], bool], timeout: float) -> Assigned | None:
        """Wait until `wanted` returns true for the member's assignment, and return the assignment.

        Errors: the error that ended the membership; `TimeoutError` after `timeout` seconds.
        """
        with self._changed:
            self._changed.wait_for(lambda: self.error is not None or wanted(self.owned), timeout)
            if self.error:
                raise self.error
            if not wanted(self.owned):
                raise TimeoutError(f"after {timeout} s, {self.member_id} still has {self.owned}")
            return self.owned

    def rejoin(self) -> None:
        """Join again, because this member's metadata has changed."""
        self._inbox.put("rejoin")

    def leave(self) -> None:
        """Leave the group and end the thread."""
        self._end("leave")

    def kill(self) -> None:
        """End the thread without a message to the group, as a crash does."""
        self._end("kill")

    def _end(self, how: str) -> None:
        self._inbox.put(how)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:  # of `on_change`: a member that cannot work must not keep its place
            log.exception("%s ends", self.member_id)
            for effect in self._machine.leave(_now(), for_good=True):
                if isinstance(effect, Send):
                    self._coordinator.post(self.member_id, effect.message)
            detail = f"on_change: {type(error).__name__}: {error}"
            self._show(None, GroupFailed(Code.ASSIGNMENT_FAILED, detail))
        self._coordinator.connect(self.member_id, None)

    def _serve(self) -> None:
        machine = self._machine
        self._apply(machine.start(_now()))
        refresh_at = _now() + self._max_age if self._refresh else math.inf
        while True:
            deadline = machine.next_deadline()
            letter = _next(self._inbox, refresh_at if deadline is None else min(refresh_at, deadline))
            if letter == "kill":
                return
            if letter == "leave":
                self._apply(machine.leave(_now()))
                return
            if letter is _TIME:
                self._apply(machine.tick(_now()))
            elif letter != "rejoin":
                self._apply(machine.receive(letter, _now()))
            if _now() >= refresh_at:
                refresh_at = _now() + self._max_age
                letter = "rejoin" if self._has_changed() else letter
            if letter == "rejoin":
                self._apply(machine.rejoin(_now()))

    def _has_changed(self) -> bool:
        """Return whether the protocol's view has changed. After an error, the next interval tries again."""
        try:
            changed = self._refresh is not None and self._refresh()
        except Exception as error:
            said = "%s could not fetch its topics: %s"
            self._repeated.warn(log, said, self.member_id, error, kind=type(error))
            return False
        self._repeated.settle(log, "%s fetches its topics again", self.member_id)
        return changed

    def _apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._coordinator.post(self.member_id, effect.message)
            elif isinstance(effect, Revoked):
                # The callback ends before other threads can see that the member owns nothing.
                self._on_change(effect)
                self._show(None, self.error)
            else:
                owned = effect if isinstance(effect, Assigned) else None
                self._show(owned, effect.error if isinstance(effect, Failed) else self.error)
                self._on_change(effect)

    def _show(self, owned: Assigned | None, error: GroupError | None) -> None:
        with self._changed:
            self.owned, self.error = owned, error
            self._changed.notify_all()


def _next(inbox: queue.SimpleQueue[Any], deadline: float | None) -> Any:
    """Return the next letter, or `_TIME` at the deadline."""
    wait = None if deadline is None or deadline == math.inf else max(0.0, deadline - _now())
    try:
        return inbox.get(timeout=wait)
    except queue.Empty:
        return _TIME
