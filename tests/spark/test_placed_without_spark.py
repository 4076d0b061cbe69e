"""What a whole `Placed` refuses, and does not; without Spark, so that each case is small."""

from __future__ import annotations

import errno
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructType

from taskplace.errors import CheckpointError, Fenced, InputError
from taskplace.spark import bridge as bridge_module
from taskplace.spark import sinks
from taskplace.spark.bridge import Bridge, JobLostError, Pinned
from taskplace.spark.driver import journal, sources
from taskplace.spark.placed import Placed
from taskplace.spark.processors import Aggregate, Count, TableJoin, sum_
from taskplace.spark.sinks import ParquetSink
from taskplace.spark.worker.guard import DiskFull
from taskplace.spark.worker.hashing import partition_of
from tests.support.placed_without_spark import Died, World
from topology import TaskId, Topology

INT16, INT32, INT64, STRING = pa.int16(), pa.int32(), pa.int64(), pa.string()


def words(*keys: str) -> pa.Table:
    return pa.table({"k": pa.array(keys, STRING)})


def counts(world: World, *, out: str = "out", more: tuple[str, ...] = ()) -> Topology:
    """Return the counting of words; each of `more` is a store, and a sink, that counts them once more."""
    topo = Topology("t")
    source = topo.source("in", key="k", partitions=2)
    for store, path in {"n": out, **dict(zip(more, more, strict=True))}.items():
        counted = source.process(Count(store, by={"k": "string"}), name=store)
        counted.sink(f"{store}-out", target=ParquetSink(world.folder / path))
    return topo


# ------------------------------------------------------------------------- keys of internal topics


def by_g(world: World, processor: Any) -> Topology:
    topo = Topology("t")
    again = topo.source("in", key="k", partitions=2).process(processor, name="p")
    again = again.repartition(key="g", name="by-g", partitions=4)
    again.process(Count("n", by={"g": "int64"}), name="n").sink("o", target=ParquetSink(world.folder / "out"))
    return topo


def as_it_is(context, rows):
    return rows


def through_pandas(context, rows):
    """Whole numbers among which there is a null become floats."""
    return pa.Table.from_pandas(rows.to_pandas(), preserve_index=False)


def groups(values: list[int | None], kind: pa.DataType, keys: str | None = None) -> pa.Table:
    names = list(keys or map(str, range(len(values))))
    return pa.table({"k": pa.array(names, STRING), "g": pa.array(values, kind)})


def test_a_repartition_s_key_that_another_driver_finds_of_another_type_is_refused(world):
    some = list(range(8))
    world.batch(world.open(by_g(world, as_it_is)), 0, **{"in": groups(some, INT32)})
    other = world.open(by_g(world, as_it_is))
    for _ in range(2):
        with pytest.raises(
            CheckpointError,
            match=r"the key of topic 'by-g-repartition' was of \['int32'\], is of \['int64'\].*cast it",
        ):
            world.batch(other, 1, **{"in": groups(some, INT64)})
        assert other.journal.last_batch == 0
    world.batch(other, 1, **{"in": groups(some, INT32)})
    world.batch(world.open(by_g(world, as_it_is)), 2, **{"in": groups(some[:3], INT32)})
    assert world.sent("out") == {
        0: [(g, 1) for g in some],
        1: [(g, 2) for g in some],
        2: [(g, 3) for g in some[:3]],
    }


@pytest.mark.parametrize(
    ("keys", "values"), [("aa", [7, None]), ("ab", [7, None])], ids=["one task", "of two tasks, one"]
)
def test_a_key_that_becomes_a_float_among_nulls_is_refused(world, keys, values):
    placed = world.open(by_g(world, through_pandas))
    world.batch(placed, 0, **{"in": groups([7, 7, 7, 7], INT64, "abcd")})
    with pytest.raises(
        CheckpointError, match=r"topic 'by-g-repartition' was of \['int64'\], is of \['double'\]"
    ):
        world.batch(placed, 1, **{"in": groups(values, INT64, keys)})
    assert placed.journal.last_batch == 0
    world.batch(placed, 1, **{"in": groups([7], INT64, "a")})
    assert world.sent("out") == {0: [(7, 4)], 1: [(7, 5)]}


