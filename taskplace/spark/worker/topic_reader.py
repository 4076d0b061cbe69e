"""The protocol of a reader: what a task needs to read a topic's rows itself, instead of getting them from Spark.

**Idea.** Spark brings a task only the ranges that it has to read, as rows of `RANGES`. The task reads them, wherever it
runs and however often it is repeated: a range has the same records each time.
"""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

#: A range of a partition: the offsets from `start` to before `end`. `topic_id`: the broker's id of the topic.
RANGES = pa.schema(
    [("topic_id", pa.string()), ("partition", pa.int32()), ("start", pa.int64()), ("end", pa.int64())]
)


class TopicReader(Protocol):
    """Reads ranges of a topic."""

    @property
    def columns(self) -> pa.Schema:
        """The columns of the rows."""
        ...

    def read(self, ranges: pa.Table, most: int) -> pa.Table:
        """Return the rows of ranges. Errors: `InputError`, also for more than `most` bytes of records."""
        ...
