"""Tasks that read their records themselves: a stream of ranges in this process, with a cluster beside it."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from taskplace.errors import InputError
from taskplace.spark.compile.partition_columns import row_schemas
from taskplace.spark.compile.programs import programs
from taskplace.spark.compile.sources import check_sources
from taskplace.spark.kafka.dead_letters import GoodRecords
from taskplace.spark.kafka.decoding import Decoder
from taskplace.spark.kafka.formats import Json, Raw
from taskplace.spark.kafka.records import KafkaRecords
from taskplace.spark.processors import Count, Facts, TableJoin
from taskplace.spark.sinks import ParquetSink
from taskplace.spark.worker.hashing import partitions_of
from taskplace.spark.worker.topic_reader import RANGES
from tests.support.mock_kafka import mock_kafka as mock_kafka
from topology import Topology

DECODER = Decoder(
    key=Raw("k", "string"), value=Json({"v": "int64"}), include=["key", "offset"], tombstone="gone"
)
KEYS = [f"N{number}".encode() for number in range(40)]


@pytest.fixture(autouse=True)
def _no_ids(monkeypatch):
    """The cluster of this process does not know ids of topics."""
    monkeypatch.setattr(KafkaRecords, "check_id", lambda reads, topic_id: None)


def records(cluster, topic: str = "t", **more) -> KafkaRecords:
    return KafkaRecords(topic, cluster.bootstrap, DECODER, patience="20 s", **more)


def send(cluster, topic: str = "t", value: bytes | None = b'{"v": 1}') -> None:
    split = partitions_of(pa.array(KEYS), "murmur2", 4).tolist()
    for key, partition in zip(KEYS, split, strict=True):
        cluster.producer.produce(topic, key=key, value=value, partition=partition)
    assert cluster.producer.flush(20) == 0


def ranges(starts: list[int], ends: list[int]) -> pa.Table:
    rows = [
        ("id", p, start, end, [])
        for p, (start, end) in enumerate(zip(starts, ends, strict=True))
        if end > start
    ]
    return pa.Table.from_pylist([dict(zip(RANGES.names, row, strict=True)) for row in rows], RANGES)


def ends(times: int = 1) -> list[int]:
    split = partitions_of(pa.array(KEYS), "murmur2", 4).tolist()
    return [split.count(partition) * times for partition in range(4)]


def counted(reads: KafkaRecords, **options) -> Topology:
    topo = Topology("t")
    source = topo.source("in", key="k", partitions=4, reads=reads, **options)
    source.process(Count("n", by={"k": "string"}), name="count")
    return topo


def test_each_task_reads_its_partition(world, mock_kafka):
    send(mock_kafka)
    placed = world.open(counted(records(mock_kafka), key_bytes="key"))
    world.batch(placed, 0, **{"in": ranges([0] * 4, ends())})
    send(mock_kafka)
    send(mock_kafka)
    world.batch(placed, 1, **{"in": ranges(ends(), ends(2))})
    assert world.stored(placed, "n") == sorted(((key.decode(), 2) for key in KEYS), key=repr)
    assert placed.journal.last.rows == len(KEYS)  # records, not ranges
    assert placed.store("n").get({"k": "N7"}) == {"count": 2}


def joined(world, cluster, kind: type[KafkaRecords] = KafkaRecords) -> Topology:
    """Return a topology that joins the topics stream and table."""
    topo = Topology("t")
    made = {name: kind(name, cluster.bootstrap, DECODER, patience="20 s") for name in ("stream", "table")}
    stream = topo.source("stream", key="k", partitions=4, reads=made["stream"])
    table = topo.source("table", key="k", partitions=4, reads=made["table"])
    only_key = stream.process(Renamed(), name="renamed")
    join = TableJoin("j", by={"k": "string"}, columns={"v": "int64"}, deleted="gone")
    only_key.join_table(table, join, name="joined").sink("out", target=ParquetSink(world.folder / "out"))
    return topo


def test_a_table_and_a_stream_are_read_in_one_task(world, mock_kafka):
    send(mock_kafka, "stream")
    send(mock_kafka, "table")
    placed = world.open(joined(world, mock_kafka))
    whole = ranges([0] * 4, ends())
    world.batch(placed, 0, stream=whole, table=whole)
    for topic, value in (("table", None), ("stream", b'{"v": 1}')):
        send(mock_kafka, topic, value)
    more = ranges(ends(), ends(2))
    world.batch(placed, 1, stream=more, table=more)
    assert {row[-1] for row in world.sent("out")[0]} == {1}
    assert {row[-1] for row in world.sent("out")[1]} == {None}  # tombstones have removed the rows


class Renamed:
    """Leaves only the key of a stream's row."""

    def infer(self, inputs):
        return Facts(routes=inputs[0].routes)

    def process(self, context, rows):
        return rows.select(["k"])


