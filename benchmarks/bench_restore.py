"""How fast snapshots are restored, beside `cp` of the same files: without Spark.

    python benchmarks/bench_restore.py [--mb 1000] [--tasks 12] [--entry 1000] [--slots 2] [--rounds 5] [--quick]
        [--json FILE]

The tasks' copies are filled together to `--mb` MB of keys and values, `--entry` bytes each. They do not compress, as in
`bench_recovery.py`. A follow job's own code writes a snapshot of each. Then, in turn and after a round that does not
count:

- "restore, 1 slot": all copies from empty directories, one after the other, by the code that an attempt uses
- "restore, 2 slots": the same in as many processes as `--slots` says, as an executor with so many slots does it
- "cp": the same files into an empty directory, by `cp`

The files are in the page cache in all cases. Seconds of the clock, medians; for restores also seconds of processor
time, of all processes together. The processes are started before. Each restored copy is counted, and in the end
compared with its original entry by entry.

Then single steps of the restore on the same files, each by itself: "check" computes the checksum of each file,
"decode" reads its pieces, "encode" makes the entries as they are stored, "write" puts them into LMDB.
"""

from __future__ import annotations

import multiprocessing
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pyarrow as pa
from spark_bench import Out, arguments, in_turn

from taskplace.spark.checkpoint.files import RecordFile, seal_of
from taskplace.spark.messages import (
    EMPTY,
    Change,
    FollowReport,
    FollowRequest,
    History,
    Position,
    Recovery,
    Snapshot,
)
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.keys import store_all
from taskplace.spark.worker import follow, identity
from topology import TaskId

STORE = "by-key"
KEY = 16  # bytes
BATCHES = 5  # that fill a copy
CP = "cp"


def fill(path: Path, rng: np.random.Generator, entries: int, entry: int) -> History:
    """Make a copy with so many entries of so many bytes, in random order of their keys, and return its history."""
    order, at = rng.permutation(entries), EMPTY
    changes: list[Change] = []
    with Copy(path, [STORE]) as copy:
        for number, part in enumerate(np.array_split(order, BATCHES)):
            letters = rng.integers(ord("0"), ord("0") + 64, (len(part), entry - KEY), dtype=np.uint8)
            data: dict[bytes, bytes | None] = {
                b"customer%08d" % key: value.tobytes()
                for key, value in zip(part.tolist(), letters, strict=True)
            }

            def commit(data: Any = data, number: int = number, at: Position = at) -> Position:
                copy.bring_to(History(tuple(changes[-1:])), path)
                to = Position(number, f"a{number}", at.offset + len(data))
                copy.commit({STORE: data}, to)
                return to

            before, at = at, copy.growing(commit)
            changes.append(Change(number, at.attempt, before.attempt, at.offset, len(data)))
    return History(tuple(changes[-1:]))


def snapshot(folder: Path, task: TaskId, history: History) -> Snapshot:
    """Write the snapshot of a task's copy in `folder` into the checkpoint, as a follow job does."""
    orders = FollowRequest("", str(folder / "checkpoint"), str(folder), "app", {0: [STORE]}, {0: [STORE]})
    done = FollowReport("executor-1", here=True)
    work = follow.FollowWork(orders, follow.Budget(None), identity.executor()[1], folder, done)
    work.snapshot(task, history)
    if done.errors:
        raise RuntimeError(f"the snapshot of {task} failed: {done.errors}")
    return done.snapshots[task]


def restore(folder: Path, checkpoint: Path, snapshots: dict[TaskId, Snapshot]) -> None:
    """Restore all copies into `folder`. Errors: `RuntimeError` if a copy has not all entries of its snapshot."""
    for task, made in snapshots.items():
        history, done = History((), (made,)), Recovery()
        with Copy(folder / str(task), [STORE]) as copy:
            copy.growing(lambda: copy.bring_to(history, checkpoint, done))  # noqa: B023 - called at once
            if not done.restored == copy.count(STORE) == made.records:
                raise RuntimeError(f"{task}: found {copy.count(STORE)} entries, expected {made.records}")
            copy.commit_unchanged()


def restore_part(folder: Path, checkpoint: Path, snapshots: dict[TaskId, Snapshot]) -> float:
    """Restore some copies in a process of the pool. Return the seconds of its processor time."""
    return timed(restore, folder, checkpoint, snapshots)[1]


def compare(original: Path, restored: Path, tasks: Sequence[TaskId]) -> None:
    """Raise `RuntimeError` unless each restored copy has the entries of its original."""
    for task in tasks:
        with Copy(original / str(task), [STORE]) as one, Copy(restored / str(task), [STORE]) as other:
            for (_, expected), (_, found) in zip(one.dump(10_000)[1], other.dump(10_000)[1], strict=True):
                if expected != found:
                    raise RuntimeError(f"{task}: the restored copy differs from its original")


def copy_files(checkpoint: Path, where: Path) -> None:
    """Copy the snapshots by `cp`."""
    subprocess.run(["cp", "-r", str(checkpoint / "snapshots"), str(where)], check=True)


def timed(work: Callable[..., object], *args: object) -> tuple[float, float]:
    """Return the seconds of the clock and of this process's processor time that `work(*args)` takes."""
    start, processor = time.perf_counter(), time.process_time()
    work(*args)
    return time.perf_counter() - start, time.process_time() - processor


