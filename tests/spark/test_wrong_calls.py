"""What is called with the wrong things says so in one line: the path, what was found, what was expected.

Every parameter of every public call of the placed side is given values of all kinds; none may end in a traceback of
Python's, Arrow's or Spark's.
"""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from taskplace.errors import CheckpointError, ConfigError, InputError, TaskplaceError
from taskplace.spark.compile.programs import programs
from taskplace.spark.placed import Placed
from taskplace.spark.processors import (
    Aggregate,
    Count,
    Deduplicate,
    PerKey,
    TableJoin,
    Tumbling,
    avg,
    count,
    first,
    last,
    max_,
    min_,
    sum_,
)  # fmt: skip
from taskplace.spark.sinks import ForeachBatch, ParquetSink
from taskplace.spark.steering.steering import steer
from tests.support.placed_harness import topology
from tests.support.placed_without_spark import World
from topology import Topology, TopologyError

KEY = {"k": "string"}


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


WRONG = [
    None, 3, -1, 0, 2.5, float("nan"), float("inf"), 10**5000, "x", "", b"x", True, [], [1], ["x"], [None], (1, 2), {1},
    {}, {"x": 1}, {1: 2}, {"x": None}, {"x": [1]}, {"x": {"y": 2}}, {None: 1}, object(), Unprintable(), int, len,
    datetime.timedelta(1), datetime.timedelta(-1), pa.table({"x": [1]}), np.array([1, 2]), SimpleNamespace(),
]  # fmt: skip


def clean(call: Any, *given: Any, **named: Any) -> None:
    """Call it; it may work, or be refused as bad input."""
    try:
        call(*given, **named)
    except (TaskplaceError, TopologyError) as error:
        assert len(str(error)) < 2500
        assert str(error)


def each(call: Any, **base: Any) -> None:
    """Call it with one parameter wrong at a time."""
    for name in base:
        for wrong in WRONG:
            clean(call, **{**base, name: wrong})


def per_key(key: Any, rows: Any, state: Any) -> Any:
    return state, rows


PROCESSORS = {
    Tumbling: {"column": "at", "size": "1 hour", "grace": "0 minutes", "emit": "final", "time": None},
    Aggregate: {"store": "s", "by": KEY, "window": None, "ttl": None, "time": None, "n": count()},
    Count: {"store": "s", "by": KEY, "window": Tumbling("at", "1 hour"), "ttl": None, "time": None},
    Deduplicate: {"store": "s", "by": KEY, "ttl": "1 day", "time": "at"},
    TableJoin: {"store": "s", "by": KEY, "columns": {"n": "int64"}, "how": "left", "order_by": ["n"], "deleted": None,
                "ttl": None, "time": None},
    PerKey: {"store": "s", "function": per_key, "by": KEY, "state": {"n": "int64"}, "output": {"n": "int64"},
             "ttl": None, "time": None, "event_time": None, "delay": None},
    ParquetSink: {"path": "out"},
    ForeachBatch: {"function": print},
    **{function: {"column": "n", "type": "int64"} for function in (sum_, min_, max_, first, last, avg)},
    count: {"column": "n"},
}  # fmt: skip


@pytest.mark.parametrize("made", PROCESSORS, ids=lambda made: made.__name__)
def test_processors_and_sinks(made):
    each(made, **PROCESSORS[made])


# ------------------------------------------------------------------------- Placed


def counted(world: World, *sources: str) -> Topology:
    topo = Topology("t")
    for name in sources or ("in",):
        source = topo.source(name, key="k", partitions=2)
        source.process(Count(f"n-{name}", by=KEY), name=f"n-{name}")
    return topo


def words(*keys: str) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.string())})


