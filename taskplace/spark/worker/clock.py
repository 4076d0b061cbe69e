"""Computes the watermarks of one subtopology's operators, in one task and one batch.

**Idea.** Each topic has a watermark. The watermark behind an operator is that of its slowest input. Due windows that
are not sent yet hold it back: a batch sends a limited number of windows, and the rows of the others will follow. So
behind the operator, time is not beyond the oldest of these windows.

A store's watermark is that of its operator's input, less the operator's `lag` (`taskplace.spark.processors.times`). It
never goes back below `late`, the store's watermark in the batch before.

Units: microseconds since 1970 (UTC); None: unknown yet. Stores have the names of their databases in copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from taskplace.spark.messages import Watermark

if TYPE_CHECKING:
    from taskplace.spark.state.store import Store, StoreSchema
    from taskplace.spark.worker.operators import Operator


def slowest(watermarks: Iterable[Watermark]) -> Watermark:
    """Return the smallest watermark; None if one is unknown, or there are none.

    >>> slowest([5, 3]), slowest([5, None]), slowest([])
    (3, None, None)
    """
    given = list(watermarks)
    known = [watermark for watermark in given if watermark is not None]
    return min(known) if known and len(known) == len(given) else None


def forward(late: Watermark, now: Watermark) -> Watermark:
    """Return the watermark of a store: `now`, but never below `late`."""
    return max((w for w in (late, now) if w is not None), default=None)


class Clock:
    """Computes the watermark of each operator of a task from those of the topics. Call it for parents first."""

    def __init__(self, topics: Mapping[str, Watermark]) -> None:
        self._topics = topics
        self._behind: dict[str, Watermark] = {}
        self._stores: dict[str, Watermark] = {}

    def before(self, operator: Operator) -> Watermark:
        """Return the watermark of an operator's input."""
        if operator.kind == "source":
            return self._topics.get(operator.topic)
        return slowest(self._behind[parent] for parent in operator.parents)

    def at(self, operator: Operator) -> Watermark:
        """Return the watermark of an operator: that of its input, less its lag."""
        before = self.before(operator)
        return None if before is None else before - operator.lag

    def behind(self, operator: Operator) -> Watermark:
        """Return the watermark of an operator's output."""
        return self._behind[operator.name]

    def of_store(self, operator: Operator, schema: StoreSchema, late: Watermark) -> Watermark:
        """Return the watermark of a store, given this operator and the earlier ones that use the store."""
        now = self.at(operator)
        if (
            schema.database in self._stores
        ):  # several operators share the store: the smallest watermark counts
            now = slowest((now, self._stores[schema.database]))
        self._stores[schema.database] = now
        return forward(late, now)

    def passed(self, operator: Operator, sent_by_time: Iterable[Store] = ()) -> None:
        """Note that an operator has run. `sent_by_time`: its stores whose expired entries it emits."""
        watermark = self.before(operator)
        for store in sent_by_time:
            if watermark is not None and store.held is not None:
                watermark = min(watermark, store.held + store.schema.ttl + operator.lag - 1)
        self._behind[operator.name] = watermark
