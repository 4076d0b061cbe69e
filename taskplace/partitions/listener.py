"""The listener contract of KIP-54: cleans up lost partitions, initialises new ones, and leaves the others unchanged.

**Idea.** An eager protocol revokes all partitions before each rebalance, but a sticky assignor returns most of them. So
the listener does not clean up state when a partition is revoked, but when the new assignment lacks the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from taskplace.groups.subscriptions import Pair

Action = Callable[[Pair], object]


class Change(NamedTuple):
    """The difference of two assignments, as sorted partitions: `lost` (old - new), `gained` (new - old), `kept`."""

    lost: tuple[Pair, ...]
    gained: tuple[Pair, ...]
    kept: tuple[Pair, ...]


def change(old: Iterable[Pair], new: Iterable[Pair]) -> Change:
    """Return the difference from one assignment to the next.

    >>> change([("t", 0), ("t", 1)], [("t", 1), ("t", 2)])
    Change(lost=(('t', 0),), gained=(('t', 2),), kept=(('t', 1),))
    """
    before, after = set(old), set(new)
    return Change(tuple(sorted(before - after)), tuple(sorted(after - before)), tuple(sorted(before & after)))


class StickyListener:
    """Calls the callbacks of a consumer, each with one (topic, partition), in sorted order.

    - `commit`: for revoked partitions
    - `clean_up`: for lost partitions
    - `initialise`: for new partitions
    - `position`: for all assigned partitions

    With a `cooperative` protocol, revoked partitions do not come back, and an assignment has only the new partitions.
    So revoked partitions are cleaned up at once, and other partitions do not change. An error of a callback propagates.
    The next assignment is then compared with the last one whose callbacks all succeeded.

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
        """Commit the partitions. With a cooperative protocol, also clean them up; otherwise most of them come back."""
        going = tuple(partitions)
        _each(self._commit, going)
        if self._cooperative:
            self.on_lost(going)

    def on_lost(self, partitions: Iterable[Pair]) -> None:
        """Clean up partitions that another member may already own. They cannot be committed any more."""
        gone = self._last & set(partitions)
        _each(self._clean_up, gone)
        self._last -= gone

    def on_assigned(self, assignment: Iterable[Pair]) -> None:
        """Clean up lost partitions, initialise new ones, then set the position of all assigned partitions."""
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
