"""What a placement costs in reads across racks (KIP-925): counts per task and rack, and what they are worth."""

from __future__ import annotations

import numpy as np

from taskplace.model.columns import Columns, Ints
from taskplace.model.config import PlacementConfig

RACK_TAG = "rack"


def cross_rack_reads(c: Columns) -> tuple[Ints, Ints] | None:
    """Return the rack of each instance and [tasks, racks] cross-rack reads; None if racks are not known."""
    names = [t.get(RACK_TAG, "") for t in c.tags]
    if not all(names) or not any(c.racks):
        return None
    racks = sorted(set(names))
    rack_of = np.array([racks.index(n) for n in names], np.int64)
    reads = np.zeros((c.n, len(racks)), np.int64)
    for t, partitions in enumerate(c.racks):
        for served in partitions:
            if served:  # nothing is known of a partition that no rack is said to serve
                reads[t] += [rack not in served for rack in racks]
    return rack_of, reads


def prices(config: PlacementConfig) -> tuple[int, int]:
    """Return what a cross-rack read and a move cost: as configured, else 10 and 1."""
    traffic, move = config.rack_aware_assignment_traffic_cost, config.rack_aware_assignment_non_overlap_cost
    return 10 if traffic is None else traffic, 1 if move is None else move
