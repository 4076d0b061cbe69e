"""The loads of the best balance score: against all assignments there are."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from taskplace.groups.sticky import balance_score, best_loads


def by_trying(supply: list[int], allowed: list[list[int]], base: list[int]) -> tuple[list[int], list[int]]:
    """Return the least and the greatest load of each member over all assignments of the best score."""
    who = [
        [j for j, may in enumerate(row) if may]
        for row, n in zip(allowed, supply, strict=True)
        for _ in range(n)
    ]
    loads = []
    for choice in itertools.product(*who):
        found = list(base)
        for member in choice:
            found[member] += 1
        loads.append(found)
    best = min(balance_score(np.array(found)) for found in loads)
    ties = [found for found in loads if balance_score(np.array(found)) == best]
    return [min(column) for column in zip(*ties, strict=True)], [
        max(column) for column in zip(*ties, strict=True)
    ]


@pytest.mark.parametrize("seed", range(40))
def test_the_bounds_are_those_of_all_best_assignments(seed: int) -> None:
    draw = random.Random(seed)
    groups, members = draw.randint(1, 3), draw.randint(1, 3)
    supply = [draw.randint(0, 3) for _ in range(groups)]
    allowed = [[draw.randint(0, 1) for _ in range(members)] for _ in range(groups)]
    for row in allowed:
        row[draw.randrange(members)] = 1
    base = [draw.choice([0, 0, 1, 3]) for _ in range(members)]
    low, high = best_loads(np.array(supply), np.array(allowed, bool), np.array(base))
    least, most = by_trying(supply, allowed, base)
    assert (low.tolist(), high.tolist()) == (least, most)


def test_an_even_split_over_several_groups_leaves_no_choice() -> None:
    low, high = best_loads(np.array([1, 3]), np.ones((2, 2), bool), np.zeros(2, int))
    assert low.tolist() == high.tolist() == [2, 2]
