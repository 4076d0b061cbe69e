"""What exactly-once costs: a `KafkaSink` with a transaction and with none, on a broker of this machine.

    python benchmarks/bench_kafka_sink.py
    python benchmarks/bench_kafka_sink.py --rows 1 1000 --repeats 50 --json sink.json

A batch of so many rows, in several staged files, is published again and again, by all sinks in turn, so that all meet
the same machine. The time is that of `publish_commit`: from the staged files to the acknowledged records, or to the
commits. `start` is what a new driver needs before its first commit: a producer, and with transactions also the
predecessor's end and the marker. `check` is what the tasks spend, beside publishing, on
refusing rows that Kafka would refuse. Nothing else runs: no Spark.
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
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))

from confluent_kafka.admin import AdminClient, NewTopic

from examples.kafka.broker import Brokers
from taskplace.spark.kafka import brokers as questions
from taskplace.spark.kafka.sink import KafkaSink
from taskplace.spark.targets import Commit, Output

FILES = 4
DELIVERIES = ("exactly-once", "at-least-once")


def staged(folder: Path, rows: int) -> list[Path]:
    """Write so many rows to several files, as the tasks of a batch do; each key is in one of them."""
    files = []
    for part in range(min(FILES, rows)):
        numbers = range(part, rows, FILES)
        columns = {
            "k": [f"key-{i % 1000}" for i in numbers],
            "n": list(numbers),
            "cents": [i * 7 for i in numbers],
        }
        files.append(folder / f"{rows}-{part}.parquet")
        pq.write_table(pa.table(columns), files[-1])
    return files


def commit(files: list[Path], batch: int, checkpoint: str) -> Commit:
    return Commit(
        spark=None,  # type: ignore[arg-type]
        checkpoint_id=checkpoint,
        sink="out",
        batch_id=batch,
        files=files,
        check_epoch=lambda: None,
        read_checksum=lambda: "0" * 32,
    )


def sink_of(servers: str, delivery: str) -> KafkaSink:
    return KafkaSink("out", servers=servers, key="k", delivery=delivery)


def seconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def measure(servers: str, folder: Path, given: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    """Return the seconds of each delivery, by what was measured."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    files = {rows: staged(folder, rows) for rows in given.rows}
    for _ in range(max(3, given.repeats // 3)):
        for delivery in DELIVERIES:
            sink = sink_of(servers, delivery)
            sink.probe()
            output = Output(checkpoint_id="first", sink="out")
            found["start"][delivery].append(
                seconds(lambda sink=sink, output=output: sink.open_output(output))
            )
            sink.close()
    sinks = {delivery: sink_of(servers, delivery) for delivery in DELIVERIES}
    for sink in sinks.values():
        sink.open_output(Output(checkpoint_id="cp", sink="out"))
    batch = 0
    for rows, parts in files.items():
        for repeat in range(given.repeats + 1):
            for delivery, sink in sinks.items():
                batch += 1
                made = commit(parts, batch, "cp")
                took = seconds(lambda sink=sink, made=made: sink.publish_commit(made))
                if repeat:  # the first one warms connections and the interpreter up
                    found[f"{rows:,} rows"][delivery].append(took)
            table = pa.concat_tables([pq.read_table(part) for part in parts])
            check = sinks[DELIVERIES[0]].row_check.check_rows
            found[f"{rows:,} rows"]["check"].append(
                seconds(lambda check=check, table=table: check("out", table))
            )
    for sink in sinks.values():
        sink.close()
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
        questions.Admin(admin, 60).create(NewTopic("out", 6))
        before = os.getloadavg()[0]
        found = measure(brokers.bootstrap, Path(folder), given)
    print(f"load of the machine: {before:.1f} before, {os.getloadavg()[0]:.1f} after; {os.cpu_count()} cores")
    for what, by in found.items():
        for name, times in by.items():
            middle = statistics.median(times)
            rows = int(what.split()[0].replace(",", "")) if what[0].isdigit() else 1
            print(
                f"{what:14} {name:14} median {middle * 1000:9.1f} ms   {min(times) * 1000:9.1f} to "
                f"{max(times) * 1000:9.1f} ms   {rows / middle:12,.0f} rows/s"
            )
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
