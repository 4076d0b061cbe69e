"""Checks whether standbys could read less across racks (KIP-925), without a flow solver: it looks for an exchange that
saves.

**Idea.** Standbys at level loads are a flow. Their cost is minimal if and only if no cycle of hand-overs saves, in
which each instance hands one standby to the next (Klein's theorem). A chain also counts as a cycle, if its last
instance may have one standby more and its first one fewer. This module shares no code with the flow that places
standbys.

Shapes: s standbys, m instances; O(s * m) for the best hand-overs, then O(rounds * m^2), usually with a few rounds.
"""

from __future__ import annotations

import numpy as np

from taskplace.model.config import PlacementConfig
from taskplace.model.placement import changelog_reads, costs
from taskplace.model.problem_columns import STANDBY, Columns, Ints
from taskplace.model.shares import level_loads

FAR = 1 << 60  # no hand-over; above any sum of costs


def detour(c: Columns, config: PlacementConfig, active: Ints, task: Ints, inst: Ints) -> bool:
    """Return whether other standbys of these tasks, at equally level loads, would cost less in reads and moves.

    `active`: [n] instances. `task`, `inst`: one entry per standby. Returns False if racks are not known.
    """
    known = changelog_reads(c)
    if known is None or not len(task):
        return False
    cost = _hand_overs(c, config, known, active, task, inst)
    more, fewer = _slack(c, active, task, inst)
    near, sink = np.zeros(c.m, np.int64), 0
    for _ in range(c.m + 2):
        nearer = np.minimum(near, (near[:, None] + cost).min(axis=0))
        end = min([sink, *nearer[more].tolist()])
        nearer[fewer] = np.minimum(nearer[fewer], end)
        if end == sink and (nearer == near).all():
            return False
        near, sink = nearer, end
    return True  # Bellman-Ford: a path that still becomes cheaper contains a cycle that saves


def _hand_overs(
    c: Columns, config: PlacementConfig, known: tuple[Ints, Ints], active: Ints, task: Ints, inst: Ints
) -> Ints:
    """Return [m, m] the change of the price by the cheapest hand-over of a standby from one instance to another."""
    (rack_of, reads), (read, move) = known, costs(config)
    now = np.zeros((c.n, c.m), np.bool_)
    rows = c.role == STANDBY
    now[c.task[rows], c.inst[rows]] = True
    taken = np.zeros((c.n, c.m), np.bool_)
    taken[np.arange(c.n), active] = True
    taken[task, inst] = True
    taken[:, c.open_slots == 0] = True
    cost = np.full((c.m, c.m), FAR, np.int64)
    for i in np.unique(inst).tolist():
        mine = task[inst == i]
        price = read * reads[mine][:, rack_of] + move * ~now[mine]
        gain = np.where(taken[mine], FAR, price - price[:, [i]])
        cost[i] = gain.min(axis=0)
    return cost


def _slack(c: Columns, active: Ints, task: Ints, inst: Ints) -> tuple[Ints, Ints]:
    """Return the instances that may have one standby more, and one fewer. Both are empty if loads are uneven."""
    tasks = np.flatnonzero(c.stateful)
    actives = np.bincount(active[tasks], minlength=c.m)
    load = actives + np.bincount(inst, minlength=c.m)
    low, high = level_loads(len(tasks) + len(task), len(tasks), actives, c.open_slots)
    if ((load < low) | (load > high)).any():
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.flatnonzero(load < high), np.flatnonzero(load > low)
