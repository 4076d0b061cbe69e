"""Sends an operator's request to the driver that runs a checkpoint, and waits for its answer."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from taskplace.spark.operator_messages import (
    ANSWERS,
    REQUESTS,
    TAKEN,
    Kind,
    OperatorAnswer,
    Request,
    Status,
    read,
    write,
)

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
