"""Groups of equal values in numpy columns."""

from __future__ import annotations

import numpy as np

from taskplace.model.problem_columns import Ints


def group_starts(*keys: Ints) -> Ints:
    """Return the positions where groups begin, in columns of equal length that are sorted by group. O(n).

    An entry begins a group if it differs from the previous entry in any of the columns.

    >>> group_starts(np.array([1, 1, 2, 2]), np.array([5, 5, 5, 6]))
    array([0, 2, 3])
    """
    if not len(keys[0]):
        return np.zeros(0, np.int64)
    differs = np.zeros(len(keys[0]) - 1, np.bool_)
    for key in keys:
        differs |= key[1:] != key[:-1]
    return np.flatnonzero(np.r_[True, differs])


def rank_in_group(values: Ints) -> Ints:
    """Return, for each entry, the number of equal entries before it. O(n log n).

    >>> rank_in_group(np.array([7, 3, 7, 7, 3]))
    array([0, 0, 1, 2, 1])
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    rank = np.empty(len(values), np.int64)
    rank[order] = np.arange(len(values)) - np.searchsorted(ordered, ordered)
    return rank
