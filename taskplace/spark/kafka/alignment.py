"""Plans how far the next batch reads a topic beside the other topics of its topology: tables first, then together in
time.

**Idea.** Each topic has its own source of Spark, which plans it in a process of its own. Spark's log of offsets has the
positions of all of them. So each source asks the brokers about all topics, and computes the same plan for its own.

Properties:
- a topic of which nothing was read yet waits until the tables that it is joined with are read up to `targets`, their
  ends at the start;
- otherwise, if a partition has more records than a batch takes, the others take records up to the time of its first
  record that is left. The partition that is the furthest behind takes all that it may, so there is always progress;
- a partition of which nothing was read yet gets at least one record, unless its topic is a table: a source without an
  event time would hold the watermark back;
- with `idle_ms` above 0, a topic also waits for records of topics that have none, but not with `availableNow`.

Records are compared by their time in Kafka, in milliseconds, which need not be their event time. Topics count as
related if a node has rows of both. A plan decides nothing twice: Spark keeps the offsets of each batch.

Non-goals: sources of Spark's; queries whose Spark checkpoint is not in the placed one. Both are read as they come.

Source: Kafka Streams' `max.task.idle.ms` (KIP-353, KIP-695). Departure: it has no first read of tables.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from taskplace.spark.checkpoint.manifests import numbered
from taskplace.spark.kafka.records import Extent, KafkaRecords, Numbers
from taskplace.spark.messages import OFFSETS
from taskplace.spark.worker.topic_reader import stream_offsets
from topology import BuiltTopology


@dataclass(kw_only=True)
class Alignment:
    """Plans one topic beside the others.

    - `topic`: by its name in the topology; `topics`: all that are planned together
    - `tables`: by topic, the tables that are read before it
    - `targets`: by table, up to where
    - `timed`: the topics with an event time
    - `idle_ms`: Kafka's `max.task.idle.ms`; -1: topics and partitions are not aligned
    - `log`: the directory of Spark's offsets
    - `clock`: monotonic, in seconds

    Lifetime: one for each process that plans. `lasts`: by other topic, where a run ends that reads only what is there.
    `waiting`: by topic without records, until when this one waits for it.
    """

    topic: str
    topics: Mapping[str, KafkaRecords]
    tables: Mapping[str, Collection[str]]
    targets: Mapping[str, Numbers]
    timed: Collection[str]
    idle_ms: int
    log: Path
    clock: Callable[[], float] = time.monotonic
    lasts: dict[str, Numbers] = field(default_factory=dict, init=False)
    waiting: dict[str, float] = field(default_factory=dict, init=False)

    def ends(self, start: Mapping[str, Any], own: Extent, *, last: bool) -> Mapping[int, int]:
        """Return where the batch ends that begins at `start`, an offset of the stream with the extent `own`.

        `last`: whether the run reads only what is there (`availableNow`).
        Errors: `InputError` for brokers that do not answer.
        """
        if not own.new and self.idle_ms <= 0:
            return own.begins
        peers = {topic: asked for topic, asked in self.topics.items() if topic != self.topic}
        positions = self._positions(start) if peers else None
        others = {} if positions is None else {t: asked.extent(positions) for t, asked in peers.items()}
        if last:
            self.lasts = self.lasts or {topic: _ends(asked) for topic, asked in peers.items()}
            others = {topic: extent.until(self.lasts[topic]) for topic, extent in others.items()}
        extents = {**others, self.topic: own}
        waits = self._waits(others) and not last
        if not own.new or (own.unread and self._behind(extents)):
            return own.begins
        streams = [extents[t] for t, tables in self.tables.items() if self.topic in tables and t in extents]
        if self.idle_ms < 0 or any(stream.unread for stream in streams):
            return own.capped
        return own.begins if waits else self._aligned(extents)

    def _behind(self, extents: Mapping[str, Extent]) -> bool:
        """Return whether a table has not been read as far as it reached at the start."""
        tables = [(extents[table], ends) for table, ends in self.targets.items() if table in extents]
        return any(table.begins[p] < end for table, ends in tables for p, end in ends.items())

    def _positions(self, start: Mapping[str, Any]) -> dict[str, dict[int, int]] | None:
        """Return by topic id where the next batch begins; empty before the first one, None if it is not known."""
        if not self.log.is_dir():
            return None  # this is not the query's checkpoint
        batches = numbered(self.log)
        if not batches:
            return {}
        positions: dict[str, dict[int, int]] = {}
        found = stream_offsets(self.log / str(batches[-1]))
        for each in found:
            known = positions.setdefault(each.topic_id, {})
            known.update({p: max(at, known.get(p, at)) for p, at in each.offsets.items()})
        own = {int(partition): at for partition, at in start["offsets"].items()}
        return positions if any(dict(each.offsets) == own for each in found) else None

    def _waits(self, others: Mapping[str, Extent]) -> bool:
        """Return whether to wait for records of topics that have none: not for those that had none for long enough."""
        now, empty = self.clock(), [topic for topic, extent in others.items() if not extent.new]
        self.waiting = {topic: self.waiting.get(topic, now + self.idle_ms / 1000) for topic in empty}
        return any(now < until for until in self.waiting.values())

    def _aligned(self, extents: Mapping[str, Extent]) -> dict[int, int]:
        own, capped = extents[self.topic], extents[self.topic].capped
        left = [
            (time_ms, topic, partition)
            for topic, extent in extents.items()
            if topic == self.topic or not (extent.unread and self.tables.get(topic))
            for partition, time_ms in self.topics[topic].times_at(extent.left).items()
        ]
        if not left:
            return capped
        limit, *slowest = min(left)
        later = self.topics[self.topic].later_than(limit, own.new)
        least = self.topic in self.timed and not any(self.topic in each for each in self.tables.values())
        return {
            partition: end
            if slowest == [self.topic, partition]
            else max(
                own.begins[partition] + (least and own.begins[partition] <= own.firsts[partition] < end),
                min(end, later.get(partition, end)),
            )
            for partition, end in capped.items()
        }


def _ends(topic: KafkaRecords) -> Numbers:
    return {int(partition): at for partition, at in topic.last()["offsets"].items()}


def alignment(
    built: BuiltTopology,
    records: Mapping[str, KafkaRecords],
    topic: str,
    *,
    idle_ms: int,
    spark_checkpoint: Path,
) -> Alignment | None:
    """Return the alignment of a topic of a topology; None if there is nothing to align.

    - `records`: by external topic whose records tasks read, its `KafkaRecords`
    - `spark_checkpoint`: that of the query

    Asks the brokers for the ends of the tables that are read first. Errors: `InputError`, as for `KafkaRecords.last`.
    """
    groups, tables = _related(built, records)
    together = next((group for group in groups if topic in group), {topic})
    timed = {node.topic or "" for node in built.nodes if "event_time" in node.options}
    if len(together) == 1 and not timed & together:
        return None
    first = tables.get(topic, ())
    return Alignment(
        topic=topic,
        topics={name: records[name] for name in sorted(together)},
        tables={name: before for name, before in tables.items() if name in together},
        targets={name: _ends(records[name]) for name in first},
        timed=timed & together,
        idle_ms=idle_ms,
        log=spark_checkpoint / OFFSETS,
    )


def _related(
    built: BuiltTopology, topics: Collection[str]
) -> tuple[list[set[str]], dict[str, frozenset[str]]]:
    """Return the sets of topics that are aligned, and by topic the tables that are read before it. O(nodes * topics).

    A table of a join is read before each topic of the join's stream, and so are the tables that it is joined with
    itself. Topics that would wait for each other do not wait.
    """
    above: dict[str, frozenset[str]] = {}  # by node: the topics whose rows it has
    written: dict[str, frozenset[str]] = {}  # the same by internal topic
    groups: list[set[str]] = []
    before: dict[str, set[str]] = {topic: set() for topic in topics}
    for number in built.order:
        for node in built.subtopologies[number].nodes:
            if node.kind == "source":
                name = node.topic or ""
                found = written.get(name, frozenset()) if node.internal else frozenset({name} & set(topics))
            else:
                found = frozenset().union(*(above[parent] for parent in node.parents))
            above[node.name] = found
            if node.kind == "repartition":
                written[node.topic or ""] = found
            if node.join == "table":
                stream, table = (above[parent] for parent in node.parents)
                for name in stream:
                    before[name] |= table
            if found:
                met = [group for group in groups if group & found]
                groups = [*(group for group in groups if not group & found), set(found).union(*met)]
    for _ in before:  # tables of tables
        before = {
            topic: tables.union(*(before[table] for table in tables)) for topic, tables in before.items()
        }
    return groups, {
        topic: first
        for topic, tables in before.items()
        if (first := frozenset(table for table in tables if topic not in before[table]))
    }