def test_an_executor_that_dies_in_a_batch_costs_no_record(world, mock_kafka):
    from tests.support.placed_without_spark import Died

    send(mock_kafka)
    world.come(1)
    placed = world.open(counted(records(mock_kafka)))
    died = []

    def kill(point: str) -> None:
        if point == "attempt.sealed" and not died:
            died.append(world.running)
            world.lose(world.running)
            raise Died

    world.at = kill
    world.batch(placed, 0, **{"in": ranges([0] * 4, ends())})
    assert died and world.stored(placed, "n") == sorted(((key.decode(), 1) for key in KEYS), key=repr)


@pytest.mark.parametrize("options", [{}, {"key_bytes": "key"}, {"check_keys": True}])
def test_a_key_elsewhere_stops_the_batch(world, mock_kafka, options):
    """By default, too: nobody has to name a column of keys."""
    send(mock_kafka)
    mock_kafka.send("t", 1, (KEYS[[*partitions_of(pa.array(KEYS), "murmur2", 4)].index(2)], b"{}"))
    placed = world.open(counted(records(mock_kafka), **options))
    more = ends()
    more[1] += 1
    with pytest.raises(
        InputError, match=r"topic 'in', partition 1, offset \d+: found 'a key that belongs to partition 2"
    ):
        world.batch(placed, 0, **{"in": ranges([0] * 4, more)})
    assert placed.journal.last_batch is None or placed.journal.last_batch < 0
    off = world.open(counted(records(mock_kafka), **{**options, "check_keys": False}), checkpoint="other")
    world.batch(off, 0, **{"in": ranges([0] * 4, more)})
    assert off.journal.last.rows == len(KEYS) + 1


def test_a_record_without_a_key_is_a_bad_one_where_state_is_kept_by_it(world, mock_kafka):
    """Producers put such records into any partition, so the state of one key would be in several tasks."""
    send(mock_kafka)
    for partition in range(4):
        mock_kafka.send("t", partition, (None, b"{}"))
    whole = ranges([0] * 4, [end + 1 for end in ends()])
    placed = world.open(counted(records(mock_kafka)))
    with pytest.raises(
        InputError, match=r"topic 't', partition \d, offset \d+: .*key: null, but state is kept by it"
    ):
        world.batch(placed, 0, **{"in": whole})
    keeps = KafkaRecords(
        "t", mock_kafka.bootstrap, replace(DECODER, bad_records="dead_letters"), patience="20 s"
    )
    topo = Topology("t")
    source = topo.source("in", key="k", partitions=4, reads=keeps)
    source.process(GoodRecords(), name="good").process(Count("n", by={"k": "string"}), name="count")
    placed = world.open(topo, checkpoint="letters")
    world.batch(placed, 0, **{"in": whole})
    assert placed.stats.bad_records == {"in": 4}
    assert world.stored(placed, "n") == sorted(((key.decode(), 1) for key in KEYS), key=repr)
    off = world.open(counted(records(mock_kafka), check_keys=False), checkpoint="off")
    world.batch(off, 0, **{"in": whole})
    assert off.journal.last.rows == len(KEYS) + 4


