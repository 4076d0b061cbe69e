"""The watermarks of one batch: of each topic, of each store, and the values that the manifest keeps.

**Idea.** The sources have one watermark, W. A stage that reads an internal topic gets the watermark of the rows that
were written to it in this batch: W, or less if a task still has due windows to send. Each store has two watermarks
(`taskplace.spark.state.store`): the one of the batch before (`late`), and the current one. The manifest keeps the time
up to which each store has expired, so that every driver, attempt and reader uses the same value. For a task in which
time was held back, the manifest keeps a separate value. It keeps the expired time and not the watermark: so a longer
`ttl` or `grace` does not bring entries back and does not reopen a window that was sent.

Units: microseconds since 1970 (UTC); None: unknown yet. Stores have the names of their databases in copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from taskplace.spark.messages import Manifest, Report, Watermark
from taskplace.spark.state.store import StoreSchema
from taskplace.spark.worker.program import Program, slowest
from topology import TaskId


def of_store(
    last: Manifest | None, schema: StoreSchema, lag: int = 0, task: TaskId | None = None
) -> Watermark:
    """Return the watermark of a store in the last committed batch, for one task or for all tasks.

    For a store that did not exist then, return the watermark that it would have had: `lag` behind the sources.
    """
    if last is None:
        return None
    known = {**last.expired, **(last.held.get(task, {}) if task is not None else {})}
    if schema.database in known:
        to = known[schema.database]
        return None if to is None else to + schema.ttl
    return None if last.watermark is None else last.watermark - lag


class Watermarks:
    """Computes the watermarks of a batch, stage by stage.

    `now` is the sources' watermark, `last` the manifest of the batch before. After all stages have `passed`, `expired`
    and `held` are the values for the batch's manifest.
    """

    def __init__(self, now: Watermark, last: Manifest | None) -> None:
        self.now, self._last = now, last
        self._topics: dict[str, Watermark] = {}
        self.expired: dict[str, Watermark] = {}
        self.held: dict[TaskId, dict[str, Watermark]] = {}

    def topics(self, program: Program) -> dict[str, Watermark]:
        """Return the watermark of each topic that a stage reads; the stages that write them must have passed."""
        external = dict.fromkeys(program.external, self.now)
        return {**external, **{topic: self._topics.get(topic, self.now) for topic in program.internal}}

    def late(self, program: Program) -> dict[str, Watermark]:
        """Return the watermark, in the batch before, of each store of a stage that expires entries."""
        lags = {name: operator.lag for operator in program.operators for name in operator.stores}
        return {
            schema.database: of_store(self._last, schema, lags.get(name, 0))
            for name, schema in program.stores.items()
            if schema.ttl
        }

    def held_before(self, program: Program, task: TaskId) -> Mapping[str, Watermark]:
        """Return the watermarks, in the batch before, of a task's stores in which time was held back."""
        held = self._last.held.get(task, {}) if self._last is not None else {}
        own = (schema for schema in program.stores.values() if schema.database in held)
        return {schema.database: of_store(self._last, schema, task=task) for schema in own}

    def passed(self, program: Program, tasks: int, reports: Iterable[Report]) -> None:
        """Take in the reports of a stage with `tasks` tasks; tasks that did not run have held nothing back."""
        reports = list(reports)
        stores, behind = program.watermarks(self.topics(program), self.late(program))
        ttl = {schema.database: schema.ttl for schema in program.stores.values()}

        def expired(watermarks: Mapping[str, Watermark]) -> dict[str, Watermark]:
            return {name: None if w is None else w - ttl[name] for name, w in watermarks.items()}

        self.expired |= expired(stores)
        for report in reports:
            own = {store: w for store, w in report.watermarks.items() if w != stores[store]}
            if own:
                self.held[report.task] = expired(own)
        for topic, unheld in behind.items():
            written = [report.behind[topic] for report in reports]
            self._topics[topic] = slowest([*written, *([unheld] if len(written) < tasks else [])])
