"""Points at which a test may kill or hold this process. Active only if TASKPLACE_FAULTS names a directory.

An order is a file in that directory, named after the point. The first process that reaches the point unlinks the file
and carries out the order, so each order is carried out once. A missing file means that it was carried out. Orders:

    kill     SIGKILL to the executor's JVM and to this worker; on the driver, to the driver
    hold     wait until `<point>.release` appears, like a process that is stopped and continues later
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

POINTS = (
    "attempt.positioned",  # the copy is at its base, its write transaction open
    "attempt.processed",  # the operators have run, nothing is written yet
    "attempt.sealed",  # changelog, boundary and output are in the checkpoint
    "attempt.stored",  # the copy has committed
    "attempt.reported",  # the report is written, Spark does not know yet
    "restore.piece",  # a piece of a snapshot is in the copy; more may follow
    "follow.applied",  # a follower has applied all committed changes
    "snapshot.written",  # a snapshot's file is written, the driver does not know yet
    "batch.staged",  # driver: all stages have ended, no manifest yet
    "batch.checked",  # driver: no other driver has taken over, no manifest yet
    "batch.committed",  # driver: the manifest is written, nothing is published yet
    "batch.published",  # driver: published, Spark does not know yet
)
#: Points of the driver inside `KafkaSink`, in the order in which a first batch passes them.
SINK_POINTS = (
    "sink.starting",  # no producer yet
    "sink.started",  # the predecessor is fenced, and its transaction has ended
    "sink.marked",  # the marker is read
    "sink.sending",  # some rows are produced
    "sink.sent",  # all rows and the marker are produced
    "sink.committed",  # the transaction is committed, the driver does not know yet
)


_executor: int | None = None


def worker_of(executor: int) -> None:
    """Tell the process id of the executor that this process works for: `kill` is for both of them."""
    global _executor
    _executor = executor


def point(name: str) -> None:
    """Carry out an order for this point, if there is one."""
    folder = os.environ.get("TASKPLACE_FAULTS")
    if folder is None:
        return
    order = Path(folder) / name
    try:
        what = order.read_text()
        order.unlink()
    except FileNotFoundError:
        return
    if what == "hold":
        (Path(folder) / f"{name}.held").write_text(str(os.getpid()))
        while not (Path(folder) / f"{name}.release").exists():
            time.sleep(0.02)
        return
    if _executor is not None and not name.startswith(("batch.", "sink.")):
        with suppress(ProcessLookupError):  # the worker may outlive its executor
            os.kill(_executor, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
