"""Sources that are split by a partition column: what is refused at the start, what tasks check, how stores are read."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, DoubleType, IntegerType, LongType, StringType, StructType

from taskplace.errors import CheckpointError, ConfigError, InputError
from taskplace.spark.checkpoint.journal import Journal
from taskplace.spark.compile import partition_columns
from taskplace.spark.compile.programs import programs
from taskplace.spark.compile.sources import check_sources
from taskplace.spark.kafka.decoding import DEAD_LETTERS
from taskplace.spark.processors import Count, PerKey, TableJoin, passes_keys_on
from taskplace.spark.sinks import ParquetSink
from taskplace.spark.worker.hashing import partition_of, partitions_of
from topology import Topology

BY = {"k": "string"}
COUNT = {"partition_column": "partition"}


def counted(*between, partitions: int = 4, **options) -> Topology:
    topo = Topology("t")
    rows = topo.source("in", key="k", partitions=partitions, **{**COUNT, **options})
    for number, processor in enumerate(between):
        rows = rows.process(processor, name=f"step-{number}")
    rows.process(Count("n", by=BY), name="count")
    return topo


def rows_of(keys: list[str], partitions: int = 4, **more) -> pa.Table:
    """Return rows as Kafka's producers split them."""
    payloads = pa.array([key.encode() for key in keys], pa.binary())
    numbers = partitions_of(payloads, "murmur2", partitions)
    columns = {
        "k": keys,
        "key": payloads,
        "partition": pa.array(numbers, pa.int32()),
        "offset": range(len(keys)),
    }
    return pa.table({**columns, **more})


KEYS = [f"N{number}" for number in range(200)]


# ------------------------------------------------------------------------------------- in a stream


def test_rows_go_to_the_task_of_their_partition(world):
    placed = world.open(counted(key_bytes="key"))
    rows = rows_of(KEYS)
    assert (partition_of([rows["k"]], 4) != rows["partition"].to_numpy()).any()  # Spark's hash would differ
    world.batch(placed, 0, **{"in": rows})
    world.batch(placed, 1, **{"in": rows.slice(0, 50)})
    assert world.stored(placed, "n") == sorted(
        ((k, 2 if at < 50 else 1) for at, k in enumerate(KEYS)), key=repr
    )
    ends = {str(task): history.end.offset for task, history in placed.journal.history.items()}
    per_task = rows["partition"].value_counts().to_pylist()
    assert len(per_task) == 4 and {f"0_{each['values']}" for each in per_task} == set(ends)


def test_a_read_by_key_asks_all_tasks(world):
    placed = world.open(counted())
    world.batch(placed, 0, **{"in": rows_of(KEYS)})
    reader = placed.store("n")
    assert [reader.get({"k": key}) for key in KEYS] == [{"count": 1}] * len(KEYS)
    found = reader.get_many(pa.table({"k": [*KEYS, "unknown"]}))
    assert found["value"].null_count == 1 and found["value"].to_pylist()[-1] is None


@pytest.mark.parametrize("options", [{}, {"key_bytes": "key"}, {"check_keys": False}])
def test_a_row_without_a_key_is_refused_where_state_is_kept_by_it(world, options):
    """Producers put such rows into any partition, so the state of one key would be in several tasks."""
    rows = rows_of(KEYS[:4]).set_column(0, "k", pa.array([*KEYS[:3], None]))
    rows = rows.set_column(1, "key", pa.array([b"0", b"1", b"2", None]))
    topo = counted(**options)
    if not options:  # the row of a bad record is none without a key
        letter = pa.array([None] * 3 + [{"reason": "value"}], pa.struct(list(DEAD_LETTERS)))
        program = programs(topo.build())[0]
        program.check_samples({"in": rows.append_column("dead_letter", letter)}, 0)
    if "check_keys" in options:
        world.batch(world.open(topo), 0, **{"in": rows})
        return
    with pytest.raises(InputError, match=rf"offset 3: .*null in {options.get('key_bytes', 'k')} \(1 such"):
        programs(topo.build())[0].check_samples({"in": rows}, 0)


def test_where_no_state_is_kept_by_it_a_key_may_be_null():
    """Behind a repartition, and in the stream of a join, whose state is the table's."""
    topo = Topology("t")
    stream = topo.source("stream", key="k", partitions=4, **COUNT)
    table = topo.source("table", key="k", partitions=4, **COUNT)
    join = TableJoin("j", by=BY, columns={"v": "int64"})
    joined = stream.join_table(table, join, name="joined")
    joined.repartition(key="other").process(Count("n", by={"other": "string"}), name="count")
    split = programs(topo.build())[0].partitioned
    assert {topic: each.key for topic, each in split.items()} == {"stream": (), "table": ("k",)}


