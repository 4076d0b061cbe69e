"""Watermarks along one subtopology's operators, in one task and one batch.

**Idea.** A watermark comes in with each topic. Behind an operator it is that of its slowest input. One thing holds it
back: windows that are due and have not all been sent, since a batch sends no more than a limit. Their rows will follow,
so for whoever comes behind, time has not gone beyond the oldest of them.

A store goes by its operator's watermark, less the operator's `lag` (`taskplace.spark.processors.times`). It never goes
back behind `late`, the watermark that it went by in the batch before.

Units: microseconds since 1970 (UTC); None: unknown yet. A store is named as it lies in copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from taskplace.spark.messages import Watermark

if TYPE_CHECKING:
    from taskplace.spark.state.store import Store, StoreSchema
    from taskplace.spark.worker.operators import Operator


def slowest(watermarks: Iterable[Watermark]) -> Watermark:
    """Return the watermark of the slowest; None if one is unknown, or there are none.

    >>> slowest([5, 3]), slowest([5, None]), slowest([])
    (3, None, None)
    """
    found = list(watermarks)
    known = [watermark for watermark in found if watermark is not None]
    return min(known) if known and len(known) == len(found) else None


def forward(late: Watermark, now: Watermark) -> Watermark:
    """Return what a store goes by: `now`, but never behind `late`."""
    return max((w for w in (late, now) if w is not None), default=None)


class Clock:
    """Tells each operator of a task its watermark, given those of the topics; asked parents first."""

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
        """Return the watermark that an operator goes by: its input's, less its lag."""
        before = self.before(operator)
        return None if before is None else before - operator.lag

    def behind(self, operator: Operator) -> Watermark:
        """Return the watermark of an operator's output."""
        return self._behind[operator.name]

    def of_store(self, operator: Operator, schema: StoreSchema, late: Watermark) -> Watermark:
        """Return what a store goes by, as far as this operator and those before it say."""
        now = self.at(operator)
        if schema.database in self._stores:  # of several operators that share it, the slowest counts
            now = slowest((now, self._stores[schema.database]))
        self._stores[schema.database] = now
        return forward(late, now)

    def passed(self, operator: Operator, sent_by_time: Iterable[Store] = ()) -> None:
        """Take note that an operator has run; `sent_by_time` are its stores of which it sends on what expires."""
        found = self.before(operator)
        for store in sent_by_time:
            if found is not None and store.held is not None:
                found = min(found, store.held + store.schema.ttl + operator.lag - 1)
        self._behind[operator.name] = found
