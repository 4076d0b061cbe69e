"""The application as one handle sees it: the bridge to its query, the executors, and the other steered queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from taskplace.spark.steering.application import Executors, SteeredQueries

if TYPE_CHECKING:
    from taskplace.spark.steering.bridge import StateBridge


@dataclass(frozen=True)
class SteeredApplication:
    """The Spark application as one handle sees it. `queries` are shared by all handles of the application."""

    bridge: StateBridge
    queries: SteeredQueries
    executors: Executors

    @classmethod
    def of(cls, bridge: StateBridge) -> SteeredApplication:
        """Return the application of the bridge's query."""
        return cls(bridge, SteeredQueries.of(bridge.app_id), Executors(bridge))

    @property
    def run_id(self) -> str:
        """The id of this run of the query, by which it is published."""
        return self.bridge.run_id

    @property
    def query_name(self) -> str:
        """The name of the query in logs and the status."""
        return self.bridge.name or self.bridge.id

    def finished_batch(self) -> int:
        """Return the last batch that has ended, -1 before the first."""
        finished = self.bridge.finished_batch()
        return -1 if finished is None else finished

    def waits_after(self, batch: int) -> bool:
        """Return whether the query waits, and has begun no batch since `batch`."""
        return self.bridge.between_batches() and self.finished_batch() == batch