def test_a_first_batch_whose_tasks_do_not_agree_on_the_type_of_a_key_is_refused(world):
    placed = world.open(by_g(world, through_pandas))
    with pytest.raises(CheckpointError, match=r"topic 'by-g-repartition' was of \['(int64|double)'\]"):
        world.batch(placed, 0, **{"in": groups([7, None], INT64, "ab")})
    assert placed.journal.last_batch == -1
    assert world.sent("out") == {}


def test_a_small_number_that_grows_is_hashed_as_before_and_goes_on(world):
    some = list(range(-4, 4))
    for batch, kind in enumerate((INT16, INT32, pa.int8(), INT16)):
        world.batch(world.open(by_g(world, as_it_is)), batch, **{"in": groups(some, kind)})
    assert world.sent("out") == {
        batch: [(g, batch + 1) for g in sorted(some, key=repr)] for batch in range(4)
    }


def test_a_batch_without_rows_says_nothing_of_the_types_of_keys(world):
    placed = world.open(by_g(world, as_it_is))
    world.batch(placed, 0, **{"in": groups([], pa.float64())})
    world.batch(placed, 1, **{"in": groups([1, 2], INT32)})
    world.batch(placed, 2, **{"in": groups([], pa.float64())})
    world.batch(placed, 3, **{"in": groups([2], INT32)})
    assert world.sent("out") == {1: [(1, 1), (2, 1)], 3: [(2, 2)]}


def test_a_repartitioned_side_of_a_join_may_be_empty_and_then_of_any_type(world):
    def upper(context, rows):
        frame = rows.to_pandas()  # a column of nothing is of doubles, or of objects
        frame["n"] = frame["k"].str.upper() if len(frame) else frame["k"]
        return pa.Table.from_pandas(frame, preserve_index=False)

    topo = Topology("t")
    flights, planes = (
        topo.source(name, key=key, partitions=2) for name, key in (("flights", "id"), ("planes", "k"))
    )
    again = flights.process(upper, name="upper").repartition(key="k", name="by-k", partitions=2)
    joined = again.join_table(
        planes, TableJoin("p", on={"k": "string"}, columns={"seats": "int64"}), name="j"
    )
    joined.sink("o", target=ParquetSink(world.folder / "out"))
    placed = world.open(topo)

    def batch(number: int, ids: str, keys: str, table: dict[str, int]) -> None:
        world.batch(
            placed,
            number,
            flights=pa.table({"id": pa.array(list(ids), STRING), "k": pa.array(list(keys), STRING)}),
            planes=pa.table(
                {"k": pa.array(list(table), STRING), "seats": pa.array(list(table.values()), INT64)}
            ),
        )

    batch(0, "12", "ab", {"a": 5})
    batch(1, "", "", {"b": 6, "a": 7})
    batch(2, "", "", {})
    batch(3, "34", "ab", {})
    assert world.sent("out") == {
        0: [("1", "a", "A", 5), ("2", "b", "B", None)],
        3: [("3", "a", "A", 7), ("4", "b", "B", 6)],
    }


# ------------------------------------------------------------------------- taking over


def test_a_refused_take_over_is_refused_again(world):
    world.batch(world.open(counts(world, more=("m",))), 0, **{"in": words("a", "a", "a")})
    late = world.open(counts(world, more=("m",)))
    other = world.open(counts(world))  # it drops the store that `late` goes on with
    world.batch(other, 1, **{"in": words("a")})
    for batch in (2, 2, 3):
        with pytest.raises(CheckpointError, match="another driver has begun, or changed, it"):
            world.batch(late, batch, **{"in": words("a")})
    world.batch(other, 2, **{"in": words("a")})
    assert world.sent("out") == {0: [("a", 3)], 1: [("a", 4)], 2: [("a", 5)]}
    assert world.sent("m") == {0: [("a", 3)]}


