"""The processor protocol: the arguments and the result of a processor.

A processor is any object with `process(context, *inputs)`, or a plain function with the same arguments. Inputs and
output are Arrow tables. There is one input per parent, in the topology's order. The output must depend only on the
inputs and the stores: a repeated attempt must give the same result.

Optionally, a processor declares the layout of its stores (`layouts()`), so that the topology need not. It may also
declare the columns that it reads and emits (`taskplace.spark.processors.facts`), so that they are checked before
anything starts.

A task runs in the batches that have rows for it, and when the watermark moves, if one of its stores expires entries. A
processor or function with the attribute `every_batch = True` runs in every batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import pyarrow as pa

from taskplace.durations import milliseconds
from taskplace.errors import InputError
from taskplace.model.callables import check_function
from taskplace.spark.processors.facts import Facts, State, holds_times
from taskplace.spark.state.rows import RowCodec, codec_of
from taskplace.spark.state.store import Store
from taskplace.spark.types import arrow_schema
from taskplace.spark.values import dicts_of, table_of
from taskplace.validation import boolean, named, one_of

#: A store's layout: {"key": columns, "value": columns}. A store with expiry also has "time" and "retention_ms".
#: Optional: "meaning", text -> text: what the stored numbers mean. Under another meaning they are worthless.
Layout = Mapping[str, Any]


def columns_of(given: Any, path: str, *, empty: bool = False) -> dict[str, Any]:
    """Return a processor's argument, columns with their types. Errors: `InputError` for anything else.

    >>> columns_of(["id"], "Deduplicate('seen').by")
    Traceback (most recent call last):
    taskplace.errors.InputError: Deduplicate('seen').by: found ['id'], expected columns with their types, such as \
{'id': 'int64'}
    """
    if not isinstance(given, Mapping | pa.Schema) or not (len(given) or empty):
        raise InputError(path, found=given, expected="columns with their types, such as {'id': 'int64'}")
    schema = arrow_schema(given, path)
    return dict(given) if isinstance(given, Mapping) else dict(zip(schema.names, schema.types, strict=True))


class Keyed:
    """What taskplace's own processors have in common: a store with a key, whose entries may expire.

    - `kind`: the name of the processor in errors
    - `empty`: whether the key may have no columns
    """

    def __init__(
        self,
        kind: str,
        store: str,
        by: Mapping[str, object] | pa.Schema,
        *,
        ttl: Any,
        time: str | None,
        over_changes: bool = False,
        empty: bool = False,
    ) -> None:
        self.store = named(store, f"{kind}.store", "the name of a store")
        self._path = f"{kind}({store!r})"
        self._by = columns_of(by, f"{self._path}.by", empty=empty)
        self._time = time
        if (ttl is None) != (time is None):
            missing = "time" if time is None else "ttl"
            raise InputError(f"{self._path}.{missing}", found=None, expected="both ttl and time, or neither")
        #: What `ttl` and `time` add to the store's layout.
        self._forgetting: dict[str, Any] = {}
        if ttl is not None:
            self._forgetting["time"] = named(
                time, f"{self._path}.time", "the name of a timestamp or date column"
            )
            self._forgetting["retention_ms"] = milliseconds(ttl, f"{self._path}.ttl")
        self._over_changes = boolean(over_changes, f"{self._path}.over_changes")

    def _codec(self, key: pa.Schema) -> RowCodec:
        """Return the codec of the store's key."""
        return codec_of(key, f"{self._path}.by")

    def _check_key(self, rows: Facts) -> None:
        """Refuse rows without the columns of the key, or with types that cannot be cast to the key's."""
        rows.require_all("by", self._by)
        if (row := rows.nulls()) is not None:
            self._codec(arrow_schema(self._by)).canonical(row)


