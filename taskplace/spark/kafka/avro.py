"""Reads and writes Avro with fastavro: schemas as Arrow columns, data, and the ids of a schema registry.

Schemas: types are those that Spark can pass to a task. Logical types other than those of `_TIMES` and decimals are
removed from a schema to read by, as Avro's specification allows: such values are read as the type below. A UUID is the
text that it is written as.

Values: the writer's logical type says what is written, so a writer in milliseconds can be read in microseconds. What
has none, and the default of a field that the writer did not know, is converted by the reader's: a default is JSON, with
bytes as the code points of ISO 8859-1, and belongs to the first type of a union. Nobody vouches for data: a datum of a
few bytes takes neither the memory nor the stack of the process, nor minutes.

The registry: Confluent's own client asks it, caches what it was told, and tries again. A client is made in the process
that needs it, so secrets are read there. An id that the registry does not have says something about a record; anything
else that goes wrong does not.

Errors: `InputError` with the path inside the schema, the value found, and what is expected, or with the registry's
address; `ValueError` for a value that does not fit a schema, which names fields, and no values.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

from taskplace.errors import InputError
from taskplace.spark.kafka.options import ClientOptions
from taskplace.validation import boolean, named

_PLAIN: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_BEGIN = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_LOCAL = _BEGIN.replace(tzinfo=None)
#: The logical types of times, their first value, and the unit of what is added to it.
_TIMES: Mapping[str, tuple[pa.DataType, Any, str]] = {
    "date": (pa.date32(), _BEGIN.date(), "days"),
    "timestamp-millis": (pa.timestamp("us", tz="UTC"), _BEGIN, "milliseconds"),
    "timestamp-micros": (pa.timestamp("us", tz="UTC"), _BEGIN, "microseconds"),
    "local-timestamp-millis": (pa.timestamp("us"), _LOCAL, "milliseconds"),
    "local-timestamp-micros": (pa.timestamp("us"), _LOCAL, "microseconds"),
}
MOST_DIGITS = 38
#: A decimal, as fastavro knows it here: its own reader rounds to the precision, and takes 90 s for a decimal of 1 MB.
_DECIMAL = "taskplace-decimal"
#: The registry's own number for an id that it does not have. A plain 404 comes from something that is no registry.
_UNKNOWN = 40403
_TIMEOUT = 30
#: By process and properties, with their secrets.
_clients: dict[tuple[int, str], Any] = {}


class Undecodable(Exception):
    """A payload that cannot be decoded; its text is the reason."""


def read_schema(given: object, path: str) -> Any:
    """Return a schema to read by: as of `schema_text`, without the logical types that are not read."""
    from fastavro.schema import expand_schema

    schema = json.loads(schema_text(given, path), object_hook=_known)
    for part in _parts(expand_schema(schema)):
        if isinstance(part, Mapping) and part["type"] == "array" and _takes_no_bytes(part["items"]):
            expected = "items that take bytes, or a few bytes are an array of any length"
            raise InputError(path, found="an array whose items take no bytes", expected=expected)
    return schema


def schema_text(given: object, path: str) -> str:
    """Return a schema as JSON. `given`: a mapping, JSON, or the path of an .avsc file.

    Errors: `InputError` for text that is not JSON, a file that cannot be read, and what fastavro refuses.
    """
    schema = given
    try:
        import fastavro

        if isinstance(schema, Path) or (isinstance(schema, str) and schema.endswith(".avsc")):
            schema = Path(schema).expanduser().read_text(encoding="utf-8")
        if isinstance(schema, str) and schema.lstrip()[:1] in ("{", "[", '"'):
            schema = json.loads(schema)
        fastavro.parse_schema(schema)
        return json.dumps(schema)
    except ImportError:
        hint = "pip install 'taskplace[kafka]'"
        raise InputError(path, found="no package fastavro", expected="fastavro", hint=hint) from None
    except Exception as error:  # fastavro has several kinds
        expected = "an Avro schema: a mapping, its JSON, or the path of an .avsc file"
        hint = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        raise InputError(path, found=given, expected=expected, hint=hint) from None


def arrow_columns(schema: Any, column: str | None, path: str) -> pa.Schema:
    """Return the columns of a schema that `read_schema` returned: a record's fields, or the column named `column`."""
    from fastavro.schema import expand_schema

    whole = expand_schema(schema)  # named types are written out where they are used
    kind = _arrow_type(whole, path)
    is_record = isinstance(whole, dict) and whole["type"] == "record"
    if is_record and column is None:
        return pa.schema(list(kind))
    if is_record or column is None:
        found, expected = ("a record", "no name") if is_record else ("no record", "a name")
        expected = f"{expected} of a column, because the schema is {found}"
        raise InputError("Avro.column", found=column, expected=expected)
    return pa.schema([(named(column, "Avro.column", "the name of a column"), kind)])


