"""Problems with standbys that read changelogs across racks."""

from __future__ import annotations

from collections.abc import Sequence

from taskplace import PlacementConfig

STRATEGIES = ("min_traffic", "balance_subtopology")


def configured(
    strategy: str = "balance_subtopology",
    standbys: int = 1,
    costs: tuple[int | None, int | None] = (None, None),
    tags: Sequence[str] = (),
) -> PlacementConfig:
    return PlacementConfig(
        num_standby_replicas=standbys,
        rack_aware_assignment_strategy=strategy,
        rack_aware_assignment_traffic_cost=costs[0],
        rack_aware_assignment_non_overlap_cost=costs[1],
        rack_aware_assignment_tags=tuple(tags),
        acceptable_recovery_lag=100,
    )
