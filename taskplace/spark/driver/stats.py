"""Counters and times of one driver, for the summary and the metrics."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from msgspec import structs

from taskplace.model import tables
from taskplace.record.events import OF_TASKS, WHOLE, BatchRecovery, LateRows, Rebalanced, Summary, Totals
from taskplace.record.words import summary_rows
from taskplace.spark.messages import Report, TopicRead
from taskplace.wording import counted_since

#: The medians cover this many batches, the last ones.
WINDOW = 1_024


@dataclass
class Stats:
    """Counters since this driver started. `totals` has those that continue over restarts.

    `replayed` and `restored` count the records, and `scratch` the restores from scratch, that active tasks needed
    before a batch. `unlogged` counts the active tasks that lost the entries of stores that are not logged. `followed`
    counts the records that standbys and warm-ups applied. `late` counts the late rows of committed batches since this
    driver started; `late_rows` has the total over restarts as well. `damaged` counts damaged files of the checkpoint
    that were not needed. `moved` counts planned moves of active tasks, `promotions` the forced ones. `bad_records`
    counts by source the records of committed batches that became dead letters. They are among the `rows`. `skipped`
    counts by source the offsets that were not read because their records are gone.
    `phases` keeps the seconds per phase of the last `WINDOW` batches.
    """

    batches: int = 0
    rows: int = 0
    rebalances: int = 0
    moved: int = 0
    promotions: int = 0
    replayed: int = 0
    restored: int = 0
    scratch: int = 0
    unlogged: int = 0
    elsewhere: int = 0
    losses: int = 0
    followed: int = 0
    late: int = 0
    damaged: int = 0
    bad_records: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    totals: Totals = field(default_factory=Totals)
    phases: dict[str, deque[float]] = field(default_factory=dict, repr=False)
    #: Seconds: of all rebalances, of the longest one, and the monotonic times of the last one and of the last commit.
    rebalance_seconds: float = field(default=0.0, repr=False)
    longest_rebalance: float = field(default=0.0, repr=False)
    last_rebalance: float | None = field(default=None, repr=False)
    last_commit: float | None = field(default=None, repr=False)

    def count(self, reports: Iterable[Report]) -> None:
        """Count the attempts that won a stage."""
        reports = tuple(reports)
        done = recovery_of(reports)
        self.replayed += done.replayed
        self.restored += done.restored
        self.scratch += done.scratch
        self.elsewhere += done.elsewhere
        self.unlogged += sum(report.lacked for report in reports)
        self.damaged += sum(len(report.recovery.damaged) for report in reports)

    def count_rebalance(self, event: Rebalanced) -> None:
        """Count a plan that was put in force."""
        self.rebalances += 1
        self.moved += event.planned
        self.promotions += event.promotions
        self.rebalance_seconds += event.seconds
        self.longest_rebalance = max(self.longest_rebalance, event.seconds)
        self.last_rebalance = time.monotonic()

    def count_commit(self, before: Totals, totals: Totals, read: Mapping[str, TopicRead]) -> None:
        """Count the commit of a batch, with the totals of the manifest before and of its own.

        `read`: by source, what was read; offsets that it has skipped are counted
        """
        self.late += totals.late - before.late
        self.totals = totals
        self.last_commit = time.monotonic()
        for topic, one in read.items():
            if one.skipped:
                self.skipped[topic] = self.skipped.get(topic, 0) + sum(one.skipped.values())

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
            skipped_offsets=dict(self.skipped),
            late_rows=self.late,
            late=self.late_rows,
        )

    @property
    def late_rows(self) -> LateRows:
        """The late rows over restarts, and those since this driver started."""
        return LateRows(self.totals.late, self.late, self.totals.since)

    def __str__(self) -> str:
        return tables.text(self._tables())

    def _repr_html_(self) -> str:
        return tables.html(self._tables())

    def _tables(self) -> list[tables.Section]:
        own = {
            "planned moves": self.moved,
            "executors lost": self.losses,
            "active tasks that lost state that is not logged": self.unlogged,
            "damaged files that were not needed": self.damaged,
        }
        now = [
            *summary_rows(structs.replace(self.summary(), late=None))[1:],
            *((name, f"{number:,}") for name, number in own.items()),
        ]
        kept = {"rows": self.totals.rows, "late rows": self.totals.late}
        return [
            ("since this driver started", now),
            (counted_since(self.totals.since), [(name, f"{number:,}") for name, number in kept.items()]),
            (
                "median of a batch",
                [(name, f"{1000 * took:,.0f} ms") for name, took in self.medians().items()],
            ),
        ]


def recovery_of(reports: Collection[Report]) -> BatchRecovery:
    """Return what the active tasks of these attempts had to do before they could begin."""
    return BatchRecovery(
        replayed=sum(report.recovery.replayed for report in reports),
        restored=sum(report.recovery.restored for report in reports),
        scratch=sum(report.recovery.scratch for report in reports),
        elsewhere=sum(bool(report.planned) and report.instance != report.planned for report in reports),
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
