"""What a coordinator knows about one group, and the answers it gives about it.

Empty --join--> PreparingRebalance --everybody joined--> CompletingRebalance --leader's sync--> Stable
                    ^    mode EVERY: straight to Stable                                            |
                    +----------- join, leave, expiry, new metadata --------------------------------+
Dead: closed; every request is answered NOT_COORDINATOR, and a member looks for a coordinator again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from taskplace.group.errors import Code
from taskplace.group.messages import Join, Joined, Mode, Offer, Role


class GroupState(Enum):
    """The states of a group, named as in Kafka."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass
class Seat:
    """One member, as its coordinator sees it; seconds of the coordinator's clock.

    `name` is the instance id of a static member and the member id of another: what strategies see. `waiting` is
    true while a join is unanswered.
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
        """When the session ends, unless the member is heard from before."""
        return self.heard + self.session

    def pairs(self) -> list[tuple[str, int]]:
        """Return what it supports, by preference."""
        return [(offer.name, offer.version) for offer in self.offers]

    def metadata(self, protocol: tuple[str, int]) -> bytes:
        """Return its metadata for the chosen protocol."""
        return next(o.metadata for o in self.offers if (o.name, o.version) == protocol)

    def says_the_same(self, join: Join) -> bool:
        """Return whether a new join brings nothing new."""
        return (self.offers, self.newest) == (join.offers, join.newest)


@dataclass
class Outcome:
    """What the rebalance of a generation came to: the chosen protocol, who led, what each name got."""

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
        """Return what a member is told: the full list where it is needed, the member's state elsewhere."""
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
    """A group as it is now, for people and for tests."""

    group: str
    state: GroupState
    generation: int
    protocol: tuple[str, int] | None
    leader: str
    members: tuple[str, ...]
