"""The changelog files of this process: one for several batches, to which all its attempts append their changes.

**Idea.** A changelog segment, as Kafka has it: the number of files depends on the number of workers, and not on the
tasks and batches. A segment takes the changes of `BATCHES` neighbouring batches, under one driver. Its name begins with
the last of them. So the driver knows that nothing more comes into a segment once that batch is committed, and may then
remove it (`driver/pruning.py`).

Lifetime: of the process. A segment that failed, or whose file has gone, is not used any more.
"""

from __future__ import annotations

import os
import threading
import uuid
from pathlib import Path

from taskplace.spark.messages import segment_file
from taskplace.spark.state.sections import SectionFile

BATCHES = 16
#: How many checkpoints a process writes to at a time; a Spark application seldom has more than a few streams.
CHECKPOINTS = 16

_lock = threading.Lock()
#: By checkpoint: what the segment is for, and its file.
OPEN: dict[Path, tuple[tuple[int, int, int], SectionFile]] = {}


def segment(checkpoint: Path, batch: int, epoch: int) -> SectionFile:
    """Return the file for the changes of a batch: the one of the batch before, if that is good for this one as well."""
    last = batch // BATCHES * BATCHES + BATCHES - 1
    purpose = (os.getpid(), epoch, last)
    with _lock:
        held = OPEN.pop(checkpoint, None)
        if held is None or held[0] != purpose or not held[1].usable():
            held = purpose, SectionFile(checkpoint, segment_file(last, epoch, uuid.uuid4().hex))
        OPEN[checkpoint] = held  # the last one used is the last one to be forgotten
        while len(OPEN) > CHECKPOINTS:
            del OPEN[next(iter(OPEN))]
        return held[1]
