"""Showing the topology of an application in YAML, without Spark and without the extra."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from taskplace.cli import main
from taskplace.spark.registry import Registry
from taskplace.spark.stub_processors import STATEFUL, StubRegistry
from taskplace.spark.yaml_application import declared_topology
from taskplace.spec.application import Settings
from tests.support.shop import ORDERS
from topology import Topology, TopologyError

pytestmark = pytest.mark.usefixtures("own_module")

ROOT = Path(__file__).resolve().parents[2]
BLOCKED = "import sys\nfor name in sys.argv[1].split(','): sys.modules[name] = None\n"
WITHOUT_SPARK = "pyspark,py4j"
WITHOUT_THE_EXTRA = "pyspark,py4j,pyarrow,lmdb,pandas,psutil"


def command(missing, *arguments, where=ROOT):
    code = f"{BLOCKED}from taskplace.cli import main\nsys.exit(main(sys.argv[2:]))"
    return subprocess.run(
        [sys.executable, "-c", code, missing, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=where,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )


@pytest.mark.parametrize("missing", [WITHOUT_SPARK, WITHOUT_THE_EXTRA])
def test_a_topology_in_yaml_shows_without_spark(missing):
    shown = command(missing, "topology", "examples/table_join.yaml", "--output", "json")
    assert shown.returncode == 0, shown.stderr
    assert shown.stderr == ""
    known = declared_topology(Settings.load(ROOT / "examples/table_join.yaml")).build()
    assert json.loads(shown.stdout) == known.to_dict()


def test_a_class_that_needs_spark_is_one_error_that_names_the_extra(tmp_path):
    (tmp_path / "needy.py").write_text("import pyspark\nclass App:\n    pass\n")
    (tmp_path / "needy.yaml").write_text("application: {id: needy, class: 'needy:App'}\n")
    for arguments in (("topology", "needy.yaml"), ("run", "--check", "needy.yaml")):
        shown = command(WITHOUT_SPARK, *arguments, where=tmp_path)
        assert (shown.returncode, shown.stdout) == (2, "")
        assert shown.stderr.startswith(
            "taskplace: needy.yaml:1: application.class: found 'needy:App', expected"
        )
        assert "it needs 'pyspark" in shown.stderr
        assert shown.stderr.endswith("pip install 'taskplace[spark]'\n")
        assert shown.stderr.count("\n") == 1


@pytest.mark.parametrize("missing", [WITHOUT_SPARK, WITHOUT_THE_EXTRA])
def test_running_yaml_alone_without_spark_is_no_riddle(missing):
    shown = command(missing, "run", "--check", "examples/table_join.yaml")
    assert (shown.returncode, shown.stdout) == (2, "")
    assert shown.stderr.startswith(
        "taskplace: examples/table_join.yaml:14: topology: found 'no Spark', expected packages that can be imported"
    )
    assert shown.stderr.endswith("pip install 'taskplace[spark]'\n")


def test_processors_of_ones_own_need_the_extra_to_be_shown(tmp_path):
    (tmp_path / "own.yaml").write_text(
        "application: {id: own}\ntopology: {sources: {a: }, nodes: {x: {process: a, processor: 'm:f'}}}\n"
    )
    shown = command(WITHOUT_THE_EXTRA, "topology", "own.yaml", where=tmp_path)
    assert shown.returncode == 2
    assert "topology.nodes.x.processor: found 'm:f'" in shown.stderr
    assert "pip install 'taskplace[spark]'" in shown.stderr


def test_what_shows_without_arrow_is_what_there_is():
    assert set(STATEFUL) == set(Registry())
    assert {name: Registry().defaults(name, "n") for name in [*STATEFUL, "m:f"]} == {
        name: StubRegistry.defaults(name, "n") for name in [*STATEFUL, "m:f"]
    }
    with pytest.raises(TopologyError, match="'cuont', expected a registered processor; did you mean 'count'"):
        Topology.from_dict(
            {"name": "t", "sources": {"a": None}, "nodes": {"x": {"process": "a", "processor": "cuont"}}},
            StubRegistry(),
        )


def test_a_topology_shows_before_input_and_output_are_there(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    document = yaml.safe_load(ORDERS)
    del document["input"], document["output"]
    Path("orders.yaml").write_text(yaml.safe_dump(document))
    assert main(["topology", "orders.yaml", "--set", "topology.sources.orders.partitions=7"]) == 0
    shown = capsys.readouterr().out
    assert "Processor: once (stores: [once])" in shown
    assert "Sink: totals (topic: totals)" in shown
    assert "subtopology 0: 7 tasks, once, spent-by-customer" in shown
    assert main(["run", "--check", "orders.yaml"]) == 2, "running needs them"
    assert "output.totals" in capsys.readouterr().err
