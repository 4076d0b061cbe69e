"""Faust's assignor: equally partitioned topics together, with standbys; made exact by the placement engine.

**Idea.** Nobody has declared a topology, so any two topics with the same number of partitions and the same
subscribers may be joined: they form a group, and partition p of all of them is one task. Where tasks and their
standbys belong is then what the placement engine decides; a member is an instance, and every copy counts as
caught up, because members do not tell their lags. A global topic is active on one member too, with its group, and
a standby on all others.

Properties:
- co-partitioned: partition p of all topics of a group is on one member, and so are their standbys;
- balanced: each member has floor or ceiling of its share, of every group and of all of them together, among topics
  with the same subscribers; the one exception is the next line;
- a lost member's tasks go to holders of their standbys, wherever there is one. If balance wants one of them on a
  member that has no copy, it gets a standby there first, and `followup` says to assign again;
- a member that comes (back) gets its share at once, with no more moves than balance needs;
- the standbys of one member's tasks are spread over the others. Ties are broken by a hash of the member's name and the
  `seed`: all runs agree, and another seed spreads differently;
- a topic that comes at run time joins the group of its count and subscribers: each of its partitions goes to where the
  group's is. If it came to one member after the other, no more partitions move than balance needs;
- topics with the same count and different subscribers: who subscribes to both gets the same partition numbers, as far
  as each of them stays balanced (`taskplace.partitions.together`);
- standbys that cannot be placed are a warning with counts and remedy, never silence;
- every subscriber of a global topic has all of its partitions, active or standby. These standbys are none of the
  `replicas`: they are not spread, not balanced and not warned of, and who follows a global topic has no copy of the
  other topics of its group.

Non-goals: racks; topics with different subscribers are balanced separately.

Source: Faust's partition assignor, "PartitionGrouper", "StickyAssignor" and "Concerns"; its code for global tables.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from taskplace.model.config import PlacementConfig
from taskplace.model.plan import Roles
from taskplace.model.problem import Instance, Problem, Task
from taskplace.partitions.columns import Bools, Columns, Ints, locate
from taskplace.partitions.cooperative import held_elsewhere
from taskplace.partitions.result import Held, PartitionAssignment, held_by, make
from taskplace.partitions.subscriptions import Subscriptions
from taskplace.partitions.together import open_questions, settle, settle_everywhere
from taskplace.planner import plan
from taskplace.validation import integer, of_type
from topology.ids import TaskId


class CopartitionedAssignor:
    """Assigns partitions with `replicas` standbys each; `seed` decides how standbys are spread.

    >>> group = {"topics": {"orders": 2, "users": 2}, "members": {m: {"topics": ["orders", "users"]} for m in "ab"}}
    >>> made = CopartitionedAssignor(replicas=1).assign(Subscriptions.from_dict(group))
    >>> [sorted(tp.topic for tp in held) for held in made.assignment.values()]
    [['orders', 'users'], ['orders', 'users']]
    >>> made.standby["a"] == made.assignment["b"]
    True
    """

    def __init__(self, replicas: int = 1, seed: int = 0) -> None:
        self.replicas = integer(replicas, "replicas") or 0
        self.seed = integer(seed, "seed") or 0

    def assign(self, s: Subscriptions, *, cooperative: bool = False) -> PartitionAssignment:
        """Return who gets what, actives and standbys; O(plan).

        With `cooperative`, what another member still owns is withheld; its new member follows it as a standby
        until then.
        """
        c = of_type(s, Subscriptions, "subscriptions").columns
        number = {topic: k for k, topic in enumerate(c.topics)}
        followed, follower = locate([m.standby for m in s.members.values()], number, c.start)
        everywhere = np.isin(np.arange(len(c.topics)), [number[t] for t in s.global_topics])
        goal = np.full(c.n, -1, np.int64)
        copies: list[tuple[Ints, int]] = []  # (partitions, the member that follows them)
        warnings: list[str] = []
        followup = False
        settled: dict[int, list[Ints]] = {}  # homes of partition numbers, by the count of their topics
        for members, groups in _by_subscribers(c).items():
            # Everybody has a copy of a group of global topics alone: there is no standby to place or to wait for.
            normal = [group for group in groups if not everywhere[list(group.topics)].all()]
            alone = [group for group in groups if everywhere[list(group.topics)].all()]
            base = np.zeros(len(members), np.int64)
            if normal:
                of_groups = ~everywhere[c.topic[followed]]
                copy = (followed * c.m + follower)[of_groups]
                placed = _place(self, c, members, normal, copy, settled)
                for group, homes in zip(normal, placed.homes, strict=True):
                    settled.setdefault(group.size, []).append(homes)
                followup |= placed.followup
                goal[placed.partitions] = placed.active
                copies += placed.copies
                base = placed.loads
                warnings += _lacking(self.replicas, c, members, normal, everywhere)
            if alone:
                for group, homes in _place_alone(c, members, alone, (followed, follower), settled, base):
                    settled.setdefault(group.size, []).append(homes)
                    goal[c.start[list(group.topics)][:, None] + np.arange(group.size)] = homes
        wait = held_elsewhere(c, goal) if cooperative else np.zeros(0, np.int64)
        made = make(c, goal, "copartitioned", wait)
        following = np.zeros((c.m, c.n), np.bool_)
        for partitions, member in copies:
            following[member, partitions] = True
        following[goal[wait], wait] = True
        _follow_everywhere(c, following, everywhere, goal, wait)
        return replace(
            made,
            standby=_standbys(c, following),
            followup=followup or made.followup,
            warnings=(*made.warnings, *warnings, *_without(c, everywhere)),
            urls=s.urls,
        )


class Group(NamedTuple):
    """Topics (by number) with the same number of partitions, `size`, and the same subscribers."""

    size: int
    topics: tuple[int, ...]


class Placed(NamedTuple):
    """What became of the topics of one set of subscribers."""

    partitions: Ints
    active: Ints
    copies: list[tuple[Ints, int]]
    followup: bool
    homes: list[Ints]
    """Per group, the member of each partition number, or -1 while it waits for a copy elsewhere."""
    loads: Ints
    """How many tasks each of the members is to have: floor or ceiling of its share."""


def _by_subscribers(c: Columns) -> dict[tuple[int, ...], list[Group]]:
    """Return the groups of each set of subscribers (members by number); groups in the order of counts.

    The sets with most members come first: the others then find out where to be with them.
    """
    groups_of: dict[tuple[int, ...], dict[int, list[int]]] = {}
    for t, count in enumerate((c.start[1:] - c.start[:-1]).tolist()):
        members = tuple(np.flatnonzero(c.subscribed[t]).tolist())
        if members and count:
            groups_of.setdefault(members, {}).setdefault(count, []).append(t)
    return {
        members: [Group(count, tuple(topics)) for count, topics in sorted(groups.items())]
        for members, groups in sorted(groups_of.items(), key=lambda item: (-len(item[0]), item[0]))
    }


def _place(
    a: CopartitionedAssignor,
    c: Columns,
    members: Sequence[int],
    groups: Sequence[Group],
    followed: Ints,
    settled: Mapping[int, Sequence[Ints]],
) -> Placed:
    """Return where the tasks of these groups go, and their standbys."""
    parts = {  # [topics of the group, partitions]
        g: c.start[list(group.topics)][:, None] + np.arange(group.size) for g, group in enumerate(groups)
    }
    following = np.zeros((c.m, c.n), np.bool_)
    following[followed % c.m, followed // c.m] = True
    owners = _owners(c, members, parts, following, {g: settled.get(x.size, ()) for g, x in enumerate(groups)})
    names = {m: _hashed(c.members[m], a.seed) for m in members}
    instances = []
    for m in members:
        active = tuple(TaskId(g, p) for g in parts for p in np.flatnonzero(owners[g] == m).tolist())
        standby = tuple(
            TaskId(g, p)
            for g, part in parts.items()
            for p in np.flatnonzero(following[m][part].any(axis=0) & (owners[g] != m)).tolist()
        )
        lags = dict.fromkeys((*active, *standby), 0)
        instances.append(Instance(names[m], active=active, standby=standby, lags=lags))
    # One record each, so that a copy can be told from none.
    tasks = [Task(TaskId(g, p), end_offset=1) for g, part in parts.items() for p in range(part.shape[1])]
    config = PlacementConfig(
        num_standby_replicas=a.replicas, acceptable_recovery_lag=0, max_warmup_replicas=max(1, 2 * len(tasks))
    )
    made = plan(Problem(tasks, instances, config))
    # A lost member's task stays on the copy that was promoted, until there is one where balance wants it.
    now, target = _homes(made.assignment), _homes(made.target)
    waits = {t for t in now if owners[t.subtopology][t.partition] < 0 and now[t] != target[t]}
    active_of: dict[str, list[TaskId]] = {name: [] for name in names.values()}
    copies_of: dict[str, list[TaskId]] = {name: [] for name in names.values()}
    for name in names.values():
        step, goal = made.assignment[name], made.target[name]
        active_of[name] = [t for t in step.active if t in waits] + [t for t in goal.active if t not in waits]
        copies_of[name] = [t for t in (*step.standby, *step.warmup) if t in waits]
        copies_of[name] += [t for t in goal.standby if t not in waits]
    partitions: list[Ints] = []
    homes: list[Ints] = []
    copies: list[tuple[Ints, int]] = []
    for m in members:
        mine = _of(parts, active_of[names[m]])
        partitions.append(mine)
        homes.append(np.full(len(mine), m, np.int64))
        copies.append((_of(parts, copies_of[names[m]]), m))
    at = {g: np.full(group.size, -1, np.int64) for g, group in enumerate(groups)}
    for m in members:
        for t in active_of[names[m]]:
            if t not in waits:
                at[t.subtopology][t.partition] = m
    loads = np.array([len(made.target[names[m]].active) for m in members], np.int64)
    return Placed(
        np.concatenate(partitions), np.concatenate(homes), copies, bool(waits), list(at.values()), loads
    )


def _place_alone(
    c: Columns,
    members: Sequence[int],
    groups: Sequence[Group],
    copies: tuple[Ints, Ints],
    settled: Mapping[int, Sequence[Ints]],
    base: Ints,
) -> Iterator[tuple[Group, Ints]]:
    """Yield the member of each partition number of groups of global topics; `base`: tasks the members have already."""
    number = np.full(c.m + 1, -1, np.int64)
    number[list(members)] = np.arange(len(members))
    owner, near, holds = {}, {}, {}
    following = np.zeros((c.m, c.n), np.bool_)
    following[copies[1], copies[0]] = True
    for g, group in enumerate(groups):
        part = c.start[list(group.topics)][:, None] + np.arange(group.size)
        owner[g] = number[c.owner[part]]
        near[g] = [number[homes] for homes in settled.get(group.size, ())]
        holds[g] = np.asarray(following[list(members)][:, part].all(axis=1))
    homes_of = settle_everywhere(owner, holds, near, base)
    back = np.array(members, np.int64)
    for g, group in enumerate(groups):
        yield group, back[homes_of[g]]


def _lacking(
    replicas: int, c: Columns, members: Sequence[int], groups: Sequence[Group], everywhere: Bools
) -> list[str]:
    """Return the warning that there are too few members for the standbys of topics that are not global."""
    placed = min(replicas, len(members) - 1)
    if placed == replicas:
        return []
    topics = [(t, group.size) for group in groups for t in group.topics if not everywhere[t]]
    count = sum(size for _, size in topics)
    return [
        f"{count} of {count} partitions get {placed} of the {replicas} standbys asked for: "
        f"{len(members)} members subscribe to {c.topics[topics[0][0]]}; "
        f"add {replicas - placed} to place them all"
    ]


def _follow_everywhere(c: Columns, following: Bools, everywhere: Bools, goal: Ints, wait: Ints) -> None:
    """Make all subscribers of global topics follow what is not active on them."""
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


def _owners(
    c: Columns,
    members: Sequence[int],
    parts: Mapping[int, Ints],
    following: Bools,
    settled: Mapping[int, Sequence[Ints]],
) -> dict[int, Ints]:
    """Return, per group and partition number, the member that counts as its owner, or -1."""
    number = np.full(c.m + 1, -1, np.int64)  # of a member among these; nobody (-1) stays nobody
    number[list(members)] = np.arange(len(members))
    owner = {g: number[c.owner[part]] for g, part in parts.items()}
    near = {g: [number[homes] for homes in settled[g]] for g in parts}
    if not open_questions(owner, near):
        owner_of = {g: held.max(axis=0) for g, held in owner.items()}
    else:
        followed = {g: np.asarray(following[list(members)][:, part].any(axis=1)) for g, part in parts.items()}
        owner_of = settle(owner, followed, near, len(members))
    back = np.array([*members, -1], np.int64)
    return {g: back[at] for g, at in owner_of.items()}


def _homes(assignment: Mapping[str, Roles]) -> dict[TaskId, str]:
    return {t: name for name, roles in assignment.items() for t in roles.active}


def _of(parts: dict[int, Ints], tasks: Sequence[TaskId]) -> Ints:
    """Return the partitions of tasks."""
    parts_of = [parts[t.subtopology][:, t.partition] for t in tasks]
    return np.concatenate(parts_of) if parts_of else np.zeros(0, np.int64)


def _hashed(name: str, seed: int) -> str:
    """Return the name behind a hash: the engine breaks ties by order, and this order is the seed's."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).hexdigest()[:16]
    return f"{digest}/{name}"


def _standbys(c: Columns, following: Bools) -> dict[str, Held]:
    out: dict[str, Held] = {}
    for m, name in enumerate(c.members):
        out[name] = held_by(c, np.where(following[m], m, -1))[name]
    return out