def test_every_parameter_of_placed(world):
    base = {
        "topology": counted(world), "checkpoint": world.folder / "c", "state_dir": world.folder / "s", "config": None,
        "snapshot_interval": 10, "snapshot_bytes": 10, "follower_share": 0.1, "compression": "lz4",
        "bytes_per_task": 100, "locality_wait_ms": 5, "tags": None, "weights": None, "idle_closing": None,
        "reporter": None,
    }  # fmt: skip
    each(lambda **given: Placed(world.spark, bridge=world, **given).close(), **base)
    for host in WRONG:
        clean(Placed, world.spark, bridge=world, **{**base, "tags": {"h": host}})
        clean(Placed, world.spark, bridge=world, **{**base, "weights": {"0": host}})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"compression": "lz5"}, r"^compression: found 'lz5', expected .*; did you mean 'lz4'\?"),
        ({"snapshot_interval": "10"}, r"^snapshot_interval: found '10', expected an integer of at least 1"),
        ({"checkpoint": ""}, "^checkpoint: found '', expected a directory"),
        ({"topology": "t"}, "^topology: found 't', expected a topology"),
        ({"tags": ["zone"]}, "^tags: found"),
        ({"weights": {"0_9": 2}}, "^weights.0_9: found an unknown key"),
    ],
)
def test_a_parameter_of_placed_is_named(world, given, message):
    base = {"topology": counted(world), "checkpoint": world.folder / "c", "state_dir": world.folder / "s"}
    with pytest.raises(InputError, match=message):
        Placed(world.spark, **{**base, **given}, bridge=world)


def test_every_parameter_of_what_is_called_on_it(world):
    placed = world.open(counted(world))
    world.batch(placed, 0, **{"in": words("a", "b")})
    store = placed.store("n-in")
    for wrong in WRONG:
        for call in (
            placed.start, placed.unite, placed.drain, placed.undrain, placed.can_remove, placed.removal, placed.store,
            store.get, store.get_many, steer,
        ):  # fmt: skip
            clean(call, wrong)
        clean(placed.start, {"in": wrong})
        clean(placed.start, {"in": words()}, trigger=wrong)
        clean(placed.process_batch, wrong, 1)
        clean(placed.process_batch, world.frame(placed, {"in": words()}), wrong)
        for how in ("copies", "max_lag", "max_batches", "copy"):
            clean(placed.store, "n-in", **{"copies": "standby", how: wrong})
        clean(store.get, {"k": wrong})
        clean(store.get_many, [wrong])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p.drain(9), r"^executor: found 9, expected executor-1, the only executor$"),
        (lambda p: p.drain(None), "^executor: found nothing, expected an id like '3' or 'executor-3'"),
        (lambda p: p.store("n-inn"), r"^store: found 'n-inn', .*did you mean 'n-in'\?"),
        (lambda p: p.store("n-in", copy="standby"), r"copy: found 'copy', .*did you mean 'copies'\?"),
        (lambda p: p.store("n-in").get_many([{"k": "a"}]), r"^keys: found \[.*expected a pyarrow\.Table"),
        (lambda p: p.store("n-in").get_many({"k": ["a"]}), r"^keys: found \{.*expected a pyarrow\.Table"),
        (lambda p: p.store("n-in").get_many(pa.table({"kk": ["a"]})), r"^keys\.k: found \['kk'\].*did you mean 'kk'\?"),
        (lambda p: p.store("n-in").get_many(pa.table({"k": [[1]]})), r"^keys\.k: found 'list<.*expected string"),
        (lambda p: p.store("n-in").get("a"), r"^key: found 'a', expected a value for each of \['k'\]"),
        (lambda p: p.store("n-in").get({"k": 5}), r"^key\.k: found 5, expected string"),
        (lambda p: p.start({"in": None}), r"^sources\.in: found nothing, expected a Spark data frame"),
        (lambda p: p.process_batch(words("a"), 1), r"(?s)^process_batch: df: found .*the data frame of the batch"),
        (lambda p: p.process_batch(words("a").to_pandas(), 1), r"(?s)^process_batch: df: found .*expected the data"),
        (lambda p: p.process_batch("in", 1), r"^process_batch: df: found 'in', expected the data frame of the batch"),
        (lambda p: p.start([]), r"^sources: found \[\], expected a data frame for each"),
        (lambda p: p.start({}, trigger={"processingtime": "1 s"}), r"^trigger\.processingtime: .*'processingTime'\?"),
        (lambda p: p.start({}, trigger={"processingTime": "10"}), r"^trigger\.processingTime: .*'10 seconds'"),
        (lambda p: p.start({}, trigger="10 seconds"), r"^trigger: found '10 seconds', expected \{'processingTime'"),
    ],
)  # fmt: skip
def test_what_was_wrong_with_a_call_is_named(world, call, message):
    placed = world.open(counted(world))
    world.batch(placed, 0, **{"in": words("a", "b")})
    with pytest.raises(InputError, match=message):
        call(placed)


