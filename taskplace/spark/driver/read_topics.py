"""How far tasks have read the topics that they read themselves: kept in each manifest, compared with Spark's offsets.

    identity["read"] = {"batch": 12, "topics": {"flights": {"topic_id": "x", "starts": ..., "ends": ..., "rows": 120}}}

**Idea.** Spark decides which offsets a batch has, and keeps them in its own checkpoint. If that one is lost, set back
or replaced, records would be skipped or counted twice without an error. So the manifest keeps the offsets as well.

Compared:
- before Spark's query starts: the end of the last committed batch in Spark's checkpoint (`check_planned`);
- in each batch, before its commit: every range begins where the last one of its partition ended (`advanced`);
- for a batch that Spark repeats: its ranges (`check_ranges`).
Before the commit of a batch, the brokers are asked whether its topics still have their ids (`check_ids`).

A partition counts from its first range on: where an empty one begins, only Spark knows. For a reader that goes on
without records that are gone (`TopicReader.goes_on`), a range may begin later, and the topic's id may be another one;
the batch's entry says how many offsets were skipped.

Before a stage runs, Spark's offsets also say how many records its tasks will read (`planned_records`).

Errors: `CheckpointError` with the topic, the partition, both offsets, and which of the two checkpoints is ahead;
`InputError` for a topic that was made again while it was read.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from taskplace.errors import CheckpointError, Fenced
from taskplace.logs import RepeatedWarnings
from taskplace.spark.checkpoint.journal import Journal
from taskplace.spark.codec import decoded, encoded
from taskplace.spark.driver.logged_errors import log_repeated_failure
from taskplace.spark.messages import READ, Manifest, Report, TopicRead, kept
from taskplace.spark.operator_messages import PartitionStatus, TopicStatus
from taskplace.spark.worker.guard import shown_error
from taskplace.spark.worker.topic_reader import TopicReader, stream_offsets

log = logging.getLogger(__name__)

_REMEDY = (
    "both must come from the same run: restore the one that was lost, set back or replaced, or start a new checkpoint "
    "in another directory"
)

#: The time between two questions. Kafka's consumers commit as often.
ASK_SECONDS = 5.0
#: The rate of records is that of so many last seconds.
RATE_SECONDS = 60.0
#: How long the end of the stream waits for the last commit to a consumer group.
END_SECONDS = 5.0


def with_read(
    identity: Mapping[str, Any], batch: int, topics: Collection[str], read: Mapping[str, TopicRead]
) -> dict[str, Any]:
    """Return the identity of a batch's manifest.

    - `topics`: those that tasks read themselves; what is known of others is dropped
    - `read`: by topic, what was read up to this batch
    """
    made = {name: value for name, value in identity.items() if name != READ}
    if topics:
        of_topics = decoded(Any, encoded({topic: one for topic, one in read.items() if topic in topics}))
        made[READ] = {"batch": batch, "topics": of_topics}
    return made


def advanced(
    root: Path, last: Manifest | None, reports: Iterable[Report], readers: Mapping[str, TopicReader]
) -> dict[str, TopicRead]:
    """Return by topic what was read up to a batch, from the last manifest and the reports of the batch.

    A topic without ranges in the batch is as before. Errors: `CheckpointError`, see above.
    """
    before = kept(last)
    after = {topic: replace(one, starts={}, rows=0, skipped={}) for topic, one in before.items()}
    for report in reports:
        for topic, one in report.read.items():
            was, skipped = after.get(topic, TopicRead(one.topic_id)), {}
            ends = before[topic].ends if topic in before else {}
            goes_on = _goes_on(readers, topic)
            if goes_on and topic in before and before[topic].topic_id != one.topic_id:
                ends = dict.fromkeys(one.starts, 0)
                was = was if was.topic_id == one.topic_id else TopicRead(one.topic_id)
            _check_id(root, topic, kept_id=was.topic_id, found=one.topic_id)
            for partition, start in one.starts.items():
                end = ends.get(partition, start)
                if start != end and not (goes_on and start > end):
                    raise _apart(root, topic, partition, kept_end=end, found=start)
                skipped[partition] = start - end
            partition, at = report.task.partition, report.event_times.get(topic)
            times = {} if at is None else {partition: max(at, was.newest.get(partition, at))}
            after[topic] = TopicRead(
                one.topic_id,
                {**was.starts, **one.starts},
                {**was.ends, **one.ends},
                was.rows + one.rows,
                skipped={**was.skipped, **{p: number for p, number in skipped.items() if number}},
                newest={**was.newest, **times},
                backlog=one.backlog,
                times={**was.times, **one.times},
            )
    for topic, one in after.items():
        other = topic in before and before[topic].topic_id != one.topic_id
        if other or one.skipped:
            log.warning(
                "topic %r: the stream goes on %s, because of `changed_topics: go-on`; offsets that were skipped, by "
                "partition: %s", topic,
                f"with a topic that was made again, id {one.topic_id}; records of id {before[topic].topic_id} behind "
                f"the offsets {dict(before[topic].ends)} were not read" if other else "without records that are gone",
                dict(one.skipped) or "none",
            )  # fmt: skip
    return after


def check_ids(readers: Mapping[str, TopicReader], reports: Iterable[Report]) -> None:
    """Refuse a batch whose topics do not have the ids any more with which they were planned.

    A topic that was made again under its readers has other records at the same offsets. One request for each topic
    of which records were read. Errors: as for `TopicReader.check_id`.
    """
    read = [each for report in reports for each in report.read.items()]
    ids = {topic: one.topic_id for topic, one in read if one.starts != one.ends}
    for topic, topic_id in sorted(ids.items()):
        readers[topic].check_id(topic_id)


def check_planned(root: Path, log: Path, last: Manifest | None) -> None:
    """Compare what was read with the end of the last committed batch in Spark's checkpoint. Starts nothing.

    `log`: the directory of Spark's offsets. A file that is missing or unreadable is not compared here, but in the next
    batch. Errors: `CheckpointError`, see above.
    """
    topics = kept(last)
    planned = stream_offsets(log / str(last.batch)) if topics and last is not None else []
    for topic, one in topics.items() if planned else ():
        same = [offset for offset in planned if offset.topic_id == one.topic_id]
        if not same:
            _check_id(root, topic, kept_id=one.topic_id, found=" or ".join(o.topic_id for o in planned))
        found = same[0].offsets
        for partition, end in sorted(one.ends.items()):
            if found.get(partition) != end and not any(o.offsets.get(partition) == end for o in same):
                raise _apart(root, topic, partition, kept_end=end, found=found.get(partition))


def planned_records(log: Path, batch: int, last: Manifest | None) -> dict[str, dict[int, int]]:
    """Return by topic and partition how many offsets Spark has planned for a batch, as an estimate.

    - `log`: the directory of Spark's offsets. Without a readable file of the batch, the result is empty
    - `last`: the last manifest, which says what the ids of topics are

    Where a partition without earlier offsets begins, only Spark knows; it counts from 0.
    """
    names = {one.topic_id: topic for topic, one in kept(last).items()}
    before = (
        {offset.topic_id: offset.offsets for offset in stream_offsets(log / str(batch - 1))} if names else {}
    )
    found: dict[str, dict[int, int]] = {}
    for offset in stream_offsets(log / str(batch)) if names else ():
        if (topic := names.get(offset.topic_id)) is not None:
            starts = before.get(offset.topic_id, {})
            found[topic] = {p: max(0, end - starts.get(p, 0)) for p, end in offset.offsets.items()}
    return found


def check_ranges(
    root: Path, committed: Manifest, found: Mapping[str, TopicRead], readers: Mapping[str, TopicReader]
) -> None:
    """Compare the ranges that Spark brings for the last committed batch with those that were committed.

    `found`: by topic. Errors: `CheckpointError`, see above.
    """
    for topic, one in kept(committed).items():
        now = found.get(topic, TopicRead(one.topic_id))
        _check_id(root, topic, kept_id=one.topic_id, found=now.topic_id)
        for partition in sorted({*one.starts, *now.starts}):
            was, brought = (
                (of.starts[partition], of.ends[partition]) if partition in of.starts else None
                for of in (one, now)
            )
            if was != brought and not (brought and _left(was, brought) and _goes_on(readers, topic)):
                raise CheckpointError(
                    f"{root}: batch {committed.batch} was committed with {_range(was)} of topic {topic!r}, partition "
                    f"{partition}, and Spark repeats it with {_range(brought)}: Spark's checkpoint has lost the "
                    f"offsets of this batch, or comes from another run; the topic still has the records; {_REMEDY}"
                )


def _goes_on(readers: Mapping[str, TopicReader], topic: str) -> bool:
    return topic in readers and readers[topic].goes_on


def _left(was: tuple[int, int] | None, brought: tuple[int, int]) -> bool:
    """Return whether a range is what is left of another one, after its first records were removed."""
    start, end = was or (brought[1], brought[1])
    return start <= brought[0] and end == brought[1]


def _range(offsets: tuple[int, int] | None) -> str:
    return "no offsets" if offsets is None else f"the offsets from {offsets[0]} to before {offsets[1]}"


def _check_id(root: Path, topic: str, *, kept_id: str, found: str) -> None:
    if found != kept_id:
        raise CheckpointError(
            f"{root}: topic {topic!r} had the id {kept_id}, found {found}: it was deleted and made again, it is a "
            "topic of another cluster, or Spark's checkpoint comes from another run; its offsets mean other records. "
            "Read the original topic, start once with `changed_topics: go-on` of the source to go on with the new one, "
            "or start a new checkpoint in another directory"
        )


def _apart(root: Path, topic: str, partition: int, *, kept_end: int, found: int | None) -> CheckpointError:
    spark, state = "no offset", "it does not have this partition"
    if found is not None:
        spark, ahead = f"offset {found}", found > kept_end
        state = f"it is {'ahead' if ahead else 'behind'}, and the records of {abs(found - kept_end)} offsets would "
        state += "be skipped" if ahead else "count twice"
    return CheckpointError(
        f"{root}: topic {topic!r}, partition {partition}: the placed state has the records up to offset {kept_end}, "
        f"Spark's checkpoint goes on at {spark}: {state}; {_REMEDY}"
    )


@dataclass
class _Asked:
    """What brokers have said of a topic. `at`: when, None: never; `planned`: the ends in Spark's last offsets."""

    topic_id: str = ""
    at: float | None = None
    error: str = ""
    ends: Mapping[int, int] = field(default_factory=dict)
    planned: Mapping[int, int] = field(default_factory=dict)
    newer: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    committed: Mapping[int, int] = field(default_factory=dict)

    def of_now(self, read: TopicRead) -> TopicRead:
        """Return what was read of the topic that there is: nothing of one that was made again."""
        return read if self.topic_id in ("", read.topic_id) else TopicRead(self.topic_id)


