"""Errors of executors reach the driver as text; those that a caller may act on get their type again."""

from __future__ import annotations

import sys
import traceback

import pytest

from taskplace.errors import CheckpointError, Fenced, InputError
from taskplace.spark.bridge.jobs import own_error
from taskplace.spark.sinks import ParquetSink
from taskplace.spark.worker.guard import DiskFull
from topology import Topology


class PythonException(Exception):
    """Named, and written, as PySpark's."""


def sent(raised: BaseException, cause: BaseException | None = None, after: str = "") -> PythonException:
    """Return what the driver gets when an executor raises."""
    try:
        raise raised from cause
    except BaseException:
        said = traceback.format_exc()
        return PythonException(f"An exception was thrown from the Python worker:\n{said}{after}")


@pytest.mark.parametrize("kind", [CheckpointError, DiskFull, Fenced])
@pytest.mark.parametrize("after", ["", "\n\nJVM stacktrace:\nx: y", "SQLSTATE: 38000"])
@pytest.mark.parametrize("cause", [None, OSError(28, "No space left on device")])
def test_errors_to_act_on_get_their_type_again(kind, after, cause):
    found = own_error(sent(kind("no space is left: /d; 0 MiB free"), cause, after))
    assert type(found) is kind
    assert str(found) == "no space is left: /d; 0 MiB free"


@pytest.mark.parametrize(
    "raised",
    [
        ValueError("taskplace.errors.Fenced: not at the line's beginning"),
        KeyError("a\ntaskplace.errors.Fenced: within text"),
        InputError("a.b", found=1, expected="2"),
        RuntimeError(),
    ],
)
def test_all_other_errors_stay_as_spark_brings_them(raised):
    assert own_error(sent(raised, Fenced("the cause is not the error"))) is None


@pytest.mark.parametrize("name", ["taskplace", "msgspec"])
def test_a_worker_with_another_python_is_told_in_one_line(name):
    found = own_error(sent(RuntimeError("Caused by"), ModuleNotFoundError(f"No module named {name!r}")))
    assert type(found) is InputError
    assert f"no module {name!r}" in str(found)
    assert f"set PYSPARK_PYTHON to its Python; the driver has {sys.executable}" in str(found)
    assert own_error(sent(ModuleNotFoundError("No module named 'mine'"))) is None


def test_a_module_that_the_driver_has_is_to_be_sent(tmp_path, monkeypatch):
    (tmp_path / "of_mine.py").touch()
    (tmp_path / "package_of_mine").mkdir()
    (tmp_path / "package_of_mine/__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    found = own_error(sent(ModuleNotFoundError("No module named 'of_mine'")))
    assert type(found) is InputError
    assert f"spark.sparkContext.addPyFile('{tmp_path}/of_mine.py') before the start" in str(found)
    found = own_error(sent(ModuleNotFoundError("No module named 'package_of_mine.inner'")))
    assert f"the driver has it in {tmp_path}: send it as a zip file" in str(found)
    assert own_error(sent(ModuleNotFoundError("No module named 'of_mine.inner'"))) is not None


def test_what_is_no_error_of_a_worker_stays_as_it_is():
    assert own_error(ValueError("Traceback (most recent call last):\ntaskplace.errors.Fenced: x")) is None
    assert own_error(PythonException("no traceback")) is None


def test_what_process_batch_raises(cluster, tmp_path):
    from pyspark.errors import PythonException as FromWorker

    from taskplace.spark import Placed

    def fail(context, rows):
        import pyarrow.compute as pc

        from taskplace.spark.worker.guard import DiskFull

        if pc.any(pc.equal(rows["k"], "full")).as_py():
            raise DiskFull("no space is left: /d")
        if pc.any(pc.equal(rows["k"], "own")).as_py():
            raise KeyError("my own")
        return rows.select(["k"] if pc.any(pc.equal(rows["k"], "other")).as_py() else rows.column_names)

    topo = Topology("t")
    source = topo.source("in", key="k", partitions=1)
    schema = {"k": "string", "v": "int64"}
    source.process(fail, name="fail").sink("o", target=ParquetSink(tmp_path / "out"), schema=schema)
    placed = Placed(cluster, topo, checkpoint=tmp_path / "c", state_dir=tmp_path / "s")
    try:
        placed.process_batch(cluster.createDataFrame([("fine", 1)], "k string, v long"), 0)
        for key, kind, says in (
            ("own", FromWorker, r"KeyError: 'my own'"),
            ("full", DiskFull, r"^no space is left: /d$"),
            ("other", FromWorker, r"taskplace\.errors\.InputError: .*v"),
        ):
            with pytest.raises(kind, match=says) as caught:
                placed.process_batch(cluster.createDataFrame([(key, 1)], "k string, v long"), 1)
            assert placed.error is caught.value
    finally:
        placed.close()
