"""Counters and times of a run, for the summary."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from taskplace.spark.messages import Report

#: The medians cover this many batches, the last ones.
WINDOW = 1_024


@dataclass
class Stats:
    """Counters since the driver started.

    `replayed` and `restored` count the records, and `scratch` the restores from scratch, that active tasks needed
    before a batch. `followed` counts the records that standbys and warm-ups applied. `late` counts late rows.
    `damaged` counts damaged files of the checkpoint that were not needed.
    `phases` keeps the seconds per phase of the last `WINDOW` batches, for the medians.
    """

    batches: int = 0
    rows: int = 0
    rebalances: int = 0
    promotions: int = 0
    replayed: int = 0
    restored: int = 0
    scratch: int = 0
    elsewhere: int = 0
    losses: int = 0
    followed: int = 0
    late: int = 0
    damaged: int = 0
    phases: dict[str, deque[float]] = field(default_factory=dict)

    def count(self, reports: Iterable[Report]) -> None:
        """Count the attempts that won a stage."""
        for report in reports:
            self.replayed += report.recovery.replayed
            self.restored += report.recovery.restored
            self.scratch += report.recovery.scratch
            self.late += report.late
            self.damaged += len(report.recovery.damaged)
            self.elsewhere += bool(report.planned) and report.instance != report.planned

    def time(self, phases: Mapping[str, float]) -> None:
        """Add the seconds per phase of one batch; a missing phase counts as 0."""
        batches = len(next(iter(self.phases.values()), ()))
        for name in {**self.phases, **phases}:
            seconds = self.phases.setdefault(name, deque([0.0] * batches, maxlen=WINDOW))
            seconds.append(phases.get(name, 0.0))

    def medians(self) -> dict[str, float]:
        """Return the median seconds of each phase, of the last `WINDOW` batches."""
        return {name: statistics.median(seconds) for name, seconds in self.phases.items()}


class Phases:
    """Times the phases of a batch, in seconds."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._start = time.perf_counter()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of a block to a phase."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def total(self) -> float:
        """Return the time since the batch began."""
        return time.perf_counter() - self._start
