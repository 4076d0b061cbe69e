"""The expected output, state and dropped rows of a pipeline, batch by batch, in plain Python.

It uses no Arrow, store or processor of the project. A batch is lists of dicts, and state is a dict per task.

**Time.** W(N) is the watermark of batch N: the least (newest time in the batches before N, minus the delay) of the
sources with an event time; None until each of them has had a time. It never decreases. In batch N

- W(N-1) decides which rows are late, and which state has expired;
- W(N) decides what expires *after* the rows of batch N: it is removed, and closed windows are sent.

A node whose time column has a lag (`case.Shape.times`) uses the watermark minus that lag.

**Order.** A task processes rows in their order. A repartition concatenates the rows of the writing tasks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from tests.differential.case import (
    WINDOW_START,
    Batch,
    Case,
    Node,
    Row,
    Shape,
    canonical,
    key_columns,
    shapes,
    stateful,
    store_of,
)
from tests.differential.expiry import expired, lag, less
from tests.differential.hashing import partition
from tests.differential.values import Key, aggregated, cast, micros, order, outside

#: The unchanged row, beside its window's start, because the row may already have a column with that name.
AS_IT_CAME = "row as it came"

#: A partition, and the stores that its task has there.
Task = tuple[int, frozenset[str]]
#: The state of a task in a store: key -> values.
State = dict[Key, Row]
#: The rows of a stream in one batch, by partition.
Rows = dict[int, list[Row]]


@dataclass
class Sent:
    """The results of one batch: the rows of each sink, and the number of late rows."""

    sinks: dict[str, list[Row]] = field(default_factory=dict)
    late: int = 0


class Model:
    """The pipeline of a case, from its first batch."""

    def __init__(self, case: Case) -> None:
        self.case, self.shapes = case, shapes(case)
        self.newest: dict[str, int] = {}
        self._read: dict[str, dict[int, int | None]] = {name: {} for name in case.sources}
        self.late: int | None = None  # W(N-1)
        self.now: int | None = None  # W(N)
        self.batches = 0
        #: Of each store, by task: key -> values.
        self.state: dict[str, dict[int, dict[Key, Row]]] = {}
        #: Of each store, the first node that uses it, and the last one.
        self._owner = {store_of(node): node for node in reversed(case.nodes) if stateful(node)}
        self.state |= {name: defaultdict(dict) for name in self._owner}
        self._last = {store_of(node): node.name for node in case.nodes}
        self._dropped = 0
        #: State that was lost, by task. While the task has no other, the copy that has it may be found again.
        self.away: dict[Task, dict[str, dict[Key, Row]]] = {}
        #: Whether the last batch may be refused.
        self.unsure = False

    def batch(self, topics: Batch, backlogs: Mapping[str, set[int]] | None = None) -> Sent:
        """Process the rows of a batch, and return its results. Errors: `Unfit`: it is to be refused.

        `backlogs`: of sources whose tasks read them, the partitions with more rows than were read.
        """
        self.late, self.now, self._dropped, self.unsure = self.now, self.watermark(), 0, False
        streams: dict[str, Rows] = {}
        for name, source in self.case.sources.items():
            streams[name] = self._split(topics.get(name, []), source.key, source.columns, source.partitions)
        for node in self.case.nodes:
            streams[node.name] = self._step(node, [streams[name] for name in node.inputs])
        for name, source in self.case.sources.items():
            if source.event_time:
                kind = source.columns[source.event_time]
                read = self._read[name]
                for part, rows in streams[name].items():
                    times = [micros(row[source.event_time], kind) for row in rows]
                    read[part] = max((t for t in (*times, read.get(part)) if t is not None), default=None)
                # A partition with a backlog holds all others.
                behind = [read.get(part) for part in (backlogs or {}).get(name, ())]
                held = None if None in behind else min(behind, default=None)
                found = held if behind else max((t for t in read.values() if t is not None), default=None)
                if found is not None:
                    self.newest[name] = max(found, self.newest.get(name, found))
        self.batches += 1
        self.away = {
            (task, stores): entries
            for (task, stores), entries in self.away.items()
            if not any(self.state[store].get(task) for store in stores)
        }
        sinks = {name: [row for rows in streams[name].values() for row in rows] for name in self.case.sinks}
        return Sent(sinks, self._dropped)

    def fork(self) -> Model:
        """Return the same pipeline at the same place, to go on by itself."""
        other = copy(self)
        other.newest, other._read = dict(self.newest), {name: dict(read) for name, read in self._read.items()}
        other.away = dict(self.away)
        # Values are replaced, and not changed.
        other.state = {
            store: defaultdict(dict, {task: dict(entries) for task, entries in tasks.items()})
            for store, tasks in self.state.items()
        }
        return other

    def without(self, lost: Iterable[Task]) -> list[Model]:
        """Return what the pipeline may be once the state of some tasks may be lost, or be back."""
        found = [self]
        for task in {*lost, *self.away}:
            found = [each for one in found for each in one._perhaps_without(task)]
        return found

    def _perhaps_without(self, lost: Task) -> Iterator[Model]:
        yield self
        task, stores = lost
        other = self.fork()
        if any(self.state[store].get(task) for store in stores):
            other.away[lost] = {store: other.state[store].pop(task, {}) for store in stores}
            yield other
        elif lost in self.away:
            for store, entries in other.away.pop(lost).items():
                other.state[store][task] = dict(entries)
            yield other

    def watermark(self) -> int | None:
        """Return the watermark of the next batch."""
        timed = {name: source for name, source in self.case.sources.items() if source.event_time}
        found = None
        if timed and set(timed) <= set(self.newest):
            found = min(self.newest[name] - source.delay for name, source in timed.items())
        return max((w for w in (found, self.now) if w is not None), default=None)

    def store(self, name: str) -> list[Row]:
        """Return what can be read of a node's state after the last batch."""
        node = self._owner[name]
        late = less(self.now, lag(node, self.shapes))
        keys = key_columns(node)
        return [
            {**dict(zip(keys, key, strict=True)), **values}
            for state in self.state[name].values()
            for key, values in state.items()
            if not expired(node, self.shapes, key, values, late)
        ]

    # -- steps

    def _split(self, rows: list[Row], key: list[str], kinds: dict[str, str], partitions: int) -> Rows:
        found: Rows = defaultdict(list)
        for row in rows:
            found[partition([row[c] for c in key], [kinds[c] for c in key], partitions)].append(row)
        return found

    def _step(self, node: Node, inputs: list[Rows]) -> Rows:
        options, before = node.options, self.shapes[node.inputs[0]]
        if node.op == "repartition":
            rows = [row for _, part in sorted(inputs[0].items()) for row in part]
            return self._split(rows, options["key"], before.columns, options["partitions"])
        run, store = getattr(self, f"_{node.op}"), store_of(node)
        found: Rows = defaultdict(list)
        # State that a task has kept may have to go although no rows come.
        for task in sorted({task for rows in inputs for task in rows} | set(self.state.get(store, ()))):
            parts = [rows.get(task, []) for rows in inputs]
            if not store:
                found[task] = list(run(node, *parts))
                continue
            state, behind = self.state[store][task], lag(self._owner[store], self.shapes)
            late, now = less(self.late, behind), less(self.now, behind)
            found[task] = list(run(node, before, state, late, *parts))
            if self._last[store] != node.name:
                continue
            gone = self._expire(self._owner[store], state, now)
            if (options.get("window") or {}).get("emit") == "final":
                found[task] = [self._shown(node, key, values) for key, values in gone.items()]
        return found

    def _expire(self, node: Node, state: dict[Key, Row], now: int | None) -> dict[Key, Row]:
        """Remove what has had its time from a task's state, and return it."""
        gone = {key: values for key, values in state.items() if expired(node, self.shapes, key, values, now)}
        for key in gone:
            del state[key]
        return gone

    def _where(self, node: Node, rows: list[Row]) -> Iterator[Row]:
        column, limit = node.options["column"], node.options["less"]
        return (row for row in rows if row[column] is not None and row[column] < limit)

    def _rename(self, node: Node, rows: list[Row]) -> Iterator[Row]:
        names = node.options["names"]
        return ({names.get(c, c): value for c, value in row.items()} for row in rows)

    def _cast(self, node: Node, rows: list[Row]) -> Iterator[Row]:
        kinds, before = node.options["kinds"], self.shapes[node.inputs[0]].columns
        for row in rows:
            yield {**row, **{c: _by_function(row[c], before[c], kind) for c, kind in kinds.items()}}

    def _lookup(self, node: Node, _: Shape, state: State, late: int | None, rows: list[Row]) -> Iterator[Row]:
        for row in rows:
            seen = self._seen(self._owner[store_of(node)], state, self._key(node, row), late)
            yield {**row, node.options["new"]: seen and seen[node.options["column"]]}

    def _merge(self, _: Node, *parts: list[Row]) -> Iterator[Row]:
        return (row for rows in parts for row in rows)

    def _deduplicate(
        self, node: Node, before: Shape, state: State, late: int | None, rows: list[Row]
    ) -> Iterator[Row]:
        by, time = node.options["by"], node.options.get("time")
        for row in rows:
            key = self._key(node, row)
            values = {"seen_in_batch": self.batches}
            if time and time not in by:
                values[time] = micros(row[time], before.columns[time])  # kept as a timestamp
            if expired(node, self.shapes, key, values, late):
                self._dropped += 1
            elif self._seen(node, state, key, late) is None:
                state[key] = values
                yield row

    def _join(self, node: Node, _: Shape, state: State, late: int | None, *rows: list[Row]) -> Iterator[Row]:
        stream, table = rows
        on, columns, order_by = (node.options[name] for name in ("on", "columns", "order_by"))
        kept = set(order_by) <= {*on, *columns}  # then the stored row has an order too
        for row in sorted(table, key=lambda row: order(row, order_by)):
            key, values = self._key(node, row), self._values(node, row)
            if None in key:  # it matches nothing
                continue
            seen = self._seen(node, state, key, late)
            older = order_by and kept and seen is not None
            if older and order({**row, **values}, order_by) < order({**row, **(seen or {})}, order_by):
                continue
            if expired(node, self.shapes, key, values, late):
                self._dropped += 1
            elif row.get(node.options.get("deleted")):
                state.pop(key, None)
            else:
                state[key] = values
        for row in stream:
            values = self._seen(node, state, self._key(node, row), late)
            if values is not None or node.options["how"] == "left":
                yield {**row, **(values if values is not None else dict.fromkeys(columns))}

    def _per_key(
        self, node: Node, before: Shape, state: dict[Key, Row], late: int | None, rows: list[Row]
    ) -> Iterator[Row]:
        """Count the rows of each key and keep their newest time. A key with more than `limit` rows starts again."""
        by, column = node.options["by"], node.options["column"]
        for key, group in self._groups(node, rows).items():
            known = self._seen(node, state, key, late)
            # Python may have no such times.
            kinds = self.shapes[node.name].columns
            self.unsure |= any(outside(value, kinds[c]) for c, value in zip(by, key, strict=True))
            self.unsure |= any(outside(value, before.columns[c]) for row in group for c, value in row.items())
            n = len(group) + (known["n"] if known else 0)
            times = [row[column] for row in group if row[column] is not None] if column else []
            if known and known["newest"] is not None:
                times.append(known["newest"])
            values = {"n": n, "newest": max(times, default=None)}
            if n > node.options["limit"]:
                if known:
                    del state[key]
            elif expired(node, self.shapes, key, values, late):
                self._dropped += 1
            else:
                state[key] = values
            yield {**dict(zip(by, key, strict=True)), **values}

    def _aggregate(
        self, node: Node, before: Shape, state: dict[Key, Row], late: int | None, rows: list[Row]
    ) -> Iterator[Row]:
        window = node.options.get("window")
        if window:
            rows = list(self._windowed(window, before, late, rows))
        for key, group in self._groups(node, rows).items():
            known = self._seen(node, state, key, late)
            values = dict(known) if known else {}
            for name, (function, column, kept) in node.options["aggregates"].items():
                new = [row.get(AS_IT_CAME, row)[column] if column else 1 for row in group]
                kind = before.columns[column] if column else "int64"
                for part, step in self._parts(name, function):
                    values[part] = aggregated(values.get(part), step, new, kind, kept)
            if expired(node, self.shapes, key, values, late):
                self._dropped += 1
                values = known if known else values
            else:
                state[key] = values
            yield self._shown(node, key, values)

    def _windowed(self, window: Row, before: Shape, late: int | None, rows: list[Row]) -> Iterator[Row]:
        """Yield the rows of open windows, with the starts of the windows."""
        for row in rows:
            time = micros(row[window["column"]], before.columns[window["column"]])
            # The first window is cut off where time begins.
            start = None if time is None else max(time - time % window["size"], -(1 << 63))
            if start is None or (late is not None and start + window["size"] + window["grace"] <= late):
                self._dropped += 1
            else:
                yield {**row, WINDOW_START: start, AS_IT_CAME: row}

    # -- state

    def _seen(self, node: Node, state: dict[Key, Row], key: Key, late: int | None) -> Row | None:
        values = state.get(key)
        return None if values is None or expired(node, self.shapes, key, values, late) else values

    def _key(self, node: Node, row: Row) -> Key:
        """Return the key of a row's state, with values in the types in which they are kept."""
        kinds, kept = self.shapes[node.inputs[0]].columns, node.options.get("kept", {})
        key = (cast(row[c], kinds.get(c, "timestamp"), kept.get(c)) for c in key_columns(node))
        return tuple(map(canonical, key))

    def _values(self, node: Node, row: Row) -> Row:
        """Return the columns of a table's row that a join keeps, in the types in which they are kept."""
        kinds, kept = self.shapes[node.inputs[1]].columns, node.options.get("kept", {})
        return {c: cast(row[c], kinds[c], kept.get(c)) for c in node.options["columns"]}

    def _groups(self, node: Node, rows: list[Row]) -> dict[Key, list[Row]]:
        groups: dict[Key, list[Row]] = {}
        for row in rows:
            groups.setdefault(self._key(node, row), []).append(row)
        return groups

    @staticmethod
    def _shown(node: Node, key: Key, values: Row) -> Row:
        shown = dict(zip(key_columns(node), key, strict=True))
        window = node.options.get("window")
        if window and window.get("time"):
            shown[window["time"]] = min(shown[WINDOW_START] + window["size"], 1 << 63) - 1
        for name, (function, _, _) in node.options["aggregates"].items():
            if function != "avg":
                shown[name] = values[name]
            else:
                n = values[f"{name}_count"]
                shown[name] = values[f"{name}_sum"] / n if n else None
        return shown

    @staticmethod
    def _parts(name: str, function: str) -> list[tuple[str, str]]:
        """Return the columns that the state keeps for an aggregate, and their functions."""
        parts = [(f"{name}_{part}", part) for part in ("sum", "count")]
        return parts if function == "avg" else [(name, function)]


def _by_function(value: Any, kind: str, wanted: str) -> Any:
    """Return a value as a function of one's own casts it."""
    return bool(value) if wanted == "bool" and value is not None else cast(value, kind, wanted)
