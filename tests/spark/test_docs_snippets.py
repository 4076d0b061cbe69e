"""Code of README.md, quickstart.md, runtime.md, kafka.md and steering.md: it runs, without Spark where that is enough.

Names that a page takes for granted (`spark`, `flights_df`) are given. What a stand-in of the cluster cannot run, such
as the writer of a query, only records the calls that are made.
"""

from __future__ import annotations

import inspect
import logging.config
import os
import re
import subprocess
import sys
from unittest.mock import MagicMock

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from taskplace.errors import InputError
from taskplace.model.placed_options import PlacedOptions
from taskplace.spark import ParquetSink, Placed
from taskplace.spark.processors import Aggregate, Count, Deduplicate, Tumbling, avg, count, sum_
from tests.support.pages import ROOT, blocks
from topology import Topology

NAMES = {kind.__name__: kind for kind in (Aggregate, Count, Deduplicate, Tumbling, sum_, ParquetSink, Placed)}
NAMES |= {"pa": pa, "pc": pc}


@pytest.fixture
def on_world(world, monkeypatch):
    """Run code with `Placed` on the stand-in of a cluster, and with its directory in place of /data."""
    made = []

    def placed(spark, topology, **options):
        made.append(Placed(world.spark, topology, bridge=world, **options))
        monkeypatch.setattr(made[-1], "start", MagicMock(name="start"))
        monkeypatch.setattr(made[-1], "unite", MagicMock(name="unite"))
        return made[-1]

    monkeypatch.setattr("taskplace.spark.Placed", placed)
    world.come(1)

    def run(text, **names):
        names = {**NAMES, "Placed": placed, "spark": MagicMock(name="spark"), **names}
        for path in ("/data", "/var/tmp"):
            text = text.replace(f'"{path}/', f'"{world.folder}/')
        exec(compile(text, "page", "exec"), names)
        return names

    run.placed = made
    return run


def delays():
    topology = Topology("delays")
    flights = topology.source("flights", key="tailnum", partitions=2)
    topology.source("weather", key="tailnum", partitions=2)
    stats = Aggregate("delays", by={"tailnum": "string"}, flights=count(), mean=avg("dep_delay"))
    return topology, flights.process(stats)


def test_the_stream_of_the_readme(on_world, world):
    (text, *_) = blocks("README.md", "python")
    names = on_world(text, df=MagicMock(name="df"))
    rows = pa.table({"tailnum": ["a", "a", "b"], "dep_delay": [1, 3, 7]})
    world.batch(names["placed"], 0, flights=rows)
    assert world.sent("out") == {0: [("a", 2, 2.0), ("b", 1, 7.0)]}
    assert names["placed"].start.call_args.args == ({"flights": names["df"]},)
    assert len([line for line in text.splitlines() if line.strip()]) <= 10


def test_the_engine_of_the_readme(on_world):
    plan = on_world(blocks("README.md", "python")[2])["plan"]
    assert {name: len(roles.active) for name, roles in plan.assignment.items()} == {"a": 1, "b": 1}


def test_the_quick_start_is_short_and_counts(on_world, world, monkeypatch, tmp_path):
    """Ten lines behind the imports, and paths below the current directory."""
    monkeypatch.chdir(tmp_path)
    (text,) = blocks("docs/quickstart.md", "python")
    lines = [line for line in text.splitlines() if line.strip()]
    assert len([line for line in lines if not line.startswith("from ")]) <= 10
    assert '"/' not in text
    monkeypatch.setattr("pyspark.sql.SparkSession", MagicMock(name="SparkSession"))
    placed = on_world(text)["placed"]
    (call,) = placed.start.call_args_list
    assert (set(call.args[0]), call.kwargs) == ({"words"}, {"trigger": {"availableNow": True}})
    world.batch(placed, 0, words=pa.table({"value": ["the", "cat", "the"]}))
    assert world.stored(placed, "seen") == [("cat", 1), ("the", 2)]
    assert placed.store("seen").get({"value": "the"}) == {"count": 2}


@pytest.mark.spark
@pytest.mark.long
def test_the_quick_start_runs_on_spark_as_it_is_written(tmp_path):
    """Twice: the second run goes on after the last batch of the first one."""
    (text,) = blocks("docs/quickstart.md", "python")
    (tmp_path / "words.py").write_text(text)
    page = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    shell = "\n".join(re.findall(r"^ {4}((?:mkdir|echo) .*)$", page, re.M))
    subprocess.run(["sh", "-e", "-c", shell], cwd=tmp_path, check=True)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    for word, times in (("", 2), ("the end", 3)):
        if word:
            (tmp_path / "data" / "in" / "second.txt").write_text(word)
        done = subprocess.run(
            [sys.executable, "words.py"], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-4_000:]
        assert f"{{'count': {times}}}" in done.stdout.splitlines()
        assert "ERROR" not in done.stderr


def test_a_stream_of_runtime_is_started_and_read(on_world, world):
    start, own, *_, read = blocks("docs/runtime.md", "python")
    topology, stats = delays()
    stats.sink("out", target=ParquetSink(world.folder / "out"))
    frames = {"flights_df": MagicMock(), "weather_df": MagicMock()}
    names = on_world(f"{start}\n{own}", topology=topology, **frames)
    placed = names["placed"]
    for call in (placed.start, placed.unite):
        assert set(call.call_args.args[0]) == {"flights", "weather"}
    rows = pa.table({"tailnum": ["N14228"], "dep_delay": [5]})
    world.batch(placed, 0, flights=rows, weather=rows)
    keys = pa.table({"tailnum": ["N14228", "no"]})
    *others, last = read.strip().splitlines()
    on_world("\n".join(others), placed=placed, keys=keys)
    kept = placed.store("delays").get({"tailnum": "N14228"})
    assert kept == {"flights": 1, "mean_sum": 5.0, "mean_count": 1}
    assert last == 'standbys.get({"tailnum": "N14228"})'  # there is one executor, and so no standby


