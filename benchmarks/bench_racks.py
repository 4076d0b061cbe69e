"""Measure the time of a plan without racks, with racks of actives, and with racks of actives and standbys.

python benchmarks/bench_racks.py [--tasks 10000 --instances 100] [--zones]
"""

from __future__ import annotations

import argparse
import time

import taskplace
from taskplace import Instance, PlacementConfig, Plan, Problem, Task, TaskId

KINDS = {
    "no strategy": ("none", False),
    "actives": ("balance_subtopology", False),
    "actives and standbys": ("balance_subtopology", True),
}
RUNS = 3


def problem(
    tasks: int, instances: int, strategy: str, changelogs: bool, zones: bool, standbys: int
) -> Problem:
    """Tasks dealt out in turn, each with its standbys on the next instances, in 3 racks and 4 zones."""
    made = [
        Task(
            TaskId(q % 8, q // 8),
            end_offset=100_000,
            racks=((f"r{q % 3}",),),
            changelog_racks=((f"r{q * 7 % 3}",),) if changelogs else (),
        )
        for q in range(tasks)
    ]
    places = []
    for k in range(instances):
        own = tuple(t.id for t in made[k::instances])
        next_to = tuple(t.id for j in range(standbys) for t in made[(k + 1 + j) % instances :: instances])
        tags = {"rack": f"r{k % 3}", "zone": f"z{k % 4}"}
        lags = dict.fromkeys([*own, *next_to], 0)
        places.append(Instance(f"e{k:04}", tags=tags, active=own, standby=next_to, lags=lags))
    config = PlacementConfig(
        num_standby_replicas=standbys,
        rack_aware_assignment_strategy=strategy,
        rack_aware_assignment_tags=("zone",) if zones else (),
    )
    return Problem(made, places, config)


def measured(found: Problem) -> tuple[float, Plan]:
    """Return the least CPU seconds of a plan, once everything is loaded, and the plan."""
    made = taskplace.plan(found)
    best = float("inf")
    for _ in range(RUNS):
        start = time.process_time()
        made = taskplace.plan(found)
        best = min(best, time.process_time() - start)
    return best, made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--instances", type=int, default=100)
    parser.add_argument("--standbys", type=int, default=1)
    parser.add_argument("--zones", action="store_true", help="keep standbys in other zones, too")
    args = parser.parse_args()
    print(f"{'racks of':22} {'CPU s':>6} {'reads':>7} {'of standbys':>12}")
    for name, (strategy, changelogs) in KINDS.items():
        seconds, made = measured(
            problem(args.tasks, args.instances, strategy, changelogs, args.zones, args.standbys)
        )
        reads = [made.metrics.get(f"{who}reads_across_racks", "") for who in ("", "standby_")]
        print(f"{name:22} {seconds:6.2f} {reads[0]:>7} {reads[1]:>12}")


if __name__ == "__main__":
    main()
