"""How long a stream stands still when its driver dies, by the size of the state: from the restart to the first commit.

    python benchmarks/bench_restart.py [--sizes 10,100,1000] [--restarts 3] [--quick] [--json FILE]

The rows and the state are those of `bench_recovery.py`. A driver is a process of its own, with its own local-cluster.
The first one fills the state, and waits until all tasks have a snapshot and all followers are up to date. Then its
Python process and its JVM get SIGKILL, and its executors end with it. When they have ended, a file is put into the
input and the next driver starts. It continues the checkpoint on the same host. After some ordinary batches it is killed
in the same way. The last driver checks the counts. Variants:

- "placed, state kept": the new executors take over the state directories of the dead ones
- "placed, state lost": the state directories are removed before each restart, so all tasks are restored
- "native": `groupBy().agg()` on the RocksDB provider with changelog checkpointing, which always restores

Times of a restart, medians, by the clock:

- "session": from the start of the process until Spark's session is there and all executors are registered
- "start": until `Placed` has read the checkpoint and Spark's query has started
- "first batch": until the batch with the waiting file is in the query's commit log
- "ordinary": a later batch of the same rows

Of the last restart, also: how many cores were busy in each of these times (all processes of the machine count), the
stages of the first batch, and the processor time of the first batch by process and kind of thread.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from bench_recovery import (
    ENTRY,
    PARTITIONS,
    SCHEMA,
    SMALL,
    SNAPSHOT_AFTER,
    SNAPSHOTS_SECONDS,
    check,
    fill,
    followers_up_to_date,
    native,
    placed,
    rows,
    snapshots,
)
from profile_batch import ProcessorTime, stages_of
from spark_bench import (
    EXECUTORS,
    ROOT,
    Out,
    Stream,
    arguments,
    executor_count,
    session,
    wait_until,
    write_files,
)

KEPT, LOST, NATIVE = "placed, state kept", "placed, state lost", "native"
ORDINARY = 3
CONF = {
    "spark.sql.streaming.stateStore.maintenanceInterval": "10s",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": str(SNAPSHOT_AFTER),
}
LONGEST = 900.0  # seconds that a driver may take for one step

#: The steps of a restart, by the events at their start and end.
STEPS = {
    "session": ("begun", "executors"),
    "start": ("executors", "started"),
    "first batch": ("started", "committed"),
}


# -- the driver, in a process of its own


def say(event: str, **figures: Any) -> None:
    """Tell the measuring process that something has happened just now, and the processor time until now."""
    figures = {"event": event, "at": time.time(), "busy": busy_seconds(), **figures}
    print(json.dumps(figures), flush=True)


def busy_seconds() -> float:
    """Return the seconds that the machine's cores have worked since it was started, added up over cores."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait)


def drive(variant: str, folder: Path, data: Path) -> None:
    """Run a stream in `folder`, new or continued, until the measuring process kills it or says that it shall end."""
    fills, small = sorted(data.glob("fill-*.parquet")), next(data.glob("small-*.parquet"))
    # Files of a killed session stay in its directory, so each session has its own.
    local = Path(tempfile.mkdtemp(prefix="session-", dir=folder.parent))
    with session("bench-restart", local, **CONF) as spark:
        say("session")
        wait_until(lambda: executor_count(spark) >= EXECUTORS, "all executors are there", 90)
        say("executors")
        stream = Stream(spark, variant, folder, SCHEMA, native if variant == NATIVE else placed(spark, 1))
        say("started")
        if stream.fed:
            clock = ProcessorTime()
            at = stream.wait(stream.fed - 1)
            say("committed", commit=at, **first_batch(stream, clock))
        else:
            for file in fills:
                stream.run(file)
        ordinary = [stream.run(small) for _ in range(ORDINARY)]
        with contextlib.suppress(TimeoutError):
            wait_until(
                lambda: snapshots(stream) == PARTITIONS, "all tasks have a snapshot", SNAPSHOTS_SECONDS
            )
        if stream.placed is not None:
            wait_until(lambda: followers_up_to_date(stream.placed), "followers are up to date", 120)
        say("ready", ordinary=ordinary, snapshots=snapshots(stream), **recovered(stream))
        if sys.stdin.readline():
            check(stream, fills, small)
            stream.stop()
            say("checked")


