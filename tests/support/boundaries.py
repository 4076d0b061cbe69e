"""Reads boundary files as the tasks of the next subtopology do."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from pathlib import Path

import pyarrow as pa

from taskplace.spark.messages import Boundary, Setting
from taskplace.spark.worker.boundary import InternalRows, write_listing


def rows_of_bin(root: Path, boundaries: Sequence[Boundary], partitions: Collection[int]) -> InternalRows:
    """Return the rows that a bin of `partitions` reads from topic "t"."""
    listing = write_listing(root, f"inputs/{uuid.uuid4().hex}.listing", {"t": boundaries})
    setting = Setting(
        checkpoint=str(root),
        state_root="",
        spark_app="",
        epoch=1,
        batch=0,
        generation=1,
        schema=None,
        compression=None,
        bytes_per_task=1,
        inputs=listing,
    )
    return InternalRows(setting, ("t",), partitions)


def read(root: Path, boundaries: Sequence[Boundary], partition: int) -> pa.Table:
    """Return the rows of one partition, read by a bin of its own."""
    return rows_of_bin(root, boundaries, {partition}).of(partition)["t"]
