"""Plans round after round until the cluster is stable, and records the trajectory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from taskplace import validation
from taskplace.errors import InputError
from taskplace.model.callables import check_function
from taskplace.model.plan import Plan, Roles
from taskplace.model.problem import Problem
from taskplace.model.shares import imbalance_of
from taskplace.model.tables import table
from taskplace.model.work import Show, Work
from taskplace.planner import plan as plan_once
from taskplace.refine.parking import ProgressWatch
from taskplace.simulation.cluster import Cluster, Event
from taskplace.wording import count
from topology.tasks import TaskId

#: Gets every problem and its plan.
Watch = Callable[[Problem, Plan], None]


SCHEMA = "taskplace.transcript/1"

MOST_ROUNDS = 1_000_000
"""The largest limit of rounds until the cluster is stable after a group of events."""

Planner = Callable[[Problem], Plan]

#: The columns of a trajectory.
HEAD = ("time", "placed", "moved", "promoted", "to go", "warm-ups", "state", "events")
#: The least widths of the columns of numbers, with the spaces before them; large numbers make them wider.
WIDTHS = (10, 8, 8, 10, 8, 10)
#: What events are, in words for an error.
GROUPS = 'a list of groups of events, such as [[{"kind": "kill", "name": "a"}]]: each happens before a round'


@dataclass(frozen=True)
class Round:
    """A planning round: its time, the events before it, and its plan.

    - `moved`: stateful actives that changed their instance in this round as planned; `promoted`: forced
    - `lags`: by instance, the records that its standbys and warm-ups lack when the plan is put in force; none of those
      that lack nothing
    - `imbalance`: of the active tasks under the plan (`taskplace.model.shares`)
    - `placed`: tasks that were not running and start in this round
    """

    time_ms: int
    events: tuple[Event, ...]
    plan: Plan
    moved: int
    promoted: int
    lags: Mapping[str, Mapping[TaskId, int]] = field(default_factory=dict)
    imbalance: float | None = None
    placed: int = 0

    @property
    def cells(self) -> tuple[str, int, int, int, int, int, str, str]:
        """The values under `HEAD`."""
        return (
            f"{self.time_ms / 1000:,.0f} s",
            self.placed,
            self.moved,
            self.promoted,
            self.plan.optimality.moves - self.moved,
            sum(len(roles.warmup) for roles in self.plan.assignment.values()),
            "follow-up" if self.plan.followup else "stable",
            "; ".join(map(str, self.events)),
        )

    def __str__(self) -> str:
        return _line(self.cells)


def _line(cells: Sequence[object], widths: Sequence[int] = WIDTHS) -> str:
    *numbers, state, events = cells
    line = "".join(f"{number:>{width}}" for number, width in zip(numbers, widths, strict=True))
    return f"{line}  {state:<10}{events}".rstrip()


@dataclass(frozen=True)
class Trajectory:
    """The course of a simulation. `transcript` has all that a replay needs."""

    rounds: tuple[Round, ...]
    transcript: Mapping[str, Any] = field(default_factory=dict)

    @property
    def stable(self) -> bool:
        """Whether it ended with nothing left to do."""
        return bool(self.rounds) and not self.rounds[-1].plan.followup

    @property
    def moved(self) -> int:
        """Planned moves in all rounds, forced promotions not counted."""
        return sum(r.moved for r in self.rounds)

    @property
    def promoted(self) -> int:
        """Forced promotions in all rounds."""
        return sum(r.promoted for r in self.rounds)

    def __str__(self) -> str:
        rows = [HEAD, *(one.cells for one in self.rounds)]
        widths = [max(least, *(2 + len(f"{row[i]}") for row in rows)) for i, least in enumerate(WIDTHS)]
        return "\n".join(_line(row, widths) for row in rows)

    def _repr_html_(self) -> str:
        """Return the rounds as a table, for notebooks.

        >>> import taskplace
        >>> "<td>stable</td>" in taskplace.simulate({"tasks": [], "instances": [{"id": "a"}]})._repr_html_()
        True
        """
        rows = [r.cells for r in self.rounds]
        caption = ", ".join(
            count(number, what)
            for number, what in ((len(rows), "round"), (self.moved, "move"), (self.promoted, "promotion"))
        )
        return table(HEAD, rows, caption)

    def to_json(self) -> str:
        """Return the transcript as JSON text, for `replay`."""
        return json.dumps(self.transcript) + "\n"


def settle(
    cluster: Cluster,
    events: Sequence[Event] = (),
    *,
    planner: Planner = plan_once,
    limit: int = 1000,
    watch: Callable[[Problem, Plan], None] | None = None,
    parking: ProgressWatch | None = None,
    path: str = "events",
) -> list[Round]:
    """Plan and let time pass until the plan needs no follow-up, at most `limit` rounds; return the rounds.

    `watch` is called with every problem and its plan, before it is put in force. `parking` remembers copies that
    make no progress, from one call to the next. `path` is where `events` came from, for errors.
    """
    rounds = []
    parking = parking or ProgressWatch()
    for k, event in enumerate(events):
        try:
            event.apply(cluster)
        except InputError as error:
            where = f"{path}[{k}] ({event}): {error.path}"
            raise InputError(where, found=error.found, expected=error.expected, hint=error.hint) from None
    for k in range(limit):
        problem = parking.observe(cluster.problem())
        plan = planner(problem)
        if watch is not None:
            watch(problem, plan)
        stateful = {t.id for t in problem.tasks if t.stateful}
        moved = sum(m.role == "active" and m.from_ is not None and m.task in stateful for m in plan.moves)
        forced = sum(m.role == "promotion" for m in plan.moves)
        placed = sum(m.role == "active" and m.from_ is None for m in plan.moves)
        kept = replace(plan, problem=None, decision=None)  # those of a long history take much memory
        cluster.apply(plan)
        rounds.append(
            Round(
                time_ms=cluster.now,
                events=tuple(events) if k == 0 else (),
                plan=kept,
                moved=moved,
                promoted=forced,
                placed=placed,
                lags=cluster.following_lags(),
                imbalance=imbalance_of(problem.tasks, problem.instances, plan.assignment),
            )
        )
        cluster.advance(cluster.config.probing_rebalance_interval_ms)
        if not plan.followup:
            break
    return rounds


def simulate(
    problem: Problem | Mapping[str, Any],
    events: Iterable[Sequence[Event | Mapping[str, Any]]] = (),
    *,
    restore_rate: float | None = None,
    limit: int = 1000,
    progress: Show | None = None,
) -> Trajectory:
    """Return how a cluster develops: first as it is, then after each group of events.

    Each group happens at once; then the cluster is planned every `probing.rebalance.interval.ms` of virtual time
    until no follow-up is needed (at most `limit` rounds). `restore_rate`: records per second that a copy catches up;
    None: any copy catches up within a round. `progress` gets a `WorkProgress` after a round, ten times a second at
    most (`taskplace.record.long_work` shows it); an error of it ends the simulation.

    Errors: `InputError` for a bad problem, event, rate, limit or function, before anything is planned.

    >>> problem = {"tasks": [{"id": "0_0", "end_offset": 50_000}, {"id": "0_1", "end_offset": 50_000}],
    ...            "instances": [{"id": "a"}]}
    >>> print(simulate(problem, [[{"kind": "add", "name": "b"}]]))
          time  placed   moved  promoted   to go  warm-ups  state     events
           0 s       2       0         0       0         0  stable
         600 s       0       0         0       1         1  follow-up add b
       1,200 s       0       1         0       0         0  stable
    """
    validation.positive(restore_rate, "restore_rate", optional=True)
    validation.integer(limit, "limit", 1, MOST_ROUNDS)
    if progress is not None:
        check_function(progress, "progress", arguments=["event"])
    typed = problem if isinstance(problem, Problem) else Problem.from_dict(problem)
    groups = [
        [e if isinstance(e, Event) else Event.from_dict(e, f"events[{k}][{j}]") for j, e in enumerate(group)]
        for k, group in enumerate(_groups(events))
    ]
    cluster = Cluster.of(typed, restore_rate)
    rounds: list[Round] = []
    parking = ProgressWatch()
    with following(progress, 1 + len(groups)) as begin:
        for k, group in enumerate([[], *groups]):
            path = f"events[{k - 1}]"
            rounds.extend(settle(cluster, group, limit=limit, watch=begin(), parking=parking, path=path))
    transcript = {
        "schema": SCHEMA,
        "problem": typed.to_dict(),
        "restore_rate": restore_rate,
        "limit": limit,
        "events": [[e.to_dict() for e in group] for group in groups],
        "plans": [r.plan.fingerprint for r in rounds],
    }
    return Trajectory(tuple(rounds), transcript)


def _groups(events: Any) -> list[Any]:
    if isinstance(events, str | bytes | Mapping) or not isinstance(events, Iterable):
        raise InputError("events", found=events, expected=GROUPS)
    return [validation.listing(group, f"events[{k}]") for k, group in enumerate(events)]


def replay(transcript: str | Mapping[str, Any], *, progress: Show | None = None) -> Trajectory:
    """Return the trajectory of a transcript, run again; raise `InputError` if it does not go the same way.

    `progress`: as for `simulate`.

    >>> first = simulate({"tasks": [{"id": "0_0"}], "instances": [{"id": "a"}]})
    >>> replay(first.to_json()).rounds == first.rounds
    True
    """
    value: Any = transcript
    if isinstance(transcript, str):
        try:
            value = json.loads(transcript)
        except (ValueError, RecursionError) as error:
            raise InputError("transcript", found=str(error), expected="a JSON document") from None
    keys = ("schema", "problem", "restore_rate", "limit", "events", "plans")
    given = validation.mapping(value, "transcript", keys)
    for key in keys[1:]:
        if key not in given:
            raise InputError(f"transcript.{key}", found=None, expected="a value")
    if given.get("schema", SCHEMA) != SCHEMA:
        raise InputError("schema", found=given["schema"], expected=f"'{SCHEMA}'")
    plans = [
        validation.text(p, f"plans[{k}]") for k, p in enumerate(validation.listing(given["plans"], "plans"))
    ]
    events = [
        validation.listing(g, f"events[{k}]")
        for k, g in enumerate(validation.listing(given["events"], "events"))
    ]
    again = simulate(
        given["problem"], events, restore_rate=given["restore_rate"], limit=given["limit"], progress=progress
    )
    mine = again.transcript["plans"]
    if mine != plans:
        at = next(
            (k for k, (a, b) in enumerate(zip(mine, plans, strict=False)) if a != b),
            min(len(mine), len(plans)),
        )
        raise InputError(f"plans[{at}]", found="another plan", expected="the one in the transcript")
    return again


@contextmanager
def following(show: Show | None, groups: int) -> Iterator[Callable[[], Watch | None]]:
    """Yield a function to call at the begin of each group: it returns what watches the rounds of the group.

    Without `show` it returns None.
    """
    if show is None:
        yield lambda: None
        return
    with Work("simulating", "groups of events", groups, show=show) as work:
        begun = 0

        def begin() -> Watch:
            nonlocal begun
            begun += 1
            return _Group(work, begun - 1).watch

        yield begin
        work.done = begun


class _Group:
    """The rounds of one group, behind `before` complete groups."""

    def __init__(self, work: Work, before: int) -> None:
        self._work, self._before = work, before
        self._rounds = self._most = 0

    def watch(self, problem: Problem, plan: Plan) -> None:
        self._rounds += 1
        missing = _missing(plan)
        self._most = max(self._most, missing)
        part = 1 - missing / self._most if self._most else 0.0
        self._work.to(self._before + part, detail=f"round {self._rounds}")


def _missing(plan: Plan) -> int:
    """Return the number of copies that are not yet where the target has them. O(copies)."""
    nothing = Roles()
    return sum(
        len({*wanted.active, *wanted.standby} - {*held.active, *held.standby})
        for name, wanted in plan.target.items()
        for held in (plan.assignment.get(name, nothing),)
    )
