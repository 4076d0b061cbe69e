"""The interface of a partitioner, for those who write one of their own."""

from __future__ import annotations

from typing import Protocol


class Partitioner(Protocol):
    """What a producer calls."""

    def partition(self, key: bytes | None, size: int) -> int:
        """Return the partition of a record of `size` bytes."""

    def on_new_batch(self, partition: int) -> None:
        """Note that a new batch has begun for `partition`: the one before is full or was sent."""
