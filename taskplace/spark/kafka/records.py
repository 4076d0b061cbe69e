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
- with `changed_topics="go-on"`, the stream goes on without the records that are gone. The end of such a batch in
  Spark's checkpoint also has where it begins, so it is repeated as it was. If records of a planned batch are gone, its
  ranges begin later, and may be empty;
- a range of any size is read: what does not fit into a task's memory is in a file.

Errors: `InputError`, with the topic, what was found, and what can be done.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, suppress
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa

from taskplace.durations import milliseconds
from taskplace.errors import InputError
from taskplace.spark.kafka.brokers import Topic
from taskplace.spark.kafka.collected_rows import CollectedRows
from taskplace.spark.kafka.decoding import Decoder
from taskplace.spark.kafka.offsets import MissingTopic, TopicOffsets, deleted
from taskplace.spark.kafka.options import ClientOptions
from taskplace.spark.kafka.reading import GO_ON, OWN, read_range, removed, times_at
from taskplace.spark.worker.topic_reader import ReadSetting
from taskplace.validation import integer, named, one_of

#: The offsets of each partition that a batch has at most, if nothing else is said.
MOST_RECORDS = 100_000
#: How long a question beside the batches waits for brokers.
WATCH_SECONDS = 10.0
#: An offset of the stream: the topic's id, and by partition (as text, as JSON has it) the offset that comes next. The
#: end of a batch that goes on without records that are gone also has its "begins", as many as "offsets".
Offset = Mapping[str, Any]
#: A range, as a row of `RANGES`.
Range = tuple[str, int, int, int, list[int]]
#: Offsets, or times in milliseconds since 1970, by partition.
Numbers = Mapping[int, int]