def test_of_two_checkpoints_that_want_one_directory_one_is_refused_however_often_it_asks(world):
    one, two = (world.open(counts(world), checkpoint=name) for name in ("one", "two"))
    world.batch(one, 0, **{"in": words("a")})
    for batch in (0, 0, 1):
        with pytest.raises(CheckpointError, match=r"out: holds the output of another checkpoint"):
            world.batch(two, batch, **{"in": words("z")})
    world.batch(one, 1, **{"in": words("a")})
    assert world.sent("out") == {0: [("a", 1)], 1: [("a", 2)]}
    world.batch(world.open(counts(world, out="another"), checkpoint="two"), 0, **{"in": words("z")})
    assert world.sent("another") == {0: [("z", 1)]}


class Contested(ParquetSink):
    """A directory that another checkpoint takes at the last moment: after the look whether it is free."""

    def bind(self, checkpoint_id: str) -> None:
        if not self.path.exists():
            ParquetSink(self.path).bind("some other checkpoint")
        super().bind(checkpoint_id)


def test_a_sink_that_refuses_at_the_last_moment_gets_nothing_at_the_next_try_either(world):
    topo = Topology("t")
    counted = topo.source("in", key="k", partitions=2).process(Count("n", by={"k": "string"}), name="n")
    counted.sink("o", target=Contested(world.folder / "out"))
    placed = world.open(topo)
    for batch in (0, 0, 1):
        with pytest.raises(CheckpointError, match=r"out: holds the output of another checkpoint"):
            world.batch(placed, batch, **{"in": words("a")})
    assert world.sent("out") == {}
    assert placed.journal.last_batch == -1


def set_back(world: World) -> tuple[Placed, int, str]:
    return world.open(counts(world)), 0, "Spark's checkpoint is at batch 0, the placed state at batch 1"


def of_another_query(world: World) -> tuple[Placed, int, str]:
    world.query = "another"
    return world.open(counts(world)), 2, "query"


def with_a_sink_that_is_taken_meanwhile(world: World) -> tuple[Placed, int, str]:
    late = world.open(counts(world, more=("m",)))
    ParquetSink(world.folder / "m").bind("some other checkpoint")
    return late, 2, "m: holds the output of another checkpoint"


@pytest.mark.parametrize("refused", [set_back, of_another_query, with_a_sink_that_is_taken_meanwhile])
def test_a_start_that_is_refused_stops_nobody(world, refused):
    first = world.open(counts(world))
    for batch in range(2):
        world.batch(first, batch, **{"in": words("a")})
    late, number, message = refused(world)
    for _ in range(2):
        with pytest.raises(CheckpointError, match=message):
            world.batch(late, number, **{"in": words("b")})
    world.query = "query"
    for batch in range(2, 4):
        world.batch(first, batch, **{"in": words("a", "b")})
    assert world.sent("out") == {
        0: [("a", 1)],
        1: [("a", 2)],
        2: [("a", 3), ("b", 1)],
        3: [("a", 4), ("b", 2)],
    }


@pytest.mark.parametrize("number", [0, 1])
def test_of_two_that_begin_one_checkpoint_the_second_is_refused_and_the_first_goes_on(world, number):
    first, second = world.open(counts(world)), world.open(counts(world))
    world.batch(first, 0, **{"in": words("a")})
    with pytest.raises(CheckpointError, match="another driver has begun, or changed, it"):
        world.batch(second, number, **{"in": words("a")})
    world.batch(first, 1, **{"in": words("a")})
    assert world.sent("out") == {0: [("a", 1)], 1: [("a", 2)]}


def test_who_is_fenced_sends_no_followers_any_more(world):
    first = world.open(counts(world))
    world.batch(first, 0, **{"in": words("a")})
    second = world.open(counts(world))
    world.batch(second, 1, **{"in": words("a")})
    assert world.stopped == []
    with pytest.raises(Fenced, match="has taken this checkpoint over"):
        world.batch(first, 2, **{"in": words("a")})
    assert world.stopped == [first._replicator]
    world.batch(second, 2, **{"in": words("a")})
    assert world.sent("out")[2] == [("a", 3)]


