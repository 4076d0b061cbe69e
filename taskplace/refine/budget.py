"""The warm-up budget: decides which copies may warm up now.

`max.warmup.replicas` is a limit for the whole cluster (KIP-441). Copies under way come first, so that no restore work
is lost; then copies that free a draining instance; then actives before standbys; then the cheapest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Want(NamedTuple):
    """A copy that must catch up before it can take its role.

    `behind`: the records that it lacks. `origin`: the instance that it will relieve.
    """

    under_way: bool
    drains: bool
    for_active: bool
    behind: int
    task: int
    inst: int
    origin: int


def within_budget(wants: Iterable[Want], budget: int) -> tuple[list[Want], list[Want]]:
    """Return the copies that may warm up now, at most `budget`, and those that wait.

    >>> a, b = Want(False, False, True, 10, 0, 0, 1), Want(True, False, True, 99, 1, 0, 1)
    >>> within_budget([a, b], 1) == ([b], [a])
    True
    """
    order = sorted(
        wants,
        key=lambda w: (not w.under_way, not w.drains, not w.for_active, w.behind, w.task, w.inst),
    )
    return order[:budget], order[budget:]
