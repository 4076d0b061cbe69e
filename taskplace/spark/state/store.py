"""A store: its schema, and a processor's view of it, Arrow tables in and out, over a task's copy.

The writes of a batch stay in memory, the last value per key. They reach the copy and the changelog together
when the batch's attempt is sealed. Reads see them at once.

A store may expire entries by event time (`taskplace.spark.state.expiry`), with two watermarks. By the watermark of the
batch before, `late`, rows are late and entries are invisible. By the batch's own watermark, `now`, entries expire and
are removed, after the batch's rows were written. So an entry is never removed before a row that may still change it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import chain, islice, takewhile
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from taskplace.durations import milliseconds
from taskplace.errors import InputError
from taskplace.spark.checkpoint.files import Changes, in_order, pieces
from taskplace.spark.state import expiry
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.rows import RowCodec, codec_of
from taskplace.spark.types import Unreadable, arrow_schema, check_names, column_of
from taskplace.validation import NO_SURROGATES, has_surrogates

SCAN_ROWS = 65_536
#: The bytes of encoded keys and values that are decoded at once; a decoded piece needs several times as much.
SCAN_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class StoreSchema:
    """The schema of a store: its name, the columns of its key and of its value, and whether it has a changelog.

    With a `ttl` (microseconds; 0: none), an entry expires `ttl` after the time in its column `time`. A store that was
    removed and came back has another `incarnation`, so that it does not read its old records.

    `meaning` says how the values were computed, as sorted (what, how), such as ("total", "sum"). State with one meaning
    is wrong under another, even if the columns are the same. The driver compares meanings; the store does not.
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
        """Return the schema of a topology's store from its options.

        Options: `key` and `value`, name -> type; for expiry, `retention_ms` and `time`; optionally `meaning`,
        text -> text. Errors: `InputError` naming the store if an option is missing, if a type is unknown or not flat,
        or if two columns differ only by case: the store could not be read as a data frame.

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
        try:
            check_names([*schemas["key"].names, *schemas["value"].names])
        except Unreadable as error:
            raise InputError(
                f"stores.{name}", found=str(error), expected="names that Spark tells apart"
            ) from None
        meaning = _meaning(options.get("meaning"), f"stores.{name}.meaning")
        time, ttl = options.get("time"), options.get("retention_ms")
        if (time is None) != (ttl is None):
            raise InputError(
                f"stores.{name}",
                found=f"time {time!r}, retention_ms {ttl!r}",
                expected="both or neither: an entry expires retention_ms after its time",
            )
        if time is None:
            return cls(name, schemas["key"], schemas["value"], logged, meaning=meaning)
        columns = {field.name: field.type for part in schemas.values() for field in part}
        kind = columns.get(str(time), pa.null())
        if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            raise InputError(
                f"stores.{name}.time",
                found=f"{time!r}, {columns.get(str(time), 'no column of the store')}",
                expected=f"a timestamp or date column among {', '.join(sorted(columns))}",
            )
        micros = 1000 * milliseconds(ttl, f"stores.{name}.retention_ms")
        return cls(name, schemas["key"], schemas["value"], logged, str(time), micros, meaning=meaning)

    @property
    def database(self) -> str:
        """The store's name in copies and changelogs; "~" is not legal in a store's own name."""
        return f"{self.name}~{self.incarnation}" if self.incarnation else self.name

    @property
    def databases(self) -> tuple[str, ...]:
        """The store's name in copies, and that of its expiry index if it has a `ttl`."""
        return (self.database, expiry.index_of(self.database)) if self.ttl else (self.database,)

    def times(self, keys: pa.Table, values: pa.Table) -> pa.ChunkedArray:
        """Return the column `time` of entries as the store keeps it, whatever type the rows have.

        So an entry expires by the same time before and after it is written: a date by its day, for example, and not by
        the timestamp that it was made of. Errors: `InputError` for a column that is no time, or a value that does not
        fit the store's type.
        """
        part, rows = (self.key, keys) if self.time in self.key.names else (self.value, values)
        path = f"stores.{self.name}"
        expiry.check_time(column_of(rows, self.time, f"{path}.{self.time}").type, f"{path}.{self.time}")
        return codec_of(pa.schema([part.field(self.time)]), path).canonical(rows)[self.time]

    def expired(self, keys: pa.Table, values: pa.Table, watermark: int | None) -> expiry.Mask:
        """Return which entries have expired at a watermark (microseconds; None: none yet), by `times`."""
        if not self.ttl:
            return np.zeros(keys.num_rows, np.bool_)
        return self.expired_at(self.times(keys, values), watermark)

    def expired_at(self, times: pa.ChunkedArray, watermark: int | None) -> expiry.Mask:
        """Return which entries with these `times` have expired at a watermark, in a store with a time to live."""
        return expiry.expired(times, self.ttl, watermark, f"stores.{self.name}.{self.time}")


