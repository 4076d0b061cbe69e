"""What becomes of drains: executors that are empty and are to end are asked to, and what keeps one is said.

Any handle asks for an end, whoever was told, and whatever its own query does. If the question fails it is asked again,
three times in all, by whichever handle; an answer is the last. What keeps an executor for good, a query that has stood
down, is said once, by the handles that were asked to drain it. What is gone is kept by nobody, and not asked to end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING

from taskplace.spark.steering.steered_queries import SteeredQueries

if TYPE_CHECKING:
    from taskplace.spark.bridge_state import StateBridge

log = logging.getLogger("taskplace.spark.steering")

RETRY_POLLS = 20
"""An end that could not be asked for is asked for again after so many polls: a second."""


class Drains:
    """The drains of the fleet as one handle sees to them.

    Lifetime: `errors` counts ends that this handle could not ask for. `_failed` is, for each executor, how often any
    handle could not when that was last looked at, and the poll at which it had changed. `_asked` are those that this
    handle was asked to drain, each with the queries of which it was said that they keep it.
    """

    def __init__(self, fleet: SteeredQueries, bridge: StateBridge, say: Callable[[str], None]) -> None:
        self.errors = 0
        self._fleet, self._bridge, self._say = fleet, bridge, say
        self._polls = 0
        self._failed: dict[str, tuple[int, int]] = {}
        self._asked: dict[str, frozenset[str]] = {}

    def drain(self, instance: str, *, end: bool) -> None:
        """Drain an executor, with `end` until it ends, for all queries."""
        self._fleet.drain(instance, end=end)
        self._asked[instance] = frozenset()
        self._say(f"drain of {instance} asked for" + (", and its end once it is empty" if end else ""))

    def undrain(self, instance: str) -> None:
        """Take that back, whoever asked for it."""
        self._fleet.drain(instance, on=False)
        self._say(f"undrain of {instance} asked for: it may have tasks again")

    def kept(self) -> dict[str, tuple[str, ...]]:
        """Return, for each executor that drains and is not empty, the queries that keep it, and why."""
        found = {name: self._fleet.keepers(name) for name in sorted(self._fleet.draining)}
        return {name: tuple(map(str, keepers)) for name, keepers in found.items() if keepers}

    def poll(self) -> None:
        """Ask for the ends that are due, and say what keeps others."""
        self._polls += 1
        leaving, draining = self._fleet.leaving, self._fleet.draining
        gone = self._gone(leaving | draining.intersection(list(self._asked)))
        for name in sorted(leaving):
            if name in gone:
                self._fleet.keep(name)
            elif self._due(name):
                self._end(name)
        for name, said in list(self._asked.items()):
            if name in gone:
                del self._asked[name]
                continue
            stuck = [keeper for keeper in self._fleet.keepers(name) if keeper.stuck and name in draining]
            self._asked[name] = frozenset(keeper.query for keeper in stuck)
            for keeper in stuck:
                if keeper.query not in said:
                    self._say(f"{name} is kept by {keeper}")

    def _gone(self, names: Collection[str]) -> set[str]:
        """Return those that have ended. One short call, if there are any names."""
        alive = self._bridge.alive() if names else frozenset()
        return {name for name in names if name.removeprefix("executor-") not in alive}

    def _due(self, name: str) -> bool:
        """Return whether the end of an executor may be asked for: never before, or not for `RETRY_POLLS`."""
        tries = self._fleet.tries(name)
        known, since = self._failed.get(name, (0, 0))
        if tries != known:
            self._failed[name] = (tries, self._polls)
            return not tries
        return not tries or self._polls - since >= RETRY_POLLS

    def _end(self, name: str) -> None:
        try:
            took = self._fleet.end(name, partial(self._ask, name.removeprefix("executor-")))
        except Exception as error:
            log.warning("the end of %s could not be asked for", name, exc_info=True)
            self.errors += 1
            what = "once more" if name in self._fleet.leaving else "its end is given up"
            self._say(f"{name} is empty: {type(error).__name__}, {what}")
            return
        if took is not None:
            self._say(f"{name} is empty: {'asked for its end' if took else 'nobody took its end'}")

    def _ask(self, id_: str) -> bool | None:
        """Ask for the end of an executor; None if it has ended by itself."""
        return self._bridge.remove(id_) if id_ in self._bridge.alive() else None
