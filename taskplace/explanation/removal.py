"""Decides whether an instance can be removed now. It checks each task of the instance, and does not rely on counts.

**The rule** has two parts. The answer is yes if both hold.

1. *Safe*: no task would wait. Every task in which the instance has a role is caught up on another instance that stays
   (an instance that does not drain and has capacity). A copy without a role is not the best one: neither the last
   caught-up copy nor, if no copy is caught up, the one that lacks least. Tasks that need no copy (stateless, an empty
   changelog, a store that is not logged) only need another instance that stays.
2. *Empty*: the instance has no role. Otherwise its tasks are promoted elsewhere while they run. A drain empties it.

A drain waits for the *target*: a task leaves the instance once the copy at its target is caught up, and a standby once
its replacement is. So it waits for a copy that cannot follow, although another copy is caught up. Such copies are named
with their cause and a remedy, as far as the caller has seen them (`Seen`). Before a drain, the best copies elsewhere of
tasks that would have to wait are named as well.

`removable` applies the rule to plain copies, for callers without a `Problem`. `can_remove` applies it to a problem. The
engine, `Placed`, the command line and the driver's answers to operators all use it, so they give the same answer.

Source: KIP-441 (a task never loses its last caught-up copy).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct, structs

from taskplace import validation
from taskplace.errors import InputError
from taskplace.lag.ranking import Seen, lacking, seconds_left, to_go, whole
from taskplace.model.plan import Roles
from taskplace.model.problem import Problem
from taskplace.model.problem_columns import NO_COPY, ROLE_NAMES, STANDBY, WARMUP
from taskplace.validation import MOST
from taskplace.wording import about, count, listed, noun, one_of
from topology.tasks import TaskId

SCHEMA = "taskplace.removal/1"
SHOWN = 5


class Copy(NamedTuple):
    """A copy of a stateful task.

    - `role`: its role, or "none"
    - `lag`: the records that it lacks; None if the copy has not started
    - `caught_up`: whether it counts as caught up
    """

    task: TaskId
    instance: str
    role: str = "none"
    lag: int | None = None
    caught_up: bool = False


class Held(NamedTuple):
    """How many tasks an instance has in each role.

    >>> str(Held(active=4, standby=1))
    '4 active and 1 standby tasks'
    """

    active: int = 0
    standby: int = 0
    warmup: int = 0

    def __str__(self) -> str:
        names = ("active", "standby", "warm-up")
        parts = [f"{number:,} {name}" for number, name in zip(self, names, strict=True) if number]
        return f"{listed(parts)} {noun(sum(self), 'task')}" if parts else "no task"


NOTHING = Held()


class Wait(Struct, frozen=True):
    """A task that must catch up elsewhere first.

    - `role`: its role on the instance that shall be removed
    - `at`: the other instance with the best copy, or None
    - `behind`: the records that this copy lacks; None if it has not started
    - `seconds`: until this copy has caught up; None if that is not known, or if it does not follow
    """

    task: str
    role: str
    at: str | None
    behind: int | None
    seconds: float | None = None

    @property
    def best(self) -> str:
        """The other instance with the best copy, and what it lacks."""
        if self.at is None:
            return "no other copy"
        behind = (
            "has read nothing yet" if self.behind is None else f"is {count(self.behind, 'record')} behind"
        )
        return f"{self.at} {behind}"

    def __str__(self) -> str:
        return f"{self.task} ({self.best})"


class Stuck(Struct, frozen=True):
    """A copy elsewhere that makes no progress, and that the instance's task waits for.

    - `at`: the instance that has it
    - `cause`, `remedy`: why it makes no progress, and what to do about it, as clauses
    """

    task: str
    at: str
    cause: str
    remedy: str


def stuck_text(stuck: Sequence[Stuck]) -> str:
    """Return that copies are stuck, as a clause; "" without any.

    >>> one = Stuck("0_4", "c", "c cannot follow: DiskFull", "make room on its disk")
    >>> stuck_text([one])
    'the copy of 0_4 on c is stuck: c cannot follow: DiskFull; make room on its disk'
    >>> stuck_text([one, one]).partition(": ")[0]
    '2 copies that it waits for are stuck, such as that of 0_4 on c'
    """
    if not stuck:
        return ""
    one = stuck[0]
    what = f"the copy of {one.task} on {one.at} is stuck"
    if len(stuck) > 1:
        what = f"{len(stuck):,} copies that it waits for are stuck, such as that of {one.task} on {one.at}"
    return f"{what}: {one.cause}; {one.remedy}"


@dataclass(frozen=True)
class Removal:
    """The answer to whether an instance can be removed now.

    - `waits`: the tasks that must catch up elsewhere first
    - `stuck`: the copies elsewhere that its tasks wait for and that make no progress, as far as that is known
    - `alone`: whether no other instance can take work
    - `held`: the numbers of its tasks
    - `draining`: whether it drains; `gone`: whether it is gone already
    """

    instance: str
    waits: tuple[Wait, ...] = ()
    alone: bool = False
    held: Held = NOTHING
    draining: bool = False
    gone: bool = False
    stuck: tuple[Stuck, ...] = ()

    @property
    def can_remove(self) -> bool:
        """Whether the instance can be removed now: it is empty, and no task would wait for it."""
        return self.gone or (self.safe and not any(self.held))

    @property
    def safe(self) -> bool:
        """Whether no task would wait if the instance were lost now."""
        return not self.waits and not self.alone

    @property
    def seconds(self) -> float | None:
        """The seconds until every task that waits has caught up elsewhere; None if that is not known of each."""
        known = [wait.seconds for wait in self.waits if wait.seconds is not None]
        return max(known) if known and len(known) == len(self.waits) else None

    def timed(self, remaining: Callable[[str, TaskId], float | None]) -> Removal:
        """Return the answer with times. `remaining`: the seconds until the copy of an instance has caught up."""
        waits = [
            wait
            if wait.at is None
            else structs.replace(wait, seconds=remaining(wait.at, TaskId.parse(wait.task)))
            for wait in self.waits
        ]
        return replace(self, waits=tuple(waits))

    @property
    def text(self) -> str:
        """The answer in one line, with what to do."""
        if self.gone:
            return "yes: it is gone"
        if self.alone:
            return "no: there is no other instance that stays and can take work"
        if self.can_remove:
            return "yes: it has no task, and no copy that the others lack"
        if self.waits:
            named = listed(self.waits, most=SHOWN)
            takes = "" if self.seconds is None else f", which takes {about(self.seconds)}"
            why = f"{count(len(self.waits), 'task')} must catch up elsewhere first{takes}: {named}"
        else:
            why = f"it still has {self.held}; no task has to catch up elsewhere first"
        stuck = stuck_text(self.stuck)
        if self.draining:
            return f"no: {why}; it drains, {f'but {stuck}' if stuck else 'so they move with the next plans'}"
        todo = ("drain it first",) if any(self.held) else ()
        return "; ".join(filter(None, (f"no: {why}", *todo, stuck)))

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as a "taskplace.removal/1" dict."""
        return {
            "schema": SCHEMA,
            "instance": self.instance,
            "can_remove": self.can_remove,
            "safe": self.safe,
            "draining": self.draining,
            "held": self.held._asdict(),
            "waits": list(map(structs.asdict, self.waits)),
            "stuck": list(map(structs.asdict, self.stuck)),
            "seconds": self.seconds,
            "text": self.text,
        }