def _meaning(raw: object, path: str) -> tuple[tuple[str, str], ...]:
    if raw is None:
        return ()
    if not isinstance(raw, Mapping) or not all(
        isinstance(text, str) for pair in raw.items() for text in pair
    ):
        raise InputError(
            path, found=raw, expected="a mapping of strings to strings, such as {'total': 'sum'}"
        )
    for said in (said for pair in raw.items() for said in pair if has_surrogates(said)):
        raise InputError(path, found=said, expected=NO_SURROGATES)
    return tuple(sorted(raw.items()))


class Store:
    """One store of one task during one batch.

    `late`: the watermark of the batch before, `now`: the batch's own (microseconds; None: unknown yet); without `now`
    both are the same.

    >>> store.put_many(table)                              # doctest: +SKIP
    >>> values, present = store.get_many(table)              # doctest: +SKIP
    """

    def __init__(
        self, schema: StoreSchema, copy: Copy, late: int | None = None, now: int | None = None
    ) -> None:
        self.schema = schema
        self._copy, self._late = copy, late
        #: Called with the keys of each access, before it; may refuse them.
        self.check_keys: Callable[[pa.Table], None] | None = None
        #: The watermark by which entries expire in this batch.
        self.now = late if now is None else now
        self._name, self._index_name = schema.database, expiry.index_of(schema.database)
        self._keys = codec_of(schema.key, f"stores.{schema.name}.key")
        self._values = codec_of(schema.value, f"stores.{schema.name}.value")
        self._last: tuple[pa.Table, list[bytes]] | None = None
        self._absent: bytes | None = None
        #: This batch's writes: encoded key -> encoded value, None for a deletion.
        self.writes: dict[bytes, bytes | None] = {}
        self._index: dict[bytes, bytes | None] = {}
        #: By key: expired values that were not removed yet when a row of this batch replaced them.
        self._displaced: dict[bytes, bytes] = {}
        #: The entries that `expire` removed, and the displaced ones: key and value columns.
        self.gone = pa.schema([*schema.key, *schema.value]).empty_table()
        #: The number of rows that were dropped as late.
        self.late = 0
        #: Whether `expire` has been called in this batch.
        self.expired = False
        #: The least time of the entries that `expire` left for the next batch (microseconds); None if none is left.
        self.held: int | None = None

    @property
    def _slot(self) -> int:
        """The longest time between an entry's time and its `due` in the index."""
        return 0 if self.schema.time in self.schema.key.names else expiry.slot_of(self.schema.ttl)

    @property
    def late_watermark(self) -> int | None:
        """The watermark by which rows are late; None: unknown yet."""
        return self._late

    @property
    def expiring(self) -> bool:
        """Whether `expire` left expired entries for the next batch."""
        return self.held is not None

    def changes(self) -> Changes:
        """Return the changes of this batch, by the store's name in the copy."""
        written = {self._name: self.writes, self._index_name: self._index}
        # Sorted here once: changelog and copy sort again, which is cheap for sorted keys.
        return {
            name: dict(zip(*in_order(entries), strict=True)) for name, entries in written.items() if entries
        }

    def get_many(self, keys: pa.Table) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
        """Return the values of `keys` (a table with the key columns), and which keys exist.

        Shapes: as many rows as `keys`, in its order; the rows of absent keys hold nulls.
        O(rows x log size). A key may appear several times.
        """
        raw = self._get(self._encoded(keys))
        values = self._decoded(raw)
        if self.schema.ttl and (stale := self.schema.expired(keys, values, self._late)).any():
            raw = [None if old else value for value, old in zip(raw, stale, strict=True)]
            values = self._decoded(raw)
        return values, _present(raw)

    def contains_many(self, keys: pa.Table) -> npt.NDArray[np.bool_]:
        """Return, for each of `keys`, whether the store has it."""
        if self.schema.ttl:
            return self.get_many(keys)[1]
        return _present(self._get(self._encoded(keys)))

    def put_many(self, rows: pa.Table) -> None:
        """Set the value of each key; `rows` has the key and the value columns. The last row of a key wins. O(rows).

        A row that has already expired counts as `late` and is dropped: its key keeps its value, from this batch or
        from before. So the last row of a key that has not expired wins.
        """
        keys, values = self._encoded(rows), self._values.encode(rows)
        if not self.schema.ttl:
            self.writes.update(zip(keys, values, strict=True))
            return
        times = self.schema.times(rows, rows)
        stale = self.schema.expired_at(times, self._late)
        self.late += int(stale.sum())
        live = np.flatnonzero(~stale).tolist()
        last = {keys[row]: row for row in live}
        self._displace(last)
        self.writes.update((key, values[row]) for key, row in last.items())
        self._enter(times, last)

    def _enter(self, column: pa.ChunkedArray, rows: Mapping[bytes, int]) -> None:
        """Add keys to the expiry index, unless it has them for that slot; `rows` has the row of each key."""
        times, known = expiry.micros(column)
        # A time in the key never changes, so such entries (windows) are removed when they expire, not a slot later.
        ends = expiry.due(times, self.schema.ttl) if self._slot else times
        wanted = {expiry.index_key(int(ends[row]), key): key for key, row in rows.items() if known[row]}
        new = [entry for entry in wanted if self._index.get(entry) is None]
        there = self._copy.get_many(self._index_name, new)
        self._index.update(
            (entry, wanted[entry])
            for entry, key in zip(new, there, strict=True)
            if key is None or entry in self._index  # missing, or removed by `expire` in this batch
        )

    def _displace(self, keys: Iterable[bytes]) -> None:
        """Remember expired values of these keys, before the keys are written for the first time in this batch.

        Such a value is invisible but still in the copy, and a processor that emits expired entries has not emitted it
        yet. If the time is in the key, a row for an expired entry is itself late, so it replaces nothing.
        """
        if self._late is None or not self._slot:
            return
        first = [key for key in keys if key not in self.writes]
        there = zip(first, self._copy.get_many(self._name, first), strict=True)
        stored = [(key, value) for key, value in there if value is not None]
        if stored:
            table = self._table(stored)
            stale = self.schema.expired(table, table, self._late)
            self._displaced.update(entry for entry, old in zip(stored, stale, strict=True) if old)

    def is_late(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        """Return which rows (with the column `time`) are late, and count them.

        A row is late if its entry would have expired: its time is judged as the store would keep it.
        """
        stale = self.schema.expired(rows, rows, self._late)
        self.late += int(stale.sum())
        return stale

    def delete_many(self, keys: pa.Table) -> None:
        """Remove `keys`; missing keys are allowed. O(rows)."""
        encoded = self._encoded(keys)
        if self.schema.ttl:
            self._displace(encoded)
        self.writes.update(dict.fromkeys(encoded))

    def expire(
        self, limit: int | None = None, limit_bytes: int | None = None, *, by_slot: bool = False
    ) -> None:
        """Remove entries that have expired by `now`, with those of this batch; `gone` has them.

        O(entries removed), and once for each time slot (`expiry.slot_of`) that `now` enters O(entries in it): those are
        looked at, and written to the index again. They count as removed, and if not all of them can be looked at in
        this batch, event time behind the node waits.

        Removes at most `limit` entries (`expiry.REMOVED_PER_BATCH`) and `limit_bytes` of encoded keys and values
        (`expiry.REMOVED_BYTES_PER_BATCH`), but at least one entry. The next batches remove the rest. The runtime
        calls it after the last node that uses the store; a processor that emits expired entries calls it itself in
        each batch, after it has written its rows. A second call in a batch does nothing.

        - `by_slot`: leave entries whose time slot (`expiry.slot_of`) has not ended, which costs less. The runtime does
          so: what it leaves is invisible all the same
        """
        if self.expired:
            return
        self.expired = True
        if not self.schema.ttl or self.now is None:
            return
        limit = expiry.REMOVED_PER_BATCH if limit is None else limit
        limit_bytes = expiry.REMOVED_BYTES_PER_BATCH if limit_bytes is None else limit_bytes
        by = self.now - self.schema.ttl
        ends = None if by_slot or not self._slot else by - by % self._slot + self._slot
        stored: dict[bytes, bytes | None] = {}
        early: set[bytes] = set()  # keys of the slot that has not ended
        size = number = 0
        for entry, key, value in self._due(by, ends):
            added = 0 if key in stored else len(key) + len(value or b"")
            if number and (number >= limit or size + added > limit_bytes):
                self.held = self._least(expiry.due_of(entry))
                break
            stored[key], self._index[entry] = value, None
            if expiry.due_of(entry) > by:
                early.add(key)
            size, number = size + added, number + 1
        gone = [self._table(list(self._displaced.items()))] if self._displaced else []
        there = ((key, value) for key, value in stored.items() if value is not None)
        for piece in pieces(self.schema.name, there, SCAN_ROWS, SCAN_BYTES):
            table = self._table(piece)
            stale = self.schema.expired(table, table, self.now)
            self.writes.update((key, None) for (key, _), old in zip(piece, stale, strict=True) if old)
            gone.append(table.filter(pa.array(stale)))
            if early:
                self._enter_times(table, [key for key, _ in piece], ~stale, early, ends)
        if gone:
            self.gone = pa.concat_tables(gone)

    def _least(self, due: int) -> int:
        """Return a time that no entry with this `due` is before: the start of its slot, unless `due` ends none."""
        return due if self._slot and due % self._slot else due - self._slot

    def _enter_times(
        self,
        table: pa.Table,
        keys: Sequence[bytes],
        live: npt.NDArray[np.bool_],
        early: set[bytes],
        ends: int | None,
    ) -> None:
        """Enter the keys of the slot that ends at `ends` with their times; keys of later slots have entries there."""
        times, known = expiry.micros(self.schema.times(table, table))
        for row in np.flatnonzero(live & known & (expiry.due(times, self.schema.ttl) == ends)).tolist():
            if keys[row] in early:
                self._index[expiry.index_key(int(times[row]), keys[row])] = keys[row]

    def _due(self, by: int, ends: int | None) -> Iterator[tuple[bytes, bytes, bytes | None]]:
        """Yield the due entries of the index in order: the index entry, the key, and the value if the key exists.

        `ends`: the end of the slot of `by`, whose entries are yielded as well; None: they are not. Values are read
        ahead in growing chunks, as long as they are small.
        """
        stored: Iterator[tuple[bytes, bytes]]
        stored = takewhile(lambda item: expiry.due_of(item[0]) <= by, self._copy.scan(self._index_name))
        if ends is not None and expiry.FIRST <= ends <= expiry.LAST:
            slot = self._copy.scan(self._index_name, expiry.index_start(ends))
            stored = chain(stored, takewhile(lambda item: expiry.due_of(item[0]) == ends, slot))
        written = sorted(
            (entry, key)
            for entry, key in self._index.items()
            if key is not None and (expiry.due_of(entry) <= by or expiry.due_of(entry) == ends)
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
        """Yield the whole store as it is at this call, in tables of key and value columns. No order.

        The batch's writes before the call are included. Those after it are not, also not in later tables.
        O(entries), and O(writes of the batch) for the call itself.
        """
        return self._scanned(dict(self.writes))

    def _scanned(self, written: Mapping[bytes, bytes | None]) -> Iterator[pa.Table]:
        """Yield the store with these writes; the copy itself changes only after the batch."""
        pending = ((key, value) for key, value in written.items() if value is not None)
        stored = self._copy.scan(self._name)
        if written:
            stored = (entry for entry in stored if entry[0] not in written)
        for piece in pieces(self.schema.name, chain(pending, stored), SCAN_ROWS, SCAN_BYTES):
            table = self._table(piece)
            stale = self.schema.expired(table, table, self._late)
            yield table.filter(pa.array(~stale)) if stale.any() else table

    def _encoded(self, keys: pa.Table) -> list[bytes]:
        """Return the encoded keys of an access, and check the keys.

        A processor often writes the keys that it has just read, so the last keys and their encodings are kept.
        """
        names = self.schema.key.names
        given = [name for name in keys.column_names if name in names]
        key = keys.select(names) if len(given) == len(set(given)) == len(names) else None
        if key is not None and self._last is not None and key.equals(self._last[0]):
            return self._last[1]
        encoded = self._keys.encode(keys)
        if self.check_keys is not None:
            self.check_keys(keys)
        self._last = None if key is None else (key, encoded)
        return encoded

    def _get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if not self.writes:
            return self._copy.get_many(self._name, keys)
        missing = [key for key in keys if key not in self.writes]
        stored = dict(zip(missing, self._copy.get_many(self._name, missing), strict=True))
        return [self.writes[key] if key in self.writes else stored[key] for key in keys]

    def _decoded(self, raw: Sequence[bytes | None]) -> pa.Table:
        """Return values as a table, with a row of nulls for a missing value."""
        if None in raw:
            raw = [self._null_row() if value is None else value for value in raw]
        return self._values.decode(cast("Sequence[bytes]", raw))

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


def _present(raw: Sequence[bytes | None]) -> npt.NDArray[np.bool_]:
    if None not in raw:
        return np.ones(len(raw), np.bool_)
    return np.fromiter((value is not None for value in raw), np.bool_, len(raw))