def test_a_key_in_the_partition_of_another_key_stops_the_batch(world):
    placed = world.open(counted(key_bytes="key"))
    rows = rows_of(KEYS)
    moved = rows.set_column(2, "partition", pa.array([0] * len(KEYS), pa.int32()))
    with pytest.raises(InputError, match=r"topic 'in', partition 0, offset \d+: .* that belongs to"):
        world.batch(placed, 0, **{"in": moved})
    assert placed.journal.last is None


def test_keys_that_no_task_checks_are_one_warning_at_the_start(world, caplog):
    topo = Topology("t")
    for name in ("a", "b"):
        topo.source(name, key="k", partitions=4, **COUNT).process(
            Count(f"n-{name}", by=BY), name=f"count-{name}"
        )
    placed = world.open(topo)
    world.batch(placed, 0, a=rows_of(KEYS), b=rows_of(KEYS))
    (warning,) = [each.getMessage() for each in caplog.records if each.name == partition_columns.__name__]
    assert warning.startswith("the keys of 'a', 'b' are not checked: if a producer uses another partitioner")
    assert warning.endswith("name it as key_bytes, or set check_keys to false")


@pytest.mark.parametrize(
    "options",
    [{"key_bytes": "key"}, {"check_keys": False}, {"partitions": 1}],
    ids=lambda given: next(iter(given)),
)
def test_keys_that_are_checked_or_need_no_check_are_no_warning(world, caplog, options):
    world.open(counted(**options))
    assert not [each for each in caplog.records if each.name == partition_columns.__name__]


def test_the_key_of_a_table_and_of_a_stream_meet(world):
    topo = Topology("t")
    stream, table = (topo.source(name, key="k", partitions=4, **COUNT) for name in ("stream", "table"))
    join = TableJoin("j", by=BY, columns={"v": "int64"})
    joined = stream.join_table(table, join, name="joined")
    joined.sink("out", target=ParquetSink(world.folder / "out"))
    placed = world.open(topo)
    world.batch(placed, 0, stream=rows_of(KEYS), table=rows_of(KEYS, v=range(len(KEYS))))
    assert sorted((row[0], row[4]) for row in world.sent("out")[0]) == sorted(
        (k, at) for at, k in enumerate(KEYS)
    )


# ------------------------------------------------------------------------------------- refused at the start


def two(one: dict, other: dict, *, repartition: bool = False, partitions: int = 4) -> Topology:
    topo = Topology("t")
    a = topo.source("a", key="k", partitions=partitions, **one)
    b = topo.source("b", key="k", partitions=partitions, **other)
    if repartition:
        b = b.repartition(key="k", name="again", partitions=partitions)
    a.merge(b).process(Count("n", by=BY), name="count")
    return topo


def joined(table: dict) -> Topology:
    topo = Topology("t")
    stream = topo.source("a", key="k", partitions=4, **COUNT)
    other = topo.source("b", key="k", partitions=4, **table)
    stream.join_table(other, TableJoin("j", by=BY, columns={"v": "int64"}), name="joined")
    return topo


FNV = COUNT | {"key_partitioner": "fnv1a"}


@pytest.mark.parametrize(
    ("topo", "ways"),
    [
        (two(COUNT, COUNT), None),
        (two(FNV, COUNT | {"key_partitioner": "fnv1a_random"}), None),
        (two(COUNT, {}, partitions=1), None),
        (two({}, COUNT, repartition=True, partitions=4), None),
        (two(COUNT, {}), "a by murmur2, b by the hash of the key"),
        (two(COUNT, COUNT, repartition=True), "; repartition the rows of a by the key"),
        (two(COUNT, FNV), "a by murmur2, b by fnv1a"),
        (joined(COUNT), None),
        (joined({}), "a by murmur2, b by the hash of the key"),
    ],
)
def test_topics_that_meet_are_split_alike(topo, ways):
    if ways is None:
        assert programs(topo.build())
        return
    with pytest.raises(InputError, match=f"sources .*: found .*split in different ways: .*{ways}"):
        programs(topo.build())


def unknown(context, rows):
    return rows


@passes_keys_on()
def known(context, rows):
    return rows


class Own:
    def layouts(self):
        return {"s": {"key": BY, "value": {"n": "int64"}}}

    def process(self, context, rows):
        return rows


def behind(processor) -> Topology:
    topo = Topology("t")
    topo.source("in", key="k", partitions=4, **COUNT).process(processor, name="count")
    return topo


