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
from taskplace.cli.terminal import answer as show_answer
from taskplace.errors import InputError, TaskplaceError
from taskplace.spark.inspection.driver import ask, driver_of
from taskplace.spark.instances import instance_name, one_of_executors
from taskplace.spark.operator_messages import (
    ANSWER_SCHEMA,
    Kind,
    OperatorAnswer,
    PlannedMove,
    Status,
)
from taskplace.wording import count, listed

#: How many moves are shown.
SHOWN = 20


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a "taskplace.answer/1" document, as in `taskplace/model/schema`."""
    return document_schema(OperatorAnswer, ANSWER_SCHEMA)


def drain(args: argparse.Namespace) -> int:
    """Have executors drained, or with `--undo` no longer; without `--yes`, print what would move."""
    if args.undo:
        return _undo(args)
    kind: Kind = "drain" if args.yes else "preview"
    answer = _answer(args, kind)
    if isinstance(answer, int):
        return answer
    _print(args, answer, _drain_lines(answer, kind), last=_really(args) if kind == "preview" else "")
    return codes.MOVES if kind == "preview" and answer.moves else codes.DONE


def can_remove(args: argparse.Namespace) -> int:
    """Print whether executors can be removed now; the code is 0 for yes, 3 for not yet."""
    answer = _answer(args, "can-remove")
    if isinstance(answer, int):
        return answer
    _print(args, answer, [f"{one.executor}: {one.text}" for one in answer.removals])
    return codes.DONE if all(one.can_remove for one in answer.removals) else codes.MOVES


def _undo(args: argparse.Namespace) -> int:
    if not args.yes:
        driver = driver_of(documents.checkpoint(args.checkpoint))
        if driver.status is None or not driver.runs:
            return _no_answer(args, codes.NO_DRIVER, f"{driver.why}; nothing was changed")
        names = [_known(name, driver.status) for name in args.executors]
        draining = [name for name in names if driver.status.executors[name].draining]
        document = {"schema": "taskplace.undo_preview/1", "would_undo": draining}
        lines = [f"{listed(draining)} would no longer drain"] if draining else ["none of them drains"]
        _print(args, document, lines, last=_really(args) if draining else "")
        return codes.MOVES if draining else codes.DONE
    answer = _answer(args, "undrain")
    if isinstance(answer, int):
        return answer
    lines = [f"{instance_name(name)} no longer drains, from the next rebalance on" for name in args.executors]
    lines += [f"still draining: {', '.join(answer.draining)}"] if answer.draining else []
    _print(args, answer, lines)
    return codes.DONE


def _answer(args: argparse.Namespace, kind: Kind) -> OperatorAnswer | int:
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
        answer = ask(root, driver.status, kind, args.executors, timeout=timeout, lose_unlogged=lose)
    except OSError as error:
        raise TaskplaceError(f"{root}: the request cannot be written ({error.strerror})") from None
    if answer is None:
        after = driver_of(root)
        if not after.runs or after.epoch != driver.epoch:
            return _no_answer(args, codes.NO_DRIVER, f"{after.why}{unchanged}")
        why = f"{driver.why}; it did not answer within {timeout:g} s{unchanged}"
        return _no_answer(args, codes.NO_ANSWER, why)
    if answer.error:
        raise _refusal(args.executors, answer.error)
    return answer


def _refusal(executors: list[str], error: str) -> InputError:
    """Return the driver's error as one of the command line: it names the argument once."""
    refusal = InputError("EXECUTOR", found=" ".join(executors), expected="what the driver can do")
    refusal.args = (f"EXECUTOR{error.removeprefix('executor')}" if error.startswith("executor: ") else error,)
    return refusal


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


def _print(args: argparse.Namespace, document: object, lines: Iterable[str], *, last: str = "") -> None:
    """Print an answer. `last`: a line with a command to copy, which is not folded."""
    show_answer(args.output, msgspec.to_builtins(document), lines)
    if last and args.output != "json":
        print(last)


def _drain_lines(answer: OperatorAnswer, kind: Kind) -> Iterator[str]:
    if kind == "preview":
        yield from (f"{move.task}: {_moved(move)}" for move in answer.moves[:SHOWN])
        if len(answer.moves) > SHOWN:
            yield f"and {len(answer.moves) - SHOWN} more"
        yield from (f"warning: {warning}" for warning in answer.warnings)
        yield f"{count(len(answer.moves), 'change')} in all"
        return
    yield f"draining: {', '.join(answer.draining)}; it takes effect within a second, or after the batch that runs"
    # What was asked for is a drain, so how far it is has no "yes" or "no" before it.
    yield from (f"{one.executor}: {one.text.partition(': ')[2]}" for one in answer.removals)


def _moved(move: PlannedMove) -> str:
    """Return what becomes of a role, as a clause.

    >>> _moved(PlannedMove("0_0", "standby", "executor-2", None, 0))
    'its standby on executor-2 ends'
    >>> _moved(PlannedMove("0_0", "active", "executor-2", "executor-1", 6))
    'moves from executor-2 to executor-1, which reads 6 records first'
    """
    first = f", which reads {count(move.records, 'record')} first" if move.records else ""
    if move.role == "active":
        if move.to is None:
            return f"ends on {move.from_}"
        return f"moves from {move.from_} to {move.to}{first}" if move.from_ else f"starts on {move.to}{first}"
    if move.to is None:
        return f"its standby on {move.from_} ends"
    if move.from_ is None:
        return f"new standby on {move.to}{first}"
    return f"its standby moves from {move.from_} to {move.to}{first}"
