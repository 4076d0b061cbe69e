"""Topologies in their written form."""

from __future__ import annotations


def aggregate(keep: int) -> tuple[str, int]:
    if keep < 0:
        raise ValueError("keep has to be positive")
    return ("aggregate", keep)


REGISTRY = {"table-join": lambda: "join", "aggregate": aggregate}
