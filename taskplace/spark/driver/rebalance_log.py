"""Logs rebalances: one line for each, and one for each task that moves.

- logger `taskplace`, INFO: the reason and the counts
- logger `taskplace.tasks`, DEBUG: each move, with its reason

The fields of a line are in the record as well (`taskplace.logs.FIELDS`), for lines of JSON. Lines name executors and
tasks, never rows or their keys.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from taskplace.logs import fields
from taskplace.model.plan import Move
from taskplace.record.events import Rebalanced

LOG = logging.getLogger("taskplace")
TASKS = logging.getLogger("taskplace.tasks")


def log_rebalance(event: Rebalanced, moves: Sequence[Move], seconds: float) -> None:
    """Log a plan that was put in force. `seconds`: how long the rebalance took."""
    common = {"batch": event.batch_id, "generation": event.generation}
    line = {
        **common,
        "reason": event.reason,
        "moves_planned": sum(move.role == "active" and move.from_ is not None for move in moves),
        "moves_forced": event.promotions,
        "warmups": event.warmups,
        "followup": event.followup,
        "latency_ms": round(1000 * seconds, 3),
    }
    LOG.info(
        "rebalance at batch %(batch)d, generation %(generation)d: %(reason)s; moves: %(moves_planned)d planned, "
        "%(moves_forced)d forced; warm-ups: %(warmups)d; %(more)s%(latency_ms).0f ms",
        {**line, "more": "more to come; " if event.followup else ""},
        extra=fields("rebalance", **line),
    )
    if TASKS.isEnabledFor(logging.DEBUG):
        for move in moves:
            what = {
                "task": str(move.task),
                "role": move.role,
                "from": move.from_,
                "to": move.to,
                "why": move.why,
            }
            TASKS.debug("generation %d: %s", event.generation, move, extra=fields("move", **common, **what))
