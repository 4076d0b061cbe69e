"""What the driver of a running stream knows of copies that catch up, beside their lags."""

from __future__ import annotations

from typing import NamedTuple

from topology.tasks import TaskId

#: An instance and a task.
Copy = tuple[str, TaskId]


class Seen(NamedTuple):
    """What the driver of a stream has seen of a copy that catches up, beside its lag.

    - `remaining`: the seconds until it has caught up; None: not known
    - `stalled`: why it makes no progress, as a clause; "" if it does
    - `remedy`: what to do about it, as a clause
    - `unknown`: why `remaining` is not known although it makes progress, as a clause
    - `no_driver`: whether it stalls only because no driver runs
    """

    remaining: float | None = None
    stalled: str = ""
    remedy: str = ""
    unknown: str = ""
    no_driver: bool = False
