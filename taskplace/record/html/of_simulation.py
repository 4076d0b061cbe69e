"""Makes the report of a simulation: the rounds, with what happened, what moved, and how copies caught up."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence, Set

from taskplace.model.config import PlacementConfig
from taskplace.model.plan import Plan, Roles
from taskplace.model.problem import Problem
from taskplace.model.shares import imbalance_of
from taskplace.record.events import Change
from taskplace.record.html.of_plan import before
from taskplace.record.html.values import (
    Figure,
    InstanceRow,
    LagsNow,
    Placements,
    Recovery,
    Report,
    Samples,
    State,
    TimelineRow,
    copy_lags,
    move_rows,
)
from taskplace.simulation.run import Round, Trajectory
from taskplace.wording import count, duration

#: The most moves in the table; those of the last rounds stay.
MOST_MOVES = 10_000
#: The events that take an instance away.
LOSSES = ("kill", "stop")


def report_of_simulation(trajectory: Trajectory, *, title: str = "simulation") -> Report:
    """Return the report of a simulation.

    >>> import taskplace
    >>> problem = {"tasks": [{"id": "0_0"}], "instances": [{"id": "a"}]}
    >>> report = report_of_simulation(taskplace.simulate(problem, [[{"kind": "add", "name": "b"}]]))
    >>> [figure.value for figure in report.figures[:2]]
    ['2', '0']
    """
    rounds = trajectory.rounds
    placements = _placements(trajectory)
    copies, more = copy_lags([_lags(one) for one in rounds])
    moves = [
        row for k, one in enumerate(rounds) for row in move_rows(map(Change.of, one.plan.moves), label(k))
    ]
    left_out = [f"{count(more, 'copy', 'copies')} with smaller lags"] if more else []
    left_out += [f"the first {len(moves) - MOST_MOVES:,} moves"] if len(moves) > MOST_MOVES else []
    left_out += [f"the first {placements.merged:,} assignments"] if placements.merged else []
    last = rounds[-1] if rounds else None
    return Report(
        kind="simulation",
        title=title,
        state=State("stable", "nothing is left to do", "good")
        if trajectory.stable
        else State("not stable", "the limit of rounds came first", "busy"),
        made=time.time(),
        virtual=True,
        unit="round",
        figures=_figures(trajectory),
        tasks=placements.tasks,
        instances=placements.instances,
        steps=tuple(placements.steps),
        timeline=tuple(_timeline(rounds)),
        samples=_samples(rounds),
        copies=copies,
        recoveries=tuple(_recoveries(rounds, _acceptable(trajectory))),
        now=tuple(_rows(last, _draining(trajectory))) if last else (),
        moves=tuple(moves[-MOST_MOVES:]),
        warnings=last.plan.warnings if last else (),
        left_out=tuple(left_out),
    )


def _acceptable(trajectory: Trajectory) -> float:
    """Return the lag up to which a copy is caught up, in records."""
    config = trajectory.transcript.get("problem", {}).get("config", {})
    return PlacementConfig.from_properties(config).acceptable_recovery_lag


def label(number: int) -> str:
    """Return the name of a round; rounds count from 0."""
    return f"round {number}"


def _seconds(one: Round) -> float:
    return one.time_ms / 1000


def _lags(one: Round) -> LagsNow:
    warm = {(name, task) for name, roles in one.plan.assignment.items() for task in roles.warmup}
    return {
        (name, str(task)): (lag, "warm-up" if (name, task) in warm else "standby")
        for name, lags in one.lags.items()
        for task, lag in lags.items()
    }


def _placements(trajectory: Trajectory) -> Placements:
    placements = Placements()
    if document := trajectory.transcript.get("problem"):
        problem = Problem.from_dict(document)
        now = before(problem)
        even = imbalance_of(problem.tasks, problem.instances, now)
        placements.add("before", now, at=0.0, text="the assignment at the start", imbalance=even)
    for k, one in enumerate(trajectory.rounds):
        if one.plan.moves or one.events or k == 0:
            placements.add(
                label(k),
                one.plan.assignment,
                at=_seconds(one),
                text="; ".join(map(str, one.events)) or _moved(one),
                imbalance=one.imbalance,
                to_go=max(0, one.plan.optimality.moves - one.moved),
            )
    return placements


def _moved(one: Round) -> str:
    warm = sum(len(roles.warmup) for roles in one.plan.assignment.values())
    parts = [count(one.moved, "move")] if one.moved else []
    parts += [count(one.promoted, "promotion")] if one.promoted else []
    parts += [count(warm, "warm-up")] if warm else []
    changes = count(len(one.plan.moves), "change") if one.plan.moves else "nothing changes"
    return f"{changes}{': ' if parts else ''}{', '.join(parts)}"


def _timeline(rounds: Sequence[Round]) -> Iterator[TimelineRow]:
    for k, one in enumerate(rounds):
        for event in one.events:
            kind = "loss" if event.kind in LOSSES else "event"
            yield TimelineRow(_seconds(one), kind, _short(str(event)), label(k))
        if one.plan.moves:
            state = "more to follow" if one.plan.followup else "stable after it"
            yield TimelineRow(_seconds(one), "rebalance", f"{label(k)}: {_moved(one)}; {state}", label(k))


def _short(text: str, letters: int = 200) -> str:
    return text if len(text) <= letters else f"{text[:letters]} ..."


def _samples(rounds: Sequence[Round]) -> Samples:
    return Samples(
        at=tuple(map(_seconds, rounds)),
        number=tuple(range(len(rounds))),
        lag=tuple(sum(sum(lags.values()) for lags in one.lags.values()) for one in rounds),
        imbalance=tuple(one.imbalance for one in rounds),
    )


def _whole(one: Round, enough: float) -> bool:
    """Return whether every task has its caught-up standbys again."""
    behind = any(lag > enough for lags in one.lags.values() for lag in lags.values())
    return not one.plan.followup and not behind


def _recoveries(rounds: Sequence[Round], enough: float) -> Iterator[Recovery]:
    in_force: Mapping[str, Roles] = {}
    for k, one in enumerate(rounds):
        for event in one.events:
            if event.kind not in LOSSES:
                continue
            lost = set(in_force.get(event.name, Roles()).active)
            whole = next((r for r in rounds[k:] if _whole(r, enough)), None)
            yield Recovery(
                at=_seconds(one),
                instance=event.name,
                batch=k,
                tasks=len(lost),
                planned=0.0,
                whole=None if whole is None else _seconds(whole) - _seconds(one),
                promoted=promoted(one.plan, lost),
            )
        in_force = one.plan.assignment


def promoted(plan: Plan, tasks: Set[object]) -> int:
    """Return how many of these tasks a caught-up copy takes over at once."""
    return sum(move.forced and move.task in tasks for move in plan.moves)


def _rows(one: Round, draining: Set[str]) -> Iterator[InstanceRow]:
    for name, roles in sorted(one.plan.assignment.items()):
        lag = sum(one.lags.get(name, {}).values())
        state = "draining" if name in draining else ""
        yield InstanceRow(name, len(roles.active), len(roles.standby), len(roles.warmup), lag, state=state)


def _draining(trajectory: Trajectory) -> Set[str]:
    """Return the instances that drain at the end: an instance that is stopped and started still does."""
    instances = trajectory.transcript.get("problem", {}).get("instances", [])
    found = {one["id"] for one in instances if one.get("draining")}
    for event in (event for one in trajectory.rounds for event in one.events):
        if event.kind == "drain":
            found.add(event.name)
        elif event.kind in ("undrain", "kill"):
            found.discard(event.name)
    return found


def _figures(trajectory: Trajectory) -> tuple[Figure, ...]:
    rounds = trajectory.rounds
    last = rounds[-1] if rounds else None
    peak = max((sum(sum(lags.values()) for lags in one.lags.values()) for one in rounds), default=0)
    losses = sum(event.kind in LOSSES for one in rounds for event in one.events)
    spread = [one.imbalance for one in rounds if one.imbalance is not None]
    figures = [
        Figure(
            "rounds", f"{len(rounds):,}", f"in {duration(_seconds(last))} of virtual time" if last else ""
        ),
        Figure("moves", f"{trajectory.moved:,}", "planned, of active tasks"),
        Figure("promotions", f"{trajectory.promoted:,}", "forced: caught-up copies took over at once"),
        Figure("instances lost", f"{losses:,}", "", "bad" if losses else ""),
        Figure("largest lag", f"{peak:,}", "records, of all standbys and warm-ups"),
    ]
    if spread:
        figures.append(
            Figure("imbalance", f"{spread[-1]:.2f}", f"at most {max(spread):.2f}: largest load / mean")
        )
    return tuple(figures)
