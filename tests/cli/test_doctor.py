"""`taskplace doctor`: exit codes, text, JSON; the files of the project have no warnings; what cannot be read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

pytest.importorskip("pyspark")

from taskplace.cli import main
from taskplace.model.schema import schema
from tests.support.pages import blocks

ROOT = Path(__file__).parents[2]
#: Not below /tmp, where tests run: that is a finding of its own.
PLACES = ("--set", "state.dir=/data/state", "--set", "checkpoint.dir=/data/checkpoint")
ORDERS = {
    "application": {"id": "shop"},
    "spark": {"trigger.interval": "10 s"},
    "topology": {
        "sources": {"orders": {"key": "customer", "partitions": 4, "options": {"event_time": "at", "delay": "1 h"}}},
        "nodes": {
            "once": {
                "process": "orders",
                "processor": "deduplicate",
                "options": {"by": {"customer": "string", "id": "long"}},
            },
            "totals": {"sink": "once"},
        },
    },
    "input": {
        "orders": {
            "format": "parquet",
            "path": "in/orders",
            "schema": "id long, customer string, at timestamp",
            "options": {"maxFilesPerTrigger": 10},
        }
    },
    "output": {"totals": {"path": "out/totals"}},
}  # fmt: skip


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The file of a stream that keeps the ids of all orders for ever."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders.yaml").write_text(yaml.safe_dump(ORDERS))
    (tmp_path / "in/orders").mkdir(parents=True)
    return "orders.yaml"


def found(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict]:
    code = main(["doctor", *arguments, *PLACES, "--output", "json"])
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, schema("diagnosis"), cls=jsonschema.Draft202012Validator)
    return code, document


@pytest.mark.parametrize("file", ["conf/flights.yaml", "conf/kafka-flights.yaml", "conf/steer.yaml"])
def test_the_files_of_the_project_have_no_warnings(
    file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("KAFKA_SERVERS", "broker-1:9092,broker-2:9092")
    code, diagnosis = found(capsys, file)
    assert [f for f in diagnosis["findings"] if f["severity"] != "advice"] == []
    assert code == 0


def test_the_tutorial_has_no_warnings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    page = "docs/tutorial.md"
    (tmp_path / "shop.py").write_text(blocks(page, "python shop.py")[0])
    (tmp_path / "orders.yaml").write_text(blocks(page, "yaml orders.yaml")[-1])
    (tmp_path / "in/orders").mkdir(parents=True)
    code, diagnosis = found(capsys, "orders.yaml")
    assert [f for f in diagnosis["findings"] if f["severity"] != "advice"] == []
    assert code == 0


def test_warnings_have_a_code_of_their_own_and_a_pasted_remedy_ends_them(
    orders: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, diagnosis = found(capsys, orders)
    assert code == 6
    (finding,) = [f for f in diagnosis["findings"] if f["severity"] == "warning"]
    assert (finding["rule"], finding["path"]) == ("state-without-end", "topology.nodes.once.options.ttl")
    assert finding["remedy"] == (
        "--set 'topology.nodes.once.options.ttl=7 days' --set topology.nodes.once.options.time=at"
    )
    code, diagnosis = found(
        capsys,
        orders,
        "--set",
        "topology.nodes.once.options.ttl=7 days",
        "--set",
        "topology.nodes.once.options.time=at",
    )
    assert (code, diagnosis["counts"]["warning"]) == (0, 0)


def test_the_properties_of_spark(orders: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cluster.conf").write_text(
        "spark.master yarn\nspark.speculation true\nspark.executor.cores 4\n"
    )
    code, diagnosis = found(capsys, orders, "--spark-properties", "cluster.conf")
    rules = {f["rule"]: f["path"] for f in diagnosis["findings"]}
    assert code == 6
    assert rules["speculation"] == "cluster.conf: spark.speculation"
    assert (
        rules["worker-memory"] == "spark.conf.spark.executor.memoryOverhead"
    )  # of the master in the properties


def test_without_spark_the_topology_of_the_file_is_still_looked_at(
    orders: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taskplace.cli.doctor.NEEDED", ("pyspark", "no_such_package"))
    code, diagnosis = found(
        capsys, orders, "--set", "topology.sources.orders.partitions=96", "--set", "spark.master=yarn"
    )
    assert code == 6
    assert "warm-ups-slow" in [f["rule"] for f in diagnosis["findings"]]
    assert "they need no_such_package on" in diagnosis["rules"]["unable"]["state-without-end"]


def test_nothing_of_spark_is_loaded_where_it_is_not_installed(orders: str) -> None:
    program = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(['pyspark', 'py4j', 'pyarrow', 'lmdb', 'pandas', 'psutil']))\n"
        "from taskplace.cli import main\n"
        f"sys.exit(main(['doctor', {orders!r}, *{PLACES!r}]))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "they need pyspark, pyarrow and lmdb on this host" in done.stdout
