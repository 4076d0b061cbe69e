"""Checks every invariant of a plan, in one function.

The tests run it after every random event, and the command line on plans of any origin. `taskplace.plan` runs the part
that needs no parsing, `violations`, on every plan before it returns it. The checks read only the problem and the plan.

Invariants
    known       only instances and tasks of the problem, and its fingerprint, if there is one
    once        every task is active exactly once
    disjoint    no two copies of a task on one instance
    stateful    only stateful tasks have standbys and warm-ups
    no-stall    a stateful task is not active on a lagging copy while a caught-up one is available
    resumes     if no copy is caught up, it is active on the copy that lacks least
    keeps       a task that has a caught-up copy keeps one
    standbys    every stateful task has its standbys, as many as instances allow
    budget      at most max.warmup.replicas warm-ups
    drained     nothing in the target is on an instance that drains
    at-rest     without follow-up, the assignment is the target and has no warm-ups
    awaited     without follow-up, no task is active on a lagging copy that a follower may overtake
    balance     the target keeps both balances: floor or ceiling of the share, in all and per subtopology
    minimal     planned moves are the lower bound
    level       step and target: stateless tasks level the actives of each instance beside its stateful ones
    alike       step and target: stateless tasks by themselves have floor or ceiling of the share, in all and per
                subtopology, wherever that can be met beside `level`
    traffic     with a rack strategy, no other standbys at loads as level cost less in changelog reads and moves
    slots       where an instance's slots are given, each of its actives is on one, and they are even
    figures     the moves, bound and promotions that the plan states are those that the problem and its target give

Five invariants are checked only if the assignor promises them (`taskplace.model.assignors.Promises`): `balance` needs
`balanced`, `minimal` also `fewest_moves`, `traffic` needs `weighs_racks`, `level` and `alike` need `levels_stateless`.
`balance`, `minimal` and `traffic` hold only where no copies are parked: `balance` as the rack strategy keeps it,
`minimal` without racks and weights, `traffic` without `rack.aware.assignment.tags`. `alike` does not hold under
min_traffic.

Levels
    full        trusts no figure of the plan. It searches for exchanges of tasks that save moves
                (`taskplace.model.proofs`) or traffic (`taskplace.model.proofs`), which is not how targets are found.
    quick       trusts one figure, the lower bound of moves: needless moves are not seen if the plan states too high
                a bound. It does not check `traffic`.
`taskplace.plan` takes the bound from the flow that made the target, and does not check `traffic` either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

import numpy as np

from taskplace import validation
from taskplace.errors import InputError, InvalidPlan
from taskplace.model.config import PlacementConfig
from taskplace.model.placement import (
    Step,
    Target,
    any_caught,
    bases,
    best_at,
    caught_at,
    handed_over,
    lagging_owners,
    moved,
)
from taskplace.model.plan import Optimality, Plan, Roles
from taskplace.model.problem import Problem
from taskplace.model.problem_columns import Columns, Ints
from taskplace.model.proofs import detour, fewest_moves, saving
from taskplace.model.shares import floors_and_ceilings, is_even, stateless_shares


class Violation(NamedTuple):
    """A broken invariant: its name, and a description with the ids."""

    invariant: str
    text: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.text}"


def verify(
    problem: Problem, plan: Plan, *, level: Literal["full", "quick"] = "full"
) -> tuple[Violation, ...]:
    """Return every invariant that `plan` breaks as an answer to `problem`; empty if it is valid.

    `level`: "full" proves the lower bound of moves and checks traffic, "quick" takes the bound from the plan.
    Errors: `InputError` for another level.

    >>> from taskplace.model.problem import Instance, Task, TaskId
    >>> problem = Problem([Task(TaskId(0, 0))], [Instance("a")])
    >>> [str(v) for v in verify(problem, Plan({"a": Roles()}, {}))]
    ['once: 1 of 1 tasks are not active exactly once: 0_0 (0 times)']
    """
    if level not in ("full", "quick"):
        raise InputError("level", found=level, expected="'full' or 'quick'")
    c = validation.of_type(problem, Problem, "problem").columns
    validation.of_type(plan, Plan, "plan")
    broken = list(_known(problem, plan))
    if broken:
        return tuple(broken)
    now, goal = _read(problem, plan.assignment), _read(problem, plan.target)
    broken += _once(c, now.counts, "")
    if plan.target:
        broken += _once(c, goal.counts, "target ")
    if broken:
        return tuple(broken)
    broken += _slots(problem, plan)
    step = now.step(followup=plan.followup)
    target = goal.step(followup=plan.followup) if plan.target else None
    right = _figures(problem, plan, step, target, prove=level == "full")
    broken += violations(c, problem.config, step, target, right)
    if target is not None and level == "full":
        broken += _traffic(c, problem.config, target)
    stated = plan.optimality != Optimality() or plan.fingerprint
    if target is not None and stated and plan.optimality != right:
        broken.append(Violation("figures", f"the plan states {plan.optimality}, expected {right}"))
    return tuple(broken)


def changes(problem: Problem, plan: Plan) -> int:
    """Return the number of roles that differ between the assignment in force and the plan's.

    It is computed from the assignments; `plan.moves` is only the plan's own statement.
    """
    roles = {
        (name, role, t)
        for name, r in plan.assignment.items()
        for role, tasks in zip(Roles._fields, r, strict=True)
        for t in tasks
    }
    now = {(i.id, role, t) for i in problem.instances for role in Roles._fields for t in getattr(i, role)}
    return len(roles ^ now)


def stable(problem: Problem, plan: Plan) -> bool:
    """Return whether the plan changes nothing, and needs no follow-up."""
    goal = {n: (set(r.active), set(r.standby)) for n, r in plan.target.items() if any(r)}
    now = {n: (set(r.active), set(r.standby)) for n, r in plan.assignment.items() if any(r)}
    return not plan.followup and not changes(problem, plan) and (not plan.target or goal == now)


def check(problem: Problem, plan: Plan) -> Plan:
    """Return `plan` if it is valid; raise `InvalidPlan` with every violation if not."""
    broken = verify(problem, plan)
    if broken:
        raise InvalidPlan("; ".join(str(v) for v in broken))
    return plan


def violations(
    c: Columns, config: PlacementConfig, step: Step, target: Target | Step | None, optimality: Optimality
) -> Iterator[Violation]:
    """Yield the broken invariants of a plan as columns; every task is known to be active exactly once."""
    yield from _disjoint(c, step)
    if (~c.stateful[step.standby_task]).any() or (~c.stateful[step.warmup_task]).any():
        yield Violation("stateful", "stateless tasks have standbys or warm-ups")
    stalled = c.stateful & any_caught(c) & ~caught_at(c, step.active)
    if stalled.any():
        t = int(np.flatnonzero(stalled)[0])
        text = f"{int(stalled.sum())} tasks are active on a lagging copy while another is caught up"
        yield Violation("no-stall", f"{text}, e.g. {c.ids[t]} on {c.names[int(step.active[t])]}")
    passed = np.flatnonzero(c.stateful & ~stalled & ~best_at(c, step.active))
    if len(passed):
        t = int(passed[0])
        text = f"{len(passed)} tasks are active on a copy with a larger lag than another copy"
        yield Violation("resumes", f"{text}, e.g. {c.ids[t]} on {c.names[int(step.active[t])]}")
    yield from _keeps(c, step)
    yield from _standbys(c, config, step)
    if len(step.warmup_task) > config.max_warmup_replicas:
        text = f"{len(step.warmup_task)} warm-ups, max.warmup.replicas is {config.max_warmup_replicas}"
        yield Violation("budget", text)
    if not step.followup:
        behind = lagging_owners(c, step.active, step.standby_task, step.warmup_task)
        waits = np.flatnonzero(behind & ~stalled)
        if len(waits):
            text = f"no follow-up, but {len(waits)} owners lag behind other copies, e.g. {c.ids[waits[0]]}"
            yield Violation("awaited", text)
    yield from _stateless(c, config, step.active, "")
    if target is None:
        return
    if (step.active != target.active).any():
        yield from _stateless(c, config, target.active, "target: ")
    used = np.concatenate([target.active, target.standby_inst])
    if (c.open_slots[used] == 0).any():
        name = c.names[int(used[c.open_slots[used] == 0][0])]
        yield Violation("drained", f"the target uses {name}, which is draining or has no capacity")
    if not step.followup:
        yield from _at_rest(c, step, target)
    if not config.promises.balanced or len(c.barred):
        return
    yield from _balance(c, target, each=config.rack_aware_assignment_strategy != "min_traffic")
    if _promises_fewest_moves(c, config) and optimality.moves != optimality.lower_bound:
        yield Violation("minimal", f"{optimality.moves} moves, although {optimality.lower_bound} are enough")


def _stateless(c: Columns, config: PlacementConfig, active: Ints, where: str) -> Iterator[Violation]:
    """Yield the violations of `level` and `alike`; O(tasks + subtopologies * instances)."""
    tasks = np.flatnonzero(~c.stateful)
    if not config.promises.levels_stateless or not len(tasks):
        return
    if (c.open_slots[active[tasks]] == 0).any():
        t = int(tasks[c.open_slots[active[tasks]] == 0][0])
        on = c.names[int(active[t])]
        yield Violation("level", f"{where}stateless task {c.ids[t]} is on {on}, which has no free slots")
        return
    shares = stateless_shares(c, active)
    counts = np.zeros_like(shares.cell_low)
    np.add.at(counts, (np.searchsorted(shares.subs, c.sub[tasks]), active[tasks]), 1)
    each = counts.sum(axis=0)
    total, kind, cells = shares.misses(counts)
    if total:
        i = int(np.flatnonzero((each < shares.low) | (each > shares.high))[0])
        share = f"a level load is {shares.low[i]} to {shares.high[i]}"
        yield Violation("level", f"{where}{c.names[i]} has {each[i]} stateless tasks, {share}")
    if config.rack_aware_assignment_strategy == "min_traffic" or not shares.kind_fits:
        return
    if kind:
        i = int(np.flatnonzero((each < shares.kind_low) | (each > shares.kind_high))[0])
        text = f"{c.names[i]} has {each[i]} stateless tasks, its share is {shares.kind_low[i]} to {shares.kind_high[i]}"
        yield Violation("alike", f"{where}{text}")
    elif cells and shares.can_be_met():
        s, i = (int(k[0]) for k in np.nonzero((counts < shares.cell_low) | (counts > shares.cell_high)))
        share = f"its share is {shares.cell_low[s, i]} to {shares.cell_high[s, i]}"
        label = f"stateless subtopology {int(c.subtopologies[shares.subs[s]])}"
        yield Violation("alike", f"{where}{label}: {c.names[i]} has {counts[s, i]}, {share}")


def _promises_fewest_moves(c: Columns, config: PlacementConfig) -> bool:
    even = len(np.unique(c.weight[c.stateful])) <= 1
    plain = config.rack_aware_assignment_strategy == "none"
    return config.promises.fewest_moves and plain and even and not len(c.barred)


def _known(problem: Problem, plan: Plan) -> Iterator[Violation]:
    c = problem.columns
    if plan.fingerprint and plan.fingerprint != c.fingerprint:
        text = f"the plan was made for problem {plan.fingerprint}, found problem {c.fingerprint}"
        yield Violation("known", text)
    names = set(c.names)
    ids = set(c.ids)
    for name in plan.slots.keys() - names:
        yield Violation("known", f"slots has {name}, which is not an instance of the problem")
    for what, roles in (("assignment", plan.assignment), ("target", plan.target)):
        for name in roles:
            if name not in names:
                yield Violation("known", f"{what} has {name}, which is not an instance of the problem")
        for t in {t for r in roles.values() for role in r for t in role} - ids:
            yield Violation("known", f"{what} has {t}, which is not a task of the problem")


def _slots(problem: Problem, plan: Plan) -> Iterator[Violation]:
    capacity = {i.id: i.capacity for i in problem.instances}
    for name, slots in sorted(plan.slots.items()):
        held = plan.assignment.get(name, Roles()).active
        if len(slots) > capacity[name]:
            yield Violation("slots", f"{name} has {capacity[name]} slots, found {len(slots)}")
        elif not is_even(slots, held):
            text = f"the {len(held)} active tasks of {name} are not spread evenly over its {len(slots)} slots"
            yield Violation("slots", text)


class _Placed(NamedTuple):
    """Roles per instance as columns."""

    active: Ints
    """[n] an instance of each task, -1 without one."""
    counts: Ints
    """[n] how many instances have the task active."""
    standby: tuple[Ints, Ints]
    """(tasks, instances), sorted."""
    warmup: tuple[Ints, Ints]

    def step(self, *, followup: bool) -> Step:
        """Return the roles as a step."""
        return Step(
            active=self.active,
            standby_task=self.standby[0],
            standby_inst=self.standby[1],
            warmup_task=self.warmup[0],
            warmup_inst=self.warmup[1],
            followup=followup,
        )


def _read(problem: Problem, roles: Mapping[str, Roles]) -> _Placed:
    """Return `roles` as columns; their tasks and instances are known."""
    c = problem.columns
    at = {t: k for k, t in enumerate(c.ids)}
    inst = {name: k for k, name in enumerate(c.names)}
    active = np.full(c.n, -1, np.int64)
    counts = np.zeros(c.n, np.int64)
    pairs: list[list[tuple[int, int]]] = [[], []]
    for name, r in roles.items():
        for t in r.active:
            active[at[t]] = inst[name]
            counts[at[t]] += 1
        pairs[0].extend((at[t], inst[name]) for t in r.standby)
        pairs[1].extend((at[t], inst[name]) for t in r.warmup)
    standby, warmup = (np.array(sorted(p), np.int64).reshape(-1, 2) for p in pairs)
    return _Placed(
        active=active,
        counts=counts,
        standby=(standby[:, 0], standby[:, 1]),
        warmup=(warmup[:, 0], warmup[:, 1]),
    )


def _once(c: Columns, counts: Ints, what: str) -> Iterator[Violation]:
    wrong = np.flatnonzero(counts != 1)
    if len(wrong):
        few = ", ".join(f"{c.ids[t]} ({counts[t]} times)" for t in wrong[:3])
        text = f"{what}{len(wrong)} of {c.n} tasks are not active exactly once: {few}"
        yield Violation("once", text)


def _figures(problem: Problem, plan: Plan, step: Step, target: Step | None, *, prove: bool) -> Optimality:
    """Return moves, lower bound and promotions of a plan.

    `prove`: compute the bound again, if the fewest moves are promised; otherwise it is the plan's.
    """
    c = problem.columns
    base = bases(c)
    moves = int(moved(c, base, (target or step).active).sum())
    bound = plan.optimality.lower_bound
    if prove and target is not None and _promises_fewest_moves(c, problem.config):
        unbalanced = any(_balance(c, target, each=True)) or (c.open_slots[target.active] == 0).any()
        bound = fewest_moves(c, base) if unbalanced else moves - saving(c, base, target.active)
    return Optimality(moves, bound, int(handed_over(c, base).sum()))


def _traffic(c: Columns, config: PlacementConfig, target: Step) -> Iterator[Violation]:
    racks = config.rack_aware_assignment_strategy != "none" and not config.rack_aware_assignment_tags
    promised = config.promises.weighs_racks and racks and not len(c.barred)
    if promised and detour(c, config, target.active, target.standby_task, target.standby_inst):
        text = "another placement of these standbys costs less in cross-rack changelog reads and moves"
        yield Violation("traffic", text)


def _disjoint(c: Columns, step: Step) -> Iterator[Violation]:
    pair = np.concatenate(
        [
            np.arange(c.n) * c.m + step.active,
            step.standby_task * c.m + step.standby_inst,
            step.warmup_task * c.m + step.warmup_inst,
        ]
    )
    pair.sort()
    twice = pair[1:][pair[1:] == pair[:-1]]
    if len(twice):
        t, i = divmod(int(twice[0]), c.m)
        text = f"{len(twice)} tasks have two copies on one instance, e.g. {c.ids[t]} on {c.names[i]}"
        yield Violation("disjoint", text)


def _keeps(c: Columns, step: Step) -> Iterator[Violation]:
    kept = c.at_once | ~any_caught(c) | caught_at(c, step.active)
    if kept[c.stateful].all():
        return
    rows = c.task[c.caught] * c.m + c.inst[c.caught]
    for task, inst in ((step.standby_task, step.standby_inst), (step.warmup_task, step.warmup_inst)):
        kept[task[np.isin(task * c.m + inst, rows)]] = True
    lost = np.flatnonzero(c.stateful & ~kept)
    if len(lost):
        text = f"{len(lost)} tasks lose their last caught-up copy, e.g. {c.ids[int(lost[0])]}"
        yield Violation("keeps", text)


def _standbys(c: Columns, config: PlacementConfig, step: Step) -> Iterator[Violation]:
    possible = max(0, min(config.num_standby_replicas, int((c.open_slots > 0).sum()) - 1))
    counts = np.bincount(step.standby_task, minlength=c.n)
    short = np.flatnonzero(c.stateful & (counts < possible))
    if len(short):
        t = int(short[0])
        text = f"{len(short)} tasks have fewer than {possible} standbys, e.g. {c.ids[t]} has {counts[t]}"
        yield Violation("standbys", text)


def _at_rest(c: Columns, step: Step, target: Target | Step) -> Iterator[Violation]:
    if len(step.warmup_task):
        yield Violation("at-rest", f"no follow-up, but {len(step.warmup_task)} warm-ups")
    if (step.active != target.active).any():
        t = int(np.flatnonzero(step.active != target.active)[0])
        yield Violation("at-rest", f"no follow-up, but {c.ids[t]} is not active where the target wants it")
    now, goal = step.standby_task * c.m + step.standby_inst, target.standby_task * c.m + target.standby_inst
    apart = np.setxor1d(now, goal)  # a pair that is listed twice is for `disjoint`
    if len(apart):
        t = int(apart[0]) // c.m
        text = f"no follow-up, but standbys of {c.ids[t]} are not where the target wants them"
        yield Violation("at-rest", text)


def _balance(c: Columns, target: Target | Step, *, each: bool) -> Iterator[Violation]:
    stateful = np.flatnonzero(c.stateful)
    if not len(stateful):
        return
    grid = np.zeros((len(c.subtopologies), c.m), np.int64)
    np.add.at(grid, (c.sub[stateful], target.active[stateful]), 1)
    parts = [("all tasks", grid.sum(axis=0))]
    if each:
        parts += [(f"subtopology {s}", row) for s, row in zip(c.subtopologies.tolist(), grid, strict=True)]
    for label, counts in parts:
        low, high = floors_and_ceilings(int(counts.sum()), c.open_slots)
        bad = np.flatnonzero((counts < low) | (counts > high))
        if len(bad):
            i = int(bad[0])
            text = f"{label}: {c.names[i]} has {counts[i]}, its share is {low[i]} to {high[i]}"
            yield Violation("balance", text)