def test_copies_that_a_restored_backup_is_behind_are_named_with_what_to_remove(world):
    checkpoint, backup = world.folder / "checkpoint", world.folder / "backup"
    world.batch(world.open(counts(world)), 0, **{"in": words("a")})
    shutil.copytree(checkpoint, backup)
    for batch in (1, 2):
        world.batch(world.open(counts(world)), batch, **{"in": words("a")})
    shutil.rmtree(checkpoint)
    backup.rename(checkpoint)
    for batch in (1, 2):
        shutil.rmtree(world.folder / "out" / f"batch_id={batch}")
    placed = world.open(counts(world))
    with pytest.raises(Fenced, match=rf"put back from a backup: remove {placed.state_root}$"):
        world.batch(placed, 1, **{"in": words("a")})
    shutil.rmtree(placed.state_root)
    world.restart(1)
    world.batch(world.open(counts(world)), 1, **{"in": words("a")})
    assert world.sent("out") == {0: [("a", 1)], 1: [("a", 2)]}


# ------------------------------------------------------------------------- full disks


def full(*_: Any) -> None:
    with Path("/dev/full").open("wb", buffering=0) as file:
        file.write(b"rows")


@pytest.mark.parametrize(
    ("module", "name"),
    [(journal, "create_exclusively"), (sinks, "_link_or_copy")],
    ids=["the manifest", "publishing"],
)
def test_a_full_disk_is_named_and_the_batch_is_repeated_when_there_is_room(world, monkeypatch, module, name):
    placed = world.open(counts(world))
    world.batch(placed, 0, **{"in": words("a", "b")})
    with monkeypatch.context() as patch:
        patch.setattr(module, name, full)
        for _ in range(2):
            with pytest.raises(
                DiskFull,
                match=rf"^no space is left .*{placed.checkpoint}: \d+ of \d+ MiB free\. Free space there.*"
                "nothing is lost, and the batch is repeated",
            ) as caught:
                world.batch(placed, 1, **{"in": words("a")})
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.ENOSPC
    assert world.sent("out") == {0: [("a", 1), ("b", 1)]}
    world.batch(placed, 1, **{"in": words("a")})
    world.batch(world.open(counts(world)), 2, **{"in": words("a", "b")})
    assert world.sent("out") == {0: [("a", 1), ("b", 1)], 1: [("a", 2)], 2: [("a", 3), ("b", 2)]}


# ------------------------------------------------------------------------- jobs of one session


#: A job of which the context asks nothing.
NOTHING = Pinned(None, iter)


class Context:
    """Stands for a SparkContext: a job lasts until it is told to end, or is cancelled by its tag."""

    def __init__(self) -> None:
        self.jobs: dict[str, threading.Event] = {}
        self.begun = threading.Semaphore(0)
        self.cancelled: list[str] = []
        self._mine = threading.local()

    def addJobTag(self, tag: str) -> None:
        self._mine.tag = tag

    def runJob(self, *_: Any) -> list[str]:
        assert self._mine.tag not in self.jobs
        end = self.jobs[self._mine.tag] = threading.Event()
        self.begun.release()
        assert end.wait(30)
        if self._mine.tag in self.cancelled:
            raise RuntimeError("[SPARK_JOB_CANCELLED]")
        return ["done"]

    def cancelJobsWithTag(self, tag: str) -> None:
        self.cancelled.append(tag)
        self.jobs[tag].set()


@pytest.fixture
def context(monkeypatch):
    monkeypatch.setattr(bridge_module, "InheritableThread", threading.Thread)
    return Context()


def bridged(context: Context, alive: set[str], going: set[str] | None = None) -> Bridge:
    """Return the bridge of a session with these executors; those that are `going` get no tasks any more."""
    made = object.__new__(Bridge)
    made.sc = context
    made.alive = lambda: frozenset(alive)
    made.usable = lambda: frozenset(alive - (going or set()))
    made._sending = SimpleNamespace(lighten=lambda function: (function, None))
    made._jsc = SimpleNamespace(statusTracker=lambda: SimpleNamespace(getJobIdsForTag=lambda tag: []))
    return made


