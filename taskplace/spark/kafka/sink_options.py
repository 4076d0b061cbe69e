"""Checks the arguments of a `KafkaSink`, and makes the form of its records of them.

Errors: `InputError` with the path of the argument, what was found and what is expected.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from taskplace.errors import InputError
from taskplace.spark.kafka import avro
from taskplace.spark.kafka.avro import SchemaRegistry
from taskplace.spark.kafka.clients import ClientOptions
from taskplace.spark.kafka.dead_letters import DeadLetterFormat
from taskplace.spark.kafka.record_format import Part, RecordFormat
from taskplace.validation import integer, named, nearest

PATH = "KafkaSink"
FORMATS = ("json", "raw", "avro")
#: The properties of clients that the sink sets itself.
OWN = (
    "bootstrap.servers",
    "client.id",
    "delivery.report.only.error",
    "enable.auto.commit",
    "enable.idempotence",
    "enable.partition.eof",
    "error_cb",
    "group.id",
    "isolation.level",
    "logger",
    "on_delivery",
    "transactional.id",
)
#: librdkafka's default of `message.max.bytes`.
MAX_BYTES = 1_000_000
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def form_of_records(
    given: Mapping[str, object], *, dead_letters: bool, max_bytes: int, topic: str = ""
) -> RecordFormat:
    """Return the form of the records. `given`: the arguments about it, by name; None: not given."""
    if dead_letters:
        for name, value in given.items():
            if value is not None:
                expected = f"no `{name}`: a dead letter is the record as it was"
                raise InputError(f"{PATH}.{name}", found=value, expected=expected)
        return DeadLetterFormat(max_bytes=max_bytes)
    key, key_format, key_schema = (given[name] for name in ("key", "key_format", "key_schema"))
    timestamp, deleted = given["timestamp"], given["deleted"]
    asked = given.get("registry")
    registry = None if asked is None else SchemaRegistry(f"{PATH}.registry", asked)
    key_part = None if key is None else _part("key", key, key_format, key_schema, default="")
    value_part = _part("value", given["value"], given["value_format"], given["value_schema"])
    form = RecordFormat(
        key=key_part and replace(key_part, registry=registry, subject=f"{topic}-key"),
        value=replace(value_part, registry=registry, subject=f"{topic}-value"),
        headers=_headers(given["headers"], f"{PATH}.headers"),
        timestamp=None if timestamp is None else _column(timestamp, f"{PATH}.timestamp"),
        deleted=None if deleted is None else _column(deleted, f"{PATH}.deleted"),
        max_bytes=max_bytes,
    )
    if registry is not None and not any(part and part.schema for part in (form.key, form.value)):
        expected = "value_format or key_format avro as well"
        raise InputError(f"{PATH}.registry", found="no Avro", expected=expected)
    if key is None and (key_format is not None or key_schema is not None or deleted is not None):
        option = "deleted" if deleted is not None else "key_format"
        raise InputError(f"{PATH}.{option}", found=option, expected="`key` as well")
    return form


def topic_name(given: object, argument: str) -> str:
    """Return the name of a topic."""
    if not isinstance(given, str) or not _TOPIC.fullmatch(given) or given in (".", ".."):
        expected = "a topic: up to 249 letters, digits, '.', '_' and '-'"
        raise InputError(f"{PATH}.{argument}", found=given, expected=expected)
    return given


def one_of(given: object, argument: str, known: Sequence[str]) -> str:
    """Return a value that has to be one of a few."""
    if given not in known:
        expected = f"one of {', '.join(known)}"
        raise InputError(f"{PATH}.{argument}", found=given, expected=expected, hint=nearest(given, known))
    return str(given)


def number(options: ClientOptions, name: str, default: int, least: int) -> int:
    """Return a property of clients that is a number."""
    value = options.get(name, default)
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    return integer(value, f"{PATH}.options.{name}", least) or default


def _column(given: object, path: str) -> str:
    return named(given, path, "the name of a column")


def _columns(given: object, path: str) -> tuple[str, ...]:
    if isinstance(given, str):
        return (_column(given, path),)
    if not isinstance(given, Sequence) or not given:
        raise InputError(path, found=given, expected="the name of a column, or several")
    names = tuple(_column(name, path) for name in given)
    if len(set(names)) != len(names):
        raise InputError(path, found=given, expected="each column once")
    return names


def _part(name: str, columns: object, given: object, schema: object, *, default: str = "json") -> Part:
    path = f"{PATH}.{name}"
    chosen = default if given is None else one_of(given, f"{name}_format", FORMATS)
    names = None if columns is None else _columns(columns, path)
    if (chosen == "avro") != (schema is not None):
        found = "no schema" if schema is None else f"a schema beside the format {chosen or 'raw or json'}"
        raise InputError(f"{path}_schema", found=found, expected="the format avro with a schema")
    if chosen == "raw" and (names is None or len(names) > 1):
        raise InputError(path, found=columns, expected="one column for the format raw")
    text = avro.schema_text(schema, f"{path}_schema") if schema is not None else ""
    if text and avro.fields_of(text) is not None and isinstance(columns, str):
        columns = [columns]  # the schema is a record, also for one column
    return Part(columns=names, single=isinstance(columns, str), format=chosen, schema=text)


def _headers(given: object, path: str) -> tuple[tuple[str, str], ...]:
    if given is None:
        return ()
    if isinstance(given, Mapping):
        return tuple(
            (named(name, path, "the name of a header"), _column(column, path))
            for name, column in given.items()
        )
    return tuple((name, name) for name in _columns(given, path))
