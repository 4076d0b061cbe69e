"""Compiles a topology: one program per subtopology for the executors, and one united input for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know it by
from pyspark.sql.types import StructType

from taskplace.durations import milliseconds
from taskplace.errors import ConfigError, InputError
from taskplace.spark import targets
from taskplace.spark.compile.forms import EVENT_TIME_OPTIONS, check_forms, check_options
from taskplace.spark.compile.infer import stores_of
from taskplace.spark.compile.keys import check_keys, keyed, owned, splits
from taskplace.spark.compile.partition_columns import (
    PARTITION_OPTIONS,
    check_owned,
    partition_columns,
    partition_of_row,
    partitioned_topics,
    readers,
    row_schemas,
)
from taskplace.spark.compile.sources import NOTHING, Fixed, check_sources, hashable, source_key
from taskplace.spark.driver.changes import check_changes
from taskplace.spark.driver.times import with_times
from taskplace.spark.processors.traits import traits_of
from taskplace.spark.state.environment import MAX_STORES
from taskplace.spark.worker.external import PARTITION, TAG
from taskplace.spark.worker.partition_checks import PartitionedTopic
from taskplace.spark.worker.program import Operator, Program
from taskplace.validation import named
from topology import BuiltTopology, Node, Subtopology


def external_topics(built: BuiltTopology) -> dict[str, int]:
    """Return the external topics, each with its tag: its number in declared order."""
    topics = [
        node.topic for node in built.nodes if node.kind == "source" and not node.internal and node.topic
    ]
    return {topic: tag for tag, topic in enumerate(dict.fromkeys(topics))}


def programs(built: BuiltTopology) -> tuple[Program, ...]:
    """Return the programs, by subtopology id. Errors: `InputError` for a store without a layout."""
    check_forms(built)
    check_keys(built)
    check_changes(built)
    tags, times, split = external_topics(built), event_times(built), partitioned_topics(built)
    check_names(built)
    made = tuple(_program(sub, built, tags, times, split) for sub in built.subtopologies)
    forgetting = sorted(store.name for p in made for store in p.stores.values() if store.ttl)
    if forgetting and not times:
        named_source = f"{next(iter(tags))!r}" if len(tags) == 1 else "..."
        raise InputError(
            f"stores.{forgetting[0]}.retention_ms",
            found="a time to live, but no source with an event time",
            expected="a source that declares one: "
            f'topology.source({named_source}, event_time="at", delay="10 minutes")',
        )
    made = with_times(built, made, {topic: time.column for topic, time in times.items()})
    for program in made:
        if len(program.databases) > MAX_STORES:
            raise InputError(
                f"subtopology {program.subtopology}",
                found=f"{len(program.databases)} stores (a store with a time to live counts twice)",
                expected=f"at most {MAX_STORES}",
            )
    return made


@dataclass(frozen=True, slots=True)
class EventTime:
    """The event time of a source: its column, and how late rows may arrive, in microseconds."""

    column: str
    delay: int


def event_times(built: BuiltTopology) -> dict[str, EventTime]:
    """Return the event time of each source that declares one. Errors: `InputError` for unknown options."""
    times = {}
    for node in built.nodes:
        if node.kind != "source" or node.internal or not node.topic:
            continue
        for name in node.options:
            if name not in (known := (*EVENT_TIME_OPTIONS, *PARTITION_OPTIONS)):
                raise ConfigError.unknown_key(f"sources.{node.topic}", name, known)
        column, delay = node.options.get("event_time"), node.options.get("delay")
        if column is None and delay is None:
            continue
        path = f"sources.{node.topic}"
        column = named(column, f"{path}.event_time", "the name of a timestamp column")
        late = 0 if delay is None else milliseconds(delay, f"{path}.delay", zero=True)
        times[node.topic] = EventTime(column, 1000 * late)
    return times


def watermark(
    times: Mapping[str, EventTime], newest: Mapping[str, int], before: int | None = None
) -> int | None:
    """Return the watermark in microseconds, given each source's newest event time so far: that of the slowest source.

    It is never less than the watermark `before`, even if the sources or their delays have changed. None until every
    source with an event time has had rows.

    >>> watermark({"a": EventTime("at", 10)}, {"a": 100}), watermark({"a": EventTime("at", 50)}, {"a": 100}, 90)
    (90, 90)
    """
    slowest = None
    if times and all(topic in newest for topic in times):
        slowest = min(newest[topic] - time.delay for topic, time in times.items())
    return max((w for w in (slowest, before) if w is not None), default=None)


def _program(
    sub: Subtopology,
    built: BuiltTopology,
    tags: Mapping[str, int],
    times: Mapping[str, EventTime],
    split: Mapping[str, PartitionedTopic],
) -> Program:
    keys = {node.topic: node.key for node in sub.sources if node.topic and node.key}
    operators = tuple(
        Operator(
            name=node.name,
            kind=node.kind,
            parents=node.parents if node.kind != "source" else (),
            stores=node.stores,
            topic=node.topic or "",
            key=node.key,
            partitions=node.partitions or 0,
            processor=node.processor,
            reserved=tuple(targets.of(node.target).reserved),
            row_check=targets.of(node.target).row_check,
        )
        for node in sub.nodes
    )
    stores = stores_of(sub)
    keys_of_stores = {name: store.key for name, store in stores.items()}
    for node in sub.nodes:
        if node.processor is not None or node.kind in ("sink", "merge", "repartition"):
            check_options(node)
    _check_windows_alone(sub)
    _check_own_stores(sub)
    own = readers(built)
    checked = owned(sub, keys_of_stores, built.partitions)
    check_owned(checked, split)
    by_key = keyed(sub, keys_of_stores)
    return Program(
        subtopology=sub.id,
        operators=operators,
        stores=stores,
        external={node.topic: tags[node.topic] for node in sub.sources if not node.internal and node.topic},
        internal=tuple(node.topic for node in sub.sources if node.internal and node.topic),
        repartitions={operator.topic: operator for operator in operators if operator.kind == "repartition"},
        event_times={
            topic: times[topic].column for node in sub.sources if (topic := node.topic or "") in times
        },
        groups=tuple(
            tuple((topic, keys[topic]) for topic in group if topic in keys)
            for group in built.copartition_groups
            if sum(topic in keys for topic in group) > 1
        ),
        splits=splits(sub, keys_of_stores),
        owned=checked,
        reads={topic: own[topic] for node in sub.sources if (topic := node.topic or "") in own},
        partitioned={
            topic: split[topic] if topic in by_key else replace(split[topic], key=())
            for node in sub.sources
            if (topic := node.topic or "") in split
        },
    )


def _check_windows_alone(sub: Subtopology) -> None:
    """Refuse a window store that several nodes share: one node would emit windows that another still fills."""
    users: dict[str, list[str]] = {}
    for node in sub.nodes:
        for store in node.stores:
            users.setdefault(store, []).append(node.name)
    for node in sub.nodes:
        for store in node.stores if getattr(node.processor, "windowed", False) else ():
            if len(users[store]) > 1:
                raise InputError(
                    f"stores.{store}",
                    found=f"windows of node {node.name!r} in a store that {users[store]} share",
                    expected="a separate store for each node with windows",
                )


def _check_own_stores(sub: Subtopology) -> None:
    """Refuse a store that several of taskplace's processors share, unless each node names it in `stores`.

    If one processor object is used at two nodes, or one store name twice, the rows of both nodes count in one state.
    Where that is intended, as for a de-duplication over two streams, both nodes must declare it. Custom processors may
    share stores without a declaration.
    """
    owners: dict[str, list[Node]] = {}
    for node in sub.nodes:
        if traits_of(node.processor).owns_its_store:
            owners.setdefault(node.processor.store, []).append(node)
    for store, nodes in owners.items():
        if len(nodes) > 1 and not all(store in node.named_stores for node in nodes):
            what = " and ".join(f"{type(node.processor).__name__} of node {node.name!r}" for node in nodes)
            raise InputError(
                f"stores.{store}",
                found=f"one store for the state of {what}",
                expected="a separate processor and a separate store for each node",
                hint=f"to share the store on purpose, name it at each of these nodes: stores=[{store!r}]",
            )


def unite(built: BuiltTopology, sources: Mapping[str, DataFrame], fixed: Fixed = NOTHING) -> DataFrame:
    """Return one data frame with the rows of all sources: a tag, the partition, and one struct per source.

    So one streaming query can read any number of sources, with one shuffle. A null key belongs to one fixed partition.
    The rows of a source without a key are spread by all its columns. A source with a partition column is split by
    that one. `fixed`: what the checkpoint has fixed.
    Errors: `InputError` for a source that is missing, unknown or does not fit the topology (`check_sources`).
    """
    tags = external_topics(built)
    for name in sources:
        if name not in tags:
            raise InputError(
                f"sources.{name}", found=name, expected=f"a source of the topology: {sorted(tags)}"
            )
    if missing := set(tags) - set(sources):
        raise InputError(
            "sources", found=sorted(sources), expected=f"data frames for {sorted(missing)} as well"
        )
    schemas = {topic: df.schema for topic, df in sources.items()}
    check_sources(
        built, row_schemas(built, schemas), next(iter(sources.values())).sparkSession.conf.get, fixed
    )
    types = {topic: StructType(schema.fields) for topic, schema in schemas.items()} if len(tags) > 1 else {}
    tagged = []
    for topic, tag in tags.items():
        # As SQL text: each function call would be several calls to the JVM, in every batch.
        rows = ", ".join(map(_quoted, schemas[topic].names))
        columns = [
            F.expr(f"{tag} AS {TAG}"),
            _partition(built, topic, sources[topic]),
            *(
                F.expr(f"struct({rows}) AS {_quoted(topic)}")
                if other == topic
                else F.lit(None).cast(types[other]).alias(other)
                for other in tags
            ),
        ]
        tagged.append(sources[topic].select(*columns))
    return reduce(DataFrame.unionByName, tagged)


def _partition(built: BuiltTopology, topic: str, rows: DataFrame) -> Column:
    partitions = built.partitions[topic] or 0
    if (column := partition_columns(built).get(topic)) is not None:
        return partition_of_row(topic, column, partitions).alias(PARTITION)
    spread = source_key(built, topic) or hashable(topic, dict(rows.dtypes))
    return F.expr(f"pmod(hash({', '.join(map(_quoted, spread))}), {partitions}) AS {PARTITION}")


def stage_input(df: DataFrame, program: Program) -> DataFrame:
    """Return the part of a united batch that one subtopology reads.

    The rows of a single source have no tag and no struct, so there is less to shuffle.
    """
    topics = [name for name in df.columns if name not in (TAG, PARTITION)]
    others = set(topics) - set(program.external)
    mine = df.where(F.col(TAG).isin(list(program.external.values()))) if others else df
    if len(program.external) == 1:
        (topic,) = program.external
        names = {name.lower() for name in mine.schema[topic].dataType.names}
        if not names & {TAG, PARTITION}:
            return mine.select(PARTITION, f"{_quoted(topic)}.*")
    return mine.select(TAG, PARTITION, *map(_quoted, program.external)) if others else mine


def topic_rows(part: DataFrame, program: Program, topic: str) -> pa.Table:
    """Return the rows of one topic of what `stage_input` returned."""
    if TAG in part.columns:
        part = part.where(F.col(TAG) == program.external[topic]).select(f"{_quoted(topic)}.*")
    return part.drop(PARTITION).toArrow()


def check_names(built: BuiltTopology) -> None:
    """Refuse topics whose columns in the united input would clash with each other or with its own columns.

    Errors: `InputError`. Spark ignores the case of names.
    """
    taken: dict[str, str] = {TAG: TAG, PARTITION: PARTITION}
    for topic in external_topics(built):
        if (other := taken.get(topic.lower())) is not None:
            raise InputError(
                f"sources.{topic}.topic",
                found=f"a topic with the same name as {other!r}, because Spark ignores case",
                expected="a name that differs by more than case",
            )
        taken[topic.lower()] = topic


def _quoted(column: str) -> str:
    """Quote a column's name for Spark, which would otherwise read a dot as access to a field."""
    return "`" + column.replace("`", "``") + "`"
