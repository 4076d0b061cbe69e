"""Tests a processor of one's own without Spark, batch by batch.

**Idea.** `ProcessorTester` runs one processor as one task of a stream would: with the same stores on disk, watermarks,
late rows and expiry, and with the checks of a start. It lacks what surrounds a task: Spark, executors, a checkpoint.

Source: Kafka Streams' `TopologyTestDriver`. Departures: rows come in batches, and there is one node.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from taskplace.errors import InputError
from taskplace.spark.compile import programs
from taskplace.spark.compile.forms import event_times
from taskplace.spark.messages import Change, History
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.expiry import as_datetime
from taskplace.spark.state.store import Store
from taskplace.spark.values import dicts_of, python_of
from taskplace.spark.worker.program import Outputs
from taskplace.validation import integer, nearest
from taskplace.wording import count
from topology import Topology
from topology.tasks import TaskId

_INPUTS = ("rows", "table")
_TASK = TaskId(0, 0)
Rows: TypeAlias = pa.Table | Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class BatchResult:
    """What a processor did with a batch.

    - `rows`: the rows that it sent
    - `late`: how many rows its stores dropped or counted as late
    - `watermark`, `late_watermark`: as in `Context`, but without the lag of a node: those of the input
    - `expired`: by store, the entries that were removed because they had expired
    """

    rows: pa.Table
    late: int = 0
    watermark: datetime | None = None
    late_watermark: datetime | None = None
    expired: Mapping[str, int] = field(default_factory=dict)


class ProcessorTester:
    """Runs a processor, or a function, over batches of rows, with real stores in a temporary directory.

    - `processor`: what `stream.process` takes
    - `key`: the columns that the input is split by, as of a source
    - `event_time`, `delay`: of the source; both inputs of a join have the event time
    - `inputs`: 1, or 2 for a join: the stream's rows and the table's

    The watermark of a batch is the newest event time of the batches before, less `delay`. Each batch runs twice from
    the same state, and has to give the same rows: in a stream, it runs again after a loss.

    Properties: one task has all rows. So a test sees what one key does, and not how keys are spread; a key that does
    not suit the state is refused as at the start of a stream.
    Errors: `InputError` and `topology.TopologyError`, as at the start of a stream and in a batch. The exceptions of the
    processor itself pass unchanged; the batch is then undone, and may be given again.

    >>> from taskplace.spark.processors import Count
    >>> with ProcessorTester(Count("visits", by={"page": "string"}), key="page") as tester:
    ...     first = tester.batch([{"page": "a"}, {"page": "a"}, {"page": "b"}])
    ...     second = tester.batch([{"page": "a"}])
    ...     kept = tester.store("visits")
    >>> first.rows.to_pylist(), second.rows.to_pylist()
    ([{'page': 'a', 'count': 2}, {'page': 'b', 'count': 1}], [{'page': 'a', 'count': 3}])
    >>> kept
    [{'page': 'a', 'count': 3}, {'page': 'b', 'count': 1}]
    """

    def __init__(
        self,
        processor: Any,
        *,
        key: str | Sequence[str] | None = None,
        event_time: str | None = None,
        delay: Any = None,
        inputs: int = 1,
    ) -> None:
        self._inputs = _INPUTS[: integer(inputs, "ProcessorTester.inputs", 1, len(_INPUTS))]
        times = {"event_time": event_time, "delay": delay}
        programs.programs(_topology(processor, self._inputs, key, times, tasks=2).build())  # checks the keys
        built = _topology(processor, self._inputs, key, times).build()
        self._times = event_times(built)
        (self._program,) = programs.programs(built)
        self._folder = tempfile.TemporaryDirectory(prefix="taskplace-test-")
        self._copy = Copy(Path(self._folder.name) / "copy", self._program.databases)
        self._history, self._batch = History(), 0
        self._newest: dict[str, int] = {}
        self._watermark: int | None = None
        #: By store: the watermark by which it has expired entries, which is that of late rows in the next batch.
        self._late: dict[str, int | None] = {}
        self._schemas: dict[str, pa.Schema] = {}

    def __enter__(self) -> ProcessorTester:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the stores. A test that forgets it leaves that to Python's garbage collector."""
        self._copy.close()
        self._folder.cleanup()

    def batch(self, *rows: Rows) -> BatchResult:
        """Run a batch, and return what the processor sent.

        - `rows`: of each input, an Arrow table or a list of dicts. An input that is left out has no rows, but the
          columns of earlier batches

        O(rows), twice. Errors: `InputError` for rows that are none, and if the second run gives other rows.
        """
        inputs = self._tables(rows)
        watermark = programs.watermark(self._times, self._newest, self._watermark)
        self._program.check_keys(inputs)
        before = self._watermark
        outputs, stores = self._copy.growing(lambda: self._run(inputs, watermark))
        self._late = dict(outputs.watermarks)
        self._watermark, self._batch = watermark, self._batch + 1
        self._schemas |= {name: table.schema for name, table in inputs.items()}
        for name, newest in self._program.newest(inputs).items():
            self._newest[name] = max(newest, self._newest.get(name, newest))
        return BatchResult(
            outputs.sinks["sent"],
            sum(store.late for store in stores.values()),
            as_datetime(watermark),
            as_datetime(before),
            {name: store.gone.num_rows for name, store in stores.items() if store.schema.ttl},
        )

    def store(self, name: str) -> list[dict[str, Any]]:
        """Return the entries of a store after the last batch, sorted as text. Errors: `InputError` for another name."""
        known = self._program.stores
        if name not in known:
            hint = nearest(name, known)
            raise InputError("store", found=name, expected=f"one of {sorted(known)}", hint=hint)
        self._copy.bring_to(self._history, Path(self._folder.name))
        try:
            store = Store(known[name], self._copy, self._late.get(known[name].database))
            tables = [dicts_of(table, f"store {name!r}") for table in store.scan()]
            return sorted(chain.from_iterable(tables), key=repr)
        finally:
            self._copy.commit_unchanged()

    def _run(self, inputs: Mapping[str, pa.Table], watermark: int | None) -> tuple[Outputs, dict[str, Store]]:
        """Run the processor twice, and commit the second run."""
        self._copy.bring_to(self._history, Path(self._folder.name))
        try:
            first, _ = self._attempt(inputs, watermark)
            outputs, stores = self._attempt(inputs, watermark)
            _check_repeated(first.sinks["sent"], outputs.sinks["sent"], self._batch)
        except BaseException:
            self._copy.commit_unchanged()
            raise
        changes = {name: entries for store in stores.values() for name, entries in store.changes().items()}
        if not changes:
            self._copy.commit_unchanged()
            return outputs, stores
        base = self._history.end
        change = Change(self._batch, f"batch-{self._batch}", base.attempt, base.offset, 0)
        self._copy.commit(changes, change.position)
        self._history = History((*self._history.changes, change))
        return outputs, stores

    def _attempt(
        self, inputs: Mapping[str, pa.Table], watermark: int | None
    ) -> tuple[Outputs, dict[str, Store]]:
        stores = {
            name: Store(schema, self._copy, self._late.get(schema.database))
            for name, schema in self._program.stores.items()
        }
        watermarks = dict.fromkeys(inputs, watermark)
        return self._program.run(_TASK, self._batch, inputs, stores, watermarks), stores

    def _tables(self, given: Sequence[Rows]) -> dict[str, pa.Table]:
        """Return the rows of each input as a table."""
        if len(given) > len(self._inputs):
            expected = f"rows of at most {count(len(self._inputs), 'input')}"
            raise InputError("ProcessorTester.batch", found=f"{len(given)} arguments", expected=expected)
        tables = {}
        for name, rows in zip(self._inputs, [*given, *[()] * len(self._inputs)], strict=False):
            if isinstance(rows, pa.Table):
                tables[name] = rows
            elif rows:
                tables[name] = _table(f"batch.{name}", rows)
            elif name in self._schemas:
                tables[name] = self._schemas[name].empty_table()
            else:
                expected = "rows, or an empty pyarrow.Table with columns, in the first batch"
                raise InputError(f"batch.{name}", found=rows, expected=expected)
        return tables


