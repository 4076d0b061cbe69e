"""The texts for events, the same on a terminal and in a log.

Every function returns text or rows of text, independent of where they are shown. Batches are named
by their ids, which count from 0, as in the configuration, in Spark and in the output's directories.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from taskplace.record.events import (
    OF_TASKS,
    WHOLE,
    BatchDone,
    ExecutorLost,
    InstanceView,
    Rebalanced,
    Summary,
    WorkProgress,
)
from taskplace.wording import GAP, Column, Fitted, count, counted_since, duration, fit, size

MOVES_SHOWN = 6
#: Work that takes less time gets no line of its own.
LONG_SECONDS = 2.0
#: The least time between two lines of one work. It grows to half of the time that the work has taken.
LINE_SECONDS = 5.0
PHASES = "where a batch's time goes (median)"
#: The columns of the placement. On a narrow terminal the host goes first, and the lag last.
EXECUTOR = Column("executor", text=True, least=12)
HOST = Column("host", text=True, least=12, goes=1)
COPIES = (
    Column("active", goes=3),
    Column("standby", goes=2),
    Column("warm-up", goes=4),
    Column("lag", goes=6),
)
#: The column that is there if an executor drains.
DRAINS = Column("", text=True, goes=5)


class Throttle:
    """The first line is due after `LONG_SECONDS`, then one now and then, and one at the end of long work.

    Work that is not counted is due at once, because nothing else would be seen of it. `in_pairs`: work that had a line
    also gets one at its end, however short it was; for programs.
    """

    def __init__(self, *, in_pairs: bool = False) -> None:
        self._in_pairs = in_pairs
        #: By name of the work: when its next line may come, in seconds of the work.
        self._next: dict[str, float] = {}

    def passes(self, event: WorkProgress) -> bool:
        """Return whether a line is due now; then the event counts as written."""
        if event.ended:
            begun = self._next.pop(event.name, None) is not None
            return event.seconds >= LONG_SECONDS or (self._in_pairs and begun)
        if event.seconds < self._next.get(event.name, LONG_SECONDS if event.unit else 0.0):
            return False
        self._next[event.name] = event.seconds + max(LINE_SECONDS, event.seconds / 2)
        return True


def work_amount(event: WorkProgress) -> str:
    """Return how much of a piece of work is done; "" for work that is not counted.

    >>> work_amount(WorkProgress("verifying", 1.2e9, 3.4e9, "bytes"))
    '1.2 GB of 3.4 GB'
    >>> work_amount(WorkProgress("simulating", 3.5, 20, "groups of events")), work_amount(WorkProgress("waiting"))
    ('3 of 20 groups of events', '')
    """
    if not event.unit:
        return ""
    done, total = event.done, event.total
    if event.unit == "bytes":
        return size(done) if total is None else f"{size(done)} of {size(total)}"
    # What is begun is not done.
    return f"{done:,.0f} {event.unit}" if total is None else f"{int(done):,} of {total:,.0f} {event.unit}"


def work_rate(event: WorkProgress) -> str:
    """Return the speed of a piece of work; "" if it is not known, or below one unit a second.

    >>> work_rate(WorkProgress("verifying", unit="bytes", rate=2.5e8))
    '250.0 MB/s'
    """
    if event.rate is None or event.rate < 1:
        return ""
    return f"{size(event.rate)}/s" if event.unit == "bytes" else f"{event.rate:,.0f}/s"


def work_line(event: WorkProgress) -> str:
    """Return one line for work that runs, or that has ended.

    >>> verifying = WorkProgress("verifying", 1.2e9, 3.4e9, "bytes", seconds=12.0, rate=1e8, eta=22.0)
    >>> work_line(verifying)
    'verifying: 1.2 GB of 3.4 GB (35 %), 100.0 MB/s, 22.0 s left'
    >>> work_line(WorkProgress("starting Spark", seconds=12.0)), work_line(WorkProgress("starting Spark"))
    ('starting Spark: for 12.0 s', 'starting Spark')
    >>> work_line(WorkProgress("starting Spark", seconds=12.0, ended=True))
    'starting Spark: ended after 12.0 s'
    """
    percent = "" if event.fraction is None else f" ({100 * event.fraction:.0f} %)"
    amount = work_amount(event)
    parts = [f"{amount}{percent}"] if amount else []
    if event.ended:
        parts.append(f"ended after {duration(event.seconds)}")
    else:
        parts += [part for part in (event.detail, work_rate(event)) if part]
        if event.eta is not None:
            parts.append(f"{duration(event.eta)} left")
        elif event.seconds >= 1:
            parts.append(f"for {duration(event.seconds)}")
    return f"{event.name}: {', '.join(parts)}" if parts else event.name


def batch_line(event: BatchDone) -> str:
    """Return one line for a committed batch, with the placement in short.

    >>> view = InstanceView("1", active=12, standby=0, warmup=1, lag=40)
    >>> batch_line(BatchDone(3, 27, 13_000, 5.2, {}, (view,), 2))
    'batch 3 (4 of 27): 13,000 rows in 5.2 s (2,500 rows/s), generation 2 | 1: 12 active, 1 warm-up, lag 40'
    """
    number = f"{event.batch_id}" + (f" ({event.batch_id + 1} of {event.total})" if event.total else "")
    head = (
        f"batch {number}: {count(event.rows, 'row')} in {duration(event.seconds)}"
        f" ({event.rows_per_second:,.0f} rows/s), generation {event.generation}"
    )
    return " | ".join([head, *(f"{view.id}: {instance_text(view)}" for view in event.placement)])


def instance_text(view: InstanceView) -> str:
    """Return the roles on an instance in one phrase; counts of 0 are left out, except for actives."""
    if not view.alive:
        return "lost"
    parts = [f"{view.active} active"]
    parts += [f"{view.standby} standby"] if view.standby else []
    parts += [f"{view.warmup} warm-up"] if view.warmup else []
    parts += [f"lag {view.lag:,}"] if view.lag else []
    return ", ".join(parts)


def rebalance_line(event: Rebalanced) -> str:
    """Return one line for a rebalance: its reason, its moves, and whether more will follow.

    >>> rebalance_line(Rebalanced(5, 10, "executor 1 lost", promotions=1, followup=True, more=1))
    'rebalance at batch 10, generation 5: executor 1 lost; 1 move, 1 promotion; more to come'
    """
    head = f"rebalance at batch {event.batch_id}, generation {event.generation}: {event.reason}"
    return f"{head}; {move_text(event)}"


def placement(
    views: Sequence[InstanceView],
    width: int,
    *,
    hosts: Mapping[str, str] | None = None,
    draining: Collection[str] = (),
    totals: bool = False,
    gap: int = GAP,
    edge: int = 0,
) -> Fitted:
    """Return what has room of the table of executors; `gap` and `edge` as in `fit`.

    - `hosts`: by executor; None: not shown
    - `totals`: whether several executors have a row for all

    >>> views = [InstanceView("a", 2, 1, 0, 7), InstanceView("b", 0, 0, 0, 0, alive=False)]
    >>> placement(views, 80, totals=True).rows
    [['a', '2', '1', '0', '7'], ['b', 'lost', '', '', ''], ['all', '2', '1', '0', '7']]
    """
    alive = [view for view in views if view.alive]
    rows = [
        (view.id, [view] if view.alive else [], "drains" if view.id in draining else "") for view in views
    ]
    rows += [("all", alive, "")] if totals and len(views) > 1 else []
    cells = [
        [name, *([(hosts.get(name, ""))] if hosts is not None else []), *_counts(some)]
        + ([note] if draining else [])
        for name, some, note in rows
    ]
    columns = (EXECUTOR, *((HOST,) if hosts is not None else ()), *COPIES, *((DRAINS,) if draining else ()))
    return fit(columns, cells, width, gap=gap, edge=edge)


def _counts(views: Sequence[InstanceView]) -> list[str]:
    if not views:
        return ["lost", "", "", ""]
    columns = zip(*((view.active, view.standby, view.warmup, view.lag) for view in views), strict=True)
    return [f"{sum(column):,}" for column in columns]


def move_text(event: Rebalanced) -> str:
    """Return what a rebalance moves, in counts, and whether more will follow.

    >>> move_text(Rebalanced(5, 10, "executor 1 lost", promotions=1, more=1))
    '1 move, 1 promotion'
    """
    done = [count(event.moved, "move")] if event.moved else []
    done += [count(event.promotions, "promotion")] if event.promotions else []
    done += [count(event.warmups, "warm-up")] if event.warmups else []
    return f"{', '.join(done) or 'nothing moves'}{'; more to come' if event.followup else ''}"


def lines(event: BatchDone | Rebalanced | ExecutorLost) -> list[str]:
    """Return the lines of an event; those of a rebalance have its first moves."""
    match event:
        case BatchDone():
            return [batch_line(event)]
        case ExecutorLost():
            return [loss_line(event)]
        case Rebalanced():
            shown = event.shortened(MOVES_SHOWN)
            more = [f"... and {count(shown.more, 'more move')}"] if shown.more else []
            return [rebalance_line(event), *(f"  {line}" for line in (*shown.moves, *more))]


def loss_line(event: ExecutorLost, unit: str = "batch") -> str:
    """Return one line for a lost instance. `unit`: batch, or the round of a simulation.

    >>> loss_line(ExecutorLost("executor-1", 10, 8, cancelled=True))
    'lost executor-1 in batch 10 with 8 active tasks; the running stage was stopped, and what had finished counts'
    >>> loss_line(ExecutorLost("executor-1", 10, 8, leaving=True))
    'leaving: executor-1 in batch 10 with 8 active tasks'
    """
    cancelled = "; the running stage was stopped, and what had finished counts" if event.cancelled else ""
    tasks = count(event.tasks, "active task")
    word = "leaving:" if event.leaving else "lost"
    return f"{word} {event.instance} in {unit} {event.batch_id} with {tasks}{cancelled}"


def summary_rows(summary: Summary) -> list[tuple[str, str]]:
    """Return the rows of the summary: label and value."""
    late = summary.late
    numbers = {
        "batches": summary.batches,
        "rows": summary.rows,
        **{f"bad records of {topic}": number for topic, number in sorted(summary.bad_records.items())},
        **{f"skipped offsets of {name}": number for name, number in sorted(summary.skipped_offsets.items())},
        **({} if late is None else {f"late rows {counted_since(late.since)}": late.total}),
        "late rows since this driver started": summary.late_rows,
        "rebalances": summary.rebalances,
        "promotions": summary.promotions,
        "records followed by standbys and warm-ups": summary.followed_records,
        "records replayed by active tasks": summary.replayed_records,
        "records restored from snapshots": summary.snapshot_records,
        "active tasks restored from scratch": summary.scratch_restores,
        "tasks run elsewhere than planned": summary.elsewhere,
    }
    return [("time", duration(summary.seconds)), *((name, f"{number:,}") for name, number in numbers.items())]


def phase_rows(phases: Mapping[str, float]) -> list[tuple[str, str, str]]:
    """Return the time of a batch by phase: phase, seconds, share of the whole.

    >>> phase_rows({"state": 1.5, "commit": 0.5})
    [('state', '1.5 s', '75 %'), ('commit', '0.5 s', '25 %')]
    >>> phase_rows({"state": 1.5, "whole batch": 3.0, "tasks: process": 6.0})
    [('state', '1.5 s', '50 %'), ('whole batch', '3.0 s', ''), ('tasks: process', '6.0 s', '')]
    """
    parts = {name: took for name, took in phases.items() if name != WHOLE and not name.startswith(OF_TASKS)}
    whole = phases.get(WHOLE) or sum(parts.values())
    shares = {name: f"{100 * took / whole:.0f} %" for name, took in parts.items() if whole > 0}
    return [(name, duration(took), shares.get(name, "")) for name, took in phases.items()]


def check_line(summary: Summary) -> str:
    """Return the result of the check in one line."""
    if summary.check is None:
        return "none, the application has no check of its own"
    return summary.check if summary.ok else f"FAILED: {summary.check}"
