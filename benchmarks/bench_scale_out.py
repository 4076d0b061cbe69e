"""What a new executor costs the batches while state moves to it: the slowest batch beside an ordinary one.

    python benchmarks/bench_scale_out.py [--mb 1500] [--before 20] [--quick] [--json FILE]

The rows and the state are those of `bench_recovery.py`, with one standby, on two executors. Then a third one is asked
for, and batches follow each other all the time, with one small file each. A third of all copies moves to it: with 1,500
MB of state, 1,000 MB. Measured are the seconds of each batch, as Spark reports them, in three periods:

- "before": ordinary batches on two executors
- "starts": from the request until the driver has the new executor as a member; its JVM starts on the same cores
- "moves": until each executor has a third of the active tasks, no copy is warmed up and all followers are caught up

A batch belongs to the period in which it began. A move is a task that is active on another executor than in the batch
before. In the end the counts are checked.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
from bench_recovery import ENTRY, SCHEMA, SMALL, check, fill, followers_up_to_date, placed, rows
from spark_bench import (
    EXECUTORS,
    PARTITIONS,
    Out,
    Stream,
    arguments,
    cluster,
    executor_count,
    wait_until,
    write_files,
)

BEFORE, STARTS, MOVES = "before", "starts", "moves"
MOST_BATCHES = 400


def want_executors(spark: Any, count: int) -> None:
    """Set the number of executors that the application asks for. It does not end those beyond the number."""
    nothing = spark._jvm.PythonUtils.toScalaMap(spark._jvm.java.util.HashMap())
    spark.sparkContext._jsc.sc().requestTotalExecutors(count, 0, nothing)


def give_up(spark: Any) -> None:
    """End one executor, and do not replace it."""
    left = executor_count(spark) - 1
    want_executors(spark, left)
    context = spark.sparkContext._jsc.sc()
    context.killExecutor(max(context.getExecutorIds().mkString(",").split(","), key=int))
    wait_until(lambda: executor_count(spark) == left, f"{left} executors are left", 60)


def owners(placed: Any) -> dict[str, str]:
    """Return the executor of each active task by the assignment in force."""
    with placed.rebalancer.lock:
        assignment = placed.loop.plan.assignment.items()
        return {str(task): name for name, roles in assignment for task in roles.active}


def balanced(placed: Any) -> bool:
    """Return whether all copies are where they belong. A standby is always some records behind: batches go on."""
    views = placed.placement()
    with placed.rebalancer.lock:
        return all(view.active == PARTITIONS // EXECUTORS and not view.warmup for view in views) and all(
            placed.state.lags.is_caught_up(name, task)
            for name in placed.state.members
            for task in placed.state.following(name)
        )


class Batches:
    """The batches of a stream, each with its period, its seconds, and the tasks that had moved by its end."""

    def __init__(self, stream: Stream, small: Any) -> None:
        self._stream, self._small = stream, small
        self._owners = owners(stream.placed)
        self.found: list[dict[str, Any]] = []

    def run(self, period: str) -> None:
        """Run one batch."""
        start = time.time()
        seconds = self._stream.run(self._small)
        now = owners(self._stream.placed)
        moved = sum(self._owners[task] != name for task, name in now.items())
        self._owners = now
        self.found.append({"period": period, "began": start, "seconds": seconds, "moved": moved})

    def of(self, *periods: str) -> list[dict[str, Any]]:
        return [batch for batch in self.found if batch["period"] in periods]


def measure(out: Out, stream: Stream, files: list[Any], small: Any, before: int) -> dict[str, Any]:
    """Fill the state, add an executor, and return the figures."""
    start = time.monotonic()
    for file in files:
        stream.run(file)
    for _ in range(2):
        stream.run(small)
    wait_until(lambda: followers_up_to_date(stream.placed), "followers are up to date", 120)
    out.note(f"filled in {time.monotonic() - start:.0f} s; all standbys are up to date")
    batches = Batches(stream, small)
    for _ in range(before):
        batches.run(BEFORE)
    out.note(f"{before} batches on {EXECUTORS - 1} executors")
    followed = stream.placed.stats.followed
    asked = time.time()
    want_executors(stream.spark, EXECUTORS)
    while len(stream.placed.placement()) < EXECUTORS:
        batches.run(STARTS)
        if len(batches.of(STARTS)) > MOST_BATCHES:
            raise TimeoutError(f"no new executor within {MOST_BATCHES} batches")
    member = time.time()
    out.note(f"the new executor is a member after {member - asked:.1f} s")
    while not balanced(stream.placed):
        batches.run(MOVES)
        if len(batches.of(MOVES)) > MOST_BATCHES:
            raise TimeoutError(f"not balanced within {MOST_BATCHES} batches: {stream.placed.placement()}")
    ended = time.time()
    followed = stream.placed.stats.followed - followed
    out.note(f"balanced {ended - member:.1f} s later")
    check(stream, files, small)
    return {
        "batches": batches.found,
        "member_after": member - asked,
        "balanced_after": ended - asked,
        "followed_records": followed,
        "placement": [str(view) for view in stream.placed.placement()],
        "elsewhere": stream.placed.stats.elsewhere,
        "scratch": stream.placed.stats.scratch,
    }


def show(out: Out, found: dict[str, Any]) -> None:
    before = statistics.median(b["seconds"] for b in found["batches"] if b["period"] == BEFORE)
    table = []
    for period in (BEFORE, STARTS, MOVES):
        batches = [batch for batch in found["batches"] if batch["period"] == period]
        seconds = [batch["seconds"] for batch in batches]
        if not seconds:
            table.append([period, "0", "0", "", "", "", ""])
            continue
        median, slowest = statistics.median(seconds), max(seconds)
        found[period] = {
            "batches": len(batches),
            "moves": sum(batch["moved"] for batch in batches),
            "median": median,
            "slowest": slowest,
            "slowest_of_before": slowest / before,
        }
        p95 = float(np.percentile(seconds, 95))
        table.append(
            [
                period,
                str(len(batches)),
                str(found[period]["moves"]),
                *(f"{value:.2f} s" for value in (median, p95, slowest)),
                f"{slowest / before:.2f}",
            ]
        )
    out.say()
    head = ["period", "batches", "moves", "median", "p95", "slowest", "slowest / median before"]
    out.table(head, table)
    out.say(
        f"balanced {found['balanced_after']:.1f} s after the request, {found['member_after']:.1f} s of it until the "
        f"executor was a member; followers applied {found['followed_records']:,} records "
        f"({found['followed_records'] * ENTRY / 1e6:,.0f} MB)"
    )
    out.say(
        f"attempts on another executor than planned: {found['elsewhere']}, from scratch: {found['scratch']}"
    )


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--mb", type=int, default=1500, help="MB of state (%(default)s)")
    parser.add_argument("--before", type=int, default=20, help="ordinary batches before it (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    mb, before = (2, 2) if args.quick else (args.mb, args.before)
    out = Out(args, "bench-scale-out")
    out.say(f"seed {args.seed}; {mb:,} MB of state, {ENTRY} bytes of key and value per entry")
    rng, keys = np.random.default_rng(args.seed), mb * 1_000_000 // ENTRY
    with cluster("bench-scale-out", args.scratch) as (spark, folder):
        give_up(spark)
        out.note(f"cluster is up, with {EXECUTORS - 1} executors")
        files = fill(folder / "data", rng, keys)
        small = write_files(folder / "data", "small", [rows(rng, 0, min(SMALL, keys))])[0]
        stream = Stream(spark, "placed, 1 standby", folder / "stream", SCHEMA, placed(spark, 1))
        try:
            found = measure(out, stream, files, small, before)
        finally:
            stream.stop()
    show(out, found)
    out.keep("scale-out", found)
    out.close()


if __name__ == "__main__":
    main()
