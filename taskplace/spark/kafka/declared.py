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
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from taskplace.errors import ConfigError, InputError
from taskplace.spark.kafka.options import check_client, check_no_secrets
from taskplace.spec.nodes import KafkaInput, given

if TYPE_CHECKING:
    from taskplace.spark.kafka.formats import Format
    from taskplace.spark.kafka.records import KafkaRecords

#: The fields that are arguments of the decoder.
_DECODER = ("key", "value", "include", "tombstone", "bad_records")


def declared_records(path: str, entry: KafkaInput) -> KafkaRecords:
    """Return the records of a topic that an entry describes. `path`: where the entry is, such as input.flights.kafka.

    Asks no broker. Errors: `ConfigError`.
    """
    check_client(path, ConfigError)
    from taskplace.spark.kafka.decoding import Decoder
    from taskplace.spark.kafka.records import KafkaRecords

    fields = with_servers(path, given(entry))
    check_no_secrets(f"{path}.options", fields.get("options"), ConfigError)
    of_decoder = {name: fields.pop(name) for name in _DECODER if name in fields}
    for name in {"key", "value"} & of_decoder.keys():
        of_decoder[name] = _format(f"{path}.{name}", of_decoder[name])
    try:
        return KafkaRecords(decoder=Decoder(**of_decoder), **fields)
    except InputError as error:
        raise _in_file(path, error) from None


def with_servers(path: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an entry with `servers` in place of `servers_env`. Errors: `ConfigError`."""
    fields, brokers = dict(given), "brokers, like 'host:9092,other:9092'"
    if (variable := fields.pop("servers_env", None)) is not None:
        if fields.get("servers") is not None:
            raise ConfigError(f"{path}.servers_env", found=variable, expected="`servers` or `servers_env`")
        fields["servers"] = os.environ.get(variable, "").strip()
        if not fields["servers"]:
            expected = f"an environment variable that has {brokers}"
            raise ConfigError(f"{path}.servers_env", found=variable, expected=expected)
    if fields.get("servers") is None:
        raise ConfigError(f"{path}.servers", found=None, expected=f"{brokers}; or `servers_env`")
    return fields


def _format(path: str, entry: Struct) -> Format:
    """Return the format that the field `key` or `value` describes."""
    from taskplace.spark.kafka import formats

    fields = given(entry)
    check_no_secrets(f"{path}.registry", fields.get("registry"), ConfigError)
    try:
        made: Format = getattr(formats, type(entry).__name__)(**fields)
        return made
    except InputError as error:
        raise _in_file(path, error) from None


def _in_file(path: str, error: InputError) -> ConfigError:
    """Return an error of a class (`Raw.kind`) with its path in the file."""
    _, dot, rest = error.path.partition(".")
    return error.at(f"{path}{dot}{rest}")
