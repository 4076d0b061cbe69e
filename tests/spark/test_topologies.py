"""Shapes of topologies on a real local-cluster, each against the answer that plain Python gives."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from taskplace.spark.processors import Aggregate, Count, TableJoin, count, sum_
from tests.support.topology_streams import parquet
from topology import Topology


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
        orders=[(i, *named(i)) for i in range(60)], customers=[(*key, f"{key} at first") for key in everyone]
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
