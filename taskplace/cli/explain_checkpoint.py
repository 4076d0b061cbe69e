"""`taskplace explain CHECKPOINT`: why a task of a stream is where it is, from the driver's status and the manifests."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from taskplace.cli import codes
from taskplace.cli.documents import as_options
from taskplace.cli.status import headline, introduction, unchecked
from taskplace.cli.terminal import answer, columns, show, shown
from taskplace.errors import InputError
from taskplace.explanation import Explainer, explain_plan, plan_explanation
from taskplace.explanation.tasks import WIDTH
from taskplace.spark.inspection.checkpoint import checkpoint_at, committed
from taskplace.spark.inspection.driver import DriverState, driver_of
from taskplace.spark.inspection.situation import status_explainer, status_removal
from taskplace.spark.instances import instance_name, one_of_executors
from taskplace.spark.operator_messages import Status
from taskplace.wording import count, noun, one_of, wrapped
from topology.tasks import TaskId


def explain(args: argparse.Namespace) -> int:
    """Print why tasks are where they are, or with `--can-remove`, whether an executor can be removed.

    Return 4 if no driver runs: then it is said of when the answer is. Otherwise as for a problem.
    """
    root = checkpoint_at(args.file)
    driver = driver_of(root)
    if driver.status is None or not driver.status.executors:
        return _without_status(args, driver)
    histories, _ = committed(root)
    ends = {str(task): history.end.offset for task, history in histories.items()}
    if args.can_remove is not None:
        code = _removal(args, driver, driver.status, ends)
    else:
        explainer = status_explainer(driver.status, ends, runs=driver.runs, checkpoint=root)
        with as_options(task="--task"):
            code = _explanation(args, driver, explainer)
    return code if driver.runs else codes.NO_DRIVER


def _explanation(args: argparse.Namespace, driver: DriverState, explainer: Explainer) -> int:
    problem, plan = explainer.problem, explainer.plan
    if args.output == "json":
        _print_json(driver, plan_explanation(problem, plan, args.task, explainer=explainer))
    else:
        width = min(WIDTH, columns())
        tasks = [explainer.task(task).shown(width) for task in args.task or ()]
        show(introduction(driver))
        print("", "\n\n".join(tasks or _overview(explainer, runs=driver.runs)), sep="\n")
    return codes.DONE if plan.stable else codes.MOVES


def _overview(explainer: Explainer, *, runs: bool) -> Iterator[str]:
    """Yield the plan, the tasks that are on their way, and how many are not. `runs`: whether the driver still runs."""
    problem, plan = explainer.problem, explainer.plan
    moving = sorted(explainer.on_their_way())
    if not moving and not plan.warnings:
        where = f"{count(len(problem.tasks), 'task')} on {count(len(problem.instances), 'instance')}"
        yield shown([f"{'Nothing to do: every' if runs else 'Every'} task is where it belongs ({where})"])
        yield "--task explains any task"
        return
    yield shown(explain_plan(problem, plan).splitlines())
    for task in moving:
        yield "\n".join(wrapped(explainer.task(task).text, min(WIDTH, columns())))
    rest = len(problem.tasks) - len(moving)
    others = count(rest, "other task" if moving else "task")
    settled = f"{others} {noun(rest, 'is where it belongs', 'are where they belong')}; " if rest else ""
    yield shown([f"{settled}--task explains any task"])


def _removal(args: argparse.Namespace, driver: DriverState, status: Status, ends: Mapping[str, int]) -> int:
    name, known = instance_name(args.can_remove), list(status.executors)
    if name not in known:
        raise InputError("--can-remove", found=args.can_remove, expected=one_of_executors(known))
    removal = status_removal(status, ends, name, runs=driver.runs, checkpoint=driver.root)
    if args.output == "json":
        _print_json(driver, removal.to_dict())
    else:
        show([*introduction(driver), f"{removal.instance}: {removal.text}"])
        if not (driver.runs or removal.can_remove):
            show(["No driver runs, so nothing can be drained: start the stream first."])
    return codes.DONE if removal.can_remove else codes.MOVES


def _without_status(args: argparse.Namespace, driver: DriverState) -> int:
    """Print that no more is known than what is committed: without a status that names executors."""
    unknown = "lags and warm-ups are not known without a driver's status"
    if driver.status is not None and (waiting := len(driver.status.homeless)):
        cannot = f"{count(waiting, 'task')} cannot run"
        unknown = f"no executor is there, so {cannot}: add executors, and the driver places them again"
    if args.can_remove is not None:
        expected = f"an executor of the driver's status; {unknown}"
        raise InputError("--can-remove", found=args.can_remove, expected=expected)
    _check_tasks(args.task or (), driver)
    found = {
        "schema": "taskplace.no_answer/1",
        "outcome": "no answer" if driver.runs else "no driver runs",
        "why": f"{driver.why}; {unknown}",
    }
    more = f"{unknown}; `taskplace inspect` shows what is committed"
    answer(args.output, found, [headline(driver), more, unchecked(driver.root)])
    return codes.MOVES if driver.runs else codes.NO_DRIVER


def _check_tasks(tasks: Sequence[str], driver: DriverState) -> None:
    """Refuse a task that the checkpoint does not have. Before the first commit, its tasks are not known."""
    last = committed(driver.root)[1] if tasks else None
    known = {
        task for roles in (last.assignment if last else {}).values() for of in roles.values() for task in of
    }
    for task in tasks if known else ():
        if task not in known:
            expected = one_of(sorted(map(TaskId.parse, known)), "task")
            raise InputError("--task", found=task, expected=expected)


def _print_json(driver: DriverState, value: dict[str, Any]) -> None:
    of = {"runs": driver.runs, "why": driver.why, "age_seconds": driver.age}
    print(json.dumps({**value, "driver": of}, indent=1))
