"""How far tasks have read the topics that they read themselves: kept in each manifest, compared with Spark's offsets.

    identity["read"] = {"batch": 12, "topics": {"flights": {"topic_id": "x", "starts": ..., "ends": ..., "rows": 120}}}

**Idea.** Spark decides which offsets a batch has, and keeps them in its own checkpoint. If that one is lost, set back
or replaced, records would be skipped or counted twice without an error. So the manifest keeps the offsets as well.

Compared:
- before Spark's query starts: the end of the last committed batch in Spark's checkpoint (`check_planned`);
- in each batch, before its commit: every range begins where the last one of its partition ended (`advanced`);
- for a batch that Spark repeats: its ranges (`check_ranges`).
Before the commit of a batch, the brokers are asked whether its topics still have their ids (`check_ids`).

A partition counts from its first range on: where an empty one begins, only Spark knows.

Before a stage runs, Spark's offsets also say how many records its tasks will read (`planned_records`).

Errors: `CheckpointError` with the topic, the partition, both offsets, and which of the two checkpoints is ahead;
`InputError` for a topic that was made again while it was read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from taskplace.errors import CheckpointError
from taskplace.spark.codec import decoded, encoded
from taskplace.spark.messages import Manifest, Report, TopicRead
from taskplace.spark.worker.topic_reader import TopicReader, stream_offsets

#: The key of the identity. The value has the number of the batch, because versions that do not know the key pass the
#: identity on as it is.
READ = "read"
_REMEDY = (
    "both must come from the same run: restore the one that was lost, set back or replaced, or start a new checkpoint "
    "in another directory"
)


def kept(manifest: Manifest | None) -> dict[str, TopicRead]:
    """Return by topic what a manifest says was read; empty if it says nothing."""
    entry = manifest.identity.get(READ) if manifest is not None else None
    if manifest is None or entry is None or entry["batch"] != manifest.batch:
        return {}
    topics: dict[str, TopicRead] = decoded(dict[str, TopicRead], encoded(entry["topics"]))
    return topics


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


def advanced(root: Path, last: Manifest | None, reports: Iterable[Report]) -> dict[str, TopicRead]:
    """Return by topic what was read up to a batch, from the last manifest and the reports of the batch.

    A topic without ranges in the batch is as before. Errors: `CheckpointError`, see above.
    """
    before = kept(last)
    after = {topic: replace(one, starts={}, rows=0) for topic, one in before.items()}
    for report in reports:
        for topic, one in report.read.items():
            was = after.get(topic, TopicRead(one.topic_id))
            _check_id(root, topic, kept_id=was.topic_id, found=one.topic_id)
            ends = before[topic].ends if topic in before else {}
            for partition, start in one.starts.items():
                if start != (end := ends.get(partition, start)):
                    raise _apart(root, topic, partition, kept_end=end, found=start)
            partition, time = report.task.partition, report.event_times.get(topic)
            times = {} if time is None else {partition: max(time, was.newest.get(partition, time))}
            after[topic] = TopicRead(
                one.topic_id,
                {**was.starts, **one.starts},
                {**was.ends, **one.ends},
                was.rows + one.rows,
                newest={**was.newest, **times},
                backlog=one.backlog,
            )
    return after


def check_ids(readers: Mapping[str, TopicReader], reports: Iterable[Report]) -> None:
    """Refuse a batch whose topics do not have the ids any more with which they were planned.

    A topic that was made again under its readers has other records at the same offsets. One request for each topic
    that was read. Errors: as for `TopicReader.check_id`.
    """
    ids = {topic: one.topic_id for report in reports for topic, one in report.read.items()}
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


def check_ranges(root: Path, committed: Manifest, found: Mapping[str, TopicRead]) -> None:
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
            if was != brought:
                raise CheckpointError(
                    f"{root}: batch {committed.batch} was committed with {_range(was)} of topic {topic!r}, partition "
                    f"{partition}, and Spark repeats it with {_range(brought)}: Spark's checkpoint has lost the "
                    f"offsets of this batch, or comes from another run; the topic still has the records; {_REMEDY}"
                )


def _range(offsets: tuple[int, int] | None) -> str:
    return "no offsets" if offsets is None else f"the offsets from {offsets[0]} to before {offsets[1]}"


def _check_id(root: Path, topic: str, *, kept_id: str, found: str) -> None:
    if found != kept_id:
        raise CheckpointError(
            f"{root}: topic {topic!r} had the id {kept_id}, found {found}: it was deleted and made again, it is a "
            "topic of another cluster, or Spark's checkpoint comes from another run; its offsets mean other records. "
            "Read the original topic, or start a new checkpoint in another directory"
        )


def _apart(root: Path, topic: str, partition: int, *, kept_end: int, found: int | None) -> CheckpointError:
    if found is None:
        state = "Spark's checkpoint does not have this partition"
    elif found > kept_end:
        state = f"Spark's checkpoint is ahead, and the records of {found - kept_end} offsets would be skipped"
    else:
        state = (
            f"Spark's checkpoint is behind, and the records of {kept_end - found} offsets would count twice"
        )
    spark = "no offset" if found is None else f"offset {found}"
    return CheckpointError(
        f"{root}: topic {topic!r}, partition {partition}: the placed state has the records up to offset {kept_end}, "
        f"Spark's checkpoint goes on at {spark}: {state}; {_REMEDY}"
    )