class KafkaRecords:
    """A topic, and how its records are read and decoded.

    - `topic`: its name in Kafka
    - `servers`: the brokers, such as "host:9092,other:9092"
    - `decoder`: makes rows of records
    - `options`: librdkafka's properties. A secret is best named by `sasl.password_file` or `sasl.password_env`: it is
      then read where a client is made, and is sent nowhere. With a `group.id`, the offsets up to the last committed
      batch are committed to this consumer group, for Kafka's tools; the stream itself does not use them
    - `starting`: where a stream without a checkpoint begins: "earliest", "latest", or at the first record of each
      partition that is not before a time, such as "2026-01-31T00:00:00Z"
    - `changed_topics`: "go-on": if records were removed before they were read, or the topic was made again, go on at
      `starting` with the state as it is; "stop": an error
    - `most_records`: how many offsets of each partition a batch has at most; None: all that there are. Spark repeats a
      batch unchanged, so this has a default. Rows for which a task has no memory go to a file
      (`taskplace.spark.kafka.collected_rows`)
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
        starting: str = "earliest",
        changed_topics: str = "stop",
        most_records: int | None = MOST_RECORDS,
        patience: Any = "2 minutes",
    ) -> None:
        self.topic = named(topic, "KafkaRecords.topic", "the name of a topic")
        self._decoder, self._starting = decoder, _position(starting)
        self.goes_on = one_of(changed_topics, "KafkaRecords.changed_topics", ("stop", "go-on")) == "go-on"
        self._options = ClientOptions("KafkaRecords", servers, options or {}, own=OWN)
        group = self._options.get("group.id", None)
        self._group = None if group is None else str(group)
        self._most = integer(most_records, "KafkaRecords.most_records", 1, optional=True)
        self._seconds = milliseconds(patience, "KafkaRecords.patience") / 1000
        self._asked = TopicOffsets(topic, self._options, self._seconds, "Read")
        #: Beside the batches, questions wait less.
        self._watched = TopicOffsets(topic, self._options, min(self._seconds, WATCH_SECONDS), "Read")
        #: The offset behind all records that were committed when `newest` asked last.
        self.seen: Offset | None = None

    def __repr__(self) -> str:
        return f"KafkaRecords({self.topic!r}, {self._options!r})"

    @property
    def columns(self) -> pa.Schema:
        """The columns of the rows that a task gets."""
        return self._decoder.frame_columns

    def partitions(self) -> int:
        """Return the topic's partition count, as the brokers say it. Errors: `InputError` for a missing topic."""
        return self._asked.described().partitions

    # -- for tasks

    def read(self, ranges: pa.Table, setting: ReadSetting) -> pa.Table:
        """Return the rows of ranges. Errors: as for `read_range`, `Decoder.frame` and `setting.check`."""
        what = f"topic {self.topic!r}"
        rows = CollectedRows(self.columns, most=setting.most, folder=setting.folder, what=what)
        for each in ranges.to_pylist():
            place = each["partition"], each["start"], each["end"]
            check = setting.check(*place) if setting.check is not None else None
            read = read_range(self.topic, *place, options=self._options, seconds=self._seconds)
            with closing(read) as pieces:  # an error must not leave the range to be closed under the next one
                for records in pieces:
                    if check is not None:
                        check(records)
                    rows.add(self._decoder.frame(records, needs_key=setting.needs_key))
                    if (stamps := records["timestamp"].drop_null()).length():
                        setting.times[each["partition"]] = stamps.cast(pa.int64())[-1].as_py() // 1000
        return rows.table()

    # -- for the driver

    def check_id(self, topic_id: str) -> None:
        """Refuse a topic that does not have this id now: it was made again while a batch read it.

        Errors: `InputError` for another id; `MissingTopic`.
        """
        self._described_as(topic_id)

    def ends(self) -> tuple[str, dict[int, int]]:
        """Return the topic's id, and by partition the offset behind its committed records. Errors: `InputError`."""
        found = self._described(self._watched)
        return found.id, self._watched.ends(found.partitions)

    def first_newer(self, times: Mapping[int, int]) -> dict[int, tuple[int, int]]:
        """Return by partition the first record that is newer than so many milliseconds, as offset and timestamp."""
        return self._watched.first_newer(times)

    def commit(self, positions: Mapping[int, int]) -> None:
        """Commit positions to the consumer group `group.id`, if the options have one. Errors: `InputError`."""
        if positions and self._group is not None:
            self._watched.commit(self._group, positions)

    # -- for the stream of ranges

    def first(self) -> Offset:
        """Return the offset where a stream begins that has no checkpoint."""
        found = self._asked.described()
        return offset_of(found.id, self._starts(found.partitions))

    def _starts(self, partitions: int) -> dict[int, int]:
        """Return the offsets that `starting` stands for."""
        asked, at = self._asked, self._starting
        if at == "earliest":
            return asked.starts(partitions)
        later = {} if at == "latest" else asked.later_than(int(at) - 1, range(partitions))
        return {**asked.ends(partitions), **later}

    def resumed(self, start: Offset) -> Offset:
        """Return where the stream goes on: at `start`, or at `starting` where records are gone and it may go on."""
        found = self._described() if self.goes_on else None
        begins = _by_partition(start)
        if found is None or found.partitions != len(begins):
            return start
        firsts, other = self._asked.starts(len(begins)), found.id != start["topic_id"]
        if gone := [p for p, at in begins.items() if other or at < firsts[p]]:
            starts = self._starts(len(begins))
            return offset_of(found.id, {**begins, **{p: starts[p] for p in gone}})
        return start

    def newest(self, start: Offset) -> Offset:
        """Return the offset at which the next batch ends: that of all committed records, within `most_records`."""
        return offset_of(start["topic_id"], self.available(start).capped)

    def available(self, start: Offset, last: Offset | None = None) -> Extent:
        """Return what there is behind `start`, an offset of the stream, up to `last`.

        Errors: `InputError` for a topic that is not the one of `start`, or has lost records behind it.
        """
        begins = self._checked(start)
        try:
            ends, firsts = self._asked.ends(len(begins)), self._asked.starts(len(begins))
        except MissingTopic:
            raise deleted(self.topic) from None  # since it was checked
        for partition, at in begins.items():
            if firsts[partition] > at:
                raise removed(self.topic, partition, at, firsts[partition])
            if ends[partition] < at:
                found, path = f"the end {ends[partition]}", f"topic {self.topic!r}, partition {partition}"
                expected = f"at least {at}, up to which it was read: a broker has lost records"
                raise InputError(path, found=found, expected=expected)
        self.seen = offset_of(start["topic_id"], ends)
        extent = Extent(self._begun(firsts), begins, ends, self._most)
        if last is None or last["topic_id"] != start["topic_id"]:
            return extent
        return extent.until(_by_partition(last))  # with `starting="latest"`, it may begin behind

    def last(self) -> Offset:
        """Return the offset behind all records that are committed now."""
        found = self._asked.described()
        return offset_of(found.id, self._asked.ends(found.partitions))

    def ranges(
        self, start: Offset, end: Offset, ends: Mapping[int, int] = MappingProxyType({})
    ) -> Iterator[Range]:
        """Yield the ranges between two offsets of the stream. Those that go on without records may be empty.

        `ends`: where the partitions end now. Those with more records have a backlog.
        """
        begins, stops = _by_partition(start, end), _by_partition(end)
        backlog = [partition for partition, stop in sorted(stops.items()) if stop < ends.get(partition, stop)]
        for partition, stop in sorted(stops.items()):
            if stop > begins[partition] or "begins" in end:
                yield str(end["topic_id"]), partition, begins[partition], stop, backlog

    # -- for the plan of several topics: see `taskplace.spark.kafka.alignment`

    def extent(self, positions: Mapping[str, Mapping[int, int]]) -> Extent:
        """Return what there is behind a position. `positions`: by topic id; without one, that of `first`."""
        found = self._described()
        firsts, ends = self._asked.starts(found.partitions), self._asked.ends(found.partitions)
        begins = {**self._starts(found.partitions), **positions.get(found.id, {})}
        ends = {p: max(end, begins[p]) for p, end in ends.items()}
        return Extent(self._begun(firsts), begins, ends, self._most)

    def _begun(self, firsts: Mapping[int, int]) -> Mapping[int, int]:
        """Return the offsets where a stream begins. With "latest", that is not known afterwards: the first ones."""
        return firsts if self._starting in ("earliest", "latest") else self._starts(len(firsts))

    def times_at(self, offsets: Mapping[int, int]) -> dict[int, int]:
        """Return the time (ms since 1970) of the first record at or behind an offset, for partitions that have one."""
        return times_at(self.topic, offsets, options=self._options, seconds=self._seconds)

    def later_than(self, time_ms: int, partitions: Collection[int]) -> dict[int, int]:
        """Return the offset of the first record with a later time, for partitions that have one."""
        return self._asked.later_than(time_ms, partitions)

    def left(self, start: Offset, end: Offset) -> Offset:
        """Return the end of a planned batch, with the "begins" of what is left of it if records of it are gone.

        Errors: `InputError` for a topic that is not the one that the stream has read so far, unless it may go on.
        """
        if not self.goes_on:
            self._checked(end)
            return end
        found, begins, stops = self._described(), _by_partition(start, end), _by_partition(end)
        firsts = self._asked.starts(found.partitions) if found.id == end["topic_id"] else stops
        left = {p: max(at, min(firsts[p], stops[p])) for p, at in begins.items()}
        return end if left == begins else going_on(end, offset_of(end["topic_id"], left))

    def _checked(self, offset: Offset) -> dict[int, int]:
        partitions, begins = self._described_as(offset["topic_id"]).partitions, _by_partition(offset)
        if partitions != len(begins):
            raise InputError(
                f"topic {self.topic!r}",
                found=f"{partitions} partitions",
                expected=f"{len(begins)}, as at the start of the stream: keys go to other partitions now",
                hint="to keep the state, copy the unread records to a topic with the old count, name that one, and "
                "start with `changed_topics: go-on`; or start a new checkpoint",
            )
        return begins

    def _described_as(self, topic_id: str) -> Topic:
        """Return the topic as it is now. Errors: `InputError` for another id; `MissingTopic`."""
        found = self._described()
        if found.id != topic_id:
            raise InputError(
                f"topic {self.topic!r}",
                found=f"the id {found.id}",
                expected=f"the id {topic_id}: the topic was deleted and made again",
                hint=f"its offsets mean other records now; {GO_ON}",
            )
        return found

    def _described(self, asked: TopicOffsets | None = None) -> Topic:
        """Return the topic as it is now, which was there before. Errors: `MissingTopic`."""
        try:
            return (asked or self._asked).described()
        except MissingTopic:
            raise deleted(self.topic) from None


