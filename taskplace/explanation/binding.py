"""Finds the rule that decides a task's place: a full share, a cost, a rack, a weight, or a tie.

The flow decides all places together, so it has no reason for one task. This module reads the reason off the problem and
the target. If several rules apply, it names the first in this order: the capacity share of the instance, the share of
the subtopology there, reads across racks, weights, and the tie between equal placements.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from taskplace.model.placement import costs, cross_rack_reads
from taskplace.model.plan import Plan
from taskplace.model.problem import Problem
from taskplace.model.problem_columns import Ints
from taskplace.model.shares import floors_and_ceilings
from taskplace.wording import count


class Binding:
    """The shares, counts and costs of one plan. Each is computed once, when it is first needed.

    Positions (t, i) are those of `problem.columns`. Cost: O(tasks + subtopologies * instances) in all. Each method
    returns a clause: lower case, no full stop.

    >>> from taskplace.model.problem import Instance, Task, TaskId
    >>> from taskplace.planner import plan
    >>> problem = Problem([Task(TaskId(0, 0)), Task(TaskId(0, 1))], [Instance("a"), Instance("b")])
    >>> Binding(problem, plan(problem)).wanted(0, 1)
    'so that b has 1 of the 2 tasks'
    """

    def __init__(self, problem: Problem, plan: Plan) -> None:
        self.problem, self._plan = problem, plan
        self.c, self.config = problem.columns, problem.config
        self._target = plan.target or plan.assignment
        self._each = self.config.rack_aware_assignment_strategy != "min_traffic"

    def wanted(self, t: int, i: int) -> str:
        """Return why task t belongs at instance i: the shares there, and its reads across racks."""
        if not self.config.promises.balanced:
            return f"where the assignor {self.config.task_assignor_class!r} places it"
        if np.count_nonzero(self.c.open_slots) == 1:
            return "since no other instance can take it"
        shares = self._share(t, i, None)
        if self._each and len(self.c.subtopologies) > 1:
            shares += f" and {self._share(t, i, int(self.c.sub[t]))}"
        if (reads := self._across(t, i)) is not None:
            shares += f", and it reads {count(reads, 'input partition')} across racks there"
        return f"so that {self.c.names[i]} has {shares}"

    def leaves(self, t: int, i: int) -> str:
        """Return why task t moves to instance i, although its owner has a good copy."""
        c, owner = self.c, int(self.c.owner[t])
        if not c.open_slots[owner]:
            return f"since {self.closed(owner)}"
        for of in self._scopes(t):
            low, high, now, _ = self._counts(of)
            for at, differs in ((owner, now[owner] > high[owner]), (i, now[i] < low[i])):
                if differs:
                    return f"so that {c.names[at]} has {self._share(t, at, of)} (it has {now[at]:,} now)"
        swap = f"{c.names[owner]} takes another task in its place, for equal shares"
        return f"since {self._cost(t, owner, i) or swap}"

    def refused(self, t: int, i: int, chosen: int) -> str:
        """Return why task t goes to `chosen` and not to instance i, which could also take it over."""
        cost = self._cost(t, i, chosen)
        if cost and self.config.rack_aware_assignment_strategy != "none":
            return cost
        for of in self._scopes(t):
            low, high, _, then = self._counts(of)
            if then[i] >= high[i]:
                return f"its share, {self._share(t, i, of)}, is full"
            if then[chosen] <= low[chosen]:
                return f"{self.c.names[chosen]} needs it for its share, {self._share(t, chosen, of)}"
        return cost or f"it is as good as {self.c.names[chosen]}, and a fixed rule breaks the tie"

    def closed(self, i: int) -> str:
        """Return why an instance without open slots takes no task."""
        return f"{self.c.names[i]} {'is draining' if self.c.draining[i] else 'has no capacity'}"

    def stateless(self, i: int, wanted: int) -> str:
        """Return why a stateless task is at instance i. `wanted`: its instance in the target, which may differ."""
        level = "it has no state, so it goes where loads are level, and stays while they are"
        if i == wanted:
            return level
        return f"{level}; it belongs on {self.c.names[wanted]}, once the stateful tasks have moved"

    def standby(self, i: int, leaves: list[int], others: list[int]) -> str:
        """Return why a standby of a task belongs at instance i.

        `leaves`: the instances whose standby of the task ends. `others`: those of its other copies in the target.
        """
        c = self.c
        if not self.config.promises.balanced:
            return f"where the assignor {self.config.task_assignor_class!r} places it"
        fewest = len(self.apart(i, others)[0])
        for k in leaves:
            if not c.open_slots[k]:
                return f"since {self.closed(k)}"
            shared = self.apart(k, others)[0]
            if len(shared) > fewest:
                return f"since {c.names[k]} shares {', '.join(shared)} with another copy"
        return "so that instances have about as many copies"

    def apart(self, i: int, others: list[int]) -> tuple[list[str], list[str]]:
        """Return the named tags that instance i shares with one of `others`, and those in which it differs."""
        named, tags = self.config.rack_aware_assignment_tags, self.c.tags
        mine = {tag: tags[i][tag] for tag in named if tags[i].get(tag) is not None}
        shared = [tag for tag, value in mine.items() if any(tags[o].get(tag) == value for o in others)]
        differ = [tag for tag in mine if tag not in shared]
        return [f"{tag} {mine[tag]}" for tag in shared], [f"{tag} {mine[tag]}" for tag in differ]

    def _cost(self, t: int, worse: int, better: int) -> str:
        """Return the cost for which `better` is preferred to `worse`; "" if there is none."""
        c, here, there = self.c, self._across(t, worse), self._across(t, better)
        if here is None or there is None:
            if len(np.unique(c.weight[c.stateful])) > 1:
                return f"tasks differ in weight ({c.weight[t]:g} here), and loads are nearer to their shares this way"
            return ""
        traffic, move = costs(self.config)
        if here > there:
            more = f"{c.names[worse]} reads {count(here, 'input partition')} across racks"
            return f"{more} and {c.names[better]} {there} (a read costs {traffic}, a move {move})"
        return f"in all, reads across racks (cost {traffic}) and moves (cost {move}) cost least this way"

    def _scopes(self, t: int) -> tuple[int | None, ...]:
        """Return whose shares count for task t: those of all tasks, and those of its subtopology."""
        return (None, int(self.c.sub[t])) if self._each else (None,)

    def _share(self, t: int, i: int, of: int | None) -> str:
        """Return the share of instance i in words: "2 of the 4 tasks", "at most 1 of the 3 tasks of subtopology 0"."""
        lows, highs, _, then = self._counts(of)
        low, high, total = int(lows[i]), int(highs[i]), int(then.sum())
        number = f"{high:,}"
        if low < high:
            number = f"{low:,} {'or' if high == low + 1 else 'to'} {high:,}" if low else f"at most {high:,}"
        tasks = f"{number} task" if total == 1 else f"{number} of the {total:,} tasks"
        return tasks if of is None else f"{tasks} of subtopology {int(self.c.subtopologies[of])}"

    def _counts(self, of: int | None) -> tuple[Ints, Ints, Ints, Ints]:
        """Return [instances] the least, the most, the present and the target's stateful actives.

        `of`: the position of a subtopology; None: of all tasks.
        """
        now, then = (grid.sum(axis=0) if of is None else grid[of] for grid in (self._now, self._then))
        if of not in self._shares:
            self._shares[of] = floors_and_ceilings(int(then.sum()), self.c.open_slots)
        return (*self._shares[of], now, then)

    @cached_property
    def _shares(self) -> dict[int | None, tuple[Ints, Ints]]:
        return {}

    @cached_property
    def _now(self) -> Ints:
        owned = np.flatnonzero(self.c.stateful & (self.c.owner >= 0))
        return self._counted(owned, self.c.owner[owned])

    @cached_property
    def _then(self) -> Ints:
        at, inst = ({name: k for k, name in enumerate(names)} for names in (self.c.ids, self.c.names))
        pairs = [(at[t], inst[name]) for name, roles in self._target.items() for t in roles.active if t in at]
        task, where = np.array([p for p in pairs if self.c.stateful[p[0]]], np.int64).reshape(-1, 2).T
        return self._counted(task, where)

    def _counted(self, task: Ints, where: Ints) -> Ints:
        grid = np.zeros((len(self.c.subtopologies), self.c.m), np.int64)
        np.add.at(grid, (self.c.sub[task], where), 1)
        return grid

    def _across(self, t: int, i: int) -> int | None:
        """Return the input partitions that task t reads across racks at instance i; None if racks do not count."""
        if self._reads is None:
            return None
        rack_of, reads = self._reads
        return int(reads[t, rack_of[i]])

    @cached_property
    def _reads(self) -> tuple[Ints, Ints] | None:
        return None if self.config.rack_aware_assignment_strategy == "none" else cross_rack_reads(self.c)
