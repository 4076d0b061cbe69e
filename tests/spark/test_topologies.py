"""Shapes of topologies on a real local-cluster, each against the answer that plain Python gives."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from taskplace.errors import CheckpointError, ConfigError
from taskplace.spark.driver import structure
from taskplace.spark.driver.journal import Journal
from taskplace.spark.driver.programs import programs
from taskplace.spark.processors import Aggregate, Count, TableJoin, count, sum_
from topology import TaskId, Topology, compare


class Stream:
    """A topology that runs batches of plain rows; its sinks are directories of `folder`."""

    def __init__(self, spark, folder, topology, schemas) -> None:
        self.spark, self.folder, self.schemas = spark, folder, schemas
        self.batch = 0
        self.open(topology)

    def open(self, topology) -> None:
        from taskplace.spark import Placed

        self.placed = Placed(
            self.spark,
            topology,
            checkpoint=self.folder / "checkpoint",
            state_dir=self.folder / "state",
            config={"num.standby.replicas": 1, "acceptable.recovery.lag": 0},
        )

    def reopen(self, topology) -> None:
        """What a restarted driver with another topology does."""
        self.placed.close()
        self.open(topology)

    def run(self, **rows) -> None:
        frames = {
            topic: self.spark.createDataFrame(rows.get(topic, []), schema).coalesce(1)
            for topic, schema in self.schemas.items()
        }
        self.placed.process_batch(self.placed.unite(frames), self.batch)
        self.batch += 1

    def rows(self, sink: str) -> list[dict]:
        """All rows of a sink, batch by batch."""
        folders = sorted((self.folder / sink).glob("batch_id=*"), key=lambda p: int(p.name.split("=")[1]))
        files = [file for folder in folders for file in sorted(folder.glob("*.parquet"))]
        return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]

    def latest(self, sink: str, key: str, value: str) -> dict:
        """The newest value of each key in a sink."""
        return {row[key]: row[value] for row in self.rows(sink)}


@pytest.fixture
def stream(cluster, tmp_path):
    made = []

    def make(topology, **schemas) -> Stream:
        made.append(Stream(cluster, tmp_path, topology, schemas))
        return made[-1]

    yield make
    for one in made:
        one.placed.close()


def parquet(folder):
    from taskplace.spark import ParquetSink

    return ParquetSink(folder)


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
        Aggregate("bands", by={"band": "int64"}, groups=count(), n=sum_("n", "int64")), name="bands"
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
    known = TableJoin("customers", on=keys, columns={"city": "string"})
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
        return (f"c{i % 37}" if i % 37 else None, i % 3)  # a null is a key like any other

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
        i: f"{named(i)} {'later' if i >= 60 and named(i) in moved else 'at first'}" for i in range(120)
    }
    assert {row["id"]: row["city"] for row in s.rows("out")} == expected


class Partial(Count):
    """Counts of what came to a task, whatever came to others: not what `Count` is for, so it is a kind of its own."""


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


# -- evolution ----------------------------------------------------------------------------------------------


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


def counts_by(
    key="key", *, partitions=2, logged=True, store="counts", repartitioned=False, first=False, more=False
) -> Topology:
    topo = Topology("t")
    if first:
        topo.source("new", key="key", partitions=2).process(Count("news", by={"key": "string"}), name="news")
    if not logged:
        topo.store(store, logged=False)
    events = topo.source("events", key=key, partitions=partitions)
    if repartitioned:
        events = events.repartition(key, name="again")
    by = dict.fromkeys(["key"] if key == "key" else ["key", key], "string")
    counted = events.process(Count(store, by=by), name="counted")
    if more:
        counted.sink("out")
        counted.repartition("count", name="by-count").process(
            Aggregate("often", by={"count": "int64"}, n=count())
        )
        topo.source("other", key="key", partitions=5).process(Count("other", by={"key": "string"}))
    return topo


def committed(root, built):
    """Driver 1 commits a batch with a topology."""
    journal = Journal(root, {}, lambda _: structure.declare(root, built, programs(built), None))
    journal.commit(0, 1, {}, {}, {})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"key": "other"}, "store 'counts': was keyed by (key), is keyed by (other)"),
        ({"partitions": 3}, "topic 'events': 2 -> 3 partitions under store 'counts'"),
        ({"logged": False}, "store 'counts': was logged, is not logged"),
        ({"store": "renamed"}, "store 'counts' went and store 'renamed' came"),
        ({"repartitioned": True}, "store 'counts': was in subtopology 0, is in 1"),
        ({"first": True}, "store 'counts': was in subtopology 0, is in 1"),
    ],
)
def test_what_cannot_keep_the_state_is_refused_with_the_explanation(tmp_path, change, says):
    old, new = counts_by().build(), counts_by(**change).build()
    committed(tmp_path, old)
    with pytest.raises(CheckpointError) as refused:
        structure.declare(tmp_path, new, programs(new), committed=1)
    assert says in str(refused.value)
    assert compare(old, new).explain() in str(refused.value)
    assert "start a new checkpoint" in str(refused.value)


@pytest.mark.parametrize("change", [{}, {"more": True}])
def test_what_keeps_the_state_is_let_through(tmp_path, change):
    old, new = counts_by().build(), counts_by(**change).build()
    committed(tmp_path, old)
    structure.declare(tmp_path, new, programs(new), committed=1)
    assert compare(old, new).compatible


# -- sources in YAML ----------------------------------------------------------------------------------------


def declared(entry):
    from taskplace.settings import Settings
    from taskplace.spark.yaml_application import Declared

    return Declared(
        Settings.from_mapping(
            {
                "application": {"id": "t"},
                "topology": {"sources": {"a": {"key": "k", "partitions": 2}}},
                "input": {"a": entry},
            }
        )
    )


@pytest.mark.spark
def test_sources_in_yaml_become_streaming_data_frames(spark):
    entry = {"format": "rate", "options": {"rowsPerSecond": 1}, "select": ["value % 10 as k", "value"]}
    (df,) = declared(entry).sources(spark).values()
    assert df.isStreaming
    assert df.columns == ["k", "value"]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"format": "com.no.such.Source"}, "com.no.such.Source"),
        ({"format": "rate", "select": ["valu as k"]}, "valu"),
        ({"format": "rate", "options": {"rowsPerSecond": 0}}, "rowsPerSecond"),
        ({"format": "json", "path": "in", "schema": "k string comment 'a', b strng"}, "STRNG"),
    ],
)
def test_what_spark_cannot_read_is_one_error_with_the_path(spark, entry, says):
    with pytest.raises(ConfigError, match=r"^input\.a: found ") as caught:
        declared(entry).sources(spark)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
