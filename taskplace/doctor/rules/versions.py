"""Installed packages against the ranges that taskplace was tested with, and ways to start Spark that cannot work."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import InvalidVersion, Version

from taskplace.doctor.facts import Facts, Package
from taskplace.doctor.findings import Found, Severity, remove, rename, rule
from taskplace.doctor.known_properties import misspelled
from taskplace.doctor.spark_properties import mebibytes_of, seconds_of

_OWN_RULES = ("pandas", "pyspark")
#: Properties that rules read, each with a value that no rule finds: one that Spark cannot read ends its start.
_TIMES = {
    "spark.locality.wait": "30s",
    "spark.locality.wait.process": "30s",
    "spark.locality.wait.node": "30s",
    "spark.dynamicAllocation.executorIdleTimeout": "600s",
}
_SIZES = {
    "spark.executor.memory": "1g",
    "spark.executor.memoryOverhead": "1g",
    "spark.executor.pyspark.memory": "1g",
    "spark.driver.memory": "1g",
}
_INTEGERS = {
    "spark.executor.cores": "2",
    "spark.executor.instances": "2",
    "spark.task.cpus": "1",
    "spark.task.maxFailures": "4",
    "spark.dynamicAllocation.minExecutors": "2",
    "spark.dynamicAllocation.maxExecutors": "4",
}

_BOOLEANS = {
    "spark.speculation": "false",
    "spark.dynamicAllocation.enabled": "false",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.shuffle.service.enabled": "false",
    "spark.decommission.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.sql.adaptive.enabled": "false",
    "spark.shuffle.reduceLocality.enabled": "false",
}


def _outside(package: Package) -> bool:
    try:
        return not package.tested.contains(Version(package.version), prereleases=True)
    except InvalidVersion:
        return True


def _install(package: Package) -> str:
    return f"pip install '{package.name}{package.tested}'"


def _tested(package: Package) -> str:
    return f"{package.version}, and the tested versions are {package.tested}"


@rule("pandas-3", Severity.ERROR, "pandas 3, which PySpark does not know yet", steered=True)
def pandas_3(facts: Facts) -> Iterator[Found]:
    """Find pandas outside of the tested range."""
    for package in facts.packages:
        if package.name == "pandas" and _outside(package):
            new = package.version.partition(".")[0] not in ("0", "1", "2")
            why = "This PySpark converts data frames of pandas 2 only; pandas 3 has other types of text and time."
            yield Found(
                "package pandas",
                _tested(package),
                why if new else "taskplace and PySpark were not tested with this version.",
                _install(package),
                None if new else Severity.WARNING,
            )


@rule("pyspark-version", Severity.ERROR, "a PySpark whose private calls may be others", steered=True)
def pyspark_version(facts: Facts) -> Iterator[Found]:
    """Find a PySpark outside of the tested range; one of another major version cannot be used."""
    for package in facts.packages:
        if package.name == "pyspark" and _outside(package):
            usable = package.version.startswith("4.")
            yield Found(
                "package pyspark",
                _tested(package),
                "taskplace pins tasks by private calls into Spark, which other versions may lack."
                if usable
                else "The start refuses this version.",
                _install(package),
                Severity.WARNING if usable else None,
            )


@rule("package-untested", Severity.WARNING, "other packages outside of the tested ranges", steered=True)
def package_untested(facts: Facts) -> Iterator[Found]:
    """Find installed packages that taskplace was not tested with."""
    for package in facts.packages:
        if package.name not in _OWN_RULES and _outside(package):
            yield Found(
                f"package {package.name}",
                _tested(package),
                "taskplace was not tested with this version.",
                _install(package),
            )


@rule("spark-connect", Severity.ERROR, "Spark Connect, which cannot reach executors", steered=True)
def spark_connect(facts: Facts) -> Iterator[Found]:
    """Find properties that make a session of Spark Connect."""
    for key in ("spark.remote", "spark.api.mode"):
        value = facts.spark.get(key)
        if value is not None and (key == "spark.remote" or value.strip().lower() == "connect"):
            yield Found(
                facts.spark.where(key),
                value,
                "A session of Spark Connect has no way to executors. The start refuses it.",
                remove(facts.spark.where(key)),
            )


@rule("spark-value", Severity.ERROR, "properties with a value that Spark cannot read", steered=True)
def spark_value(facts: Facts) -> Iterator[Found]:
    """Find times, sizes and numbers that are none."""
    for keys, read, expected in (
        (_TIMES, seconds_of, "a time such as 30s"),
        (_SIZES, mebibytes_of, "a size such as 2g"),
        (_INTEGERS, _integer, "a whole number"),
        (_BOOLEANS, _boolean, "true or false"),
    ):
        for key, example in keys.items():
            value = facts.spark.get(key)
            if value is not None and read(value) is None:
                where = facts.spark.where(key)
                exactly = "" if keys is _BOOLEANS else ", without spaces and fractions"
                why = f"Spark expects {expected}{exactly}, and does not start."
                remedy = f"--set spark.conf.{key}={example}"
                yield Found(
                    where,
                    value or "nothing",
                    why,
                    remedy,
                    expected=expected + exactly,
                )


def _integer(text: str) -> float | None:
    return float(text) if text.strip().isdecimal() else None


def _boolean(text: str) -> float | None:
    return {"true": 1.0, "false": 0.0}.get(text.strip().lower())


@rule(
    "spark-property-unknown",
    Severity.ERROR,
    "names that are no properties of Spark: misspelled, or without `spark.`",
    steered=True,
)
def spark_property_unknown(facts: Facts) -> Iterator[Found]:
    """Find names that Spark ignores. Names below `spark.` may be anybody's: only those that are nearly known count."""
    for key, value in facts.spark.conf.items():
        if meant := misspelled(key):
            sure = not key.startswith("spark.")
            yield Found(
                f"spark.conf.{key}",
                "a name without `spark.`" if sure else value or "nothing",
                "Spark has no property of this name, so the value has no effect.",
                rename(f"spark.conf.{key}", meant),
                None if sure else Severity.WARNING,
                expected=meant if sure else "",
            )
    for key, value in {**facts.spark.file, **facts.spark.others}.items():
        path, meant = f"{facts.spark.name}: {key}", misspelled(key)
        if meant or key in facts.spark.others:
            yield Found(
                path,
                value or "a name without a value",
                "Spark has no property of this name, so the line has no effect."
                if meant
                else "Spark reads only names that begin with `spark.`, so the line has no effect.",
                rename(path, meant) if meant else remove(path),
                Severity.WARNING,
            )


