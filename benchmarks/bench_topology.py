"""How long it takes to get from a description to tasks, at scale: a table of steps and times.

    python benchmarks/bench_topology.py [--nodes 2000] [--partitions 100000] [--pipelines 2000] [--repeat 3]
                                        [--limit 2.0]

The topology has chains with joins, shared stores and repartitions, in many subtopologies. "partitions" counts topic
partitions; every one ends up in exactly one task. A second table shows how the steps grow with many small pipelines
(a source, a processor, a store), at once, twice and four times their number. With `--limit`, exit code 1 if building
and grouping takes longer.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from topology import Topology, compare, group_topics, violations


def describe(nodes: int, partitions: int, per_pipeline: int = 20) -> Topology:
    """Return a topology with about `nodes` nodes whose topics have `partitions` partitions altogether."""
    topo = Topology("bench")
    pipelines = max(1, nodes // per_pipeline)
    width = max(1, partitions // (4 * pipelines))  # four topics a pipeline, all of one width
    for number in range(pipelines):
        name = f"p{number}"
        left = topo.source(f"{name}-left", key="k", partitions=width)
        right = topo.source(f"{name}-right", key="k", partitions=width)
        stream = left.join_table(right, name=f"{name}-join", stores=[{"name": f"{name}-table"}])
        for step in range(2):
            stream = stream.repartition("k", name=f"{name}-by{step}")
            topo.store(f"{name}-shared{step}")
            first = stream.process(name=f"{name}-a{step}", stores=[f"{name}-shared{step}"])
            second = stream.process(name=f"{name}-b{step}", stores=[f"{name}-shared{step}"])
            stream = first.merge(second, name=f"{name}-m{step}")
        while len(topo._nodes) < (number + 1) * per_pipeline - 1:
            stream = stream.process()
        stream.sink(f"{name}-out")
    return topo


def pipelines(number: int) -> Topology:
    """Return many subtopologies, each with a store: what is done for each of them shows."""
    topo = Topology("pipelines")
    for i in range(number):
        topo.source(f"t{i}", key="k", partitions=2).process(name=f"p{i}", stores=[{"name": f"s{i}"}])
    return topo


def growth(number: int, repeat: int) -> None:
    """Print CPU times for `number` pipelines, twice and four times as many, with Python's garbage collector off.

    The collector goes through everything that is there again and again; it would hide how the steps themselves grow.
    """
    print(
        f"pipelines of a source, a processor and a store: CPU time without the collector (best of {repeat})"
    )
    print(f"  {'':>10} {'build':>10} {'new metadata':>14} {'compare':>10} {'tasks':>10}")
    gc.disable()
    for size in (number, 2 * number, 4 * number):
        topo = pipelines(size)
        build_s, built = timed(repeat, topo.build, time.process_time)
        counts = dict(built.partitions)
        update_s, _ = timed(repeat, partial(built.with_partitions, counts), time.process_time)
        compare_s, _ = timed(repeat, partial(compare, built, built), time.process_time)
        tasks_s, _ = timed(repeat, built.tasks, time.process_time)
        times = f"{build_s * 1000:>7.1f} ms {update_s * 1000:>11.1f} ms {compare_s * 1000:>7.1f} ms"
        print(f"  {size:>10,} {times} {tasks_s * 1000:>7.1f} ms")
    gc.enable()


def timed(
    repeat: int, call: Callable[[], Any], clock: Callable[[], float] = time.perf_counter
) -> tuple[float, Any]:
    """Return the best time of `repeat` calls, and the last result."""
    best, found = float("inf"), None
    for _ in range(repeat):
        start = clock()
        found = call()
        best = min(best, clock() - start)
    return best, found


def measure(nodes: int, partitions: int, repeat: int) -> float:
    """Print a row per step; return the time from description to tasks."""
    rows: list[tuple[str, float, str]] = []

    def step(name: str, call: Callable[[], Any], what: Callable[[Any], str]) -> tuple[float, Any]:
        seconds, found = timed(repeat, call)
        rows.append((name, seconds, what(found)))
        return seconds, found

    _, topo = step("describe", lambda: describe(nodes, partitions), lambda t: f"{len(t._nodes)} nodes")
    built_s, built = step("build", topo.build, lambda b: f"{len(b.subtopologies)} subtopologies")
    tasks_s, _ = step(
        "tasks",
        built.tasks,
        lambda ts: f"{len(ts)} tasks, {sum(len(t.topic_partitions) for t in ts)} topic partitions",
    )
    topics = {topic: count for topic, count in built.partitions.items() if not topic.endswith("-repartition")}
    step("new metadata", lambda: built.with_partitions(topics), lambda b: str(b.readiness()))
    step("fingerprint", built.fingerprint, lambda f: f[:12])
    step("compare", lambda: compare(built, built), lambda e: str(e))
    step("describe text", built.describe, lambda text: f"{len(text) // 1000} kB")
    step("DOT text", built.to_dot, lambda text: f"{len(text) // 1000} kB")
    step("every invariant", lambda: violations(built), lambda found: f"{len(found)} violations")
    step(
        "without a topology",
        lambda: [t for g in group_topics(built.partitions) for t in g.tasks()],
        lambda ts: f"{len(ts)} tasks, {sum(len(t.topic_partitions) for t in ts)} topic partitions",
    )
    print(f"{nodes:,} nodes, {partitions:,} partitions (best of {repeat})")
    for name, seconds, what in rows:
        print(f"  {name:<20} {seconds * 1000:>10.1f} ms   {what}")
    print(f"  {'build + tasks':<20} {(built_s + tasks_s) * 1000:>10.1f} ms")
    return built_s + tasks_s


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--pipelines", type=int, default=2000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--limit", type=float, help="fail if build + tasks takes more seconds")
    given = parser.parse_args()
    load = f"load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "load unknown"
    print(f"Python {platform.python_version()}, {platform.machine()}, {load}")
    describe(20, 20).build()  # networkx is loaded by the first build
    small = measure(given.nodes // 10, given.partitions // 10, given.repeat)
    large = measure(given.nodes, given.partitions, given.repeat)
    print(f"ten times the size takes {large / small:.1f} times as long")
    growth(given.pipelines, given.repeat)
    if given.limit is not None and large > given.limit:
        print(f"too slow: {large:.2f} s, the limit is {given.limit:.2f} s", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
