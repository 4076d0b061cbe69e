"""The properties of Kafka's clients, as librdkafka names them, with the secrets among them.

**Idea.** A property may be written with a suffix: `sasl.password_env` names an environment variable, and
`sasl.password_file` a file. It is read when a client is made. So a file of settings has no secrets, and a password that
was changed is found when the client is made again.

Properties: no error and no representation shows a secret: a value from a file or a variable, or of a property whose
name says that it is secret. `ClientOptions.resolved` is the only method that returns secrets.

Errors: `InputError` for a property that taskplace sets itself, one with a suffix that it also reads, a missing variable
or file, and a value that is no text, number or boolean.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from taskplace.errors import InputError
from taskplace.redaction import HIDDEN, redacted, scrubbed
from taskplace.spark.worker.identity import this_process

_SERVERS = ("bootstrap.servers", "metadata.broker.list")
_SECRET = (
    "password", "passphrase", "secret", ".pem", "oauthbearer.config", "ssl_key",
    "user.info", "auth.token",  # of schema registries
)  # fmt: skip


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
        self.path = path if servers is None else f"{path}.options"
        if servers is not None and not (isinstance(servers, str) and servers.strip()):
            raise InputError(
                f"{path}.servers", found=servers, expected="brokers, like 'host:9092,other:9092'"
            )
        if not isinstance(given, Mapping):
            raise InputError(self.path, found=type(given).__name__, expected="a mapping of properties")
        meant = [property_of(str(name)) for name in given]
        for means, (name, value) in zip(meant, given.items(), strict=True):
            at = f"{self.path}.{name}"
            if not isinstance(name, str) or not isinstance(value, str | int | float):
                raise InputError(at, found=type(value).__name__, expected="a text, a number or true/false")
            if means in (*own, *_SERVERS):
                sets = (
                    "`servers` instead"
                    if means in _SERVERS
                    else "a property that taskplace does not set itself"
                )
                raise InputError(at, found=means, expected=sets)
            if meant.count(means) > 1:
                raise InputError(at, found="a property given twice", expected="one value")
        self._given: dict[str, Any] = dict(given)
        if servers is not None:
            self._given["bootstrap.servers"] = servers

    def __repr__(self) -> str:
        shown = {name: HIDDEN if is_secret(name) else redacted(value) for name, value in self._given.items()}
        return repr({name: shown[name] for name in sorted(shown) if name == property_of(name)})

    @property
    def servers(self) -> str:
        """The addresses of the brokers."""
        return str(self._given["bootstrap.servers"])

    def without_secrets(self) -> str:
        """Return all that was given as a text, with names of variables and files, and without secrets."""
        given = sorted(self._given.items())
        return repr([(name, HIDDEN if _is_written_secret(name) else value) for name, value in given])

    def get(self, name: str, default: Any) -> Any:
        """Return a property that taskplace itself reads, and that is no secret.

        Errors: `InputError` for one with a suffix: what a client finds there later could be another value.
        """
        for given, value in self._given.items():
            if property_of(given) == name:
                if given != name:
                    expected = f"`{name}` with the value itself, which taskplace has to know as well"
                    raise InputError(f"{self.path}.{given}", found=given, expected=expected)
                return value
        return default

    def resolved(self) -> dict[str, Any]:
        """Return the properties for a client, with their secrets. Errors: `InputError` for what cannot be read."""
        return {property_of(name): self._value(name, value) for name, value in self._given.items()}

    def _value(self, name: str, value: Any) -> Any:
        if name.endswith("_env"):
            if value in os.environ:
                return os.environ[value]
            expected = f"the environment variable {value!r} in the process that connects: {this_process()}"
            hint = f"on executors, set `spark.executorEnv.{value}`"
            raise InputError(f"{self.path}.{name}", found=None, expected=expected, hint=hint)
        if name.endswith("_file"):
            try:
                return Path(value).read_text(encoding="utf-8").removesuffix("\n")
            except (OSError, ValueError) as error:
                expected = f"a file {str(value)!r} that this process can read: {this_process()}"
                hint = type(error).__name__
                raise InputError(f"{self.path}.{name}", found=None, expected=expected, hint=hint) from None
        return value

    def scrubbed(self, text: str) -> str:
        """Return a text, such as what a client says, without the secrets."""
        for name, value in self._given.items():
            if name != property_of(name) or is_secret(name):
                try:
                    secret = str(self._value(name, value))
                except InputError:
                    continue
                text = text.replace(secret, HIDDEN) if secret else text
        return scrubbed(text)


def property_of(name: str) -> str:
    """Return the name of a property without the suffix that says where its value is.

    >>> property_of("sasl.password_env"), property_of("linger.ms")
    ('sasl.password', 'linger.ms')
    """
    return name.removesuffix("_env").removesuffix("_file")


def is_secret(name: str) -> bool:
    """Return whether a property of librdkafka is secret.

    >>> [is_secret(name) for name in ("sasl.password", "ssl.key.pem", "sasl.username", "ssl.key.location")]
    [True, True, False, False]
    """
    public = name in ("ssl.certificate.pem", "ssl.ca.pem")
    return not public and any(word in name.lower() for word in _SECRET)


def _is_written_secret(name: str) -> bool:
    """Return whether the value of a property is the secret itself, and not where it is."""
    return is_secret(name) and name == property_of(name)


def check_no_secrets(path: str, options: object, error: type[InputError] = InputError) -> None:
    """Refuse secrets that are written themselves, as in a file of settings. Errors: of the given kind."""
    for name in map(str, options if isinstance(options, Mapping) else ()):
        if _is_written_secret(name):
            expected = f"`{name}_env`, the name of a variable, or `{name}_file`, the path of a file"
            raise error(f"{path}.{name}", found=HIDDEN, expected=expected)


def check_client(path: str, error: type[InputError] = InputError) -> None:
    """Refuse an installation without Kafka's client. Errors: of the given kind."""
    if find_spec("confluent_kafka") is None:
        hint = "pip install 'taskplace[kafka]'"
        raise error(path, found="no package confluent_kafka", expected="Kafka's client", hint=hint)