def fields_of(text: str) -> Sequence[str] | None:
    """Return the names of a record's fields; None for a schema that is no record.

    >>> fields_of('{"type": "record", "name": "a", "fields": [{"name": "x", "type": "long"}]}'), fields_of('"string"')
    (['x'], None)
    """
    schema = json.loads(text)
    if not isinstance(schema, Mapping) or schema.get("type") != "record":
        return None
    return [field["name"] for field in schema["fields"]]


def encode(text: str, value: Any, *, header: bytes = b"") -> bytes:
    """Return a value's bytes behind a header. Errors: `ValueError` with the fields that do not fit, and no value."""
    import fastavro
    from fastavro.validation import ValidationError, validate

    out, schema = io.BytesIO(header), _parsed(text)
    out.seek(len(header))
    try:
        fastavro.schemaless_writer(out, schema, value)
    except Exception as error:  # fastavro has several kinds, and most show the value
        says = type(error).__name__
        try:
            validate(value, schema)
        except ValidationError as misfit:
            says = ", ".join(f"{each.field or 'the value'} is no {each.schema}" for each in misfit.errors)
        except Exception:
            pass
        raise ValueError(says) from None
    return out.getvalue()


@lru_cache(maxsize=64)
def _parsed(text: str) -> Any:
    import fastavro

    return fastavro.parse_schema(json.loads(text))


@lru_cache(maxsize=64)
def reader_of(writer: str, reader: str) -> Callable[[bytes], Any]:
    """Return what reads a datum of one schema by another one; both are JSON of what `read_schema` returned."""
    import fastavro
    from fastavro import _read_py
    from fastavro.schema import expand_schema

    for kind in ("bytes", "fixed"):
        fastavro.read.LOGICAL_READERS[f"{kind}-{_DECIMAL}"] = _decimal
    parsed, wanted = _parsed(writer), _parsed(reader)
    # fastavro's compiled reader follows a type that contains itself until the stack of the process is used up.
    names = [part for part in _parts(expand_schema(parsed)) if isinstance(part, str)]
    itself = not {*names} <= {*_PLAIN, "null"}
    read = _read_py.schemaless_reader if itself else fastavro.schemaless_reader
    other = None if writer == reader else wanted
    typed = None if writer == reader else _typed(expand_schema(wanted))

    def decode(payload: bytes) -> Any:
        stream = io.BytesIO(payload)
        value = read(stream, parsed, other)
        if left := len(payload) - stream.tell():
            raise Undecodable(f"{left} bytes behind the datum")
        return value if typed is None else typed(value)

    return decode