def removable(
    instance: str,
    copies: Iterable[Copy],
    staying: Collection[str],
    *,
    held: Held | None = None,
    draining: bool = False,
    seen: Mapping[tuple[str, TaskId], Seen] = MappingProxyType({}),
    target: Mapping[str, Roles] | None = None,
) -> Removal:
    """Return whether `instance` can be removed. O(copies * log copies).

    - `copies`: all copies, on any instance, of the tasks that need a copy and of which `instance` has a copy or a role
    - `staying`: the instances that stay and can take work
    - `held`: the numbers of its tasks; None: they are the roles among `copies`
    - `draining`: whether it drains
    - `seen`: what is known of copies that catch up; the answer names those that make no progress
    - `target`: by instance, its roles in the target. A drain waits for the copies there; None: any may be one of them

    >>> t = TaskId(0, 0)
    >>> mine, other = Copy(t, "a", "standby", 0, True), Copy(t, "b", "active", 7, True)
    >>> removable("a", [mine, other], {"a", "b"}).text
    'no: it still has 1 standby task; no task has to catch up elsewhere first; drain it first'
    >>> removable("a", [mine._replace(role="none"), other], {"a", "b"}).can_remove
    True
    >>> removable("a", [mine, other._replace(caught_up=False)], {"a", "b"}).waits
    (Wait(task='0_0', role='standby', at='b', behind=7, seconds=None),)
    """
    others = [name for name in staying if name != instance]
    copies, staying = list(copies), frozenset(others)
    mine = {copy.task: copy for copy in copies if copy.instance == instance}
    if held is None:
        held = Held(*(sum(copy.role == role for copy in mine.values()) for role in Held._fields))
    if not others:
        return Removal(instance, alone=True, held=held, draining=draining)
    best: dict[TaskId, Copy] = {}
    for copy in sorted((copy for copy in copies if copy.instance in staying), key=_quality):
        best.setdefault(copy.task, copy)
    waits = []
    for task, copy in sorted(mine.items()):
        there = best.get(task)
        as_good = there and not copy.caught_up and copy.lag is not None and _quality(there)[1] <= copy.lag
        needless = copy.role == "none" and (copy.lag is None or as_good)
        if not (needless or (there and there.caught_up)):
            waits.append(Wait(str(task), copy.role, there and there.instance, there and there.lag))
    roles = {task: copy.role for task, copy in mine.items() if copy.role != "none"}
    best_elsewhere = set() if draining else {(wait.task, wait.at) for wait in waits}
    awaited = [
        copy
        for copy in copies
        if (str(copy.task), copy.instance) in best_elsewhere
        or (copy.instance in staying and _is_awaited(copy, roles, target))
    ]
    return Removal(instance, tuple(waits), held=held, draining=draining, stuck=tuple(_stuck(awaited, seen)))


