"""A schema registry, and Confluent's wire format: a zero byte and the four-byte id of a schema in front of a datum.

**Idea.** Confluent's own client asks the registry, caches what it was told, and tries again. Here is what becomes of
its answers. A client is made in the process that needs it, so secrets are read there.

Properties:
- an id that the registry does not have says something about a record; anything else that goes wrong does not;
- a question has an end: without `timeout`, a request waits for 30 seconds.

Errors: `InputError` with the registry's address.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from taskplace.errors import InputError
from taskplace.spark.kafka.clients import ClientOptions
from taskplace.validation import boolean

#: The registry's own number for an id that it does not have. A plain 404 comes from something that is no registry.
_UNKNOWN = 40403
_TIMEOUT = 30
#: By process and properties, with their secrets.
_clients: dict[tuple[int, str], Any] = {}


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
        properties = dict(properties)
        self._registers = boolean(
            properties.pop("auto.register.schemas", True), f"{path}.auto.register.schemas"
        )
        self._path, self._options = path, ClientOptions(path, None, properties)
        try:
            import_module("confluent_kafka.schema_registry")  # its own dependencies may be missing
        except ImportError as error:
            hint = "pip install 'taskplace[schema-registry]'"
            raise InputError(
                path, found=str(error), expected="a client of schema registries", hint=hint
            ) from None

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
        """Return the Avro schema with an id. Errors: `LookupError` if the registry has none with it."""
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            found = self._client().get_schema(number)
        except InputError:
            raise
        except Exception as error:
            if isinstance(error, SchemaRegistryError) and error.error_code == _UNKNOWN:
                raise LookupError("which the schema registry does not have") from None
            raise self._failed(error, f"the schema {number}, with which a record was written") from None
        if found.schema_type != "AVRO" or found.references:
            what = "refers to others" if found.references else f"is {found.schema_type}"
            raise LookupError(f"which {what}; only Avro without references is read")
        return str(found.schema_str)

    def number(self, subject: str, schema: str) -> int:
        """Return the id of a subject's schema, after it was registered if need be."""
        from confluent_kafka.schema_registry import Schema

        given = Schema(schema, "AVRO")
        try:
            client = self._client()
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
        return InputError(
            f"schema registry {self._options.scrubbed(self._options.get('url', ''))}",
            found=self._options.scrubbed(f"{type(error).__name__}: {error}"),
            expected=expected,
            hint=f"check `{self._path}`, and that the registry runs and lets this user in; nothing is lost: start the "
            "query again to continue",
        )
