"""A topic whose records tasks read themselves: Spark brings only ranges of offsets, and no record is shuffled.

    flights = KafkaRecords("flights", "host:9092", decoder)
    topology.source("flights", key="tailnum", partitions=flights.partitions(), reads=flights)
    placed.start({"flights": stream_of(flights, placed)})   # taskplace.spark.kafka.source

**Idea.** Spark keeps and repeats offsets: a batch has one row for each partition with new records, the range that is
read (`taskplace.spark.worker.topic_reader.RANGES`). The range's partition is its task's number, so the range reaches
the executor that has the task's state, and the task reads and decodes the records there.

Properties:
- a batch is the same whenever it is repeated: its ranges are in Spark's checkpoint;
- a range ends at the last stable offset, so its records do not change any more;
- a topic that was deleted and made again, one that got more partitions, and records that were removed before they were
  read, stop the query. The id is compared before a batch is planned, and again before it is committed;
- a range of any size is read: what does not fit into a task's memory is in a file.

Errors: `InputError`, with the topic, what was found, and what can be done.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from types import MappingProxyType
from typing import Any, Literal

import pyarrow as pa

from taskplace.durations import milliseconds
from taskplace.errors import InputError
from taskplace.spark.kafka.alignment import Extent
from taskplace.spark.kafka.client_options import ClientOptions
from taskplace.spark.kafka.decoding import Decoder
from taskplace.spark.kafka.offsets import Described, TopicOffsets
from taskplace.spark.kafka.reading import OWN, read_range, removed, times_at
from taskplace.spark.worker.collected_rows import CollectedRows
from taskplace.spark.worker.topic_reader import ReadSetting
from taskplace.validation import integer, named

#: The offsets of each partition that a batch has at most, if nothing else is said.
MOST_RECORDS = 100_000
#: An offset of the stream: the topic's id, and by partition (as text, as JSON has it) the offset that comes next.
Offset = Mapping[str, Any]
#: A range, as a row of `RANGES`.
Range = tuple[str, int, int, int, list[int]]


class KafkaRecords:
    """A topic, and how its records are read and decoded.

    - `topic`: its name in Kafka
    - `servers`: the brokers, such as "host:9092,other:9092"
    - `decoder`: makes rows of records
    - `options`: librdkafka's properties. A secret is best named by `sasl.password_file` or `sasl.password_env`: it is
      then read where a client is made, and is sent nowhere
    - `starting`: where a stream without a checkpoint begins
    - `most_records`: how many offsets of each partition a batch has at most; None: all that there are. Spark repeats a
      batch unchanged, so this has a default. Rows for which a task has no memory go to a file
      (`taskplace.spark.worker.collected_rows`)
    - `patience`: how long a read waits for brokers that do not answer

    Errors: `InputError` for a wrong argument.

    >>> from taskplace.spark.kafka.formats import Raw
    >>> KafkaRecords("flights", "localhost:9092", Decoder(value=Raw("line", "string")),
    ...              options={"sasl.password": "hunter2"})
    KafkaRecords('flights', {'bootstrap.servers': 'localhost:9092', 'sasl.password': '(hidden)'})
    """

    def __init__(
        self,
        topic: str,
        servers: str,
        decoder: Decoder,
        *,
        options: Mapping[str, Any] | None = None,
        starting: Literal["earliest", "latest"] = "earliest",
        most_records: int | None = MOST_RECORDS,
        patience: Any = "2 minutes",
    ) -> None:
        self.topic = named(topic, "KafkaRecords.topic", "the name of a topic")
        if not isinstance(decoder, Decoder):
            raise InputError("KafkaRecords.decoder", found=decoder, expected="a Decoder")
        if starting not in ("earliest", "latest"):
            raise InputError("KafkaRecords.starting", found=starting, expected="'earliest' or 'latest'")
        self._decoder, self._starting = decoder, starting
        self._options = ClientOptions("KafkaRecords", servers, options or {}, own=OWN)
        self._most = integer(most_records, "KafkaRecords.most_records", 1, optional=True)
        self._seconds = milliseconds(patience, "KafkaRecords.patience") / 1000
        self._offsets: TopicOffsets | None = None

    def __repr__(self) -> str:
        return f"KafkaRecords({self.topic!r}, {self._options!r})"

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the client, which belongs to this process."""
        return {**self.__dict__, "_offsets": None}

    @property
    def columns(self) -> pa.Schema:
        """The columns of the rows that a task gets."""
        return self._decoder.frame_columns

    def partitions(self) -> int:
        """Return the topic's partition count, as the brokers say it. Errors: `InputError` for a missing topic."""
        return self._asked().described().partitions

    # -- for tasks

    def read(self, ranges: pa.Table, setting: ReadSetting) -> pa.Table:
        """Return the rows of ranges. Errors: as for `read_range`, `Decoder.frame` and `setting.check`."""
        rows = CollectedRows(
            self.columns, most=setting.most, folder=setting.folder, what=f"topic {self.topic!r}"
        )
        for each in ranges.to_pylist():
            place = each["partition"], each["start"], each["end"]
            check = setting.check(*place) if setting.check is not None else None
            read = read_range(self.topic, *place, options=self._options, seconds=self._seconds)
            with closing(read) as pieces:  # an error must not leave the range to be closed under the next one
                for records in pieces:
                    if check is not None:
                        check(records)
                    rows.add(self._decoder.frame(records, needs_key=setting.needs_key))
        return rows.table()

    # -- for the driver

    def check_id(self, topic_id: str) -> None:
        """Refuse a topic that does not have this id now: it was made again while a batch read it.

        Errors: `InputError` for another id; `MissingTopic`.
        """
        self._described_as(topic_id)

    # -- for the stream of ranges

    def first(self) -> Offset:
        """Return the offset where a stream begins that has no checkpoint."""
        if self._starting == "latest":
            return self.last()
        topic_id, partitions = self._asked().described()
        return offset_of(topic_id, self._asked().starts(partitions))

    def newest(self, start: Offset) -> Offset:
        """Return the offset at which the next batch ends: that of all committed records, within `most_records`.

        Errors: as for `available`.
        """
        return offset_of(start["topic_id"], self.available(start).capped)

    def available(self, start: Offset, last: Offset | None = None) -> Extent:
        """Return what there is behind `start`, an offset of the stream, up to `last`.

        Errors: `InputError` for a topic that is not the one of `start`, or has lost records behind it.
        """
        begins = self._checked(start)
        ends = self._asked().ends(len(begins))
        firsts = self._asked().starts(len(begins))
        for partition, at in begins.items():
            if firsts[partition] > at:
                raise removed(self.topic, partition, at, firsts[partition])
            if ends[partition] < at:
                raise InputError(
                    f"topic {self.topic!r}, partition {partition}",
                    found=f"{ends[partition]} as its end, before {at}, up to which it was read",
                    expected="a topic that keeps its records",
                    hint="a broker has lost records; start a new checkpoint, or read again what is there",
                )
        if (
            last is not None
        ):  # with `starting="latest"`, the stream may begin behind the ends that were taken before
            until = _by_partition(last)
            ends = {p: max(begins[p], min(end, until.get(p, end))) for p, end in ends.items()}
        return Extent(firsts, begins, ends, self._most)

    def last(self) -> Offset:
        """Return the offset behind all records that are committed now."""
        topic_id, partitions = self._asked().described()
        return offset_of(topic_id, self._asked().ends(partitions))

    def ranges(
        self, start: Offset, end: Offset, ends: Mapping[int, int] = MappingProxyType({})
    ) -> Iterator[Range]:
        """Yield the ranges between two offsets of the stream, without empty ones.

        `ends`: where the partitions end now. Those with more records have a backlog.
        """
        begins, stops = _by_partition(start), _by_partition(end)
        backlog = [partition for partition, stop in sorted(stops.items()) if stop < ends.get(partition, stop)]
        for partition, stop in sorted(stops.items()):
            if stop > begins[partition]:
                yield str(end["topic_id"]), partition, begins[partition], stop, backlog

    # -- for the plan of several topics: see `taskplace.spark.kafka.alignment`

    def extent(self, positions: Mapping[str, Mapping[int, int]]) -> Extent:
        """Return what there is behind a position. `positions`: by topic id; without one, that of `first`."""
        topic_id, partitions = self._asked().described()
        firsts, ends = self._asked().starts(partitions), self._asked().ends(partitions)
        begins = {**(ends if self._starting == "latest" else firsts), **positions.get(topic_id, {})}
        return Extent(firsts, begins, {p: max(end, begins[p]) for p, end in ends.items()}, self._most)

    def times_at(self, offsets: Mapping[int, int]) -> dict[int, int]:
        """Return the time (ms since 1970) of the first record at or behind an offset, for partitions that have one."""
        return times_at(self.topic, offsets, options=self._options, seconds=self._seconds)

    def later_than(self, time_ms: int, partitions: Collection[int]) -> dict[int, int]:
        """Return the offset of the first record with a later time, for partitions that have one."""
        return self._asked().later_than(time_ms, partitions)

    def check(self, offset: Offset) -> None:
        """Refuse a topic that is not the one that a stream has read so far."""
        self._checked(offset)

    def _checked(self, offset: Offset) -> dict[int, int]:
        partitions = self._described_as(offset["topic_id"]).partitions
        begins = _by_partition(offset)
        if partitions != len(begins):
            raise InputError(
                f"topic {self.topic!r}",
                found=f"{partitions} partitions",
                expected=f"{len(begins)}, as at the start of the stream: keys go to other partitions now",
                hint="start a new checkpoint with a new count of the source, or move the records to a topic with the "
                "old count",
            )
        return begins

    def _described_as(self, topic_id: str) -> Described:
        """Return the topic as it is now. Errors: `InputError` for another id."""
        found = self._asked().described()
        if found.topic_id != topic_id:
            raise InputError(
                f"topic {self.topic!r}",
                found=f"the id {found.topic_id}",
                expected=f"the id {topic_id}: the topic was deleted and made again",
                hint="its offsets mean other records now; start a new checkpoint",
            )
        return found

    def _asked(self) -> TopicOffsets:
        if self._offsets is None:
            self._offsets = TopicOffsets(self.topic, self._options, self._seconds, "Read")
        return self._offsets


def offset_of(topic_id: str, by_partition: Mapping[int, int]) -> Offset:
    """Return an offset whose JSON text is always the same: Spark compares texts."""
    return {"topic_id": topic_id, "offsets": {str(p): by_partition[p] for p in sorted(by_partition)}}


def _by_partition(offset: Offset) -> dict[int, int]:
    return {int(partition): at for partition, at in offset["offsets"].items()}
