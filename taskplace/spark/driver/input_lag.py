"""How far a stream is behind the topics that its tasks read: asks their brokers, and commits to consumer groups.

**Idea.** Manifests have the positions that count. What they lack, only brokers know: where partitions end, and how old
the first unread record is. A thread asks them, for the status and the metrics. It also commits the positions of
committed batches to the consumer group of a reader that has one, so Kafka's tools show the lag as well.

Properties:
- beside the batches: brokers that do not answer hold up no batch and no status. Their errors are in the status, and
  logged at growing intervals;
- each topic is asked at most once per `ASK_SECONDS`; positions are those of the last committed batch at any time;
- a driver that another one has replaced commits nothing more.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from taskplace.errors import Fenced
from taskplace.logs import RepeatedWarnings
from taskplace.spark.checkpoint.journal import Journal
from taskplace.spark.driver import read_topics
from taskplace.spark.driver.event_log import shown_error
from taskplace.spark.driver.logged_errors import log_repeated_failure
from taskplace.spark.messages import TopicRead
from taskplace.spark.operator_messages import PartitionStatus, TopicStatus
from taskplace.spark.worker.topic_reader import TopicReader

log = logging.getLogger(__name__)

#: The time between two questions. Kafka's consumers commit as often.
ASK_SECONDS = 5.0
#: The rate of records is that of so many last seconds.
RATE_SECONDS = 60.0
#: How long the end of the stream waits for the last commit to a consumer group.
END_SECONDS = 5.0


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
    """The lag of one stream's topics. Lifetime of its thread: from the first batch until the driver ends.

    `log`: the directory of Spark's offsets; without it, nothing is known of partitions that had no records yet
    """

    def __init__(
        self,
        readers: Mapping[str, TopicReader],
        journal: Journal,
        log: Path,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._readers, self._journal, self._log, self._clock = readers, journal, log, clock
        self._asked = {topic: _Asked() for topic in readers}
        self._began = clock()
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
            rows.append((self._clock(), read[topic].rows if topic in read else 0))
            while rows[0][0] < self._clock() - RATE_SECONDS:
                rows.popleft()

    def topics(self) -> dict[str, TopicStatus]:
        """Return by topic how far it was read. Asks nothing."""
        read = read_topics.kept(self._journal.last)
        return {topic: self._topic(topic, read.get(topic, TopicRead(""))) for topic in self._readers}

    def _topic(self, topic: str, read: TopicRead) -> TopicStatus:
        asked, now = self._asked[topic], self._clock()
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
        read = read_topics.kept(last)
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
        asked.planned = read_topics.planned_ends(self._log, batch, asked.topic_id)
        positions = {**asked.planned, **read.ends}
        behind = {p: read.times.get(p, -1) for p, at in positions.items() if at < ends.get(p, at)}
        asked.newer = reader.first_newer(behind)
        asked.ends, asked.at = ends, self._clock()
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
