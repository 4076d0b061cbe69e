"""A network in memory for one coordinator and its members: delays, losses, duplicates, cuts, crashes, all from a seed.

Messages are bytes. Nothing waits, because time jumps from event to event. `check` has the promises of the protocol. It
runs after every event.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from taskplace.groups.coordinator import Coordinator, CoordinatorSettings, Group, GroupState
from taskplace.groups.member import Assigned, Failed, Member, MemberSettings, MemberState, Revoked, Send
from taskplace.groups.messages import Joined, Role, decode, encode

GROUP = "g"
FAST = CoordinatorSettings(group_initial_rebalance_delay_ms=0)
SETTINGS = MemberSettings(session_timeout_ms=10_000, heartbeat_interval_ms=1_000, max_poll_interval_ms=20_000)


@dataclass
class Weather:
    """The treatment of messages: the longest delay (seconds), and the fractions that are lost and duplicated."""

    delay: float = 0.01
    loss: float = 0.0
    double: float = 0.0


@dataclass
class Network:
    seed: int = 0
    settings: CoordinatorSettings = FAST
    weather: Weather = field(default_factory=Weather)
    exclusive: bool = True  # whether values are partitions, which only one member may own at a time
    coordinator: Coordinator = field(init=False)

    def __post_init__(self) -> None:
        self.now = 0.0
        self.random = random.Random(self.seed)
        self.coordinator = Coordinator(self.settings)
        self.members: dict[str, Member] = {}
        self.cut: set[str] = set()
        self.log: list[tuple[float, str, Any]] = []
        self.owners: dict[tuple[int, Any], str] = {}
        self.leaders: dict[int, str] = {}
        self.newest = 0
        self.bytes_to_members = 0
        self.sent: list[tuple[str, Any]] = []  # (receiver, message) of the coordinator's messages
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    # ----------------------------------------------------------------------------------------- actions

    def join(self, member_id: str, protocol: Any, settings: MemberSettings = SETTINGS) -> Member:
        member = Member(GROUP, member_id, protocol, settings)
        self.members[member_id] = member
        self._apply(member_id, member.start(self.now))
        return member

    def leave(self, member_id: str) -> None:
        self._apply(member_id, self.members[member_id].leave(self.now))
        del self.members[member_id]

    def crash(self, member_id: str) -> None:
        del self.members[member_id]

    def rejoin(self, member_id: str) -> None:
        self._apply(member_id, self.members[member_id].rejoin(self.now))

    def replace_coordinator(self, *, remembers: bool) -> None:
        """Replace the coordinator by a new one, which may know the generations or not."""
        resume = self.coordinator.generations() if remembers else {}
        self.coordinator = Coordinator(self.settings, resume=resume)

    # -------------------------------------------------------------------------------------------- time

    def run(self, seconds: float) -> None:
        """Advance the time by this many seconds."""
        until = self.now + seconds
        for turn in itertools.count():
            # Endless messages at one instant would keep the time from advancing.
            assert turn < 1_000 * (1 + seconds), f"no end of events; {self.tail()}"
            at = self._events[0][0] if self._events else None
            timers = [t for m in self.members.values() if (t := m.next_deadline()) is not None]
            deadline = self.coordinator.next_deadline()
            nearest = min([t for t in (at, deadline, *timers) if t is not None], default=None)
            if nearest is None or nearest > until:
                break
            self.now = max(self.now, nearest)
            # Members before the coordinator: at the same instant, they stop before their partitions go to others.
            for name, member in list(self.members.items()):
                t = member.next_deadline()
                if t is not None and t <= self.now:
                    self._apply(name, member.tick(self.now))
            while self._events and self._events[0][0] <= self.now:
                heapq.heappop(self._events)[2]()
            deadline = self.coordinator.next_deadline()
            if deadline is not None and deadline <= self.now:
                self._replies(self.coordinator.tick(self.now))
            self.check()
        self.now = until

    def settle(self, seconds: float = 120.0) -> None:
        """Run without faults until the group must be stable. Fail if it is not."""
        self.weather, self.cut = Weather(), set()
        self.run(seconds)
        alive = {n: m for n, m in self.members.items() if m.state is not MemberState.FAILED}
        found = self.coordinator.groups.get(GROUP)
        if alive:
            assert found is not None and found.state is GroupState.STABLE, (found, self.tail())
            assert len(found.seats) == len(alive), (self.names, sorted(alive), self.tail())
            for name, member in alive.items():
                assert member.state is MemberState.STABLE, (name, member.state, self.tail())
                assert member.generation == found.generation, (name, member.generation, self.tail())

    @property
    def group(self) -> Group:
        return self.coordinator.groups[GROUP]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self.group.seats))

    @property
    def leader(self) -> str:
        assert self.group.outcome is not None
        return self.group.outcome.leader

    @property
    def protocol(self) -> tuple[str, int]:
        assert self.group.outcome is not None
        return self.group.outcome.protocol, self.group.outcome.version

    def in_flight(self) -> float:
        """Return in how many seconds all messages of now will have arrived."""
        return max((at for at, _, _ in self._events), default=self.now) - self.now

    def owned(self) -> dict[str, Any]:
        return {n: m.owned.value for n, m in self.members.items() if m.owned is not None}

    def failures(self) -> dict[str, Failed]:
        return {name: effect for _, name, effect in self.log if isinstance(effect, Failed)}

    def tail(self, lines: int = 60) -> str:
        return f"seed {self.seed}, at {self.now:.3f}\n" + "\n".join(map(str, self.log[-lines:]))

    # ------------------------------------------------------------------------------------- invariants

    def check(self) -> None:
        group = self.coordinator.groups.get(GROUP)
        if group is not None and group.generation:
            assert group.generation >= self.newest, (group.generation, self.newest, self.tail())
            self.newest = group.generation
        if not self.exclusive:
            return
        now_owned: dict[Any, str] = {}
        for name, member in self.members.items():
            for part in member.owned.value if member.owned else ():
                other = now_owned.setdefault(part, name)
                assert other == name, f"{part} is owned by {other} and {name} at once; {self.tail()}"

    def _note(self, name: str, effect: Any) -> None:
        self.log.append((round(self.now, 4), name, effect))
        if isinstance(effect, Assigned) and self.exclusive:
            for part in effect.value:
                # A returning static member gets its partitions again, in the same generation.
                own = self.members[name].settings.group_instance_id or name
                other = self.owners.setdefault((effect.generation, part), own)
                assert other == own, f"{part} of {effect.generation}: {other}, {own}; {self.tail()}"

    # -------------------------------------------------------------------------------------- transport

    def _apply(self, name: str, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                frame = encode(effect.message)
                self.log.append((round(self.now, 4), name, effect.message))
                self._post(name, lambda frame=frame: self._arrive(name, frame))
            else:
                assert isinstance(effect, (Assigned, Revoked, Failed))
                self._note(name, effect)

    def _arrive(self, name: str, frame: bytes) -> None:
        self._replies(self.coordinator.handle(name, decode(frame), self.now))  # type: ignore[arg-type]

    def _replies(self, replies: Any) -> None:
        for name, message in replies:
            frame = encode(message)
            self.bytes_to_members += len(frame)
            self.sent.append((name, message))
            self.log.append((round(self.now, 4), f"-> {name}", message))
            if isinstance(message, Joined) and message.role is Role.LEADER:
                leader = self.leaders.setdefault(message.generation, name)
                assert leader == name, f"generation {message.generation}: {leader}, {name}; {self.tail()}"
            self._post(name, lambda name=name, frame=frame: self._deliver(name, frame))

    def _deliver(self, name: str, frame: bytes) -> None:
        if name in self.members:
            self._apply(name, self.members[name].receive(decode(frame), self.now))  # type: ignore[arg-type]

    def _post(self, name: str, deliver: Callable[[], None]) -> None:
        if name in self.cut or self.random.random() < self.weather.loss:
            return
        for _ in range(2 if self.random.random() < self.weather.double else 1):
            self._count += 1
            at = self.now + self.random.uniform(0.001, self.weather.delay)
            heapq.heappush(self._events, (at, self._count, deliver))
