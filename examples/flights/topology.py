"""The processor and the columns of the flights job; its topology is in `conf/flights.yaml`.

    flights ─┐
             ├─ with-weather ─ labelled ═ by-aircraft ═ once ─ delays ─> parquet
    weather ─┘
    └──────── subtopology 0 ─────────┘   └──────── subtopology 1 ───────────┘

Both inputs are keyed by (origin, time_hour), so a flight and the weather of its hour are in one task, and that
task's store keeps the weather. After the repartition by tail number, all flights of an aircraft are in one task.
There each flight passes once: a repeat has the same tail number, so the same task has seen its first delivery.

The rules are those of `truth.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from taskplace.spark.processors import Context

#: The columns that the job reads, as Spark names their types.
FLIGHT_COLUMNS = {
    "origin": "string",
    "time_hour": "timestamp",
    "year": "int",
    "month": "int",
    "day": "int",
    "carrier": "string",
    "flight": "int",
    "sched_dep_time": "int",
    "tailnum": "string",
    "dep_delay": "int",
}
MEASURES = {"visib": "double", "precip": "double", "wind_speed": "double"}
WEATHER_COLUMNS = {"origin": "string", "time_hour": "timestamp", **MEASURES}


def label(context: Context, flights: pa.Table, *, drop: Sequence[str] = ()) -> pa.Table:
    """Add the weather of each flight's hour as one word, and replace a missing tail number by "unknown".

    `drop`: columns that are not needed any more.
    """
    bad = pc.fill_null(
        pc.or_kleene(
            pc.or_kleene(pc.less(flights["visib"], 3), pc.greater(flights["precip"], 0)),
            pc.greater(flights["wind_speed"], 20),
        ),
        False,
    )
    unknown = pc.is_null(flights["visib"])
    weather = pc.if_else(unknown, "unknown", pc.if_else(bad, "bad", "good"))
    tailnum = pc.fill_null(flights["tailnum"], "unknown")
    kept = flights.drop_columns(["tailnum", *MEASURES, *drop])
    return kept.append_column("tailnum", tailnum).append_column("weather", weather)
