"""Sources that are split by a partition column, such as Kafka's `partition`, and not by Spark's hash of their key.

**Idea.** The producers of a Kafka topic have split its rows already. With `partition_column`, a row's partition is the
number in that column, so that a task has the rows of one partition of Kafka, in their order. A key, if the source has
one, says which columns have one value in one partition only: state is kept by them.

| option of a source | meaning |
|---|---|
| `partition_column` | the integer column with the number of the row's partition, from 0 |
| `key_partitioner` | the partitioner of the topic's producers (`taskplace.spark.worker.hashing`); `murmur2` |
| `key_bytes` | the binary or string column with the serialized key, of which tasks check samples; none |
| `check_keys` | whether samples of keys are checked; by default, if there is `key_bytes`, or `reads` and a key |
| `reads` | a reader, with which tasks read the records of the ranges that Spark brings; see below |

With `reads` (`taskplace.spark.worker.topic_reader`), the data frame has ranges instead of records. The partition of a
range is that of its records, so there is no `partition_column`, and all of this applies.

What elsewhere depends on the hash:
- topics that are joined, or that feed one state, have to be split alike: all by Spark's hash, or all by partition
  columns and one partitioner. A repartition splits by Spark's hash. Anything else is refused at the start;
- a task cannot compute the partition of a state's key, so nodes that may have changed the key's columns are refused
  before state that is kept by them (`taskplace.spark.worker.partition_checks` checks their keys in other topologies);
- a read of a store by key asks all tasks of the store (`taskplace.spark.store_reader`);
- a checkpoint stays with what it began with: keys would move to other tasks.

Errors: `InputError` before anything starts; in a batch, for a partition that is null or not below the topic's count.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know it by
from pyspark.sql.types import BinaryType, ByteType, IntegerType, LongType, ShortType, StringType, StructType

from taskplace.errors import InputError
from taskplace.spark.compile.forms import external_sources
from taskplace.spark.versions import from_arrow_schema
from taskplace.spark.worker.hashing import known_partitioner
from taskplace.spark.worker.partition_checks import Owned, PartitionedTopic
from taskplace.spark.worker.topic_reader import RANGES, TopicReader
from taskplace.spec.nodes import SourceOptions
from taskplace.validation import nearest
from topology import BuiltTopology

log = logging.getLogger(__name__)

DEFAULT_PARTITIONER = "murmur2"
#: The column of a range with its partition.
RANGE_PARTITION = "partition"
_BY_HASH = "the hash of the key"
#: Stands for a number in a text.
_NUMBER = 987_654_321
_INTEGERS = (ByteType, ShortType, IntegerType, LongType)


def partition_columns(built: BuiltTopology) -> dict[str, str]:
    """Return the partition column of each topic that has one. Errors: `InputError`."""
    found = {}
    for topic, (_, options, reader) in external_sources(built).items():
        path, column = f"sources.{topic}", options.partition_column
        if reader is not None:
            if column is not None:
                expected = "no partition_column beside `reads`, which brings the partition of each range"
                raise InputError(f"{path}.partition_column", found=column, expected=expected)
            column = RANGE_PARTITION
        if column is not None:
            found[topic] = column
            continue
        for name in ("key_partitioner", "key_bytes", "check_keys"):
            if (value := getattr(options, name)) is not None:
                expected = "this option only beside partition_column or reads"
                raise InputError(f"{path}.{name}", found=value, expected=expected)
    return found


def partitioned_topics(built: BuiltTopology) -> dict[str, PartitionedTopic]:
    """Return what tasks check of each topic with a partition column. Errors: `InputError`, see above."""
    sources, made = external_sources(built), {}
    for topic in partition_columns(built):
        key, options, reader = sources[topic]
        path, key_bytes = f"sources.{topic}", options.key_bytes
        if options.check_keys and key_bytes is None and reader is None:
            expected = "key_bytes beside it: a column of the rows with Kafka's `key`"
            raise InputError(f"{path}.check_keys", found=True, expected=expected)
        checked, partitioner = options.check_keys is not False, options.key_partitioner or DEFAULT_PARTITIONER
        made[topic] = PartitionedTopic(
            topic=topic,
            partitions=built.partitions[topic] or 0,
            partitioner=known_partitioner(partitioner, f"{path}.key_partitioner"),
            key_bytes=key_bytes if checked and key_bytes else "",
            checks_records=checked and not key_bytes and bool(key) and reader is not None,
            key=key if checked else (),
            is_read=reader is not None,
        )
    return made


def warn_of_unchecked_keys(built: BuiltTopology) -> None:
    """Log one warning if keys decide partitions and no task can check them: sources without `key_bytes`."""
    unchecked = [
        repr(topic)
        for topic, (key, options, reader) in sorted(external_sources(built).items())
        if key
        and options.partition_column is not None
        and (built.partitions[topic] or 0) > 1
        and (options.key_bytes, options.check_keys, reader) == (None, None, None)
    ]
    if unchecked:
        log.warning(
            "the keys of %s are not checked: if a producer uses another partitioner, or a topic got more partitions, "
            "the rows of one key reach several tasks without an error; include Kafka's column `key` in the rows and "
            "name it as key_bytes, or set check_keys to false", ", ".join(unchecked),
        )  # fmt: skip


def readers(built: BuiltTopology) -> dict[str, TopicReader]:
    """Return the reader of each topic whose records tasks read themselves."""
    sources = external_sources(built)
    return {topic: source.reader for topic, source in sources.items() if source.reader is not None}


def row_schemas(built: BuiltTopology, given: Mapping[str, StructType]) -> dict[str, StructType]:
    """Return the schemas of the rows that tasks get, for those of the data frames.

    Errors: `InputError` for a source with a reader whose data frame has no ranges.
    """
    own = readers(built)
    for topic in own:
        if topic in given and given[topic].names != RANGES.names:
            found = f"a data frame with the columns {given[topic].names}"
            expected = f"the ranges {RANGES.names}, of taskplace.spark.kafka.source.stream_of"
            raise InputError(f"sources.{topic}", found=found, expected=expected)
    return {**given, **{topic: from_arrow_schema(own[topic].columns) for topic in given if topic in own}}


def check_owned(owned: Sequence[Owned], topics: Mapping[str, PartitionedTopic]) -> None:
    """Refuse state behind a node that may have changed the key of a topic with a partition column.

    `owned`: the stores whose keys tasks would have to check.
    """
    for one in owned:
        if split := [topic for topic in one.topics if topic in topics]:
            by, node = f"({', '.join(name for name, _ in one.columns)})", one.changed_by
            raise InputError(
                f"node {one.node!r}",
                found=f"state by {by} behind {node!r}, which may have changed these columns, and rows of {split[0]!r} "
                "that are split by a partition column, which a task cannot compute",
                expected=f"that {node!r} passes them on (`passes_keys_on`, or `routes` in `infer`)",
                hint=f"declare that, or repartition the rows by {by} before {one.node!r}",
            )


def check_schema(topic: str, options: SourceOptions, schema: StructType) -> None:
    """Refuse a data frame without the columns that the options of its topic name, or with other types."""
    for option, column, kinds, expected in (
        ("partition_column", options.partition_column, _INTEGERS, "an integer column"),
        ("key_bytes", options.key_bytes, (BinaryType, StringType), "a binary or string column"),
    ):
        path = f"sources.{topic}.{option}"
        if column is None:
            continue
        if column not in schema.names:
            hint = nearest(column, schema.names)
            raise InputError(path, found=column, expected=f"{expected} among {schema.names}", hint=hint)
        if not isinstance(kind := schema[column].dataType, kinds):
            raise InputError(path, found=f"{column!r}, {kind.simpleString()}", expected=expected)


def partition_of_row(topic: str, column: str, partitions: int) -> Column:
    """Return the partition of a row as Spark computes it. A number that is null or out of range fails Spark's task."""
    number = F.col("`" + column.replace("`", "``") + "`")
    before, after = _message(topic, column, partitions)
    found = F.coalesce(number.cast("string"), F.lit("None"))
    return F.when((number >= 0) & (number < partitions), number.cast("int")).otherwise(
        F.raise_error(F.concat(F.lit(before), found, F.lit(after)))
    )


