"""The properties of Kafka clients, as librdkafka names them, and the secrets among them.

**Idea.** A property may be written with a suffix: `sasl.password_env` names an environment variable, and
`sasl.password_file` a file. It is read when a client is made. So a file of settings has no secrets, and a password that
was changed is found when the client is made again.

librdkafka knows some properties by two names (`linger.ms` is `queue.buffering.max.ms`). Both are one property here.

Properties:
- No error, log line or representation shows a secret: a value from a file or a variable, or of a property whose name
  says that it is secret.
- `resolved` is the only method that returns secrets. Clients get its result, and nothing keeps it.

Errors: `InputError` for a property that taskplace sets itself, one with a suffix that it also reads, a missing variable
or file, and a value that is no text, number or boolean.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from taskplace.errors import InputError
from taskplace.redaction import HIDDEN, redacted, scrubbed
from taskplace.spark.worker.identity import this_process

_SUFFIXES = ("_env", "_file")
#: The other names of properties, by the name that librdkafka lists them under.
ALIASES: Mapping[str, tuple[str, ...]] = {
    "auto.commit.enable": ("enable.auto.commit",),
    "compression.codec": ("compression.type",),
    "fetch.message.max.bytes": ("max.partition.fetch.bytes",),
    "max.in.flight.requests.per.connection": ("max.in.flight",),
    "message.send.max.retries": ("retries",),
    "message.timeout.ms": ("delivery.timeout.ms",),
    "metadata.broker.list": ("bootstrap.servers",),
    "queue.buffering.max.ms": ("linger.ms",),
    "request.required.acks": ("acks",),
    "sasl.mechanisms": ("sasl.mechanism",),
    "sasl.oauthbearer.client.id": ("sasl.oauthbearer.client.credentials.client.id",),
    "sasl.oauthbearer.client.secret": ("sasl.oauthbearer.client.credentials.client.secret",),
}
_LISTED = {alias: name for name, aliases in ALIASES.items() for alias in aliases}
_SECRET = (
    "password", "passphrase", "secret", ".pem", "oauthbearer.config", "ssl_key", "ssl.key.pem",
    "user.info", "auth.token",  # of schema registries
)  # fmt: skip


def is_secret(name: str) -> bool:
    """Return whether a property of librdkafka is secret.

    >>> [is_secret(name) for name in ("sasl.password", "ssl.key.pem", "sasl.username", "ssl.key.location")]
    [True, True, False, False]
    """
    public = name in ("ssl.certificate.pem", "ssl.ca.pem")
    return not public and any(word in name.lower() for word in _SECRET)


def check_no_secrets(path: str, options: Mapping[str, Any], error: type[InputError] = InputError) -> None:
    """Refuse secrets that are written themselves, as in a file of settings. Errors: of the given kind."""
    for name in options:
        if is_secret(str(name)) and name == _meant(str(name)):
            expected = f"`{name}_env`, the name of a variable, or `{name}_file`, the path of a file"
            raise error(f"{path}.{name}", found=HIDDEN, expected=expected)


class ClientOptions:
    """The properties of clients: `servers`, and what the user gives.

    >>> options = ClientOptions("KafkaSink", "localhost:9092", {"sasl.password": "hunter2", "linger.ms": 5})
    >>> options
    {'bootstrap.servers': 'localhost:9092', 'linger.ms': 5, 'sasl.password': '(hidden)'}
    >>> options.scrubbed("refused: hunter2")
    'refused: (hidden)'
    """

    def __init__(
        self, path: str, servers: object, given: Mapping[str, Any], *, own: Collection[str] = ()
    ) -> None:
        """`path`: where the options are written, for errors. `own`: the properties that the caller sets itself.

        `servers`: None for the client of a schema registry, whose properties are not below `options`.
        """
        if servers is not None and not (isinstance(servers, str) and servers.strip()):
            raise InputError(
                f"{path}.servers", found=servers, expected="brokers, like 'host:9092,other:9092'"
            )
        if not isinstance(given, Mapping):
            raise InputError(
                f"{path}.options", found=type(given).__name__, expected="a mapping of properties"
            )
        self._path = path if servers is None else f"{path}.options"
        self._given: dict[str, Any] = {}
        for name, value in given.items():
            at = f"{self._path}.{name}"
            if not isinstance(name, str) or not isinstance(value, str | int | float):
                raise InputError(at, found=type(value).__name__, expected="a text, a number or true/false")
            meant = listed_name(name)
            of_brokers = meant == listed_name("bootstrap.servers")
            if of_brokers or meant in map(listed_name, own):
                raise InputError(
                    at,
                    found=_meant(name),
                    expected="a property that taskplace does not set itself",
                    hint="set `servers`" if of_brokers else "",
                )
            if other := [each for each in self._given if listed_name(each) == meant]:
                expected = f"one value: {other[0]} is the same property"
                raise InputError(at, found="a property given twice", expected=expected)
            self._given[name] = value
        if servers is not None:
            self._given["bootstrap.servers"] = servers

    def __repr__(self) -> str:
        shown = {name: HIDDEN if is_secret(name) else redacted(value) for name, value in self._given.items()}
        return repr({name: shown[name] for name in sorted(shown) if name == _meant(name)})

    @property
    def servers(self) -> str:
        """The addresses of the brokers."""
        return str(self._given["bootstrap.servers"])

    def without_secrets(self) -> str:
        """Return all that was given as a text, with names of variables and files, and without secrets."""
        given = sorted(self._given.items())
        return repr([(n, HIDDEN if is_secret(n) and n == _meant(n) else value) for n, value in given])

    def get(self, name: str, default: Any) -> Any:
        """Return a property that taskplace itself reads, and that is no secret.

        Errors: `InputError` for one with a suffix: what a client finds there later could be another value.
        """
        meant = listed_name(name)
        for given, value in self._given.items():
            if listed_name(given) == meant:
                if given != _meant(given):
                    expected = f"`{_meant(given)}` with the value itself, which taskplace has to know as well"
                    raise InputError(f"{self._path}.{given}", found=given, expected=expected)
                return value
        return default

    def resolved(self) -> dict[str, Any]:
        """Return the properties for a client, with their secrets. Errors: `InputError` for what cannot be read."""
        return {_meant(name): self._value(name, value) for name, value in self._given.items()}

    def _value(self, name: str, value: Any) -> Any:
        at = f"{self._path}.{name}"
        if name.endswith("_env"):
            if value not in os.environ:
                expected = (
                    f"the environment variable {value!r} in the process that connects: {this_process()}"
                )
                hint = f"set it there, on executors with `spark.executorEnv.{value}`; or name a file that has the value"
                raise InputError(at, found=None, expected=expected, hint=hint)
            return os.environ[value]
        if name.endswith("_file"):
            try:
                return Path(value).read_text(encoding="utf-8").removesuffix("\n")
            except (OSError, ValueError) as error:
                expected = f"a file {str(value)!r} that this process can read: {this_process()}"
                raise InputError(at, found=None, expected=expected, hint=type(error).__name__) from None
        return value

    def scrubbed(self, text: str) -> str:
        """Return a text, such as what a client says, without the secrets."""
        for name, value in self._given.items():
            if name != _meant(name) or is_secret(name):
                try:
                    secret = str(self._value(name, value))
                except InputError:
                    continue
                text = text.replace(secret, HIDDEN) if secret else text
        return scrubbed(text)


def listed_name(name: str) -> str:
    """Return the name under which librdkafka lists a property, which may be written with a suffix or by another name.

    >>> [listed_name(name) for name in ("bootstrap.servers", "linger.ms_env", "client.id")]
    ['metadata.broker.list', 'queue.buffering.max.ms', 'client.id']
    """
    return _LISTED.get(_meant(name), _meant(name))


def _meant(name: str) -> str:
    """Return the name of the property, without the suffix that says where its value is."""
    return next((name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix)), name)
