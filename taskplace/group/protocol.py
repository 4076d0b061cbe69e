"""The interface of embedded protocols: the part of a group's protocol that its programs supply.

`ConsumerProtocol` is one of them, and you can write others. A member calls `offers` before every join, `lead` if it is
the leader (mode SINGLE), `accept` with the outcome, and `lost` when its assignment is no longer valid. The calls never
overlap.

Source: "Consumer Embedded Protocol" in the client-side assignment proposal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from taskplace.groups.messages import Code, GroupError, Mode, Offer, Request


@dataclass(frozen=True, slots=True)
class Round:
    """The outcome of one rebalance for one member.

    - `name`: the member's own name
    - `protocol`, `version`: the chosen protocol
    - `leader`: the name of the leader (mode SINGLE)
    - `members`: all members' metadata for the chosen protocol, by name; only in the mode EVERY, and for the leader
    - `state`: the leader's result for this member
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
    """Raised by `accept` or `offers`: the member shall join again, with what `offers` returns then.

    - `at_once`: no back-off before the first retry
    - `code`: the error code if the member gives up
    - `patience`: multiplies the limits after which the member gives up (`metadata.max.retries` in a row, and two
      sessions), for members that shall give up after others
    - `otherwise`: if given, the member does not give up, but takes the value that this function returns. `patience`
      then has no effect
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
        """The newest metadata version that it knows. Members with the newest version are preferred as leaders."""

    def offers(self) -> Sequence[Offer]:
        """Return the supported protocols by preference, each with this member's current metadata."""

    def lead(self, outcome: Round, /) -> Mapping[str, bytes]:
        """Return a state for every name in `outcome.members`. All members get an exception as an error."""

    def accept(self, outcome: Round, /) -> Any:
        """Return this member's assignment. Raise `TryAgain` to join again, or `GroupFailed` to stop."""

    def lost(self) -> None:
        """Release the value that `accept` returned last. It does not belong to this member any more."""


@dataclass(frozen=True, slots=True)
class Send:
    """Effect: send `message` to the coordinator."""

    message: Request


@dataclass(frozen=True, slots=True)
class Assigned:
    """Effect: `value` belongs to this member from now on, in `generation`. `leader`: the leader's name, or ""."""

    generation: int
    value: Any
    leader: str = ""


@dataclass(frozen=True, slots=True)
class Revoked:
    """Effect: the assignment of `generation` does not belong to this member any more. Stop working on it now."""

    generation: int
    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """Effect: the membership has ended with `error`."""

    error: GroupError


Effect = Send | Assigned | Revoked | Failed
