"""`taskplace drain` and `taskplace can-remove`: requests to the driver that runs a checkpoint."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from taskplace import validation
from taskplace.cli import codes, documents
from taskplace.cli.status import document_schema
from taskplace.cli.terminal import answer
from taskplace.errors import InputError, TaskplaceError, plainly
from taskplace.model.plan import Move
from taskplace.spark.inspection.driver import ask, driver_of
from taskplace.spark.instances import instance_name, one_of_executors
from taskplace.spark.operator_messages import ANSWER_SCHEMA, Kind, OperatorAnswer, PlannedMove, Status
from taskplace.wording import count, listed
from topology.tasks import TaskId

#: How many moves are shown.
SHOWN = 20


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a "taskplace.answer/1" document, as in `taskplace/model/schema`."""
    return document_schema(OperatorAnswer, ANSWER_SCHEMA)


def drain(args: argparse.Namespace) -> int:
    """Have executors drained, or with `--undo` no longer; without `--yes`, print what would move."""
    if args.undo:
        return _undo(args) if args.yes else _undo_preview(args)
    kind: Kind = "drain" if args.yes else "preview"
    found = _asked(args, kind)
    if isinstance(found, int):
        return found
    _print(args, found, _drain_lines(found, kind), last="" if args.yes else _really(args))
    return codes.MOVES if found.moves and not args.yes else codes.DONE


def can_remove(args: argparse.Namespace) -> int:
    """Print whether executors can be removed now; the code is 0 for yes, 3 for not yet."""
    found = _asked(args, "can-remove")
    if isinstance(found, int):
        return found
    _print(args, found, [f"{one.executor}: {one.text}" for one in found.removals])
    return codes.DONE if all(one.can_remove for one in found.removals) else codes.MOVES


def _undo_preview(args: argparse.Namespace) -> int:
    driver = driver_of(documents.checkpoint(args.checkpoint))
    if driver.status is None or not driver.runs:
        return _no_answer(args, codes.NO_DRIVER, f"{driver.why}; nothing was changed")
    names = [_known(name, driver.status) for name in args.executors]
    draining = [name for name in names if driver.status.executors[name].draining]
    found = {"schema": "taskplace.undo_preview/1", "would_undo": draining}
    lines = [f"{listed(draining)} would no longer drain" if draining else "none of them drains"]
    _print(args, found, lines, last=_really(args) if draining else "")
    return codes.MOVES if draining else codes.DONE


def _undo(args: argparse.Namespace) -> int:
    found = _asked(args, "undrain")
    if isinstance(found, int):
        return found
    lines = [f"{instance_name(name)} no longer drains, from the next rebalance on" for name in args.executors]
    lines += [f"still draining: {', '.join(found.draining)}"] if found.draining else []
    _print(args, found, lines)
    return codes.DONE


def _asked(args: argparse.Namespace, kind: Kind) -> OperatorAnswer | int:
    """Return the driver's answer, or the exit code if there is none.

    Errors: `InputError` for an unknown executor, and for what the driver refused.
    """
    timeout = validation.positive(args.timeout, "--timeout") or 30.0
    root = documents.checkpoint(args.checkpoint)
    driver = driver_of(root)
    unchanged = "" if kind == "can-remove" else "; nothing was changed"
    if driver.status is None or not driver.runs:
        return _no_answer(args, codes.NO_DRIVER, f"{driver.why}{unchanged}")
    if not (driver.status.executors or driver.status.rebalances):
        why = f"{driver.why}; it has just started, and no executor has joined yet: ask again{unchanged}"
        return _no_answer(args, codes.NO_ANSWER, why)
    if kind != "can-remove":  # an executor that is gone can be removed
        for name in args.executors:
            _known(name, driver.status)
    try:
        lose = getattr(args, "lose_unlogged", False)
        found = ask(root, driver.status, kind, args.executors, timeout=timeout, lose_unlogged=lose)
    except OSError as error:
        raise TaskplaceError(f"{root}: the request cannot be written ({error.strerror})") from None
    if found is None:
        after = driver_of(root)
        if not after.runs or after.epoch != driver.epoch:
            return _no_answer(args, codes.NO_DRIVER, f"{after.why}{unchanged}")
        why = f"{driver.why}; it did not answer within {timeout:g} s{unchanged}"
        return _no_answer(args, codes.NO_ANSWER, why)
    if found.error:
        refusal = InputError("EXECUTOR", found=" ".join(args.executors), expected="what the driver can do")
        raise plainly(refusal, found.error.removeprefix("executor: "))
    return found


def _known(executor: str, status: Status) -> str:
    """Return the instance of an executor."""
    name, known = instance_name(executor), list(status.executors)
    if name not in known:
        raise InputError("EXECUTOR", found=executor, expected=one_of_executors(known))
    return name


def _no_answer(args: argparse.Namespace, code: int, why: str) -> int:
    what = "no driver runs" if code == codes.NO_DRIVER else "no answer"
    _print(args, {"schema": "taskplace.no_answer/1", "outcome": what, "why": why}, [f"{what}: {why}"])
    return code


def _really(args: argparse.Namespace) -> str:
    """Return the last line of a dry run: how to do it really."""
    options = [f"--{name}".replace("_", "-") for name in ("undo", "lose_unlogged") if getattr(args, name)]
    command = shlex.join(["taskplace", "drain", args.checkpoint, *args.executors, *options, "--yes"])
    return f"nothing was changed; to do it: {command}"


def _print(args: argparse.Namespace, found: object, lines: Iterable[str], *, last: str = "") -> None:
    """Print an answer. `last`: a line with a command to copy, which is not folded."""
    answer(args.output, msgspec.to_builtins(found), lines)
    if last and args.output != "json":
        print(last)


def _drain_lines(answer: OperatorAnswer, kind: Kind) -> Iterator[str]:
    if kind == "preview":
        yield from map(_moved, answer.moves[:SHOWN])
        if len(answer.moves) > SHOWN:
            yield f"and {len(answer.moves) - SHOWN} more"
        yield from (f"warning: {warning}" for warning in answer.warnings)
        yield f"{count(len(answer.moves), 'change')} in all"
        return
    yield f"draining: {', '.join(answer.draining)}; it takes effect within a second, or after the batch that runs"
    # What was asked for is a drain, so how far it is has no "yes" or "no" before it.
    yield from (f"{one.executor}: {one.text.partition(': ')[2]}" for one in answer.removals)


def _moved(move: PlannedMove) -> str:
    """Return what becomes of a role.

    >>> _moved(PlannedMove("0_0", "standby", "executor-2", None, 0))
    '0_0: its standby on executor-2 ends'
    >>> _moved(PlannedMove("0_0", "active", "executor-2", "executor-1", 6))
    '0_0: moves from executor-2 to executor-1, which reads 6 records first'
    >>> _moved(PlannedMove("0_0", "standby", "executor-2", "executor-3", 6))
    '0_0: its standby moves from executor-2 to executor-3, which reads 6 records first'
    """
    if move.to is None:
        return f"{move.task}: its {move.role} on {move.from_} ends"
    first = f", which reads {count(move.records, 'record')} first" if move.records else ""
    if move.role == "standby" and move.from_ is not None:
        return f"{move.task}: its standby moves from {move.from_} to {move.to}{first}"
    return f"{Move(TaskId.parse(move.task), move.role, move.from_, move.to, '')}{first}"