class Measure:
    """The copies in `folder`, their snapshots in its checkpoint, and what was measured with them.

    `pool` has one process for each slot.
    """

    def __init__(
        self,
        folder: Path,
        pool: ProcessPoolExecutor,
        slots: int,
        *,
        tasks: int,
        entries: int,
        entry: int,
        seed: int,
    ) -> None:
        rng = np.random.default_rng(seed)
        self.folder, self.checkpoint, self.pool = folder, folder / "checkpoint", pool
        self.snapshots = {
            task: snapshot(folder, task, fill(folder / str(task), rng, entries, entry))
            for task in (TaskId(0, number) for number in range(tasks))
        }
        self.bytes = sum(made.size for made in self.snapshots.values())
        self.slots = {f"restore, {number} slot{'s' if number > 1 else ''}": number for number in {1, slots}}
        self.seconds: dict[str, list[float]] = {what: [] for what in (*self.slots, CP)}
        self.processor: dict[str, list[float]] = {what: [] for what in self.slots}

    def round(self, number: int, *, counts: bool, last: bool) -> None:
        """Restore and copy once, in an order that changes with the number."""
        for what in in_turn(list(self.seconds), number):
            with tempfile.TemporaryDirectory(dir=self.folder) as name:
                where = Path(name)
                if what == CP:
                    seconds, processor = timed(copy_files, self.checkpoint, where)
                else:
                    seconds, processor = self.restore(where, self.slots[what])
                    if last:
                        compare(self.folder, where, list(self.snapshots))
            if counts:
                self.seconds[what].append(seconds)
                if what != CP:
                    self.processor[what].append(processor)

    def restore(self, where: Path, slots: int) -> tuple[float, float]:
        """Restore all copies into `where`. Return the seconds of the clock, and of all processes' processor time."""
        tasks, start = list(self.snapshots), time.perf_counter()
        parts = [{task: self.snapshots[task] for task in tasks[slot::slots]} for slot in range(slots)]
        done = [self.pool.submit(restore_part, where, self.checkpoint, part) for part in parts]
        processor = sum(one.result() for one in done)
        return time.perf_counter() - start, processor

    def steps(self) -> dict[str, float]:
        """Return the seconds that each step of the restore takes by itself, for all snapshots."""
        seconds = dict.fromkeys(("check", "decode", "encode", "write"), 0.0)
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            for task, made in self.snapshots.items():
                seconds["check"] += timed(seal_of, self.checkpoint / made.file)[0]
                file = RecordFile(pa.OSFile(str(self.checkpoint / made.file)))
                env = lmdb.open(f"{name}/{task}", map_size=1 << 40, sync=False, metasync=False)
                for number in range(len(file)):
                    start = time.perf_counter()
                    _, keys, values = file.columns(number)
                    decoded = time.perf_counter()
                    stored = store_all(keys, [value or b"" for value in values])
                    encoded = time.perf_counter()
                    with env.begin(write=True) as txn, txn.cursor() as cursor:
                        cursor.putmulti(stored, append=True)
                    seconds["decode"] += decoded - start
                    seconds["encode"] += encoded - decoded
                    seconds["write"] += time.perf_counter() - encoded
                env.close()
                file.close()
        return seconds


def show(out: Out, measure: Measure, steps: dict[str, float]) -> None:
    medians = {what: statistics.median(some) for what, some in measure.seconds.items()}
    processor = {what: statistics.median(some) for what, some in measure.processor.items()}
    megabytes, ratios = measure.bytes / 1e6, {what: medians[CP] / medians[what] for what in measure.slots}
    out.keep(
        "restore",
        {
            "bytes": measure.bytes,
            "seconds": measure.seconds,
            "medians": medians,
            "processor": measure.processor,
            "speed_of_cp": ratios,
            "steps": steps,
        },
    )
    out.say(f"\n{megabytes:,.0f} MB of snapshots (medians; the range of all in brackets)")
    rows = [
        [
            what,
            f"{medians[what]:.2f} s",
            f"({min(some):.2f}-{max(some):.2f})",
            f"{megabytes / medians[what]:,.0f}",
            f"{processor[what]:.2f} s" if what in processor else "",
            f"{ratios[what]:.2f}" if what in ratios else "1",
        ]
        for what, some in measure.seconds.items()
    ]
    out.table(["", "seconds", "", "MB/s", "processor time", "speed of cp"], rows)
    out.phases("steps, each by itself", steps)


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--mb", type=int, default=1000, help="MB of keys and values (%(default)s)")
    parser.add_argument("--tasks", type=int, default=12, help="copies that hold them (%(default)s)")
    parser.add_argument("--entry", type=int, default=1000, help="bytes of key and value (%(default)s)")
    parser.add_argument("--slots", type=int, default=2, help="processes of the second restore (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    mb, rounds = (2, 1) if args.quick else (args.mb, args.rounds)
    entries = mb * 1_000_000 // args.entry // args.tasks
    if args.entry <= KEY or entries < BATCHES:
        parser.error(
            f"found {mb} MB in {args.tasks} tasks, {args.entry} bytes an entry; expected more than {KEY} bytes "
            f"an entry, and {BATCHES} entries a task"
        )
    out = Out(args, "bench-restore", cluster="none: processes of this machine")
    with (
        tempfile.TemporaryDirectory(prefix="bench-restore-", dir=args.scratch) as name,
        ProcessPoolExecutor(args.slots, multiprocessing.get_context("spawn")) as pool,
    ):
        measure = Measure(
            Path(name), pool, args.slots, tasks=args.tasks, entries=entries, entry=args.entry, seed=args.seed
        )
        size = f"{measure.bytes / 1e6:,.0f} MB"
        out.note(f"{args.tasks} copies of {entries:,} entries of {args.entry} bytes; snapshots of {size}")
        for number in range(rounds + 1):
            measure.round(number, counts=number > 0, last=number == rounds)
            out.note(f"round {number} of {rounds}" if number else "warmed up")
        show(out, measure, measure.steps())
    out.close()


if __name__ == "__main__":
    main()
