"""Gives the reasons for a task's roles: why it is active there, why a copy follows, and why instances are refused.

Reasons are clauses: they begin in lower case and have no full stop, so that they can be parts of sentences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from taskplace.explanation.binding import Binding
from taskplace.explanation.explained import Refusal
from taskplace.lag.ranking import Copy, Seen, lacking
from taskplace.model.placement import FIXED, FORCED, RESUME, bases
from taskplace.model.plan import Plan
from taskplace.model.problem import Problem
from taskplace.model.problem_columns import NO_COPY, ROLE_NAMES, UNKNOWN, Columns
from taskplace.wording import count, listed


class OneTask(NamedTuple):
    """One task: its position, its roles by instance (`now` in the step, `goal` in the target), and its copy rows."""

    t: int
    now: Mapping[str, str]
    goal: Mapping[str, str]
    rows: Mapping[int, int]

    @property
    def active(self) -> str:
        """The instance where it is active in the step; "" if the plan does not place it."""
        return next((name for name, role in self.now.items() if role == "active"), "")

    @property
    def wanted(self) -> str:
        """The instance where it belongs."""
        return next((name for name, role in self.goal.items() if role == "active"), self.active)


class Why(NamedTuple):
    """Why a task or a standby is where it is, or is to move. `but`: why it waits, as a clause; "" if it does not.

    >>> str(Why("it is to move to b since a is draining", "b still lacks 7 records"))
    'it is to move to b since a is draining, but b still lacks 7 records'
    """

    why: str
    but: str = ""

    def __str__(self) -> str:
        return f"{self.why}, but {self.but}" if self.but else self.why


class Reasons:
    """The reasons of one plan. Values that tasks share are computed once."""

    def __init__(self, problem: Problem, plan: Plan) -> None:
        self.problem, self._plan = problem, plan
        self._c: Columns = problem.columns
        self._at = {name: k for k, name in enumerate(self._c.names)}

    @cached_property
    def _base(self) -> Any:
        return bases(self._c).tolist()

    @cached_property
    def _binding(self) -> Binding:
        return Binding(self.problem, self._plan)

    @cached_property
    def _kept(self) -> frozenset[int]:
        return frozenset(self._c.kept.tolist())

    @cached_property
    def _parked(self) -> frozenset[int]:
        return frozenset(self._c.parked.tolist())

    def role(self, one: OneTask, role: str, name: str) -> str:
        """Return why an instance has a role of the task."""
        t, now, goal, rows = one
        if role == "active":
            return str(self.place(one))
        row = rows.get(self._at.get(name, -1))
        before = ROLE_NAMES[int(self._c.role[row])] if row is not None else "none"
        if role == "warmup":
            wanted = goal.get(name, "")
            then = (
                "it will take over the active"
                if wanted == "active"
                else f"it will replace another standby{self._binding.follows(t, self._at[name])}"
            )
            return then if wanted else "it continues to warm up"
        if name not in goal:
            return "it keeps its copy until another copy has caught up"
        if goal[name] == "active":
            return "it will be active once it has caught up"
        others = [self._at[n] for n, r in now.items() if n != name and r in ("active", "standby")]
        shared, differ = self._binding.apart(self._at[name], others)
        tags = f", apart from the other copies ({', '.join(differ)})" if differ else ""
        tags += f", though it shares {', '.join(shared)} with another copy" if shared else ""
        tags += self._binding.follows(t, self._at[name])
        if before == "standby":
            return f"it is a standby already{tags}"
        if row is not None and self._c.caught[row]:
            return f"its copy is caught up{tags}"
        return f"a standby was missing, so it is created at once{tags}"

    def place(self, one: OneTask) -> Why:
        """Return why the task is active where it is, or why it is to move."""
        c = self._c
        t, active, wanted = one.t, one.active, one.wanted
        if not c.stateful[t]:
            return Why(self._binding.stateless(t, self._at[active], self._at[wanted]))
        base = self._base[t]
        owner = c.names[int(c.owner[t])] if c.owner[t] >= 0 else ""
        at = self._at[wanted]
        if active != wanted:
            goes = "it is to move to" if active == owner else "it belongs on"
            until = "" if active == owner else f", so {active} runs it until then"
            return Why(f"{goes} {wanted} {self._moves(t, at)}", f"{self._lacks(one, wanted)}{until}")
        if base == FORCED:
            reason = f"{owner} lags" if owner else "its owner is gone"
            return Why(f"{reason}, and the copy on {active} is caught up, so {active} takes it over")
        if base == RESUME:
            far = f"{owner} lacks far more" if owner else "its owner is gone"
            return Why(f"no copy is caught up, {far}, and the copy on {active} lacks least")
        if base == FIXED and owner == active:
            return self._stays(one, at)
        if base == FIXED:
            return Why(f"it moves {self._binding.leaves(t, at)}, and {active} can take over now")
        good = self._binding.as_good(t)
        tie = f"; {listed(good, most=3)} would be as good" if good else ""
        return Why(f"it starts there {self._binding.wanted(t, at)}{tie}")

    def followers(self, one: OneTask, held: Mapping[str, str]) -> list[Why]:
        """Return why standbys are to move where none is in the step. `held`: the task's roles in force."""
        t, now, goal, _ = one
        leaves = [self._at[n] for n, role in held.items() if role == "standby" and goal.get(n) != "standby"]
        found = []
        for name, role in goal.items():
            if role == "standby" and now.get(name, "warmup") == "warmup":
                others = [self._at[n] for n in goal if n != name]
                why = self._binding.standby(t, self._at[name], leaves, others)
                found.append(Why(f"its standby is to move to {name} {why}", self._lacks(one, name)))
        return found

    def _lacks(self, one: OneTask, name: str) -> str:
        return f"{name} still lacks {self.behind(one.t, one.rows.get(self._at[name]))}"

    def _stays(self, one: OneTask, at: int) -> Why:
        """Return why the task stays at its owner `at`."""
        c, t, owner = self._c, one.t, one.active
        if not c.open_slots[at]:
            return Why(f"{self._binding.closed(at)}", "no other instance can take it")
        if t in {pair // c.m for pair in self._kept}:
            return Why(
                f"it stays there, because {owner} has the only entries of its stores that are not logged"
            )
        stays = f"it stays there {self._binding.wanted(t, at)}"
        row = one.rows.get(at)
        if c.at_once[t] or (row is not None and c.caught[row]):
            return Why(stays)
        return Why(stays, f"{owner} itself lacks {self.behind(t, row)}, and no other copy is far ahead")

    def parked(self, one: OneTask, seen: Mapping[Copy, Seen]) -> tuple[str, ...]:
        """Return the copies of the task that are parked, as clauses, with what the driver knows of them."""
        c = self._c
        clauses = []
        for name in (c.names[p % c.m] for p in sorted(self._parked) if p // c.m == one.t):
            known = seen.get((name, c.ids[one.t]), Seen())
            cause = f": {known.stalled}" if known.stalled else ""
            clauses += [f"its copy on {name} made no progress and is parked{cause}", known.remedy]
        return tuple(clauses)

    def refusals(self, one: OneTask, seen: list[int]) -> Iterator[Refusal]:
        """Yield the reason why the task is not active, for every other instance that has or gets a copy."""
        c = self._c
        t, now, _, rows = one
        active, wanted = one.active, one.wanted
        chosen = rows.get(self._at.get(active, -1))
        ready = bool(c.at_once[t]) or (chosen is not None and bool(c.caught[chosen]))
        for i in seen if active else ():
            name, row = c.names[i], rows.get(i)
            if name == active:
                continue
            if t * c.m + i in self._parked:
                why = "it is parked: its copy made no progress"
            elif t * c.m + i in self._kept:
                why = f"{wanted} has the only entries of its stores that are not logged"
            elif not c.open_slots[i]:
                why = "it is draining" if c.draining[i] else "it has no capacity"
            elif not c.at_once[t] and not (row is not None and c.caught[row]):
                lacks = self.behind(t, row)
                why = f"it lacks {lacks}, " + (
                    f"and {active} is caught up" if ready else f"and no copy is far ahead of {active}"
                )
            elif self._base[t] == FIXED and active == wanted == c.names[int(c.owner[t])]:
                why = f"it could take over, but {active} may stay, and {self._binding.stays(t, i)}"
            elif name == wanted:
                why = f"it will take over, but {active} is caught up and stays until then"
            else:
                why = f"it could take over, but {self._binding.refused(t, i, self._at[wanted])}"
            yield Refusal(name, why + self._no_standby(i, now))

    def _no_standby(self, i: int, now: Mapping[str, str]) -> str:
        """Return the tags because of which an instance without a role is not a standby, as the end of a sentence."""
        name = self._c.names[i]
        shared, _ = self._binding.apart(i, [self._at[n] for n in now if n != name])
        if name in now or not shared or not self.problem.config.num_standby_replicas:
            return ""
        return f"; as a standby it would share {', '.join(shared)} with another copy"

    def _moves(self, t: int, at: int) -> str:
        """Return why the task belongs at instance `at`, or the reason for the move if it is one."""
        owner = int(self._c.owner[t])
        moves = self._base[t] == FIXED and owner not in (-1, at)
        return self._binding.leaves(t, at) if moves else self._binding.wanted(t, at)

    def behind(self, t: int, row: int | None) -> str:
        """Return how many records a copy lacks; without a row, there is no copy."""
        lag = NO_COPY if row is None else int(self._c.lag[row])
        records = int(lacking(lag, int(self._c.end[t])))
        return "an unknown number of records" if records == UNKNOWN else count(records, "record")