def test_who_cancels_its_job_leaves_those_of_other_streams_alone_whatever_they_are_called(context):
    alive, found = {"1", "2"}, {}

    def run(on: str) -> None:
        try:
            found[on] = bridged(context, alive).run(
                Pinned(None, iter), [0], tag="taskplace-1-5-0-0", watch=frozenset(on)
            )
        except Exception as error:
            found[on] = error

    threads = [threading.Thread(target=run, args=(on,)) for on in "12"]
    for thread in threads:
        thread.start()
        assert context.begun.acquire(timeout=30)
    one, two = context.jobs
    assert one != two
    assert one.startswith("taskplace-1-5-0-0-")
    assert two.startswith("taskplace-1-5-0-0-")
    alive.discard("1")
    threads[0].join(30)
    assert isinstance(found["1"], JobLostError)
    assert context.cancelled == [one]
    context.jobs[two].set()
    threads[1].join(30)
    assert found["2"] == ["done"]


@pytest.mark.parametrize("going", [{"1"}, set()])
def test_a_job_that_fails_because_an_executor_is_about_to_go_is_lost(context, going):
    """What such a one does to its tasks shows in the job before anybody has asked."""

    def fail(*_: Any) -> list[str]:
        raise RuntimeError("Connection reset")

    context.runJob = fail
    with pytest.raises(JobLostError if going else RuntimeError, match="^1$" if going else "reset"):
        bridged(context, {"1"}, going).run(NOTHING, [0], tag="t", watch=frozenset("1"))


# ------------------------------------------------------------------------- what sources may be keyed by


def described(fields: dict[str, Any]) -> Any:
    """Stands for a data frame with these columns."""
    schema = StructType()
    for name, kind in fields.items():
        schema = schema.add(name, kind)
    return schema


def test_collated_keys_are_refused():
    topo = Topology("t")
    topo.source("in", key=["n", "k"], partitions=2).process(
        Count("c", by={"n": "int32", "k": "string"})
    ).sink("o")
    built, number = topo.build(), IntegerType()
    with pytest.raises(
        InputError, match=r"^sources\.in: found .a key of \['int', 'string collate UTF8_LCASE'\].*cast it"
    ):
        sources.check_sources(built, {"in": described({"n": number, "k": StringType("UTF8_LCASE")})})
    sources.check_sources(
        built, {"in": described({"n": number, "k": StringType(), "other": StringType("UTF8_LCASE")})}
    )


# ------------------------------------------------------------------------- the harness itself


def test_what_is_read_from_outside_is_what_was_sent(world):
    topo = Topology("t")
    totals = Aggregate("totals", by={"k": "string"}, v=sum_("v", "int64"))
    topo.source("in", key="k", partitions=3).process(totals).sink(
        "o", target=ParquetSink(world.folder / "out")
    )
    world.come(2)
    placed = world.open(topo, config={"num.standby.replicas": 1})
    for batch in range(3):
        world.batch(
            placed, batch, **{"in": pa.table({"k": list("abcdefg"), "v": list(range(batch, batch + 7))})}
        )
    truth = [(key, 3 * i + 3) for i, key in enumerate("abcdefg")]
    assert world.sent("out")[2] == world.stored(placed, "totals") == truth
    assert world.follow(placed) < 20
    (partition,) = partition_of([pa.array(["a"])], 3)
    world.lose(placed.rebalancer.owners()[TaskId(0, partition)].id)
    world.batch(placed, 3, **{"in": pa.table({"k": ["a"], "v": [1]})})
    assert placed.stats.promotions
    assert placed.stats.scratch == 0
    assert world.stored(placed, "totals") == [("a", 4), *truth[1:]]


def test_an_executor_that_dies_within_a_batch_is_lost_once_and_its_directory_is_taken_over(world):
    world.come(1)
    placed = world.open(counts(world))
    world.batch(placed, 0, **{"in": words(*"abcdefgh")})
    died = []

    def die(point: str) -> None:
        if point == "attempt.sealed" and not died:
            died.append(world.running)
            world.lose(world.running)
            world.come(1)
            raise Died

    world.at = die
    world.batch(placed, 1, **{"in": words(*"abcdefgh")})
    assert placed.stats.losses == len(died) == 1
    world.batch(placed, 2, **{"in": words(*"ab")})
    assert world.sent("out")[2] == [("a", 3), ("b", 3)]
    assert world.follow(placed)
    assert world.adopted == 1
