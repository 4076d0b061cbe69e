"""Task ids, for imports by the engine. The topology defines them."""

from __future__ import annotations

from topology.tasks import TaskId

__all__ = ["TaskId"]
