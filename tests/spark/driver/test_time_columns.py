"""Columns of times are timestamps or dates: a number has no unit of time, and is refused."""

from __future__ import annotations

import re
from datetime import date, datetime, timezone
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    DateType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)  # fmt: skip

from taskplace.errors import InputError
from taskplace.spark.compile import infer as inferring
from taskplace.spark.compile.sources import check_sources
from taskplace.spark.processors import (
    Aggregate,
    Count,
    Deduplicate,
    Facts,
    PerKey,
    TableJoin,
    Tumbling,
    count,
    max_,
)  # fmt: skip
from taskplace.spark.sinks import ParquetSink
from taskplace.spark.types import parse
from tests.support.placed_without_spark import World
from topology import Topology

KEY = {"k": "string"}
AT = datetime(2026, 1, 1, tzinfo=timezone.utc)


def infer(built, sources):
    """Infer with the types of columns as they are written."""
    columns = {topic: {name: parse(kind) for name, kind in of.items()} for topic, of in sources.items()}
    return inferring.infer(built, columns)


def longest(key: Any, rows: list[Any], state: Any) -> Any:
    at = rows[0]["at"]
    return {"at": AT if type(at) is date else at}, []


PROCESSORS = {
    "a window": lambda: Count("s", by=KEY, window=Tumbling("at", "1 hour")),
    "a ttl": lambda: Deduplicate("s", by=KEY, ttl="1 day", time="at"),
    "a ttl of a key": lambda: Deduplicate("s", by={**KEY, "at": "timestamp"}, ttl="1 day", time="at"),
    "an aggregate": lambda: Aggregate("s", by=KEY, at=max_("at", "timestamp")),
    "a key": lambda: Count("s", by={**KEY, "at": "timestamp"}),
    "a state": lambda: PerKey("s", longest, by=KEY, state={"at": "timestamp"}, output=KEY),
}
WRONG = {
    "int64": pa.array([1_767_225_600_000], pa.int64()),
    "int32": pa.array([1_767_225_600], pa.int32()),
    "double": pa.array([1.5], pa.float64()),
    "string": pa.array(["2026-01-01"], pa.string()),
    "bool": pa.array([True]),
}
RIGHT = (
    pa.timestamp("us", tz="UTC"), pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("ms"), pa.date32(),
    pa.timestamp("us", tz="Europe/Berlin"),
)  # fmt: skip


def topology(world: World, processor: Any) -> Topology:
    """Return a topology whose source has an event time where the processor's store forgets."""
    topo = Topology("t")
    forgets = "time" in processor.layouts()["s"]
    time = {"event_time": "at", "delay": "0 s"} if forgets else {}
    source = topo.source("in", key="k", partitions=1, **time)
    source.process(processor, name="p").sink("o", target=ParquetSink(world.folder / "out"))
    return topo


def rows(column: pa.Array) -> pa.Table:
    return pa.table({"k": ["a"], "at": column})


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("name", PROCESSORS)
def test_what_is_no_time_is_refused_in_the_task(world, name, kind):
    placed = world.open(topology(world, PROCESSORS[name]()))
    with pytest.raises(InputError, match="timestamp"):
        world.batch(placed, 0, **{"in": rows(WRONG[kind])})
    assert placed.journal.last_batch == -1
    assert world.sent("out") == {}
    assert not list((world.folder / "checkpoint").glob("changelog/*"))


@pytest.mark.parametrize("kind", RIGHT, ids=str)
@pytest.mark.parametrize("name", PROCESSORS)
def test_times_of_any_unit_are_taken(world, name, kind):
    placed = world.open(topology(world, PROCESSORS[name]()))
    world.batch(placed, 0, **{"in": rows(pa.array([AT], pa.timestamp("us", tz="UTC")).cast(kind))})
    assert placed.journal.last_batch == 0
    (stored,) = world.stored(placed, "s")
    assert all(value in (AT, AT.date()) for value in stored if isinstance(value, date))


def test_a_time_is_no_number_either(world):
    placed = world.open(topology(world, Count("s", by={"at": "int64"})))
    with pytest.raises(InputError, match=r"by\.at: found 'timestamp\[us.*a number has no unit of time"):
        world.batch(placed, 0, **{"in": rows(pa.array([AT], pa.timestamp("us", tz="UTC")))})


# ------------------------------------------------------------------------- at the start


def built(processor: Any, *, through: Any = None) -> Any:
    topo = Topology("t")
    stream = topo.source("in", key="k", partitions=2)
    if through is not None:
        stream = stream.process(through, name="before")
    again = stream.repartition(key="k", name="again", partitions=2)
    again.process(processor, name="p").sink("o", target=None)
    return topo.build()


