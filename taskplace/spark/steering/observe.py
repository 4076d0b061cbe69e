"""What is observed of each task now and then; the best there is, since placing works without it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from taskplace.spark.steering.layout import Layout
from topology.ids import TaskId

if TYPE_CHECKING:
    from taskplace.spark.bridge_state import StateBridge

log = logging.getLogger(__name__)


def observed_load(bridge: StateBridge, layout: Layout, by: str) -> tuple[dict[TaskId, float] | None, str]:
    """Return what `load.by` asks for, by task, and a note for the status; None if all tasks weigh the same.

    Never raises: Spark's records of stages and tasks are private, and may be cut short by its own limits.
    """
    found: dict[TaskId, float] = {}
    try:
        if by == "even":
            note = "all tasks weigh the same, as configured"
        elif by == "state.size":
            found, note = bridge.state_sizes(layout), "by state.size"
        elif not layout.chained and len(layout.subtopologies) > 1:
            note = "all tasks weigh the same: stages side by side cannot be told apart"
        else:
            found = bridge.task_load(layout, by)
            note = f"by {by}" if found else "all tasks weigh the same: no batch is on record"
    except Exception as error:
        log.debug("the load of tasks is not to be had", exc_info=True)
        note = f"all tasks weigh the same: {type(error).__name__}"
    return found or None, note
