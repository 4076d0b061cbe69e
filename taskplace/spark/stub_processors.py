"""Placeholder processors, to describe and draw a topology without Spark or Arrow.

**Idea.** A drawing needs names, inputs and stores. Each stateful processor of taskplace has one store, whose name is
known without creating the processor. So a topology with these processors can be drawn where neither Spark nor Arrow is
installed. A document whose processors taskplace does not know must name its stores itself.

Non-goal: checking options. `taskplace run FILE --check` does that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from topology import TopologyError

#: The processors of `taskplace.spark.registry`, by name, with the names of their classes.
STATEFUL: Mapping[str, str] = {
    "aggregate": "Aggregate",
    "count": "Count",
    "deduplicate": "Deduplicate",
    "per-key": "PerKey",
    "table-join": "TableJoin",
}


def store_of(processor: str, node: str) -> Mapping[str, Any]:
    """Return the default option `store`, which is the node's name, for a stateful processor; empty for others.

    >>> store_of("count", "visits"), store_of("shop:clean", "visits")
    ({'store': 'visits'}, {})
    """
    return {"store": node} if processor in STATEFUL else {}


class StubRegistry(Mapping[str, Callable[..., Any]]):
    """A registry of taskplace's processors, as placeholders that have only a store.

    >>> StubRegistry()["count"](store="visits", by={"page": "string"}).layouts()
    {'visits': {}}
    """

    defaults = staticmethod(store_of)

    def __getitem__(self, name: str) -> Callable[..., Any]:
        if ":" in name:
            raise TopologyError(
                f"found {name!r}, expected a processor of taskplace: other processors need Spark's packages, which are "
                "not installed; pip install 'taskplace[spark]'"
            )
        if name not in STATEFUL:
            raise KeyError(name)
        return StubProcessor

    def __iter__(self) -> Iterator[str]:
        return iter(STATEFUL)

    def __len__(self) -> int:
        return len(STATEFUL)


class StubProcessor:
    """A placeholder for a processor: only its store."""

    def __init__(self, *, store: Any, **options: Any) -> None:
        self._store = store

    def layouts(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the store, without columns."""
        return {self._store: {}}


class Anything(defaultdict[str, Callable[..., Any]]):
    """A registry that accepts every name and creates no processor: for documents that name their stores themselves.

    >>> Anything()["whatever"](keep=10) is None
    True
    """

    def __missing__(self, name: str) -> Callable[..., Any]:
        return lambda **options: None
