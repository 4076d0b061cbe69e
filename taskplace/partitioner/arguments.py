"""Checks the arguments of the partitioners: numbers of partitions, sizes of records, leaders and load.

Each function raises `InputError` for the first value that is wrong. numpy's integers are integers; booleans are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from taskplace import validation
from taskplace.errors import InputError

MOST_BYTES = 2**50
"""The largest record: far more than anybody sends, and thousands of them can be summed in a column."""
MOST_COUNTED = 10_000_000
"""The most partitions of a topic that a partitioner keeps account of."""

_INTEGERS = (int, np.integer)
_SIZE = f"a whole number of bytes, 0 to {MOST_BYTES}"
_ROW = "a one-dimensional list of sizes in bytes"


def partition_count(value: int, path: str = "partitions") -> int:
    """Return `value` if it can be the number of partitions of a topic."""
    validation.integer(value, path, 1, MOST_COUNTED)
    return value


def partition_numbers(values: Iterable[int], path: str, partitions: int) -> list[int]:
    """Return `values` as a list if all of them are partitions of a topic with that many."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InputError(path, found=values, expected="a list of partitions with a leader, or None")
    listed = list(values)
    for number in listed:
        if not _is_integer(number) or not 0 <= number < partitions:
            raise InputError(path, found=number, expected=f"partitions from 0 to {partitions - 1}")
    return [int(number) for number in listed]


def load(values: Mapping[int, int], path: str, partitions: int) -> dict[int, int]:
    """Return `values` as a dictionary if it maps partitions to numbers of at least 0."""
    for partition, value in validation.mapping(values, path).items():
        integers = _is_integer(partition) and _is_integer(value)
        if not integers or not 0 <= int(partition) < partitions or value < 0:
            expected = f"0 or more for partitions below {partitions}"
            raise InputError(path, found={partition: value}, expected=expected)
    return {int(partition): int(value) for partition, value in values.items()}


def record_size(size: int) -> int:
    """Return the size of a record as Python's integer, which does not overflow."""
    if not _is_size(size):
        raise InputError("size", found=size, expected=_SIZE)
    return int(size)


def record_sizes(sizes: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sizes of a batch of records as a column."""
    if isinstance(sizes, str | bytes | Mapping) or not isinstance(sizes, Sequence | np.ndarray):
        raise InputError("sizes", found=sizes, expected=_ROW)
    if isinstance(sizes, np.ndarray) and sizes.ndim != 1:
        raise InputError("sizes", found=f"{sizes.ndim} dimensions", expected=_ROW)
    if isinstance(sizes, np.ndarray) and sizes.dtype.kind in "iu":
        wrong = np.flatnonzero((sizes < 0) | (sizes > MOST_BYTES))
    else:  # numpy would turn booleans and fractions into integers, so each value is checked
        wrong = np.array([k for k, size in enumerate(sizes) if not _is_size(size)], np.int64)
    if len(wrong):
        k = int(wrong[0])
        raise InputError(f"sizes[{k}]", found=sizes[k], expected=_SIZE)
    return np.asarray(sizes, np.int64)


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, _INTEGERS) and not isinstance(value, bool)


def _is_size(size: object) -> bool:
    return _is_integer(size) and 0 <= size <= MOST_BYTES
