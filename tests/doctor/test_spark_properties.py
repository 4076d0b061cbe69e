"""Spark's properties: which value counts, where it is from, and what it says about executors."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest
from taskplace.spec.application import SparkSettings

from taskplace.doctor import SparkProperties, read_properties
from taskplace.doctor.known_properties import misspelled
from taskplace.errors import InputError


def of(master: str | None = None, /, file: dict[str, str] | None = None, **conf: str) -> SparkProperties:
    given = {f"spark.{name.replace('_', '.')}": value for name, value in conf.items()}
    return SparkProperties(SparkSettings(master=master, conf=given), file, "defaults.conf")


def test_the_application_has_priority_over_the_file() -> None:
    spark = of(file={"spark.locality.wait": "1s", "spark.speculation": "true"}, locality_wait="5s")
    assert spark.seconds("spark.locality.wait") == 5.0
    assert spark.where("spark.locality.wait") == "spark.conf.spark.locality.wait"
    assert spark.flag("spark.speculation")
    assert spark.where("spark.speculation") == "defaults.conf: spark.speculation"
    assert spark.where("spark.app.name") == "spark.conf.spark.app.name"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (of(), "local[*]"),
        (of(file={"spark.master": "yarn"}), "yarn"),
        (of("spark://a:1", file={"spark.master": "yarn"}), "spark://a:1"),
        (of("spark://a:1", master="local"), "local"),
    ],
)
def test_the_master_that_counts(given: SparkProperties, expected: str) -> None:
    assert given.master == expected


@pytest.mark.parametrize(
    ("given", "least", "most", "slots"),
    [
        (of("local"), 1, 1, 1),
        (of("local[4]"), 1, 1, 4),
        (of("local[*]"), 1, 1, None),
        (of("local-cluster[3, 2, 1024]"), 3, 3, 2),
        (of("yarn"), 2, 2, 1),
        (of("yarn", executor_instances="5", executor_cores="4", task_cpus="2"), 5, 5, 2),
        (of("spark://a:1"), None, None, None),
        (of("spark://a:1", cores_max="12", executor_cores="4"), 3, 3, 4),
        (of("k8s://https://api", dynamicAllocation_enabled="true"), 0, None, 1),
        (of("local", dynamicAllocation_enabled="true"), 1, 1, 1),
    ],
)
def test_the_executors(
    given: SparkProperties, least: int | None, most: int | None, slots: int | None
) -> None:
    assert given.executors == (least, most, slots)


def test_a_file_is_read_as_spark_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "spark-defaults.conf"
    file.write_text(
        "# comment\nspark.master            yarn\nspark.executor.memory=4g  \n"
        "spark.jars: a,\\\n  b\nother.name x\n"
    )
    assert read_properties(file) == {
        "spark.master": "yarn",
        "spark.executor.memory": "4g",
        "spark.jars": "a,b",
        "other.name": "x",
    }


def test_names_that_spark_ignores_are_kept_apart() -> None:
    spark = of(file={"spark.master": "yarn", "other.name": "x"})
    assert (spark.file, spark.others) == ({"spark.master": "yarn"}, {"other.name": "x"})


def test_no_name_that_spark_knows_is_doubted() -> None:
    """Of all names in the classes of Spark's configuration."""
    pyspark = pytest.importorskip("pyspark")
    names, entry = set(), re.compile(rb"\x01..(spark(?:\.[a-zA-Z0-9_-]+)+)(?=[\x00-\x14])", re.DOTALL)
    for jar in Path(pyspark.__file__).parent.glob("jars/spark-*.jar"):
        with zipfile.ZipFile(jar) as classes:
            for name in classes.namelist():
                if name.endswith(".class") and "conf" in name.lower():
                    names |= {found.decode() for found in entry.findall(classes.read(name))}
    assert len(names) > 1000
    assert {"spark.speculation", "spark.executor.memory", "spark.sql.shuffle.partitions"} <= names
    assert {name: meant for name in sorted(names) if (meant := misspelled(name))} == {}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("spark.speculaton", "spark.speculation"),
        ("spark.dirver.memory", "spark.driver.memory"),
        ("spark.executor.instance", "spark.executor.instances"),
        ("spark.dynamicallocation.enabled", "spark.dynamicAllocation.enabled"),
        ("speculation", "spark.speculation"),
        ("spark.shop.level", ""),
        ("spark.hadoop.executor.memory", ""),
        ("fs.s3a.endpoint", ""),
    ],
)
def test_what_a_name_means(name: str, meant: str) -> None:
    assert misspelled(name) == meant


@pytest.mark.parametrize("text", ["application: {id: shop}\n", "spark.x \\u12\n"])
def test_another_file_is_bad_input(tmp_path: Path, text: str) -> None:
    file = tmp_path / "app.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=r"app\.yaml: found "):
        read_properties(file)


def test_a_missing_file_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        read_properties(tmp_path / "none.conf")
