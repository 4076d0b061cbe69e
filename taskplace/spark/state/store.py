"""A processor's view of one store: Arrow tables in and out, over a task's copy.

Writes of a batch are kept in memory, last value per key, and reach the copy and the changelog in one piece
when the batch's attempt is sealed. Reads see them at once.

A store may forget by event time (`taskplace.spark.state.expiry`), by two watermarks. By the one of the batch before,
`late`, rows are late and entries are no longer visible. By the batch's own, `now`, entries expire and are removed,
after the batch's rows have been written. So a row never meets a store that has forgotten what the row may still
change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import chain, islice, takewhile

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from taskplace.durations import milliseconds
from taskplace.errors import InputError
from taskplace.spark.state import expiry
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.files import Changes, pieces
from taskplace.spark.state.rows import RowCodec, arrow_schema, column_of

SCAN_ROWS = 65_536
#: How many bytes of encoded keys and values are decoded at once; a decoded piece needs several times as much.
SCAN_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class StoreSchema:
    """What a store holds: its name, the columns of its key and of its value, and whether it has a changelog.

    With a `ttl` (microseconds; 0: none), entries expire so long after the time in their column `time`. A store that was
    removed and came back has another `incarnation`: what its records were before is not its own.

    `meaning` says what the numbers in it are, as (what, how) in order, such as ("total", "sum"): state that was made
    with one meaning is not worth anything under another, though its columns be the same. The store itself does not
    look at it.
    """

    name: str
    key: pa.Schema
    value: pa.Schema
    logged: bool = True
    time: str = ""
    ttl: int = 0
    incarnation: int = 0
    meaning: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, name: str, options: Mapping[str, object], *, logged: bool = True) -> StoreSchema:
        """Return the schema that a topology's store was declared with: `key` and `value`, name -> type, for one that
        forgets `retention_ms` and `time`, and maybe `meaning`, text -> text.

        Errors: `InputError` naming the store when either is missing, or a type is unknown or not a flat one.

        >>> columns = {"key": {"k": "string"}, "value": {"total": "int64"}}
        >>> StoreSchema.of("s", columns | {"meaning": {"total": "sum"}}).meaning
        (('total', 'sum'),)
        """
        schemas = {}
        for part in ("key", "value"):
            columns = options.get(part)
            if not isinstance(columns, Mapping | pa.Schema) or not len(columns):
                raise InputError(
                    f"stores.{name}.{part}", found=columns, expected="columns, such as {'id': 'int64'}"
                )
            schemas[part] = arrow_schema(columns, f"stores.{name}.{part}")
            RowCodec(schemas[part], f"stores.{name}.{part}")
        shared = set(schemas["key"].names) & set(schemas["value"].names)
        if shared:
            raise InputError(
                f"stores.{name}", found=sorted(shared), expected="no column in both key and value"
            )
        meaning = _meaning(options.get("meaning"), f"stores.{name}.meaning")
        time, ttl = options.get("time"), options.get("retention_ms")
        if (time is None) != (ttl is None):
            raise InputError(
                f"stores.{name}",
                found=f"time {time!r}, retention_ms {ttl!r}",
                expected="both, or neither: an entry expires so long after its time",
            )
        if time is None:
            return cls(name, schemas["key"], schemas["value"], logged, meaning=meaning)
        columns = {field.name: field.type for part in schemas.values() for field in part}
        if not pa.types.is_temporal(columns.get(str(time), pa.null())) or pa.types.is_time(
            columns[str(time)]
        ):
            raise InputError(
                f"stores.{name}.time",
                found=f"{time!r}, {columns.get(str(time), 'no column of the store')}",
                expected=f"a timestamp or date column among {sorted(columns)}",
            )
        micros = 1000 * milliseconds(ttl, f"stores.{name}.retention_ms")
        return cls(name, schemas["key"], schemas["value"], logged, str(time), micros, meaning=meaning)

    @property
    def database(self) -> str:
        """The name under which it lies in copies and changelogs; "~" is not legal in a store's own name."""
        return f"{self.name}~{self.incarnation}" if self.incarnation else self.name

    @property
    def databases(self) -> tuple[str, ...]:
        """Its name there, and its index's if it forgets."""
        return (self.database, expiry.index_of(self.database)) if self.ttl else (self.database,)

    def expired(self, keys: pa.Table, values: pa.Table, watermark: int | None) -> expiry.Mask:
        """Return which entries have expired at a watermark (microseconds; None: none yet)."""
        if not self.ttl:
            return np.zeros(keys.num_rows, np.bool_)
        side = keys if self.time in self.key.names else values
        path = f"stores.{self.name}.{self.time}"
        return expiry.expired(column_of(side, self.time, path), self.ttl, watermark, path)


