"""`taskplace pack`, and the keys that send what executors lack: libraries and an application's modules."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import zipfile
from contextlib import redirect_stdout
from io import StringIO

import pytest

from taskplace.cli import main
from taskplace.spark.session_conf import application_properties
from taskplace.spec.application import Settings

#: What workers of a stream import, and of a topic that tasks read.
IMPORTED = """import pyarrow.compute, pyarrow.ipc, confluent_kafka, fastavro, lmdb
import taskplace.spark.worker, taskplace.spark.kafka, taskplace.spark.processors, taskplace.spark.state, topology
topology.Topology("t").source("s", key=["k"], partitions=2)"""


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    out = tmp_path_factory.mktemp("packed") / "environment.tar.gz"
    with redirect_stdout(StringIO()) as said:
        assert main(["pack", str(out), "--with", "jinja2", "--output", "json"]) == 0
    assert json.loads(said.getvalue())["packages"].keys() >= {"numpy", "pyarrow", "lmdb", "msgspec", "Jinja2"}
    return out


def test_a_python_without_packages_runs_workers_with_the_archive_alone(packed, tmp_path):
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path, filter="data")
    begin = f"import sys; sys.path.append({str(tmp_path)!r})"
    lines = [begin, IMPORTED, "import jinja2", "print(taskplace.__file__)"]
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    )
    assert ran.stdout.startswith(str(tmp_path))


def test_what_no_worker_loads_is_left_out(packed):
    with tarfile.open(packed) as archive:
        names = archive.getnames()
    assert "numpy/__init__.py" in names
    assert not [name for name in names if "/tests/" in name or "/include/" in name or "_flight" in name]
    assert not [name for name in names if name.startswith(("pandas/", "ortools/", "pyspark/", "/", "."))]


def test_a_library_that_is_not_installed(tmp_path, capsys):
    assert main(["pack", str(tmp_path / "e.tar.gz"), "--with", "no-such-library"]) == 2
    assert "--with: found 'no-such-library', expected a library that is installed" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]
    assert main(["pack", str(tmp_path / "none" / "e.tar.gz")]) == 2
    assert "expected a file that can be written (No such file" in capsys.readouterr().err


def test_the_archive_is_unpacked_on_the_path_of_workers_before_all_else(tmp_path):
    application = {"id": "demo", "class": "shop.orders:Orders"}
    spark = {"environment": str(tmp_path / "e.tar.gz"), "conf": {"spark.archives": "a.zip#a"}}

    def properties(**more):
        settings = Settings.from_mapping({"application": application, "spark": {**spark, **more}})
        return {each.name: each.value for each in application_properties(settings)}

    assert properties()["spark.archives"] == f"{tmp_path}/e.tar.gz#taskplace-environment,a.zip#a"
    assert properties()["spark.executorEnv.PYTHONPATH"].startswith("taskplace-environment:/")
    own = {"spark.executorEnv.PYTHONPATH": "/mine"}
    assert properties(conf=own)["spark.executorEnv.PYTHONPATH"] == "taskplace-environment:/mine"


def test_modules_are_sent_as_python_imports_them(tmp_path):
    from taskplace.spark.app import importable

    package, wheel = tmp_path / "shop", tmp_path / "shop-1.0-py3-none-any.whl"
    (package / "deep").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "deep" / "orders.py").write_text("")
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("shop/__init__.py", "")
    with zipfile.ZipFile(importable(package)) as sent:
        assert {"shop/__init__.py", "shop/deep/orders.py"} <= {*sent.namelist()}
    assert importable(wheel).endswith(".whl.zip")
    assert importable(tmp_path / "orders.py") == str(tmp_path / "orders.py")


@pytest.mark.parametrize("key", ["environment", "py.files"])
def test_a_file_to_send_that_is_missing_is_named_before_spark_starts(key):
    from taskplace.errors import ConfigError
    from taskplace.spark.app import session

    value = "/no/such" if key == "environment" else ["/no/such"]
    application = {"id": "demo", "class": "shop.orders:Orders"}
    settings = Settings.from_mapping({"application": application, "spark": {key: value}})
    with pytest.raises(ConfigError, match=rf"^spark\.{key}.*: found '/no/such', expected a file that exists"):
        session(settings)
