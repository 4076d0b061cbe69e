"""Reads state from outside the stream: `placed.store("delays").get({"tailnum": "N14228"})`.

Properties:
- Only committed state is read. A batch that is under way is not visible.
- Active copies answer with the last committed batch. An active copy that has not caught up yet is not read. Standbys
  may be older, by at most the given bound in records or batches.
- Each task is read at one point in time. If a commit comes in between, two tasks may be read one batch apart.

Errors: `InputError` for an unknown store or key column, and for a store that is not logged; `TaskplaceError` naming the
tasks for which no copy within the bound could be read (for a moment after a loss; try again).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypedDict

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql import DataFrame

from taskplace.errors import InputError, TaskplaceError
from taskplace.lag.ranking import lag_of
from taskplace.spark.cluster import Executor
from taskplace.spark.driver.runner import BatchRunner
from taskplace.spark.driver.watermarks import of_store
from taskplace.spark.messages import EMPTY, Answer, History, Position, Question
from taskplace.spark.state.rows import RowCodec
from taskplace.spark.types import table_given
from taskplace.spark.values import dicts_of, table_of
from taskplace.spark.versions import from_arrow_schema, from_arrow_type
from taskplace.spark.worker.hashing import partition_of
from taskplace.spark.worker.lookup import answer_all
from taskplace.validation import nearest
from topology import TaskId

TRIES = 3


class ReadOptions(TypedDict, total=False):
    """The keyword arguments of `StoreReader`, for type checkers and editors."""

    copies: Literal["active", "standby"]
    max_lag: int | None
    max_batches: int | None


class StoreReader:
    """Reads one store in all its tasks.

    - `copies`: "active" or "standby": which copies to read
    - `max_lag`: records that a standby may lack of the last committed batch; None: any number
    - `max_batches`: batches with changes to its task that a standby may lack; None: any number
    """

    def __init__(
        self,
        runner: BatchRunner,
        name: str,
        *,
        copies: Literal["active", "standby"] = "active",
        max_lag: int | None = None,
        max_batches: int | None = None,
    ) -> None:
        programs = runner.definition.programs
        known = sorted(store for program in programs for store in program.stores)
        if not isinstance(name, str) or name not in known:
            raise InputError("store", found=name, expected=f"one of {known}", hint=nearest(name, known))
        holding = [(p, p.stores[name]) for p in programs if name in p.stores]
        if not holding[0][1].logged:
            expected = "a store with a changelog: with logged=False, only its tasks read it"
            raise InputError("store", found=name, expected=expected)
        if not isinstance(copies, str) or copies not in ("active", "standby"):
            raise InputError("copies", found=copies, expected="'active' or 'standby'")
        self._runner, (self._program, self.schema) = runner, holding[0]
        for bound, value in (("max_lag", max_lag), ("max_batches", max_batches)):
            whole = isinstance(value, int) and not isinstance(value, bool)
            if value is not None and (copies == "active" or not whole or value < 0):
                raise InputError(
                    bound, found=value, expected="an integer of at least 0, and only with copies='standby'"
                )
        self._copies, self._max_lag, self._max_batches = copies, max_lag, max_batches
        self._tasks = runner.definition.tasks[self._program.subtopology]
        self._splits = [split for split in self._program.splits if split.store == name]

    def get(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the value of one key, as a dict; None if the key has none."""
        if not isinstance(key, Mapping):
            expected = f"a value for each of {self.schema.key.names}, by name"
            raise InputError("key", found=key, expected=expected)
        for name in self.schema.key.names:
            if name not in key:
                raise InputError("key", found=sorted(key), expected=f"a value for the key column {name!r}")
        keys = table_of([key], self.schema.key, "key")
        value = self._values(keys)
        rows = pa.Table.from_struct_array(value.drop_null())
        return next(iter(dicts_of(rows, "value", "get_many() returns it as Arrow has it")), None)

    def get_many(self, keys: pa.Table) -> pa.Table:
        """Return `keys` with a struct column `value`, which is null for a key without a value.

        A key is looked up in the task that its rows are sent to. If an operator may have cast or rewritten keys on the
        way, the key may lie in another task; if it is not found, all other tasks are asked as well. If the rows are
        split by a partition column, all tasks are asked.
        Errors: `InputError` if `keys` already has a column `value`, in upper or lower case.
        """
        table_given(keys, "keys")
        if isinstance(keys, pa.RecordBatch):
            keys = pa.Table.from_batches([keys])
        if taken := [name for name in keys.column_names if name.lower() == "value"]:
            raise InputError(
                "keys",
                found=f"a column {taken[0]!r}",
                expected="no column with that name: the result adds one",
                hint="use get(), or to_df() for the whole store",
            )
        return keys.append_column("value", self._values(keys))

    def _values(self, keys: pa.Table) -> pa.Array:
        """Return the values of keys as structs; null for a key without a value."""
        codec = RowCodec(self.schema.key, "keys")
        keys = codec.canonical(keys)  # the values that are looked up also choose the task
        encoded = codec.encode(keys)
        first = self._tasks_of_keys(keys)
        raw: list[bytes | None] = [None] * len(encoded)
        self._look_up(encoded, first, raw)
        if not self._keys_are_unchanged():
            others = [
                [task for task in self._tasks if value is None and task not in asked]
                for value, asked in zip(raw, first, strict=True)
            ]
            self._look_up(encoded, others, raw)
        return self._structs(raw)

    def _look_up(
        self, encoded: Sequence[bytes], tasks: Sequence[Sequence[TaskId]], raw: list[bytes | None]
    ) -> None:
        """Ask for each key the tasks that are named for it, and put the values found into `raw`."""
        wanted: dict[TaskId, list[int]] = {}
        for row, candidates in enumerate(tasks):
            for task in candidates:
                wanted.setdefault(task, []).append(row)
        answers = self._ask({task: tuple(encoded[row] for row in rows) for task, rows in wanted.items()})
        for task, rows in wanted.items():
            for row, value in zip(rows, answers[task].values, strict=True):
                raw[row] = value if value is not None else raw[row]

    def to_df(self) -> DataFrame:
        """Return the whole store as a data frame of its key and value columns.

        The executors write the rows beside the checkpoint, where they stay until the stream is closed.
        """
        folder = self._runner.reads / uuid.uuid4().hex  # of the driver's epoch now: others are removed
        asked: dict[TaskId, tuple[bytes, ...] | None] = dict.fromkeys(self._tasks)
        answers = self._ask(asked, {task: str(folder / str(task)) for task in asked})
        files = [answer.file for answer in answers.values() if answer.file]
        if not files:  # no task has had any state yet
            columns = pa.schema([*self.schema.key, *self.schema.value])
            return self._runner.bridge.spark.createDataFrame([], from_arrow_schema(columns))
        return self._runner.bridge.spark.read.parquet(*files)

    def _structs(self, raw: Sequence[bytes | None]) -> pa.Array:
        values = [value for value in raw if value is not None]
        table = RowCodec(self.schema.value).decode(values)
        structs = table.to_struct_array().combine_chunks()
        place = iter(range(len(values)))
        return structs.take(pa.array([None if value is None else next(place) for value in raw], pa.int64()))

    def _tasks_of_keys(self, keys: pa.Table) -> list[Sequence[TaskId]]:
        """Return per row the tasks to ask first: one, if the store's key contains the columns of the split.

        `keys` has the types of the store's key. All tasks are asked if a partition column splits the rows: only the
        producers know the partition of a key.
        """
        if any(split.topic in self._program.partitioned for split in self._splits):
            return [self._tasks] * keys.num_rows
        counts = {o.topic: o.partitions for o in self._program.operators if o.kind == "source"}
        # A topic may have fewer partitions than the subtopology has tasks, and its columns other names.
        ways = {
            (tuple(column.name for column in split.columns), counts[split.topic]) for split in self._splits
        }
        if len(ways) != 1:
            return [self._tasks] * keys.num_rows
        ((by, partitions),) = ways
        try:
            return [
                [self._tasks[partition]]
                for partition in partition_of([keys[name] for name in by], partitions)
            ]
        except InputError:  # only Spark can hash keys of this type
            return [self._tasks] * keys.num_rows

    def _keys_are_unchanged(self) -> bool:
        """Return whether the store has the columns that rows are split by, with the values and types of the sources.

        They may have new names.
        """
        types = self._runner.journal.identity.get("keys") or {}
        return bool(self._splits) and all(
            split.sure
            and types.get(split.topic) == [_as_spark_calls(column.kept) for column in split.columns]
            for split in self._splits
        )

    def _ask(
        self, wanted: Mapping[TaskId, tuple[bytes, ...] | None], files: Mapping[TaskId, str] | None = None
    ) -> dict[TaskId, Answer]:
        """Ask one copy of each task; if it cannot answer, ask another copy. At most `TRIES` times."""
        answers: dict[TaskId, Answer] = {}
        why: dict[TaskId, str] = {}
        for number in range(TRIES):
            missing = [task for task in wanted if task not in answers]
            if not missing:
                break
            asked, locations, histories = [], [], {}
            for task in missing:
                history = self._runner.journal.history.get(task, History())
                if history.end == EMPTY:
                    answers[task] = Answer(task, EMPTY, (None,) * len(wanted[task] or ()))
                    continue
                holders = self._holders(task)
                if not holders:
                    why[task] = "no copy within the bound"
                    continue
                holder = holders[number % len(holders)]
                histories[task] = history
                question = Question(
                    task=task,
                    history=history,
                    state_root=str(self._runner.definition.state_root),
                    spark_app=self._runner.bridge.app_id,
                    keys=wanted[task],
                    file=(files or {}).get(task, ""),
                    watermark=of_store(self._runner.journal.last, self.schema, task=task),
                )
                asked.append(question.encode())
                locations.append(None if self._runner.bridge.local else holder.location)
            if not asked:
                continue
            job = self._runner.bridge.pinned(asked, locations, partial(answer_all, self.schema))
            tag = f"taskplace-read-{uuid.uuid4().hex}"
            try:
                encoded = list(self._runner.bridge.run(job, range(len(asked)), tag=tag))
            except Exception as error:
                # Reading a damaged copy can kill the executor; another holder may have a good copy.
                why.update(dict.fromkeys(histories, f"{type(error).__name__} while it was read"))
                continue
            for answer in map(Answer.decode, encoded):
                if answer.position is None:
                    why[answer.task] = answer.error
                elif not self._close_enough(histories[answer.task], answer.position):
                    why[answer.task] = (
                        f"the copy is at batch {answer.position.version}, which exceeds max_lag or max_batches"
                    )
                else:
                    answers[answer.task] = answer
        if left := sorted(set(wanted) - set(answers)):
            reasons = "; ".join(f"{task}: {why.get(task, 'no answer')}" for task in left[:3])
            remedy = "ask again after the next batch"
            if not self._runner.rebalancer.state.owners():
                remedy = "the first batch of this driver finds the copies: ask again after it"
            raise TaskplaceError(
                f"store {self.schema.name!r}: {len(left)} of {len(wanted)} tasks cannot be read now ({reasons}); "
                f"{remedy}"
            )
        return answers

    def _holders(self, task: TaskId) -> list[Executor]:
        """Return the executors to ask, best first."""
        state = self._runner.rebalancer.state
        with self._runner.rebalancer.lock:
            owner = state.owners().get(task)
            # Instances with a copy, least lag first.
            holders = [(lag, name, state.members[name].executor) for name, lag in state.lags.by_lag(task)]
            if self._copies == "active":
                # After the owner, the copies that lack nothing as far as is known, such as the previous owner's.
                others = [executor for lag, _, executor in holders if lag == 0 and executor != owner]
                return [owner, *others] if owner is not None else others
            return [executor for _, name, executor in holders if task in state.following(name)]

    def _close_enough(self, history: History, at: Position) -> bool:
        """Return whether a copy at position `at` is within the bounds."""
        if self._copies == "active":
            return at == history.end
        # Counted up to the last commit. The lag of the placement is counted up to the commit before it.
        batches = sum(change.version > at.version for change in history.changes)
        return (self._max_lag is None or lag_of(history.end.offset, at.offset) <= self._max_lag) and (
            self._max_batches is None or batches <= self._max_batches
        )


def _as_spark_calls(kind: pa.DataType) -> str:
    """Return Spark's name of a type; "" if Spark has no such type."""
    try:
        return from_arrow_type(kind).simpleString()
    except PySparkTypeError:
        return ""
