"""Shapes of topologies on a real local-cluster, each against the answer that plain Python gives."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from taskplace.errors import CheckpointError
from taskplace.spark.checkpoint.journal import Journal
from taskplace.spark.compile.programs import programs
from taskplace.spark.driver import structure
from taskplace.spark.processors import Aggregate, Count, TableJoin, count, sum_
from tests.support.topology_streams import parquet
from topology import BuiltTopology, Topology, compare


@pytest.mark.spark
def test_three_chained_subtopologies_beside_an_independent_and_a_stateless_one(stream, tmp_path):
    def upper(context, rows):
        return rows.set_column(0, "word", pc.utf8_upper(rows["word"]))

    def band(context, rows):
        """By group to by band: what the second subtopology says, in tens."""
        return pa.table({"group": rows["group"], "band": pc.divide(rows["n"], 10), "n": rows["n"]})

    topo = Topology("many")
    events = topo.source("events", key="key", partitions=4)
    events.process(Count("keys", by={"key": "string"}), name="keys").sink(target=parquet(tmp_path / "keys"))
    by_group = events.repartition("group", name="by-group", partitions=3)
    groups = by_group.process(Aggregate("groups", by={"group": "string"}, n=count()), name="groups")
    by_band = groups.process(band, name="band").repartition("band", name="by-band", partitions=2)
    bands = {"by": {"band": "int64"}, "over_changes": True, "groups": count(), "n": sum_("n", "int64")}
    by_band.process(Aggregate("bands", **bands), name="bands").sink(target=parquet(tmp_path / "bands"))
    pages = topo.source("pages", key="page", partitions=2).process(Count("pages", by={"page": "string"}))
    pages.sink(target=parquet(tmp_path / "pages"))
    topo.source("words", partitions=3).process(upper, name="upper").sink(target=parquet(tmp_path / "words"))
    built = topo.build()
    assert [sub.stateful for sub in built.subtopologies] == [True, True, True, True, False]

    s = stream(built, events="key string, `group` string", pages="page string", words="word string")
    events_, pages_, words_, bands_ = [], [], [], Counter()
    for batch in range(2):
        rows = [(f"k{i % 41}", f"g{(i + batch) % 7}") for i in range(150)]
        pages = [(f"p{i % 5}",) for i in range(20 + batch)]
        words = [(f"w{batch}-{i}",) for i in range(9)]
        s.run(events=rows, pages=pages, words=words)
        events_, pages_, words_ = [*events_, *rows], [*pages_, *pages], [*words_, *words]
        seen = Counter(group for _, group in events_)
        for group in {group for _, group in rows}:
            bands_[seen[group] // 10] += seen[group]
    assert s.latest("keys", "key", "count") == Counter(key for key, _ in events_)
    assert s.latest("bands", "band", "n") == bands_
    assert s.latest("pages", "page", "count") == Counter(page for (page,) in pages_)
    assert sorted(row["word"] for row in s.rows("words")) == sorted(word.upper() for (word,) in words_)


@pytest.mark.spark
def test_a_repartition_topic_meets_an_external_one_key_by_key(stream, tmp_path):
    topo = Topology("orders")
    customers = topo.source("customers", key=["customer", "shop"], partitions=5)
    orders = topo.source("orders", key="id", partitions=3)
    by_customer = orders.repartition(["customer", "shop"], name="by-customer")
    keys = {"customer": "string", "shop": "int32"}
    known = TableJoin("customers", by=keys, columns={"city": "string"})
    by_customer.join_table(customers, known, name="with-city").sink("out", target=parquet(tmp_path / "out"))
    built = topo.build()
    assert built.partitions["by-customer-repartition"] == 5
    assert built.order == (1, 0)  # what reads the repartition was declared first, and runs last
    who = "customer string, shop int"
    s = stream(built, orders=f"id bigint, {who}", customers=f"{who}, city string")

    def named(i):
        return (f"c{i % 37}" if i % 37 else None, i % 3)  # a null in a key matches nothing

    everyone = sorted({named(i) for i in range(120)}, key=str)
    for when, keys, ids in (("at first", everyone, range(60)), ("later", everyone[::2], range(60, 120))):
        s.run(orders=[(i, *named(i)) for i in ids], customers=[(*key, f"{key} {when}") for key in keys])
    moved = set(everyone[::2])
    when = {i: "later" if i >= 60 and named(i) in moved else "at first" for i in range(120)}
    expected = {i: f"{named(i)} {when[i]}" if i % 37 else None for i in range(120)}
    assert {row["id"]: row["city"] for row in s.rows("out")} == expected


# -- Topologies that change between runs: what keeps its state, and what is refused with the explanation


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
        per_page = pages.process(Count("pages", by={"page": "string"}), name="per-page")
        per_page.sink("pages-out", target=parquet(folder / "pages"))
    return topo


@pytest.mark.spark
def test_what_is_added_starts_empty_and_what_was_there_is_kept(stream, tmp_path):
    s = stream(grown(tmp_path, more=False), events="key string, page string, value bigint")
    data = [[(f"k{i % 13}", f"p{i % 4}", i * (batch + 1)) for i in range(40)] for batch in range(5)]
    for batch in range(3):
        s.run(events=data[batch])
    before = {task: history.end for task, history in s.placed.journal.history.items()}
    s.reopen(grown(tmp_path, more=True))
    assert {task: s.placed.journal.history[task].end for task in before} == before
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
    journal = Journal(tmp_path, {}, lambda _: structure.declare(tmp_path, old, programs(old), None))
    journal.commit(0, 1, {}, {}, {})
    if says is None:
        structure.declare(tmp_path, new, programs(new), committed=1)
        return
    with pytest.raises(CheckpointError, match="start a new checkpoint") as refused:
        structure.declare(tmp_path, new, programs(new), committed=1)
    assert says in str(refused.value)
    assert all(reason in str(refused.value) for reason in compare(old, new).reasons)
