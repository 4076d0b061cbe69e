"""Simulates a cluster in memory, in virtual time.

Reading order: `cluster` (instances, copies, catch-up, events), `run` (planning until it is stable).
Nothing here sleeps or draws unseeded random numbers: the same events give the same trajectory.
"""

from __future__ import annotations

from taskplace.simulation.cluster import Cluster, Event
from taskplace.simulation.run import Round, Trajectory, replay, simulate

__all__ = ["Cluster", "Event", "Round", "Trajectory", "replay", "simulate"]
