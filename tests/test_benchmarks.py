"""Spark benchmarks in their smallest form: they run to the end, check their own results, and say everything."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]


def run(name: str, tmp_path: Path) -> tuple[dict, str]:
    file = tmp_path / "figures.json"
    command = [sys.executable, str(ROOT / "benchmarks" / name), "--quick", "--json", str(file)]
    done = subprocess.run(
        [*command, "--scratch", str(tmp_path)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [], "it has left something behind"
    return json.loads(file.read_text()), done.stdout


def test_recovery(tmp_path):
    figures, text = run("bench_recovery.py", tmp_path)
    (variants,) = figures["results"].values()
    assert set(variants) == {"placed, 1 standby", "placed, no standby", "native agg"}
    for name, found in variants.items():
        (kill,) = found["kills"]
        assert kill["tasks"] > 0 and kill["to_commit"] > 0 and kill["second"] > 0, name
        assert name in text
    with_standby = variants["placed, 1 standby"]
    assert with_standby["promotions"] >= with_standby["kills"][0]["tasks"]
    assert figures["machine"]["pyspark"] and figures["load_1min"]


def test_throughput(tmp_path):
    figures, text = run("bench_throughput.py", tmp_path)
    sizes = [found for name, found in figures.items() if name.endswith(" keys")]
    placed_and_native = {"placed, Parquet", "placed, no sink", "native agg, noop", "native agg, Parquet"}
    placed_and_native.add("native agg, noop, logs as placed")
    pandas = {"transformWithStateInPandas, noop", "applyInPandasWithState, noop"}
    assert [set(found) for found in sizes] == [placed_and_native, placed_and_native | pandas]
    for found in sizes:
        for name, one in found.items():
            assert one["rows_per_second"] > 0 and one["empty_seconds"] > 0, name
            assert name in text
    for kind in ("back to back", "with idle time"):
        assert figures["standbys"][kind]["ratio"] > 0
    assert figures["standbys"]["followed records, 1 standby"] > 0
    assert figures["standbys"]["followed records, 0 standby"] == 0


def test_latency(tmp_path):
    figures, text = run("bench_latency.py", tmp_path)
    sizes = [found for name, found in figures.items() if name.endswith(" rows")]
    assert len(sizes) == 2
    for found in sizes:
        assert set(found) == {"placed, Parquet", "placed, no sink", "native agg, noop", "native agg, Parquet"}
        for name, one in found.items():
            assert 0 < one["p50"] <= one["p99"], name
            assert one["spans"]["triggerExecution"] > 0, name
            assert name in text


def test_snapshot_of_a_large_copy(tmp_path):
    figures, text = run("bench_snapshot_executor.py", tmp_path)
    assert list(figures["steps"]) == ["fill half", "snapshot of half", "fill", "snapshot", "restore", "read"]
    for name, found in figures["steps"].items():
        assert found["worker"] > 0 and found["jvm"] > 0 and found["seconds"] > 0, name
        assert name in text
    assert figures["restored"] * 400 > 60 << 20  # entries of 400 bytes; the run is for 64 MiB


def test_ticks(tmp_path):
    figures, text = run("bench_ticks.py", tmp_path)
    for name in ("with ticks", "without ticks"):
        assert len(figures[name]["seconds"]) == 3
        assert name in text
    assert set(figures["unite"]) == {"3", "500"}


def test_restart(tmp_path):
    figures, text = run("bench_restart.py", tmp_path)
    (variants,) = figures["results"].values()
    assert set(variants) == {"placed, state kept", "placed, state lost", "native"}
    for name, found in variants.items():
        (restart,) = found["restarts"]
        assert restart["session"] > 0 and restart["first"] > 0, name
        assert restart["without_session"] == pytest.approx(restart["start"] + restart["first"]), name
        assert name in text
    (kept,), (lost,) = (variants[f"placed, state {how}"]["restarts"] for how in ("kept", "lost"))
    assert kept["scratch"] == kept["restored"] == 0
    assert lost["scratch"] == 12 and lost["restored"] > 0


def test_scale_out(tmp_path):
    figures, text = run("bench_scale_out.py", tmp_path)
    found = figures["scale-out"]
    assert found["moves"]["moves"] + found.get("starts", {}).get("moves", 0) >= 4  # a third of 12 tasks
    assert found["before"]["slowest"] > 0 and found["balanced_after"] >= found["member_after"] > 0
    assert "slowest / median before" in text


def test_files_of_a_checkpoint(tmp_path):
    figures, text = run("bench_files.py", tmp_path)
    state, spark = (figures["3 batches"][part]["3"] for part in ("placed", "spark"))
    assert set(state) >= {"changelog", "manifests", "epochs", "batches/attempts", "batches/topics"}
    assert set(spark) >= {"spark/offsets", "spark/commits", "spark/sources", "spark/metadata"}
    for part in (state, spark):
        together = [sum(some[i] for name, some in part.items() if name != "all") for i in range(2)]
        assert part["all"] == together and min(together) > 0
    assert "batches/topics" in text and "both parts after 3 batches" in text


def test_restore(tmp_path):
    figures, text = run("bench_restore.py", tmp_path)
    found = figures["restore"]
    assert found["bytes"] > 1_900_000
    assert set(found["seconds"]) == {"restore, 1 slot", "restore, 2 slots", "cp"}
    assert all(map(all, found["seconds"].values())) and all(map(all, found["processor"].values()))
    assert all(seconds > 0 for seconds in found["steps"].values())
    assert "speed of cp" in text


def test_profile_of_a_batch(tmp_path):
    figures, text = run("profile_batch.py", tmp_path)
    assert all(spans["whole batch"] > spans["stage 1"] > 0 for spans in figures["critical path"])
    assert figures["processor time"]["executors, Python workers / all threads"] > 0
    assert "Processor time of a batch" in text


@pytest.mark.kafka
def test_beside_kafka_streams(tmp_path):
    figures, text = run("bench_kafka_streams.py", tmp_path)
    results = figures["results"]
    kinds = {name.rpartition(", ")[0] for name in results}
    assert kinds == {"taskplace", "Kafka Streams, classic", "Kafka Streams, streams"} and len(results) == 6
    for name, found in results.items():
        assert name in text
        assert found["checked"][0]["orders"] >= found["checked"][0]["outputs"] > 0, name
        assert (
            found["throughput"][0]["rate"] > 0
            and 0 < found["latency"][0]["p50"] <= found["latency"][0]["p99"]
        ), name
        assert found["scale-out"][0]["moves"] >= 4, name  # a third of 12 tasks
        for part in ("kill", "stop"):
            (loss,) = found[part]
            assert len(loss["lost"]) == 4 and loss["detection"] > 0 and loss["takeover"] > 0, (name, part)
            assert loss["settled"] >= loss["balanced"] > 0, (name, part)
        session = 6.0  # of --quick
        assert found["stop"][0]["detection"] > session / 2, name


def test_calls(tmp_path):
    figures, text = run("bench_calls.py", tmp_path, "--tasks", "12")
    assert set(figures["calls"]) == {"12 tasks", "12 tasks, empty"}
    for name, found in figures["calls"].items():
        assert found["calls into the JVM"] > 0 and found["fsync"] > 0, name
        assert name in text
