"""What becomes of drains: executors that are empty and are to end are asked to, and what keeps one is said.

Any handle asks for an end, whoever was told, and whatever its own query does. If the question fails it is asked again,
`MOST_TRIES` times in all; an answer is the last. What keeps an executor for good, a query that has stood down, is said
once, by the handles that were asked to drain it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from taskplace.spark.steering.fleet import Fleet

if TYPE_CHECKING:
    from taskplace.spark.bridge_state import StateBridge

log = logging.getLogger("taskplace.spark.steering")

MOST_TRIES = 3
RETRY_POLLS = 20
"""An end that could not be asked for is asked for again after so many polls: a second."""


class Drains:
    """The drains of the fleet as one handle sees to them.

    Lifetime: `errors` counts ends that could not be asked for. `_failed` is, for each executor, how often, and the poll
    at which it is asked again. `_asked` are those that this handle was asked to drain, each with the queries of which
    it was said that they keep it.
    """

    def __init__(self, fleet: Fleet, bridge: StateBridge, say: Callable[[str], None]) -> None:
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
        for name in sorted(self._fleet.leaving):
            if self._failed.get(name, (0, 0))[1] <= self._polls:
                self._end(name)
        draining = self._fleet.draining
        for name, said in list(self._asked.items()):
            stuck = [keeper for keeper in self._fleet.keepers(name) if keeper.stuck and name in draining]
            self._asked[name] = frozenset(keeper.query for keeper in stuck)
            for keeper in stuck:
                if keeper.query not in said:
                    self._say(f"{name} is kept by {keeper}")

    def _end(self, name: str) -> None:
        try:
            took = self._fleet.end(name, partial(self._ask, name.removeprefix("executor-")))
        except Exception as error:
            log.warning("the end of %s could not be asked for", name, exc_info=True)
            self.errors += 1
            tried = self._failed.get(name, (0, 0))[0] + 1
            self._failed[name] = (tried, self._polls + RETRY_POLLS)
            left = tried < MOST_TRIES
            if not left:
                self._fleet.keep(name)
                del self._failed[name]
            self._say(
                f"{name} is empty: {type(error).__name__}, {'once more' if left else 'its end is given up'}"
            )
            return
        if took is not None:
            self._failed.pop(name, None)
            self._say(f"{name} is empty: {'asked for its end' if took else 'nobody took its end'}")

    def _ask(self, id_: str) -> bool | None:
        """Ask for the end of an executor; None if it has ended by itself."""
        return self._bridge.remove(id_) if id_ in self._bridge.alive() else None
