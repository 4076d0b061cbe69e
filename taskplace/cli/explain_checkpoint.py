"""`taskplace explain CHECKPOINT`: why a task of a stream is where it is, from the driver's status and the manifests."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

from taskplace.cli import codes
from taskplace.cli.documents import as_options
from taskplace.cli.status import headline, introduction, unchecked
from taskplace.cli.terminal import columns, show, shown
from taskplace.errors import InputError
from taskplace.explanation import Explainer, can_remove, explain_plan, plan_explanation
from taskplace.explanation.tasks import WIDTH
from taskplace.spark.inspection.checkpoint import checkpoint_at, committed
from taskplace.spark.inspection.driver_seen import DriverSeen, look
from taskplace.spark.inspection.situation import Situation, situation
from taskplace.spark.instances import instance_name, one_of_executors
from taskplace.spark.messages import Manifest
from taskplace.wording import count, listed, noun, one_of, wrapped
from topology.tasks import TaskId


def explain(args: argparse.Namespace) -> int:
    """Print why tasks are where they are, or with `--can-remove`, whether an executor can be removed.

    Return 4 if no driver runs: then it is said of when the answer is. Otherwise as for a problem.
    """
    root = checkpoint_at(args.file)
    seen = look(root)
    histories, last = committed(root)
    if seen.status is None or not seen.status.executors:
        return _from_the_manifest(args, seen, last)
    ends = {str(task): history.end.offset for task, history in histories.items()}
    found = situation(seen.status, ends, runs=seen.runs, checkpoint=seen.root)
    with as_options(task="--task", instance="--can-remove"):
        if args.can_remove is not None:
            code = _removal(args, seen, found)
        else:
            code = _explanation(args, seen, found)
    return code if seen.runs else codes.NO_DRIVER


def _explanation(args: argparse.Namespace, seen: DriverSeen, found: Situation) -> int:
    explainer = found.explainer()
    plan = explainer.plan
    if args.output == "json":
        whole = plan_explanation(found.problem, plan, args.task, explainer=explainer)
        _print_json({**whole, "driver": _driver(seen)})
    else:
        parts = _named(explainer, args.task) if args.task else _overview(explainer, runs=seen.runs)
        show(introduction(seen))
        print("", "\n\n".join(parts), sep="\n")
    return codes.DONE if plan.stable else codes.MOVES


def _named(explainer: Explainer, tasks: list[str]) -> list[str]:
    width = min(WIDTH, columns())
    return [explainer.task(task).shown(width) for task in tasks]


def _overview(explainer: Explainer, *, runs: bool) -> Iterator[str]:
    """Yield the plan, the tasks that are on their way, and how many are not. `runs`: whether the driver still runs."""
    problem, plan = explainer.problem, explainer.plan
    moving = sorted(explainer.on_their_way())
    if not moving and not plan.warnings:
        where = f"{count(len(problem.tasks), 'task')} on {count(len(problem.instances), 'instance')}"
        settled = f"{'Nothing to do: every' if runs else 'Every'} task is where it belongs ({where})"
        yield shown([settled])
        yield "--task explains any task"
        return
    width = min(WIDTH, columns())
    yield shown(explain_plan(problem, plan).splitlines())
    for task in moving:
        yield "\n".join(wrapped(explainer.task(task).text, width))
    rest = len(problem.tasks) - len(moving)
    others = count(rest, "other task" if moving else "task")
    settled = f"{others} {noun(rest, 'is where it belongs', 'are where they belong')}; " if rest else ""
    yield shown([f"{settled}--task explains any task"])


def _removal(args: argparse.Namespace, seen: DriverSeen, found: Situation) -> int:
    if args.task:
        raise InputError("--task", found=args.task[0], expected="either --task or --can-remove, not both")
    stalled = any(one.stalled for one in found.seen.values())
    target = found.explainer().plan.target if stalled else None
    name, known = instance_name(args.can_remove), [one.id for one in found.problem.instances]
    if name not in known:
        raise InputError("--can-remove", found=args.can_remove, expected=one_of_executors(known))
    # That no driver runs is in the last line.
    held_up = {copy: one for copy, one in found.seen.items() if not one.no_driver}
    removal = can_remove(found.problem, name, seen=held_up, rates=found.rates, target=target)
    if args.output == "json":
        _print_json({**removal.to_dict(), "driver": _driver(seen)})
    else:
        show([*introduction(seen), f"{removal.instance}: {removal.text}"])
        if not (seen.runs or removal.can_remove):
            show(["No driver runs, so nothing can be drained: start the stream first."])
    return codes.DONE if removal.can_remove else codes.MOVES


def _from_the_manifest(args: argparse.Namespace, seen: DriverSeen, last: Manifest | None) -> int:
    """Print where the named tasks were at the last commit: without a status that names executors, no more is known."""
    if args.can_remove is not None:
        raise InputError(
            "--can-remove",
            found=args.can_remove,
            expected=f"an executor of the driver's status; {_unknown(seen)}",
        )
    code = codes.MOVES if seen.runs else codes.NO_DRIVER
    held = {} if last is None else last.assignment
    known = {task for roles in held.values() for tasks in roles.values() for task in tasks}
    tasks = args.task or ()
    for task in tasks:
        if task not in known:
            raise InputError(
                "--task",
                found=task,
                expected=one_of(sorted(TaskId.parse(f"{each}") for each in known), "task"),
            )
    where = {
        task: {
            name: role
            for name, roles in sorted(held.items())
            for role, those in roles.items()
            if task in those
        }
        for task in tasks
    }
    if args.output == "json":
        _print_json({"schema": "taskplace.last-commit/1", "driver": _driver(seen), "tasks": where})
        return code
    unknown = f"{_unknown(seen)}; `taskplace inspect` shows what is committed"
    lines = [headline(seen), unknown, unchecked(seen.root)]
    for task, roles in where.items():
        places = listed(f"{role} on {name}" for name, role in sorted(roles.items(), key=lambda one: one[1]))
        lines.append(f"{task} was {places} at the commit of batch {last.batch if last else -1}")
    show(lines)
    return code


def _unknown(seen: DriverSeen) -> str:
    """Return why lags and warm-ups are not known, as a clause."""
    if seen.status is None or not seen.status.homeless:
        return "lags and warm-ups are not known without a driver's status"
    waiting = count(len(seen.status.homeless), "task")
    return f"no executor is there, so {waiting} cannot run: add executors; the driver then places the tasks again"


def _driver(seen: DriverSeen) -> dict[str, Any]:
    return {"runs": seen.runs, "why": seen.why, "age_seconds": seen.age}


def _print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, indent=1))
