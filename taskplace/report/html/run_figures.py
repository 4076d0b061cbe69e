"""The headline figures of a run, and its counts: of the summary if it has one, else of what was counted so far."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from taskplace.record.events import BatchDone, Rebalanced, Summary
from taskplace.record.html.values import Figure
from taskplace.record.words import phase_rows, summary_rows
from taskplace.wording import counted_since, duration


class Counted(Protocol):
    """What a run has counted so far (`taskplace.record.html.of_run.Totals`)."""

    batches: int
    rows: int
    rebalances: int
    promotions: int
    losses: int
    replayed: int
    restored: int
    scratch: int
    expected: int | None


def figures(
    totals: Counted,
    last: BatchDone | None,
    rebalanced: Rebalanced | None,
    summary: Summary | None,
    seconds: float,
) -> tuple[Figure, ...]:
    """Return the headline figures."""
    whole = last is not None and last.batch_id + 1 == totals.batches  # else an earlier run has done a part
    of = f" of {totals.expected:,}" if totals.expected and whole else ""
    rate = f"{last.rows_per_second:,.0f} rows/s in batch {last.batch_id}" if last else ""
    lag = sum(view.lag for view in last.placement) if last else 0
    replayed = summary.replayed_records if summary else totals.replayed
    restored = summary.snapshot_records if summary else totals.restored
    scratch = summary.scratch_restores if summary else totals.scratch
    found = [
        Figure("batches", f"{summary.batches if summary else totals.batches:,}{of}", rate),
        Figure("rows", f"{summary.rows if summary else totals.rows:,}", _bad(summary)),
        *_late(last, summary),
        Figure("time", duration(seconds), "since the start"),
        Figure(
            "rebalances",
            f"{summary.rebalances if summary else totals.rebalances:,}",
            f"generation {rebalanced.generation}" if rebalanced else "",
        ),
        Figure("executors lost", f"{totals.losses:,}", "", "bad" if totals.losses else ""),
        Figure(
            "promotions",
            f"{summary.promotions if summary else totals.promotions:,}",
            "caught-up copies took over at once",
        ),
        Figure(
            "records replayed",
            f"{replayed:,}",
            f"by active tasks in all batches; {restored:,} more out of snapshots",
        ),
        Figure(
            "restored from scratch",
            f"{scratch:,}",
            "active tasks without a local copy",
            "bad" if scratch and totals.losses else "",
        ),
        Figure("lag", f"{lag:,}", "records, of all standbys and warm-ups"),
    ]
    if rebalanced is not None and rebalanced.imbalance is not None:
        found.append(Figure("imbalance", f"{rebalanced.imbalance:.2f}", "largest load / mean"))
    if summary is not None and summary.ok is not None:
        word, tone = ("right", "good") if summary.ok else ("wrong", "bad")
        found.append(Figure("check", word, summary.check or "", tone))  # type: ignore[arg-type]
    return tuple(found)


def summary_facts(summary: Summary) -> tuple[tuple[str, str], ...]:
    """Return all counts of a summary, and the median seconds of each phase of a batch."""
    phases = [
        (f"median of a batch: {name}", f"{took}{f' ({share})' if share else ''}")
        for name, took, share in phase_rows(summary.phases)
    ]
    return (*summary_rows(summary), *phases)


def _bad(summary: Summary | None) -> str:
    bad = sum(summary.bad_records.values()) if summary else 0
    return f"{bad:,} bad" if bad else ""


def _late(last: BatchDone | None, summary: Summary | None) -> Iterator[Figure]:
    """Yield the late rows over restarts; of a run that was written by an older version, those of its driver."""
    late = (summary and summary.late) or (last and last.late)
    if late:
        text = f"{counted_since(late.since)}; {late.here:,} since this driver started"
        yield Figure("late rows", f"{late.total:,}", text)
    elif summary is not None:
        yield Figure("late rows", f"{summary.late_rows:,}", "since this driver started")
