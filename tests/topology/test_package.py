"""The package from outside: how little an import costs, that its page is right, and that its benchmark runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import yaml

import topology
from topology import Topology

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "topology.md"


def test_public_names_and_an_import_without_networkx():
    assert all(getattr(topology, name).__module__.startswith("topology.") for name in topology.__all__)
    assert set(topology.__all__) <= set(dir(topology)) and not hasattr(topology, "topologies")
    code = (
        "import sys; from topology import Topology, TaskId, TopologyError; "
        "Topology('t').source('a', partitions=2).process().sink(); "
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'networkx', 'numpy', 'ortools', 'yaml'}))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.strip() == "[]"


def test_the_yaml_of_the_page_is_its_python():
    written = yaml.safe_load(PAGE.read_text().split("```yaml\n")[1].split("```")[0])
    registry = {"table-join": lambda: "join", "aggregate": lambda keep: keep}
    built = Topology.from_dict(written, registry).build()
    assert [(s.id, s.partitions, [n.name for n in s.nodes]) for s in built.subtopologies] == [
        (0, 12, ["flights", "weather", "with-weather", "by-aircraft"]),
        (1, 6, ["by-aircraft-source", "stats", "out"]),
    ]
    application = yaml.safe_load(PAGE.read_text().split("```yaml application")[1].split("```")[0])
    example = yaml.safe_load((ROOT / "examples" / "table_join.yaml").read_text())
    assert application == {name: example[name] for name in ("application", "topology", "input", "output")}


def test_the_benchmark_runs():
    script = ROOT / "benchmarks" / "bench_topology.py"
    sizes = ["--nodes", "200", "--partitions", "400", "--pipelines", "20", "--repeat", "1"]
    path = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script), *sizes]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env=path)
    assert "0 violations" in found.stdout and "new metadata" in found.stdout