def first_batch(stream: Stream, clock: ProcessorTime) -> dict[str, Any]:
    """Return where the time of this driver's first batch went. `clock` was made when the query had started."""
    used = {" / ".join(where): seconds for where, seconds in clock.since().items()}
    stages = stages_of(stream.spark)
    return {
        "phases": stream.phases([0]),
        "spans": stream.spans([stream.fed - 1]),
        "used": used,
        "stages": [(began, ended - began) for began, ended in stages],
    }


def recovered(stream: Stream) -> dict[str, int]:
    """Return what this driver's tasks had to do before their batches."""
    if stream.placed is None:
        return {}
    summary = stream.placed.summary()
    return {
        "scratch": summary.scratch_restores,
        "restored": summary.snapshot_records,
        "replayed": summary.replayed_records,
    }


# -- the measuring process


class Driver:
    """A running driver. `begun`: when its process was started, seconds since 1970."""

    def __init__(self, variant: str, folder: Path, data: Path) -> None:
        self._log = folder.parent / "driver.log"
        command = [sys.executable, __file__, "--drive", variant, str(folder), str(data)]
        self.begun = time.time()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT
            )

    def until(self, event: str) -> Iterator[dict[str, Any]]:
        """Yield the events up to one of that name. Errors: `RuntimeError` if the driver ends before."""
        if self._process.stdout is None:
            raise RuntimeError("the driver has no output")
        for line in self._process.stdout:
            found = json.loads(line)
            yield found
            if found["event"] == event:
                return
        raise RuntimeError(f"the driver ended before {event!r}:\n{self._log.read_text()[-3000:]}")

    def kill(self) -> float:
        """Kill the driver with its JVM. Return the seconds until its executors and their workers have ended."""
        me = psutil.Process(self._process.pid)
        below = me.children(recursive=True)
        executors = [process for process in below if "--executor-id" in command_of(process)]
        workers = {child for process in executors for child in process.children(recursive=True)}
        for process in (me, *(one for one in below if one not in executors and one not in workers)):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        start = time.monotonic()
        self._process.wait()
        self._close()
        left = psutil.wait_procs(below, timeout=60)[1]
        for process in left:
            process.kill()
        if left:
            raise TimeoutError(f"not within 60 s: the executors of the killed driver end: {left}")
        return time.monotonic() - start

    def check_and_end(self) -> None:
        """Let it check its results and end."""
        if self._process.stdin is None:
            raise RuntimeError("the driver has no input")
        self._process.stdin.write("end\n")
        self._process.stdin.flush()
        list(self.until("checked"))
        self._process.wait(timeout=60)
        self._close()

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def end(self) -> None:
        """Kill what is left of it. Does nothing after `kill` or `check_and_end`."""
        if self._process.poll() is None:
            self.kill()