def _topology(
    processor: Any,
    inputs: Sequence[str],
    key: str | Sequence[str] | None,
    times: Mapping[str, Any],
    tasks: int = 1,
) -> Topology:
    """Return a topology in which the processor is the only node. `times`: the options `event_time` and `delay`."""
    topology = Topology("test")
    given = {name: value for name, value in times.items() if value is not None}
    stream, *others = [topology.source(name, key=key, partitions=tasks, **given) for name in inputs]
    if others:
        stream = stream.join_table(others[0], processor, name="tested")
    else:
        stream = stream.process(processor, name="tested")
    stream.sink("sent")
    return topology


def _table(path: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows with the columns of the first one, in the types that Arrow infers."""
    try:
        return pa.Table.from_pylist(list(rows))
    except (pa.ArrowException, AttributeError, TypeError, OverflowError) as error:
        raise InputError(path, found=str(error), expected="a list of dicts, or a pyarrow.Table") from None


def _check_repeated(first: pa.Table, second: pa.Table, batch: int) -> None:
    # As text, because NaN does not equal itself.
    if not first.equals(second) and (
        first.schema != second.schema or repr([*map(python_of, first)]) != repr([*map(python_of, second)])
    ):
        raise InputError(
            "process",
            found=f"other rows when batch {batch} ran again",
            expected="the same rows for the same input and state: no clock, no random numbers, no state of its own",
        )
