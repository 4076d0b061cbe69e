"""The lags in the last status file of a checkpoint, for an inspection.

Manifests have no lags, so they come from the status that the driver has written last. It may be old, or of a driver
that has ended: its age says so. Nothing is waited for, unlike `taskplace.spark.inspection.driver_seen.look`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from taskplace.errors import CheckpointError
from taskplace.spark.operator_messages import STATUS_FILE, ExecutorStatus, Status, TopicStatus, read


@dataclass(frozen=True)
class LastStatus:
    """What the last status says of lags.

    - `epoch`: of the driver that wrote it; `ended`: whether that driver has ended
    - `age_seconds`: by the clock of this host
    - `batch`, `generation`: the last commit, and the assignment in force, when it was written
    - `lags`: by executor, role ("active", "standby", "warmup") and task, in records
    - `input`: how far topics were read
    """

    epoch: int
    ended: bool
    age_seconds: float
    batch: int
    generation: int
    lags: Mapping[str, Mapping[str, Mapping[str, int]]]
    input: Mapping[str, TopicStatus] = field(default_factory=dict, kw_only=True)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return {name: value for name, value in asdict(self).items() if name != "input"}


def last_status(root: Path, clock: Callable[[], float] = time.time) -> tuple[LastStatus | None, str]:
    """Return the last status; None without one. The text says why there is one that cannot be read, else it is ""."""
    try:
        status = read(root / STATUS_FILE, Status)
    except FileNotFoundError:
        return None, ""
    except (CheckpointError, OSError) as error:
        return None, " ".join(str(error).split())
    lags = {name: _lags(executor) for name, executor in status.executors.items()}
    age = clock() - status.written
    return LastStatus(
        status.epoch, status.ended, age, status.batch, status.generation, lags, input=status.input
    ), ""


def _lags(executor: ExecutorStatus) -> dict[str, dict[str, int]]:
    return {
        "active": dict(executor.active),
        "standby": dict(executor.standby),
        "warmup": {task: warmup.lag for task, warmup in executor.warmup.items()},
    }
