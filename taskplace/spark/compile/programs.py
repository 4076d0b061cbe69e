"""Compiles a topology: one program per subtopology for the executors, and one united input for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know it by
from pyspark.sql.types import StructType

from taskplace.errors import InputError
from taskplace.spark import targets
from taskplace.spark.compile.forms import EventTime, event_times, external_sources
from taskplace.spark.compile.infer import declared_time, infer, stores_of
from taskplace.spark.compile.keys import alike, keyed, owned, splits
from taskplace.spark.compile.partition_columns import (
    check_alike,
    check_owned,
    partition_columns,
    partition_of_row,
    partitioned_topics,
    readers,
    row_schemas,
)
from taskplace.spark.compile.sources import NOTHING, Fixed, check_sources, hashable
from taskplace.spark.processors.facts import Facts
from taskplace.spark.state.environment import MAX_STORES
from taskplace.spark.worker.external import PARTITION, TAG
from taskplace.spark.worker.partition_checks import PartitionedTopic
from taskplace.spark.worker.program import Operator, Program
from topology import BuiltTopology, Subtopology


def external_topics(built: BuiltTopology) -> dict[str, int]:
    """Return the external topics, each with its tag: its number in declared order."""
    return {topic: tag for tag, topic in enumerate(external_sources(built))}


def programs(built: BuiltTopology) -> tuple[Program, ...]:
    """Return the programs, by subtopology id. Errors: `InputError` for a store without a layout."""
    facts = infer(built)
    tags, times = external_topics(built), event_times(built)
    split = partitioned_topics(built)
    check_alike(built, alike(built, facts), split)
    check_names(built)
    made = tuple(_program(sub, built, facts, tags, times, split) for sub in built.subtopologies)
    forgetting = sorted(store.name for p in made for store in p.stores.values() if store.ttl)
    if forgetting and not times:
        found = "a time to live, but no source with an event time"
        expected = f'a source that declares one: topology.source({next(iter(tags))!r}, ..., event_time="at")'
        raise InputError(f"stores.{forgetting[0]}.retention_ms", found=found, expected=expected)
    for program in made:
        if len(program.databases) > MAX_STORES:
            found = f"{len(program.databases)} stores (a store with a time to live counts twice)"
            path = f"subtopology {program.subtopology}"
            raise InputError(path, found=found, expected=f"at most {MAX_STORES}")
    return made


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
    facts: Mapping[str, Facts],
    tags: Mapping[str, int],
    times: Mapping[str, EventTime],
    split: Mapping[str, PartitionedTopic],
) -> Program:
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
            lag=facts[node.name].lag,
            event_time=declared_time(node) if node.kind in ("processor", "join") else "",
        )
        for node in sub.nodes
    )
    stores = stores_of(sub)
    keys_of_stores = {name: store.key for name, store in stores.items()}
    _check_shared_stores(sub, facts)
    own = readers(built)
    checked = owned(sub, keys_of_stores, built.partitions, facts)
    check_owned(checked, split)
    by_key = keyed(sub, keys_of_stores, facts)
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
        splits=splits(sub, keys_of_stores, facts),
        owned=checked,
        reads={topic: own[topic] for node in sub.sources if (topic := node.topic or "") in own},
        partitioned={
            topic: split[topic] if topic in by_key else replace(split[topic], key=())
            for node in sub.sources
            if (topic := node.topic or "") in split
        },
    )


def _check_shared_stores(sub: Subtopology, facts: Mapping[str, Facts]) -> None:
    """Refuse a store of several nodes, if one of them emits windows that another one fills, or if they do not name it.

    If one processor object is used at two nodes, or one store name twice, the rows of both nodes count in one state.
    Where that is intended, as for a de-duplication over two streams, both nodes must declare it. Processors that state
    nothing of their stores may share them without a declaration.
    """
    for store in sub.stores:
        users = [node for node in sub.nodes if store.name in node.stores]
        owners = [node for node in users if store.name in facts[node.name].states]
        for node in owners if len(users) > 1 else ():
            if facts[node.name].states[store.name].made:
                found = f"windows of node {node.name!r} in a store that {[n.name for n in users]} share"
                expected = "a separate store for each node with windows"
                raise InputError(f"stores.{store.name}", found=found, expected=expected)
        if len(owners) > 1 and not all(store.name in node.named_stores for node in owners):
            what = " and ".join(f"{type(node.processor).__name__} of node {node.name!r}" for node in owners)
            expected = (
                f"a store for each node; or, to share it, name it at each of them: stores=[{store.name!r}]"
            )
            raise InputError(
                f"stores.{store.name}", found=f"one store for the state of {what}", expected=expected
            )


def unite(built: BuiltTopology, sources: Mapping[str, DataFrame], fixed: Fixed = NOTHING) -> DataFrame:
    """Return one data frame with the rows of all sources: a tag, the partition, and one struct per source.

    So one streaming query can read any number of sources, with one shuffle. A null key belongs to one fixed partition.
    The rows of a source without a key are spread by all its columns. A source with a partition column is split by
    that one. `fixed`: what the checkpoint has fixed.
    Errors: `InputError` for a source that is missing, unknown or does not fit the topology (`check_sources`).
    """
    tags = external_topics(built)
    if set(sources) != set(tags):
        raise InputError(
            "sources", found=sorted(sources), expected=f"a data frame for each of {sorted(tags)}"
        )
    schemas = {topic: df.schema for topic, df in sources.items()}
    conf = next(iter(sources.values())).sparkSession.conf.get
    check_sources(built, row_schemas(built, schemas), conf, fixed)
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
    spread = external_sources(built)[topic].key or hashable(topic, rows.schema)
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
            found = f"a topic with the same name as {other!r}, because Spark ignores case"
            raise InputError(
                f"sources.{topic}.topic", found=found, expected="a name that differs by more than case"
            )
        taken[topic.lower()] = topic


def _quoted(column: str) -> str:
    """Quote a column's name for Spark, which would otherwise read a dot as access to a field."""
    return "`" + column.replace("`", "``") + "`"
