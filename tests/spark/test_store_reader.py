"""Reading stores through `StoreReader`, with copies of several executors and no Spark."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import date, datetime, timezone
from decimal import Decimal
from types import SimpleNamespace

import lmdb
import pyarrow as pa
import pytest

from taskplace.errors import InputError, TaskplaceError
from taskplace.lag import LagIndex
from taskplace.spark.bridge import Executor
from taskplace.spark.compile.programs import programs
from taskplace.spark.messages import Answer, AttemptDescriptor, BinDescriptor, Change, History, Question
from taskplace.spark.processors import Aggregate, Count, TableJoin, count
from taskplace.spark.state.transaction import View
from taskplace.spark.store_reader import StoreReader
from taskplace.spark.worker import identity
from taskplace.spark.worker.bins import run_bin
from taskplace.spark.worker.external import PARTITION, TAG
from taskplace.spark.worker.hashing import partition_of, partitions_of
from tests.support.word_counts import counts, words
from topology import TaskId, Topology

EXECUTORS = {n: Executor(n, "host", 2) for n in ("1", "2")}


class Bridge:
    """Runs what is pinned to an executor as that executor."""

    local, app_id = False, "app"

    def __init__(self, runtime):
        self.runtime = runtime

    def pinned(self, elements, locations, function):
        return [(element, location, function) for element, location in zip(elements, locations, strict=True)]

    def run(self, pinned, _partitions, tag):
        answers = []
        for element, location, function in pinned:
            self.runtime.be(location.split("_")[-1])
            answers += function([element])
        return answers


@pytest.fixture
def store(runtime):
    """Returns a reader's maker: of "totals", whose tasks are active on one executor and followed by the other."""

    def read(active, known_lag_of_the_other=0, name="totals", programs=None, tasks=None, types=None, **how):
        programs = programs or (runtime.first, runtime.second)
        tasks = tasks or {s: tuple(TaskId(s, i) for i in range(n)) for s, n in enumerate(runtime.TASKS)}
        lags = LagIndex()
        for executor in EXECUTORS.values():
            own = executor.instance == f"executor-{active}"
            for task in tasks[0]:
                lags.report(executor.instance, task, 0 if own else known_lag_of_the_other)
        state = SimpleNamespace(
            members={e.instance: SimpleNamespace(executor=e) for e in EXECUTORS.values()},
            lags=lags,
            owners=lambda: dict.fromkeys(tasks[0], EXECUTORS[active]),
            following=lambda name: [] if name == f"executor-{active}" else list(tasks[0]),
        )
        runner = SimpleNamespace(
            definition=SimpleNamespace(programs=programs, tasks=tasks, state_root=runtime.state),
            journal=SimpleNamespace(history=runtime.history, identity={"keys": types}, last=None),
            rebalancer=SimpleNamespace(lock=nullcontext(), state=state),
            bridge=Bridge(runtime),
        )
        return StoreReader(runner, name, **how)

    return read


@pytest.fixture
def behind(runtime):
    """Executor 1 has all of three batches; executor 2 lacks the last one, of many records."""
    for delay in (5, 9):
        runtime.run_batch([(f"N{i}", delay) for i in range(9)], [("N1", 100)])
    runtime.follow("2", follow=runtime.history)
    runtime.run_batch([(f"N{i}", i) for i in range(500)])
    return runtime


def test_an_active_copy_that_has_not_caught_up_is_not_taken_for_the_last_batch(behind, store):
    assert store("1").get({"tailnum": "N1"}) == {"flights": 3, "worst": 9}
    assert store("2").get({"tailnum": "N1"}) == {"flights": 3, "worst": 9}  # asked the one before it
    with pytest.raises(TaskplaceError, match="the copy is at batch 1, which exceeds max_lag or max_batches"):
        store("2", known_lag_of_the_other=7).get({"tailnum": "N1"})


def test_a_standby_is_measured_by_what_it_answers(behind, store):
    old = {"flights": 2, "worst": 9}
    assert store("1", copies="standby").get({"tailnum": "N1"}) == old
    assert store("1", copies="standby", max_lag=1000, max_batches=1).get({"tailnum": "N1"}) == old
    for bound in ({"max_lag": 0}, {"max_lag": 100}, {"max_batches": 0}):
        with pytest.raises(TaskplaceError, match="exceeds max_lag or max_batches"):
            store("1", copies="standby", **bound).get({"tailnum": "N1"})


