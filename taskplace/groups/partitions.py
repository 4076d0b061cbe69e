"""Assigns partitions to the members of a consumer group: KIP-54's sticky assignor, exactly, and Faust's assignor.

Subscriptions in (`subscriptions`), an assignment out (`assignment`).

| `assignor` | what it does |
|---|---|
| `fair_sticky` (`sticky`) | KIP-54: as balanced as possible, then the fewest moves; exact |
| `sticky_fair` | KIP-54's first alternative: no unnecessary moves, other partitions as evenly as possible; exact |
| `fair` | KIP-54's second alternative: as balanced as possible, regardless of owners |
| `range`, `round_robin` (`roundrobin`) | as Kafka's consumer does |
| `cooperative` (`cooperative-sticky`) | `fair_sticky` in two phases (KIP-429), as any mode with `cooperative=True` |
| `copartitioned` | Faust: co-partitions equal topics, with standbys (see `taskplace.groups.copartitioned`) |

Names in brackets are Kafka's and mean the same, except for racks: `sticky` and `cooperative-sticky` put racks before
moves, as Kafka's do since KIP-881, unless `rack_priority` is set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

from msgspec.structs import replace

from taskplace.groups.assignment import PartitionAssignment, StickyListener, held_elsewhere, make
from taskplace.groups.classic import range_, round_robin
from taskplace.groups.copartitioned import copartitioned
from taskplace.groups.sticky import fair, fair_sticky, sticky_fair
from taskplace.groups.subscriptions import Columns, Ints, Member, RackPriority, Subscriptions
from taskplace.validation import one_of
from topology.node import TopicPartition

MODES: dict[str, Callable[[Columns], Ints]] = {
    "fair_sticky": fair_sticky,
    "sticky_fair": sticky_fair,
    "fair": fair,
    "range": range_,
    "round_robin": round_robin,
}
ALIASES = {
    "sticky": ("fair_sticky", False),
    "roundrobin": ("round_robin", False),
    "cooperative": ("fair_sticky", True),
    "cooperative-sticky": ("fair_sticky", True),
}
NAMES = (*MODES, *ALIASES, "copartitioned")
RACKS_FIRST = ("sticky", "cooperative-sticky")
"""Kafka's names. As in Kafka, partitions move to members in a rack of their replicas."""


def assign_partitions(
    subscriptions: Subscriptions | Mapping[str, Any],
    assignor: str | None = None,
    *,
    cooperative: bool | None = None,
    rack_priority: RackPriority | None = None,
) -> PartitionAssignment:
    """Return the assignment. `assignor`, `cooperative` and `rack_priority` override those of the subscriptions.

    Properties:
    - every partition with a subscriber goes to exactly one of its subscribers;
    - the result is a function of the subscriptions alone, in any order;
    - assigning again to members that own their assignment changes nothing (all modes);
    - a partition that several members claim belongs to the claim of the newest generation. If two claims have that
      generation, no member owns it. If such a partition must move, the member with the next older claim comes before
      equally good others.

    Errors: `InputError` for bad subscriptions, and for an unknown assignor or rack priority, with the nearest known
    name.

    Source: KIP-54, KIP-429, KIP-881.

    >>> group = {"topics": {"t0": 4}, "members": {"C0": {"topics": ["t0"]}, "C1": {"topics": ["t0"]}}}
    >>> made = assign_partitions(group)
    >>> made.assignment["C0"], made.balance_score
    ((TopicPartition(topic='t0', partition=0), TopicPartition(topic='t0', partition=2)), 0)
    """
    s = subscriptions if isinstance(subscriptions, Subscriptions) else Subscriptions.from_dict(subscriptions)
    asked = one_of(s.assignor if assignor is None else assignor, "assignor", NAMES)
    mode, staged = ALIASES.get(asked, (asked, False))
    staged = staged or (s.cooperative if cooperative is None else cooperative)
    if mode == "copartitioned":
        return copartitioned(s, cooperative=staged)
    c = s.columns
    if mode == "fair_sticky":
        goal = fair_sticky(c, racks_first=racks_first(asked, rack_priority or s.rack_priority))
    else:
        goal = MODES[mode](c)
    made = make(s, goal, mode, held_elsewhere(c, goal) if staged else None)
    ignored = [name for name in ("global_topics", "replicas") if getattr(s, name)]
    unused = f"{' and '.join(ignored)}: the assignor {asked!r} places no standbys; use the assignor 'copartitioned'"
    return replace(made, warnings=(*made.warnings, unused)) if ignored else made


def racks_first(assignor: str, rack_priority: str | None) -> bool:
    """Return whether rack misses come before moves: by the priority or, without one, by the assignor's name.

    >>> racks_first("sticky", None), racks_first("fair_sticky", None), racks_first("sticky", "stickiness")
    (True, False, False)
    """
    if rack_priority is None:
        return assignor in RACKS_FIRST
    return one_of(rack_priority, "rack_priority", get_args(RackPriority)) == "racks"


__all__ = [
    "Member",
    "PartitionAssignment",
    "StickyListener",
    "Subscriptions",
    "TopicPartition",
    "assign_partitions",
]