def out_of_range(error: BaseException, built: BuiltTopology) -> InputError | None:
    """Return the error for the partition that failed a task of Spark; None if something else did."""
    text = str(error)
    for topic, column in partition_columns(built).items():
        before, after = _message(topic, column, built.partitions[topic] or 0)
        found = re.search(re.escape(before) + r"(None|-?\d+)" + re.escape(after), text)
        if found is not None:
            number = None if found[1] == "None" else int(found[1])
            return _refused(topic, column, built.partitions[topic] or 0, number)
    return None


def check_alike(
    built: BuiltTopology, alike: Iterable[Sequence[str]], topics: Mapping[str, PartitionedTopic]
) -> None:
    """Refuse topics whose keys have to meet, and which are split in different ways. `alike`: such topics, in groups."""
    for group in alike:
        ways = {topic: topics[topic].partitioner if topic in topics else _BY_HASH for topic in group}
        if len(set(ways.values())) == 1 or {built.partitions[topic] for topic in group} == {1}:
            continue
        listed = ", ".join(f"{topic} by {way}" for topic, way in ways.items())
        by_column = [topic for topic in group if topic in topics]
        raise InputError(
            f"sources {', '.join(group)}",
            found=f"topics whose keys have to meet, but which are split in different ways: {listed}",
            expected="one way for all of them; otherwise equal keys reach different tasks",
            hint=f"repartition the rows of {', '.join(by_column)} by the key",
        )


def _refused(topic: str, column: str, partitions: int, found: int | None) -> InputError:
    return InputError(
        f"sources.{topic}.partition_column",
        found=found,
        expected=f"a partition of 0 to {partitions - 1} in the column {column!r}",
        hint="if the topic got more partitions, start a new checkpoint, or repartition the rows by their key instead",
    )


def _message(topic: str, column: str, partitions: int) -> list[str]:
    """Return the text of the error before the number, and behind it, for Spark to raise."""
    return str(_refused(topic, column, partitions, _NUMBER)).split(str(_NUMBER))
