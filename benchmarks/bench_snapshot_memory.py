"""How much memory a worker needs to write a snapshot, to restore it, and to read a whole store, by the copy's size.

    python benchmarks/bench_snapshot_memory.py --mib 50 200 800
    python benchmarks/bench_snapshot_memory.py --mib 2048 --limit-mib 900

Each step runs in a process of its own. What is shown is the highest anonymous memory, and how far that is beyond a
process that has done the same with a small copy: pages of LMDB's file are the system's cache, and are left out.
With `--limit-mib` the system refuses a step more writable private memory than that (RLIMIT_DATA), and it fails.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import tempfile
import threading
import time
from pathlib import Path
from queue import Empty
from typing import Any

import numpy as np

from topology import TaskId

VALUE = 400  # bytes of a value


def anonymous() -> int:
    """Return the anonymous memory of this process, bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) << 10
    raise OSError("no RssAnon in /proc/self/status")


def fill(folder: Path, mib: int) -> Any:
    """Make a copy of so many MiB, and return where its history ends."""
    from taskplace.spark.messages import EMPTY, Change, History, Position
    from taskplace.spark.state.copy import Copy

    random, changes, at = np.random.default_rng(1), [], EMPTY
    with Copy(folder / "0_0", ["s"]) as copy:
        for number in range(max(1, mib // 16)):
            rows = min(mib, 16) * (1 << 20) // VALUE
            keys = random.permutation(rows)
            data = {b"%08d-%08d" % (k, number): random.bytes(VALUE - 17) for k in keys.tolist()}

            def commit(data: Any = data, number: int = number, at: Any = at) -> Position:
                copy.bring_to(History(tuple(changes[-1:])), folder)
                to = Position(number, f"a{number}", at.offset + len(data))
                copy.commit({"s": data}, to)
                return to

            before, at = at, copy.growing(commit)
            changes.append(Change(number, at.attempt, before.attempt, at.offset, len(data)))
    return History(tuple(changes[-1:]))


def snapshot(folder: Path, history: Any) -> Any:
    from taskplace.spark.messages import FollowReport, FollowRequest
    from taskplace.spark.worker import follow, identity

    orders = FollowRequest("", str(folder / "cp"), str(folder), "app", {0: ["s"]}, {0: ["s"]})
    done = FollowReport("executor-1", here=True)
    work = follow.FollowWork(orders, follow.Budget(None), identity.executor()[1], folder, done)
    work.snapshot(TaskId(0, 0), history)
    assert not done.errors, done.errors
    return done.snapshots[TaskId(0, 0)]


def restore(folder: Path, made: Any) -> None:
    from taskplace.spark.messages import History
    from taskplace.spark.state.copy import Copy

    history = History((), (made,))
    with Copy(folder / "restored", ["s"]) as copy:
        copy.growing(lambda: copy.bring_to(history, folder / "cp"))
        assert copy.count("s") == made.records
        copy.commit_unchanged()


def read(folder: Path, made: Any) -> None:
    from taskplace.spark.messages import History
    from taskplace.spark.state.store import StoreSchema
    from taskplace.spark.state.transaction import View
    from taskplace.spark.worker import lookup

    schema = StoreSchema.of("s", {"key": {"k": "int64", "l": "int64"}, "value": {"v": "string"}})

    class AsRows:
        """Decodes what are no rows: what is measured is how much is held at a time."""

        def __init__(self, columns: Any, *_: Any) -> None:
            self.columns = columns

        def decode(self, found: list[bytes]) -> Any:
            import pyarrow as pa

            if "v" in self.columns.names:
                return pa.table({"v": pa.array([one.hex() for one in found])}, schema=self.columns)
            return pa.table({n: pa.array(range(len(found))) for n in "kl"}, schema=self.columns)

    lookup.RowCodec = AsRows  # type: ignore[misc,assignment]
    with View(folder / "0_0", "s", History((), (made,))) as view:
        lookup._write(schema, view, folder / "read.parquet", None)


def measured(queue: Any, limit: int | None, step: Any, *args: Any) -> None:
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit << 20, limit << 20))
    peak, over = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not over.is_set():
            peak = max(peak, anonymous())
            time.sleep(0.002)

    thread = threading.Thread(target=watch)
    thread.start()
    start = time.perf_counter()
    found = step(*args)
    seconds = time.perf_counter() - start
    over.set()
    thread.join()
    queue.put((found, peak, seconds))


def apart(limit: int | None, step: Any, *args: Any) -> tuple[Any, int, float]:
    """Run a step in a process of its own; return its answer, its highest anonymous memory, and its seconds."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=measured, args=(queue, limit, step, *args))
    process.start()
    while True:
        try:
            found = queue.get(timeout=1)
            break
        except Empty:
            if not process.is_alive():
                raise SystemExit(f"{step.__name__} ended with exit code {process.exitcode}") from None
    process.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, nargs="+", default=[50, 200, 800])
    parser.add_argument("--limit-mib", type=int, default=None)
    parser.add_argument("--scratch", default=None)
    options = parser.parse_args()
    limit: int | None = options.limit_mib
    base: dict[str, int] = {}
    print(f"{'copy, MiB':>10} {'step':10} {'peak, MiB':>10} {'beyond the base':>16} {'seconds':>8}")
    for mib in [1, *options.mib]:
        with tempfile.TemporaryDirectory(dir=options.scratch) as name:
            folder = Path(name)
            history, _, _ = apart(None, fill, folder, mib)
            made, *first = apart(limit, snapshot, folder, history)
            steps = {"snapshot": first}
            steps["restore"] = list(apart(limit, restore, folder, made)[1:])
            steps["read"] = list(apart(limit, read, folder, made)[1:])
        for step, (peak, seconds) in steps.items():
            base.setdefault(step, peak)
            beyond = (peak - base[step]) >> 20
            print(f"{mib:10} {step:10} {peak >> 20:10} {beyond:16} {seconds:8.1f}")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