def _is_awaited(copy: Copy, roles: Mapping[TaskId, str], target: Mapping[str, Roles] | None) -> bool:
    """Return whether a drain waits for this copy, given the `roles` that the instance has in tasks."""
    if target is None or copy.task not in roles:
        return copy.task in roles
    there = target.get(copy.instance, Roles())
    return copy.task in there.active or (roles[copy.task] != "active" and copy.task in there.standby)


def _stuck(others: Iterable[Copy], seen: Mapping[tuple[str, TaskId], Seen]) -> Iterator[Stuck]:
    """Yield the followers that are not caught up and make no progress. Warm-ups first: tasks move there next."""
    for copy in sorted(others, key=lambda copy: (copy.role != "warmup", copy.task, copy.instance)):
        known = seen.get((copy.instance, copy.task))
        if copy.role in ("standby", "warmup") and not copy.caught_up and known and known.stalled:
            yield Stuck(str(copy.task), copy.instance, known.stalled, known.remedy)


def _quality(copy: Copy) -> tuple[bool, int, str]:
    """Return the order of a task's copies, best first, as `taskplace.lag.ranking.best_first` has it."""
    return not copy.caught_up, MOST if copy.lag is None else copy.lag, copy.instance


def can_remove(
    problem: Problem,
    instance: str,
    *,
    seen: Mapping[tuple[str, TaskId], Seen] = MappingProxyType({}),
    rates: Mapping[str, float | None] = MappingProxyType({}),
    target: Mapping[str, Roles] | None = None,
) -> Removal:
    """Return whether an instance can be removed now, and the tasks that must catch up elsewhere first.

    `seen`, `rates`: as for `CatchingUp`. `target`: as for `removable`, of the plan in force.
    Errors: `InputError` for an instance that is not in the problem. O(tasks + copies) in numpy, and O(copies of the
    tasks on the instance).

    >>> from taskplace.model.problem import Instance, Task
    >>> t = TaskId(0, 0)
    >>> a = Instance("a", active=[t], lags={t: 0})
    >>> b = Instance("b", standby=[t], lags={t: 20_000}, restore_rate=200.0)
    >>> found = can_remove(Problem([Task(t, end_offset=50_000)], [a, b]), "a")
    >>> found.text.partition(": ")[2].partition(":")[0], found.seconds
    ('1 task must catch up elsewhere first, which takes about 50 seconds', 50.0)
    """
    c = validation.of_type(problem, Problem, "problem").columns
    if instance not in c.names:
        hint = validation.nearest(instance, c.names)
        raise InputError("instance", found=instance, expected=one_of(c.names, "instance", most=10), hint=hint)
    at = c.names.index(instance)
    concerned = np.zeros(c.n, np.bool_)
    concerned[c.task[c.inst == at]] = True
    concerned &= c.stateful & ~c.at_once
    copies = [
        Copy(
            c.ids[int(c.task[k])],
            c.names[int(c.inst[k])],
            ROLE_NAMES[int(c.role[k])],
            None if c.lag[k] == NO_COPY else int(c.lag[k]),
            bool(c.caught[k]),
        )
        for k in np.flatnonzero(concerned[c.task]).tolist()
    ]
    roles = c.role[c.inst == at]
    held = Held(int((c.owner == at).sum()), int((roles == STANDBY).sum()), int((roles == WARMUP).sum()))
    staying = {i.id for i in problem.instances if i.capacity and not i.draining}
    found = removable(
        instance, copies, staying, held=held, draining=bool(c.draining[at]), seen=seen, target=target
    )
    if not found.waits:
        return found
    follow = np.flatnonzero((c.role == STANDBY) | (c.role == WARMUP))
    follows = zip(c.task[follow].tolist(), c.inst[follow].tolist(), strict=True)
    catching_up = CatchingUp(problem, follows, seen, rates)
    return found.timed(lambda name, task: catching_up.seconds(name, task)[0])


