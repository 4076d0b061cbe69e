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
