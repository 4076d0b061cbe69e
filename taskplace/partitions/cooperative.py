"""Two phases instead of stopping everybody (KIP-429): revoke first, assign next.

**Idea.** Members keep working on what they own while they join. A partition that is to change hands is not given to
its new member yet: it is *withheld*. The present owner sees that it is missing from its assignment, lets it go, and
joins again; the second assignment finds it without an owner.

Properties, for any mode that is stable (all are): no member is given a partition that it does not own while another
claims it; every claim counts here, those of an old generation and contradicting ones too. An owner keeps what it may
keep, whatever an older claim says: taking it away would protect nobody. If all members follow the first assignment,
the second withholds nothing.
"""

from __future__ import annotations

import numpy as np

from taskplace.partitions.columns import Columns, Ints


def held_elsewhere(c: Columns, goal: Ints) -> Ints:
    """Return the partitions that are to go to a new member while another still claims them, sorted."""
    meant = goal[c.claimed]
    new = (meant >= 0) & (meant != c.owner[c.claimed])
    return np.unique(c.claimed[new & (meant != c.claimant)])
