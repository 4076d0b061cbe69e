"""A group in which each member gets its own name, on the network in memory."""

from __future__ import annotations

from typing import Any

from taskplace.groups.messages import Joined, Mode, Offer
from tests.support.network import Network


class Plain:
    """The smallest protocol: every member is assigned its own name, in upper case."""

    protocol_type = "plain"

    def __init__(self, *offers: Any, mode: Mode = Mode.SINGLE, newest: int = 0, broken: str = "") -> None:
        self.mode = mode
        self.newest = newest
        self.said = [
            Offer(*offer) if isinstance(offer, tuple) else Offer(offer) for offer in offers or ("p",)
        ]
        self.broken = broken
        self.rounds: list[Joined] = []
        self.led = 0

    def offers(self) -> list[Offer]:
        return self.said

    def lead(self, found: Joined) -> dict[str, bytes]:
        self.led += 1
        if self.broken:
            raise ValueError(self.broken)
        return {name: name.upper().encode() for name in found.members}

    def accept(self, found: Joined) -> tuple[str, ...]:
        self.rounds.append(found)
        return (found.state.decode() or found.name.upper(),)

    def lost(self) -> None:
        pass


def stable(*names: str, mode: Mode = Mode.SINGLE, **more: Any) -> Network:
    network = Network(**more)
    for name in names:
        network.join(name, Plain(mode=mode))
        network.run(0.5)
    network.settle(10)
    return network
