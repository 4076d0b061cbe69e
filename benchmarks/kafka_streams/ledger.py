"""What was sent to an application and what came out of it, compared row by row with plain Python.

**Idea.** The application counts orders by user and window, and every change of a count comes out. So an output with
the count n says that the first n orders of its user and window have been processed, and committed. The count that a
user and window had before says which orders are new in it. Each order gets its latency that way, whatever the
application puts together into one output.

Properties: a wrong region, a count that does not grow, and a count above the orders that were sent are errors, so an
order that was counted twice or lost is found. Times are seconds since 1970, of the one clock of this machine.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass

#: A user, and the start of a window in milliseconds since 1970.
Key = tuple[str, int]


class WrongResultError(RuntimeError):
    """An output that plain Python does not have."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One order: when it was sent, its partition, and the seconds until a committed output had it."""

    sent: float
    partition: int
    seconds: float


class Ledger:
    """Orders sent and outputs received. Thread-safe.

    >>> ledger = Ledger({"ann": "north"}, window_ms=10_000)
    >>> for at in (20.0, 21.0): ledger.sent("ann", at)
    >>> ledger.received("ann", 20_000, n=2, region="north", partition=3, at=21.5)
    >>> [(sample.sent, sample.seconds) for sample in ledger.samples]
    [(20.0, 1.5), (21.0, 0.5)]
    >>> ledger.missing
    0
    """

    def __init__(self, regions: Mapping[str, str], window_ms: int) -> None:
        self._regions, self._window_ms = regions, window_ms
        self._orders: dict[Key, list[float]] = {}
        self._counts: dict[Key, int] = {}
        self._lock = threading.Lock()
        self.orders = 0
        self.outputs = 0
        self.samples: list[Sample] = []

    @property
    def missing(self) -> int:
        """How many orders have not come out."""
        with self._lock:
            return self.orders - len(self.samples)

    def sent(self, user: str, at: float) -> None:
        """Take note of an order, before it is sent. `at` is its event time as well."""
        milliseconds = round(at * 1000)
        key = (user, milliseconds - milliseconds % self._window_ms)
        with self._lock:
            self._orders.setdefault(key, []).append(at)
            self.orders += 1

    def received(self, user: str, window: int, *, n: int, region: str, partition: int, at: float) -> None:
        """Take note of an output. Errors: `WrongResultError`."""
        key = (user, window)
        with self._lock:
            before, orders = self._counts.get(key, 0), self._orders.get(key, [])
            if not before < n <= len(orders):
                raise WrongResultError(
                    f"{user}, window {window}: found the count {n}, expected more than {before}, which came out "
                    f"before, and at most {len(orders)}, as many orders as were sent"
                )
            if region != self._regions[user]:
                raise WrongResultError(
                    f"{user}, window {window}: found region {region!r}, expected {self._regions[user]!r}"
                )
            self.samples += [Sample(sent, partition, at - sent) for sent in orders[before:n]]
            self._counts[key] = n
            self.outputs += 1

    @property
    def done(self) -> int:
        """How many orders have come out."""
        with self._lock:
            return len(self.samples)

    def after(self, done: int) -> list[Sample]:
        """Return the orders that have come out behind the first `done`."""
        with self._lock:
            return self.samples[done:]


def back(samples: Collection[Sample], partitions: Collection[int], at: float) -> dict[int, float]:
    """Return, for each of these partitions that has any, the seconds from `at` until its first output of later orders.

    Outputs of orders that were sent before `at` do not count: they may have been on their way.

    >>> back([Sample(9.9, 1, 0.3), Sample(10.1, 1, 2.0), Sample(10.2, 1, 1.5), Sample(10.1, 2, 0.1)], {1}, 10.0)
    {1: 1.7}
    """
    found: dict[int, float] = {}
    for sample in samples:
        if sample.sent >= at and sample.partition in partitions:
            seconds = round(sample.sent + sample.seconds - at, 6)
            found[sample.partition] = min(seconds, found.get(sample.partition, seconds))
    return found
