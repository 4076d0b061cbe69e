"""Faust's assignor, exact: co-partitions topics of equal size and places standbys, with the placement engine.

**Idea.** There is no declared topology, so any two topics with the same number of partitions and the same subscribers
may be joined. They form a group, and partition p of all topics of a group is one task. The placement engine places the
tasks and their standbys. Members are the instances. Every copy counts as caught up, because members do not report lags.
A global topic is active with its group, and a standby on all other subscribers.

Properties:
- co-partitioned: partition p of all topics of a group is on one member, and so are their standbys;
- balanced: among topics with the same subscribers, each member has the floor or the ceiling of its share, of every
  group and of all groups together. The only exception is the next line;
- the tasks of a lost member go to members with a standby, if there is one. If balance requires such a task on a member
  without a copy, that member first gets a standby, and `followup` requests another assignment;
- a new or returning member gets its share at once, with no more moves than balance needs;
- the standbys of one member's tasks are spread over the others. A hash of the member's name and the `seed` breaks ties,
  so all runs agree, and another seed gives another spread;
- a topic that is added at run time joins the group with its count and subscribers. Each of its partitions goes to the
  member of the group's partition. If members subscribed to it one after the other, no more partitions move than balance
  needs;
- topics with the same count and different subscribers: a member that subscribes to both gets the same partition
  numbers, as far as the balance of each allows it (`settle`);
- standbys that cannot be placed are reported in a warning, with counts and remedy;
- every subscriber of a global topic has all of its partitions, active or standby. These standbys do not count as
  `replicas`: they are not spread or balanced, and missing ones cause no warning. A follower of a global topic has no
  copy of the other topics of its group.

**Where topics of one partition number are on different members** (members subscribed to a topic one after the other, or
topics have different subscribers), one minimum-cost flow chooses their member. The criteria, each strictly before the
next:

1. balance: the floor or the ceiling of the share, of each group and of all groups together;
2. the member of the same partition number of topics that are placed already, if it subscribes;
3. the fewest moved partitions;
4. the owner in the topic that is spread over most members. That is the older topic: a new one starts on the few members
that have subscribed to it.

Work: a flow with one node per partition number and one per member and group. It has arcs only to members with a
partition or copy of the number.

Non-goals: racks, and a common balance of topics with different subscribers.

Source: Faust's partition assignor, "PartitionGrouper", "StickyAssignor" and "Concerns"; its code for global tables.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from taskplace.errors import TaskplaceError
from taskplace.groups.assignment import PartitionAssignment, held_by, held_elsewhere, make
from taskplace.groups.subscriptions import Bools, Columns, Ints, Subscriptions, locate
from taskplace.model.config import PlacementConfig
from taskplace.model.flow import Network, cost_budget
from taskplace.model.plan import Roles
from taskplace.model.problem import Instance, Problem, Task
from taskplace.model.shares import floors_and_ceilings
from taskplace.planner import plan
from topology.tasks import TaskId


def copartitioned(s: Subscriptions, *, cooperative: bool = False) -> PartitionAssignment:
    """Return the assignment, with `s.replicas` standbys of each partition, spread by `s.seed`; O(plan).

    With `cooperative`, a partition that another member still claims is withheld. Meanwhile its new member follows it
    as a standby.

    >>> from taskplace.groups.subscriptions import Member
    >>> topics = {"orders": 2, "users": 2}
    >>> made = copartitioned(Subscriptions(topics, {name: Member(topics) for name in "ab"}, replicas=1))
    >>> [sorted(tp.topic for tp in held) for held in made.assignment.values()]
    [['orders', 'users'], ['orders', 'users']]
    >>> made.standby["a"] == made.assignment["b"]
    True
    """
    c = s.columns
    draft = _Draft(s)
    for members, groups in _by_subscribers(c).items():
        draft.place(members, groups)
    wait = held_elsewhere(c, draft.goal) if cooperative else np.zeros(0, np.int64)
    made = make(s, draft.goal, "copartitioned", wait)
    following = draft.following
    following[draft.goal[wait], wait] = True
    _follow_everywhere(c, following, draft.everywhere, draft.goal, wait)
    return replace(
        made,
        standby={name: held_by(c, np.where(following[m], m, -1))[name] for m, name in enumerate(c.members)},
        followup=draft.followup or made.followup,
        warnings=(*made.warnings, *draft.warnings, *_without(c, draft.everywhere)),
    )


class Group(NamedTuple):
    """Topics (by number) with the same number of partitions and the same subscribers; `part[topic, number]`."""

    topics: list[int]
    part: Ints

    @property
    def size(self) -> int:
        """The number of partitions of each topic."""
        return int(self.part.shape[1])


Members = Sequence[int]
Groups = Sequence[Group]


def _by_subscribers(c: Columns) -> dict[tuple[int, ...], list[Group]]:
    """Return the groups of each set of subscribers (members by number), by partition count.

    The largest subscriber sets are placed first; smaller ones align with them.
    """
    groups_of: dict[tuple[int, ...], dict[int, list[int]]] = {}
    for t, count in enumerate(np.diff(c.start).tolist()):
        members = tuple(np.flatnonzero(c.subscribed[t]).tolist())
        if members and count:
            groups_of.setdefault(members, {}).setdefault(count, []).append(t)
    return {
        members: [
            Group(topics, c.start[topics][:, None] + np.arange(count))
            for count, topics in sorted(groups.items())
        ]
        for members, groups in sorted(groups_of.items(), key=lambda item: (-len(item[0]), item[0]))
    }


class _Draft:
    """An assignment under construction. Sets of subscribers are added one after the other.

    - `goal`: [n] the member of each partition, or -1
    - `following`: [m, n] whether the member shall follow the partition
    - `everywhere`: [topics] whether the topic is global
    - `copies`: [m, n] whether the member reports to follow the partition now
    - `settled`: partition count -> the members of the partition numbers of each group that is placed already
    """

    def __init__(self, s: Subscriptions) -> None:
        self.replicas, self.seed = s.replicas, s.seed
        c = self.c = s.columns
        number = {topic: k for k, topic in enumerate(c.topics)}
        followed, follower = locate([m.standby for m in s.members.values()], number, c.start)
        self.copies = np.zeros((c.m, c.n), np.bool_)
        self.copies[follower, followed] = True
        self.everywhere = np.isin(np.arange(len(c.topics)), [number[t] for t in s.global_topics])
        self.goal = np.full(c.n, -1, np.int64)
        self.following = np.zeros((c.m, c.n), np.bool_)
        self.settled: dict[int, list[Ints]] = {}
        self.warnings: list[str] = []
        self.followup = False

    def place(self, members: Members, groups: Groups) -> None:
        """Place the groups of one set of subscribers.

        Groups with only global topics are placed last. All members have copies of them, so there is no standby to place
        or to wait for.
        """
        normal = [group for group in groups if not self.everywhere[group.topics].all()]
        alone = [group for group in groups if self.everywhere[group.topics].all()]
        loads = np.zeros(len(members), np.int64)
        if normal:
            loads = self._place_normal(members, normal)
            self.warnings += _lacking(self.replicas, self.c, members, normal, self.everywhere)
        if alone:
            self._place_alone(members, alone, loads)

    def _known(self, members: Members, groups: Groups) -> tuple[dict[int, Ints], dict[int, list[Ints]]]:
        """Return, per group, the present owners and the members of settled numbers, as positions in `members`."""
        number = np.full(self.c.m + 1, -1, np.int64)  # -1 for other members and for no member
        number[list(members)] = np.arange(len(members))
        owner = {g: number[self.c.owner[group.part]] for g, group in enumerate(groups)}
        near = {
            g: [number[homes] for homes in self.settled.get(group.size, ())] for g, group in enumerate(groups)
        }
        return owner, near

    def _owners(self, members: Members, groups: Groups, copies: Bools) -> dict[int, Ints]:
        """Return, per group and partition number, the member that counts as its owner, or -1."""
        owner, near = self._known(members, groups)
        if not open_questions(owner, near):
            owner_of = {g: held.max(axis=0) for g, held in owner.items()}
        else:
            mine = copies[list(members)]
            followed = {g: np.asarray(mine[:, group.part].any(axis=1)) for g, group in enumerate(groups)}
            owner_of = settle(owner, followed, near, len(members))
        back = np.array([*members, -1], np.int64)
        return {g: back[at] for g, at in owner_of.items()}

    def _place_normal(self, members: Members, groups: Groups) -> Ints:
        """Place groups with standbys, by the placement engine. Return the number of tasks per member in the target."""
        c = self.c
        parts = {g: group.part for g, group in enumerate(groups)}
        copies = self.copies & ~self.everywhere[c.topic]
        owners = self._owners(members, groups, copies)
        names = {m: _hashed(c.members[m], self.seed) for m in members}
        made = plan(_problem(names, parts, owners, copies, self.replicas))
        # A lost member's task stays on the promoted copy until its target member has a copy.
        now, target = _homes(made.assignment), _homes(made.target)
        waits = {t for t in now if owners[t.subtopology][t.partition] < 0 and now[t] != target[t]}
        homes = {g: np.full(group.size, -1, np.int64) for g, group in enumerate(groups)}
        for m, name in names.items():
            step, goal = made.assignment[name], made.target[name]
            settled = [t for t in goal.active if t not in waits]
            for t in settled:
                homes[t.subtopology][t.partition] = m
            active = [t for t in step.active if t in waits] + settled
            follows = [t for t in (*step.standby, *step.warmup) if t in waits]
            follows += [t for t in goal.standby if t not in waits]
            self.goal[_of(parts, active)] = m
            self.following[m, _of(parts, follows)] = True
        for g, group in enumerate(groups):
            self.settled.setdefault(group.size, []).append(homes[g])
        self.followup |= bool(waits)
        return np.array([len(made.target[name].active) for name in names.values()], np.int64)

    def _place_alone(self, members: Members, groups: Groups, base: Ints) -> None:
        """Place groups of global topics. `base`: the tasks that the members already have."""
        owner, near = self._known(members, groups)
        mine = self.copies[list(members)]
        holds = {g: np.asarray(mine[:, group.part].all(axis=1)) for g, group in enumerate(groups)}
        homes_of = settle_everywhere(owner, holds, near, base)
        for g, group in enumerate(groups):
            homes = np.array(members, np.int64)[homes_of[g]]
            self.settled.setdefault(group.size, []).append(homes)
            self.goal[group.part] = homes


def _problem(
    names: Mapping[int, str],
    parts: Mapping[int, Ints],
    owners: Mapping[int, Ints],
    copies: Bools,
    replicas: int,
) -> Problem:
    """Return the placement problem of these groups: a task for each partition number, an instance for each member."""
    instances = []
    for m, name in names.items():
        active = tuple(TaskId(g, p) for g in parts for p in np.flatnonzero(owners[g] == m).tolist())
        standby = tuple(
            TaskId(g, p)
            for g, part in parts.items()
            for p in np.flatnonzero(copies[m][part].any(axis=0) & (owners[g] != m)).tolist()
        )
        lags = dict.fromkeys((*active, *standby), 0)
        instances.append(Instance(name, active=active, standby=standby, lags=lags))
    # Each task gets a changelog of one record: with an empty one, every member would count as caught up.
    tasks = [Task(TaskId(g, p), end_offset=1) for g, part in parts.items() for p in range(part.shape[1])]
    config = PlacementConfig(
        num_standby_replicas=replicas, acceptable_recovery_lag=0, max_warmup_replicas=max(1, 2 * len(tasks))
    )
    return Problem(tasks, instances, config)


def _lacking(replicas: int, c: Columns, members: Members, groups: Groups, everywhere: Bools) -> list[str]:
    """Return the warning that there are too few members for the standbys of topics that are not global."""
    placed = min(replicas, len(members) - 1)
    if placed == replicas:
        return []
    topics = [(t, group.size) for group in groups for t in group.topics if not everywhere[t]]
    count = sum(size for _, size in topics)
    return [
        f"{count} of {count} partitions get {placed} of the {replicas} configured standbys: "
        f"{len(members)} members subscribe to {c.topics[topics[0][0]]}; "
        f"add {replicas - placed} to place all of them"
    ]


def _follow_everywhere(c: Columns, following: Bools, everywhere: Bools, goal: Ints, wait: Ints) -> None:
    """Make all subscribers of global topics follow the partitions that are not active on them."""
    of_global = np.flatnonzero(everywhere[c.topic])
    following[:, of_global] = c.subscribed[c.topic[of_global]].T
    active = np.setdiff1d(of_global[goal[of_global] >= 0], wait)
    following[goal[active], active] = False


def _without(c: Columns, everywhere: Bools) -> Iterator[str]:
    """Yield a warning for each global topic that some members, but not all, subscribe to."""
    for t in np.flatnonzero(everywhere & c.subscribed.any(axis=1)).tolist():
        names = [c.members[m] for m in np.flatnonzero(~c.subscribed[t]).tolist()]
        if names:
            some = ", ".join(names[:5])
            yield (
                f"{len(names)} of {c.m} members do not subscribe to the global topic {c.topics[t]} "
                f"and have no copy of it: {some}; subscribe them"
            )


def _homes(assignment: Mapping[str, Roles]) -> dict[TaskId, str]:
    return {t: name for name, roles in assignment.items() for t in roles.active}


def _of(parts: dict[int, Ints], tasks: Sequence[TaskId]) -> Ints:
    """Return the partitions of tasks."""
    parts_of = [parts[t.subtopology][:, t.partition] for t in tasks]
    return np.concatenate(parts_of) if parts_of else np.zeros(0, np.int64)


def _hashed(name: str, seed: int) -> str:
    """Return the name with a hash before it. The engine breaks ties by name order, so the seed decides them."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).hexdigest()[:16]
    return f"{digest}/{name}"


# ------------------------------------------------------------------ topics whose partitions are on different members


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
