"""Makes the report of a simulation: its rounds are told to the recorder of a run as events, in virtual time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from datetime import datetime, timezone

from taskplace.explanation.tasks import in_force
from taskplace.model.config import PlacementConfig
from taskplace.model.plan import Roles, texts_of
from taskplace.model.problem import Problem
from taskplace.model.shares import imbalance_of
from taskplace.record.events import BatchDone, Change, ExecutorLost, InstanceView, Line, Note, Rebalanced
from taskplace.record.html.of_run import RunRecorder
from taskplace.record.html.values import Figure, Report, State
from taskplace.simulation.run import Trajectory
from taskplace.wording import duration

#: The events that take an instance away.
LOSSES = ("kill", "stop")
_STABLE = State("stable", "nothing is left to do", "good")
_NOT_STABLE = State("not stable", "the limit of rounds came first", "busy")
#: The most letters of an event.
LETTERS = 200


def report_of_simulation(trajectory: Trajectory, *, title: str = "simulation") -> Report:
    """Return the report of a simulation.

    >>> import taskplace
    >>> problem = {"tasks": [{"id": "0_0"}], "instances": [{"id": "a"}]}
    >>> report = report_of_simulation(taskplace.simulate(problem, [[{"kind": "add", "name": "b"}]]))
    >>> [figure.value for figure in report.figures[:2]]
    ['2', '0']
    """
    recorder = RunRecorder(title, began=0.0, unit="round")
    document = trajectory.transcript.get("problem")
    if document:
        problem = Problem.from_dict(document)
        now = in_force(problem)
        even = imbalance_of(problem.tasks, problem.instances, now)
        recorder.begin_with(Rebalanced(-1, -1, "", assignment=texts_of(now), imbalance=even), "before")
    for event in _events(trajectory):
        recorder.add(event)
    report, draining = recorder.report(), _draining(trajectory)
    return replace(
        report,
        kind="simulation",
        state=_STABLE if trajectory.stable else _NOT_STABLE,
        made=time.time(),
        began=None,
        virtual=True,
        figures=_figures(trajectory, report),
        timeline=tuple(replace(row, kind="event") if row.kind == "note" else row for row in report.timeline),
        samples=replace(report.samples, rows=(), seconds=()),
        recoveries=tuple(replace(one, committed=None) for one in report.recoveries),
        now=tuple(replace(row, state="draining" if row.id in draining else row.state) for row in report.now),
        warnings=trajectory.rounds[-1].plan.warnings if trajectory.rounds else (),
    )


def _events(trajectory: Trajectory) -> Iterator[Line]:
    """Yield the events of each round: what happened before it, its plan, and a batch with the lags under it."""
    config = trajectory.transcript.get("problem", {}).get("config", {})
    enough = PlacementConfig.from_properties(config).acceptable_recovery_lag
    in_force: Mapping[str, Roles] = {}
    followup = False
    for k, one in enumerate(trajectory.rounds):
        at, plan = datetime.fromtimestamp(one.time_ms / 1000, timezone.utc), one.plan
        for event in one.events:
            if event.kind in LOSSES:
                active = len(in_force.get(event.name, Roles()).active)
                yield ExecutorLost(event.name, k, active, event.kind == "stop", time=at)
            else:
                yield Note(str(event)[:LETTERS], time=at)
        if plan.moves or one.events or k == 0 or plan.followup != followup:
            yield Rebalanced(
                generation=k,
                batch_id=k,
                reason="; ".join(map(str, one.events))[:LETTERS] or "planned again",
                changes=tuple(map(Change.of, plan.moves)),
                promotions=one.promoted,
                warmups=sum(len(roles.warmup) for roles in plan.assignment.values()),
                followup=plan.followup,
                assignment=texts_of(plan.assignment),
                to_go=max(0, plan.optimality.moves - one.moved),
                imbalance=one.imbalance,
                time=at,
            )
        in_force, followup = plan.assignment, plan.followup
        lags = {name: {str(task): lag for task, lag in each.items()} for name, each in one.lags.items()}
        views = (
            InstanceView.of(name, roles._asdict(), sum(lags.get(name, {}).values()))
            for name, roles in sorted(plan.assignment.items())
        )
        yield BatchDone(
            batch_id=k,
            total=None,
            rows=0,
            seconds=0.0,
            phases={},
            placement=tuple(views),
            generation=k,
            lags=lags,
            behind=sum(lag > enough for each in lags.values() for lag in each.values()),
            time=at,
        )


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


def _figures(trajectory: Trajectory, report: Report) -> tuple[Figure, ...]:
    rounds, lags, losses = trajectory.rounds, report.samples.lag, len(report.recoveries)
    took = f"in {duration(rounds[-1].time_ms / 1000)} of virtual time" if rounds else ""
    spread = [one.imbalance for one in rounds if one.imbalance is not None]
    figures = [
        Figure("rounds", f"{len(rounds):,}", took),
        Figure("moves", f"{trajectory.moved:,}", "planned, of active tasks"),
        Figure("promotions", f"{trajectory.promoted:,}", "forced: caught-up copies took over at once"),
        Figure("instances lost", f"{losses:,}", "", "bad" if losses else ""),
        Figure("largest lag", f"{max(lags, default=0):,}", "records, of all standbys and warm-ups"),
    ]
    if spread:
        note = f"at most {max(spread):.2f}: largest load / mean"
        figures.append(Figure("imbalance", f"{spread[-1]:.2f}", note))
    return tuple(figures)