@pytest.mark.parametrize("how", [{"max_lag": 3}, {"copies": "standby", "max_batches": -1}])
def test_bounds_that_make_no_sense(runtime, store, how):
    with pytest.raises(InputError, match="an integer of at least 0, and only with copies='standby'"):
        store("1", **how)


def counted(runtime, store, ids, tasks, type, spark_type):
    """Return a reader of how often each of `ids` came, as keys of `type`; `tasks` are where their rows went."""
    topo = Topology("t")
    topo.source("events", key=["id"], partitions=4).process(Aggregate("n", by={"id": type}, seen=count()))
    (program,) = programs(topo.build())
    events = pa.struct([("id", ids.type)])
    united = pa.schema([(TAG, pa.int32()), (PARTITION, pa.int32()), ("events", events)])
    there = list(zip(ids.to_pylist(), tasks, strict=True))
    for partition in range(4):
        rows = [{TAG: 0, PARTITION: p, "events": {"id": i}} for i, p in there if p == partition]
        setting = runtime.setting(program, schema=united.serialize().to_pybytes())
        task = AttemptDescriptor(TaskId(0, partition), "executor-1", History())
        batches = [pa.RecordBatch.from_pylist(rows, schema=united).serialize().to_pybytes()]
        (group,) = run_bin(program, setting, BinDescriptor((task,)), batches)
        (report,) = group.reports
        runtime.history[task.task] = History((report.change,) if report.change else ())
    there = {0: tuple(runtime.history)}
    return store("1", name="n", programs=(program,), tasks=there, types={"events": [spark_type]})


def test_a_key_that_was_cast_is_found_in_the_task_that_its_rows_came_to(runtime, store):
    """Spark hashes an int and a bigint differently, and the rows came as ints."""
    ids = pa.array(range(20), pa.int32())
    tasks = partition_of([ids], 4)
    assert list(tasks) != list(partition_of([ids.cast(pa.int64())], 4))
    reader = counted(runtime, store, ids, tasks, "int64", "int")
    keys = pa.table({"id": pa.array([*range(20), 99], pa.int64())})
    assert reader.get_many(keys)["value"].to_pylist() == [{"seen": 1}] * 20 + [None]
    assert reader.get({"id": 7}) == {"seen": 1}


@pytest.mark.parametrize(
    ("type", "spark_type"), [(pa.decimal128(9, 2), "decimal(9,2)"), (pa.timestamp("ms"), "timestamp_ntz")]
)
def test_a_key_of_a_type_that_spark_alone_can_hash_is_found_wherever_it_is(runtime, store, type, spark_type):
    ids = pa.array([Decimal(i) if pa.types.is_decimal(type) else i for i in range(8)], type)
    reader = counted(runtime, store, ids, [i % 4 for i in range(8)], type, spark_type)
    assert reader.get_many(pa.table({"id": ids}))["value"].to_pylist() == [{"seen": 1}] * 8


DAYS = pa.array([date(2024, 1, day) for day in range(1, 9)])
EVENING = [datetime(2024, 1, day, 20, tzinfo=timezone.utc) for day in range(1, 9)]


@pytest.mark.parametrize(
    ("came", "type", "spark_type", "asked"),
    [
        (DAYS, "date", "date", pa.array(EVENING, pa.timestamp("us", "UTC"))),
        (DAYS, "date", "date", pa.array(EVENING, pa.timestamp("us", "Asia/Tokyo"))),
        (pa.array(["0", "7"]), "string", "string", pa.array([-0.0, 7.0])),
        (pa.array([-0.0, 7.0]), "float64", "double", pa.array(["0", "7"])),
        (pa.array([2.0**60, 2.0**70]), "float64", "double", pa.array([2**60])),
        (pa.array([7, 8]), "decimal(9, 2)", "bigint", pa.array([7, 8])),
        (pa.array([7, 8]), "uint32", "bigint", pa.array([7, 8])),
    ],
)
def test_a_key_of_another_type_is_asked_for_in_the_task_of_its_value_in_the_store(
    runtime, store, came, type, spark_type, asked
):
    reader = counted(runtime, store, came, partition_of([came], 4), type, spark_type)
    found = reader.get_many(pa.table({"id": asked}))
    assert found["value"].to_pylist() == [{"seen": 1}] * len(asked)
    assert found["id"].type == asked.type


def test_an_integer_key_that_a_float_holds_is_found(runtime, store):
    came = pa.array([2.0**60])
    reader = counted(runtime, store, came, partition_of([came], 4), "float64", "double")
    assert reader.get({"id": 2**60}) == {"seen": 1}
    with pytest.raises(InputError, match=r"key\.id: found 1152921504606846977, expected double"):
        reader.get({"id": 2**60 + 1})