@dataclass(frozen=True)
class Context:
    """The task and batch in which a processor runs, and its stores.

    - `task`: the task's id ("1_3"); `partition`: its partition; `batch_id`: Spark's number of the batch
    - `stores`: the node's stores, by name; use `store`
    - `watermark`: after this batch, no rows older than this are expected; None: not yet known. Entries that have
      expired at this time are removed after the batch's rows are processed
    - `late_watermark`: the watermark of the batch before. Older rows in this batch are late

    Both are fixed before the batch begins, and are the same when the batch is repeated. Watermarks outside datetime's
    range become `datetime.min` or `datetime.max`.
    """

    task: str
    partition: int
    batch_id: int
    stores: Mapping[str, Store]
    watermark: datetime | None = None
    late_watermark: datetime | None = None

    def store(self, name: str) -> Store:
        """Return one of the stores that the processor was connected to. Errors: `InputError` for any other."""
        return self.stores[one_of(name, f"task {self.task}, store", sorted(self.stores))]


class Processor(Protocol):
    """The interface of a processor. A plain function with the arguments of `process` is one as well.

    Errors: an exception ends the query; nothing of the batch is committed, and a restart runs it again.

    >>> import pyarrow.compute as pc
    >>> def only_large(context: Context, rows: pa.Table) -> pa.Table:
    ...     return rows.filter(pc.greater(rows["amount"], 100))
    """

    def process(self, context: Context, *inputs: pa.Table) -> pa.Table:
        """Return the output rows for the input rows."""
        ...


def call(processor: object, context: Context, *inputs: pa.Table) -> pa.Table:
    """Run a processor or a function. Errors: `InputError` if it does not return a table."""
    run: Callable[..., Any] = getattr(processor, "process", None) or processor  # type: ignore[assignment]
    out = run(context, *inputs)
    if isinstance(out, pa.RecordBatch):
        out = pa.Table.from_batches([out])
    if not isinstance(out, pa.Table):
        path = f"{type(processor).__name__}.process"
        raise InputError(path, found=type(out).__name__, expected="a pyarrow.Table")
    return out


def runs_every_batch(processor: object) -> bool:
    """Return whether a processor also runs in batches without rows."""
    return bool(getattr(processor, "every_batch", False))


def layouts(processor: object) -> Mapping[str, Layout]:
    """Return the layouts that a processor declares, by store name; none for a plain function."""
    declared = getattr(processor, "layouts", None)
    return declared() if declared is not None else {}


