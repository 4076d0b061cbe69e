"""The flights job's two answers, against rules written down a third time, in plain Python."""

import datetime as dt
from collections import defaultdict
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from examples.flights import data

pytest.importorskip("pyspark")

from examples.flights import truth

START = dt.datetime(2013, 1, 1, tzinfo=dt.timezone.utc)
HOURS = [START + dt.timedelta(hours=h) for h in range(0, 24 * 40, 4)]


def weather_rows():
    """Good, bad in each of the three ways, unmeasured wind, no sight; and hours that have no row at all."""
    kinds = [
        (10.0, 0.0, 5.0),
        (2.9, 0.0, 5.0),
        (10.0, 0.1, 5.0),
        (10.0, 0.0, 20.1),
        (3.0, 0.0, 20.0),
        (10.0, 0.0, None),
    ]
    kinds += [(1.0, 0.0, None), (None, 0.2, 5.0)]
    return {hour: kinds[i % len(kinds)] for i, hour in enumerate(HOURS) if i % 9}


def flight_rows():
    rows = []
    for i, hour in enumerate(HOURS * 3):
        left = i % 11 != 0
        tail = f"N{i % 7}" if i % 13 else None
        rows.append((i, hour, tail, (i * 37) % 120 - 20 if left and tail else None))
    return rows


def weather_class(kind):
    if kind is None or kind[0] is None:
        return "unknown"
    visib, precip, wind = kind
    return "bad" if visib < 3 or precip > 0 or (wind is not None and wind > 20) else "good"


def tables():
    rows, weather = flight_rows(), weather_rows()
    n = len(rows)
    constant = {"year": 2013, "month": 1, "day": 1, "sched_dep_time": 600}
    flights = {name: pa.array([value] * n, pa.int32()) for name, value in constant.items()}
    flights |= {"carrier": pa.array(["UA"] * n), "origin": pa.array(["JFK"] * n)}
    flights |= {"flight": pa.array([row[0] for row in rows], pa.int32())}
    flights |= {"time_hour": pa.array([row[1] for row in rows], pa.timestamp("us", tz="UTC"))}
    flights |= {
        "tailnum": pa.array([row[2] for row in rows]),
        "dep_delay": pa.array([row[3] for row in rows], pa.int32()),
    }
    hours = {
        "origin": pa.array(["JFK"] * len(weather)),
        "time_hour": pa.array(list(weather), pa.timestamp("us", tz="UTC")),
    }
    for i, name in enumerate(("visib", "precip", "wind_speed")):
        hours[name] = pa.array([kind[i] for kind in weather.values()], pa.float64())
    planes = pa.table(
        {"tailnum": ["N3", "N4"], "manufacturer": ["BOEING", "AIRBUS"], "model": ["737-824", None]}
    )
    return data.Tables(pa.table(flights), pa.table(hours), planes)


def expected():
    weather, groups = weather_rows(), defaultdict(list)
    for _, hour, tail, delay in flight_rows():
        groups[tail or "unknown", weather_class(weather.get(hour))].append(delay)
    out = {}
    for key, delays in groups.items():
        known = [delay for delay in delays if delay is not None]
        worst = (sum(known), sum(known) / len(known), max(known)) if known else (None, None, None)
        out[key] = (len(delays), len(known), *worst)
    return out


@pytest.fixture(scope="module")
def compared(spark, tmp_path_factory):
    root = tmp_path_factory.mktemp("flights")
    data.prepare(root / "in", tables(), repeated=0.3)
    rows = [(*key, *values) for key, values in expected().items()]
    names = ["tailnum", "weather", "flights", "delay_known", "sum_delay", "mean_delay", "worst_delay"]
    table = pa.table([pa.array(column) for column in zip(*rows, strict=True)], names=names)
    early = table.slice(0, 5).set_column(
        2, "flights", pa.array([0] * 5)
    )  # what later batches have overwritten
    for batch, part in enumerate((early, table)):
        (root / "out" / f"batch_id={batch}").mkdir(parents=True)
        pq.write_table(part, root / "out" / f"batch_id={batch}" / "part-00000.parquet")
    right, found = truth.truth(spark, root / "in"), truth.result(spark, root / "out")
    tried = [
        (right, found),
        (right, found.where("tailnum <> 'N1'")),
        (right.limit(0), found.limit(0)),
        (right, found.unionByName(found.where("tailnum = 'N2'"))),
        (right, found.selectExpr(*truth.KEY, "flights + 1 AS flights", *list(truth.VALUES)[1:])),
    ]
    return SimpleNamespace(
        truth=right.select(*truth.KEY, *truth.VALUES).collect(),
        answers=[truth.compare(*tables) for tables in tried],
        findings=truth.findings(found, spark.read.parquet(str(root / "in" / "planes.parquet"))),
    )


def test_the_batch_query_follows_the_rules_and_counts_repeats_once(compared):
    found = {(tail, weather): tuple(values) for tail, weather, *values in compared.truth}
    assert found == expected()
    assert {weather for _, weather in found} == {"good", "bad", "unknown"}


def test_the_comparison_accepts_what_is_right_and_only_that(compared):
    n = len(expected())
    right, missing, empty, twice, wrong = compared.answers
    assert right.ok
    assert right.text == f"result equals the batch query ({n} of {n} rows, {len(flight_rows())} flights)"
    assert [answer.ok for answer in (missing, empty, twice, wrong)] == [False] * 4
    assert missing.detail[0].startswith("N1, bad: nothing instead of (")
    assert " and " in twice.detail[0].partition(" instead of ")[0]
    assert f"differs from the batch query in {n} rows" in wrong.text
    assert len(wrong.detail) == 5


def test_the_stream_classifies_as_the_rules_say():
    from examples.flights.topology import label
    from taskplace.spark.processors import Context

    weather = weather_rows()
    rows = [(tail, weather.get(hour)) for _, hour, tail, _ in flight_rows()]
    joined = pa.table(
        {
            "tailnum": pa.array([tail for tail, _ in rows], pa.string()),
            "flight": pa.array(range(len(rows)), pa.int32()),
            **{
                name: pa.array([kind[i] if kind else None for _, kind in rows], pa.float64())
                for i, name in enumerate(("visib", "precip", "wind_speed"))
            },
        }
    )
    out = label(Context("0_0", 0, 0, {}), joined)
    assert out.column_names == ["flight", "tailnum", "weather"]
    assert out["weather"].to_pylist() == [weather_class(kind) for _, kind in rows]
    assert out["tailnum"].to_pylist() == [tail or "unknown" for tail, _ in rows]
