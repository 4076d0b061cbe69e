"""Cases of the rules about versions and properties."""

from __future__ import annotations

from packaging.specifiers import SpecifierSet

from taskplace.doctor import Package
from tests.support.doctor.cases import ADVICE, WARNING, Cases, fires, quiet, spark


def _package(name: str, version: str, tested: str) -> tuple[Package, ...]:
    return (Package(name, version, SpecifierSet(tested)),)


CASES: Cases = {
    "pandas-3": (
        fires("package pandas", says="3.0.1", packages=_package("pandas", "3.0.1", ">=2.2,<3")),
        fires("package pandas", severity=WARNING, packages=_package("pandas", "2.1.0", ">=2.2,<3")),
    ),
    "pyspark-version": (
        fires("package pyspark", says="3.5.9", packages=_package("pyspark", "3.5.9", ">=4.3,<4.4")),
        fires("package pyspark", severity=WARNING, packages=_package("pyspark", "4.4.0.dev1", ">=4.3,<4.4")),
    ),
    "package-untested": (
        fires(
            "package rich",
            says="16.0, and the tested versions are",
            packages=_package("rich", "16.0", ">=14,<16"),
        ),
        fires("package rich", packages=_package("rich", "no version", ">=14,<16")),
        quiet(packages=_package("rich", "15.1.post1", ">=14,<16")),
    ),
    "spark-connect": (
        fires("spark.conf.spark.remote", spark("spark.remote", "sc://host")),
        fires("spark-defaults.conf: spark.api.mode", properties={"spark.api.mode": "connect"}),
        quiet(spark("spark.api.mode", "classic")),
    ),
    "spark-value": (
        fires("spark.conf.spark.locality.wait", spark("spark.locality.wait", "soon"), says="soon"),
        fires("spark.conf.spark.executor.memory", spark("spark.executor.memory", "1.5g")),
        fires("spark.conf.spark.task.cpus", spark("spark.task.cpus", "one")),
        fires("spark.conf.spark.speculation", spark("spark.speculation", "maybe"), says="maybe"),
        fires("spark-defaults.conf: spark.speculation", says="nothing", properties={"spark.speculation": ""}),
    ),
    "spark-property-unknown": (
        fires(
            "spark.conf.spark.network.timeot",
            spark("spark.network.timeot", "600s"),
            says="600s",
            severity=WARNING,
        ),
        fires("spark.conf.network.timeout", spark("network.timeout", "600s")),
        fires(
            "spark-defaults.conf: spark.executr.cores",
            severity=WARNING,
            properties={"spark.executr.cores": "2"},
        ),
        fires(
            "spark-defaults.conf: garbage",
            says="a name without a value",
            severity=WARNING,
            properties={"garbage": ""},
        ),
        quiet(
            spark("spark.shop.level", 3),
            spark("hive.exec.parallel", "true"),
            spark("spark.hadoop.fs.s3a.path.style.access", "true"),
            properties={"spark.executor.memoryOverheadFactor": "0.2"},
        ),
    ),
    "spark-property-overridden": (
        fires(
            "spark-defaults.conf: spark.executor.memory",
            says="8g, and spark.conf.spark.executor.memory = 4g",
            severity=ADVICE,
            properties={"spark.executor.memory": "8g"},
        ),
        fires(
            "spark-defaults.conf: spark.executor.memory",
            severity=ADVICE,
            properties={"spark.executor.memory": "lots"},
        ),
        fires(
            "spark.master",
            spark("spark.master", "yarn"),
            says="spark://driver:7077, and spark.conf.spark.master = yarn",
        ),
        quiet(properties={"spark.executor.memory": "4g"}),
        quiet(spark("spark.master", "spark://driver:7077")),
    ),
}