@rule(
    "spark-property-overridden",
    Severity.WARNING,
    "properties of Spark that are given twice with different values",
    steered=True,
)
def spark_property_overridden(facts: Facts) -> Iterator[Found]:
    """Find values that lose: of the file of properties, and of the section `spark` beside `spark.conf`."""
    for key in sorted(facts.spark.conf.keys() & facts.spark.file.keys()):
        if facts.spark.conf[key] != facts.spark.file[key]:
            path = f"{facts.spark.name}: {key}"
            yield Found(
                path,
                f"{facts.spark.file[key]}, and spark.conf.{key} = {facts.spark.conf[key]}",
                "The application's file has priority over the file of properties, so the value there has no effect.",
                remove(path),
                Severity.ADVICE,
            )
    section = {"spark.master": facts.settings.spark.master, "spark.app.name": facts.settings.spark.app_name}
    for key, own in section.items():
        if own and facts.spark.conf.get(key, own) != own and key in facts.written:
            yield Found(
                key,
                f"{own}, and spark.conf.{key} = {facts.spark.conf[key]}",
                "The property in `spark.conf` has priority, so the key has no effect.",
                remove(key),
            )


RULES = (
    pandas_3,
    pyspark_version,
    package_untested,
    spark_connect,
    spark_value,
    spark_property_unknown,
    spark_property_overridden,
)
