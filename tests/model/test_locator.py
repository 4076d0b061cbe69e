"""Positions of task ids: the same by table and by search, for ids that are there and for others."""

from __future__ import annotations

import numpy as np
import pytest

from taskplace.model.problem_columns import Locator, pairs_of
from topology import TaskId

FAR = 100_000  # a table up to here would be mostly empty


@pytest.mark.parametrize(
    ("ids", "dense"),
    [
        ([], True),
        ([(0, 0)], True),
        ([(0, 0), (0, 1), (1, 0), (2, 3)], True),
        ([(0, FAR)], False),
        ([(0, 0), (0, 7), (1, FAR), (FAR, 0)], False),
    ],
)
def test_ids_have_the_positions_that_they_are_given_in(ids, dense):
    known = [TaskId(*one) for one in ids]
    pairs = pairs_of(known, len(known))
    locator = Locator((pairs[:, 0] << 32) | pairs[:, 1])
    assert (locator.table is not None) == dense
    others = [
        TaskId(s, p)
        for s in (0, 1, 2, 3, FAR, FAR + 1)
        for p in (0, 1, 3, 4, 7, FAR, FAR + 1)
        if (s, p) not in ids
    ]
    asked = [*reversed(known), *others]
    expected = [*reversed(range(len(known))), *[-1] * len(others)]
    assert locator(pairs_of(asked, len(asked))).tolist() == expected
    below = np.array([(-1, 0), (0, -1)], np.int64)
    assert locator(below).tolist() == [-1, -1]
