"""Whether a driver runs a checkpoint, judged from its files; and requests to it.

A driver runs if the status file is of the newest epoch, does not say that its driver has ended, and is young. If the
clocks of two hosts differ, the age says nothing; then the file must change while it is watched. A driver that was
killed seems to run for `SILENT_SECONDS` at most. A driver that was started takes a checkpoint over with its first
batch. Until then it does not run, but the reason names it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

from taskplace.errors import CheckpointError
from taskplace.spark import operator_messages as messages
from taskplace.spark.checkpoint.manifests import DIGITS, numbered
from taskplace.spark.messages import epoch_file
from taskplace.wording import ago

#: A driver that has written nothing for so long does not run. It writes every two seconds.
SILENT_SECONDS = 10.0
_POLL_SECONDS = 0.2

POLL_SECONDS = 0.1
#: A driver that has taken a request may take so much longer to answer it.
TAKEN_SECONDS = 30.0


@dataclass(frozen=True)
class DriverState:
    """What is known of a checkpoint's driver.

    - `runs`, `why`: whether one runs, and how that is known
    - `status`: its status, or the last one of a driver that has ended; None without one
    - `age`: of the status in seconds, by the clock of this host
    - `epoch`: of the driver that has taken over last; 0: none has
    - `root`: the checkpoint
    """

    runs: bool
    why: str
    status: messages.Status | None
    age: float | None
    epoch: int
    root: Path

    @property
    def written(self) -> float | None:
        """When the status was written; None without one."""
        return None if self.status is None else self.status.written


def driver_of(
    root: Path,
    *,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> DriverState:
    """Return what is known of the driver now. Watches a doubtful status for a little longer than its interval.

    Errors: `CheckpointError` for a status that cannot be read.
    """
    found = _watched(root, clock, sleep)
    waits = "" if found.runs else _waits(root, clock)
    return replace(found, why=f"{found.why}; {waits}") if waits else found


def _waits(root: Path, clock: Callable[[], float]) -> str:
    """Return that a driver waits for its first batch, as a clause; "" if none has said so of late."""
    try:
        waiting = messages.read(root / messages.WAITING_FILE, messages.WaitingDriver)
    except (FileNotFoundError, CheckpointError):
        return ""
    if abs(clock() - waiting.written) > SILENT_SECONDS:
        return ""
    since = ago(max(0.0, clock() - waiting.driver.started))
    return (
        f"another driver ({waiting.driver}) was started {since}, and waits for its first batch, with which it takes "
        "over"
    )


def _watched(root: Path, clock: Callable[[], float], sleep: Callable[[float], None]) -> DriverState:
    found = _judged(root, clock)
    status = found.status
    if status is None:
        doubtful = found.epoch and _just_taken(root, found.epoch, clock)
    else:
        doubtful = found.epoch and not (status.ended and status.epoch == found.epoch)
    if found.runs or not doubtful:
        return found
    patience = max(1.5 * (status.interval if status is not None else 0.0), 3.0)
    for _ in range(ceil(patience / _POLL_SECONDS)):
        sleep(_POLL_SECONDS)
        now = _judged(root, clock)
        if now.status is None or now.status.epoch != now.epoch or now.status == status:
            continue
        if now.runs or now.status.ended:
            return now
        skew = f"the clocks of its host and of this one differ by {abs(now.age or 0.0):.0f} s"
        return replace(now, runs=True, why=f"{_named(now.status)} writes its status; {skew}")
    return found


def _judged(root: Path, clock: Callable[[], float]) -> DriverState:
    status = None
    with suppress(FileNotFoundError):
        status = messages.read(root / messages.STATUS_FILE, messages.Status)
    # After the status: a newer driver may have taken over since.
    epoch = max(numbered(root / "epochs", digits=DIGITS), default=0)
    age = None if status is None else clock() - status.written
    runs = False
    if not epoch:
        why = "no driver has taken this checkpoint over yet"
    elif status is None or age is None:
        why = f"driver {epoch} has taken over last, and there is no {messages.STATUS_FILE} of it"
    elif status.epoch < epoch:
        why = f"driver {epoch} has taken over from driver {status.epoch}, and has written no status"
    elif status.ended:
        why = f"{_named(status)} has ended, {ago(age)}"
    elif abs(age) <= SILENT_SECONDS:
        runs, why = True, f"{_named(status)} wrote its status {ago(age)}"
    else:
        every = f"normal: every {status.interval:.0f} s"
        why = f"{_named(status)} last wrote its status {ago(age)} ({every}); it was probably killed"
    return DriverState(runs, why, status, age, epoch, root)


def _just_taken(root: Path, epoch: int, clock: Callable[[], float]) -> bool:
    with suppress(OSError):
        return abs(clock() - (root / epoch_file(epoch)).stat().st_mtime) < SILENT_SECONDS
    return False


def _named(status: messages.Status) -> str:
    return f"driver {status.epoch} ({status.driver})"


def ask(
    root: Path,
    status: messages.Status,
    kind: messages.Kind,
    executors: Sequence[str],
    *,
    timeout: float,
    lose_unlogged: bool = False,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> messages.OperatorAnswer | None:
    """Return the answer of the driver with this status; None if none came in time.

    A request that was not taken in time is withdrawn, so the driver does not follow it later. Errors: `OSError` if the
    checkpoint cannot be written; `CheckpointError` for an answer that cannot be read.
    """
    request = messages.Request(
        id=uuid.uuid4().hex,
        checkpoint=status.checkpoint,
        epoch=status.epoch,
        kind=kind,
        executors=tuple(executors),
        asked=time.time(),
        lose_unlogged=lose_unlogged,
    )
    folder, answer = root / messages.REQUESTS, root / messages.ANSWERS / f"{request.id}.json"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{request.id}.json"
    messages.write(path, request)
    try:
        end = clock() + timeout
        while (found := _answer(answer)) is None:
            if clock() >= end:
                taken = not _withdrawn(path) and path.with_suffix(messages.TAKEN).exists()
                if not taken or clock() >= end + TAKEN_SECONDS:
                    return _answer(answer)  # one may have come meanwhile
            sleep(POLL_SECONDS)
        return found
    finally:
        for mine in (path, answer):
            with suppress(OSError):
                mine.unlink()


def _answer(path: Path) -> messages.OperatorAnswer | None:
    with suppress(FileNotFoundError):
        return messages.read(path, messages.OperatorAnswer)
    return None


def _withdrawn(path: Path) -> bool:
    with suppress(FileNotFoundError):
        path.unlink()
        return True
    return False
