"""A topic that tasks read themselves, without Kafka: a record is its offset, and its key the partition's."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from taskplace.errors import InputError
from taskplace.spark.processors import Count
from taskplace.spark.worker.topic_reader import RANGES, ReadSetting
from topology import Topology

PARTITIONS = 2
#: How a task reads, with room for everything.
ROOM = ReadSetting(most=1 << 20, folder=Path(tempfile.gettempdir()))


class OwnReader:
    """Makes the records of ranges: two columns, the key `k` ("p0", "p1") and the offset `at`."""

    columns = pa.schema([("k", pa.string()), ("at", pa.int64())])

    def __init__(self) -> None:
        #: The id of the topic now; None: whatever is asked for.
        self.topic_id: str | None = None

    def check_id(self, topic_id: str) -> None:
        if self.topic_id not in (None, topic_id):
            raise InputError("topic 'in'", found=f"the id {self.topic_id}", expected=f"the id {topic_id}")

    def read(self, ranges: pa.Table, setting: ReadSetting) -> pa.Table:
        rows = [
            {"k": f"p{each['partition']}", "at": at}
            for each in ranges.to_pylist()
            for at in range(each["start"], each["end"])
        ]
        return pa.Table.from_pylist(rows, self.columns)


def counted(reader: OwnReader | None = None, **more: object) -> Topology:
    """Return a topology that counts the records by key. `more`: further options of the source."""
    topo = Topology("t")
    source = topo.source("in", key="k", partitions=PARTITIONS, reads=reader or OwnReader(), **more)
    source.process(Count("n", by={"k": "string"}), name="count")
    return topo


def ranges(of: Mapping[int, tuple[int, int]], topic_id: str = "id") -> pa.Table:
    """Return ranges as Spark brings them: by partition, where one begins and ends."""
    rows = [(topic_id, partition, start, end, []) for partition, (start, end) in of.items()]
    return pa.Table.from_pylist([dict(zip(RANGES.names, row, strict=True)) for row in rows], RANGES)
