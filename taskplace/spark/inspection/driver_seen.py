"""Whether a driver runs a checkpoint, judged from its files.

A driver runs if the status file is of the newest epoch, does not say that its driver has ended, and is young. If the
clocks of two hosts differ, the age says nothing; then the file must change while it is watched. A driver that was
killed seems to run for `SILENT_SECONDS` at most. A driver that was started takes a checkpoint over with its first
batch. Until then it does not run, but the reason names it.

Sends an operator's request to the driver that runs a checkpoint, and waits for its answer.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from taskplace.errors import CheckpointError
from taskplace.spark.checkpoint.manifests import DIGITS, numbered
from taskplace.spark.messages import epoch_file
from taskplace.spark.operator_messages import (
    ANSWERS,
    REQUESTS,
    STATUS_FILE,
    TAKEN,
    WAITING_FILE,
    Kind,
    OperatorAnswer,
    Request,
    Status,
    WaitingDriver,
    read,
    write,
)
from taskplace.wording import ago

#: A driver that has written nothing for so long does not run. It writes every two seconds.
SILENT_SECONDS = 10.0
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class DriverSeen:
    """What is known of a checkpoint's driver.

    - `runs`, `why`: whether one runs, and how that is known
    - `status`: its status, or the last one of a driver that has ended; None without one
    - `age`: of the status in seconds, by the clock of this host
    - `epoch`: of the driver that has taken over last; 0: none has
    - `root`: the checkpoint
    """

    runs: bool
    why: str
    status: Status | None
    age: float | None
    epoch: int
    root: Path


def look(
    root: Path,
    *,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> DriverSeen:
    """Return what is known of the driver now. Watches a doubtful status for a little longer than its interval.

    Errors: `CheckpointError` for a status that cannot be read.
    """
    seen = _looked(root, clock, sleep)
    waits = "" if seen.runs else _waits(root, clock)
    return replace(seen, why=f"{seen.why}; {waits}") if waits else seen


def _waits(root: Path, clock: Callable[[], float]) -> str:
    """Return that a driver waits for its first batch, as a clause; "" if none has said so of late."""
    try:
        waiting = read(root / WAITING_FILE, WaitingDriver)
    except (FileNotFoundError, CheckpointError):
        return ""
    if abs(clock() - waiting.written) > SILENT_SECONDS:
        return ""
    driver = waiting.driver
    since = ago(max(0.0, clock() - driver.started))
    return (
        f"another driver ({driver.app}, process {driver.pid} on {driver.host}) was started {since}, and waits for "
        "its first batch, with which it takes over"
    )


def _looked(root: Path, clock: Callable[[], float], sleep: Callable[[float], None]) -> DriverSeen:
    seen = _judged(root, clock)
    if seen.runs or seen.epoch == 0 or (seen.status is not None and _ended(seen)):
        return seen
    before = None if seen.status is None else (seen.status.epoch, seen.status.written)
    patience = 1.5 * (seen.status.interval if seen.status is not None else 0.0)
    if seen.status is None and not _just_taken(root, seen.epoch, clock):
        return seen
    waited, patience = 0.0, max(patience, 3.0)
    while waited < patience:
        sleep(_POLL_SECONDS)
        waited += _POLL_SECONDS
        now = _judged(root, clock)
        status = now.status
        if status is None or status.epoch != now.epoch or (status.epoch, status.written) == before:
            continue
        if now.runs or status.ended:
            return now
        skew = f"the clocks of its host and of this one differ by {abs(now.age or 0.0):.0f} s"
        return DriverSeen(
            True, f"{_named(status)} writes its status; {skew}", status, now.age, now.epoch, root
        )
    return seen


def _judged(root: Path, clock: Callable[[], float]) -> DriverSeen:
    status = None
    with suppress(FileNotFoundError):
        status = read(root / STATUS_FILE, Status)
    # After the status: a newer driver may have taken over since.
    epoch = max(numbered(root / "epochs", digits=DIGITS), default=0)
    age = None if status is None else clock() - status.written
    if not epoch:
        return DriverSeen(False, "no driver has taken this checkpoint over yet", status, age, epoch, root)
    if status is None or age is None:
        why = f"driver {epoch} has taken over last, and there is no {STATUS_FILE} of it"
        return DriverSeen(False, why, None, None, epoch, root)
    if status.epoch < epoch:
        why = f"driver {epoch} has taken over from driver {status.epoch}, and has written no status"
    elif status.ended:
        why = f"{_named(status)} has ended, {ago(age)}"
    elif abs(age) <= SILENT_SECONDS:
        return DriverSeen(True, f"{_named(status)} wrote its status {ago(age)}", status, age, epoch, root)
    else:
        every = f"normal: every {status.interval:.0f} s"
        why = f"{_named(status)} last wrote its status {ago(age)} ({every}); it was probably killed"
    return DriverSeen(False, why, status, age, epoch, root)


def _ended(seen: DriverSeen) -> bool:
    return seen.status is not None and seen.status.ended and seen.status.epoch == seen.epoch


def _just_taken(root: Path, epoch: int, clock: Callable[[], float]) -> bool:
    with suppress(OSError):
        return abs(clock() - (root / epoch_file(epoch)).stat().st_mtime) < SILENT_SECONDS
    return False


def _named(status: Status) -> str:
    driver = status.driver
    return f"driver {status.epoch} ({driver.app}, process {driver.pid} on {driver.host})"


POLL_SECONDS = 0.1
#: A driver that has taken a request may take so much longer to answer it.
TAKEN_SECONDS = 30.0


def ask(
    root: Path,
    status: Status,
    kind: Kind,
    executors: Sequence[str],
    *,
    timeout: float,
    lose_unlogged: bool = False,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> OperatorAnswer | None:
    """Return the answer of the driver with this status; None if none came in time.

    A request that was not taken in time is withdrawn, so the driver does not follow it later. Errors: `OSError` if the
    checkpoint cannot be written; `CheckpointError` for an answer that cannot be read.
    """
    request = Request(
        id=uuid.uuid4().hex,
        checkpoint=status.checkpoint,
        epoch=status.epoch,
        kind=kind,
        executors=tuple(executors),
        asked=time.time(),
        lose_unlogged=lose_unlogged,
    )
    folder, answer = root / REQUESTS, root / ANSWERS / f"{request.id}.json"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{request.id}.json"
    write(path, request)
    try:
        end = clock() + timeout
        while True:
            if (found := _answer(answer)) is not None:
                return found
            if clock() >= end:
                if _withdrawn(path) or clock() >= end + TAKEN_SECONDS:
                    return _answer(answer)  # one may have come meanwhile
                if not path.with_suffix(TAKEN).exists():
                    return _answer(answer)
            sleep(POLL_SECONDS)
    finally:
        for mine in (path, answer):
            with suppress(OSError):
                mine.unlink()


def _answer(path: Path) -> OperatorAnswer | None:
    with suppress(FileNotFoundError):
        return read(path, OperatorAnswer)
    return None


def _withdrawn(path: Path) -> bool:
    with suppress(FileNotFoundError):
        path.unlink()
        return True
    return False
