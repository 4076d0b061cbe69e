"""How fast the engine plans: fresh start, steady state, 10% more and 10% fewer instances, with one standby each.

    python benchmarks/bench_engine.py [--sizes 1000x10,10000x100] [--repeat 3] [--json FILE] [--spread]

Every size runs in a process of its own, so that its peak memory is its own. Times are from a typed problem to a
verified plan; the best of `--repeat` counts, and the median is in the JSON file. Each repetition has a new problem
object, so nothing is cached, and follows a garbage collection. The solver is loaded before. Conversion from JSON, and
the explanations of all tasks of the plan after +10%, are columns of their own. The last lines give the growth of time
with tasks + copies, as the exponent of a power law; and, with `--spread`, what sticky and the default lose if a tenth
of the instances, neighbours by name, is lost.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SIZES = "1000x10,10000x100,10000x1000,100000x1000"
SUBTOPOLOGIES = 8
CASES = ("fresh start", "steady", "+10% instances", "-10% instances", "from dict", "from JSON", "explain all")


def measure(tasks: int, instances: int, repeat: int) -> dict[str, Any]:
    import taskplace
    from taskplace import Instance, PlacementConfig, Plan, Problem, Roles, Task, TaskId
    from taskplace.explanation import Explainer

    config = PlacementConfig(num_standby_replicas=1)
    per = max(1, tasks // SUBTOPOLOGIES)
    all_tasks = tuple(
        Task(TaskId(s, p), end_offset=100_000) for s in range(SUBTOPOLOGIES) for p in range(per)
    )[:tasks]
    names = [f"executor-{k:04}" for k in range(instances)]
    few = max(1, instances // 10)

    def holding(plan: Plan, names: list[str]) -> tuple[Instance, ...]:
        out = []
        for name in names:
            roles = plan.assignment.get(name, Roles())
            held = dict.fromkeys((*roles.active, *roles.standby), 0)
            out.append(Instance(name, active=roles.active, standby=roles.standby, lags=held))
        return tuple(out)

    taskplace.plan(Problem(all_tasks[:1], (Instance("a"),), config))  # loads the solver
    placed = taskplace.plan(Problem(all_tasks, tuple(Instance(n) for n in names), config))
    document = Problem(all_tasks, holding(placed, names), config).to_dict()
    text = json.dumps(document)
    makers: dict[str, Callable[[], Problem]] = {
        "fresh start": lambda: Problem(all_tasks, tuple(Instance(n) for n in names), config),
        "steady": lambda: Problem(all_tasks, holding(placed, names), config),
        "+10% instances": lambda: Problem(
            all_tasks, holding(placed, names + [f"new-{k:04}" for k in range(few)]), config
        ),
        "-10% instances": lambda: Problem(all_tasks, holding(placed, names[few:]), config),
    }
    out: dict[str, Any] = {}
    for case, make in makers.items():
        seconds = []
        plan = placed
        for _ in range(repeat):
            problem = make()
            gc.collect()
            begin = time.perf_counter()
            plan = taskplace.plan(problem)
            seconds.append(time.perf_counter() - begin)
        o = plan.optimality
        out[case] = {
            "seconds": min(seconds),
            "median": statistics.median(seconds),
            "moves": o.moves,
            "bound": o.lower_bound,
            "forced": o.forced_promotions,
        }
    grown = makers["+10% instances"]()
    grown_plan = taskplace.plan(grown)

    def explain_all() -> None:
        explainer = Explainer(grown, grown_plan)
        for task in all_tasks:
            str(explainer.task(task.id))

    work: tuple[tuple[str, Callable[[], object]], ...] = (
        ("from dict", lambda: Problem.from_dict(document)),
        ("from JSON", lambda: Problem.from_json(text)),
        ("explain all", explain_all),
    )
    for case, convert in work:
        seconds = []
        for _ in range(repeat):
            gc.collect()
            begin = time.perf_counter()
            convert()
            seconds.append(time.perf_counter() - begin)
        out[case] = {"seconds": min(seconds), "median": statistics.median(seconds)}
    out["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return out


def spread(tasks: int, instances: int) -> None:
    """Print how many tasks lose both copies with a tenth of the instances, for every assignor."""
    import taskplace
    from taskplace import Instance, PlacementConfig, Problem, Task, TaskId

    all_tasks = [
        Task(TaskId(s, p), end_offset=100_000)
        for s in range(SUBTOPOLOGIES)
        for p in range(tasks // SUBTOPOLOGIES)
    ]
    names = [f"executor-{k:04}" for k in range(instances)]
    few = max(2, instances // 10)
    for assignor in ("sticky", "high_availability"):
        config = PlacementConfig(num_standby_replicas=1, task_assignor_class=assignor)
        begin = time.perf_counter()
        plan = taskplace.plan(Problem(all_tasks, [Instance(name) for name in names], config))
        seconds = time.perf_counter() - begin
        where: dict[TaskId, set[str]] = {}
        for name, roles in plan.assignment.items():
            for t in (*roles.active, *roles.standby):
                where.setdefault(t, set()).add(name)
        lost = [
            sum(places <= set(names[first : first + few]) for places in where.values())
            for first in range(0, instances - few + 1, max(1, few // 2))
        ]
        print(
            f"{tasks:,} x {instances:,}, {assignor}: {seconds:.2f} s; losing {few} neighbours, "
            f"{sum(lost) / len(lost):.0f} tasks lose both copies on average, {max(lost)} at worst "
            f"(evenly: {tasks * few / instances * (few - 1) / (instances - 1):.0f})"
        )


def exponent(points: list[tuple[float, float]]) -> float:
    """Return the slope of log(time) over log(size), by least squares."""
    xs, ys = [math.log(x) for x, _ in points], [math.log(y) for _, y in points]
    mx, my = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True)) / sum((x - mx) ** 2 for x in xs)


def import_seconds() -> float:
    code = "import time; t = time.perf_counter(); import taskplace; print(time.perf_counter() - t)"
    return min(
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default=SIZES, help="tasks x instances, comma-separated (%(default)s)")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument(
        "--spread", action="store_true", help="also: what is lost with a tenth of the instances"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        tasks, instances = map(int, args.one.split("x"))
        print(json.dumps(measure(tasks, instances, args.repeat)))
        return
    results: dict[str, dict[str, Any]] = {}
    head = f"{'tasks x instances':>18} | " + " | ".join(f"{case:>14}" for case in CASES) + " | peak memory"
    print(head, "-" * len(head), sep="\n")
    for size in args.sizes.split(","):
        done = subprocess.run(
            [sys.executable, __file__, "--one", size, "--repeat", str(args.repeat)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        r = results[size] = json.loads(done.stdout)
        cells = " | ".join(f"{r[case]['seconds']:>12.4f} s" for case in CASES)
        print(f"{size.replace('x', ' x '):>18} | {cells} | {r['peak_mb']:>8.0f} MB", flush=True)
    print()
    for size, r in results.items():
        moves = ", ".join(
            f"{case}: {r[case]['moves']} moves ({r[case]['bound']} needed), {r[case]['forced']} promotions"
            for case in CASES[2:4]
        )
        print(f"{size.replace('x', ' x '):>18}   {moves}")
    print()
    if len(results) > 1:
        for case in (*CASES[:4], CASES[6]):
            points = [(2 * float(size.split("x")[0]), r[case]["seconds"]) for size, r in results.items()]
            print(f"time grows as (tasks + copies)^{exponent(points):.2f}   {case}")
    print(f"import taskplace: {import_seconds():.3f} s")
    if args.spread:
        for tasks, instances in ((1_000, 20), (10_000, 100)):
            spread(tasks, instances)
    if args.json:
        Path(args.json).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