def _known(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part of a schema without a logical type that is not read."""
    logical = part.pop("logicalType", "")
    known = _DECIMAL if logical == "decimal" else logical
    return {**part, "logicalType": known} if known in (*_TIMES, _DECIMAL) else part


def _decimal(data: bytes, schema: Mapping[str, Any], reader: object = None) -> Decimal:
    digits = int.from_bytes(data, "big", signed=True)
    if abs(digits) >= 10 ** schema["precision"]:
        raise ValueError("more digits than the precision")
    return Decimal(f"{digits}e-{schema.get('scale', 0)}")


def _typed(schema: Any) -> Callable[[Any], Any] | None:
    """Return what converts defaults, and values that are read as the type below a logical one; None: nothing does."""
    if isinstance(schema, list):
        inner = next((_typed(each) for each in schema if each != "null"), None)
        return inner and (lambda value: None if value is None else inner(value))
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(kind, dict | list):
        return _typed(kind)
    logical = schema.get("logicalType", "") if isinstance(schema, dict) else ""
    if logical in _TIMES:
        _, first, unit = _TIMES[logical]
        return lambda value: first + dt.timedelta(**{unit: value}) if isinstance(value, int) else value
    if kind in ("bytes", "fixed"):
        if logical:
            return lambda value: value if isinstance(value, Decimal) else _decimal(_bytes(value), schema)
        return _bytes
    if kind in ("array", "map"):
        of = _typed(schema["items" if kind == "array" else "values"])
        if of is None or kind == "array":
            return of and (lambda value: [of(each) for each in value])
        return lambda value: {name: of(each) for name, each in value.items()}
    if kind != "record":
        return None
    fields = [(each["name"], _typed(each["type"]), each.get("default")) for each in schema["fields"]]

    def record(value: Mapping[str, Any]) -> Mapping[str, Any]:
        row = dict(value)
        for name, convert, default in fields:
            given = row.get(name, default)
            row[name] = given if convert is None else convert(given)
        return row

    return record


def _bytes(value: Any) -> Any:
    return value.encode("iso-8859-1") if isinstance(value, str) else value


def _parts(schema: Any) -> Iterator[Any]:
    """Yield an Avro schema, and the schemas of its items, values and fields."""
    yield schema
    inner = schema if isinstance(schema, list) else []
    if isinstance(schema, Mapping):
        inner = [schema[name] for name in ("items", "values") if name in schema]
        inner += [each["type"] for each in schema.get("fields", ())]
        inner += [schema["type"]] if not isinstance(schema["type"], str) else []
    for each in inner:
        yield from _parts(each)


def _takes_no_bytes(schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return bool(schema == "null")
    fields = schema.get("fields", ())
    if schema["type"] == "record":
        return all(_takes_no_bytes(each["type"]) for each in fields)
    return schema.get("size") == 0 or _takes_no_bytes(schema["type"])


def _arrow_type(schema: Any, path: str) -> pa.DataType:
    if isinstance(schema, list):
        others = [each for each in schema if each != "null"]
        if len(others) != 1:
            found = f"a union of {len(schema)} types"
            raise InputError(path, found=found, expected="one type, or one type and null")
        return _arrow_type(others[0], path)
    if not isinstance(schema, dict):
        if schema not in _PLAIN:
            expected = "a type with values, and no record that contains itself"
            raise InputError(path, found=schema, expected=expected)
        return _PLAIN[schema]
    kind, logical = schema["type"], schema.get("logicalType", "")
    if logical in _TIMES:
        return _TIMES[logical][0]
    if logical:
        if schema["precision"] > MOST_DIGITS:
            found = f"a decimal of {schema['precision']} digits"
            raise InputError(path, found=found, expected=f"at most {MOST_DIGITS}")
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if kind == "record":
        names = [each["name"] for each in schema["fields"]]
        kinds = [_arrow_type(each["type"], f"{path}.{each['name']}") for each in schema["fields"]]
        return pa.struct(list(zip(names, kinds, strict=True)))
    if kind == "array":
        return pa.list_(_arrow_type(schema["items"], f"{path}.items"))
    if kind == "map":
        return pa.map_(pa.string(), _arrow_type(schema["values"], f"{path}.values"))
    return _arrow_type(kind, path)


class SchemaRegistry:
    """A registry. `given`: its URL, or the properties of Confluent's client with `url` among them.

    `<name>_env` and `<name>_file` say where a value is. With `auto.register.schemas` false, schemas are looked up only.

    >>> SchemaRegistry("registry", {"url": "http://sr:8081", "basic.auth.user.info": "me:hunter2"})
    {'basic.auth.user.info': '(hidden)', 'url': 'http://sr:8081'}
    """

    def __init__(self, path: str, given: object) -> None:
        properties = {"url": given} if isinstance(given, str) else given
        if not isinstance(properties, Mapping) or not isinstance(properties.get("url"), str):
            expected = "the URL of a schema registry, or properties of its client with `url`"
            raise InputError(path, found=type(given).__name__, expected=expected)
        properties, registers = dict(properties), "auto.register.schemas"
        self._registers = boolean(properties.pop(registers, True), f"{path}.{registers}")
        self._path, self._options = path, ClientOptions(path, None, properties)
        try:
            import_module("confluent_kafka.schema_registry")  # its own dependencies may be missing
        except ImportError as error:
            hint = "pip install 'taskplace[schema-registry]'"
            expected = "a client of schema registries"
            raise InputError(path, found=str(error), expected=expected, hint=hint) from None

    def __repr__(self) -> str:
        return repr(self._options)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SchemaRegistry) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[str, bool]:
        return self._options.without_secrets(), self._registers

    def schema(self, number: int) -> str:
        """Return the Avro schema with an id. Errors: `Undecodable` if the registry has none with it."""
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            found = self._client().get_schema(number)
        except InputError:
            raise
        except Exception as error:
            if isinstance(error, SchemaRegistryError) and error.error_code == _UNKNOWN:
                raise Undecodable("which the schema registry does not have") from None
            raise self._failed(error, f"the schema {number}, with which a record was written") from None
        if found.schema_type != "AVRO" or found.references:
            what = "refers to others" if found.references else f"is {found.schema_type}"
            raise Undecodable(f"which {what}; only Avro without references is read")
        return str(found.schema_str)

    def number(self, subject: str, schema: str) -> int:
        """Return the id of a subject's schema, after it was registered if need be."""
        from confluent_kafka.schema_registry import Schema

        try:
            client, given = self._client(), Schema(schema, "AVRO")
            if self._registers:
                return int(client.register_schema(subject, given))
            return int(client.lookup_schema(subject, given).schema_id)
        except InputError:
            raise
        except Exception as error:
            raise self._failed(error, f"the id of the schema of subject {subject!r}") from None

    def _client(self) -> Any:
        from confluent_kafka.schema_registry import SchemaRegistryClient

        properties = {"timeout": _TIMEOUT, **self._options.resolved()}
        key = os.getpid(), str(sorted(properties.items()))
        if key not in _clients:
            try:
                _clients[key] = SchemaRegistryClient(properties)
            except Exception as error:  # a wrong property, a certificate that cannot be read
                found = self._options.scrubbed(f"{type(error).__name__}: {error}")
                raise InputError(self._path, found=found, expected="properties of its client") from None
        return _clients[key]

    def _failed(self, error: Exception, expected: str) -> InputError:
        path = f"schema registry {self._options.scrubbed(self._options.get('url', ''))}"
        found = self._options.scrubbed(f"{type(error).__name__}: {error}")
        hint = f"check `{self._path}`, and that the registry runs and lets this user in"
        return InputError(path, found=found, expected=expected, hint=hint)


def header(number: int) -> bytes:
    """Return what stands before a datum.

    >>> header(7)
    b'\\x00\\x00\\x00\\x00\\x07'
    """
    return b"\0" + number.to_bytes(4, "big")


def number_of(payload: bytes) -> int | None:
    """Return the id before a datum; None without one. A registry's ids have 31 bits: it would refuse the question.

    >>> number_of(header(7)), number_of(b"\\0\\xff\\xff\\xff\\xff")
    (7, None)
    """
    is_one = len(payload) >= 5 and not payload[0] and payload[1] < 128
    return int.from_bytes(payload[1:5], "big") if is_one else None
