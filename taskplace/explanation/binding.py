"""Finds the rule that decides a task's place: a full share, a cost, a rack, a weight, or a tie.

It reads only the problem and the plan. If several rules apply, it names the first in this order: the capacity share of
the instance, the share of the subtopology there, reads across racks, weights, and the tie between equal placements.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from taskplace.model.placement import changelog_reads, costs, cross_rack_reads
from taskplace.model.plan import Plan, Roles
from taskplace.model.problem import Problem
from taskplace.model.problem_columns import Ints
from taskplace.model.shares import floors_and_ceilings
from taskplace.wording import count


class Binding:
    """The shares, counts and costs of one plan. Each is computed once, when it is first needed.

    Positions (t, i) are those of `problem.columns`. Cost: O(tasks + subtopologies * instances) in all.

    >>> from taskplace.model.problem import Instance, Task, TaskId
    >>> from taskplace.planner import plan
    >>> problem = Problem([Task(TaskId(0, 0)), Task(TaskId(0, 1))], [Instance("a"), Instance("b")])
    >>> Binding(problem, plan(problem)).wanted(0, 1)
    'so that each instance has 1 of the 2 tasks'
    """

    def __init__(self, problem: Problem, plan: Plan) -> None:
        self.problem, self._plan = problem, plan
        self.c, self.config = problem.columns, problem.config
        self._each = self.config.rack_aware_assignment_strategy != "min_traffic"

    def wanted(self, t: int, i: int) -> str:
        """Return the reason for task t to be at instance i, as a subordinate clause: its shares, or the assignor."""
        if not self.config.promises.balanced:
            return self._placed_by_assignor()
        if np.count_nonzero(self.c.open_slots) == 1:
            return f"since no other instance can take it{self._traffic(t, i)}"
        both = (None, "sub") if self._each and len(self.c.subtopologies) > 1 else (None,)
        return self._so_that(t, i, *both) + self._traffic(t, i)

    def as_good(self, t: int) -> list[str]:
        """Return the instances that would be as good for task t, of which no instance has a copy; sorted.

        Two such tasks of a subtopology may exchange their places: no count, cost or number of copies changes.
        """
        if not self.config.promises.balanced or self._reads is not None or t not in self._new:
            return []
        return sorted(self._new_places[self._likeness(t)] - {self._new[t]})

    @cached_property
    def _new(self) -> dict[int, str]:
        """The stateful tasks of which no instance has a copy, with their instances in the target."""
        c = self.c
        places = self._plan.target or self._plan.assignment
        at = {task: name for name, roles in places.items() for task in roles.active}
        parked = {p // c.m for p in c.parked.tolist()}
        new = np.flatnonzero(c.stateful & (c.owner < 0) & (c.start[:-1] == c.start[1:])).tolist()
        return {t: at[c.ids[t]] for t in new if t not in parked and c.ids[t] in at}

    @cached_property
    def _new_places(self) -> dict[tuple[object, ...], set[str]]:
        """The instances of the new tasks that are alike."""
        places: dict[tuple[object, ...], set[str]] = {}
        for t, name in self._new.items():
            places.setdefault(self._likeness(t), set()).add(name)
        return places

    def _likeness(self, t: int) -> tuple[object, ...]:
        return int(self.c.sub[t]), float(self.c.weight[t]), self.c.changelog_racks[t]

    def _placed_by_assignor(self) -> str:
        return f"where the assignor {self.config.task_assignor_class!r} places it"

    def _so_that(self, t: int, i: int, *of: str | None, now: int | None = None) -> str:
        """Return the purpose of a placement: the shares of all instances if they are equal, else that of i.

        `now`: how many tasks i has; None: this is not said.
        """
        open_ = self.c.open_slots > 0
        spans = [self._shares(t, each) for each in of]
        even = bool(open_.all()) and all(len({*zip(low, high, strict=True)}) == 1 for low, high, _ in spans)
        who = "each instance" if even else self.c.names[i]
        texts = [_of_tasks(int(low[i]), int(high[i]), total) for low, high, total in spans]
        if "sub" in of:
            texts[-1] += f" of subtopology {int(self.c.subtopologies[int(self.c.sub[t])])}"
        has = "" if now is None else f" ({self.c.names[i] if even else 'it'} has {now:,} now)"
        return f"so that {who} has {' and '.join(texts)}{has}"

    def stateless(self, t: int, i: int, wanted: int) -> str:
        """Return why stateless task t is at instance i. `wanted`: its instance in the target, which may differ."""
        if self._reads is None or not self.c.racks[t]:
            return (
                "it has no state, so it goes to the least loaded instance, and stays while loads are level"
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
        """Return why task t moves to instance i, although its owner has a good copy, as a subordinate clause."""
        c, owner = self.c, int(self.c.owner[t])
        name = c.names[owner]
        if c.open_slots[owner] == 0:
            return f"since {self.closed(owner)}"
        s = int(c.sub[t])
        total, grid = self._now.sum(axis=0), self._now
        if total[owner] > self._total[1][owner]:
            return self._so_that(t, owner, None, now=int(total[owner]))
        if self._each and grid[s, owner] > self._subs[1][s, owner]:
            return self._so_that(t, owner, "sub", now=int(grid[s, owner]))
        if total[i] < self._total[0][i]:
            return self._so_that(t, i, None, now=int(total[i]))
        if self._each and grid[s, i] < self._subs[0][s, i]:
            return self._so_that(t, i, "sub", now=int(grid[s, i]))
        return (
            f"since {self._cost(t, owner, i) or f'{name} takes another task in its place, for equal shares'}"
        )

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
        c = self.c
        if not self.config.promises.balanced:
            return self._placed_by_assignor()
        for k in leaves:
            if c.open_slots[k] == 0:
                return f"since {self.closed(k)}"
        fewest = len(self.apart(i, others)[0])
        for k in leaves:
            shared, _ = self.apart(k, others)
            if len(shared) > fewest:
                return f"since {c.names[k]} shares {', '.join(shared)} with another copy"
        now, then = self._copies
        total = count(int(then.sum()), "copy", "copies")
        for k in [i] if now[i] < then[i] else [k for k in leaves if now[k] > then[k]]:
            return f"so that {c.names[k]} has {then[k]:,} of the {total} (it has {now[k]:,} now)"
        return f"since each instance has about as many copies this way{self.follows(t, i)}"

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
        low, high, total = self._shares(t, of)
        where = "" if of is None else f" of subtopology {int(self.c.subtopologies[int(self.c.sub[t])])}"
        return f"{low[i]:,}{'' if low[i] == high[i] else f' to {high[i]:,}'} of {count(total, 'task')}{where}"

    def _shares(self, t: int, of: str | None) -> tuple[list[int], list[int], int]:
        """Return the least and the most tasks of each instance, and all: of the problem, or of the subtopology of t."""
        s = int(self.c.sub[t])
        if of is None:
            low, high, total = *self._total, self.c.stateful.sum()
        else:
            low, high, total = self._subs[0][s], self._subs[1][s], self._then[s].sum()
        return low.tolist(), high.tolist(), int(total)

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


def _of_tasks(low: int, high: int, total: int) -> str:
    """Return a share in words.

    >>> _of_tasks(2, 2, 4), _of_tasks(2, 3, 5), _of_tasks(0, 1, 3), _of_tasks(0, 1, 1)
    ('2 of the 4 tasks', '2 or 3 of the 5 tasks', 'at most 1 of the 3 tasks', 'at most 1 task')
    """
    number = f"{high:,}"
    if low < high:
        number = f"{low:,} {'or' if high == low + 1 else 'to'} {high:,}" if low else f"at most {high:,}"
    return f"{number} task" if total == 1 else f"{number} of the {total:,} tasks"
