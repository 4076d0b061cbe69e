"""Topics of a case whose rows tasks read themselves, with backlogs: the plan of batches is taskplace's, the brokers are
lists.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from taskplace.spark.kafka.brokers import Topic
from taskplace.spark.kafka.decoding import Decoder
from taskplace.spark.kafka.formats import Raw
from taskplace.spark.kafka.records import KafkaRecords
from taskplace.spark.kafka.source import _source
from taskplace.spark.worker.topic_reader import RANGES, ReadSetting
from tests.differential.build import schema, table
from tests.differential.case import Row, Source
from tests.differential.hashing import partition


class Log(KafkaRecords):
    """A topic: by partition, all rows so far. A batch takes at most `most` of each."""

    def __init__(self, name: str, source: Source, most: int) -> None:
        super().__init__(name, "nowhere:9092", Decoder(value=Raw("value", "binary")), most_records=most)
        self.source = source
        self.rows: dict[int, list[Row]] = {number: [] for number in range(source.partitions)}
        self._asked = self._watched = Lists(self)  # type: ignore[assignment]
        self.at = self.first()
        #: The partitions with more rows than the batches so far have taken.
        self.backlog: set[int] = set()

    @property
    def columns(self) -> pa.Schema:
        return schema(self.source.columns)

    def read(self, ranges: pa.Table, setting: ReadSetting) -> pa.Table:
        found = [
            row
            for each in ranges.to_pylist()
            for row in self.rows[each["partition"]][each["start"] : each["end"]]
        ]
        return table(self.source.columns, found)

    def batch(self, new: list[Row]) -> tuple[pa.Table, list[Row]]:
        """Add rows, and take the next batch. Return its ranges, and its rows by partition."""
        kinds = [self.source.columns[c] for c in self.source.key]
        for row in new:
            self.rows[partition([row[c] for c in self.source.key], kinds, self.source.partitions)].append(row)
        before = self.at["offsets"]
        stream = _source("ranges", self)({}).streamReader(None)
        start, self.at = self.at, stream.latestOffset(self.at, None)
        ranges = [each for part in stream.partitions(start, self.at) for each in stream.read(part)]
        ends = self.at["offsets"]
        taken = [row for p, rows in self.rows.items() for row in rows[before[str(p)] : ends[str(p)]]]
        self.backlog = {p for p, rows in self.rows.items() if len(rows) > ends[str(p)]}
        return _as_ranges(ranges), taken


class Lists:
    """What brokers say of a topic. Its records have no time."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def described(self) -> Topic:
        return Topic(self._log.topic, f"id of {self._log.topic}", self._log.source.partitions)

    def starts(self, partitions: int) -> dict[int, int]:
        return dict.fromkeys(range(partitions), 0)

    def ends(self, partitions: int) -> dict[int, int]:
        return {number: len(rows) for number, rows in self._log.rows.items()}

    def first_newer(self, times: dict[int, int]) -> dict[int, tuple[int, int]]:
        return {}


def _as_ranges(ranges: list[Any]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(RANGES.names, each, strict=True)) for each in ranges], RANGES)