def command_of(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        return process.cmdline()
    return []


def restart(variant: str, stopped: Driver, folder: Path, data: Path) -> tuple[Driver, dict[str, Any]]:
    """Kill a driver and start the next one. Return it with the times of the restart."""
    ended = stopped.kill()
    if variant == LOST:
        shutil.rmtree(folder / "state")
    number = len(list((folder / "input").iterdir()))
    (folder / "input" / f"{number:06}.parquet").hardlink_to(next(data.glob("small-*.parquet")))
    driver = Driver(variant, folder, data)
    try:
        at, busy = {"begun": driver.begun}, {"begun": busy_seconds()}
        for event in driver.until("ready"):
            at[event["event"]], busy[event["event"]] = event["at"], event["busy"]
            if event["event"] == "committed":
                at["committed"], first = event["commit"], event
    except BaseException:
        driver.end()
        raise
    return driver, {
        "executors_ended": ended,
        "session": at["executors"] - at["begun"],
        "start": at["started"] - at["executors"],
        "first": at["committed"] - at["started"],
        "without_session": at["committed"] - at["executors"],
        "phases": first["phases"],
        "spans": first["spans"],
        "used": first["used"],
        "stages": [(began - at["started"], seconds) for began, seconds in first["stages"]],
        "cores": {
            step: (busy[end] - busy[start]) / max(at[end] - at[start], 0.001)
            for step, (start, end) in STEPS.items()
        },
        **{name: event[name] for name in event if name not in ("event", "at", "busy")},
    }


def measure(out: Out, variant: str, folder: Path, data: Path, restarts: int) -> dict[str, Any]:
    """Fill the state, kill and restart so many times, and return the figures."""
    folder.mkdir(parents=True)
    driver = Driver(variant, folder / "stream", data)
    try:
        *_, ready = driver.until("ready")
        took = time.time() - driver.begun
        out.note(
            f"{variant}: filled in {took:.0f} s; {ready['snapshots']} of {PARTITIONS} tasks have a snapshot"
        )
        found = []
        for _ in range(restarts):
            driver, times = restart(variant, driver, folder / "stream", data)
            found.append(times)
            out.note(
                f"{variant}: executors ended after {times['executors_ended']:.1f} s; restarted: session "
                f"{times['session']:.1f} s, start {times['start']:.2f} s, first batch {times['first']:.2f} s"
            )
        driver.check_and_end()
    finally:
        driver.end()
        shutil.rmtree(folder, ignore_errors=True)
    return {"fill": ready, "restarts": found}


def show(out: Out, results: dict[str, dict[str, Any]]) -> None:
    out.say("\nSeconds, medians over the restarts (each one in brackets)")
    table = []
    for size, variants in results.items():
        for name, found in variants.items():
            restarts = found["restarts"]
            names = ("session", "start", "first", "without_session")
            medians = {what: statistics.median(times[what] for times in restarts) for what in names}
            medians["ordinary"] = statistics.median(s for times in restarts for s in times["ordinary"])
            found["medians"] = medians
            each = " ".join(f"{times['without_session']:.2f}" for times in restarts)
            cells = [f"{medians[what]:.2f}" for what in ("session", "start", "first")]
            table.append(
                [
                    f"{size}, {name}",
                    *cells,
                    f"{medians['without_session']:.2f} ({each})",
                    f"{medians['ordinary']:.2f}",
                ]
            )
    head = ["state, variant", "session", "start", "first batch", "session to first commit", "ordinary"]
    out.table(head, table)
    for size, variants in results.items():
        for name, found in variants.items():
            last = found["restarts"][-1]
            if "scratch" in last:
                out.say(
                    f"{size}, {name}, last restart: {last['scratch']} restores from scratch, "
                    f"{last['restored']:,} records from snapshots, {last['replayed']:,} replayed"
                )
                out.phases("  first batch, as taskplace sees it", last["phases"])
            out.phases(f"  {size}, {name}: first batch, as Spark sees it", last["spans"])
            show_profile(out, last)


def show_profile(out: Out, restart: dict[str, Any]) -> None:
    cores = ", ".join(f"{step} {busy:.2f}" for step, busy in restart["cores"].items())
    out.say(f"  busy cores: {cores}")
    stages = ", ".join(f"{began:.2f} s ({seconds:.2f} s)" for began, seconds in restart["stages"])
    out.say(f"  stages, by their start after the query's, and how long they took: {stages}")
    used = sorted(restart["used"].items(), key=lambda each: -each[1])
    out.say(
        "  processor time of the first batch: " + ", ".join(f"{who} {s:.1f} s" for who, s in used if s > 0.2)
    )


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--sizes", default="10,100,1000", help="MB of state, comma-separated (%(default)s)")
    parser.add_argument("--restarts", type=int, default=3, help="restarts of each variant (%(default)s)")
    parser.add_argument("--variants", default=f"{KEPT};{LOST};{NATIVE}", help="what to measure (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--drive", nargs=3, metavar=("VARIANT", "FOLDER", "DATA"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.drive:
        variant, folder, data = args.drive
        drive(variant, Path(folder), Path(data))
        return
    sizes = [2] if args.quick else [int(size) for size in args.sizes.split(",")]
    restarts = 1 if args.quick else args.restarts
    variants = args.variants.split(";")
    if not variants or set(variants) - {KEPT, LOST, NATIVE}:
        parser.error(f"--variants: found {args.variants!r}, expected some of {KEPT};{LOST};{NATIVE}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the driver must not outlive this process
    out = Out(args, "bench-restart")
    out.say(f"seed {args.seed}; {ENTRY} bytes of key and value per entry")
    rng = np.random.default_rng(args.seed)
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-restart-", dir=args.scratch) as name:
        for size in sizes:
            data, keys = Path(name) / f"data-{size}", size * 1_000_000 // ENTRY
            fill(data, rng, keys)
            write_files(data, f"small-{size}", [rows(rng, 0, min(SMALL, keys))])
            results[f"{size} MB"] = {}
            for number, variant in enumerate(variants):
                where = Path(name) / f"{size}-{number}"
                results[f"{size} MB"][variant] = measure(out, variant, where, data, restarts)
                out.keep("results", results)
            shutil.rmtree(data)
        show(out, results)
    out.keep("results", results)
    out.close()


if __name__ == "__main__":
    main()
