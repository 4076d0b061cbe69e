"""What shows of a written topology without making its processors: enough to describe and draw it.

**Idea.** A drawing needs names, inputs and stores. Processors that come with taskplace have one store, whose name is
known without making them; so a topology of those can be shown where neither Spark nor Arrow is installed. A document of
one's own, whose processors taskplace does not know, names its stores itself.

Non-goals: judging options. `taskplace run FILE --check` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from topology import TopologyError

STATEFUL = ("aggregate", "count", "deduplicate", "per-key", "table-join")  # of `taskplace.spark.registry`


def store_of(processor: str, node: str) -> Mapping[str, Any]:
    """Return the option that names a processor's state after its node, for those that have state.

    >>> store_of("count", "visits"), store_of("shop:clean", "visits")
    ({'store': 'visits'}, {})
    """
    return {"store": node} if processor in STATEFUL else {}


class Outlines(Mapping[str, Callable[..., Any]]):
    """A registry of the processors that come with taskplace, of which only the store shows.

    >>> Outlines()["count"](store="visits", by={"page": "string"}).layouts()
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
        return Outline

    def __iter__(self) -> Iterator[str]:
        return iter(STATEFUL)

    def __len__(self) -> int:
        return len(STATEFUL)


class Outline:
    """A processor that is not made: nothing but its store."""

    def __init__(self, *, store: Any, **options: Any) -> None:
        self._store = store

    def layouts(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the store, without columns."""
        return {self._store: {}}


class Anything(Mapping[str, Callable[..., Any]]):
    """A registry that knows every name and makes nothing: for documents that name their stores themselves.

    >>> Anything()["whatever"](keep=10) is None
    True
    """

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return _nothing

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _nothing(**options: Any) -> None:
    """Make no processor."""
