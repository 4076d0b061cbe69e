"""Chooses the member of a partition number whose topics are on different members.

This happens in two cases. If members subscribe to a topic one after the other, the topic joins its group with other
owners than those of the group. And topics with different subscribers are placed separately, but each of their partition
numbers should be on one member. The choice decides how many partitions move, and it affects the balance. So one
minimum-cost flow makes all choices.

The criteria, each strictly before the next:

1. balance: the floor or the ceiling of the share, of each group and of all groups together;
2. the member of the same partition number of topics that are placed already, if it subscribes;
3. the fewest moved partitions;
4. the owner in the topic that is spread over most members. That is the older topic: a new one starts on the few members
that have subscribed to it.

Work: a flow with one node per partition number and one per member and group. It has arcs only to members with a
partition or copy of the number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from taskplace.errors import TaskplaceError
from taskplace.groups.subscriptions import Bools, Ints
from taskplace.model.flow import Network, cost_budget
from taskplace.model.shares import floors_and_ceilings


def settle(
    owner: Mapping[int, Ints], followed: Mapping[int, Bools], near: Mapping[int, Sequence[Ints]], m: int
) -> dict[int, Ints]:
    """Return, per group and partition number, the member that counts as its owner, or -1.

    - `owner[g]`: [topics, size] the present owners (0 to m - 1), or -1
    - `followed[g]`: [m, size] whether the member has a standby
    - `near[g]`: a list of [size] members (or -1) of the same partition numbers, one for each group that is placed
      already

    A number without an owner stays without one, unless it goes to the member of a placed number and that member has a
    standby, or no member has one.

    >>> split = {0: np.array([[0, 0, 1, 1], [0, 0, 0, 0]])}  # the second topic is still all on member 0
    >>> settle(split, {0: np.zeros((2, 4), bool)}, {0: []}, 2)[0].tolist()
    [0, 0, 1, 1]
    """
    gain = _gains(owner, near, m)
    home = _flow(gain, m)
    homes = {}
    for g, held in owner.items():
        lost = (held < 0).all(axis=0)
        at = home[g]
        has = followed[g][at, np.arange(len(at))]
        wanted = gain[g][at, np.arange(len(at))] > 0
        stays = ~lost | (wanted & (has | ~followed[g].any(axis=0)))
        homes[g] = np.where(stays, at, -1)
    return homes


def settle_everywhere(
    owner: Mapping[int, Ints], holds: Mapping[int, Bools], near: Mapping[int, Sequence[Ints]], base: Ints
) -> dict[int, Ints]:
    """Return, per group and partition number, its member, for topics of which all members have or get a copy.

    Like `settle`, but it does not wait for copies.

    - `holds[g]`: [m, size] whether the member reports a copy; of equally good members, these are preferred
    - `base`: [m] the tasks of other groups, which are balanced already. The sum is balanced too

    >>> settle_everywhere({0: np.array([[0, -1]])}, {0: np.zeros((2, 2), bool)}, {0: []}, np.array([1, 0]))[0].tolist()
    [0, 1]
    """
    m = len(base)
    gain = _gains(owner, near, m)
    numbers = sum(worth.shape[1] for worth in gain.values())
    most = max(int(worth.max(initial=0)) for worth in gain.values())
    nodes = numbers + (m + 1) * len(gain) + m + 2
    if (most + 1) * (numbers + 1) <= cost_budget(nodes):  # otherwise the preference is left out
        gain = {g: worth * (numbers + 1) + holds[g] for g, worth in gain.items()}
    return _flow(gain, m, base)


def open_questions(owner: Mapping[int, Ints], near: Mapping[int, Sequence[Ints]]) -> bool:
    """Return whether a choice is needed.

    There are three such cases: a number has several owners; numbers differ in how many of their topics have an owner; a
    member has the same number of a topic that is placed already.
    """
    for held in owner.values():
        most = held.max(axis=0)
        owned = (held >= 0).sum(axis=0)
        split = ((held >= 0) & (held != most)).any()
        if split or len(np.unique(owned[owned > 0])) > 1:
            return True
    return any(bool((at >= 0).any()) for homes in near.values() for at in homes)


def _gains(owner: Mapping[int, Ints], near: Mapping[int, Sequence[Ints]], m: int) -> dict[int, Ints]:
    """Return the gain [m, size] of each partition number on each member. Each level outweighs all lower levels."""
    numbers = sum(held.shape[1] for held in owner.values())
    most = max(held.shape[0] for held in owner.values())
    spread = numbers * most * m + 1
    nodes = numbers + (m + 1) * len(owner) + m + 2
    if spread * (numbers * most + 1) * (1 + max(len(homes) for homes in near.values())) > cost_budget(nodes):
        spread = 1  # the last level does not fit: it is left out
    together = spread * (numbers * most + 1)
    gains = {}
    for g, held in owner.items():
        gain = np.zeros((m, held.shape[1]), np.int64)
        for topic in held:
            p = np.flatnonzero(topic >= 0)
            span = len(np.unique(topic[p])) if spread > 1 else 0
            gain[topic[p], p] += spread + span
        for homes in near[g]:
            p = np.flatnonzero(homes >= 0)
            gain[homes[p], p] += together
        gains[g] = gain
    return gains


def _flow(gain: Mapping[int, Ints], m: int, base: Ints | None = None) -> dict[int, Ints]:
    """Return the member of each partition number: balanced (together with `base`), with the highest gain."""
    net = Network()
    member, sink = net.nodes(m), net.nodes(1)
    total = sum(g.shape[1] for g in gain.values())
    has = np.zeros(m, np.int64) if base is None else base
    low, high = floors_and_ceilings(total + int(has.sum()), np.ones(m, np.int64))
    low, high = np.maximum(low - has, 0), high - has
    net.arcs(member, np.full(m, sink[0]), high, 0, low=low)
    arcs = {}
    for g, worth in gain.items():
        size = worth.shape[1]
        task, seat, hub = net.nodes(size), net.nodes(m), net.nodes(1)
        who, p = np.nonzero(worth)
        liked = net.arcs(task[p], seat[who], 1, -worth[who, p])
        other = net.arcs(task, np.full(size, hub[0]), 1, 0)
        spread = net.arcs(np.full(m, hub[0]), seat, size, 0)
        low, high = floors_and_ceilings(size, np.ones(m, np.int64))
        net.arcs(seat, member, high, 0, low=low)
        net.supply(task, 1)
        arcs[g] = (who, p, liked, other, spread)
    net.supply(sink, -total)
    flow = net.solve()
    if flow is None:
        raise TaskplaceError(f"{total} partition numbers do not fit on {m} members: a defect of this module")
    homes = {}
    for g, (who, p, liked, other, spread) in arcs.items():
        home = np.full(gain[g].shape[1], -1, np.int64)
        kept = flow[liked] > 0
        home[p[kept]] = who[kept]
        home[np.flatnonzero(flow[other])] = np.repeat(np.arange(m), flow[spread])
        homes[g] = home
    return homes
