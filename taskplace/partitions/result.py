"""The result of a partition assignment: the partitions of each member, and figures of its quality."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from taskplace.groups.assignment import SCHEMA, Holders
from taskplace.groups.sticky import balance_score
from taskplace.groups.subscriptions import Columns, Ints
from topology.node import TopicPartition

Held = tuple[TopicPartition, ...]


@dataclass(frozen=True)
class PartitionAssignment:
    """The partitions of each member. Every member is a key, and its partitions are sorted.

    - `assignor`: the mode that was used
    - `unassigned`: topics without a subscriber
    - `balance_score`: KIP-54's score of the loads of all members; 0 is perfect
    - `preserved`, `moved`: the number of owned partitions that stay with their owner, and that do not
    - `rack_misses`: partitions on a member in a rack without a replica, where both racks are known
    - `withheld`: per member, the partitions that it gets after their present owner has released them (`cooperative`).
      Score and moves include them
    - `standby`: the partitions that each member follows (`copartitioned`)
    - `followup`: whether to assign again, because this assignment is not the final one
    - `warnings`: requirements that could not be met, with counts and remedy
    - `urls`: the URLs that members reported; `holders` finds the members of a partition and their URLs

    >>> PartitionAssignment({"C0": (TopicPartition("t0", 0),)}, "fair").to_dict()["assignment"]
    {'C0': [['t0', 0]]}
    """

    assignment: Mapping[str, Held]
    assignor: str
    unassigned: tuple[str, ...] = ()
    balance_score: int = 0
    moved: int = 0
    preserved: int = 0
    rack_misses: int = 0
    withheld: Mapping[str, Held] = field(default_factory=dict)
    standby: Mapping[str, Held] = field(default_factory=dict)
    followup: bool = False
    warnings: tuple[str, ...] = ()
    urls: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def holders(self) -> Holders:
        """The holders of each partition, active and standby, with their URLs; computed once.

        >>> made = PartitionAssignment({"C0": (TopicPartition("t0", 0),)}, "fair", urls={"C0": "http://c0"})
        >>> made.holders.of("t0", 0).url
        'http://c0'
        """
        return Holders(self.assignment, self.standby, self.withheld, self.urls)

    def to_dict(self) -> dict[str, Any]:
        """Return a "taskplace.partition_assignment/1" dict. Equal assignments give equal dicts, in the same order."""
        return {
            "schema": SCHEMA,
            "assignor": self.assignor,
            "assignment": _lists(self.assignment),
            "standby": _lists(self.standby),
            "withheld": _lists(self.withheld),
            "followup": self.followup,
            "unassigned": list(self.unassigned),
            "balance_score": self.balance_score,
            "moved": self.moved,
            "preserved": self.preserved,
            "rack_misses": self.rack_misses,
            "warnings": list(self.warnings),
            "urls": dict(sorted(self.urls.items())),
        }

    def to_json(self) -> str:
        """Return the assignment as JSON text; equal assignments give equal bytes."""
        return json.dumps(self.to_dict(), indent=1) + "\n"


def _lists(held: Mapping[str, Held]) -> dict[str, list[list[Any]]]:
    return {name: [list(pair) for pair in pairs] for name, pairs in sorted(held.items())}


def make(c: Columns, goal: Ints, assignor: str, wait: Ints | None = None) -> PartitionAssignment:
    """Return the assignment that gives partition p to member goal[p], or to no member if that is -1.

    `wait`: the partitions that must be revoked first. They are withheld.
    """
    now = goal
    withheld: dict[str, Held] = {}
    if wait is not None and len(wait):
        now = goal.copy()
        now[wait] = -1
        later = np.full(c.n, -1, np.int64)
        later[wait] = goal[wait]
        withheld = {name: held for name, held in held_by(c, later).items() if held}
    placed = np.flatnonzero(goal >= 0)
    had = c.owner >= 0
    preserved = int((had & (goal == c.owner)).sum())
    return PartitionAssignment(
        assignment=held_by(c, now),
        assignor=assignor,
        unassigned=tuple(c.topics[t] for t in np.flatnonzero(~c.subscribed.any(axis=1)).tolist()),
        balance_score=balance_score(np.bincount(goal[placed], minlength=c.m)),
        moved=int(had.sum()) - preserved,
        preserved=preserved,
        rack_misses=int(c.misses[c.rack_set[placed], goal[placed]].sum()),
        withheld=withheld,
        followup=bool(withheld),
        warnings=_warnings(c),
    )


def held_by(c: Columns, goal: Ints) -> dict[str, Held]:
    """Return the partitions of each member in `goal`, sorted."""
    order = np.argsort(goal, kind="stable")
    cuts = np.searchsorted(goal[order], np.arange(c.m + 1)).tolist()
    order = order[cuts[0] :]
    topic = c.topic[order]
    number = (order - c.start[topic]).tolist()
    # The same as TopicPartition(topic, number), without a Python call per partition.
    both = zip(map(c.topics.__getitem__, topic.tolist()), number, strict=True)
    pairs: list[TopicPartition] = list(map(tuple.__new__, itertools.repeat(TopicPartition), both))
    return {
        name: tuple(pairs[a - cuts[0] : b - cuts[0]])
        for name, (a, b) in zip(c.members, itertools.pairwise(cuts), strict=True)
    }


def _warnings(c: Columns) -> tuple[str, ...]:
    if not c.missing:
        return ()
    some = ", ".join(c.missing[:5])
    return (
        f"{len(c.missing)} topics have subscribers but do not exist: {some}; create them, or unsubscribe",
    )
