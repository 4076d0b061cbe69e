"""Shapes of topologies on a real local-cluster, each against the answer that plain Python gives."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from taskplace.spark.processors import Aggregate, Count, State, TableJoin, count, sum_
from tests.support.topology_streams import parquet
from topology import TaskId, Topology


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
    groups = events.repartition("group", name="by-group", partitions=3).process(
        Aggregate("groups", by={"group": "string"}, n=count()), name="groups"
    )
    bands = groups.process(band, name="band").repartition("band", name="by-band", partitions=2)
    bands.process(
        Aggregate("bands", by={"band": "int64"}, over_changes=True, groups=count(), n=sum_("n", "int64")),
        name="bands",
    ).sink(target=parquet(tmp_path / "bands"))
    topo.source("pages", key="page", partitions=2).process(Count("pages", by={"page": "string"})).sink(
        target=parquet(tmp_path / "pages")
    )
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
def test_a_stream_stream_join_with_stores_of_its_own(stream, tmp_path):
    class Pairs:
        """Sends on what both sides are known of, whichever came first."""

        def layouts(self):
            return {
                "lefts": {"key": {"id": "int64"}, "value": {"a": "string"}},
                "rights": {"key": {"id": "int64"}, "value": {"b": "string"}},
            }

        def process(self, context, left, right):
            context.store("lefts").put_many(left)
            context.store("rights").put_many(right)
            ids = pa.chunked_array([*left["id"].chunks, *right["id"].chunks], pa.int64())
            touched = pa.table({"id": pc.unique(ids)})
            a, known_a = context.store("lefts").get_many(touched)
            b, known_b = context.store("rights").get_many(touched)
            paired = pa.table({"id": touched["id"], "a": a["a"], "b": b["b"]})
            return paired.filter(pa.array(known_a & known_b))

    topo = Topology("pairs")
    left = topo.source("left", key="id", partitions=3)
    right = topo.source("right", key="id", partitions=3)
    left.join_stream(right, Pairs(), name="pairs").sink("out", target=parquet(tmp_path / "out"))
    s = stream(topo, left="id bigint, a string", right="id bigint, b string")
    s.run(left=[(i, f"a{i}") for i in range(0, 30)], right=[(i, f"b{i}") for i in range(20, 40)])
    s.run(left=[(i, f"a{i}") for i in range(30, 50)], right=[(i, f"b{i}") for i in range(0, 20, 2)])
    expected = {i: (f"a{i}", f"b{i}") for i in [*range(0, 20, 2), *range(20, 40)]}
    assert {row["id"]: (row["a"], row["b"]) for row in s.rows("out")} == expected
    assert len(s.rows("out")) == len(expected)


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
    s = stream(
        built,
        orders="id bigint, customer string, shop int",
        customers="customer string, shop int, city string",
    )

    def named(i):
        return (f"c{i % 37}" if i % 37 else None, i % 3)  # a null in a key matches nothing

    everyone = sorted({named(i) for i in range(120)}, key=str)
    s.run(
        orders=[(i, *named(i)) for i in range(60)],
        customers=[(*key, f"{key} at first") for key in everyone],
    )
    s.run(
        orders=[(i, *named(i)) for i in range(60, 120)],
        customers=[(*key, f"{key} later") for key in everyone[::2]],
    )
    moved = set(everyone[::2])
    expected = {
        i: f"{named(i)} {'later' if i >= 60 and named(i) in moved else 'at first'}" if i % 37 else None
        for i in range(120)
    }
    assert {row["id"]: row["city"] for row in s.rows("out")} == expected


class Partial(Count):
    """Counts of what came to a task, whatever came to others: not what `Count` is for, so it says so."""

    def infer(self, inputs):
        return replace(super().infer(inputs), states={self.store: State("task")})


@pytest.mark.spark
def test_merged_sources_of_unequal_counts_and_a_store_without_a_changelog(stream, tmp_path):
    topo = Topology("merged")
    topo.store("seen", logged=False)
    wide = topo.source("wide", key="key", partitions=4)
    narrow = topo.source("narrow", key="key", partitions=2)
    both = wide.merge(narrow, name="both")
    counted = both.process(Partial("seen", by={"key": "string"}), name="counted")
    # Counts are per task, which is all that a merge without a join promises; one more step makes them whole.
    counted.sink("tasks", target=parquet(tmp_path / "tasks"))
    whole = both.repartition("key", name="whole", partitions=2)
    whole.process(Count("totals", by={"key": "string"}), name="total").sink(
        "out", target=parquet(tmp_path / "out")
    )
    s = stream(topo, wide="key string", narrow="key string")
    assert len(s.placed.built.tasks()) == 6
    rows = Counter()
    for batch in range(3):
        wide_ = [(f"k{i % 23}",) for i in range(80 + batch)]
        narrow_ = [(f"k{i % 31}",) for i in range(50)]
        s.run(wide=wide_, narrow=narrow_)
        rows.update(key for (key,) in [*wide_, *narrow_])
    assert s.latest("out", "key", "count") == rows
    # A key is in at most two tasks, one for each source, and the tasks' last counts add up to all of it.
    last = Counter()
    for key in rows:
        counts = [row["count"] for row in s.rows("tasks") if row["key"] == key]
        shares = [c for c in counts if c == max(counts)] if len(counts) == 3 else counts[-2:]
        last[key] = sum(shares)
    assert last == rows
    history = s.placed.journal.history
    assert {task: history[task].end.offset for task in history if task.subtopology == 0} == dict.fromkeys(
        [TaskId(0, p) for p in range(4)], 0
    )
    assert any(history[TaskId(1, p)].end.offset for p in range(2))
