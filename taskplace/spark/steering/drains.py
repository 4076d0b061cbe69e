"""Follows up on drains: requests the removal of empty executors, and logs the queries that keep tasks on others.

Any handle may request the removal, whichever handle `decommission` was called on. A failed request is repeated, up to
three requests over all handles; any answer is final. A query that has stood down keeps its tasks on a draining executor
until a user acts; the handle on which the drain was requested logs that once. An executor that is gone needs no
removal, and no query keeps tasks on it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING

from taskplace.spark.steering.application import SteeredQueries

if TYPE_CHECKING:
    from taskplace.spark.steering.bridge import StateBridge

log = logging.getLogger("taskplace.spark.steering")

RETRY_POLLS = 20
"""A failed request is repeated after this many polls, which is about a second."""


class Drains:
    """Follows up the drains of the application for one handle.

    Lifetime: `errors` counts this handle's failed requests. `_failed` has, for each executor, the number of failed
    requests of all handles at the last poll, and the poll at which that number changed. `_requested` has the drains
    requested on this handle, each with the stuck queries that were logged.
    """

    def __init__(
        self, queries: SteeredQueries, bridge: StateBridge, log_event: Callable[[str], None]
    ) -> None:
        self.errors = 0
        self._queries, self._bridge, self._log_event = queries, bridge, log_event
        self._polls = 0
        self._failed: dict[str, tuple[int, int]] = {}
        self._requested: dict[str, frozenset[str]] = {}

    def drain(self, instance: str, *, remove: bool) -> None:
        """Drain an executor for all queries; with `remove`, request its removal once it is empty."""
        self._queries.drain(instance, remove=remove)
        self._requested[instance] = frozenset()
        self._log_event(f"drain of {instance} requested" + (", and its removal once empty" if remove else ""))

    def undrain(self, instance: str) -> None:
        """Take back a drain, whichever handle it was requested on."""
        self._queries.undrain(instance)
        self._log_event(f"undrain of {instance} requested: it may run tasks again")

    def kept(self) -> dict[str, tuple[str, ...]]:
        """Return, for each draining executor that is not empty, which queries keep tasks there, and why."""
        blockers = {name: self._queries.blockers(name) for name in sorted(self._queries.draining)}
        return {name: tuple(map(str, blocking)) for name, blocking in blockers.items() if blocking}

    def poll(self) -> None:
        """Request the removals that are due, and log newly stuck queries."""
        self._polls += 1
        to_remove, draining = self._queries.to_remove, self._queries.draining
        gone = self._gone(to_remove | draining.intersection(list(self._requested)))
        for name in sorted(to_remove):
            if name in gone:
                self._queries.cancel_removal(name)
            elif self._due(name):
                self._remove(name)
        for name in list(self._requested):
            if name in gone:
                del self._requested[name]
            else:
                self._log_stuck(name, drains=name in draining)

    def _log_stuck(self, name: str, *, drains: bool) -> None:
        """Log the queries that keep tasks on an executor until a user acts, each query once."""
        stuck = [blocker for blocker in self._queries.blockers(name) if blocker.stuck] if drains else []
        logged = self._requested[name]
        self._requested[name] = frozenset(blocker.query for blocker in stuck)
        for blocker in stuck:
            if blocker.query not in logged:
                self._log_event(f"{name} is not empty: {blocker}")

    def _gone(self, names: Collection[str]) -> set[str]:
        """Return those executors that have ended. One short call, none without names."""
        alive = self._bridge.alive() if names else frozenset()
        return {name for name in names if name.removeprefix("executor-") not in alive}

    def _due(self, name: str) -> bool:
        """Return whether to request a removal: no request has failed, or `RETRY_POLLS` polls have passed since."""
        tries = self._queries.tries(name)
        known, since = self._failed.get(name, (0, 0))
        if tries != known:
            self._failed[name] = (tries, self._polls)
            return not tries
        return not tries or self._polls - since >= RETRY_POLLS

    def _remove(self, name: str) -> None:
        try:
            accepted = self._queries.remove(name, partial(self._request, name.removeprefix("executor-")))
        except Exception as error:
            log.warning("cannot request the removal of %s", name, exc_info=True)
            self.errors += 1
            next_ = "will be requested again" if name in self._queries.to_remove else "is given up"
            self._log_event(f"{name} is empty: {type(error).__name__}, its removal {next_}")
            return
        if accepted is not None:
            answer = "was requested" if accepted else "was refused by the cluster manager"
            self._log_event(f"{name} is empty: its removal {answer}")

    def _request(self, id_: str) -> bool | None:
        """Ask the cluster manager to remove an executor; None if it has ended by itself."""
        return self._bridge.remove(id_) if id_ in self._bridge.alive() else None
