"""Counts the reads across racks of a placement (KIP-925), per task and rack, and reads their prices.

An active reads its input (`Task.racks`), and a standby its changelogs (`Task.changelog_racks`). A partition is read
across racks from every rack that does not serve it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from taskplace.model.config import PlacementConfig
from taskplace.model.problem_columns import Columns, Ints

RACK_TAG = "rack"


def cross_rack_reads(c: Columns) -> tuple[Ints, Ints] | None:
    """Return the rack of each instance and [tasks, racks] reads of input across racks; None if racks are not known."""
    return _reads(c, c.racks)


def changelog_reads(c: Columns) -> tuple[Ints, Ints] | None:
    """Return the rack of each instance and [tasks, racks] reads of changelogs across racks; None if unknown."""
    return _reads(c, c.changelog_racks)


def _reads(c: Columns, partitions: Sequence[Sequence[Sequence[str]]]) -> tuple[Ints, Ints] | None:
    names = [t.get(RACK_TAG, "") for t in c.tags]
    if not all(names) or not any(partitions):
        return None
    racks = sorted(set(names))
    rack_of = np.array([racks.index(n) for n in names], np.int64)
    reads = np.zeros((c.n, len(racks)), np.int64)
    for t, served_by in enumerate(partitions):
        for served in served_by:
            if served:  # it is not known which racks serve a partition without racks
                reads[t] += [rack not in served for rack in racks]
    return rack_of, reads


def costs(config: PlacementConfig) -> tuple[int, int]:
    """Return the prices of a read across racks and of a move: as configured, else 10 and 1."""
    traffic, move = config.rack_aware_assignment_traffic_cost, config.rack_aware_assignment_non_overlap_cost
    return 10 if traffic is None else traffic, 1 if move is None else move


def reduced_costs(config: PlacementConfig) -> tuple[int, int, int]:
    """Return `costs` divided by their common factor, and the factor. Only the ratio of the prices matters.

    Smaller numbers leave more room for the lower levels of cost.
    """
    traffic, move = costs(config)
    common = math.gcd(traffic, move) or 1
    return traffic // common, move // common, common