def test_a_key_that_its_type_cannot_hold_is_no_other_key(world):
    topo = Topology("t")
    topo.source("in", key="id", partitions=2).process(Count("n", by={"id": "int64"}), name="c")
    placed = world.open(topo)
    world.batch(placed, 0, **{"in": pa.table({"id": [1, 2]})})
    store = placed.store("n")
    for key in (1.5, 2.0, Decimal("1.5"), np.float32(1.5), True, "1", datetime.datetime(2026, 1, 1), 2**70):
        with pytest.raises(InputError, match=r"^key\.id: found .*, expected int64.*; "):
            store.get({"id": key})
    with pytest.raises(InputError, match=r"^keys\.id: found "):
        store.get_many(pa.table({"id": [1.5]}))
    assert store.get({"id": 1}) == store.get({"id": np.int8(1)}) == {"count": 1}


# ------------------------------------------------------------------------- the two checkpoints


def sparks(world: World, *, query: str | None = "query", planned: int = -1, ended: int = -1) -> None:
    """Write what Spark's own checkpoint has."""
    root = world.folder / "checkpoint" / "spark"
    for log, newest in (("offsets", planned), ("commits", ended)):
        (root / log).mkdir(parents=True, exist_ok=True)
        for batch in range(newest + 1):
            (root / log / str(batch)).write_text("v1\n{}")
    if query is not None:
        (root / "metadata").write_text(json.dumps({"id": query}))


class Streaming(SimpleNamespace):
    """A streaming data frame that nothing may be asked of yet."""

    isStreaming = True  # noqa: N815 - as data frames call it
    columns = ("k",)
    schema = select = None

    @property
    def writeStream(self) -> Any:
        raise AssertionError("Spark's query starts")


@pytest.mark.parametrize(
    ("batches", "spark", "message"),
    [
        (0, {"planned": 0, "ended": 0}, "found Spark's checkpoint .*at batch 1, but no committed batch"),
        (0, {"planned": 3, "ended": 2}, "found Spark's checkpoint .*at batch 3, but no committed batch"),
        (2, None, "found placed state up to batch 1 .*but no Spark checkpoint"),
        (2, {"query": None, "planned": 1, "ended": 1}, 'metadata: is lost.*: echo .*"id": "query".* > '),
        (2, {"query": "other", "planned": 1, "ended": 1}, "to Spark's query 'query', found .* 'other'"),
        (2, {}, "Spark's checkpoint .*is at batch 0, the placed state at batch 1"),
        (2, {"planned": 5, "ended": 4}, "Spark's checkpoint .*is at batch 5, the placed state at batch 1"),
        (0, None, ""),
        (0, {"planned": 0}, ""),
        (2, {"planned": 1, "ended": 0}, ""),
        (2, {"planned": 1, "ended": 1}, ""),
        (2, {"planned": 2, "ended": 1}, ""),
    ],
)
def test_a_half_of_the_checkpoints_that_is_missing_is_named_before_spark_starts(
    world, monkeypatch, batches, spark, message
):
    placed = world.open(counted(world))
    for batch in range(batches):
        world.batch(placed, batch, **{"in": words("a")})
    if spark is not None:
        sparks(world, **spark)
    again = world.open(counted(world))
    monkeypatch.setattr(again, "unite", lambda sources, **_: sources["in"])
    expected, message = (CheckpointError, message) if message else (AssertionError, "Spark's query starts")
    with pytest.raises(expected, match=message):
        again.start({"in": Streaming()})


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (("a", "b", "c"), r"created with the sources a, b, found a, b, c: 'c' is new"),
        (("a",), r"'b' is missing"),
        (("b", "a"), r"another order"),
        (("a", "x"), r"'x' is new, 'b' is missing"),
    ],
)
def test_sources_that_come_or_go_are_named_at_the_start(world, sources, message):
    placed = world.open(counted(world, "a", "b"))
    world.batch(placed, 0, a=words("x"), b=words("y"))
    with pytest.raises(CheckpointError, match=message):
        world.open(counted(world, *sources))
    world.batch(world.open(counted(world, "a", "b")), 1, a=words("x"), b=words("y"))


