"""Makes of a driver's `Status` what pages show: the state in words, the executors, and the copies that lag."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from taskplace.record.html.values import CopyLag, Figure, InputRow, InstanceRow, Now, State
from taskplace.spark.operator_messages import Status, TopicStatus, WarmupStatus
from taskplace.spark.stuck import UNKNOWN, stuck
from taskplace.wording import about, count, duration, lasting

#: The most copies of a page; those that lack most.
MOST_COPIES = 200


def now_of(status: Status, *, checkpoint: str | Path = UNKNOWN, version: int = 0, explained: str = "") -> Now:
    """Return what a page shows of a status. Seconds that pass are whole ones, so that few statuses are news.

    - `checkpoint`: the path that remedies name
    """
    found = stuck(status, checkpoint)
    notes = {(name, task): f"stuck: {why.stalled}; {why.remedy}" for name, task, why in found}
    copies = [replace(one, note=notes.get((one.instance, one.task), one.note)) for one in _copies(status)]
    copies.sort(key=lambda copy: (-copy.last, copy.task, copy.instance))
    return Now(
        state=state_of(status),
        rows=tuple(_rows(status)),
        copies=tuple(copies[:MOST_COPIES]),
        inputs=input_rows(status.input),
        figures=figures_of(status),
        version=version,
        explained=explained,
    )


def state_of(status: Status) -> State:
    """Return the state of a stream in words."""
    if status.ended:
        last = f"last batch {status.batch}" if status.batch >= 0 else "no batch was committed"
        text = "; ".join(filter(None, (undone_text(status), last)))
        return State("ended", text, "good" if status.failed is None else "bad")
    if status.failed is not None:
        text = f"batch {status.failed.batch}: {status.failed.error}"
        return State("batch failed", text, "bad", live=True)
    if status.stopped is not None:
        return State("stopped", undone_text(status), "busy", live=True)
    text = batch_text(status)
    if status.homeless:
        text += f"; {count(len(status.homeless), 'task')} without an executor until the next rebalance"
    if status.followup:
        text += f"; {followup_text(status)}"
    return State("running", text, "busy" if status.followup or status.homeless else "good", live=True)


def undone_text(status: Status) -> str:
    """Return how the last batch ended if it is not done: it failed, or the query was stopped; else ""."""
    if status.failed is not None:
        return f"batch {status.failed.batch} failed: {status.failed.error}"
    if status.stopped is not None:
        again = "publishes" if status.batch >= status.stopped.batch else "runs"
        return f"stopped during batch {status.stopped.batch}; the next start {again} it again"
    return ""


def followup_text(status: Status, *, runs: bool = True) -> str:
    """Return that tasks still have to move, and when that is looked at again. `runs`: whether the driver still runs."""
    text, due = f"the assignment {'is not yet' if runs else 'was not yet'} the target", status.next_probing
    if due is None or not runs:
        return text
    return f"{text}; the next check for moves is due {'now' if due < 1 else f'in {lasting(due)}'}"


def batch_text(status: Status, *, runs: bool = True) -> str:
    """Return the running batch, or the last one. `runs`: whether the driver still runs."""
    if status.running is not None:
        since = max(0.0, status.written - status.running.since)
        return f"batch {status.running.batch} {'has' if runs else 'had'} been running for {lasting(since)}"
    if status.batches:
        last = status.batches[-1]
        return f"batch {last.batch_id} took {duration(last.seconds)} for {count(last.rows, 'row')}"
    return f"last batch {status.batch}" if status.batch >= 0 else "no batch yet"


def figures_of(status: Status) -> tuple[Figure, ...]:
    """Return the figures of a stream's input."""
    return tuple(input_figures(status.totals.bad if status.totals else {}, status.watermark, status.input))


def input_figures(
    bad: Mapping[str, int], watermark: int | None, input: Mapping[str, TopicStatus]
) -> Iterator[Figure]:
    """Yield the dead letters, the watermark and the lag of the input, as far as there are any."""
    if bad:
        each = ", ".join(f"{name}: {number:,}" for name, number in sorted(bad.items()))
        yield Figure("dead letters", f"{sum(bad.values()):,}", each, "bad")
    if watermark is not None:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(watermark // 1_000_000))
        yield Figure("watermark", at, "UTC, of all sources")
    if any(topic.asked is not None for topic in input.values()):
        seconds = max(topic.seconds or 0.0 for topic in input.values())
        lag = sum(topic.lag for topic in input.values())
        yield Figure("input lag", f"{lag:,}", f"records, {lasting(seconds)} behind")


def input_rows(input: Mapping[str, TopicStatus]) -> tuple[InputRow, ...]:
    """Return the partitions of all topics, those with the largest lags first."""
    each = ((topic, number, one) for topic, of in input.items() for number, one in of.partitions.items())
    rows = (
        InputRow(
            topic, number, one.position, one.end, one.lag, None if one.seconds is None else round(one.seconds)
        )
        for topic, number, one in each
    )
    return tuple(sorted(rows, key=lambda row: (-(row.lag or 0), row.topic, row.partition)))


def _rows(status: Status) -> Iterator[InstanceRow]:
    for name, one in status.executors.items():
        rate, draining = one.restore_rate, "draining" if one.draining else ""
        active, standby, warmup = map(len, (one.active, one.standby, one.warmup))
        note = one.host if rate is None else f"{one.host}, restores {count(round(rate), 'record')}/s"
        yield InstanceRow(name, active, standby, warmup, one.lag, state=draining, note=note)


def _copies(status: Status) -> Iterator[CopyLag]:
    for name, one in status.executors.items():
        for role, lags in (("active", one.active), ("standby", one.standby)):
            yield from (CopyLag(task, name, role, lag, lag) for task, lag in lags.items() if lag)
        for task, warm in one.warmup.items():
            yield CopyLag(task, name, "warm-up", warm.lag, warm.lag, note=warmup_text(warm))


def warmup_text(warm: WarmupStatus) -> str:
    """Return when a warm-up has caught up."""
    if warm.caught_up:
        return "caught up"
    left = "time unknown" if warm.eta_seconds is None else f"{about(warm.eta_seconds)} left"
    restores = ", restores a snapshot" if warm.restoring else ""
    return f"{left}{restores}, a warm-up for {lasting(warm.seconds)}"
