"""Measures the load of each task. Steering works without it: after a failed measurement all weights are equal."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from taskplace.spark.steering.config import LoadBy, SteeringConfig
from taskplace.spark.steering.layout import QueryLayout
from topology.tasks import TaskId

if TYPE_CHECKING:
    from taskplace.spark.steering.bridge import StateBridge

log = logging.getLogger(__name__)

EARLY_BATCHES = (2, 3, 4, 5, 6)
"""Batches in which load is always measured, so that weights are known early. The first batch is left out: it warms up.
"""

Load = Mapping[TaskId, float]


@dataclass(frozen=True)
class LoadSampling:
    """The progress of measuring load. Immutable.

    `batches`: the number of observed batches. `sizes_due`: the sizes of states must be listed. That takes long, so it
    is done after the moves of a batch were sent, and `sizes` count as the load of the next batch. `note`: how tasks
    were weighed last, for the status.
    """

    batches: int = 0
    sizes_due: bool = False
    sizes: Load | None = None
    note: str = ""

    def after_batch(
        self, bridge: StateBridge, layout: QueryLayout, config: SteeringConfig
    ) -> tuple[Load | None, LoadSampling]:
        """Return the load of each task in the batch that has just ended, None if no measurement was due."""
        batches = self.batches + 1
        due = batches in EARLY_BATCHES or batches % config.load_every_batches == 0
        if config.load_by == LoadBy.STATE_SIZE:
            return self.sizes, replace(self, batches=batches, sizes_due=due, sizes=None)
        if not due:
            return None, replace(self, batches=batches)
        load, note = measure_load(bridge, layout, config.load_by)
        return load, replace(self, batches=batches, note=note)

    def with_sizes(self, sizes: Load | None, note: str) -> LoadSampling:
        """Return the sampling after sizes were listed."""
        return replace(self, sizes_due=False, sizes=sizes, note=note)


def measure_load(bridge: StateBridge, layout: QueryLayout, by: LoadBy) -> tuple[Load | None, str]:
    """Return the load of each task by `load.by`, None if all tasks weigh the same, and a note for the status.

    Never raises: Spark's records of stages and tasks are private, and Spark may drop some of them.
    """
    equal = "all tasks weigh the same"
    try:
        if by == LoadBy.EVEN:
            return None, f"{equal}, as configured"
        if by == LoadBy.STATE_SIZE:
            return bridge.state_sizes(layout) or None, f"by {by}"
        if not layout.chained and len(layout.subtopologies) > 1:
            return None, f"{equal}: stages side by side cannot be told apart"
        load = bridge.task_load(layout, by)
        return load or None, f"by {by}" if load else f"{equal}: no batch is on record"
    except Exception as error:
        log.debug("cannot measure the load of tasks", exc_info=True)
        return None, f"{equal}: {type(error).__name__}"
