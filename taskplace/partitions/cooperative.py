"""Assigns in two phases, without stopping all members (KIP-429): revoke first, assign next.

**Idea.** Members keep processing their partitions while they join. A partition that moves is not assigned to its new
member yet: it is *withheld*. The present owner sees that it is missing in its assignment, revokes it, and joins again.
In the second assignment the partition has no owner.

Properties, for any stable mode (all are): no member gets a partition that it does not own while another member claims
it. Every claim counts here, including claims of an old generation and contradicting ones. An owner keeps the partitions
that it may keep, despite older claims: taking them away would protect no member. If all members follow the first
assignment, the second withholds nothing.
"""

from __future__ import annotations

import numpy as np

from taskplace.partitions.columns import Columns, Ints


def held_elsewhere(c: Columns, goal: Ints) -> Ints:
    """Return the partitions that would go to a new member while another still claims them, sorted."""
    meant = goal[c.claimed]
    new = (meant >= 0) & (meant != c.owner[c.claimed])
    return np.unique(c.claimed[new & (meant != c.claimant)])
