"""The formats of Kafka's keys and values: each decodes bytes to typed Arrow columns.

**Idea.** A format declares its columns, and decodes a list of payloads to a table with these columns. A payload that
does not fit is a *fault*: its row has only nulls, and the reason stands beside the table. What becomes of it is not the
format's decision (`taskplace.spark.kafka.decoding`).

| format | payload | library |
|---|---|---|
| `Json` | one JSON object | msgspec |
| `Avro` | one Avro datum, plain or with the id of its writer's schema in front | fastavro |
| `Raw` | bytes, UTF-8 text, or a number as Kafka's serializers write it | Arrow, numpy |

Properties:
- types are those that Spark can pass to a task. Decoding is strict: a text is no number, and 1.5 is no integer;
- a field that is missing or null is a null;
- a reason names columns and types, and never shows a value;
- a format is plain data, so it can be sent to executors.

Errors: `InputError` for a wrong declaration, with its path. Payloads raise nothing.
"""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Any, NotRequired, Protocol, TypedDict

import msgspec
import numpy as np
import pyarrow as pa

from taskplace.errors import InputError
from taskplace.spark.kafka.avro_types import arrow_columns, read_schema
from taskplace.spark.processors.base import columns_of
from taskplace.spark.state.columns import arrow_schema
from taskplace.spark.state.values import table_of
from taskplace.validation import named, nearest

#: By place in the list of payloads, why a payload could not be decoded.
Faults = Mapping[int, str]

T = pa.types


class Format(Protocol):
    """What a decoder needs of a format. `columns`: those that it decodes to."""

    @property
    def columns(self) -> pa.Schema:
        """The columns that it decodes to."""
        ...

    def read(self, payloads: Sequence[bytes]) -> tuple[pa.Table, Faults]:
        """Return one row for each payload, and the faults. O(bytes)."""
        ...


@dataclass(frozen=True, init=False)
class Json:
    """JSON objects, as columns with declared types. Fields that are not declared are ignored.

    - `columns`: the fields with their types

    Times are texts of RFC 3339 and are rounded to microseconds; a column with a zone needs one in the text, a column
    without a zone refuses one. Binaries are base64. Decimals are numbers, or texts of numbers as casts of columns take
    them (`taskplace.spark.state.casts`): `"1.50"`, and not `"1_000"`. The keys of maps are texts.

    >>> flights = Json({"id": "int64", "tags": "array<string>"})
    >>> rows, faults = flights.read([b'{"id": 1, "tags": ["a"]}', b'{"id": "1"}'])
    >>> rows.to_pylist()
    [{'id': 1, 'tags': ['a']}, {'id': None, 'tags': None}]
    >>> faults
    {1: 'JSON: Expected `int | null`, got `str` - at `$.id`'}
    """

    columns: pa.Schema

    def __init__(self, columns: Mapping[str, object] | pa.Schema) -> None:
        given = arrow_schema(columns_of(columns, "Json.columns"), "Json.columns")
        schema = pa.schema([(field.name, _nullable(field.type)) for field in given])
        for field in schema:
            _json_type(field.type, f"Json.columns.{field.name}")
        object.__setattr__(self, "columns", schema)

    def read(self, payloads: Sequence[bytes]) -> tuple[pa.Table, Faults]:
        """Return the rows of JSON objects."""
        return _rows(payloads, _json_decoder(self.columns), self.columns, "JSON")


@dataclass(frozen=True, init=False)
class Avro:
    """Avro data, as the columns of the given record schema.

    - `schema`: the schema by which data is read, as a mapping or as JSON text
    - `column`: the name of the column, if the schema is no record
    - `writers`: the schemas of the writers by id, if each payload begins with a zero byte and the four-byte id of its
      writer's schema, as a schema registry's serializers write it. Data of a writer is resolved to `schema`

    Logical types: dates, timestamps in milliseconds or microseconds (with and without a zone), decimals, UUIDs as text.
    Others are read as the type below them. A union is a type and null.

    >>> schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
    >>> rows, faults = Avro(schema).read([bytes([2]), b""])
    >>> rows.to_pylist(), faults
    ([{'id': 1}, {'id': None}], {1: 'Avro: not a datum of the schema (EOFError)'})
    """

    columns: pa.Schema
    schema: str
    column: str | None
    writers: Mapping[int, str]

    def __init__(
        self,
        schema: Mapping[str, Any] | str | list[Any],
        *,
        column: str | None = None,
        writers: Mapping[int, Any] = MappingProxyType({}),
    ) -> None:
        if not isinstance(writers, Mapping) or not all(
            isinstance(number, int) and not isinstance(number, bool) for number in writers
        ):
            raise InputError(
                "Avro.writers", found=writers, expected="schemas by their ids, which are integers"
            )
        written = read_schema(schema, "Avro.schema")
        object.__setattr__(self, "schema", json.dumps(written))
        object.__setattr__(self, "column", column)
        object.__setattr__(self, "columns", arrow_columns(written, column, "Avro.schema"))
        readable = {
            number: json.dumps(read_schema(each, f"Avro.writers.{number}"))
            for number, each in writers.items()
        }
        object.__setattr__(self, "writers", readable)

    def read(self, payloads: Sequence[bytes]) -> tuple[pa.Table, Faults]:
        """Return the rows of Avro data."""
        decode = self._framed if self.writers else self._plain(self.schema)
        return _rows(payloads, decode, self.columns, "Avro")

    def _framed(self, payload: bytes) -> Mapping[str, Any]:
        if len(payload) < 5 or payload[0]:
            raise _Fault("no zero byte and schema id in front")
        number = int.from_bytes(payload[1:5], "big")
        if number not in self.writers:
            raise _Fault(f"written with schema {number}, known are {sorted(self.writers)}")
        return self._plain(self.writers[number])(payload[5:])

    def _plain(self, writer: str) -> Callable[[bytes], Mapping[str, Any]]:
        decode, column = _avro_decoder(writer, self.schema), self.column
        return decode if column is None else lambda payload: {column: decode(payload)}