def _meaning(raw: object, path: str) -> tuple[tuple[str, str], ...]:
    if raw is None:
        return ()
    if not isinstance(raw, Mapping) or not all(
        isinstance(text, str) for pair in raw.items() for text in pair
    ):
        raise InputError(path, found=raw, expected="text by text, such as {'total': 'sum'}")
    return tuple(sorted(raw.items()))


class Store:
    """One store of one task during one batch.

    `late`: the watermark of the batch before, `now`: the batch's own (microseconds; None: unknown yet); without `now`
    both are the same.

    >>> store.put_many(table)                              # doctest: +SKIP
    >>> values, found = store.get_many(table)              # doctest: +SKIP
    """

    def __init__(
        self, schema: StoreSchema, copy: Copy, late: int | None = None, now: int | None = None
    ) -> None:
        self.schema = schema
        self._copy, self._late = copy, late
        #: The watermark by which entries expire in this batch.
        self.now = late if now is None else now
        self._name, self._index_name = schema.database, expiry.index_of(schema.database)
        self._keys = RowCodec(schema.key, f"stores.{schema.name}.key")
        self._values = RowCodec(schema.value, f"stores.{schema.name}.value")
        self._absent: bytes | None = None
        #: This batch's writes: encoded key -> encoded value, None for a deletion.
        self.writes: dict[bytes, bytes | None] = {}
        self._index: dict[bytes, bytes | None] = {}
        #: By key, values that had expired and were not removed yet when a row of this batch took their place.
        self._displaced: dict[bytes, bytes] = {}
        #: What went by `expire`, key and value columns, with that whose place was taken since it expired.
        self.gone = pa.schema([*schema.key, *schema.value]).empty_table()
        #: How many rows were not taken because they had expired before they came.
        self.late = 0
        #: Whether `expire` has been called in this batch.
        self.expired = False
        #: The least time of what `expire` has left for the next batch (microseconds); None if nothing is left.
        self.held: int | None = None

    @property
    def _slot(self) -> int:
        """How long before it is due in the index an entry's time may lie."""
        return 0 if self.schema.time in self.schema.key.names else expiry.slot_of(self.schema.ttl)

    @property
    def late_watermark(self) -> int | None:
        """The watermark by which rows are late; None: unknown yet."""
        return self._late

    @property
    def expiring(self) -> bool:
        """Whether `expire` has left some for the next batch."""
        return self.held is not None

    def changes(self) -> Changes:
        """Return what this batch changes, by the name under which it lies in the copy."""
        written = {self._name: self.writes, self._index_name: self._index}
        # In order, as changelog, undo record and copy want it: they sort again, which is next to nothing then.
        return {name: dict(sorted(entries.items())) for name, entries in written.items() if entries}

    def get_many(self, keys: pa.Table) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
        """Return the values of `keys` (a table with the key columns), and which of them there are.

        Shapes: as many rows as `keys`, in its order; the rows of absent keys hold nulls.
        O(rows x log size). A key may appear several times.
        """
        raw = self._get(self._keys.encode(keys))
        values = self._decoded(raw)
        if self.schema.ttl and (stale := self.schema.expired(keys, values, self._late)).any():
            raw = [None if old else value for value, old in zip(raw, stale, strict=True)]
            values = self._decoded(raw)
        return values, np.fromiter((value is not None for value in raw), np.bool_, len(raw))

    def contains_many(self, keys: pa.Table) -> npt.NDArray[np.bool_]:
        """Return for each of `keys` whether the store has it."""
        if self.schema.ttl:
            return self.get_many(keys)[1]
        raw = self._get(self._keys.encode(keys))
        return np.fromiter((value is not None for value in raw), np.bool_, len(raw))

    def put_many(self, rows: pa.Table) -> None:
        """Set the value of each key; `rows` has the key and the value columns. The last row of a key wins. O(rows).

        A row that has expired already counts as `late` and is not taken: its key keeps what it has, be it from this
        batch or from before. So the last row of a key wins that has not expired.
        """
        keys, values = self._keys.encode(rows), self._values.encode(rows)
        if not self.schema.ttl:
            self.writes.update(zip(keys, values, strict=True))
            return
        stale = self.schema.expired(rows, rows, self._late)
        self.late += int(stale.sum())
        live = np.flatnonzero(~stale).tolist()
        last = {keys[row]: row for row in live}
        self._displace(last)
        self.writes.update((key, values[row]) for key, row in last.items())
        self._enter(rows[self.schema.time], last)

    def _enter(self, column: pa.ChunkedArray, rows: Mapping[bytes, int]) -> None:
        """Enter keys in the index, unless they are there for that slot; `rows` tells each key's row."""
        times, known = expiry.micros(column)
        # A time in the key is there for good; such entries (windows!) go when they expire, and not a slot later.
        ends = expiry.due(times, self.schema.ttl) if self._slot else times
        wanted = {expiry.index_key(int(ends[row]), key): key for key, row in rows.items() if known[row]}
        new = [entry for entry in wanted if self._index.get(entry) is None]
        there = self._copy.get_many(self._index_name, new)
        self._index.update(
            (entry, wanted[entry])
            for entry, key in zip(new, there, strict=True)
            if key is None or entry in self._index  # not there, or removed by `expire` in this batch
        )

    def _displace(self, keys: Iterable[bytes]) -> None:
        """Keep what has expired of these keys, before they are written for the first time in this batch.

        Nobody sees it, but it is in the copy still, and whoever sends on what expires has not sent it. A time in the
        key comes with each row of it, so such a row is late and takes nobody's place.
        """
        if self._late is None or not self._slot:
            return
        first = [key for key in keys if key not in self.writes]
        there = zip(first, self._copy.get_many(self._name, first), strict=True)
        found = [(key, value) for key, value in there if value is not None]
        if found:
            table = self._table(found)
            stale = self.schema.expired(table, table, self._late)
            self._displaced.update(entry for entry, old in zip(found, stale, strict=True) if old)

    def is_late(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        """Return which rows (with the column `time`) had expired before they came, and count them as late."""
        stale = self.schema.expired(rows, rows, self._late)
        self.late += int(stale.sum())
        return stale

    def delete_many(self, keys: pa.Table) -> None:
        """Remove `keys`; one that is not there is fine. O(rows)."""
        encoded = self._keys.encode(keys)
        if self.schema.ttl:
            self._displace(encoded)
        self.writes.update(dict.fromkeys(encoded))

    def expire(self, limit: int | None = None, limit_bytes: int | None = None) -> None:
        """Remove what has expired by `now`, this batch's own writes included; `gone` has it then. O(entries removed).

        `limit` entries at most (`expiry.REMOVED_PER_BATCH`), and as many as have `limit_bytes` of encoded keys and
        values (`expiry.REMOVED_BYTES_PER_BATCH`); one at least. What is left goes with the next batches. The runtime
        calls it after the last node that uses the store; a processor that sends on what has expired calls it itself,
        when it has written its rows. It works once a batch.
        """
        if self.expired:
            return
        self.expired = True
        if not self.schema.ttl or self.now is None:
            return
        limit = expiry.REMOVED_PER_BATCH if limit is None else limit
        limit_bytes = expiry.REMOVED_BYTES_PER_BATCH if limit_bytes is None else limit_bytes
        stored: dict[bytes, bytes | None] = {}
        size = number = 0
        for entry, key, value in self._due(self.now - self.schema.ttl):
            added = 0 if key in stored else len(key) + len(value or b"")
            if number and (number >= limit or size + added > limit_bytes):
                self.held = expiry.due_of(entry) - self._slot
                break
            stored[key], self._index[entry] = value, None
            size, number = size + added, number + 1
        gone = [self._table(list(self._displaced.items()))] if self._displaced else []
        there = ((key, value) for key, value in stored.items() if value is not None)
        for piece in pieces(self.schema.name, there, SCAN_ROWS, SCAN_BYTES):
            found = self._table(piece)
            stale = self.schema.expired(found, found, self.now)
            self.writes.update((key, None) for (key, _), old in zip(piece, stale, strict=True) if old)
            gone.append(found.filter(pa.array(stale)))
        if gone:
            self.gone = pa.concat_tables(gone)

    def _due(self, by: int) -> Iterator[tuple[bytes, bytes, bytes | None]]:
        """Yield what the index has that is due, in its order: the entry, the key, and the value if there is one.

        Values are read ahead, more and more of them as they turn out to be small.
        """
        stored = takewhile(lambda item: expiry.due_of(item[0]) <= by, self._copy.scan(self._index_name))
        written = sorted(
            (entry, key)
            for entry, key in self._index.items()
            if key is not None and expiry.due_of(entry) <= by
        )
        due = merge(stored, written)
        ahead, largest = 1, 1
        while chunk := list(islice(due, ahead)):
            values = self._get([key for _, key in chunk])
            for (entry, key), value in zip(chunk, values, strict=True):
                yield entry, key, value
            largest = max(largest, *(len(value or b"") for value in values))
            ahead = max(1, min(2 * ahead, 1024, SCAN_BYTES // largest))

    def scan(self) -> Iterator[pa.Table]:
        """Yield the whole store, this batch's writes included, in tables of key and value columns. No order."""
        pending = [(key, value) for key, value in self.writes.items() if value is not None]
        stored = self._copy.scan(self._name)
        if self.writes:
            stored = (entry for entry in stored if entry[0] not in self.writes)
        for piece in pieces(self.schema.name, chain(pending, stored), SCAN_ROWS, SCAN_BYTES):
            table = self._table(piece)
            stale = self.schema.expired(table, table, self._late)
            yield table.filter(pa.array(~stale)) if stale.any() else table

    def _get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if not self.writes:
            return self._copy.get_many(self._name, keys)
        missing = [key for key in keys if key not in self.writes]
        stored = dict(zip(missing, self._copy.get_many(self._name, missing), strict=True))
        return [self.writes[key] if key in self.writes else stored[key] for key in keys]

    def _decoded(self, raw: Sequence[bytes | None]) -> pa.Table:
        """Return values as a table, with a row of nulls where there is none."""
        return self._values.decode([self._null_row() if value is None else value for value in raw])

    def _null_row(self) -> bytes:
        if self._absent is None:
            nulls = {field.name: pa.nulls(1, field.type) for field in self.schema.value}
            self._absent = self._values.encode(pa.table(nulls))[0]
        return self._absent

    def _table(self, entries: list[tuple[bytes, bytes]]) -> pa.Table:
        keys = self._keys.decode([key for key, _ in entries])
        values = self._values.decode([value for _, value in entries])
        return pa.table(
            [*keys.columns, *values.columns], schema=pa.schema([*self.schema.key, *self.schema.value])
        )
