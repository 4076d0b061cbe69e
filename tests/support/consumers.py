"""Consumers in a group, on the network in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from taskplace.groups.consumer import ConsumerProtocol
from taskplace.groups.metadata import Topics
from tests.support.network import Network


def consumer(view: Topics | dict[str, int], topics: Sequence[str] = ("t",), **more: Any) -> ConsumerProtocol:
    seen = view if isinstance(view, Topics) else None
    return ConsumerProtocol(
        () if more.get("pattern") else topics, fetch=lambda: seen or Topics(dict(view)), **more
    )  # type: ignore[arg-type]


def numbers(network: Network) -> dict[str, list[int]]:
    return {name: [p.partition for p in parts] for name, parts in sorted(network.owned().items())}


class Odd(ConsumerProtocol):
    """A consumer with metadata that no member can read."""

    says = b""

    def _metadata(self, *_: Any) -> bytes:
        return self.says