#: The types of `Raw` whose values have a fixed size, by name: as Kafka's serializers write them.
_NUMBERS: Mapping[str, str] = {
    "int16": ">i2",
    "int32": ">i4",
    "int64": ">i8",
    "float32": ">f4",
    "float64": ">f8",
}
_RAW = ("binary", "string", *_NUMBERS)


@dataclass(frozen=True, init=False)
class Raw:
    """The bytes themselves, as one column.

    - `column`: its name
    - `kind`: "binary" (any bytes), "string" (UTF-8), or "int16", "int32", "int64", "float32", "float64": big-endian,
      as Kafka's own serializers write numbers

    >>> rows, faults = Raw("id", "int32").read([b"\\x00\\x00\\x00\\x07", b"7"])
    >>> rows["id"].to_pylist(), faults
    ([7, None], {1: 'int32: 1 bytes, expected 4'})
    """

    column: str
    kind: str

    def __init__(self, column: str, kind: str = "binary") -> None:
        named(column, "Raw.column", "the name of a column")
        if kind not in _RAW:
            raise InputError(
                "Raw.kind", found=kind, expected=f"one of {list(_RAW)}", hint=nearest(str(kind), _RAW)
            )
        object.__setattr__(self, "column", column)
        object.__setattr__(self, "kind", kind)

    @property
    def columns(self) -> pa.Schema:
        """The one column."""
        return arrow_schema({self.column: self.kind})

    def read(self, payloads: Sequence[bytes]) -> tuple[pa.Table, Faults]:
        """Return the payloads as a column of the type."""
        faults = {at: why for at, payload in enumerate(payloads) if (why := self._fault(payload))}
        # A faulty number has the bytes of zero, and is set to null below.
        zero = bytes(self._width) if self._width else b""
        usable = [zero if at in faults else payload for at, payload in enumerate(payloads)]
        values = (
            np.frombuffer(b"".join(usable), _NUMBERS[self.kind]).astype(_NUMBERS[self.kind][1:])
            if self._width
            else [payload.decode() for payload in usable]
            if self.kind == "string"
            else usable
        )
        bad = np.zeros(len(payloads), np.bool_)
        bad[list(faults)] = True
        kind = self.columns.field(0).type
        return pa.table({self.column: pa.array(values, kind, mask=bad)}, self.columns), faults

    @property
    def _width(self) -> int:
        return int(_NUMBERS[self.kind][2:]) if self.kind in _NUMBERS else 0

    def _fault(self, payload: bytes) -> str:
        if self._width:
            return (
                f"{self.kind}: {len(payload)} bytes, expected {self._width}"
                if len(payload) != self._width
                else ""
            )
        if self.kind == "string":
            try:
                payload.decode()
            except UnicodeDecodeError as error:
                return f"string: not UTF-8 (byte {error.start})"
        return ""


# ------------------------------------------------------------------------------------------- rows


class _Fault(Exception):
    """A payload that cannot be decoded; its text is the reason."""


def _rows(
    payloads: Iterable[bytes], decode: Callable[[bytes], Mapping[str, Any]], columns: pa.Schema, what: str
) -> tuple[pa.Table, dict[int, str]]:
    """Return the rows that `decode` makes of payloads. A row whose values do not fit the columns is a fault as well."""
    rows: list[Mapping[str, Any]] = []
    faults: dict[int, str] = {}
    for at, payload in enumerate(payloads):
        try:
            rows.append(decode(payload))
        except _Fault as error:
            faults[at] = f"{what}: {error}"
            rows.append({})
    try:
        return table_of(rows, columns, what), faults
    except InputError:
        for at, row in enumerate(rows):
            try:
                table_of([row], columns, what)
            except InputError as error:
                faults[at] = f"{what}: a value that does not fit its type at {error.path}"
                rows[at] = {}
        return table_of(rows, columns, what), faults


