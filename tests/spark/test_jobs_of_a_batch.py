"""The jobs that Spark runs for a batch: a map stage for rows from outside, a result job per subtopology, no other."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from taskplace.spark.processors import Count
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
