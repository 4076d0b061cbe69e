"""The jobs that Spark runs for a batch: a map stage for rows from outside, a result job per subtopology, no other."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pytest

from taskplace.errors import TaskplaceError
from taskplace.spark.bridge import Bridge, shuffles
from taskplace.spark.bridge import bridge as pairing
from taskplace.spark.processors import Count
from taskplace.spark.worker.external import with_batches
from tests.support.topology_streams import parquet
from topology import Topology

pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class Ran:
    """A job of Spark: its tags, and of each stage that it has run whether that wrote, and read, a shuffle."""

    tags: str
    stages: tuple[tuple[bool, bool], ...]


#: What a batch may run.
MAP, RESULT, RESULT_WITHOUT_A_SHUFFLE = ((True, False),), ((False, True),), ((False, False),)


def newest_job(spark) -> int:
    """Return the newest job that has begun in a session; -1: none."""
    sc = spark.sparkContext._jsc.sc()
    sc.listenerBus().waitUntilEmpty()
    known = spark._jvm.scala.jdk.javaapi.CollectionConverters.asJava(sc.statusStore().jobsList(None))
    return max((job.jobId() for job in known), default=-1)


def jobs(spark, after: int) -> dict[int, Ran]:
    """Return the jobs of a session after one, but follow jobs, which run beside batches.

    Spark may know an old job and have forgotten its stages.
    """
    sc, as_java = spark.sparkContext._jsc.sc(), spark._jvm.scala.jdk.javaapi.CollectionConverters.asJava
    sc.listenerBus().waitUntilEmpty()
    store, found = sc.statusStore(), {}
    for job in as_java(store.jobsList(None)):
        tags = job.jobTags().mkString(" ")
        if job.jobId() > after and "taskplace-follow" not in tags:
            stages = [store.lastStageAttempt(number) for number in as_java(job.stageIds())]
            found[job.jobId()] = Ran(
                tags,
                tuple(
                    (stage.shuffleWriteBytes() > 0, stage.shuffleReadBytes() > 0)
                    for stage in stages
                    if stage.status().toString() != "SKIPPED"
                ),
            )
    return found


def counted(folder, *, by_group: bool) -> Topology:
    """Return one subtopology that counts by key; with `by_group`, a second one that counts the rows of the first."""
    topo = Topology("t")
    rows = topo.source("in", key="k", partitions=6)
    counts = rows.process(Count("by-k", by={"k": "string"}), name="count")
    counts.sink("out", target=parquet(folder / "out"))
    if by_group:
        groups = rows.repartition("g", name="by-g", partitions=4).process(Count("by-g", by={"g": "string"}))
        groups.sink("groups", target=parquet(folder / "groups"))
    return topo


@pytest.mark.parametrize(
    ("by_group", "expected"), [(False, [MAP, RESULT]), (True, [MAP, RESULT, RESULT_WITHOUT_A_SHUFFLE])]
)
def test_a_batch_runs_a_map_stage_and_a_result_job_per_subtopology(
    stream, cluster, tmp_path, by_group, expected
):
    s = stream(counted(tmp_path, by_group=by_group), **{"in": "k string, g string"})
    for batch in range(3):
        last = newest_job(cluster)
        s.run(**{"in": [(f"k{number % 40}", f"g{number % 7}") for number in range(400)]})
        found = [job for _, job in sorted(jobs(cluster, last).items())]
        assert [job.stages for job in found] == expected
        epoch = s.placed.journal.epoch
        for subtopology, job in enumerate(found[1:]):
            assert f"taskplace-{epoch}-{batch}-{subtopology}-0" in job.tags
    assert s.latest("out", "k", "count") == {f"k{number}": 30 for number in range(40)}


# -- Rows of a shuffle in pinned Spark tasks, on a real local-cluster: all of them, in order, in little m


PARTITIONS = 7
EMPTY = {2, 5}  # no row has these partitions


def what_came(elements):
    """Yield the element, its executor, and the number and sum of its rows by partition."""
    from taskplace.spark.worker import identity

    for element, batches in elements:
        counts: dict[int, list[int]] = {}
        for batch in batches:
            schema = pa.schema([("p", pa.int32()), ("value", pa.int64())])
            rows = pa.ipc.read_record_batch(pa.py_buffer(batch), schema)
            for row in rows.to_pylist():
                count = counts.setdefault(row["p"], [0, 0])
                count[0], count[1] = count[0] + 1, count[1] + row["value"]
        yield element.decode(), identity.executor()[0], counts


def reads_nothing(elements):
    """Leave the batches unread."""
    import os

    for element, _ in elements:
        yield element.decode(), os.getpid()


@pytest.fixture
def shuffled(cluster):
    """A shuffle of 25,000 rows, several Arrow batches a bin; two partitions are empty; in reverse order."""
    bridge = Bridge(cluster)
    spread = cluster.range(25_000).selectExpr(
        "cast(element_at(array(0, 1, 3, 4, 6), cast(id % 5 as int) + 1) as int) p", "id value"
    )
    return bridge, bridge.arrow_input(spread, list(reversed(range(PARTITIONS))), "p")


def expected(start, end):
    """Return counts and sums of the rows in a range of positions; position 0 is the last partition."""
    numbers = {p: i for i, p in enumerate((0, 1, 3, 4, 6))}
    found = {}
    for p in (PARTITIONS - 1 - position for position in range(start, end)):
        if p not in EMPTY:
            found[p] = [5_000, sum(range(numbers[p], 25_000, 5))]
    return found


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_each_bin_gets_the_rows_of_its_range_where_it_is_pinned(shuffled, monkeypatch, at_once):
    monkeypatch.setattr(pairing, "PAIRED_AT_ONCE", at_once)
    bridge, arrow = shuffled
    ranges = [
        (0, 1),
        (1, 2),
        (2, 5),
        (5, 6),
        (6, 6),
        (6, 7),
    ]  # the second has no rows, the fifth no partition
    executors = bridge.executors()
    wanted = [executors[i % len(executors)] for i in range(len(ranges))]
    elements = [f"{i} {e.id}".encode() for i, e in enumerate(wanted)]
    job = bridge.pinned(elements, [e.location for e in wanted], what_came, arrow, ranges)
    answers = bridge.run(job, range(len(ranges)), tag="bins")
    assert [answer[0] for answer in answers] == [f"{i} {e.id}" for i, e in enumerate(wanted)]
    assert [answer[1] for answer in answers] == [e.id for e in wanted]
    assert [answer[2] for answer in answers] == [expected(*range_) for range_ in ranges]
    some = bridge.run(job, [3, 1], tag="some bins")  # the same shuffle, read once more by some
    assert [answer[2] for answer in some] == [expected(5, 6), {}]


def test_ranges_may_overlap(shuffled):
    """Tasks of one bin may lie between those of another one, which drops their rows."""
    bridge, arrow = shuffled
    ranges, location = [(3, 7), (0, 5), (1, 6)], bridge.executors()[0].location
    job = bridge.pinned([b"0", b"1", b"2"], [location] * 3, what_came, arrow, ranges)
    answers = bridge.run(job, range(3), tag="overlapping")
    assert [answer[2] for answer in answers] == [expected(*range_) for range_ in ranges]


def test_a_worker_that_leaves_rows_unread_goes_on(shuffled):
    bridge, arrow = shuffled
    executor = bridge.executors()[0]
    job = bridge.pinned([b"bin"], [executor.location], reads_nothing, arrow, [(0, PARTITIONS)])
    processes = [bridge.run(job, [0], tag=f"unread-{i}")[0][1] for i in range(8)]
    assert len(set(processes)) < len(processes)  # Spark uses processes again; an executor may have several


def test_a_bin_may_have_more_rows_than_half_the_executors_heap(cluster):
    """350 MB of rows in a bin, on executors of 900 MB, of which Spark itself takes a part."""
    bridge = Bridge(cluster)
    wide = cluster.range(350).selectExpr("cast(0 as int) p", "repeat(cast(id as string), 400000) value")
    arrow = bridge.arrow_input(wide.selectExpr("p", "substring(value, 1, 1000000) value"), [0], "p")

    def lengths(elements):
        for _, batches in elements:
            sizes = [len(batch) for batch in batches]
            yield sum(sizes), max(sizes)

    executors = bridge.executors()
    before = {executor.id for executor in executors}
    job = bridge.pinned([b"bin"], [executors[0].location], lengths, arrow, [(0, 1)])
    (whole, largest) = bridge.run(job, [0], tag="wide")[0]
    assert whole > 300_000_000 and largest <= shuffles.BYTES_AT_ONCE * 1.1
    assert {executor.id for executor in bridge.executors()} == before


def test_a_bin_whose_rows_are_missing_is_an_error():
    with pytest.raises(TaskplaceError, match="found no rows in its range of the shuffle"):
        list(with_batches(lambda elements: elements, []))