# ------------------------------------------------------------------------------------------- JSON


@lru_cache(maxsize=64)
def _json_decoder(columns: pa.Schema) -> Callable[[bytes], Mapping[str, Any]]:
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(
        _json_struct(columns, "Json.columns"), dec_hook=_json_decimal, float_hook=str
    )

    def decode(payload: bytes) -> Mapping[str, Any]:
        try:
            row: Mapping[str, Any] = decoder.decode(payload)
        except msgspec.DecodeError as error:  # names fields and types, and no values
            raise _Fault(str(error)) from None
        except (ValueError, RecursionError) as error:
            raise _Fault(f"not JSON in UTF-8 ({type(error).__name__})") from None
        return row

    return decode


#: The letters of numbers. Of texts of these alone, Python takes those that casts of columns take.
_NUMBER_LETTERS = frozenset("0123456789+-.eE")


class _Decimal(decimal.Decimal):
    """A decimal that msgspec does not make itself: it would take any text that Python takes, such as `1_000`."""


def _json_decimal(_: type, value: Any) -> _Decimal:
    """Return a decimal of an integer, or of the text of another number or of a string."""
    if type(value) is int or (type(value) is str and _NUMBER_LETTERS.issuperset(value)):
        try:
            return _Decimal(value)
        except decimal.InvalidOperation:
            pass
    raise ValueError(f"Expected a decimal or the text of one, got `{type(value).__name__}`")


def _json_struct(fields: Iterable[pa.Field], path: str) -> Any:
    members = {field.name: NotRequired[_json_type(field.type, f"{path}.{field.name}")] for field in fields}
    return TypedDict("Row", members)  # type: ignore[operator]


def _json_type(kind: pa.DataType, path: str) -> Any:
    """Return the type as which msgspec decodes a column's values. Errors: `InputError` for types without one."""
    return _json_value(kind, path) | None


def _json_value(kind: pa.DataType, path: str) -> Any:
    if T.is_signed_integer(kind):
        most = 2 ** (kind.bit_width - 1)
        return Annotated[int, msgspec.Meta(ge=-most, le=most - 1)]
    if T.is_timestamp(kind):
        return Annotated[dt.datetime, msgspec.Meta(tz=kind.tz is not None)]
    if T.is_list(kind):
        return list[_json_type(kind.value_type, f"{path}.element")]  # type: ignore[misc]
    if T.is_struct(kind):
        return _json_struct(kind.fields, path)
    if T.is_map(kind) and T.is_string(kind.key_type):
        return dict[str, _json_type(kind.item_type, f"{path}.value")]  # type: ignore[misc]
    for is_kind, python_type in _JSON_PLAIN:
        if is_kind(kind):
            return python_type
    raise InputError(
        path,
        found=str(kind),
        expected="a boolean, signed integer, float, decimal, string, binary, date or timestamp, a list, a struct, or "
        "a map with string keys",
    )


def _nullable(kind: pa.DataType) -> pa.DataType:
    """Return a type all of whose parts may be null, because any field of a record may be missing."""
    if T.is_list(kind):
        return pa.list_(_nullable(kind.value_type))
    if T.is_struct(kind):
        return pa.struct([(field.name, _nullable(field.type)) for field in kind.fields])
    if T.is_map(kind):
        return pa.map_(kind.key_type, _nullable(kind.item_type))
    return kind


_JSON_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], Any], ...] = (
    (T.is_boolean, bool),
    (T.is_float32, int | float),  # an integer is not rounded: a float holds it, or it is a fault
    (T.is_float64, int | float),
    (T.is_decimal128, _Decimal),
    (T.is_string, str),
    (T.is_binary, bytes),
    (T.is_date32, dt.date),
)


# ------------------------------------------------------------------------------------------- Avro


@lru_cache(maxsize=64)
def _avro_decoder(writer: str, reader: str) -> Callable[[bytes], Any]:
    import fastavro  # only those who use Avro need it

    parsed, wanted = (fastavro.parse_schema(json.loads(text)) for text in (writer, reader))

    def decode(payload: bytes) -> Any:
        stream = io.BytesIO(payload)
        try:
            row = fastavro.schemaless_reader(stream, parsed, wanted)
        except Exception as error:  # whatever the bytes lead to; its message may show them
            raise _Fault(f"not a datum of the schema ({type(error).__name__})") from None
        if left := len(payload) - stream.tell():
            raise _Fault(f"{left} bytes behind the datum")
        return row

    return decode
