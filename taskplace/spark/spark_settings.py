"""What steering needs of Spark: its versions, and its settings."""

from __future__ import annotations

from dataclasses import dataclass

WORKS = "steering works with classic PySpark 4.0 to 4.3, not with Spark Connect"


@dataclass(frozen=True)
class Facts:
    """The settings of Spark that steering depends on."""

    locality_wait_ms: int = 3000
    unload_on_commit: bool = False