class CatchingUp:
    """When the copies of one problem that follow have caught up.

    - `follows`: the followers, as positions of task and instance. Those of one instance take turns
    - `seen`, `rates`: what a driver has measured, in place of the problem's restore rates

    >>> from taskplace.model.problem import Instance, Task
    >>> one = TaskId(0, 0)
    >>> b = Instance("b", warmup=[one], lags={one: 12_000}, restore_rate=100.0)
    >>> CatchingUp(Problem([Task(one, end_offset=20_000)], [b]), [(0, 0)]).seconds("b", one)
    (20.0, '')
    """

    def __init__(
        self,
        problem: Problem,
        follows: Iterable[tuple[int, int]],
        seen: Mapping[tuple[str, TaskId], Seen] = MappingProxyType({}),
        rates: Mapping[str, float | None] = MappingProxyType({}),
    ) -> None:
        c = problem.columns
        self._seen, self._acceptable = seen, problem.config.acceptable
        self._own = {one.id: one.restore_rate for one in problem.instances}
        self._rates = {**self._own, **rates}
        length = whole(c.end)
        copies = zip(c.task.tolist(), c.inst.tolist(), strict=True)
        lacks = dict(zip(copies, lacking(c.lag, length[c.task]).tolist(), strict=True))
        self._left: dict[tuple[str, TaskId], int] = {}
        self._queued: dict[str, int] = {}
        for t, i in follows:
            left = lacks.get((t, i), int(length[t]))
            self._left[c.names[i], c.ids[t]] = left
            self._queued[c.names[i]] = self._queued.get(c.names[i], 0) + left

    def seconds(self, name: str, task: TaskId) -> tuple[float | None, str]:
        """Return the seconds until a copy has caught up, or None and why they are not known; O(1)."""
        lag = self._left.get((name, task))
        if lag is None:
            return None, "the copy does not follow"
        if self._queued[name] >= MOST:
            return None, "the length of a changelog is not known"
        if (seen := self._seen.get((name, task))) is not None:
            known = None if seen.stalled else seen.remaining
            why = seen.stalled or seen.unknown or f"{name} shows no progress yet"
        else:
            left, ahead = to_go(lag, self._acceptable.at(self._own[name])), self._queued[name] - lag
            known = seconds_left(left, rate=self._rates[name], ahead=ahead)
            why = f"no restore rate of {name} has been measured"
        return known, "" if known is not None else why
