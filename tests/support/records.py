"""Configurations of the partitioner, and the bytes that each partition receives."""

from __future__ import annotations

import hypothesis.strategies as st

from taskplace.groups.partitioner import PartitionerConfig, UniformStickyPartitioner


def config(turn: int, **more: bool) -> PartitionerConfig:
    return PartitionerConfig(sticky_batch_size=turn, **more)  # type: ignore[arg-type]


record_sizes = st.lists(st.integers(0, 5_000), max_size=200)


def bytes_of(partitioner: UniformStickyPartitioner, sizes: list[int]) -> list[int]:
    """Send records one by one. Return the bytes that each partition received."""
    out = [0] * partitioner.partitions
    for size in sizes:
        out[partitioner.partition(None, size)] += size
    return out