def test_a_time_that_python_does_not_have_is_got_as_arrow(runtime, store, monkeypatch):
    reader = counted(runtime, store, pa.array([1]), [0], "int64", "bigint")
    kept = pa.array([{"at": 2**58}], pa.struct([("at", pa.timestamp("us"))]))
    monkeypatch.setattr(reader, "_values", lambda keys: kept)
    with pytest.raises(InputError, match=r"^value\.at: found '11103-.*', expected values that .*;"):
        reader.get({"id": 1})
    assert reader.get_many(pa.table({"id": [1]}))["value"].combine_chunks() == kept


def test_a_copy_that_cannot_be_read_is_not_the_last_word(behind, store, monkeypatch):
    read = View.get_many

    def damaged_there(view, keys):
        if identity.executor()[0] == "2":
            raise lmdb.CorruptedError("Located page was wrong type")
        return read(view, keys)

    monkeypatch.setattr(View, "get_many", damaged_there)
    assert store("2").get({"tailnum": "N1"}) == {"flights": 3, "worst": 9}


def test_nor_is_one_that_kills_who_reads_it(behind, store, monkeypatch):
    run = Bridge.run

    def dies_there(bridge, pinned, partitions, tag):
        if any(location.endswith("_2") for _, location, _ in pinned):
            raise RuntimeError("task 0 failed 4 times: Python worker exited unexpectedly")
        return run(bridge, pinned, partitions, tag)

    monkeypatch.setattr(Bridge, "run", dies_there)
    assert store("2").get({"tailnum": "N1"}) == {"flights": 3, "worst": 9}


@pytest.mark.parametrize("cast", [False, True])
def test_a_key_that_is_not_there_is_asked_for_where_it_might_be_and_nowhere_else(
    runtime, store, monkeypatch, cast
):
    join = TableJoin("sizes", by={"id": "int64"}, columns={"size": "int64"})
    topo = Topology("t")
    events, sizes = (topo.source(name, key=["id"], partitions=4) for name in ("events", "sizes"))
    events.join_table(sizes, join).process(Aggregate("n", by={"id": "int64"}, seen=count()))
    (program,) = programs(topo.build())
    change = Change(0, "a", "", 1, 0)
    runtime.history.update({TaskId(0, partition): History((change,)) for partition in range(4)})
    asked = []

    def answer(_bridge, pinned, _partitions, tag):
        questions = [Question.decode(element) for element, _, _ in pinned]
        asked.append([q.task for q in questions])
        return [Answer(q.task, change.position, (None,) * len(q.keys)).encode() for q in questions]

    monkeypatch.setattr(Bridge, "run", answer)
    types = {topic: ["int" if cast else "bigint"] for topic in ("events", "sizes")}
    tasks = {0: tuple(runtime.history)}
    assert store("1", name="n", programs=(program,), tasks=tasks, types=types).get({"id": 7}) is None
    (first,) = asked[0]
    assert asked[1:] == ([[task for task in tasks[0] if task != first]] if cast else [])


def test_a_store_that_is_asked_before_the_first_batch_of_a_driver_says_when_to_ask(world):
    world.batch(world.open(counts(world)), 0, **{"in": words("a")})
    placed = world.open(counts(world))
    with pytest.raises(TaskplaceError, match=r"the first batch of this driver finds the copies: ask again"):
        placed.store("n").get({"k": "a"})
    world.batch(placed, 1, **{"in": words("a")})
    assert placed.store("n").get({"k": "a"})


# -- A read by key finds the key, whatever has split the rows: Spark's hash, a partition column, or both


KEYS = [f"N{number}" for number in range(60)]
BY, PARTITIONS = {"k": "string"}, 4


def rows(partitioner: str = "murmur2") -> pa.Table:
    """Return a row for each key, with the partition that a producer gives it."""
    numbers = partitions_of(pa.array([key.encode() for key in KEYS]), partitioner, PARTITIONS)
    by_hash = partition_of([pa.array(KEYS)], PARTITIONS)
    assert (numbers != by_hash).any()  # otherwise the wrong task would not be noticed
    return pa.table({"k": KEYS, "v": range(len(KEYS)), "partition": pa.array(numbers, pa.int32())})


