"""The watermarks of one batch: what each stage reads, what its stores go by, and what the manifest keeps of it.

**Idea.** The sources have one watermark, W. A stage that reads an internal topic gets the watermark of what was written
to it in this batch: W, or less where a task has windows to send that are due. Each store then goes by two watermarks
(`taskplace.spark.state.store`): by what it went by in the batch before (`late`), and by what it goes by now. The
manifest keeps how far each store has expired, so that every driver, attempt and reader goes by the same; for a task
in which time was held back it keeps that task's own. It is the time up to which all has expired, and not the
watermark, so that a longer time to live, or a longer grace, does not bring back what was forgotten, or open a window
that was sent.

Units: microseconds since 1970 (UTC); None: unknown yet. Stores are named as they lie in copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from taskplace.spark.messages import Manifest, Report, Watermark
from taskplace.spark.state.store import StoreSchema
from taskplace.spark.worker.clock import slowest
from taskplace.spark.worker.program import Program
from topology import TaskId


def of_store(
    last: Manifest | None, schema: StoreSchema, lag: int = 0, task: TaskId | None = None
) -> Watermark:
    """Return what a store went by in the last committed batch, in a task or in general.

    For a store that was not there then it is what it would have gone by, `lag` behind the sources. Manifests of older
    versions have one watermark for all.
    """
    if last is None:
        return None
    if last.expired is None:
        return last.watermark
    known = {**last.expired, **(last.held.get(task, {}) if task is not None else {})}
    if schema.database in known:
        to = known[schema.database]
        return None if to is None else to + schema.ttl
    return None if last.watermark is None else last.watermark - lag


class Watermarks:
    """What a batch goes by, stage by stage; `now` is the sources' watermark, `last` the manifest of the batch before.

    `expired` and `held` are what the batch's own manifest gets, when all stages have `passed`.
    """

    def __init__(self, now: Watermark, last: Manifest | None) -> None:
        self.now, self._last = now, last
        self._topics: dict[str, Watermark] = {}
        self.expired: dict[str, Watermark] = {}
        self.held: dict[TaskId, dict[str, Watermark]] = {}

    def topics(self, program: Program) -> dict[str, Watermark]:
        """Return the watermark of each topic that a stage reads; the stages that write them have passed."""
        external = dict.fromkeys(program.external, self.now)
        return {**external, **{topic: self._topics.get(topic, self.now) for topic in program.internal}}

    def late(self, program: Program) -> dict[str, Watermark]:
        """Return what each store of a stage that forgets went by in the batch before."""
        lags = {name: operator.lag for operator in program.operators for name in operator.stores}
        return {
            schema.database: of_store(self._last, schema, lags.get(name, 0))
            for name, schema in program.stores.items()
            if schema.ttl
        }

    def held_before(self, program: Program, task: TaskId) -> Mapping[str, Watermark]:
        """Return what stores of a task went by in the batch before, where that was another one."""
        held = self._last.held.get(task, {}) if self._last is not None else {}
        own = (schema for schema in program.stores.values() if schema.database in held)
        return {schema.database: of_store(self._last, schema, task=task) for schema in own}

    def passed(self, program: Program, tasks: int, reports: Iterable[Report]) -> None:
        """Take in how a stage of so many tasks went; those that did not run had nothing to hold back."""
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