@pytest.mark.parametrize(
    ("processor", "message"),
    [
        (Count("s", by=KEY, window=Tumbling("at", "1 hour")), "node 'p', window.column: found \"'at', int64\""),
        (Count("s", by=KEY, window=Tumbling("att", "1 hour")), "window.column: found \"no column 'att'\".*mean 'at'?"),
        (Deduplicate("s", by=KEY, ttl="1 day", time="at"), "node 'p', time: found \"'at', int64\""),
        (Count("s", by={**KEY, "at": "date"}), "node 'p', by.at: found \"'at', int64\""),
        (Aggregate("s", by=KEY, newest=max_("at", "timestamp")), "node 'p', newest: found \"'at', int64\""),
        (Count("s", by={"kk": "string", **KEY}), "node 'p', by.kk: found \"no column 'kk'\", expected .*mean 'k'?"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("through", [None, Deduplicate("seen", by=KEY)])
def test_what_is_known_of_the_sources_is_refused_at_the_start(processor, message, through):
    pattern = re.escape(message).replace(r"\.\*", ".*")
    with pytest.raises(InputError, match=pattern):
        infer(built(processor, through=through), {"in": {"k": "string", "at": "bigint"}})


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "date"])
def test_times_of_spark_are_taken_at_the_start(kind):
    for make in PROCESSORS.values():
        infer(built(make()), {"in": {"k": "string", "at": kind}})


def test_counting_times_and_what_is_not_known_is_fine():
    infer(built(Aggregate("s", by=KEY, n=count("at"))), {"in": {"k": "string", "at": "bigint"}})
    window = Count("s", by=KEY, window=Tumbling("later", "1 hour"))
    infer(built(window, through=lambda context, rows: rows), {"in": {"k": "string", "at": "bigint"}})


def test_a_table_s_columns_are_those_of_the_table():
    topo = Topology("t")
    orders = topo.source("orders", key="k", partitions=2)
    users = topo.source("users", key="k", partitions=2)
    orders.join_table(users, TableJoin("u", by=KEY, columns={"born": "date"}), name="j")
    types = {"orders": {"k": "string", "at": "int"}, "users": {"k": "string", "born": "date"}}
    infer(topo.build(), types)
    with pytest.raises(InputError, match=r"node 'j', columns\.born: found \"'born', int32\""):
        infer(topo.build(), {**types, "users": {"k": "string", "born": "int"}})
    with pytest.raises(InputError, match=r"node 'j', TableJoin\('u'\): .*\['BORN'\] on both sides"):
        infer(topo.build(), {**types, "orders": {"k": "string", "BORN": "int"}})


class Latest:
    """A processor of one's own that says what it takes and sends on."""

    def infer(self, inputs):
        (rows,) = inputs
        rows.require("at", "newest", time=True)
        known = rows.columns
        return Facts(columns=known and {"k": known["k"], "newest": "timestamp"})

    def process(self, context, rows):
        return rows


class Renames(Latest):
    """Takes other columns than its base class says."""

    def process(self, context, rows):
        return rows.rename_columns(["k", "at"])


def test_one_s_own_processor_says_what_it_takes_and_sends_on():
    topo = Topology("t")
    latest = topo.source("in", key="k", partitions=2).process(Latest(), name="latest")
    latest.process(Count("s", by={"at": "timestamp"}), name="p")
    with pytest.raises(InputError, match="node 'latest', newest: found \"'at', int64\""):
        infer(topo.build(), {"in": {"k": "string", "at": "bigint"}})
    with pytest.raises(InputError, match=r"node 'p', by\.at: .*'at'.*, expected one of k, new"):
        infer(topo.build(), {"in": {"k": "string", "at": "date"}})


def test_a_class_that_overrides_process_is_not_judged_by_what_its_base_says():
    topo = Topology("t")
    renamed = topo.source("in", key="k", partitions=2).process(Renames(), name="renames")
    renamed.process(Count("s", by={**KEY, "at": "timestamp"}), name="p")
    infer(topo.build(), {"in": {"k": "string", "then": "bigint"}})


def test_what_an_aggregate_sends_on_is_known():
    topo = Topology("t")
    window = Tumbling("at", "1 hour", time="ends")
    hours = topo.source("in", key="k", partitions=2).process(Count("s", by=KEY, window=window), name="hours")
    types = {"in": {"k": "string", "at": "timestamp"}}
    days = Count("d", by=KEY, window=Tumbling("ends", "1 day"), over_changes=True)
    hours.process(days, name="days")
    infer(topo.build(), types)
    hours.process(Aggregate("w", by=KEY, at=max_("cuont", "int64")), name="most")
    with pytest.raises(InputError, match=r"node 'most', at: .*'cuont'.*did you mean 'count'"):
        infer(topo.build(), types)


LOCAL = {"spark.sql.session.timeZone": "Asia/Tokyo"}.get


@pytest.mark.parametrize("kind", [DateType(), TimestampNTZType()])
def test_an_event_time_without_a_zone_is_refused_where_the_session_s_is_not_utc(kind):
    schema = {"in": StructType().add("k", StringType()).add("at", kind)}
    window = built(Count("s", by=KEY, window=Tumbling("at", "1 hour")))
    topo = Topology("t")
    topo.source("in", key="k", event_time="at").process(lambda context, rows: rows, name="p")
    for each, path in ((window, "node 'p', window.column"), (topo.build(), r"sources\.in\.event_time")):
        check_sources(each, schema)
        for utc in ("UTC", "Etc/UTC", "+00:00"):
            check_sources(each, schema, {"spark.sql.session.timeZone": utc}.get)
        with pytest.raises(InputError, match=rf"^{path}: found .*not UTC.*cast it to a timestamp"):
            check_sources(each, schema, LOCAL)
    check_sources(built(Count("s", by={**KEY, "at": "date"})), schema, LOCAL)  # goes by no time
    instants = {"in": StructType().add("k", StringType()).add("at", TimestampType())}
    check_sources(window, instants, LOCAL)


def test_names_that_differ_by_case_alone_are_one_error():
    for names, found in ((["k", "A", "a"], "columns 'A' and 'a'"), (["k", "a", "a"], "columns 'a' and 'a'")):
        schema = StructType([StructField(name, StringType()) for name in names])
        with pytest.raises(InputError, match=rf"^sources\.in: found \"{found}, which Spark treats as one"):
            check_sources(built(Count("s", by=KEY)), {"in": schema})
    check_sources(
        built(Count("s", by=KEY)),
        {"in": StructType([StructField(name, StringType()) for name in ("k", "A", "a")])},
        {"spark.sql.caseSensitive": "true"}.get,
    )
