"""`taskplace plan`, `explain`, `verify` and `simulate`: the engine on a problem.json, without Spark.

The first three plan the problem, which is deterministic; they differ in what they print. `simulate` plans on, as
the cluster develops. The exit code says whether anything is to be done: 0 stable, 3 moves are planned.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator

import taskplace
from taskplace import simulation, validation
from taskplace.cli import codes, documents
from taskplace.cli.terminal import answer, columns, show, shown
from taskplace.errors import InputError
from taskplace.explanation import Explainer, can_remove, explain_plan, plan_explanation
from taskplace.explanation.tasks import WIDTH
from taskplace.model.plan import Plan
from taskplace.model.problem import Problem
from taskplace.record import long_work
from taskplace.record.html import Report, page, report_of_plan, report_of_simulation, write_page
from taskplace.simulation.cluster import MOST_EVENTS, random_events
from taskplace.simulation.run import MOST_ROUNDS
from taskplace.verify import changes, stable
from taskplace.verify import verify as verify_plan
from taskplace.wording import count, noun

#: The largest number of rounds per event without `--limit`.
ROUNDS = 1000


def plan(args: argparse.Namespace) -> int:
    """Print the plan of a problem: as a plan.json, or for people."""
    documents.page_option("--html", args.html, args.output)
    problem = _problem(args.file)
    made = taskplace.plan(problem)

    text = made.to_json().rstrip("\n") if args.output == "json" else _shown_plan(made)
    _print_with_page(args, text, lambda: report_of_plan(made, problem, title=args.file))
    return _code(made)


def explain(args: argparse.Namespace) -> int:
    """Print what the plan changes and why each task is where it is; with `--task`, only these."""
    if args.task and args.can_remove is not None:
        raise InputError("--task", found=args.task[0], expected="either --task or --can-remove, not both")
    if documents.is_directory(args.file, "problem"):
        from taskplace.cli import explain_checkpoint

        return explain_checkpoint.explain(args)
    problem = _problem(args.file)
    with documents.as_options(task="--task", instance="--can-remove"):
        return _can_remove(problem, args) if args.can_remove is not None else _explained(problem, args)


def _explained(problem: Problem, args: argparse.Namespace) -> int:
    made = taskplace.plan(problem)
    if args.output == "json":
        print(json.dumps(plan_explanation(problem, made, args.task), indent=1))
        return _code(made)
    explainer, width = Explainer(problem, made), min(WIDTH, columns())
    if args.task:
        print("\n\n".join(explainer.task(task).shown(width) for task in args.task))
    else:
        why = (explainer.task(task).shown(width) for task in problem.columns.ids)
        show(explain_plan(problem, made).splitlines())
        print("", "\n\n".join(why), sep="\n")
    return _code(made)


def _can_remove(problem: Problem, args: argparse.Namespace) -> int:
    """Print whether an instance can go, or what must catch up first; the code is 0 for yes, 3 for not yet."""
    removal = can_remove(problem, args.can_remove)
    answer(args.output, removal.to_dict(), [removal.text])
    return codes.DONE if removal.can_remove else codes.MOVES


def verify(args: argparse.Namespace) -> int:
    """Check a plan against every invariant: the engine's own, or the one in `--plan`; or a checkpoint's files.

    A directory is taken for a checkpoint.
    """
    if documents.is_directory(args.file, "problem"):
        from taskplace.cli import inspect as verify_checkpoint

        return verify_checkpoint.verify(args)
    documents.one_stdin(args.file, "--plan", args.plan)
    problem = _problem(args.file)
    made = (
        Plan.from_dict(documents.json_document(args.plan, "plan")) if args.plan else taskplace.plan(problem)
    )
    violations = verify_plan(problem, made)
    calm = not violations and stable(problem, made)
    listed = [{"invariant": v.invariant, "text": v.text} for v in violations]
    found = {
        "schema": "taskplace.verification/1",
        "valid": not violations,
        "stable": calm,
        "violations": listed,
    }
    lines = [f"violation: {v}" for v in violations] or [_valid(problem, made, calm=calm)]
    answer(args.output, found, lines)
    if violations:
        return codes.FAILED
    return codes.DONE if calm else codes.MOVES


def _valid(problem: Problem, made: Plan, *, calm: bool) -> str:
    """Return what a valid plan changes."""
    if calm:
        return "valid; stable: nothing has to move"
    number = changes(problem, made)
    roles = f"{count(number, 'role')} {noun(number, 'changes', 'change')}" if number else "no role changes"
    return f"valid; {roles} now, {'more to follow' if made.followup else 'and nothing after that'}"


def simulate(args: argparse.Namespace) -> int:
    """Print how a cluster develops from a problem through events, or replay a transcript."""
    documents.one_stdin(args.file, "--events", args.events)
    documents.page_option("--html", args.html, args.output)
    documents.needs("--seed", args.seed, "--random-events", args.random_events is not None)
    rate = validation.positive(args.restore_rate, "--restore-rate", optional=True)
    limit = ROUNDS if args.limit is None else validation.integer(args.limit, "--limit", 1, MOST_ROUNDS) or 1
    document = documents.json_document(args.file, "problem", "transcript")
    if isinstance(document, dict) and document.get("schema") == "taskplace.transcript/1":
        for option in ("events", "random_events", "restore_rate", "limit"):
            given = getattr(args, option)
            documents.needs(
                f"--{option.replace('_', '-')}", given, "a problem: a transcript has its own", False
            )
        with long_work() as show:
            trajectory = simulation.replay(document, progress=show)
    else:
        events = documents.json_document(args.events, "events") if args.events else []
        if not isinstance(events, list):
            raise InputError(args.events, found=type(events).__name__, expected=simulation.run.GROUPS)
        groups = [group if isinstance(group, list) else [group] for group in events]
        problem = Problem.from_dict(document)
        if args.random_events is not None:
            number = validation.integer(args.random_events, "--random-events", 0, MOST_EVENTS) or 0
            random = random_events(problem, number, args.seed or 0)
            groups += [[event.to_dict() for event in group] for group in random]
        with long_work() as show:
            trajectory = simulation.simulate(problem, groups, restore_rate=rate, limit=limit, progress=show)

    text = trajectory.to_json() if args.output == "json" else str(trajectory)
    _print_with_page(args, text, lambda: report_of_simulation(trajectory, title=args.file))
    return codes.DONE if trajectory.stable else codes.MOVES


def _print_with_page(args: argparse.Namespace, text: str, report: Callable[[], Report]) -> None:
    """Print the result, and write the page of `--html`: with "-" to standard output, in place of the result."""
    if args.html == documents.STDOUT:
        sys.stdout.write(page(report()))
        return
    print(text)
    if args.html is not None:  # its name on standard error: standard output is the result's
        print(f"page: {write_page(report(), args.html)}", file=sys.stderr)


def _code(made: Plan) -> int:
    return codes.DONE if made.stable else codes.MOVES


def _shown_plan(made: Plan) -> str:
    return shown([*_plan_lines(made), made.summary])


def _plan_lines(made: Plan) -> Iterator[str]:
    """Yield what each instance holds, the moves, what can be cleaned up, and the warnings."""
    width = max((len(name) for name in made.assignment), default=0)
    for name, roles in sorted(made.assignment.items()):
        numbers = zip(("active", "standby", "warm-up"), roles, strict=True)
        held = ", ".join(f"{len(tasks)} {role}" for role, tasks in numbers)
        slots = made.slots.get(name, ())
        dealt = f"; actives per slot: {' '.join(str(len(slot)) for slot in slots)}" if slots else ""
        yield f"{name:<{width}}  {held}{dealt}"
    for move in made.moves:
        yield f"  {move}"
    for name, tasks in sorted(made.cleanup.items()):
        yield f"  {name}: can be cleaned up: {', '.join(map(str, tasks))}"
    for warning in made.warnings:
        yield f"warning: {warning}"


def _problem(path: str) -> Problem:
    return Problem.from_dict(documents.json_document(path, "problem"))
