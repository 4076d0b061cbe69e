"""Coordinates any number of groups: dispatches messages to groups, and remembers generations.

Properties: a group that has been empty for `forget_after` seconds is removed, except for its generation. So the group
continues from it when it comes back. A coordinator that takes over needs the value of `generations()`.
"""

from __future__ import annotations

from collections.abc import Mapping

from taskplace.errors import InputError
from taskplace.groups.coordinator import (
    Description,
    Group,
    GroupState,
    LeaderRule,
    Replies,
    newest_then_latest,
)
from taskplace.groups.messages import Code, Join, Request, StaleGeneration
from taskplace.groups.settings import CoordinatorSettings


class Coordinator:
    """Coordinates groups. Methods take messages and the time (seconds), and return messages.

    - `resume`: the generations of groups of another coordinator; these groups continue from them
    - `wait_for_sessions`: the first rebalance of a resumed group waits for a session, because members of the other
      coordinator may still be working
    - `leader_rule`: chooses the leaders; by default, the newest metadata version, then the latest to join
    - `forget_after`: an empty group is removed after this many seconds

    >>> coordinator = Coordinator()
    >>> from taskplace.groups.messages import Heartbeat
    >>> [(address, ack)] = coordinator.handle("there", Heartbeat("orders", "m1", 1, 7), now=0.0)
    >>> ack.code.name
    'UNKNOWN_MEMBER_ID'
    """

    def __init__(
        self,
        settings: CoordinatorSettings | None = None,
        *,
        resume: Mapping[str, int] | None = None,
        wait_for_sessions: bool = True,
        leader_rule: LeaderRule = newest_then_latest,
        forget_after: float = 3_600.0,
    ) -> None:
        self.settings = settings or CoordinatorSettings()
        self.groups: dict[str, Group] = {}
        self._generations = dict(resume or {})
        self._resumed = set(self._generations) if wait_for_sessions else set()
        self._leader_rule = leader_rule
        self._forget_after = forget_after
        self._empty_since: dict[str, float] = {}

    def handle(self, address: str, request: Request, now: float) -> Replies:
        """Process a request from `address`. Return the messages to send, each with its address."""
        if isinstance(request, Join):
            group = self._group(request.group)
        else:
            # Only a join creates a group. Any other request to an unknown group gets a temporary one.
            group = self.groups.get(request.group) or Group(request.group, self.settings)
        replies = group.handle(address, request, now)
        self._note(group, now)
        return replies

    def tick(self, now: float) -> Replies:
        """Do what is due at `now`: end sessions and phases, and remove empty groups."""
        replies: Replies = []
        for group in list(self.groups.values()):
            replies += group.tick(now)
            self._note(group, now)
        for name, since in list(self._empty_since.items()):
            if now >= since + self._forget_after:
                self._generations[name] = self.groups.pop(name).generation
                del self._empty_since[name]
        return replies

    def next_deadline(self) -> float | None:
        """Return the next time at which `tick` has something to do, or None."""
        times = [t for group in self.groups.values() if (t := group.next_deadline()) is not None]
        times += [since + self._forget_after for since in self._empty_since.values()]
        return min(times, default=None)

    def close(self, name: str) -> Replies:
        """Close a group, for example because another coordinator takes it over. Its members then look for that one."""
        return self._known(name).close()

    def generations(self) -> dict[str, int]:
        """Return the newest generation of every group, in the form of `resume`."""
        return self._generations | {name: group.generation for name, group in self.groups.items()}

    def describe(self, name: str) -> Description:
        """Return the present state of a group. Errors: `InputError` for an unknown group."""
        return self._known(name).describe()

    def fence(self, name: str, member_id: str, generation: int) -> None:
        """Raise `StaleGeneration` unless this member may do work of this generation now.

        >>> Coordinator().fence("orders", "m1", 3)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        taskplace.groups.messages.StaleGeneration: orders: found m1 in generation 3, expected ... UNKNOWN_MEMBER_ID
        """
        group = self.groups.get(name)
        code = group.check(member_id, generation) if group else Code.UNKNOWN_MEMBER_ID
        if code is not Code.NONE:
            in_force = group.generation if group else self._generations.get(name, 0)
            raise StaleGeneration(
                f"{name}: found {member_id} in generation {generation}, expected a member in generation "
                f"{in_force}: {code.name}"
            )

    def _group(self, name: str) -> Group:
        if name not in self.groups:
            self.groups[name] = Group(
                name,
                self.settings,
                generation=self._generations.get(name, 0),
                resumed=name in self._resumed,
                leader_rule=self._leader_rule,
            )
            self._resumed.discard(name)
        return self.groups[name]

    def _known(self, name: str) -> Group:
        if name not in self.groups:
            known = ", ".join(sorted(self.groups)[:20]) or "none"
            raise InputError("group", found=name, expected="a group of this coordinator", hint=known)
        return self.groups[name]

    def _note(self, group: Group, now: float) -> None:
        if group.name not in self.groups:
            return
        if group.state is GroupState.EMPTY:
            self._empty_since.setdefault(group.name, now)
        else:
            self._empty_since.pop(group.name, None)
