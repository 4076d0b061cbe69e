"""Shares: floor and ceiling of the exact share, within what an instance can take."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from taskplace.model.shares import floors_and_ceilings, level_loads


@given(st.integers(0, 10**6), st.lists(st.integers(0, 50), min_size=1, max_size=30).filter(any))
def test_shares_are_floor_and_ceiling_of_the_exact_share(count, room):
    low, high = floors_and_ceilings(count, np.array(room))
    total = sum(room)
    assert low.tolist() == [count * c // total for c in room]
    assert high.tolist() == [-(-count * c // total) for c in room]
    assert low.sum() <= count <= high.sum()


def test_shares_of_huge_numbers_do_not_overflow():
    low, high = floors_and_ceilings(10**9, np.array([2**40, 2**40 + 1]))
    assert low.sum() == 10**9 - 1 and high.sum() == 10**9 + 1


@given(
    st.integers(1, 60),
    st.integers(0, 3),
    st.lists(st.integers(0, 8), min_size=1, max_size=8).filter(any),
    st.randoms(use_true_random=False),
)
def test_level_loads_can_hold_all_copies_and_respect_both_limits(tasks, replicas, room, rng):
    capacity = np.array(room)
    replicas = min(replicas, int((capacity > 0).sum()) - 1)
    low_active, high_active = floors_and_ceilings(tasks, capacity)
    actives = low_active.copy()
    for k in range(tasks - int(low_active.sum())):
        actives[np.flatnonzero(high_active > low_active)[k]] += 1
    low, high = level_loads(tasks * (1 + replicas), tasks, actives, capacity)
    assert low.sum() <= tasks * (1 + replicas) <= high.sum()
    assert (high <= tasks).all() and (low >= actives).all()
    assert (high[capacity == 0] == 0).all()
