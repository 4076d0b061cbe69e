"""Topologies that change between runs: what keeps its state, and what is refused with the explanation."""

from __future__ import annotations

from collections import Counter

import pytest

from taskplace.errors import CheckpointError
from taskplace.spark.checkpoint.journal import Journal
from taskplace.spark.compile.programs import programs
from taskplace.spark.driver import structure
from taskplace.spark.processors import Aggregate, Count, sum_
from tests.support.topology_streams import parquet
from topology import BuiltTopology, Topology, compare


def grown(folder, *, more: bool) -> Topology:
    """A count by key; with `more`, a second sink, a processor beside it, and a subtopology at the end."""
    topo = Topology("grown")
    events = topo.source("events", key="key", partitions=3)
    counted = events.process(Count("counts", by={"key": "string"}), name="counted")
    counted.sink("out", target=parquet(folder / "out"))
    if more:
        counted.sink("copy", target=parquet(folder / "copy"))
        added = Aggregate("sums", by={"key": "string"}, total=sum_("value", "int64"))
        events.process(added, name="summed").sink("sums", target=parquet(folder / "sums"))
        pages = events.repartition("page", name="by-page", partitions=2)
        pages.process(Count("pages", by={"page": "string"}), name="per-page").sink(
            "pages-out", target=parquet(folder / "pages")
        )
    return topo


@pytest.mark.spark
def test_what_is_added_starts_empty_and_what_was_there_is_kept(stream, tmp_path):
    s = stream(grown(tmp_path, more=False), events="key string, page string, value bigint")
    data = [[(f"k{i % 13}", f"p{i % 4}", i * (batch + 1)) for i in range(40)] for batch in range(5)]
    for batch in range(3):
        s.run(events=data[batch])
    before = dict(s.placed.journal.history)
    s.reopen(grown(tmp_path, more=True))
    assert {task: s.placed.journal.history[task].end for task in before} == {
        task: history.end for task, history in before.items()
    }
    for batch in range(3, 5):
        s.run(events=data[batch])
    everything, since = [row for rows in data for row in rows], [row for rows in data[3:] for row in rows]
    counts = Counter(key for key, _, _ in everything)
    assert s.latest("out", "key", "count") == counts
    assert s.latest("copy", "key", "count") == counts
    assert len(s.rows("copy")) == len(s.rows("out")) * 2 // 5  # of the two batches since
    sums = Counter()
    for key, _, value in since:
        sums[key] += value
    assert s.latest("sums", "key", "total") == sums
    assert s.latest("pages", "page", "count") == Counter(page for _, page, _ in since)


def counted_in(partitions: int, store: str = "counts") -> BuiltTopology:
    topo = Topology("t")
    topo.source("events", key="key", partitions=partitions).process(Count(store, by={"key": "string"}))
    return topo.build()


@pytest.mark.parametrize(
    ("new", "says"),
    [
        (counted_in(3), "topic 'events': 2 -> 3 partitions, but the keys of store 'counts'"),
        (counted_in(2, "renamed"), "store 'counts' removed and store 'renamed' added"),
        (counted_in(2), None),
    ],
    ids=["partitions", "another store", "the same"],
)
def test_what_cannot_keep_the_state_is_refused_with_the_explanation(tmp_path, new, says):
    old = counted_in(2)
    Journal(tmp_path, {}, lambda _: structure.declare(tmp_path, old, programs(old), None)).commit(
        0, 1, {}, {}, {}
    )
    if says is None:
        structure.declare(tmp_path, new, programs(new), committed=1)
        return
    with pytest.raises(CheckpointError, match="start a new checkpoint") as refused:
        structure.declare(tmp_path, new, programs(new), committed=1)
    assert says in str(refused.value)
    assert all(reason in str(refused.value) for reason in compare(old, new).reasons)
