"""Computes the step: the assignment that is safe to run now, on the way to the target.

For each task: the active moves to its target now if no other copy is better. That is so if the target's copy is caught
up, or if no copy is and the target's copy lacks least. Otherwise the owner keeps the task (or the most-caught-up copy
is promoted), and the target warms up when the budget allows it.

Properties:
- no stall: a task is never active on a lagging copy while a caught-up one is available;
- never fewer standbys than configured, if there are enough instances: missing standbys are created at once, and only
  *moves* of standbys wait for a warm-up;
- no good copy is dropped early: a caught-up standby is dropped only after enough others are caught up, so a task never
  loses its last caught-up copy;
- work in progress is kept: a copy that follows the changelog stays if the target has a copy there;
- forced promotions are level: of several equally good copies, those are promoted that give instances the most even
  numbers of stateful actives.

Non-goals: the step never decides where a task belongs (`taskplace.assign`). It leaves stateless tasks at their target.
`taskplace.assign.target.stateless_for_now` then levels them beside the stateful tasks of the step. Cost: O(tasks +
copies) in numpy, and a few microseconds for each task that is not at its target.

Source: KIP-441.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from taskplace.lag.ranking import lacking, whole
from taskplace.model.flow import Network, cost_budget
from taskplace.model.placement import Step, Target, best_at, lagging_owners
from taskplace.model.problem_columns import ACTIVE, NONE, STANDBY, WARMUP, Columns, Ints, rank_in_group

FINE = 1 << 10
"""The resolution of loads per capacity: 1 / FINE of a task."""

TIES = 8
"""How many of a task's options are ranked by lag. All others rank equally, after these."""


@dataclass(slots=True)
class _Copies:
    """The copies of one task, and the decision for it.

    - `role`, `lacks`: by instance, the copy's role and the records that it lacks
    - `whole`: the length of the changelog; an instance without a copy lacks all of it
    - `caught`, `best`: the instances whose copies are caught up, and most caught up
    - `goal_active`, `goal_standby`: the target
    - `active`, `standby`, `wants`: the decision
    """

    task: int
    owner: int
    role: dict[int, int]
    lacks: dict[int, int]
    whole: int
    caught: set[int]
    best: set[int]
    at_once: bool
    goal_active: int
    goal_standby: list[int]
    active: int = -1
    standby: list[int] = field(default_factory=list)
    wants: list[Want] = field(default_factory=list)

    def is_caught(self, inst: int) -> bool:
        return self.at_once or inst in self.caught

    def behind(self, inst: int) -> int:
        return self.lacks.get(inst, self.whole)


def next_step(c: Columns, target: Target, max_warmups: int) -> Step:
    """Return the step towards `target` from the assignment in force."""
    active = target.active.copy()
    hold = c.stateful & ~best_at(c, target.active)
    touched = _touched(c, target, hold)
    untouched = np.ones(c.n, np.bool_)
    untouched[touched] = False
    keep = untouched[target.standby_task]
    standby = [(target.standby_task[keep], target.standby_inst[keep])]
    wants: list[Want] = []
    followup, behind = False, 0
    tasks, insts = [], []
    decided = list(_copies(c, target, touched))
    _decide_actives(c, decided, active)
    for copies in decided:
        _refine(c, copies, target.replicas)
        tasks.extend([copies.task] * len(copies.standby))
        insts.extend(copies.standby)
        wants.extend(copies.wants)
        if copies.active != copies.goal_active or copies.standby != copies.goal_standby:
            followup = True
            behind += sum(not copies.is_caught(i) for i in (copies.goal_active, *copies.goal_standby))
    standby.append((np.array(tasks, np.int64), np.array(insts, np.int64)))
    begun, waiting = within_budget(wants, max_warmups)
    standby_task, standby_inst = _sorted(*(np.concatenate(part) for part in zip(*standby, strict=True)))
    warm = np.array(sorted((w.task, w.inst, w.origin) for w in begun), np.int64).reshape(-1, 3)
    # A follower of a lagging owner may catch up before the owner. Another plan must then let it take over.
    owners = int(lagging_owners(c, active, standby_task, warm[:, 0]).sum())
    return Step(
        active=active,
        standby_task=standby_task,
        standby_inst=standby_inst,
        warmup_task=warm[:, 0],
        warmup_inst=warm[:, 1],
        waiting=len(waiting),
        behind=behind,
        followup=followup or owners > 0,
        warmup_from=warm[:, 2],
        queue_task=np.array([w.task for w in waiting], np.int64),
        queue_inst=np.array([w.inst for w in waiting], np.int64),
        owners_behind=owners,
    )


