"""Follows and answers operators' requests: drains, their dry runs, and whether executors can be removed.

    <checkpoint>/requests/<id>.json     written by `taskplace drain` and `taskplace can-remove`
    <checkpoint>/requests/<id>.taken    this driver has taken it; its sender can no longer withdraw it
    <checkpoint>/answers/<id>.json      the answer; removed by the sender

Properties:
- A driver follows only requests with its own epoch. Those of earlier epochs are stale and are removed; later ones are
  for the driver that has taken over.
- A request is taken by a rename, so it is either followed or withdrawn, never both.
- A drain takes effect with the next rebalance, which is between two batches. It ends with the driver.
- A request that is no file, or cannot be read, taken or answered, does not hold up the others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

from taskplace.errors import CheckpointError, InputError, TaskplaceError
from taskplace.lag.ranking import Seen
from taskplace.logs import RepeatedWarnings
from taskplace.model.plan import Plan, Roles
from taskplace.spark.checkpoint.files import private_directory
from taskplace.spark.driver.rebalancer import Rebalancer
from taskplace.spark.operator_messages import (
    ANSWERS,
    REQUESTS,
    TAKEN,
    OperatorAnswer,
    PlannedMove,
    RemovalAnswer,
    Request,
    read,
    write,
)
from topology import TaskId

log = logging.getLogger(__name__)

#: What is known of the copies that catch up, by instance and task.
CopyProgress = Mapping[tuple[str, TaskId], Seen]
#: After so many seconds, nobody waits for an answer any more.
UNREAD_SECONDS = 600.0


class Requests:
    """Answers the requests to one driver. Lifetime: from its takeover on."""

    def __init__(self, root: Path, rebalancer: Rebalancer, clock: Callable[[], float] = time.time) -> None:
        self._requests, self._answers = root / REQUESTS, root / ANSWERS
        self._rebalancer, self._clock = rebalancer, clock
        self._repeated = RepeatedWarnings()

    def open(self) -> None:
        """Remove the requests that an earlier driver took and did not answer."""
        for path in self._requests.glob(f"*{TAKEN}"):
            with suppress(OSError):
                path.unlink()

    def answer(self, progress: Callable[[], CopyProgress] = dict) -> int:
        """Follow and answer the waiting requests; return their number.

        `progress`: returns what is known of copies that catch up. It is called if there is a request.
        """
        done = 0
        for path in sorted(self._requests.glob("*.json")):
            try:
                done += self._follow(path, progress)
            except OSError as error:
                self._repeated.warn(
                    log, "a request cannot be answered: %s", error, key=path, kind=type(error)
                )
        self._remove_unread()
        return done

    def _follow(self, path: Path, progress: Callable[[], CopyProgress]) -> bool:
        """Follow and answer a request; return whether it was to this driver. Errors: `OSError`."""
        request = self._read(path)
        if request is None:
            return False
        try:
            path.rename(path.with_suffix(TAKEN))
        except FileNotFoundError:  # withdrawn
            return False
        answer = self._answer(request, progress)
        private_directory(self._answers)
        write(self._answers / path.name, answer)
        path.with_suffix(TAKEN).unlink(missing_ok=True)
        return True

    def _read(self, path: Path) -> Request | None:
        """Return a request to this driver. Removes what no driver can follow."""
        journal = self._rebalancer.journal
        try:
            request = read(path, Request)
        except FileNotFoundError:
            return None
        except CheckpointError as error:
            path.unlink(missing_ok=True)
            log.warning("removed a request that cannot be read: %s", error)
            return None
        if request.checkpoint != journal.declaration.id or request.epoch < journal.epoch:
            log.info("removed a stale request: %s to driver %d", request.kind, request.epoch)
            path.unlink(missing_ok=True)
            return None
        return request if request.epoch == journal.epoch else None

    def _remove_unread(self) -> None:
        for path in self._answers.glob("*.json"):
            with suppress(OSError):
                if self._clock() - path.stat().st_mtime > UNREAD_SECONDS:
                    path.unlink()

    # -- answers

    def _answer(self, request: Request, progress: Callable[[], CopyProgress]) -> OperatorAnswer:
        answer: dict[str, Any] = {}
        try:
            names: Iterable[str] = request.executors
            if request.kind != "can-remove":
                answer["moves"], answer["warnings"] = self._drain(request)
                names = map(self._rebalancer.instance, request.executors)
            answer["removals"] = self._removals(names, progress())
        except TaskplaceError as refused:
            answer["error"] = str(refused)
        with self._rebalancer.lock:
            answer["draining"] = tuple(sorted(self._rebalancer.state.draining))
        return OperatorAnswer(id=request.id, epoch=request.epoch, answered=self._clock(), **answer)

    def _drain(self, request: Request) -> tuple[tuple[PlannedMove, ...], tuple[str, ...]]:
        """Follow a drain, or the end of one, or preview it. Errors: `InputError`; then nothing was done."""
        rebalancer = self._rebalancer
        with rebalancer.lock:
            names = {rebalancer.instance(executor) for executor in request.executors}
            if request.kind != "undrain":
                self._check_staying(names)
                for name in sorted(names) if not request.lose_unlogged else ():
                    rebalancer.check_unlogged(name)
            if request.kind != "preview":
                for name in sorted(names):
                    rebalancer.drain(name, on=request.kind == "drain", lose_unlogged=request.lose_unlogged)
                log.info("%s, as an operator asked: %s", request.kind, ", ".join(sorted(names)))
                return (), ()
        plan = rebalancer.preview(names)
        return tuple(self._moves(plan)), plan.warnings

    def _check_staying(self, names: set[str]) -> None:
        state = self._rebalancer.state
        if not state.members.keys() - state.draining - names:
            raise InputError(
                "executor",
                found=sorted(names),
                expected="executors without which at least one stays that does not drain",
                hint=f"the members are {sorted(state.members)}, draining {sorted(state.draining)}",
            )

    def _removals(self, executors: Iterable[str], progress: CopyProgress) -> tuple[RemovalAnswer, ...]:
        return tuple(RemovalAnswer.of(self._rebalancer.removal(executor, progress)) for executor in executors)

    def _moves(self, plan: Plan) -> Iterator[PlannedMove]:
        """Yield the roles that differ between the assignment in force and the target of a plan."""
        rebalancer = self._rebalancer
        with rebalancer.lock:
            now, journal = dict(rebalancer.state.assignment), rebalancer.journal
            for role in ("active", "standby"):
                before, after = _holders(now, role), _holders(plan.target, role)
                for task in sorted(before.keys() | after.keys()):
                    leave = sorted(before.get(task, set()) - after.get(task, set()))
                    come = sorted(after.get(task, set()) - before.get(task, set()))
                    end = journal.end_offset(task)
                    for left, to in zip_longest(leave, come):
                        records = 0 if to is None else rebalancer.state.lags.lacking(to, task, end)
                        yield PlannedMove(str(task), role, left, to, records)


def _holders(assignment: Mapping[str, Roles], role: str) -> dict[TaskId, set[str]]:
    holders: dict[TaskId, set[str]] = {}
    for name, roles in assignment.items():
        for task in getattr(roles, role):
            holders.setdefault(task, set()).add(name)
    return holders
