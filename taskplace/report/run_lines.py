"""Reads the JSON lines of a run (`taskplace.record.json_lines`), and tells its events again to a reporter.

Properties: a reader ignores lines and fields that it does not know, because a newer version may write more. The last
line may be cut off: the driver was killed while it wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import msgspec

from taskplace.errors import InputError
from taskplace.record import json_lines
from taskplace.record.events import BatchDone, ExecutorLost, InstanceView, Rebalanced, Reporter, Summary

SCHEMA = json_lines.SCHEMA
_KINDS = {line.__struct_config__.tag: line for line in json_lines.LINES}
INTERRUPTED = 130


@dataclass(frozen=True)
class Ended:
    """How a run has ended: "ended", "failed" or "interrupted", and the error in a line."""

    word: str
    text: str = ""


@dataclass(frozen=True)
class RunLines:
    """The lines of a run with their times, in seconds since 1970. `title`: the application's id."""

    title: str
    began: float
    lines: tuple[tuple[float, json_lines.Line], ...]


class Follower(Reporter, Protocol):
    """A reporter that is also told how the run has ended."""

    def ended(self, event: Ended) -> None:
        """Take note of the end."""


class _Head(msgspec.Struct):
    event: str


def is_run_lines(text: str) -> bool:
    """Return whether a text begins like the lines of a run.

    >>> is_run_lines('{"event":"start","schema":"taskplace.run/1"}'), is_run_lines("{}")
    (True, False)
    """
    first = text.partition("\n")[0].replace(" ", "")
    return first.startswith("{") and '"event":"start"' in first and f'"schema":"{SCHEMA}"' in first


def read_run_lines(text: str, path: str) -> RunLines:
    """Return the lines of a run; `path` is where they were read, for errors.

    Errors: `InputError` with the number of a line that is none.
    """
    lines = tuple(_lines(text.splitlines(), path))
    began, start = lines[0] if lines else (0.0, None)
    if not isinstance(start, json_lines.Start):
        raise InputError(f"{path}:1", found="another line", expected="the start of a run")
    return RunLines(start.application, began, lines[1:])


def _lines(texts: list[str], path: str) -> Iterator[tuple[float, json_lines.Line]]:
    for number, text in enumerate(texts, start=1):
        try:
            kind = _KINDS.get(msgspec.json.decode(text, type=_Head).event)
            if kind is not None:
                line = msgspec.json.decode(text, type=kind)
                yield datetime.fromisoformat(line.time).timestamp(), line
        except (msgspec.MsgspecError, ValueError) as error:
            if number == len(texts) > 1:
                return
            raise InputError(
                f"{path}:{number}", found=str(error), expected=f"a line of a run ({SCHEMA})"
            ) from None


def retell(run: RunLines, reporter: Follower, at: Callable[[float], None]) -> None:
    """Tell a reporter the events of a run again; `at` gets the time of each one before."""
    for moment, line in run.lines:
        at(moment)
        match line:
            case json_lines.Batch():
                reporter.batch(_batch(line))
            case json_lines.Rebalance():
                reporter.rebalance(_rebalance(line))
            case json_lines.Loss():
                reporter.failure(
                    ExecutorLost(line.executor, line.batch, line.active_tasks, line.cancelled, line.leaving)
                )
            case json_lines.Note():
                reporter.note(line.text)
            case json_lines.Finish():
                if line.totals is not None:
                    reporter.summary(Summary(**msgspec.structs.asdict(line.totals)))
                reporter.ended(_end(line))


def _batch(line: json_lines.Batch) -> BatchDone:
    views = tuple(InstanceView(**msgspec.structs.asdict(one)) for one in line.executors)
    return BatchDone(
        batch_id=line.batch,
        total=line.total,
        rows=line.rows,
        seconds=line.seconds,
        phases=line.phases,
        placement=views,
        generation=line.generation,
        lags=line.lags,
        behind=line.behind,
        recovery=line.recovery,
        late=line.late,
    )


def _rebalance(line: json_lines.Rebalance) -> Rebalanced:
    return Rebalanced(
        generation=line.generation,
        batch_id=line.batch,
        reason=line.reason,
        moves=line.moves,
        promotions=line.promotions,
        warmups=line.warmups,
        followup=line.followup,
        changes=line.changes,
        assignment=line.assignment,
        to_go=line.to_go,
        seconds=line.seconds,
        imbalance=line.imbalance,
    )


def _end(line: json_lines.Finish) -> Ended:
    if line.exit_code == INTERRUPTED:
        return Ended("interrupted")
    return Ended("failed", line.error) if line.error is not None else Ended("ended")