def _touched(c: Columns, target: Target, hold: np.typing.NDArray[np.bool_]) -> Ints:
    """Return the stateful tasks with copies that need a decision: `hold`, or other roles than in the target."""
    rows = np.flatnonzero(c.role == STANDBY)
    now = c.task[rows] * c.m + c.inst[rows]
    goal = target.standby_task * c.m + target.standby_inst
    differs = hold | (c.stateful & (c.owner != target.active))
    if len(now) != len(goal) or (now != goal).any():
        differs[np.setxor1d(now, goal, assume_unique=True) // c.m] = True
    differs[c.task[c.role == WARMUP]] = True
    has_copies = c.start[1:] > c.start[:-1]
    return np.flatnonzero(differs & c.stateful & has_copies)


def _copies(c: Columns, target: Target, tasks: Ints) -> Iterator[_Copies]:
    goals = target.standby_inst.tolist()
    begin = np.searchsorted(target.standby_task, tasks).tolist()
    end = np.searchsorted(target.standby_task, tasks + 1).tolist()
    length = whole(c.end)
    lacks = lacking(c.lag, length[c.task])
    first, last = c.start[tasks].tolist(), c.start[tasks + 1].tolist()
    owner, goal, at_once = c.owner[tasks].tolist(), target.active[tasks].tolist(), c.at_once[tasks].tolist()
    for k, task in enumerate(tasks.tolist()):
        rows = slice(first[k], last[k])
        inst = c.inst[rows].tolist()
        yield _Copies(
            task=task,
            owner=owner[k],
            role=dict(zip(inst, c.role[rows].tolist(), strict=True)),
            lacks=dict(zip(inst, lacks[rows].tolist(), strict=True)),
            whole=int(length[task]),
            caught={i for i, ok in zip(inst, c.caught[rows].tolist(), strict=True) if ok},
            best={i for i, ok in zip(inst, c.best[rows].tolist(), strict=True) if ok},
            at_once=at_once[k],
            goal_active=goal[k],
            goal_standby=goals[begin[k] : end[k]],
        )


def _refine(c: Columns, k: _Copies, replicas: int) -> None:
    """Decide the standbys of one task, and the warm-ups that it needs. Its active is decided already."""
    goal = {k.goal_active, *k.goal_standby}
    following = {i for i, role in k.role.items() if role in (ACTIVE, STANDBY)} | {k.active}

    def settled(inst: int) -> bool:
        return inst in following or k.is_caught(inst)

    open_ = sorted(
        (i for i in goal if not settled(i)),
        key=lambda i: (i == k.goal_active, k.role.get(i, NONE) != WARMUP, k.behind(i), i),
    )
    missing = max(0, 1 + replicas - len(following))
    chosen = {i for i in goal if settled(i)} | set(open_[:missing])
    chosen.discard(k.active)
    ready = sum(k.is_caught(i) for i in chosen)
    spare = sorted(
        following - goal - {k.active},
        key=lambda i: (
            not k.is_caught(i),
            k.role.get(i) != STANDBY,
            c.open_slots[i] == 0,
            k.behind(i),
            i,
        ),
    )
    for i in spare:
        if len(chosen) < replicas or (k.is_caught(i) and ready < replicas):
            chosen.add(i)
            ready += k.is_caught(i)
    k.standby = sorted(chosen)
    stand_ins = iter([i for i in spare if i in chosen])
    for i in open_[missing:]:
        to_active = i == k.goal_active
        origin = k.active if to_active else next(stand_ins, k.active)
        k.wants.append(
            Want(
                under_way=k.role.get(i, NONE) == WARMUP,
                drains=bool(c.open_slots[origin] == 0),
                for_active=to_active,
                behind=k.behind(i),
                task=k.task,
                inst=i,
                origin=origin,
            )
        )


def _decide_actives(c: Columns, decided: list[_Copies], active: Ints) -> None:
    """Decide where tasks are active now, in `decided` and in `active` ([n] instances, initially the target's)."""
    open_: list[tuple[_Copies, list[int]]] = []
    for k in decided:
        options = _options(c, k)
        k.active = options[0]
        active[k.task] = k.active
        if len(options) > 1:
            open_.append((k, options))
    if not open_:
        return
    stateful = c.stateful.copy()
    stateful[[k.task for k, _ in open_]] = False
    load = np.bincount(active[stateful], minlength=c.m)
    for (k, _), i in zip(open_, _level(c, [o for _, o in open_], load), strict=True):
        k.active = i
        active[k.task] = i


def _options(c: Columns, k: _Copies) -> list[int]:
    """Return the equally good instances where the task may be active now, least lag first."""
    if k.at_once or not k.best or k.goal_active in k.best:
        return [k.goal_active]
    if k.owner in k.best:
        return [k.owner]
    # A forced promotion to an instance that is not the target: prefer one that keeps a copy in the target, then a
    # standby. All of them cost the same number of moves, because the task has to move on from any of them.
    order = {STANDBY: 0, WARMUP: 1}

    def rank(i: int) -> tuple[bool, bool, int]:
        return i not in k.goal_standby, bool(c.open_slots[i] == 0), order.get(k.role.get(i, NONE), 2)

    best = min(map(rank, k.best))
    return sorted((i for i in k.best if rank(i) == best), key=lambda i: (k.behind(i), i))


def _level(c: Columns, options: list[list[int]], load: Ints) -> list[int]:
    """Return one option for each task, so that the sum over instances of actives^2 / capacity is the least.

    `load`: [m] stateful actives without these tasks. A flow in which every further task of an instance costs more; a
    tie goes to the least lag. O(solve) of two arcs for each option.
    """
    task = np.repeat(np.arange(len(options)), [len(o) for o in options])
    at = np.array([i for o in options for i in o], np.int64)
    rank = np.array([min(r, TIES - 1) for o in options for r in range(len(o))], np.int64)
    # The k-th task that could come to an instance has its own arc to the sink.
    nth = rank_in_group(at) + 1
    price = (2 * (load[at] + nth) - 1) * FINE // np.maximum(c.open_slots[at], 1)
    net = Network()
    node, seat, sink = net.nodes(len(options)), net.nodes(c.m), net.nodes(1)
    # Prices are coarser if a problem is so large that they do not fit beside ties, or at all.
    price -= int(price.min())
    unit, budget = TIES * len(options), cost_budget(int(sink[0]) + 1)
    if int(price.max()) > budget // unit:
        unit, rank = 1, rank * 0
        price //= int(price.max()) // budget + 1
    used = net.arcs(node[task], seat[at], 1, rank)
    net.arcs(seat[at], sink.repeat(len(at)), 1, price * unit)
    net.supply(node, 1)
    net.supply(sink, -len(options))
    flow = net.solve()
    if flow is None:
        raise AssertionError("every task has an option")
    out = np.empty(len(options), np.int64)
    out[task[flow[used] > 0]] = at[flow[used] > 0]
    return [int(i) for i in out]


def _sorted(task: Ints, inst: Ints) -> tuple[Ints, Ints]:
    order = np.lexsort((inst, task))
    return task[order], inst[order]


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
    """Return the copies that may warm up now, at most `budget`, and those that wait, in the order of their turns.

    `max.warmup.replicas` limits the warm-ups of the whole cluster (KIP-441). The order: copies that have started, so
    that no restore work is lost; copies that free a draining instance; actives before standbys; the copies that lack
    the fewest records.

    >>> a, b = Want(False, False, True, 10, 0, 0, 1), Want(True, False, True, 99, 1, 0, 1)
    >>> within_budget([a, b], 1) == ([b], [a])
    True
    """
    order = sorted(
        wants,
        key=lambda w: (not w.under_way, not w.drains, not w.for_active, w.behind, w.task, w.inst),
    )
    return order[:budget], order[budget:]
