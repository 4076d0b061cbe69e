"""Prints how good plans are: moves, the fewest possible, and rounds of 30 random scenarios of each kind.

Usage: python benchmarks/scenario_table.py [SEEDS]
"""

from __future__ import annotations

import sys

from taskplace.simulation import Cluster
from taskplace.simulation.run import settle
from tests.support.scenarios import KINDS, scenario


def main(seeds: int) -> None:
    for kind in KINDS:
        moves = fewest = promoted = planned = worst = events = 0
        for seed in range(seeds):
            found = scenario(kind, seed)
            cluster = Cluster.of(found.problem)
            for group in ((), *found.events):
                rounds = settle(cluster, group)
                events += 1
                fewest += rounds[0].plan.optimality.lower_bound
                moves += sum(r.moved for r in rounds)
                promoted += sum(r.promoted for r in rounds)
                planned += len(rounds)
                worst = max(worst, len(rounds))
        print(kind, events, moves, fewest, promoted, planned, worst)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
