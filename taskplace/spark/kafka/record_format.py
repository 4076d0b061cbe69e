"""Turns the rows of a sink into Kafka records: key, value, headers and timestamp.

**Idea.** Task and driver encode a row in the same way. The task does it to refuse, before the batch is committed, what
Kafka would refuse after it. The driver does it to send the record.

    raw     the bytes of one column; a string as UTF-8; a null is Kafka's null
    json    one column: its value (`42`); several columns: an object (`{"id": 42}`)
    avro    the same by a given schema; with a schema registry, its id stands before the bytes

In JSON, decimals are strings with all the digits of their type and no exponent (`"0.00"`, as Debezium's
`decimal.handling.mode: string` has them), bytes are base64, times are ISO 8601, and the keys of maps are strings.

Properties:
- A row of which the column `deleted` is true is a tombstone: a record with a null value, which deletes its key. So is a
  row with a null in the column of a `raw` value. Other formats have no tombstone without `deleted`.
- A record has a key if the sink has one: a null there is refused, because its record would go to any partition.
- Equal rows have equal records.

Errors: `InputError` for columns that are missing or have another type, for a null in the key, a tombstone without a
key, NaN in JSON, and a record that is larger than `max_bytes`; also for a record's time before 1970, and for a time in
a value beyond the years 1 to 9999. Errors show no key and no value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from taskplace.errors import InputError
from taskplace.spark.kafka import avro
from taskplace.spark.kafka.avro import SchemaRegistry, header
from taskplace.spark.worker.schemas import left_out
from taskplace.validation import one_of

T = pa.types
#: The rows that are encoded at a time, and their bytes, unless one row has more.
CHUNK, CHUNK_BYTES = 10_000, 8 << 20
#: The rows that are read first: they say how large a row is. A file says less, because it keeps equal values once.
FIRST = 16
#: What is read of a column at a time, instead of all of it.
BUFFER_BYTES = 1 << 20
#: What a record needs in a request beside its key, value and headers, at most.
OVERHEAD = 128
HEADER_OVERHEAD = 16
_FITS = "a row that fits the format {}"
_json = msgspec.json.Encoder()


class Record(NamedTuple):
    """One Kafka record. `timestamp`: milliseconds since 1970; 0: the time at which it is sent."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int

    @property
    def size(self) -> int:
        """The bytes that it takes in a request, at most."""
        headers = sum(HEADER_OVERHEAD + len(name.encode()) + len(of or b"") for name, of in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers + OVERHEAD


@dataclass(frozen=True, kw_only=True)
class Part:
    """How a key or a value is made of columns.

    - `columns`: None: all columns that are not used as header, time or mark of deletion
    - `single`: one column was named, so its value is not put into an object
    - `format`: raw, json or avro; "" for a key: raw for a column of strings or bytes, json otherwise
    - `schema`: JSON of the Avro schema; `registry`: where it gets its id, under `subject`
    """

    columns: tuple[str, ...] | None
    single: bool = False
    format: str = "json"
    schema: str = ""
    registry: SchemaRegistry | None = None
    subject: str = ""

    def header(self, *, numbered: bool = True) -> bytes:
        """Return what stands before each datum. `numbered`: with the id, for which the registry may be asked."""
        if self.registry is None or not self.schema:
            return b""
        return header(self.registry.number(self.subject, self.schema) if numbered else 0)


@dataclass(frozen=True, kw_only=True)
class RecordFormat:
    """The form of a sink's records. It is the sink's `taskplace.spark.targets.CommitTarget.row_check` as well."""

    key: Part | None
    value: Part
    headers: tuple[tuple[str, str], ...] = ()
    timestamp: str | None = None
    deleted: str | None = None
    max_bytes: int = 1_000_000
    #: False in tasks, which only measure records, and do not ask a schema registry.
    numbered: bool = True

    def check_columns(self, sink: str, schema: pa.Schema) -> None:
        """Refuse columns that are missing, or have a type that the format cannot hold. A column may have no type."""
        path = f"sinks.{sink}.target"
        for what, part in (("key", self.key), ("value", self.value)):
            if part is None:
                continue
            columns = self.columns_of(part, schema)
            if not columns:
                raise InputError(f"{path}.{what}", found="no columns", expected=f"columns of {schema.names}")
            expected, fits = "maps with strings as keys", _has_text_keys
            if part.format == "raw":
                expected, fits = "a string or binary column", _is_bytes
            for column in columns:
                _check(f"{path}.{what}", schema, column, expected, fits)
        for _, column in self.headers:
            _check(f"{path}.headers", schema, column, "a string or binary column", _is_bytes)
        if self.timestamp is not None:
            _check(f"{path}.timestamp", schema, self.timestamp, "a timestamp column", T.is_timestamp)
        if self.deleted is not None:
            _check(f"{path}.deleted", schema, self.deleted, "a boolean column", T.is_boolean)

    def check_rows(self, sink: str, rows: pa.Table) -> None:
        """Refuse rows that cannot be sent. O(rows): encodes them."""
        self.check_columns(sink, rows.schema)
        for record in replace(self, numbered=False).records(sink, rows):
            if record.size > self.max_bytes:
                found = f"a record of {record.size} bytes, of which {len(record.key or b'')} are its key"
                hint = "set `message.max.bytes` in the sink's options, and `max.message.bytes` of the topic"
                path, most = f"sinks.{sink}", f"at most {self.max_bytes} bytes"
                raise InputError(path, found=found, expected=most, hint=hint)

    def records(self, sink: str, rows: pa.Table) -> Iterator[Record]:
        """Yield the record of each row, in their order. Errors: for rows that `check_rows` refuses but for its size."""
        for start in range(0, rows.num_rows, CHUNK):
            for piece in _pieces(rows.slice(start, CHUNK)):
                yield from self._chunk(sink, piece)

    def _chunk(self, sink: str, rows: pa.Table) -> Iterator[Record]:
        path = f"sinks.{sink}"
        keys: Sequence[bytes | None] = [None] * rows.num_rows
        if self.key is not None:
            keys = self._encoded(f"{path}.key", rows, self.key)
            names = self.columns_of(self.key, rows.schema)
            if len(names) == 1 and rows[names[0]].null_count:
                expected = "a value: rows of one key are ordered, and rows without a key are not"
                raise InputError(f"{path}.key", found=f"a null in column {names[0]!r}", expected=expected)
        values = self._encoded(f"{path}.value", rows, self.value)
        if self.deleted is not None:
            marks = rows[self.deleted].to_pylist()
            values = [None if mark else value for mark, value in zip(marks, values, strict=True)]
        if self.key is None and None in values:
            raise InputError(f"{path}.value", found="a null, which is a tombstone", expected="a key")
        yield from map(Record, keys, values, self._header_lists(rows), self._times(path, rows))

    def columns_of(self, part: Part, schema: pa.Schema) -> Sequence[str]:
        """Return the columns that a part is made of."""
        if part.columns is not None:
            return part.columns
        if part.schema and (fields := avro.fields_of(part.schema)) is not None:
            return fields
        used = {self.timestamp, self.deleted, *(column for _, column in self.headers)}
        return [name for name in schema.names if name not in used]

    def _encoded(self, path: str, rows: pa.Table, part: Part) -> list[bytes | None]:
        columns = self.columns_of(part, rows.schema)
        chosen = part.format
        if not chosen:
            raw = part.single and _is_bytes(rows.schema.field(columns[0]).type)
            chosen = "raw" if raw else "json"
        if chosen == "raw":
            return rows[columns[0]].cast(pa.binary()).to_pylist()
        table = rows.select(list(columns))
        encode: Callable[[Any], bytes] = _json.encode
        if chosen == "json":
            _check_finite(path, table)
        else:
            encode = partial(avro.encode, part.schema, header=part.header(numbered=self.numbered))
        values = _values(path, table, part.single, chosen)
        try:
            return [encode(value) for value in values]
        except (ValueError, TypeError, KeyError) as error:
            found = str(error) if chosen == "avro" else _cannot(error)  # `avro.encode` shows no value
            raise InputError(path, found=found, expected=_FITS.format(chosen)) from None

    def _header_lists(self, rows: pa.Table) -> list[list[tuple[str, bytes | None]]]:
        if not self.headers:
            return [[]] * rows.num_rows
        columns = [rows[column].cast(pa.binary()).to_pylist() for _, column in self.headers]
        names = [name for name, _ in self.headers]
        return [
            [(name, value) for name, value in zip(names, row, strict=True) if value is not None]
            for row in zip(*columns, strict=True)
        ]

    def _times(self, path: str, rows: pa.Table) -> list[int]:
        if self.timestamp is None:
            return [0] * rows.num_rows
        column = rows[self.timestamp]
        if T.is_timestamp(column.type):
            millis = pc.CastOptions(pa.timestamp("ms", column.type.tz), allow_time_truncate=True)
            try:
                column = column.cast(options=millis).cast(pa.int64())
            except pa.ArrowInvalid:  # seconds that are no milliseconds
                column = pa.chunked_array([[-1]])
        times = column.to_pylist()
        if any(time is not None and time <= 0 for time in times):  # 0 means the time of sending
            found = "a time before 1970, or its first millisecond, or after the year 292,277,022"
            raise InputError(f"{path}.timestamp", found=found, expected="a time that Kafka's client can send")
        return [time or 0 for time in times]


def records(form: RecordFormat, sink: str, files: Iterable[Path]) -> Iterator[Record]:
    """Yield the records of staged files, in their order."""
    for file in files:
        for rows in tables(file):
            yield from form.records(sink, rows)


def tables(file: Path) -> Iterator[pa.Table]:
    """Yield the rows of a staged file, with the columns that it leaves out because they have only nulls.

    A table has at most `CHUNK` rows. It is read in steps of about `CHUNK_BYTES`; one row may be larger.
    """
    opened = pq.ParquetFile(file, buffer_size=BUFFER_BYTES)
    missing = list(left_out(opened.metadata.metadata))
    for batch in _batches(opened):
        rows = pa.Table.from_batches([batch])
        for place, name in missing:
            rows = rows.add_column(place, name, pa.nulls(rows.num_rows))
        yield rows


def _batches(opened: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    """Yield the rows; after the first ones, in steps that go by the size of a row in the file and in memory."""
    whole = opened.metadata
    if not whole.num_rows:
        return
    in_file = sum(whole.row_group(group).total_byte_size for group in range(whole.num_row_groups))
    first = next(opened.iter_batches(batch_size=FIRST))
    size = max(in_file / whole.num_rows, first.nbytes / first.num_rows, 1.0)
    yield from opened.iter_batches(batch_size=max(1, min(CHUNK, int(CHUNK_BYTES / size))))


def _pieces(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield rows in their order, in halves of halves of at most `CHUNK_BYTES`, or one row."""
    if rows.num_rows < 2 or rows.nbytes <= CHUNK_BYTES:
        yield rows
        return
    half = rows.num_rows // 2
    yield from _pieces(rows.slice(0, half))
    yield from _pieces(rows.slice(half))


def _values(path: str, rows: pa.Table, single: bool, chosen: str) -> list[Any]:
    """Return the rows, or their one column, as Python values. Errors: `InputError`, which shows none of them."""
    kind = pa.struct(list(rows.schema))
    maps = _has(kind, T.is_map)  # Arrow is much slower with the argument
    try:
        found: list[Any] = (rows.column(0) if single else rows).to_pylist(
            **({"maps_as_pydicts": "strict"} if maps else {})
        )
    except (KeyError, OverflowError, ValueError, TypeError) as error:
        said = _cannot(error)
        if isinstance(error, KeyError):
            said = "a map that has a key twice"
        elif isinstance(error, OverflowError):
            columns = [field.name for field in rows.schema if _has(field.type, T.is_temporal)]
            said = f"a time that Python does not have, in one of the columns {columns}"
        raise InputError(path, found=said, expected=_FITS.format(chosen)) from None
    return [*map(_plain, found)] if chosen == "json" and _has(kind, T.is_decimal) else found


def _plain(value: Any) -> Any:
    """Return a value in which decimals are texts without exponents."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [*map(_plain, value)] if isinstance(value, list) else value


def _cannot(error: Exception) -> str:
    """Return what is wrong, without the error's text, which may show a value."""
    return f"a value that cannot be encoded ({type(error).__name__})"


def _is_bytes(kind: pa.DataType) -> bool:
    return T.is_string(kind) or T.is_binary(kind) or T.is_large_string(kind) or T.is_large_binary(kind)


def _check(
    path: str, schema: pa.Schema, column: str, expected: str, fits: Callable[[pa.DataType], bool]
) -> None:
    kind = schema.field(one_of(column, path, schema.names)).type
    if not T.is_null(kind) and not fits(kind):
        raise InputError(path, found=f"{column!r}, {kind}", expected=expected)


def _inner(kind: pa.DataType) -> list[pa.DataType]:
    return [kind.field(i).type for i in range(kind.num_fields)]


def _has(kind: pa.DataType, test: Callable[[pa.DataType], bool]) -> bool:
    return test(kind) or any(_has(inner, test) for inner in _inner(kind))


def _has_text_keys(kind: pa.DataType) -> bool:
    if T.is_map(kind) and not T.is_string(kind.key_type):
        return False
    return all(map(_has_text_keys, [kind.item_type] if T.is_map(kind) else _inner(kind)))


def _check_finite(path: str, rows: pa.Table) -> None:
    """Refuse NaN and infinity, which JSON cannot say, in columns and inside of them."""
    for name in rows.column_names:
        parts = list(rows[name].chunks)
        while parts:
            part = parts.pop()
            if T.is_floating(part.type) and not pc.all(pc.is_finite(part), min_count=0).as_py():
                found, expected = f"NaN or infinity in column {name!r}", "numbers that JSON has"
                raise InputError(path, found=found, expected=expected)
            if T.is_map(part.type):
                parts.append(part.items)
            elif T.is_nested(part.type):
                flat = part.flatten()
                parts += flat if T.is_struct(part.type) else [flat]