def two_nodes(one: Any, other: Any, **stores: Any) -> Topology:
    topo = Topology("t")
    rows = topo.source("in", key="k", partitions=2)
    rows.process(one, name="a", **stores)
    rows.process(other, name="b", **stores)
    return topo


SAME = Count("n", by=KEY)


@pytest.mark.parametrize(
    ("one", "other"),
    [(SAME, SAME), (SAME, Count("n", by=KEY)), (Deduplicate("n", by=KEY), Deduplicate("n", by=KEY))],
)
def test_one_store_of_two_operators_is_refused_unless_both_nodes_name_it(one, other):
    says = rf"^stores\.n: found .*of node 'a' and {type(one).__name__} of node 'b'.*name it at each .*stores=\['n'\]"
    with pytest.raises(InputError, match=says):
        programs(two_nodes(one, other).build())
    (shared,) = programs(two_nodes(one, other, stores=["n"]).build())
    assert [operator.stores for operator in shared.operators[1:]] == [("n",), ("n",)]


# -- What `Placed` refuses before it looks at Spark, or at any file


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"checkpoint": "s3://bucket/cp"}, "checkpoint: found 's3://bucket/cp', .*, or a file:// URI"),
        (
            {"checkpoint": "/data/[prod]/cp"},
            r"checkpoint: found '/data/\[prod\]/cp', expected a path without",
        ),
        ({"checkpoint": "file:///data/%7Bx%7D"}, r"checkpoint: found '/data/\{x\}', expected a path without"),
        ({"checkpoint": "file://nas/cp"}, "checkpoint: found 'file://nas/cp', .*'nas' would be another host"),
        ({"state_dir": "file://nas:99/state"}, "state_dir: found 'file://nas:99/state', .*another host"),
        ({"checkpoint": "file:///data/cp?x=1"}, r"checkpoint: .*\? and # are written %3F and %23"),
        ({"checkpoint": "file:cp"}, "checkpoint: found 'file:cp', .*has an absolute path"),
        ({"checkpoint": Path("file://nas/cp")}, "checkpoint: found 'file:/nas/cp', .*give a URI as text"),
        ({"checkpoint": " "}, "checkpoint: found ' ', expected a directory"),
        ({"state_dir": "s3:/bucket/state"}, "state_dir: found 's3:/bucket/state', .*another file system"),
        ({"state_dir": "hdfs://host/state"}, "state_dir: found 'hdfs://host/state', expected a path"),
        ({"follower_share": 0}, "follower_share: found 0, expected a number above 0, at most 1"),
        ({"snapshot_interval": 0}, "snapshot_interval: found 0, expected an integer of at least 1"),
    ],
)
def test_options_that_make_no_sense(tmp_path, options, message):
    where = {"checkpoint": tmp_path / "cp", "state_dir": tmp_path / "state"}
    with pytest.raises(InputError, match=message):
        Placed(None, topology(tmp_path), **{**where, **options})


@pytest.mark.parametrize("path", ["s3://bucket/out", "file://nas/out", "file:out", ""])
def test_output_is_never_written_to_a_directory_that_is_called_like_a_uri(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"ParquetSink\.path: found "):
        ParquetSink(path)
    assert ParquetSink("file://localhost/out%20put").path == Path("/out put")
    assert not any(tmp_path.iterdir())


def test_a_rack_aware_strategy_is_refused_with_what_serves_instead(tmp_path):
    config = {"rack.aware.assignment.strategy": "min_traffic"}
    where = {"checkpoint": tmp_path / "cp", "state_dir": tmp_path / "state"}
    with pytest.raises(ConfigError, match=r"rack\.aware\.assignment\.tags spreads standbys"):
        Placed(None, topology(tmp_path), config=config, **where)
    assert not any(tmp_path.iterdir())
