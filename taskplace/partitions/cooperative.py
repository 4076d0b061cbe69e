"""Assigns in two phases, without stopping all members (KIP-429): revoke first, assign next.

**Idea.** Members keep processing their partitions while they join. The first assignment *withholds* a partition that
moves: it does not give the partition to its new member yet. The present owner sees that the partition is missing from
its assignment, revokes it, and joins again. In the second assignment, the partition has no owner and goes to its new
member.

Properties, for any stable mode (all modes are): no member gets a partition that it does not own while another member
claims it. All claims count here, also those of old generations and those that contradict each other. An owner keeps its
partitions despite older claims, because taking them away would protect no member. If all members follow the first
assignment, the second withholds nothing.
"""

from __future__ import annotations

import numpy as np

from taskplace.groups.subscriptions import Columns, Ints


def held_elsewhere(c: Columns, goal: Ints) -> Ints:
    """Return the partitions that would go to a new member while another member still claims them, sorted."""
    meant = goal[c.claimed]
    new = (meant >= 0) & (meant != c.owner[c.claimed])
    return np.unique(c.claimed[new & (meant != c.claimant)])