class Extent(NamedTuple):
    """What a topic has, by partition: the offsets where a stream begins, of the next batch, and behind the last record.

    `most`: how many offsets of a partition a batch has at most; None: no limit.
    """

    firsts: Numbers
    begins: Numbers
    ends: Numbers
    most: int | None = None

    @property
    def unread(self) -> bool:
        """Whether nothing was read yet, of what there is."""
        return all(at <= self.firsts[partition] for partition, at in self.begins.items())

    @property
    def new(self) -> tuple[int, ...]:
        """The partitions with records to read."""
        return tuple(partition for partition, end in self.ends.items() if end > self.begins[partition])

    @property
    def capped(self) -> dict[int, int]:
        """Where a batch ends that has at most `most` offsets of each partition."""
        most = self.most
        return {p: end if most is None else min(end, self.begins[p] + most) for p, end in self.ends.items()}

    @property
    def left(self) -> dict[int, int]:
        """Where the partitions go on that have more than a batch takes."""
        return {p: end for p, end in self.capped.items() if end < self.ends[p]}

    def until(self, ends: Numbers) -> Extent:
        """Return what there is of it up to these offsets, behind which it may begin."""
        cut = {p: max(self.begins[p], min(end, ends.get(p, end))) for p, end in self.ends.items()}
        return self._replace(ends=cut)


def going_on(end: Offset, begins: Offset) -> Offset:
    """Return the end of a batch that does not begin where the one before has ended."""
    return {**end, "begins": begins["offsets"]}


def offset_of(topic_id: str, by_partition: Mapping[int, int]) -> Offset:
    """Return an offset whose JSON text is always the same: Spark compares texts."""
    return {"topic_id": topic_id, "offsets": {str(p): by_partition[p] for p in sorted(by_partition)}}


def _by_partition(offset: Offset, end: Offset | None = None) -> dict[int, int]:
    """Return an offset by partition; with the `end` of a batch, where the batch begins."""
    at = offset["offsets"] if end is None else end.get("begins", offset["offsets"])
    return {int(partition): number for partition, number in at.items()}


def _position(starting: object) -> str | int:
    """Return `starting`, with a time as milliseconds since 1970. Errors: `InputError`."""
    if starting in ("earliest", "latest"):
        return str(starting)
    with suppress(ValueError, OverflowError):
        text = str(starting).replace("Z", "+00:00")  # Python 3.10 does not know the Z
        at = starting if isinstance(starting, datetime) else datetime.fromisoformat(text)
        if at.tzinfo is not None and (time_ms := round(at.timestamp() * 1000)) >= 0:
            return time_ms
    expected = "'earliest', 'latest', or a time with its zone, such as '2026-01-31T00:00:00Z'"
    raise InputError("KafkaRecords.starting", found=starting, expected=expected)
