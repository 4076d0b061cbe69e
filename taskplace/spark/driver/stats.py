"""Counters and times of a run, for the summary."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from taskplace.model.events import OF_TASKS, WHOLE, Summary
from taskplace.spark.messages import Report

#: The medians cover this many batches, the last ones.
WINDOW = 1_024


@dataclass
class Stats:
    """Counters since the driver started.

    `replayed` and `restored` count the records, and `scratch` the restores from scratch, that active tasks needed
    before a batch. `followed` counts the records that standbys and warm-ups applied. `late` counts late rows.
    `damaged` counts damaged files of the checkpoint that were not needed.
    `bad_records` counts by source the records of committed batches that became dead letters. They are among the `rows`.
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
    bad_records: dict[str, int] = field(default_factory=dict)
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

    def count_batch(self, rows: int, clock: Phases, reports: Collection[Report]) -> None:
        """Count a batch that was committed and published, with the seconds of its phases and of its tasks."""
        self.batches += 1
        self.rows += rows
        of_tasks: dict[str, float] = {}
        for report in reports:
            for topic, bad in report.bad.items():
                self.bad_records[topic] = self.bad_records.get(topic, 0) + bad
            for name, seconds in report.seconds.items():
                of_tasks[OF_TASKS + name] = of_tasks.get(OF_TASKS + name, 0.0) + seconds
        self.time({**clock.seconds, WHOLE: clock.total(), **of_tasks})

    def time(self, phases: Mapping[str, float]) -> None:
        """Add the seconds per phase of one batch; a missing phase counts as 0."""
        batches = len(next(iter(self.phases.values()), ()))
        for name in {**self.phases, **phases}:
            seconds = self.phases.setdefault(name, deque([0.0] * batches, maxlen=WINDOW))
            seconds.append(phases.get(name, 0.0))

    def medians(self) -> dict[str, float]:
        """Return the median seconds of each phase, of the last `WINDOW` batches."""
        return {name: statistics.median(seconds) for name, seconds in self.phases.items()}

    def summary(self, seconds: float = 0.0) -> Summary:
        """Return what the run so far adds up to; `seconds` is how long it took."""
        return Summary(
            batches=self.batches,
            rows=self.rows,
            rebalances=self.rebalances,
            promotions=self.promotions,
            replayed_records=self.replayed,
            snapshot_records=self.restored,
            scratch_restores=self.scratch,
            elsewhere=self.elsewhere,
            phases=self.medians(),
            seconds=seconds,
            followed_records=self.followed,
            bad_records=dict(self.bad_records),
        )


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
