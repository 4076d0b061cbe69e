"""The listener contract of KIP-54: clean up what was lost, initialise what came, leave the rest alone.

**Idea.** With an eager protocol everything is revoked before each rebalance, but a sticky assignor gives most of it
back. So state is not cleaned up when partitions are revoked, only when the new assignment is known and they are not
in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from taskplace.partitions.subscriptions import Pair

Action = Callable[[Pair], object]


class Change(NamedTuple):
    """What a new assignment means: sorted partitions `lost` (old minus new), `gained` (new minus old), `kept`."""

    lost: tuple[Pair, ...]
    gained: tuple[Pair, ...]
    kept: tuple[Pair, ...]


def change(old: Iterable[Pair], new: Iterable[Pair]) -> Change:
    """Return what changes from one assignment to the next.

    >>> change([("t", 0), ("t", 1)], [("t", 1), ("t", 2)])
    Change(lost=(('t', 0),), gained=(('t', 2),), kept=(('t', 1),))
    """
    before, after = set(old), set(new)
    return Change(tuple(sorted(before - after)), tuple(sorted(after - before)), tuple(sorted(before & after)))


class StickyListener:
    """Calls `commit` for what is revoked, then `clean_up` for what is lost, `initialise` for what came, and
    `position` for all that is assigned, each with one (topic, partition), in sorted order.

    With a `cooperative` protocol what is revoked is gone for good, and an assignment names only what came; so
    state is cleaned up when it is revoked, and nothing else is touched. What a callback raises is passed on; the
    next assignment is compared with the last one that was carried out whole.

    >>> listener = StickyListener(clean_up=lambda tp: print("lost", tp), initialise=lambda tp: print("new", tp))
    >>> listener.on_assigned([("t", 0), ("t", 1)])
    new ('t', 0)
    new ('t', 1)
    >>> listener.on_revoked([("t", 0), ("t", 1)])
    >>> listener.on_assigned([("t", 1)])
    lost ('t', 0)
    """

    def __init__(
        self,
        *,
        commit: Action | None = None,
        clean_up: Action | None = None,
        initialise: Action | None = None,
        position: Action | None = None,
        cooperative: bool = False,
    ) -> None:
        self._cooperative = cooperative
        self._commit, self._clean_up = commit, clean_up
        self._initialise, self._position = initialise, position
        self._last: frozenset[Pair] = frozenset()

    @property
    def assigned(self) -> frozenset[Pair]:
        """The last assignment."""
        return self._last

    def on_revoked(self, partitions: Iterable[Pair]) -> None:
        """Commit; state stays, as most of it comes back, unless the protocol is cooperative."""
        going = tuple(partitions)
        _each(self._commit, going)
        if self._cooperative:
            self.on_lost(going)

    def on_lost(self, partitions: Iterable[Pair]) -> None:
        """Clean up what another member may own by now; there is nothing to commit any more."""
        gone = self._last & set(partitions)
        _each(self._clean_up, gone)
        self._last -= gone

    def on_assigned(self, assignment: Iterable[Pair]) -> None:
        """Clean up old minus new, initialise new minus old, then set the position of everything assigned."""
        given = frozenset(assignment)
        new = self._last | given if self._cooperative else given
        difference = change(self._last, new)
        _each(self._clean_up, difference.lost)
        _each(self._initialise, difference.gained)
        _each(self._position, given)
        self._last = new


def _each(action: Action | None, partitions: Iterable[Pair]) -> None:
    if action is not None:
        for partition in sorted(partitions):
            action(partition)
