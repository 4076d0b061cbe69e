"""Steer a query that Spark runs by itself: `python examples/steer.py conf/steer.yaml [key=value]...`

The query has two stateful operators, a deduplication of flights and an aggregation per aircraft. The only line of
taskplace is `steer(query)`. After each batch, a line says how many partitions each executor has. On the way an
executor is killed; its replacement gets its share. At the end the result is compared with a batch query: steering
must not change the result.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it runs from anywhere

import psutil

from examples.flights.data import FLIGHT_KEY, prepare
from examples.flights.topology import FLIGHT_COLUMNS
from taskplace.errors import ConfigError, TaskplaceError
from taskplace.spark.steering.config import SteeringConfig
from taskplace.spec.application import MOST_ACTIVE, Settings
from taskplace.spec.document import override
from taskplace.spec.document import read_file as read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from taskplace.spark.steering import Steering
    from taskplace.spec.application import ChaosSettings

INPUT = {"dir": "var/steer/input", "files": 0, "repeated": 0.02, "seed": 2013, "pause": 0}


def settings_of(path: str, overrides: list[str]) -> tuple[Settings, SteeringConfig]:
    """Read the file: the sections of every application, and `steering` beside them."""
    document = dict(read(Path(path)))
    section = document.pop("steering", None) or {}
    steered = [override(text) for text in overrides if text.startswith("steering.")]
    if not isinstance(section, Mapping):
        raise ConfigError("steering", found=section, expected="a mapping")
    keys = {**section, **{key.removeprefix("steering."): value for key, value in steered}}
    settings = Settings.from_mapping(document, [t for t in overrides if not t.startswith("steering.")])
    for key in settings.input:
        if key not in INPUT:
            raise ConfigError.unknown_key("input", key, INPUT)
    return settings, SteeringConfig.from_properties(keys)


def delays(flights: DataFrame) -> DataFrame:
    """Return flights and delays per aircraft; each flight counts once. Works on a stream and on a table."""
    from pyspark.sql import functions as F  # noqa: N812

    return (
        flights.where("tailnum is not null")
        .dropDuplicates([*FLIGHT_KEY, "tailnum"])
        .groupBy("tailnum")
        .agg(
            F.count("*").alias("flights"),
            F.sum("dep_delay").alias("minutes"),
            F.max("dep_delay").alias("worst"),
        )
    )


def kill(which: str, steering: Steering) -> str:
    """Send SIGKILL to an executor: "3", or the one with the most partitions. Return its name."""
    executors = steering.status().executors or {}
    if which == MOST_ACTIVE:
        which = max(executors, key=lambda name: (executors[name][0], name))
    name = which.removeprefix("executor-")
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # one that has just ended
            line = process.cmdline()
            if "--executor-id" in line and line[line.index("--executor-id") + 1] == name:
                os.kill(process.pid, signal.SIGKILL)
                return f"executor-{name}"
    raise ConfigError("chaos.kill", found=which, expected=f"one of {sorted(executors)}")


def follow(query: Any, steering: Steering, settings: Settings) -> list[ChaosSettings]:
    """Print a line per batch until the query ends, and run the drills; return those that did not run.

    Batches may pass between two polls, so a drill runs after the first batch that is seen at or after its own. Drills
    run one at a time, because the status shows a loss only after the next batch.
    """
    due = sorted(settings.chaos, key=lambda drill: drill.batch)
    shown, printed = -1, 0
    while query.isActive:
        status = steering.status()
        if status.batch > shown:
            shown = status.batch
            counts = "  ".join(f"{name} {now}" for name, (now, _) in sorted((status.executors or {}).items()))
            print(f"batch {shown:>3}  {counts}  moved {status.moved}, waiting {status.waiting}", flush=True)
            fresh = status.event_count - printed  # the status keeps the last changes only
            for change in status.changes[max(0, len(status.changes) - fresh) :]:
                print(f"           {change}", flush=True)
            printed = status.event_count
            if due and due[0].batch <= shown:
                print(f"           killed {kill(due.pop(0).kill, steering)}", flush=True)
        time.sleep(0.05)
    if query.exception() is not None:
        raise TaskplaceError(f"the query failed: {query.exception()}")
    return due


def main(arguments: list[str]) -> int:
    """Run the query to the end of its input; return 0 if all drills ran and the result equals the batch query's."""
    settings, config = settings_of(arguments[0] if arguments else "conf/steer.yaml", arguments[1:])
    given: dict[str, Any] = {**INPUT, **settings.input}
    folder = Path(given["dir"]).absolute()
    prepare(folder, repeated=given["repeated"], seed=given["seed"], files=given["files"])
    from taskplace.spark import steer
    from taskplace.spark.app import session

    spark = session(settings)
    try:
        checkpoint = Path(settings.checkpoint_dir.removeprefix("file://"))
        shutil.rmtree(checkpoint, ignore_errors=True)  # its result is in memory, so every run is the first
        schema = ", ".join(f"{name} {kind}" for name, kind in FLIGHT_COLUMNS.items())
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        writer = (
            delays(stream.parquet(str(folder / "flights")))
            .writeStream.format("memory")
            .queryName("delays")
            .outputMode("complete")
            .option("checkpointLocation", str(checkpoint))
        )
        pause = given["pause"]
        query = (writer.trigger(processingTime=f"{pause} seconds") if pause else writer).start()
        steering = steer(query, config)
        files = len(list((folder / "flights").glob("*.parquet")))
        ender = _ending(query, steering, files)
        missed = follow(query, steering, settings)
        ender.join()
        print(steering.status())
        found = sorted(map(tuple, spark.table("delays").collect()))
        expected = sorted(
            map(tuple, delays(spark.read.schema(schema).parquet(str(folder / "flights"))).collect())
        )
        print(
            f"{len(found)} aircraft; the result {'equals' if found == expected else 'DIFFERS FROM'} the batch query"
        )
        for drill in missed:
            print(
                f"the drill of batch {drill.batch} was not held: the input ended before ({drill.kill} lives)"
            )
        return 0 if found == expected and not missed else 1
    finally:
        spark.stop()


def _ending(query: Any, steering: Steering, batches: int) -> Any:
    """Stop the query after it has processed its last file and steering has observed that batch."""
    import threading

    def wait() -> None:
        while query.isActive and steering.status().batch < batches - 1:
            time.sleep(0.05)
        query.stop()

    thread = threading.Thread(target=wait, name="end-of-input", daemon=True)
    thread.start()
    return thread


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except TaskplaceError as error:
        sys.exit(str(error))
