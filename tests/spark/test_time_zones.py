"""Windows in sessions of other time zones, beside Spark's own `window`: the same instants, or refused."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812

from taskplace.errors import InputError
from taskplace.spark.compile.programs import unite
from taskplace.spark.processors import Count, Tumbling
from topology import Topology

ZONE = "spark.sql.session.timeZone"
ZONES = ("UTC", "Asia/Tokyo", "America/New_York", "Asia/Kolkata")
# Both changes of New York's clocks, and times before 1970.
TIMES = [
    datetime(2026, 3, 8, 1, 30, tzinfo=timezone.utc) + timedelta(hours=hours) for hours in range(0, 60, 7)
] + [
    datetime(2026, 11, 1, 3, 59, 59, 999_999, tzinfo=timezone.utc),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=timezone.utc),
    datetime(1970, 1, 1, tzinfo=timezone.utc),
]
SIZES = ("15 minutes", "7 hours", "1 day", "1 week")


@pytest.fixture(params=ZONES)
def zoned(spark, request):
    before = spark.conf.get(ZONE)
    spark.conf.set(ZONE, request.param)
    yield spark
    spark.conf.set(ZONE, before)


def micros(spark, frame, column):
    """Return a column as microseconds, whatever its type: of timestamps since 1970 in UTC."""
    kind = dict(frame.dtypes)[column]
    shown = (
        f"unix_micros({column})"
        if kind == "timestamp"
        else f"timestampdiff(MICROSECOND, timestamp_ntz'1970-01-01', {column})"
    )
    return [row[0] for row in frame.selectExpr(shown).collect()]


def own(times: pa.Array, size: str) -> list[int]:
    return Tumbling("at", size).starts(pa.table({"at": times})).cast(pa.int64()).to_pylist()


def test_windows_of_instants_are_spark_s_in_any_zone(zoned):
    at = pa.array(TIMES, pa.timestamp("us", tz="UTC"))
    numbers = at.cast(pa.int64()).to_pylist()
    frame = zoned.createDataFrame([(n,) for n in numbers], "n long").selectExpr("timestamp_micros(n) as at")
    for size in SIZES:
        starts = frame.coalesce(1).select(F.window("at", size)["start"].alias("start"))
        assert micros(zoned, starts, "start") == own(at, size), size


def test_times_without_a_zone_are_spark_s_in_utc_and_refused_elsewhere(zoned):
    days = [time.date() for time in TIMES]
    frame = zoned.createDataFrame([(day,) for day in days], "at date")
    kinds = {
        "date": pa.array(days, pa.date32()),
        "timestamp_ntz": pa.array(days, pa.date32()).cast(pa.timestamp("us")),
    }
    topo = Topology("t")
    window = Tumbling("at", "7 hours")
    topo.source("in", key="k", partitions=1).process(Count("s", by={"k": "string"}, window=window), name="p")
    for kind, column in kinds.items():
        rows = frame.selectExpr(f"cast(at as {kind}) as at", "'a' as k")
        starts = rows.coalesce(1).select(F.window("at", "7 hours")["start"].alias("start"))
        found = micros(zoned, starts, "start")
        if zoned.conf.get(ZONE) == "UTC":
            assert found == own(column, "7 hours")
            unite(topo.build(), {"in": rows})
            continue
        if kind == "date":  # midnight there: another instant than midnight in UTC
            assert found != own(column, "7 hours")
        else:  # a window without a zone, where this has an instant
            assert dict(starts.dtypes) == {"start": "timestamp_ntz"}
        with pytest.raises(
            InputError, match=r"node 'p', window\.column: found .*not UTC.*cast it to a timestamp"
        ):
            unite(topo.build(), {"in": rows})
