"""A cluster in memory, in virtual time: what would happen if.

Reading order: `cluster` (instances, copies, catch-up), `events` (what can happen), `run` (planning until it is calm).
Nothing here sleeps or draws unseeded random numbers: the same events give the same trajectory.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from taskplace.simulate.cluster import Cluster
from taskplace.simulate.events import Event
from taskplace.simulate.run import Round, Trajectory, replay, simulate


class _Callable(ModuleType):
    """This package, which can be called like the function: importing it hides `taskplace.simulate` otherwise."""

    def __call__(self, *args: Any, **options: Any) -> Trajectory:
        return simulate(*args, **options)


sys.modules[__name__].__class__ = _Callable

__all__ = ["Cluster", "Event", "Round", "Trajectory", "replay", "simulate"]