class InputLag:
    """How far one stream is behind its topics: asks their brokers, and commits to consumer groups.

    **Idea.** Manifests have the positions that count. What they lack, only brokers know: where partitions end, and
    how old
    the first unread record is. A thread asks them, for the status and the metrics. It also commits the positions of
    committed batches to the consumer group of a reader that has one, so Kafka's tools show the lag as well.

    Properties:
    - beside the batches: brokers that do not answer hold up no batch and no status. Their errors are in the status, and
      logged at growing intervals;
    - each topic is asked at most once per `ASK_SECONDS`; positions are those of the last committed batch at any time;
    - a driver that another one has replaced commits nothing more.

    Lifetime of its thread: from the first batch until the driver ends.

    `log`: the directory of Spark's offsets; without it, nothing is known of partitions that had no records yet
    """

    def __init__(self, readers: Mapping[str, TopicReader], journal: Journal, log: Path) -> None:
        self._readers, self._journal, self._log = readers, journal, log
        self._asked = {topic: _Asked() for topic in readers}
        self._began = time.time()
        self._rows: dict[str, deque[tuple[float, int]]] = {topic: deque() for topic in readers}
        self._repeated = RepeatedWarnings()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the thread, if there are topics to ask about."""
        if self._readers and self._thread is None:
            self._stopped.clear()
            self._thread = threading.Thread(target=self._loop, name="taskplace-input-lag", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Commit the last positions, and end the thread. May be called again."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._stopped.set()
            thread.join(END_SECONDS)

    def committed(self, read: Mapping[str, TopicRead]) -> None:
        """Note what a committed batch has read."""
        for topic, rows in self._rows.items():  # a manifest may have others, which were read before
            rows.append((time.time(), read[topic].rows if topic in read else 0))
            while rows[0][0] < time.time() - RATE_SECONDS:
                rows.popleft()

    def topics(self) -> dict[str, TopicStatus]:
        """Return by topic how far it was read. Asks nothing."""
        read = kept(self._journal.last)
        return {topic: self._topic(topic, read.get(topic, TopicRead(""))) for topic in self._readers}

    def _topic(self, topic: str, read: TopicRead) -> TopicStatus:
        asked, now = self._asked[topic], time.time()
        partitions, read = {}, asked.of_now(read)
        positions = {**asked.planned, **read.ends}
        for partition in sorted({*asked.ends, *positions}):
            position, end = positions.get(partition), asked.ends.get(partition)
            seconds = None
            if position is not None and end is not None:
                end = max(position, end)  # it was read after the brokers were asked
                seconds = 0.0
                if end > position:
                    offset, newer = asked.newer.get(partition, (-1, 0))
                    # Until they are asked again, the unread records are as old as the last one that was read, at most.
                    since = newer if offset >= position else read.times.get(partition)
                    seconds = None if since is None else max(0.0, now - since / 1000)
            partitions[partition] = PartitionStatus(position, end, seconds)
        rows = sum(rows for at, rows in tuple(self._rows[topic]) if at >= now - RATE_SECONDS)
        rate = rows / max(1.0, min(RATE_SECONDS, now - self._began))
        return TopicStatus(partitions, rate, asked.at, asked.error)

    def turn(self) -> None:
        """Ask about each topic, and commit its positions. An error is kept for the status, and logged.

        Errors: `Fenced`.
        """
        last = self._journal.last
        read = kept(last)
        for topic, reader in self._readers.items():
            asked = self._asked[topic]
            try:
                self._journal.check_epoch()
                self._ask(reader, asked, read.get(topic, TopicRead("")), -1 if last is None else last.batch)
            except Fenced:
                raise
            except Exception as error:
                asked.error = shown_error(error)
                said = "topic %r: its lag is not known, or not committed to its consumer group; the stream goes on"
                log_repeated_failure(log, self._repeated, topic, said, topic, error=error)
            else:
                asked.error = ""
                self._repeated.settle(log, "topic %r: its lag is known again", topic, key=topic)

    def _ask(self, reader: TopicReader, asked: _Asked, read: TopicRead, batch: int) -> None:
        asked.topic_id, ends = reader.ends()
        read = asked.of_now(read)
        planned = stream_offsets(self._log / str(batch))  # where Spark has planned the batch to end
        asked.planned = next((one.offsets for one in planned if one.topic_id == asked.topic_id), {})
        positions = {**asked.planned, **read.ends}
        behind = {p: read.times.get(p, -1) for p, at in positions.items() if at < ends.get(p, at)}
        asked.newer = reader.first_newer(behind)
        asked.ends, asked.at = ends, time.time()
        if positions != asked.committed:
            reader.commit(positions)
            asked.committed = positions

    def _loop(self) -> None:
        ended = False
        with suppress(Fenced):
            while not ended:
                ended = self._stopped.is_set()  # then this is the last turn: it has the last batch
                self.turn()
                self._stopped.wait(ASK_SECONDS)
