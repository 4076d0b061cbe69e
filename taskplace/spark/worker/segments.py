"""The changelog files of this process: one for several batches, to which all its attempts append their changes.

**Idea.** A changelog segment, as Kafka has it: the number of files depends on the number of workers, and not on the
tasks and batches. A segment is for some neighbouring batches, under one driver: for `BATCHES` of them, or for as many
as probably take no more than `BYTES_LIMIT`. Its name begins with the last of them. So the driver knows that nothing
more comes into a segment once that batch is committed, and may then remove it (`driver/pruning.py`).

Lifetime: of the process. A segment that is full, that failed, or whose file has gone, is not used any more.
"""

from __future__ import annotations

import os
import threading
import uuid
from dataclasses import dataclass
from pathlib import Path

from taskplace.spark.checkpoint.files import SectionFile
from taskplace.spark.messages import segment_file

BATCHES = 16
#: A segment with so many bytes is full. Small segments are removed earlier, as none of their sections is needed.
BYTES_LIMIT = 64 << 20
#: How many checkpoints a process writes to at a time; a Spark application seldom has more than a few streams.
CHECKPOINTS = 16

_lock = threading.Lock()


@dataclass
class Segment:
    """A segment, the driver and process that it is for, and its batches: `used` is the last one that has used it."""

    file: SectionFile
    purpose: tuple[int, int]
    first: int
    last: int
    used: int

    def good_for(self, batch: int, purpose: tuple[int, int]) -> bool:
        """Return whether it takes the changes of a batch."""
        fits = self.purpose == purpose and self.first <= batch <= self.last
        return fits and self.file.size < BYTES_LIMIT and self.file.usable()

    def batches_that_fit(self) -> int:
        """Return for how many batches the next segment will do, if they are like those of this one."""
        return max(1, BYTES_LIMIT * (self.used - self.first + 1) // max(1, self.file.size))


#: By checkpoint.
OPEN: dict[Path, Segment] = {}


def segment(checkpoint: Path, batch: int, epoch: int) -> SectionFile:
    """Return the file for the changes of a batch: the one of the batch before, if that is good for this one as well."""
    purpose = (os.getpid(), epoch)
    with _lock:
        held = OPEN.pop(checkpoint, None)
        if held is None or not held.good_for(batch, purpose):
            last = batch // BATCHES * BATCHES + BATCHES - 1
            if held is not None:
                last = min(last, batch + held.batches_that_fit() - 1)
            file = SectionFile(checkpoint, segment_file(last, epoch, uuid.uuid4().hex))
            held = Segment(file, purpose, first=batch, last=last, used=batch)
        held.used = max(held.used, batch)
        OPEN[checkpoint] = held  # the last one used is the last one to be forgotten
        while len(OPEN) > CHECKPOINTS:
            del OPEN[next(iter(OPEN))]
        return held.file