def test_the_processor_of_runtime(on_world, world):
    names = on_world(blocks("docs/runtime.md", "python")[2])
    topology = Topology("t")
    latest = topology.source("in", key="id", partitions=1).process(names["Latest"](), name="latest")
    latest.sink("out", target=ParquetSink(world.folder / "out"))
    placed = world.open(topology)
    stamps = pa.timestamp("us", "UTC")
    for number, times in enumerate(([5, 6], [4])):
        rows = pa.table({"id": ["a"] * len(times), "at": pa.array(times, stamps)})
        world.batch(placed, number, **{"in": rows})
    assert [row[1].microsecond for row in world.stored(placed, "latest")] == [6]


def test_counting_changes_is_refused_as_runtime_says(on_world, world):
    topology = Topology("t")
    views = topology.source("views", key="page", partitions=1)
    counts = views.process(Count("counts", by={"page": "string", "country": "string"}))
    on_world(blocks("docs/runtime.md", "python")[3], counts=counts)
    with pytest.raises(InputError, match="over_changes=True"):
        world.open(topology)


def test_the_windows_of_runtime_can_be_opened(on_world, world):
    _, _, _, _, once, quarters, sink, _ = blocks("docs/runtime.md", "python")
    topology = Topology("t")
    names = on_world(f"{once}\n{quarters}", topology=topology)
    names["hours"].sink("hours", target=ParquetSink(world.folder / "hours"))
    world.open(topology)
    other, stats = delays()
    on_world(sink, stats=stats)
    assert other.build().node("out").options["schema"] == {"tailnum": "string", "flights": "int64"}


def test_the_handle_of_steering_has_the_methods_of_the_page(monkeypatch):
    from taskplace.spark.steering.steering import Steering

    (text,) = blocks("docs/steering.md", "python")
    handle = MagicMock(spec=Steering)
    monkeypatch.setattr("taskplace.spark.steer", lambda query: handle)
    exec(text, {"query": object()})
    assert handle.decommission.call_args.args == ("3",)


def test_the_kafka_code_describes_sources_and_sinks(on_world, monkeypatch):
    pytest.importorskip("confluent_kafka")
    decoding, letters, letters_sink, counts, reading, sink = blocks("docs/kafka.md", "python")
    topology = Topology("t")
    names = on_world(decoding.partition("topology.source")[0], cluster={}, topology=topology)
    before = on_world(letters.replace("target=...", "target=object()"), topology=topology)
    assert topology.build().node("bad").kind == "processor"
    after = {name: before[name] for name in ("source", "DeadLetters")}
    on_world(letters_sink, **after)
    assert topology.build().node("bad-flights").kind == "sink"
    monkeypatch.setattr("taskplace.spark.kafka.records.KafkaRecords.partitions", lambda self: 12)
    read = on_world(reading.partition("placed.start")[0], decoder=names["decoder"], topology=Topology("u"))
    monkeypatch.setattr("taskplace.spark.kafka.offsets.KafkaTopic.partitions", lambda self: 12)
    declared = counts.partition("if built")[0]
    counted = on_world(declared, flights=read["flights"], topology=Topology("c"))
    assert counted["built"].readiness()
    totals = Topology("v").source("in", key="customer", partitions=1)
    on_world(sink, totals=totals)


# -- The code of metrics.md runs: the numbers of a stream, the endpoint, the listener, the lines of the l


class _Nowhere:
    def publish(self, spark, batch_id, files):
        """Drop the rows."""


def test_the_code_of_the_page_runs(world, monkeypatch):
    topology = Topology("t")
    source = topology.source("in", key="k", partitions=1)
    source.process(Count("n", by={"k": "string"}), name="n").sink("out", target=_Nowhere())
    world.come(1)
    placed = world.open(topology)
    world.batch(placed, 0, **{"in": pa.table({"k": ["a"]})})
    numbers, endpoint, registry, listener, log = blocks("docs/metrics.md", "python")
    names = {"placed": placed, "spark": MagicMock(name="spark"), "logging": logging}
    exec(numbers, names)
    assert names["metrics"]["rebalance-total"] == 1
    exec(endpoint.replace("port=9404", "port=0"), names)
    assert names["server"].url.endswith("/metrics")
    own = "import CollectorRegistry\nREGISTRY = CollectorRegistry()"
    exec(registry.replace("import REGISTRY", own), names)
    exec(listener, names)
    (call,) = names["spark"].streams.addListener.call_args_list
    assert type(call.args[0]).__name__ == "MetricsListener"
    before = logging.getLogger("taskplace").handlers[:]
    exec(log, names)
    monkeypatch.setattr(logging.getLogger("taskplace"), "handlers", before)
    placed.close()


# -- The table of arguments in docs/runtime.md has the arguments of `Placed`


RUNTIME = ROOT / "docs" / "runtime.md"


def test_the_table_has_each_argument_of_placed_once():
    text = RUNTIME.read_text(encoding="utf-8").partition("\n| argument | meaning | default |\n")[2]
    rows = text.partition("\n\n")[0].splitlines()[1:]
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row.split(" | ")[0])]
    keywords = inspect.signature(Placed).parameters.values()
    own = [p.name for p in keywords if p.kind is p.KEYWORD_ONLY]
    assert sorted(listed) == sorted([*own, *(key.field for key in PlacedOptions.declared_keys())])
