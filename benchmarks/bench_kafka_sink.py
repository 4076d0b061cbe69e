"""What exactly-once costs: a `KafkaSink` with transactions and without, on one broker of this machine.

    python benchmarks/bench_kafka_sink.py
    python benchmarks/bench_kafka_sink.py --rows 1 1000 --repeats 50 --json sink.json

A batch of so many rows is published again and again, by both sinks in turn, so that both meet the same machine. The
time is that of `publish_commit`: from the staged file to the acknowledged records, or to the commit. `first batch` is
what a new driver needs before it: a producer, and with transactions also the predecessor's end and the marker. `check`
is what the tasks spend, beside publishing, on refusing rows that Kafka would refuse. Nothing else runs: no Spark.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))

from confluent_kafka.admin import AdminClient, NewTopic

from examples.kafka.broker import Brokers
from taskplace.spark.kafka import asking
from taskplace.spark.kafka.sink import DELIVERIES, KafkaSink
from taskplace.spark.targets import Commit


def staged(folder: Path, rows: int) -> Path:
    file = folder / f"{rows}.parquet"
    columns = {
        "k": [f"key-{i % 1000}" for i in range(rows)],
        "n": list(range(rows)),
        "cents": [i * 7 for i in range(rows)],
    }
    pq.write_table(pa.table(columns), file)
    return file


def commit(file: Path, batch: int, checkpoint: str) -> Commit:
    return Commit(
        spark=None,  # type: ignore[arg-type]
        checkpoint_id=checkpoint,
        sink="out",
        batch_id=batch,
        files=[file],
        check_epoch=lambda: None,
        read_checksum=lambda: "0" * 32,
    )


def seconds(sink: KafkaSink, given: Commit) -> float:
    begun = time.perf_counter()
    sink.publish_commit(given)
    return time.perf_counter() - begun


def measure(servers: str, folder: Path, sizes: list[int], repeats: int) -> dict[str, dict[str, list[float]]]:
    """Return the seconds of each delivery, by what was measured."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    files = {rows: staged(folder, rows) for rows in sizes}
    for start in range(max(3, repeats // 5)):
        for delivery in DELIVERIES:
            sink = KafkaSink("out", servers=servers, key="k", delivery=delivery)
            sink.bind("first")
            found["first batch of a driver, 1 row"][delivery].append(
                seconds(sink, commit(staged(folder, 1), start, "first"))
            )
            sink.close()
    sinks = {
        delivery: KafkaSink("out", servers=servers, key="k", delivery=delivery) for delivery in DELIVERIES
    }
    batch = 0
    for rows, file in files.items():
        for sink in sinks.values():  # connections, and what the interpreter has to warm up
            seconds(sink, commit(file, batch := batch + 1, "cp"))
        for _ in range(repeats):
            for delivery, sink in sinks.items():
                found[f"{rows:,} rows"][delivery].append(
                    seconds(sink, commit(file, batch := batch + 1, "cp"))
                )
            table = pq.read_table(file)
            begun = time.perf_counter()
            sinks[DELIVERIES[0]].row_check.check_rows("out", table)
            found[f"{rows:,} rows"]["check"].append(time.perf_counter() - begun)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 1000, 20_000, 200_000])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Brokers() as brokers:
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
        asking.create(admin, NewTopic("out", 6), 60)
        found = measure(brokers.bootstrap, Path(folder), given.rows, given.repeats)
    print(f"load of the machine in the last minute: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for what, by in found.items():
        for name, times in by.items():
            middle = statistics.median(times)
            rows = int(what.split()[0].replace(",", "")) if what[0].isdigit() else 1
            print(
                f"{what:32} {name:14} median {middle * 1000:9.1f} ms   fastest {min(times) * 1000:9.1f} ms   "
                f"{rows / middle:12,.0f} rows/s"
            )
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
