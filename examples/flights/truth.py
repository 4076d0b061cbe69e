"""The expected result: the flights job as one plain Spark batch query, and the comparison with the stream's result.

The rules, which the streaming topology follows as well:
- `FLIGHT_KEY` identifies a flight; delivered twice, it counts once. `WEATHER_KEY` identifies an hour of weather; a
  repeat is the same row again;
- a flight's weather is that of its airport in its scheduled hour: "bad" if the visibility is below 3 miles, or
  there is rain or snow, or wind above 20 miles an hour; a missing wind is no strong wind; "unknown" if the
  hour has no row, or its row has no visibility;
- a flight without a tail number counts for the aircraft "unknown": all of these flights were cancelled;
- per aircraft and weather: `flights`; `delay_known`, those that left; `sum_delay`, `mean_delay` and
  `worst_delay` of their departure delays in minutes, negative when early; all three are null if none
  left. Sums are integers, so both sides are equal to the last bit.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from examples.flights.data import FLIGHT_KEY, WEATHER_KEY
from taskplace.record.events import CheckResult

KEY = ("tailnum", "weather")
VALUES = {
    "flights": "bigint",
    "delay_known": "bigint",
    "sum_delay": "bigint",
    "mean_delay": "double",
    "worst_delay": "bigint",
}
SHOWN = 5
AT_LEAST = 20


def weather_class() -> Column:
    """Return good, bad or unknown, from the columns of a joined hour."""
    bad = (F.col("visib") < 3) | (F.col("precip") > 0) | (F.col("wind_speed") > 20)
    known = F.when(F.coalesce(bad, F.lit(False)), "bad").otherwise("good")
    return F.when(F.col("visib").isNull(), "unknown").otherwise(known)


def truth(spark: SparkSession, directory: Path) -> DataFrame:
    """Return the expected result for the files in `directory`: one row for each of `KEY`, with `VALUES`."""
    flights = spark.read.parquet(str(directory / "flights")).dropDuplicates(list(FLIGHT_KEY))
    weather = spark.read.parquet(str(directory / "weather")).dropDuplicates(list(WEATHER_KEY))
    hours = weather.select(*WEATHER_KEY, "visib", "precip", "wind_speed")
    return (
        flights.join(hours, list(WEATHER_KEY), "left")
        .groupBy(F.coalesce("tailnum", F.lit("unknown")).alias("tailnum"), weather_class().alias("weather"))
        .agg(
            F.count("*").alias("flights"),
            F.count("dep_delay").alias("delay_known"),
            F.sum("dep_delay").alias("sum_delay"),
            # Of integers, exactly: never a mean of means, never a sum of doubles.
            (F.sum("dep_delay") / F.count("dep_delay")).alias("mean_delay"),
            F.max("dep_delay").alias("worst_delay"),
        )
    )


def result(spark: SparkSession, directory: Path) -> DataFrame:
    """Return the stream's result: for each of `KEY` the rows of its greatest batch."""
    rows = spark.read.parquet(str(directory))
    last = F.max("batch_id").over(Window.partitionBy(*KEY))
    return rows.withColumn("last", last).where("batch_id = last").select(*KEY, *VALUES)


def checked(spark: SparkSession, directory: Path, found: DataFrame) -> CheckResult:
    """Compare a stream's result with the batch query over the files in `directory`; if it is right, add findings."""
    found = found.cache()  # it is hundreds of small files, and read twice
    answer = compare(truth(spark, directory), found)
    if not answer.ok:
        return answer
    return replace(answer, detail=findings(found, spark.read.parquet(str(directory / "planes.parquet"))))


def compare(expected: DataFrame, found: DataFrame) -> CheckResult:
    """Compare row by row: a key that is missing, superfluous, duplicated or has another value differs."""
    values = F.struct(*(F.col(name).cast(kind).alias(name) for name, kind in VALUES.items()))
    right = expected.select(*KEY, values.alias("expected"))
    wrote = found.groupBy(*KEY).agg(F.collect_list(values).alias("found"))
    both = right.join(wrote, list(KEY), "full").withColumn(
        "equal", F.array("expected").eqNullSafe(F.col("found"))
    )
    both = both.cache()
    counts = both.agg(
        F.count("expected").alias("expected"),
        F.count("found").alias("found"),
        F.sum(F.when(F.col("equal"), 0).otherwise(1)).alias("differing"),
        F.sum("expected.flights").alias("flights"),
    ).first()
    differing = both.where(~F.col("equal")).orderBy(*KEY).limit(SHOWN).collect()
    both.unpersist()
    assert counts is not None  # noqa: S101 - an aggregate without keys always has one row
    size = f"{counts['found']:,} of {counts['expected']:,} rows"
    if not counts["differing"] and counts["expected"]:
        return CheckResult(True, f"result equals the batch query ({size}, {counts['flights']:,} flights)")
    lines = [
        f"{row['tailnum']}, {row['weather']}: {_side(row['found'])} instead of {_side([row['expected']])}"
        for row in differing
    ]
    text = f"result differs from the batch query in {counts['differing'] or 0:,} rows ({size} there)"
    return CheckResult(False, text, tuple(lines))


def findings(found: DataFrame, planes: DataFrame) -> tuple[str, ...]:
    """Return a summary in a few lines: the aircraft that bad weather delays most."""
    bad = found.where((F.col("weather") == "bad") & (F.col("delay_known") >= AT_LEAST))
    rows = bad.join(planes.select("tailnum", "manufacturer", "model"), ["tailnum"], "left")
    most = rows.orderBy(F.desc("mean_delay"), "tailnum").limit(SHOWN).collect()
    return (
        f"most delayed in bad weather, of the aircraft with at least {AT_LEAST} departures in it:",
        *(
            f"  {row['tailnum']}, {row['manufacturer'] or 'unknown'} {row['model'] or 'model'}: "
            f"{row['mean_delay']:.0f} minutes on average, {row['worst_delay']} at worst"
            for row in most
        ),
    )


def _side(values: list[object] | None) -> str:
    shown = [str(tuple(value)) for value in values or [] if value is not None]  # type: ignore[call-overload]
    return " and ".join(shown) or "nothing"
