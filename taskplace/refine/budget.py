"""The warm-up budget: decides which copies may warm up now.

`max.warmup.replicas` limits the warm-ups of the whole cluster (KIP-441). The order: copies that have started, so that
no restore work is lost; copies that free a draining instance; actives before standbys; the copies that lack the fewest
records.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Want(NamedTuple):
    """A copy that must catch up before it can take its role.

    - `under_way`: it is a warm-up already
    - `drains`: it frees a draining instance
    - `for_active`: it will become the active, not a standby
    - `behind`: the records that it lacks
    - `origin`: the instance that it will replace in its role
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