class PerKey(Keyed):
    """Runs a function once per key of a batch, with that key's state. Readable, but each row costs Python time.

    - `store`: the name of its store; `by`, `state`: the columns of its key and value, with their types
    - `output`: the columns of the rows that the function emits, with their types

    `function(key, rows, state)` gets the key and the rows as dicts and the state as a dict (None at first). It returns
    the new state (None: delete it) and the rows to emit.

    - `ttl`, `time`: state expires the duration `ttl` after the event time in its column `time`. If the new state is
      already expired, it is dropped and counted as late; the key keeps its stored state. The rows are emitted all the
      same
    - `event_time`: the output column that is an event time, for later nodes that use event time
    - `delay`: how far that column may lie behind the input's watermark, a duration

    Errors: `InputError` that names the processor and the argument, before anything starts; in a batch, for an answer of
    the function that is not a pair, has unknown columns, or values that do not fit their types.

    Source: Spark's `applyInPandasWithState`, without its timeouts.

    >>> def longest(key, rows, state):
    ...     best = max([r["delay"] for r in rows] + ([state["best"]] if state else []))
    ...     return {"best": best}, [{**key, "best": best}]
    >>> processor = PerKey("best", longest, by={"tailnum": "string"}, state={"best": "int64"},
    ...                    output={"tailnum": "string", "best": "int64"})
    """

    def __init__(
        self,
        store: str,
        function: Callable[
            [dict[str, Any], list[dict[str, Any]], dict[str, Any] | None],
            tuple[dict[str, Any] | None, Iterable[dict[str, Any]]],
        ],
        *,
        by: Mapping[str, object] | pa.Schema,
        state: Mapping[str, object] | pa.Schema,
        output: Mapping[str, object] | pa.Schema,
        ttl: Any = None,
        time: str | None = None,
        event_time: str | None = None,
        delay: Any = None,
    ) -> None:
        super().__init__("PerKey", store, by, ttl=ttl, time=time)
        self.event_time, self.delay = event_time, delay
        check_function(function, f"{self._path}.function", arguments=["key", "rows", "state"])
        self._function = function
        self._state = columns_of(state, f"{self._path}.state")
        path = f"{self._path}.output"
        self._output = arrow_schema(columns_of(output, path, empty=True), path)
        times = [field.name for field in self._output if holds_times(field.type)]
        if event_time is not None and event_time not in times:
            expected = f"a timestamp or date column of its output: {times}"
            raise InputError(f"{self._path}.event_time", found=event_time, expected=expected)

    def layouts(self) -> Mapping[str, Layout]:
        """Return the layout of the store: the columns of the key and of the state."""
        return {self.store: {"key": self._by, "value": self._state, **self._forgetting}}

    def infer(self, inputs: tuple[Facts, ...]) -> Facts:
        """Return the declared output. Refuses missing key columns, and types that the key cannot have.

        The function may read any other columns.
        """
        self._check_key(inputs[0])
        return Facts(columns=self._output, states={self.store: State()})

    def process(self, context: Context, rows: pa.Table) -> pa.Table:
        """Return the function's output rows, key by key in order of first appearance."""
        store = context.store(self.store)
        codec = self._codec(store.schema.key)
        groups: dict[bytes, list[dict[str, Any]]] = {}
        # Group by the encoded key, as the store does: NaN is one key there, but NaN != NaN in Python.
        for key, row in zip(codec.encode(rows), self._dicts(rows, "rows"), strict=True):
            groups.setdefault(key, []).append(row)
        keys = codec.decode(list(groups))
        values, present = store.get_many(keys)
        kept: list[dict[str, Any]] = []
        gone: list[int] = []
        out: list[dict[str, Any]] = []
        by, states = self._dicts(keys, "by"), self._dicts(values, "state")
        keyed = zip(by, groups.values(), states, present, strict=True)
        for row_number, (key_row, group, state, known) in enumerate(keyed):
            new, sent = self._answer(self._function(dict(key_row), group, state if known else None))
            out += [self._known(row, self._output.names, "output") for row in sent]
            if new is not None:
                kept.append({**key_row, **self._known(new, self._state, "state")})
            elif known:
                gone.append(row_number)
        if kept:
            columns = pa.schema([*store.schema.key, *store.schema.value])
            store.put_many(table_of(kept, columns, f"{self._path}.state"))
        if gone:
            store.delete_many(keys.take(gone))
        return table_of(out, self._output, f"{self._path}.output")

    def _answer(self, answer: Any) -> tuple[Any, Iterable[Any]]:
        """Return the new state and the rows to emit. Errors: `InputError` if the function returned anything else."""
        pair: Any = answer if isinstance(answer, tuple) and len(answer) == 2 else (0, 0)
        state, rows = pair
        is_list = isinstance(rows, Iterable) and not isinstance(rows, str | bytes | Mapping)
        if is_list and isinstance(state, Mapping | None):
            return state, rows
        expected = "(the new state as a dict or None, the output rows as a list of dicts)"
        raise InputError(f"{self._path}.function", found=answer, expected=expected)

    def _known(self, row: Any, names: Collection[str], part: str) -> Any:
        """Return a row; refuse a column that the state or the output does not have. A missing column is null."""
        if isinstance(row, Mapping) and (unknown := [name for name in row if name not in names]):
            one_of(unknown[0], f"{self._path}.{part}", list(names))
        return row

    def _dicts(self, table: pa.Table, part: str) -> list[dict[str, Any]]:
        return dicts_of(table, f"{self._path}.{part}", "filter such rows in a processor before")
