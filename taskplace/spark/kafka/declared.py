"""Makes `KafkaRecords` of an entry in YAML, and reads the addresses of brokers there.

    input:
      flights:
        kafka:
          topic: flights
          servers: broker-1:9092,broker-2:9092      # or servers_env: the environment variable that has them
          key: {format: raw, column: tailnum, kind: string}
          value: {format: json, columns: {origin: string, dep_delay: int64}}
          most_records: 10000

The fields are the arguments of `KafkaRecords` and of its `Decoder`. A `format` has the arguments of `Json`, `Avro` or
`Raw`; an Avro schema may be the path of an `.avsc` file.

Errors: `ConfigError` with the path in the file. It shows no secret, and a secret itself is refused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taskplace.dotted_keys import nested_options
from taskplace.errors import ConfigError, InputError
from taskplace.spark.kafka.clients import check_no_secrets
from taskplace.spark.yaml_words import refused
from taskplace.yaml_fields import KAFKA_FORMATS, KAFKA_INPUT

if TYPE_CHECKING:
    from taskplace.spark.kafka.formats import Format
    from taskplace.spark.kafka.records import KafkaRecords

_ENTRY = "{topic: ..., servers: ..., value: {format: json, columns: {...}}}"
_FORMAT = "{format: json, columns: {id: int64}}, {format: avro, schema: ...} or {format: raw, column: id}"
_SCHEMA = "an Avro schema: a mapping, its JSON, or the path of an .avsc file"
#: The fields that are arguments of the decoder, beside the formats.
_DECODER = ("include", "tombstone", "bad_records")


def declared_records(path: str, entry: object) -> KafkaRecords:
    """Return the records of a topic that an entry describes. `path`: where the entry is, such as input.flights.kafka.

    Asks no broker. Errors: `ConfigError`.
    """
    if find_spec("confluent_kafka") is None:
        raise ConfigError(
            path,
            found="no package confluent_kafka",
            expected="Kafka's client",
            hint="pip install 'taskplace[kafka]'",
        )
    from taskplace.spark.kafka.decoding import Decoder
    from taskplace.spark.kafka.records import KafkaRecords

    if not isinstance(entry, Mapping):
        raise ConfigError(path, found=entry, expected=_ENTRY)
    given = with_servers(path, nested_options(entry))
    for name in given:
        if name not in KAFKA_INPUT:
            raise ConfigError.unknown_key(path, name, KAFKA_INPUT)
    for name in ("topic", "value"):
        if given.get(name) is None:
            raise ConfigError(f"{path}.{name}", found=None, expected=_ENTRY)
    if isinstance(options := given.get("options"), Mapping):
        check_no_secrets(f"{path}.options", options, ConfigError)
    formats: dict[str, Any] = {
        name: _format(f"{path}.{name}", given.pop(name))
        for name in ("key", "value")
        if given.get(name) is not None
    }
    given.pop("key", None)
    of_decoder = {name: given.pop(name) for name in _DECODER if name in given}
    try:
        return KafkaRecords(decoder=Decoder(**formats, **of_decoder), **given)
    except InputError as error:
        raise _in_file(path, error) from None


def with_servers(path: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an entry with `servers` in place of `servers_env`. Errors: `ConfigError`."""
    fields = dict(given)
    if (variable := fields.pop("servers_env", None)) is not None:
        if fields.get("servers") is not None:
            raise ConfigError(f"{path}.servers_env", found=variable, expected="`servers` or `servers_env`")
        at = f"{path}.servers_env"
        if not isinstance(variable, str) or not os.environ.get(variable, "").strip():
            raise ConfigError(
                at,
                found=variable,
                expected="an environment variable that has brokers, like 'host:9092,other:9092'",
            )
        fields["servers"] = os.environ[variable]
    if fields.get("servers") is None:
        hint = "or set `servers_env`, the environment variable that has them"
        raise ConfigError(
            f"{path}.servers", found=None, expected="brokers, like 'host:9092,other:9092'", hint=hint
        )
    return fields


def _format(path: str, entry: object) -> Format:
    """Return the format that the field `key` or `value` describes."""
    from taskplace.spark.kafka.formats import Avro, Json, Raw

    if not isinstance(entry, Mapping) or not isinstance(entry.get("format"), str):
        raise ConfigError(path, found=entry, expected=_FORMAT)
    fields = dict(entry)
    name = fields.pop("format")
    if name not in KAFKA_FORMATS:
        raise ConfigError(f"{path}.format", found=name, expected=f"one of {', '.join(KAFKA_FORMATS)}")
    required, *_ = known = KAFKA_FORMATS[name]
    for field in fields:
        if field not in known:
            raise ConfigError.unknown_key(path, field, ("format", *known))
    if fields.get(required) is None:
        raise ConfigError(f"{path}.{required}", found=None, expected=_FORMAT)
    try:
        if name == "json":
            return Json(**fields)
        if name == "raw":
            return Raw(**fields)
        if isinstance(registry := fields.get("registry"), Mapping):
            check_no_secrets(f"{path}.registry", registry, ConfigError)
        fields["schema"] = _schema(f"{path}.schema", fields["schema"])
        if isinstance(writers := fields.get("writers"), Mapping):
            fields["writers"] = {
                number: _schema(f"{path}.writers.{number}", each) for number, each in writers.items()
            }
        return Avro(**fields)
    except InputError as error:
        raise error if isinstance(error, ConfigError) else _in_file(path, error) from None


def _schema(path: str, given: object) -> object:
    """Return an Avro schema, read from its file if the path of one is given."""
    if not isinstance(given, str) or not given.endswith(".avsc"):
        return given
    try:
        return Path(given).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        hint = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(path, found=given, expected=_SCHEMA, hint=hint) from None


def _in_file(path: str, error: InputError) -> ConfigError:
    """Return an error of a class (`Raw.kind`) with its path in the file."""
    _, dot, rest = error.path.partition(".")
    return refused(f"{path}{dot}{rest}", error)
