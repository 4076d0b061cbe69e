"""What a program brings to its group: the embedded protocol. Consumers are one kind; any other can be written.

A member calls it at four moments: `offers` before every join, `lead` when it is the leader (mode SINGLE),
`accept` when it learns the outcome, `lost` when what it had is no longer its own. All are called by the member,
one at a time.

Source: "Consumer Embedded Protocol" in the client-side assignment proposal, without the consumer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from taskplace.group.errors import Code, GroupError
from taskplace.group.messages import Mode, Offer, Request


@dataclass(frozen=True, slots=True)
class Round:
    """The outcome of one rebalance, as one member sees it.

    `name` is its own name. `members` has everybody's metadata for the chosen protocol, by name: in the mode
    EVERY, and for the leader. `state` is what the leader made for this member.
    """

    group: str
    generation: int
    name: str
    protocol: str
    version: int
    leader: str = ""
    members: Mapping[str, bytes] = field(default_factory=dict)
    state: bytes = b""


class TryAgain(GroupError):
    """Raised by `accept`: this outcome cannot be used; join again, with what `offers` says then.

    `at_once` leaves out the back-off, the first time. The member's patience ends after more than
    `metadata.max.retries` in a row; then it takes what `otherwise` returns, if there is that, and gives up with
    `code` if there is not. `patience` multiplies both, for members that are to see others give up first.
    `accept` and `offers` may raise it.
    """

    def __init__(
        self,
        reason: str,
        *,
        at_once: bool = False,
        code: Code = Code.METADATA_DISAGREEMENT,
        patience: int = 1,
        otherwise: Callable[[], Any] | None = None,
    ) -> None:
        self.at_once = at_once
        self.code = code
        self.patience = patience
        self.otherwise = otherwise
        super().__init__(reason)


class GroupProtocol(Protocol):
    """The interface of an embedded protocol."""

    protocol_type: str
    mode: Mode

    @property
    def newest(self) -> int:
        """The newest metadata version it knows: who knows most is preferred as leader."""

    def offers(self) -> Sequence[Offer]:
        """Return the supported protocols by preference, each with this member's metadata as it is now."""

    def lead(self, outcome: Round, /) -> Mapping[str, bytes]:
        """Return a state for every name in `outcome.members`; an exception is forwarded to all members."""

    def accept(self, outcome: Round, /) -> Any:
        """Return what this member gets; raise `TryAgain` to join again, `GroupFailed` to stop."""

    def lost(self) -> None:
        """React to the loss of what `accept` returned last: it is no longer this member's."""


@dataclass(frozen=True, slots=True)
class Send:
    """Effect: send this to the coordinator."""

    message: Request


@dataclass(frozen=True, slots=True)
class Assigned:
    """Effect: from now on `value` is this member's, in `generation`; `leader` leads the group, if anybody does."""

    generation: int
    value: Any
    leader: str = ""


@dataclass(frozen=True, slots=True)
class Revoked:
    """Effect: what was assigned in `generation` is no longer this member's; stop working on it now."""

    generation: int
    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """Effect: the membership is over; `error` says why."""

    error: GroupError


Effect = Send | Assigned | Revoked | Failed
