"""The coordinator's data about one group: states, members, and the outcome of a rebalance.

Empty --join--> PreparingRebalance --all have joined--> CompletingRebalance --leader's sync--> Stable
                    ^    mode EVERY: directly to Stable                                           |
                    +----------- join, leave, expiry, new metadata -------------------------------+
Dead: closed. Every request is answered NOT_COORDINATOR, so the members look for another coordinator.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from taskplace.groups.messages import Code, Join, Joined, Mode, Offer, Role


class GroupState(Enum):
    """The states of a group, named as in Kafka."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass
class Seat:
    """One member, as its coordinator sees it. Times are seconds of the coordinator's clock.

    - `name`: the name that strategies see: the instance id of a static member, the member id of any other
    - `order`: the position in the order of joining
    - `join`, `sequence`: the numbers of the member's newest join and of its newest message
    - `heard`: when that message arrived
    - `waiting`: whether a join is unanswered
    """

    name: str
    member_id: str
    address: str
    static: bool
    order: int
    join: int
    sequence: int
    heard: float
    session: float
    rebalance: float
    newest: int
    offers: tuple[Offer, ...]
    waiting: bool = True

    @property
    def expires(self) -> float:
        """When the session ends if no further message arrives."""
        return self.heard + self.session

    def pairs(self) -> list[tuple[str, int]]:
        """Return the protocols that the member supports, by preference."""
        return [(offer.name, offer.version) for offer in self.offers]

    def metadata(self, protocol: tuple[str, int]) -> bytes:
        """Return the member's metadata for the chosen protocol."""
        return next(o.metadata for o in self.offers if (o.name, o.version) == protocol)

    def is_unchanged(self, join: Join) -> bool:
        """Return whether a new join has the same metadata."""
        return (self.offers, self.newest) == (join.offers, join.newest)


@dataclass
class Outcome:
    """The outcome of a rebalance: the chosen protocol, the leader, and the members' metadata and states."""

    group: str
    generation: int
    mode: Mode
    protocol: tuple[str, int]
    leader: str = ""
    members: tuple[tuple[str, bytes], ...] = ()
    states: dict[str, bytes] = field(default_factory=dict)
    code: Code = Code.NONE
    detail: str = ""

    def answer(self, seat: Seat, role: Role = Role.MEMBER) -> Joined:
        """Return the answer to a member: all metadata for the mode EVERY or the leader, and the state of a `MEMBER`."""
        listed = self.mode is Mode.EVERY or role is Role.LEADER
        protocol, version = self.protocol
        return Joined(
            group=self.group,
            member_id=seat.member_id,
            sequence=seat.sequence,
            join=seat.join,
            code=self.code,
            detail=self.detail,
            generation=self.generation,
            protocol=protocol,
            version=version,
            role=role,
            name=seat.name,
            leader=self.leader,
            members=self.members if listed and self.code is Code.NONE else (),
            state=self.states.get(seat.name, b"") if role is Role.MEMBER else b"",
        )


@dataclass(frozen=True)
class Description:
    """The present state of a group, for people and for tests."""

    group: str
    state: GroupState
    generation: int
    protocol: tuple[str, int] | None
    leader: str
    members: tuple[str, ...]