def test_a_source_without_a_key_has_no_keys_to_check(world, mock_kafka):
    mock_kafka.send("t", 1, *((key, b"{}") for key in KEYS))
    topo = Topology("t")
    topo.source("in", partitions=4, reads=records(mock_kafka)).sink(
        "out", target=ParquetSink(world.folder / "out")
    )
    placed = world.open(topo)
    world.batch(placed, 0, **{"in": ranges([0] * 4, [0, len(KEYS), 0, 0])})
    assert placed.journal.last.rows == len(KEYS)


def test_more_bytes_than_a_task_may_have_in_memory_get_through(world, mock_kafka, caplog):
    """Spark has planned the range, and repeats it unchanged: a limit must not stop the stream for good."""
    for _ in range(20):
        send(mock_kafka, "stream")
    send(mock_kafka, "table")
    placed = world.open(joined(world, mock_kafka), bytes_per_task=2000)
    world.batch(placed, 0, stream=ranges([0] * 4, ends(20)), table=ranges([0] * 4, ends()))
    assert {row[-1] for row in world.sent("out")[0]} == {1} and len(world.sent("out")[0]) == 20 * len(KEYS)
    assert "bytes of rows in one batch, of which" in caplog.text and "most_records" in caplog.text
    assert [path for path in world.folder.rglob("tmp*") if path.is_file()] == []  # the files have no names


def test_a_limit_holds_for_all_topics_of_a_task_together(world, mock_kafka):
    send(mock_kafka, "stream")
    send(mock_kafka, "table")
    given = []

    class Watched(KafkaRecords):
        def read(self, ranges, setting):
            rows = super().read(ranges, setting)
            given.append((setting.most, rows.nbytes))
            return rows

    placed = world.open(joined(world, mock_kafka, Watched), bytes_per_task=1 << 20)
    whole = ranges([0] * 4, ends())
    world.batch(placed, 0, stream=whole, table=whole)
    for (first, taken), (second, _) in zip(given[::2], given[1::2], strict=True):
        assert second == first - taken < first < 1 << 20


def spark(schema: pa.Schema) -> StructType:
    return from_arrow_schema(schema)


def test_the_rows_are_checked_and_not_the_ranges(mock_kafka):
    built = counted(records(mock_kafka), key_bytes="key").build()
    schemas = row_schemas(built, {"in": spark(RANGES)})
    assert schemas["in"].names == DECODER.columns.names
    check_sources(built, schemas)
    with pytest.raises(InputError, match=r"sources.in: found .*expected the ranges .*stream_of"):
        row_schemas(built, {"in": spark(DECODER.columns)})
    with pytest.raises(InputError, match=r"key_bytes: found 'kee', expected .* 'key'"):
        check_sources(counted(records(mock_kafka), key_bytes="kee").build(), schemas)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"partition_column": "p"}, "no partition_column beside `reads`"),
        ({"key_partitioner": "md5"}, "key_partitioner: found 'md5'"),
        ({"check_keys": "no"}, "sources.in.check_keys: found 'no', expected"),
    ],
)
def test_wrong_options_of_a_source(mock_kafka, options, message):
    topo = Topology("t")
    source = topo.source("in", key="k", partitions=4, **{"reads": records(mock_kafka), **options})
    source.process(Count("n", by={"k": "string"}), name="count")
    with pytest.raises(InputError, match=message):
        programs(topo.build())


def test_it_can_be_sent_with_its_file_of_a_secret_and_without_the_secret(tmp_path):
    (tmp_path / "password").write_text("hunter2")
    made = KafkaRecords("t", "h:1", DECODER, options={"sasl.password_file": str(tmp_path / "password")})
    made._asked._clients.admin()
    sent = cloudpickle.dumps(made)
    assert b"hunter2" not in sent and "hunter2" not in repr(cloudpickle.loads(sent))
