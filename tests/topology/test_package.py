"""The package from outside: what it exports, and how little an import costs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import topology


def test_public_names() -> None:
    assert topology.__all__ == [
        "BuiltTopology",
        "Evolution",
        "Node",
        "Readiness",
        "Reason",
        "Store",
        "Stream",
        "Subtopology",
        "Task",
        "TaskId",
        "TopicGroup",
        "TopicPartition",
        "Topology",
        "TopologyError",
        "TopologyNotReady",
        "compare",
        "group_topics",
        "violations",
    ]
    assert all(getattr(topology, name).__module__.startswith("topology.") for name in topology.__all__)
    assert set(topology.__all__) <= set(dir(topology))
    assert not hasattr(topology, "topologies")


def test_describing_needs_no_networkx() -> None:
    code = (
        "import sys; from topology import Topology, TaskId, TopologyError; "
        "Topology('t').source('a', partitions=2).process().sink(); "
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'networkx', 'numpy', 'ortools', 'yaml'}))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.strip() == "[]"


def test_the_benchmark_runs() -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "bench_topology.py"
    sizes = ["--nodes", "200", "--partitions", "400", "--pipelines", "20", "--repeat", "1"]
    found = subprocess.run(
        [sys.executable, str(script), *sizes],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(script.parents[1])},
    )
    assert found.returncode == 0, found.stderr
    assert "build + tasks" in found.stdout
    assert "0 violations" in found.stdout
    assert "new metadata" in found.stdout
