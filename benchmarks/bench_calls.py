"""How often the driver calls the JVM, syncs files and lists directories in a batch: counts, not seconds.

    python benchmarks/bench_calls.py [--quick] [--json FILE] [--tasks 12,200,1000]

The stream is that of `bench_tasks.py`, on a cluster, with the same rows in each batch; an empty batch has none. Counted
is what the driver's Python process does from the arrival of a batch's file to its commit, in all its threads: calls of
Py4J in both directions, `fsync`, listed directories and opened files. Medians of the batches after those that do not
count. What Spark does in Java is not counted.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from bench_tasks import placed
from bench_throughput import SCHEMA, Size
from spark_bench import Out, Stream, arguments, cluster

KINDS = ("calls into the JVM", "calls out of the JVM", "fsync", "listed directories", "opened files")
_EVENTS = {"os.listdir": KINDS[3], "os.scandir": KINDS[3], "open": KINDS[4]}


class Calls:
    """Counts calls from now on, of all threads. It stays in place until the process ends."""

    def __init__(self) -> None:
        from py4j.clientserver import ClientServerConnection
        from py4j.java_gateway import CallbackConnection, GatewayConnection

        self.counted: Counter[str] = Counter()
        for connection in (ClientServerConnection, GatewayConnection):
            self._wrap(connection, "send_command", KINDS[0])
        for connection in (ClientServerConnection, CallbackConnection):
            self._wrap(connection, "_call_proxy", KINDS[1])
        self._wrap(os, "fsync", KINDS[2])
        sys.addaudithook(self._heard)

    def _wrap(self, owner: Any, name: str, kind: str) -> None:
        function: Callable[..., Any] = getattr(owner, name)

        def counting(*args: Any, **kwargs: Any) -> Any:
            self.counted[kind] += 1
            return function(*args, **kwargs)

        setattr(owner, name, counting)

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
        if event in _EVENTS:
            self.counted[_EVENTS[event]] += 1

    def of(self, stream: Stream, file: Any) -> Counter[str]:
        """Return the calls of one batch."""
        self.counted.clear()
        batch = stream.feed(file)
        stream.wait(batch)
        counted = Counter(self.counted)
        stream.progress(batch)  # its questions do not count
        return counted


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--tasks", default="12,200,1000", help="numbers of tasks (%(default)s)")
    args = parser.parse_args()
    out = Out(args, "bench-calls")
    warm, batches = (1, 1) if args.quick else (12, 6)
    found: dict[str, dict[str, float]] = {}
    with cluster("bench-calls", args.scratch) as (spark, folder):
        size = Size(folder, 1_000, 100, 1) if args.quick else Size(folder, 200_000, 10_000, 1)
        calls = Calls()
        for tasks in map(int, args.tasks.split(",")):
            stream = Stream(spark, f"{tasks} tasks", folder / str(tasks), SCHEMA, placed(tasks, spark))
            for kind, files in (("", size.files), (", empty", [size.empty])):
                counted = []
                for number in range(warm + batches):
                    some = calls.of(stream, files[number % len(files)])
                    if number >= warm:
                        counted.append(some)
                found[f"{tasks} tasks{kind}"] = {
                    name: statistics.median(some[name] for some in counted) for name in KINDS
                }
                out.note(f"{tasks} tasks{kind}")
            stream.stop()
    out.say("\nCalls of the driver in a batch (medians)")
    out.table(
        ["batch", *KINDS], [[name, *(f"{some[kind]:g}" for kind in KINDS)] for name, some in found.items()]
    )
    out.keep("calls", found)
    out.close()


if __name__ == "__main__":
    main()
