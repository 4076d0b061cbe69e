"""Clusters whose reports have everything: an instance without work, copies that lag, losses and joins."""

from __future__ import annotations

import random
from typing import Any

PARTITIONS = 12
EVENTS = [[{"kind": "kill", "name": "executor-1"}], [{"kind": "add", "name": "executor-9", "capacity": 2}]]


def cluster(*, tasks: int, instances: int, seed: int = 1) -> dict[str, Any]:
    """Return a problem: the last instance has just joined, and some standbys lag."""
    drawn = random.Random(seed)
    listed = [
        {"id": f"{k // PARTITIONS}_{k % PARTITIONS}", "end_offset": drawn.randrange(50_000, 60_000)}
        for k in range(tasks)
    ]
    there: list[dict[str, Any]] = [
        {"id": f"executor-{k}", "capacity": 2, "active": [], "standby": [], "lags": {}}
        for k in range(instances)
    ]
    for k, task in enumerate(listed):
        owner, follower = there[k % (instances - 1)], there[(k + 1) % (instances - 1)]
        owner["active"].append(task["id"])
        owner["lags"][task["id"]] = 0
        follower["standby"].append(task["id"])
        follower["lags"][task["id"]] = drawn.choice([0, 0, 40, 20_000])
    return {"tasks": listed, "instances": there, "config": {"num.standby.replicas": 1}}
