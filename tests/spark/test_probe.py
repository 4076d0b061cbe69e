"""A Spark that lacks a private call is refused before anything starts, and the error says what works."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from py4j.protocol import Py4JJavaError

from taskplace.errors import InputError, UnsupportedSpark
from taskplace.spark.bridge.bridge import NEEDED, probe

RUNS = r"taskplace works with PySpark classic 3\.5, 4\.0, 4\.1, 4\.2 and 4\.3"


class _NoClassError(Py4JJavaError):
    def __init__(self) -> None:
        Exception.__init__(self, "ClassNotFoundException")


def session(without: str = "", without_class: str = "") -> Any:
    """Return a session whose JVM has all needed methods but one."""

    def methods(name: str) -> list[str]:
        if name == without_class:
            raise _NoClassError
        return [f"public void {name}.{method}(int)" for method in NEEDED[name] if method != without]

    found = SimpleNamespace(forName=lambda name: SimpleNamespace(getMethods=lambda: methods(name)))
    lang3 = SimpleNamespace(ArrayUtils=SimpleNamespace(toString=str))
    apache = SimpleNamespace(commons=SimpleNamespace(lang3=lang3))
    java = SimpleNamespace(lang=SimpleNamespace(Class=found))
    jvm = SimpleNamespace(java=java, org=SimpleNamespace(apache=apache))
    return SimpleNamespace(_jsparkSession=object(), sparkContext=SimpleNamespace(_jvm=jvm))


def test_a_spark_with_all_calls_is_accepted():
    probe(session())


@pytest.mark.parametrize(
    ("name", "method"), [(name, method) for name, methods in NEEDED.items() for method in methods]
)
def test_a_spark_without_a_call_is_refused_with_its_name(name, method):
    said = rf"PySpark {pyspark.__version__} has no {name.rpartition('.')[2]}\.{method}; {RUNS}"
    with pytest.raises(UnsupportedSpark, match=said):
        probe(session(without=method))


@pytest.mark.parametrize("name", NEEDED)
def test_a_spark_without_a_class_is_refused_with_its_name(name):
    with pytest.raises(UnsupportedSpark, match=rf"has no {name.rpartition('.')[2]}\.{NEEDED[name][0]};"):
        probe(session(without_class=name))


def test_other_versions_and_other_objects_are_refused(monkeypatch):
    with pytest.raises(InputError, match="a SparkSession"):
        probe("spark")  # type: ignore[arg-type]
    monkeypatch.setattr(pyspark, "__version__", "3.4.4")
    with pytest.raises(UnsupportedSpark, match=rf"found PySpark 3\.4\.4; {RUNS}"):
        probe(session())
