"""Finds the rule that decides a task's place: a full share, a cost, a rack, a weight, or a tie.

It reads only the problem and the plan. If several rules apply, it names the first in this order: the capacity share of
the instance, the share of the subtopology there, reads across racks, weights, and the tie between equal placements.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from taskplace.model.plan import Plan, Roles
from taskplace.model.problem import Problem
from taskplace.model.problem_columns import Ints
from taskplace.model.reads import changelog_reads, costs, cross_rack_reads
from taskplace.model.shares import floors_and_ceilings
from taskplace.wording import count


class Binding:
    """The shares, counts and costs of one plan. Each is computed once, when it is first needed.

    Positions (t, i) are those of `problem.columns`. Cost: O(tasks + subtopologies * instances) in all.

    >>> from taskplace.model.problem import Instance, Task, TaskId
    >>> from taskplace.planner import plan
    >>> problem = Problem([Task(TaskId(0, 0)), Task(TaskId(0, 1))], [Instance("a"), Instance("b")])
    >>> Binding(problem, plan(problem)).wanted(0, 1)
    'both balances require 1 of 2 tasks there'
    """

    def __init__(self, problem: Problem, plan: Plan) -> None:
        self.problem, self._plan = problem, plan
        self.c, self.config = problem.columns, problem.config
        self._each = self.config.rack_aware_assignment_strategy != "min_traffic"

    def wanted(self, t: int, i: int) -> str:
        """Return the reason for task t to be at instance i: its shares of both balances, or the assignor."""
        if not self.config.promises.balanced:
            return f"the assignor {self.config.task_assignor_class!r} places it there"
        text = f"{'both balances require' if self._each else 'the balance requires'} {self._span(t, i, None)} there"
        if self._each and len(self.c.subtopologies) > 1:
            text += f", and {self._span(t, i, 'sub')}"
        return text + self._traffic(t, i)

    def may_stay(self, t: int, i: int) -> str:
        """Return why task t may stay at its owner i."""
        if not self.config.promises.balanced:
            return self.wanted(t, i)
        return (
            f"{'both balances allow' if self._each else 'the balance allows'} it to stay{self._traffic(t, i)}"
        )

    def stateless(self, t: int, i: int, wanted: int) -> str:
        """Return why stateless task t is at instance i. `wanted`: its instance in the target, which may differ."""
        if self._reads is None or not self.c.racks[t]:
            return (
                "it has no state, so it goes to the least loaded instance, and stays while its share allows"
                f"{self._for_now(i, wanted)}"
            )
        reads = f"it reads {self._partitions(t, i)} across racks from there"
        return (
            "it has no state; loads are level, and within them reads across racks and moves cost least: "
            f"{reads}{self._for_now(i, wanted)}"
        )

    def _for_now(self, i: int, wanted: int) -> str:
        """Return why a stateless task is not at its target instance `wanted` yet; "" if it is."""
        if i == wanted:
            return ""
        now, then = (self._grid(roles).sum(axis=0) for roles in (self._plan.assignment, self._plan.target))
        at = wanted if now[wanted] != then[wanted] else i
        name = self.c.names[at]
        return (
            f"; it belongs on {self.c.names[wanted]}, but {name} has {count(now[at], 'stateful task')} now and "
            f"{then[at]:,} in "
            "the target, and until then loads are level this way"
        )

    def leaves(self, t: int, i: int) -> str:
        """Return why task t moves to instance i, although its owner has a good copy."""
        c, owner = self.c, int(self.c.owner[t])
        name, to = c.names[owner], c.names[i]
        if c.open_slots[owner] == 0:
            return self.closed(owner)
        s = int(c.sub[t])
        total, grid = self._now.sum(axis=0), self._now
        if total[owner] > self._total[1][owner]:
            return f"{name} has more than its share: {total[owner]} instead of {self._span(t, owner, None)}"
        if self._each and grid[s, owner] > self._subs[1][s, owner]:
            return (
                f"{name} has more than its share: {grid[s, owner]} instead of {self._span(t, owner, 'sub')}"
            )
        if total[i] < self._total[0][i]:
            return f"{to} has less than its share: {total[i]} instead of {self._span(t, i, None)}"
        if self._each and grid[s, i] < self._subs[0][s, i]:
            return f"{to} has less than its share: {grid[s, i]} instead of {self._span(t, i, 'sub')}"
        return self._cost(t, owner, i) or f"{name} takes another task in its place, as the balances require"

    def closed(self, i: int) -> str:
        """Return why an instance without open slots takes no task."""
        return f"{self.c.names[i]} {'is draining' if self.c.draining[i] else 'has no capacity'}"

    def refused(self, t: int, i: int, chosen: int) -> str:
        """Return why task t goes to `chosen` and not to instance i, which could also take it over."""
        s = int(self.c.sub[t])
        total, grid = self._then.sum(axis=0), self._then
        cost = self._cost(t, i, chosen)
        if cost and self.config.rack_aware_assignment_strategy != "none":
            return cost
        if total[i] >= self._total[1][i]:
            return f"its share, {self._span(t, i, None)}, is full"
        if self._each and grid[s, i] >= self._subs[1][s, i]:
            return f"its share, {self._span(t, i, 'sub')}, is full"
        if total[chosen] <= self._total[0][chosen]:
            return f"{self.c.names[chosen]} needs it for its share, {self._span(t, chosen, None)}"
        if self._each and grid[s, chosen] <= self._subs[0][s, chosen]:
            return f"{self.c.names[chosen]} needs it for its share, {self._span(t, chosen, 'sub')}"
        return cost or f"it is as good as {self.c.names[chosen]}, and a fixed rule breaks the tie"

    def stays(self, t: int, i: int) -> str:
        """Return the cost of moving task t from its owner, which may keep it, to instance i."""
        owner = int(self.c.owner[t])
        if self._reads is None:
            return "that would be a move"
        here, there = self._across(t, owner), self._across(t, i)
        traffic, move = costs(self.config)
        return (
            f"that would be a move (cost {move}) and {count(there, 'read')} across racks in place of {here} "
            f"(cost {traffic} each)"
        )

    def apart(self, i: int, others: list[int]) -> tuple[list[str], list[str]]:
        """Return the named tags that instance i shares with one of `others`, and those in which it differs."""
        tags = self.c.tags
        shared: list[str] = []
        differ: list[str] = []
        for tag in self.config.rack_aware_assignment_tags:
            value = tags[i].get(tag)
            if value is None:
                continue
            (shared if any(tags[o].get(tag) == value for o in others) else differ).append(f"{tag} {value}")
        return shared, differ

    def standby(self, t: int, i: int, leaves: list[int], others: list[int]) -> str:
        """Return the reason for a standby of task t to be at instance i.

        `leaves`: the instances whose standby of the task ends. `others`: those of its other copies in the target.
        """
        c, name = self.c, self.c.names[i]
        if not self.config.promises.balanced:
            return f"the assignor {self.config.task_assignor_class!r} places it there"
        for k in leaves:
            if c.open_slots[k] == 0:
                return self.closed(k)
        fewest = len(self.apart(i, others)[0])
        for k in leaves:
            shared, _ = self.apart(k, others)
            if len(shared) > fewest:
                return f"{c.names[k]} shares {', '.join(shared)} with another copy"
        now, then = self._copies
        total = count(int(then.sum()), "copy", "copies")
        if now[i] < then[i]:
            return f"{name} has less than its share: {now[i]:,} instead of {then[i]:,} of {total}"
        for k in leaves:
            if now[k] > then[k]:
                return f"{c.names[k]} has more than its share: {now[k]:,} instead of {then[k]:,} of {total}"
        return f"copies are level this way{self.follows(t, i)}"

    def follows(self, t: int, i: int) -> str:
        """Return the reads across racks of a standby of task t at instance i, as the end of a sentence."""
        if self._changelogs is None or not self.c.changelog_racks[t]:
            return ""
        rack_of, reads = self._changelogs
        number = int(reads[t, rack_of[i]])
        return f", and it reads {count(number, 'changelog partition')} across racks from there"

    def _cost(self, t: int, worse: int, better: int) -> str:
        """Return the cost for which `better` is preferred to `worse`; "" if there is none."""
        c = self.c
        if self._reads is not None and self._across(t, worse) != self._across(t, better):
            a, b = self._across(t, worse), self._across(t, better)
            traffic, move = costs(self.config)
            reads = count(a, "input partition")
            text = f"{c.names[worse]} reads {reads} across racks and {c.names[better]} {b}"
            if a > b:
                return f"{text} (a read costs {traffic}, a move {move})"
            return f"{text}, but in all reads (cost {traffic}) and moves (cost {move}) cost least this way"
        if self._reads is not None:
            return f"in all, reads across racks and moves cost least this way ({c.names[better]} takes it)"
        if len(np.unique(c.weight[c.stateful])) > 1:
            return f"tasks differ in weight ({c.weight[t]:g} here), and loads are nearer to their shares this way"
        return ""

    def _across(self, t: int, i: int) -> int:
        if self._reads is None:
            return 0
        rack_of, reads = self._reads
        return int(reads[t, rack_of[i]])

    def _partitions(self, t: int, i: int) -> str:
        return count(self._across(t, i), "input partition")

    def _traffic(self, t: int, i: int) -> str:
        if self._reads is None:
            return ""
        return f", and it reads {self._partitions(t, i)} across racks from there"

    def _span(self, t: int, i: int, of: str | None) -> str:
        s = int(self.c.sub[t])
        if of is None:
            low, high, total = self._total[0][i], self._total[1][i], int(self.c.stateful.sum())
            where = ""
        else:
            low, high, total = self._subs[0][s, i], self._subs[1][s, i], int(self._then[s].sum())
            where = f" of subtopology {int(self.c.subtopologies[s])}"
        return f"{low:,}{'' if low == high else f' to {high:,}'} of {count(total, 'task')}{where}"

    @cached_property
    def _reads(self) -> tuple[Ints, Ints] | None:
        return None if self.config.rack_aware_assignment_strategy == "none" else cross_rack_reads(self.c)

    @cached_property
    def _changelogs(self) -> tuple[Ints, Ints] | None:
        config = self.config
        racks = config.rack_aware_assignment_strategy != "none" and config.promises.weighs_racks
        return changelog_reads(self.c) if racks else None

    @cached_property
    def _total(self) -> tuple[Ints, Ints]:
        return floors_and_ceilings(int(self.c.stateful.sum()), self.c.open_slots)

    @cached_property
    def _subs(self) -> tuple[Ints, Ints]:
        counts = np.bincount(self.c.sub[self.c.stateful], minlength=len(self.c.subtopologies)).tolist()
        low, high = zip(*(floors_and_ceilings(n, self.c.open_slots) for n in counts), strict=True)
        return np.array(low), np.array(high)

    @cached_property
    def _now(self) -> Ints:
        """[subtopologies, instances] stateful actives in force."""
        owned = np.flatnonzero(self.c.stateful & (self.c.owner >= 0))
        return self._counted(owned, self.c.owner[owned])

    @cached_property
    def _then(self) -> Ints:
        """[subtopologies, instances] stateful actives in the target."""
        return self._grid(self._plan.target or self._plan.assignment)

    @cached_property
    def _copies(self) -> tuple[Ints, Ints]:
        """[instances] stateful actives and standbys, in force and in the target."""
        stateful = {id_ for id_, each in zip(self.c.ids, self.c.stateful.tolist(), strict=True) if each}
        held = {one.id: (*one.active, *one.standby) for one in self.problem.instances}
        target = self._plan.target or self._plan.assignment
        goal = {name: (*roles.active, *roles.standby) for name, roles in target.items()}
        now, then = (
            np.array([sum(t in stateful for t in each.get(name, ())) for name in self.c.names], np.int64)
            for each in (held, goal)
        )
        return now, then

    def _grid(self, roles: Mapping[str, Roles]) -> Ints:
        """Return [subtopologies, instances] stateful actives of a plan's roles."""
        at = {t: k for k, t in enumerate(self.c.ids)}
        inst = {name: k for k, name in enumerate(self.c.names)}
        pairs = [
            (at[t], inst[n]) for n, r in roles.items() for t in r.active if t in at and self.c.stateful[at[t]]
        ]
        task, where = np.array(pairs, np.int64).reshape(-1, 2).T
        return self._counted(task, where)

    def _counted(self, task: Ints, where: Ints) -> Ints:
        grid = np.zeros((len(self.c.subtopologies), self.c.m), np.int64)
        np.add.at(grid, (self.c.sub[task], where), 1)
        return grid
