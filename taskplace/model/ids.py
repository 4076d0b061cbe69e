"""Task ids, as the engine uses them; they are made by the topology."""

from __future__ import annotations

from topology.ids import TaskId

__all__ = ["TaskId"]
