"""Says when a task is where it belongs: from the lags, the rates at which copies catch up, and the queue of warm-ups.

**Idea.** A task waits for one copy. That copy catches up already, or it waits for its turn to warm up. The time of a
copy that catches up is `taskplace.lag.ranking.seconds_left`, or what the driver of the stream measured (`Seen`).
Turns are given in the order of the refiner: `max.warmup.replicas` copies at a time, and the next one as soon as one of
them has caught up. Copies of one instance take turns there.

Properties: what is not known is not guessed; then the text says why. O(copies that wait) once for a plan.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from taskplace.assign.target import find_target
from taskplace.explanation.explained import CATCH_UP, Change, Outlook
from taskplace.explanation.fates import Fate
from taskplace.explanation.present import advice, sentences
from taskplace.lag.ranking import Copy, Seen, lacking, seconds_left, to_go, whole
from taskplace.model.placement import Step
from taskplace.model.problem import Problem
from taskplace.model.problem_columns import Columns
from taskplace.refine.step import next_step
from taskplace.validation import MOST
from taskplace.wording import about, count, noun
from topology.tasks import TaskId


@dataclass(frozen=True)
class Due:
    """When a copy has caught up.

    - `seconds`: until then; infinite if that is not known
    - `before`: how many copies warm up before it; None: it catches up already
    - `turn`: the seconds until its turn
    - `unknown`: why the time is not known, as a clause
    """

    seconds: float
    before: int | None = None
    turn: float = 0.0
    unknown: str = ""


@dataclass
class Timetable:
    """When the copies of one problem have caught up. `rates`: records per second of instances, in place of their own.

    >>> from taskplace.model.problem import Instance, PlacementConfig, Task
    >>> one = TaskId(0, 0)
    >>> a = Instance("a", active=[one], lags={one: 0}, draining=True)
    >>> b = Instance("b", warmup=[one], lags={one: 12_000}, restore_rate=100.0)
    >>> Timetable(Problem([Task(one, end_offset=20_000)], [a, b], PlacementConfig())).due("b", one).seconds
    20.0
    """

    problem: Problem
    seen: Mapping[Copy, Seen] = field(default_factory=dict)
    rates: Mapping[str, float | None] = field(default_factory=dict)

    def due(self, name: str, task: TaskId) -> Due | None:
        """Return when a copy has caught up; None if the step does not let it catch up, and nothing waits for it."""
        t, i = self._task[task], self._inst[name]
        if (t, i) in self._queue:
            return self._queue[t, i]
        return self._catching_up(t, i) if (t, i) in self._follows else None

    @cached_property
    def names(self) -> frozenset[str]:
        """The instances of the problem."""
        return frozenset(self._c.names)

    def up_to(self, name: str, task: TaskId) -> list[Copy]:
        """Return the copies that warm up, and those that wait for their turn up to this one, which comes last."""
        c, queue = self._c, list(self._queue)
        last = queue.index((self._task[task], self._inst[name])) + 1
        return [(c.names[i], c.ids[t]) for t, i in [*self._running, *queue[:last]]]

    # -- computed once

    @property
    def _c(self) -> Columns:
        return self.problem.columns

    @cached_property
    def _task(self) -> dict[TaskId, int]:
        return {task: k for k, task in enumerate(self._c.ids)}

    @cached_property
    def _inst(self) -> dict[str, int]:
        return {name: k for k, name in enumerate(self._c.names)}

    @cached_property
    def _step(self) -> Step:
        return next_step(self._c, find_target(self.problem), self.problem.config.max_warmup_replicas)

    @cached_property
    def _running(self) -> list[tuple[int, int]]:
        return list(zip(self._step.warmup_task.tolist(), self._step.warmup_inst.tolist(), strict=True))

    @cached_property
    def _follows(self) -> dict[tuple[int, int], int]:
        """The lag of each follower in the step, by task and instance."""
        step = self._step
        standbys = zip(step.standby_task.tolist(), step.standby_inst.tolist(), strict=True)
        return {pair: self._lag(*pair) for pair in (*standbys, *self._running)}

    @cached_property
    def _records(self) -> dict[int, int]:
        """The records that the followers of each instance lack together."""
        records: dict[int, int] = {}
        for (_, i), lag in self._follows.items():
            records[i] = records.get(i, 0) + lag
        return records

    @cached_property
    def _lags(self) -> dict[tuple[int, int], int]:
        lacks = lacking(self._c.lag, whole(self._c.end)[self._c.task])
        return dict(
            zip(zip(self._c.task.tolist(), self._c.inst.tolist(), strict=True), lacks.tolist(), strict=True)
        )

    @cached_property
    def _queue(self) -> dict[tuple[int, int], Due]:
        """The copies that wait for their turn."""
        step, busy = self._step, dict[int, float]()
        waiting = list(zip(step.queue_task.tolist(), step.queue_inst.tolist(), strict=True))
        ends, unknown = [], ""
        for t, i in self._running:
            due = self._catching_up(t, i)
            ends.append(due.seconds)
            busy[i] = max(busy.get(i, 0.0), due.seconds)
            unknown = unknown or due.unknown
        heapq.heapify(ends)
        queue: dict[tuple[int, int], Due] = {}
        for place, (t, i) in enumerate(waiting):
            turn = heapq.heappop(ends) if ends else math.inf
            unmeasured = self._lag(t, i) >= MOST
            alone = None if unmeasured else seconds_left(self._to_go(t, i), rate=self._rate(i))
            end = max(turn, busy.get(i, 0.0)) + (math.inf if alone is None else alone)
            busy[i] = end
            heapq.heappush(ends, end)
            if alone is None:
                unknown = unknown or self._unmeasured(i)
            why = unknown if math.isinf(end) else ""
            queue[t, i] = Due(end, len(self._running) + place, turn, why)
        return queue

    # -- one copy

    def _catching_up(self, t: int, i: int) -> Due:
        name, lag = self._c.names[i], self._follows[t, i]
        if self._records[i] >= MOST:
            return Due(math.inf, unknown="the length of a changelog is not known")
        seen = self.seen.get((name, self._c.ids[t]))
        if seen is not None:
            seconds = None if seen.stalled else seen.remaining
            why = seen.stalled or seen.unknown or f"{name} has shown no progress yet"
        else:
            ahead = self._records[i] - lag
            seconds = seconds_left(self._to_go(t, i), rate=self._rate(i), ahead=ahead)
            why = self._unmeasured(i)
        return Due(math.inf, unknown=why) if seconds is None else Due(seconds)

    def _unmeasured(self, i: int) -> str:
        return f"no restore rate of {self._c.names[i]} has been measured"

    def _to_go(self, t: int, i: int) -> int:
        return to_go(self._lag(t, i), self._acceptable(i))

    def _lag(self, t: int, i: int) -> int:
        lag = self._lags.get((t, i))
        return int(whole(int(self._c.end[t]))) if lag is None else lag

    def _acceptable(self, i: int) -> int:
        return self.problem.config.acceptable.at(self.problem.instances[i].restore_rate)

    def _rate(self, i: int) -> float | None:
        name = self._c.names[i]
        return self.rates[name] if name in self.rates else self.problem.instances[i].restore_rate


def outlook(
    task: TaskId,
    fate: Fate,
    changes: tuple[Change, ...],
    timetable: Timetable,
    *,
    moved_by: str,
    waits_for: str = "",
) -> Outlook:
    """Return when a task is where it belongs.

    - `changes`: what was confirmed by plans. "It moves once that copy has caught up" is said only if it is among them;
      otherwise only that the copy catches up
    - `moved_by`: what this plan does with the task, as a clause; "" if it does not move it
    - `waits_for`: what this plan waits for before it is in force, as a clause; "" if for nothing that is known
    """
    names = timetable.names
    waits = [fate.goal] if fate.goal != fate.active else sorted(set(fate.goal_standbys) - set(fate.standbys))
    if not waits:
        return _at_rest(task, fate, timetable, moved_by, waits_for)
    name = waits[0]
    kind, moves = ("runs", "it moves") if name == fate.goal else ("standby", "its standby moves")
    confirmed = [c.edit for c in changes if c.edit.kind in CATCH_UP and c.effect[:2] == (kind, name)]
    goes = moves if confirmed else f"{name} has caught up"
    once = f" once {confirmed[0]}" if confirmed else ""
    due, seen = timetable.due(name, task), timetable.seen.get((name, task), Seen())
    if due is None:
        text = f"{goes}{once}" if confirmed else f"{moves} to {name} as other tasks move"
        return Outlook("waiting", None, sentences([text], names))
    stopped, remedy = "", advice(changes, name)
    unknown = f"the time is not known: {due.unknown}"
    if due.before is not None:
        stopped = _turn(name, due.before, timetable.problem.config.max_warmup_replicas)
        text = f"{moves} after that; {unknown}" if confirmed else unknown
        if not math.isinf(due.seconds):
            text = f"its turn comes in {about(due.turn)}, and {goes} in {about(due.seconds)}"
    elif seen.stalled:
        stopped, remedy = seen.stalled, seen.remedy
        text = f"{goes}{once}" if confirmed else ""
    elif math.isinf(due.seconds):
        text = f"{goes}{once}; {unknown}" if confirmed else unknown
    else:
        text = f"{goes} in {about(due.seconds)}{',' * bool(once)}{once}"
    state = "catching up" if due.before is None else "waiting"
    seconds = None if math.isinf(due.seconds) else round(due.seconds, 3)
    return Outlook(state, seconds, sentences([text], names), stopped, remedy)


def _at_rest(task: TaskId, fate: Fate, timetable: Timetable, moved_by: str, waits_for: str) -> Outlook:
    """Return the outlook of a task that is where it belongs after the step. A standby may still catch up."""
    stopped = remedy = ""
    clauses: list[str] = []
    for name in fate.standbys:
        due, seen = timetable.due(name, task), timetable.seen.get((name, task), Seen())
        if seen.stalled and not stopped:
            stopped, remedy = f"its standby on {name} is stuck: {seen.stalled}", seen.remedy
        elif due is not None and 0 < due.seconds < math.inf:
            clauses.append(f"its standby on {name} has caught up in {about(due.seconds)}")
    if moved_by:
        state, seconds = ("waiting", None) if waits_for else ("now", 0.0)
        first = f"{moved_by} {waits_for}".rstrip()
    else:
        state, seconds = "settled", None
        first = f"nothing {'else ' * bool(clauses or stopped)}is planned for it"
    return Outlook(state, seconds, sentences([first, *clauses], timetable.names), stopped, remedy)


def _turn(name: str, before: int, most: int) -> str:
    """Return that a copy waits for its turn to warm up, as a clause."""
    return (
        f"{name} waits for its turn to warm up: {count(before, 'copy', 'copies')} {noun(before, 'is', 'are')} "
        f"before it, and {most:,} may warm up at a time"
    )