def source(topo: Topology, name: str, partitioner: str = "murmur2"):
    column = {"partition_column": "partition", "key_partitioner": partitioner}
    return topo.source(name, key="k", partitions=PARTITIONS, **column)


def asked(placed, monkeypatch) -> set[int]:
    """Return how many tasks the reads of the known keys have asked."""
    reader, numbers = placed.store("n"), set()
    ask = reader._ask

    def counting(wanted, files=None):
        numbers.add(len(wanted))
        return ask(wanted, files)

    monkeypatch.setattr(reader, "_ask", counting)
    found = [reader.get({"k": key}) for key in KEYS]
    assert found == [{"count": 1}] * len(KEYS)
    numbers.discard(0)  # nothing is left to ask
    return numbers


@pytest.mark.parametrize("partitioner", ["murmur2", "consistent", "fnv1a"])
def test_a_store_behind_a_topic_asks_all_tasks_with_any_partitioner(world, monkeypatch, partitioner):
    topo = Topology("t")
    source(topo, "in", partitioner).process(Count("n", by=BY), name="count")
    placed = world.open(topo)
    world.batch(placed, 0, **{"in": rows(partitioner)})
    assert asked(placed, monkeypatch) == {PARTITIONS}
    assert placed.store("n").get({"k": "unknown"}) is None


def test_a_store_behind_a_repartition_asks_the_task_of_sparks_hash(world, monkeypatch):
    topo = Topology("t")
    again = source(topo, "in").repartition(key="k", name="again", partitions=PARTITIONS)
    again.process(Count("n", by=BY), name="count")
    placed = world.open(topo)
    world.batch(placed, 0, **{"in": rows()})
    assert asked(placed, monkeypatch) == {1}
    assert placed.store("n").get({"k": "unknown"}) is None


def test_the_store_of_a_join_finds_its_keys(world):
    topo = Topology("t")
    join = TableJoin("j", by=BY, columns={"v": "int64"})
    source(topo, "stream").join_table(source(topo, "table"), join, name="joined")
    placed = world.open(topo)
    world.batch(placed, 0, stream=rows().drop_columns("v").slice(0, 1), table=rows())
    found = placed.store("j").get_many(pa.table({"k": KEYS}))["value"].to_pylist()
    assert [value["v"] for value in found] == list(range(len(KEYS)))


def test_a_join_with_a_topic_of_sparks_hash_finds_its_keys_behind_a_repartition(world):
    topo = Topology("t")
    again = source(topo, "stream").repartition(key="k", name="again", partitions=PARTITIONS)
    table = topo.source("table", key="k", partitions=PARTITIONS)
    again.join_table(table, TableJoin("j", by=BY, columns={"v": "int64"}), name="joined")
    placed = world.open(topo)
    world.batch(placed, 0, stream=rows().drop_columns("v"), table=rows())
    found = placed.store("j").get_many(pa.table({"k": KEYS}))["value"].to_pylist()
    assert [value["v"] for value in found] == list(range(len(KEYS)))


# -- Reading committed state from outside the stream


def truth(p, column):
    found = {}
    for row in p.rows:
        n, total = found.get(row[column], (0, 0))
        found[row[column]] = (n + 1, total + row[2])
    return found


@pytest.mark.spark
def test_get_and_get_many_and_to_df_see_the_last_committed_batch(pipeline):
    p = pipeline()
    reader = p.placed.store("by-key")
    p.run(0)
    p.run(1)
    by_key = truth(p, 0)
    n, total = by_key["k7"]
    assert reader.get({"key": "k7"}) == {"n": n, "total": total}
    assert reader.get({"key": "nobody"}) is None
    keys = pa.table({"key": ["k1", "nobody", "k2"]})
    values = [row["value"] for row in reader.get_many(keys).to_pylist()]
    one, two = (dict(zip(("n", "total"), by_key[key], strict=True)) for key in ("k1", "k2"))
    assert values == [one, None, two]
    rows = {row["key"]: (row["n"], row["total"]) for row in reader.to_df().collect()}
    assert rows == by_key
    groups = {row["group"]: (row["n"], row["total"]) for row in p.placed.store("by-group").to_df().collect()}
    assert groups == truth(p, 1)
    assert [*(p.folder / "checkpoint" / "reads").iterdir()] == [
        p.placed.reads
    ]  # made before a batch or after
    p.settle()
    standby = p.placed.store("by-key", copies="standby", max_lag=0)
    assert {key: standby.get({"key": key})["n"] for key in ("k1", "k7")} == {
        key: by_key[key][0] for key in ("k1", "k7")
    }