@pytest.mark.parametrize(
    ("topo", "error", "message"),
    [
        (counted(known), None, ""),
        (counted(unknown, partitions=1), None, ""),
        (counted(unknown), InputError, "node 'count': found .*behind 'step-0', which may have changed"),
        (behind(Own()), InputError, "node 'count': found .*behind 'count', which may have changed"),
        (
            behind(PerKey("s", lambda key, rows, state: (state, []), by=BY, state={"n": "int64"}, output=BY)),
            None,
            "",
        ),
        (counted(partition_column=7), InputError, r"sources\.in\.partition_column: found 7"),
        (counted(key_bytes=""), InputError, r"sources\.in\.key_bytes: found ''"),
        (counted(key_partitioner="murmur3"), InputError, "found 'murmur3'.*did you mean 'murmur2'"),
        (counted(partition_column=None, key_bytes="key"), InputError, "only beside partition_column"),
        (counted(partition_columm="p"), ConfigError, "did you mean 'partition_column'"),
    ],
)
def test_nodes_that_may_change_the_key_before_state_and_wrong_options_are_refused(topo, error, message):
    if error is None:
        assert programs(topo.build())
        return
    with pytest.raises(error, match=message):
        programs(topo.build())


def schema(**columns) -> StructType:
    made = StructType()
    for name, kind in columns.items():
        made = made.add(name, kind)
    return made


def test_a_topology_as_text_has_them_as_options():
    source = {"key": "k", "partitions": 4, "options": {**COUNT, "key_partitioner": "fnv1a_random"}}
    built = Topology.from_dict({"name": "t", "sources": {"in": source}}).build()
    assert partition_columns.partitioned_topics(built)["in"].partitioner == "fnv1a"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"partition": IntegerType(), "key": BinaryType()}, None),
        ({"partition": LongType(), "key": BinaryType()}, None),
        ({"partitions": IntegerType(), "key": BinaryType()}, "partition_column: .*mean 'partitions'"),
        ({"partition": DoubleType(), "key": BinaryType()}, "partition_column: .*double"),
        ({"partition": IntegerType()}, "key_bytes: found 'key', expected a binary or string column"),
        ({"partition": IntegerType(), "key": LongType()}, "key_bytes: .*bigint"),
    ],
)
def test_columns_of_the_source(columns, message):
    given = {"in": schema(k=StringType(), **columns)}
    if message is None:
        check_sources(counted(key_bytes="key").build(), given)
        return
    with pytest.raises(InputError, match=message):
        check_sources(counted(key_bytes="key").build(), given)


def test_a_source_without_a_key_needs_no_column_that_spark_can_hash():
    topo = Topology("t")
    topo.source("in", partitions=4, **COUNT).process(known, name="step")
    check_sources(topo.build(), {"in": schema(partition=IntegerType())})


# ------------------------------------------------------------------------------------- restarts and errors


@pytest.mark.parametrize("before, after", [([], ["a"]), (["a"], [])])
def test_a_checkpoint_stays_with_its_split(tmp_path, before, after):
    journal = Journal(tmp_path, {})
    journal.bind_splits(["a"], before)
    journal.bind_keys({"a": ["string"]})
    journal.commit(0, 1, {}, {}, {})
    again = Journal(tmp_path, {}, take_over=False)
    again.bind_splits(["a", "b"], [*before, "b"])  # a new topic may be split in any way
    again.bind_keys({"a": ["string"], "b": ["string"]})
    again.take_over()
    again.commit(1, 2, {}, {}, {})
    assert Journal(tmp_path, {}).identity["by_column"] == sorted([*before, "b"])
    with pytest.raises(
        CheckpointError, match=r"topic 'a' were split by .*, found .* go back to it, or start"
    ):
        Journal(tmp_path, {}).bind_splits(["a", "b"], [*after, "b"])


@pytest.mark.parametrize("number", [None, -1, 4, 2**40])
def test_the_number_that_failed_sparks_task_is_read_from_its_error(number):
    built = counted().build()
    before, after = partition_columns._message("in", "partition", 4)
    text = f"Task 0 failed 4 times: [USER_RAISED_EXCEPTION] {before}{number}{after} SQLSTATE: P0001\n at x.y"
    error = partition_columns.out_of_range(RuntimeError(text), built)
    found = "nothing" if number is None else number
    assert re.match(
        rf"sources.in.partition_column: found {found}, expected a partition of 0 to 3 in the column 'partition'; if "
        "the topic got more partitions",
        str(error),
    )
    assert partition_columns.out_of_range(RuntimeError("found 7, expected"), built) is None
