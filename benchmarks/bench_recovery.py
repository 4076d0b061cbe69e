"""How long a stream stands still when an executor dies, by the size of the state: placed state beside Spark's own.

    make bench-recovery             # or: python benchmarks/bench_recovery.py [--sizes 10,100,1000] [--json FILE]

A count and a last payload are kept by key, 1,000 bytes of key and value each (key 16, count 8, payload 976 random
letters), so 10 MB of state are 10,000 keys. Five files fill it, each with a fifth of the keys; then each batch
has the same 1,200 keys, whatever the size. Variants, one after the other for each size:

- placed with a standby (`num.standby.replicas=1`), placed without
- native: `groupBy().agg()` on the RocksDB provider with changelog checkpointing

When all tasks have a snapshot in the checkpoint, or have not got one within a minute (it is due after five batches on
both sides; RocksDB's maintenance runs every 10 s here, instead of 60, so that its are as fresh), the executor with the
most tasks' state gets SIGKILL. A batch is fed at once. Measured are the seconds from the kill until that batch is in
the query's commit log, and the seconds that the next batch takes. The next batch is fed when the replacement executor
has come. An ordinary batch stands beside them. After each kill the stream gets batches until it has settled; at the end
the counts are checked. With more than five kills of a size, the 95th percentile is shown as well.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from spark_bench import (
    EXECUTORS,
    PARTITIONS,
    Out,
    Stream,
    arguments,
    cluster,
    executor_count,
    executor_processes,
    start_native,
    start_placed,
    wait_until,
    write_files,
)

SCHEMA = "key string, payload string"
PAYLOAD = 976
ENTRY = 16 + 8 + PAYLOAD  # key, count, payload
FILLS = SNAPSHOT_AFTER = 5
SMALL = 1_200
SNAPSHOTS_SECONDS = 60
EACH = 5  # the most kills that are shown one by one
STANDBY, ALONE, NATIVE = "placed, 1 standby", "placed, no standby", "native agg"


# -- the variants


def topology() -> Any:
    from taskplace.spark.processors import Aggregate, count, last
    from topology import Topology

    topo = Topology("recovery")
    events = topo.source("events", key=["key"], partitions=PARTITIONS)
    by_key = Aggregate("by-key", by={"key": "string"}, n=count(), payload=last("payload"))
    events.process(by_key, stores=[topo.store("by-key")])
    return topo


def placed(spark: Any, standbys: int) -> Callable[[Any, Path], Any]:
    return lambda frame, folder: start_placed(
        spark, frame, folder, topology(), standbys, snapshot_interval=SNAPSHOT_AFTER
    )


def native(frame: Any, folder: Path) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    result = frame.groupBy("key").agg(F.count("*").alias("n"), F.last("payload").alias("payload"))
    result = result.observe("sent", F.count("*").alias("keys"), F.sum("n").alias("n"))
    return start_native(result.writeStream.format("noop"), folder)


# -- the data


def rows(rng: np.random.Generator, first: int, count: int) -> pa.Table:
    """Return one row for each of `count` keys, with payloads that do not compress well."""
    letters = rng.integers(ord("0"), ord("0") + 64, count * PAYLOAD, dtype=np.uint8)
    offsets = np.arange(count + 1, dtype=np.int32) * PAYLOAD
    payload = pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(letters))
    return pa.table({"key": [f"customer{i:08}" for i in range(first, first + count)], "payload": payload})


def fill(folder: Path, rng: np.random.Generator, keys: int) -> list[Path]:
    ends = [keys * i // FILLS for i in range(FILLS + 1)]

    def tables() -> Iterator[pa.Table]:
        for begin, end in pairwise(ends):
            yield rows(rng, begin, end - begin)

    return write_files(folder, f"fill-{keys}", tables(), parts=6)


# -- who has the state, and is it safe


def held(stream: Stream) -> dict[str, tuple[int, int]]:
    """Return by executor id its process id and the number of tasks whose state it has open for `stream`."""
    if stream.placed is not None:
        active = {view.id: view.active for view in stream.placed.placement()}
        with stream.placed.rebalancer.lock:
            members = stream.placed.state.members.items()
            return {m.executor.id: (m.pid, active.get(name, 0)) for name, m in members}
    # RocksDB keeps its files open under a directory named for the partition.
    found = {}
    for executor, process in executor_processes().items():
        stores = set()
        for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
            try:
                target = str(descriptor.readlink())
            except OSError:
                continue
            if match := re.search(r"StateStoreId\([^)]*partId=(\d+)", target):
                stores.add(int(match[1]))
        found[executor] = (process.pid, len(stores))
    return found


def snapshots(stream: Stream) -> int:
    """Return how many tasks have a snapshot in the checkpoint."""
    if stream.placed is not None:
        journal = stream.placed.journal  # one that was just made is named by the manifest of the next batch
        with stream.placed.rebalancer.lock:
            return sum(bool(h.snapshots) or journal.snapshot_pending(t) for t, h in journal.history.items())
    return sum(
        any(p.glob("*.zip")) for p in (stream.folder / "query" / "state" / "0").iterdir() if p.is_dir()
    )


def settled(stream: Stream) -> bool:
    """Return whether every executor has a share again and no copy is behind or warmed up.

    Standbys beyond their number, which go with the next probing rebalance, do not matter.
    """
    if stream.placed is None:
        return executor_count(stream.spark) >= EXECUTORS
    views = stream.placed.placement()
    return (
        len(views) == EXECUTORS
        and all(view.active == PARTITIONS // EXECUTORS and not view.warmup for view in views)
        and followers_up_to_date(stream.placed)
    )


def followers_up_to_date(placed: Any) -> bool:
    with placed.rebalancer.lock:
        return all(
            member.copies.get(task) == placed.journal.history[task].end
            for name, member in placed.state.members.items()
            for task in placed.state.following(name)
        )


def settle(stream: Stream, small: Path, most: int = 40) -> int:
    """Feed batches until the stream has settled, and return how many; waits up to 3 s for followers after each."""
    for number in range(most):
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            if settled(stream):
                return number
            time.sleep(0.05)
        stream.run(small)
    raise TimeoutError(f"{stream.name}: not settled after {most} batches: {stream.query.lastProgress}")


# -- the measurement


def measure(out: Out, stream: Stream, files: list[Path], small: Path, kills: int) -> dict[str, Any]:
    """Fill the state, kill, and return the figures."""
    begin = time.monotonic()
    for file in files:
        stream.run(file)
    filling = time.monotonic() - begin
    for _ in range(2):
        stream.run(small)
    with contextlib.suppress(TimeoutError):
        wait_until(lambda: snapshots(stream) == PARTITIONS, "all tasks have a snapshot", SNAPSHOTS_SECONDS)
    ready = snapshots(stream)
    out.note(f"{stream.name}: filled in {filling:.0f} s; {ready} of {PARTITIONS} tasks have a snapshot")
    found: dict[str, Any] = {"fill_seconds": filling, "snapshots": ready, "ordinary": [], "kills": []}
    for _ in range(kills):
        batches = settle(stream, small)
        found["ordinary"] += [stream.run(small) for _ in range(3)]
        if stream.placed is not None:
            wait_until(lambda: followers_up_to_date(stream.placed), "followers are up to date", 60)
        found["kills"].append(kill(out, stream, small, batches))
    settle(stream, small)
    check(stream, files, small)
    if stream.placed is not None:
        summary = stream.placed.summary()
        found["promotions"], found["scratch"] = summary.promotions, summary.scratch_restores
        found["replayed"], found["restored"] = summary.replayed_records, summary.snapshot_records
        found["phases"] = dict(summary.phases)
    return found


def kill(out: Out, stream: Stream, small: Path, batches: int) -> dict[str, Any]:
    """Kill the executor with the most state, and time the next batch and the one after the replacement has come."""
    executor, (pid, tasks) = max(held(stream).items(), key=lambda item: item[1][1])
    if not tasks or executor_processes()[executor].pid != pid:
        raise RuntimeError(f"{stream.name}: executor {executor} (process {pid}) holds {tasks} tasks' state")
    process = psutil.Process(pid)
    at = time.time()
    os.kill(pid, signal.SIGKILL)
    batch = stream.feed(small)
    to_commit = stream.wait(batch) - at
    wait_until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, "it is dead", 10)
    wait_until(lambda: executor_count(stream.spark) >= EXECUTORS, "the replacement has come", 120)
    came = time.time() - at
    second = stream.run(small)
    out.note(
        f"{stream.name}: killed executor {executor} with {tasks} of {PARTITIONS} tasks; next commit after "
        f"{to_commit:.2f} s; replacement there by {came:.1f} s; the batch then took {second:.2f} s"
    )
    return {
        "tasks": tasks,
        "to_commit": to_commit,
        "replacement": came,
        "second": second,
        "batches_to_settle_before": batches,
        "phases": stream.phases([batch]),
    }


def check(stream: Stream, files: list[Path], small: Path) -> None:
    """Raise `RuntimeError` unless each key was counted just as often as it was fed."""
    import pyarrow.parquet as pq

    again = stream.fed - len(files)
    if stream.placed is None:
        row = stream.progress(stream.fed - 1).observedMetrics["sent"]
        found, expected = (row["keys"], row["n"]), (SMALL, SMALL * (1 + again))
    else:
        keys = [pq.ParquetFile(file).read(["key"])["key"] for file in (small, files[-1])]
        reader = stream.placed.store("by-key")
        counts = [reader.get_many(pa.table({"key": some[-100:]}))["value"].to_pylist() for some in keys]
        found = [{value and value["n"] for value in some} for some in counts]
        expected = [{1 + again}, {1}]
    if found != expected:
        raise RuntimeError(f"{stream.name}: found counts {found}, expected {expected}")


def show(out: Out, results: dict[str, dict[str, Any]]) -> None:
    out.say(f"\nSeconds, medians over the kills (in brackets each one, of more than {EACH} their range)")
    table = []
    for size, variants in results.items():
        for name, f in variants.items():
            kills = f["kills"]
            to_commit = [k["to_commit"] for k in kills]
            second = [k["second"] for k in kills]
            f |= {
                "median_to_commit": statistics.median(to_commit),
                "p95_to_commit": float(np.percentile(to_commit, 95)),
                "median_second": statistics.median(second),
                "median_ordinary": statistics.median(f["ordinary"]),
                "p95_ordinary": float(np.percentile(f["ordinary"], 95)),
            }
            than = f["median_to_commit"] / next(iter(variants.values()))["median_to_commit"]
            each = " ".join(f"{s:.2f}" for s in to_commit)
            lost = "/".join(str(k["tasks"]) for k in kills)
            if len(kills) > EACH:
                each = f"{min(to_commit):.2f}-{max(to_commit):.2f}"
                lost = f"{min(k['tasks'] for k in kills)}-{max(k['tasks'] for k in kills)}"
            cells = [
                f"{f['median_ordinary']:.2f}",
                f"{f['p95_ordinary']:.2f}" if len(kills) > EACH else "",
                f"{f['median_to_commit']:.2f} ({each})",
                f"{f['p95_to_commit']:.2f}" if len(kills) > EACH else "",
            ]
            table.append([f"{size}, {name}", *cells, f"{f['median_second']:.2f}", f"{than:.2f} x", lost])
    head = [
        "state, variant",
        "ordinary batch",
        "p95",
        "kill to next commit",
        "p95",
        "batch after replacement",
    ]
    out.table([*head, "beside the first", "tasks lost"], table)
    sizes = list(results)
    if len(sizes) > 1:
        for name in results[sizes[0]]:
            first, largest = (results[size][name]["median_to_commit"] for size in (sizes[0], sizes[-1]))
            ordinary = [results[size][name]["median_ordinary"] for size in (sizes[0], sizes[-1])]
            out.say(
                f"{name}: kill to next commit at {sizes[-1]} / at {sizes[0]}: {largest / first:.2f}"
                f" (ordinary batch: {ordinary[1] / ordinary[0]:.2f})"
            )
    for size, variants in results.items():
        for name, f in variants.items():
            if "phases" in f:
                out.say(
                    f"{size}, {name}: {f['promotions']} promotions, {f['scratch']} restores from scratch, "
                    f"{f['restored']:,} records from snapshots, {f['replayed']:,} replayed"
                )
                out.phases("  ordinary batch", f["phases"])
                out.phases("  batch of the last kill", f["kills"][-1]["phases"])


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--sizes", default="10,100,1000", help="MB of state, comma-separated (%(default)s)")
    parser.add_argument("--kills", default="3,3,1", help="repetitions for each size (%(default)s)")
    parser.add_argument(
        "--variants", default=f"{STANDBY};{ALONE};{NATIVE}", help="what to measure (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    sizes = [2] if args.quick else [int(size) for size in args.sizes.split(",")]
    kills = [1] if args.quick else [int(n) for n in args.kills.split(",")]
    if len(kills) != len(sizes):
        parser.error(
            f"--kills: found {json.dumps(kills)}, expected one number for each of {len(sizes)} sizes"
        )
    names = args.variants.split(";")
    if set(names) - {STANDBY, ALONE, NATIVE}:
        parser.error(f"--variants: found {args.variants!r}, expected some of {STANDBY};{ALONE};{NATIVE}")
    out = Out(args, "bench-recovery")
    out.say(f"seed {args.seed}; {ENTRY} bytes of key and value per entry, filled in {FILLS} batches")
    rng = np.random.default_rng(args.seed)
    results: dict[str, dict[str, Any]] = {}
    conf = {
        "spark.sql.streaming.stateStore.maintenanceInterval": "10s",
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": str(SNAPSHOT_AFTER),
    }
    with cluster("bench-recovery", args.scratch, **conf) as (spark, folder):
        out.note("cluster is up")
        known = {STANDBY: placed(spark, 1), ALONE: placed(spark, 0), NATIVE: native}
        variants = {name: known[name] for name in names}
        for number, (size, repetitions) in enumerate(zip(sizes, kills, strict=True)):
            keys = size * 1_000_000 // ENTRY
            files = fill(folder / "data", rng, keys)
            small = write_files(folder / "data", f"small-{size}", [rows(rng, 0, min(SMALL, keys))])[0]
            found: dict[str, Any] = {}
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                wait_until(lambda: executor_count(spark) >= EXECUTORS, "all executors are there", 120)
                where = folder / f"{size}-{names.index(name)}"
                stream = Stream(spark, f"{size} MB, {name}", where, SCHEMA, variants[name])
                try:
                    found[name] = measure(out, stream, files, small, repetitions)
                finally:
                    stream.stop()
            results[f"{size} MB"] = {name: found[name] for name in names}
            out.keep("results", results)
            for file in files:
                file.unlink()
        show(out, results)
    out.close()


if __name__ == "__main__":
    main()
