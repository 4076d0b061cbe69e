"""Kafka's clients: their properties, as librdkafka names them, with the secrets among them; and what their errors mean.

**Idea.** A property may be written with a suffix: `sasl.password_env` names an environment variable, and
`sasl.password_file` a file. It is read when a client is made. So a file of settings has no secrets, and a password that
was changed is found when the client is made again. librdkafka knows some properties by two names (`linger.ms` is
`queue.buffering.max.ms`). Both are one property here.

librdkafka tries a failed request again by itself, and reports a wrong password only to a callback. `Clients` keeps what
the callback said. So a sink does not wait for minutes for a broker that refuses it, and an error has the cause, not
only "timed out".

Properties:
- No error, log line or representation shows a secret: a value from a file or a variable, or of a property whose name
  says that it is secret. `ClientOptions.resolved` is the only method that returns secrets; nothing keeps its result.
- librdkafka's own log lines go to the logger `taskplace.kafka`: one line for the same cause of all clients, at growing
  intervals.

Errors: `InputError` for a property that taskplace sets itself, one with a suffix that it also reads, a missing variable
or file, and a value that is no text, number or boolean.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Collection, Container, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from taskplace.errors import InputError, SinkError
from taskplace.logs import RepeatedWarnings
from taskplace.redaction import HIDDEN, redacted, scrubbed
from taskplace.spark.worker.identity import this_process

if TYPE_CHECKING:
    import confluent_kafka as ck
    from confluent_kafka.admin import AdminClient


log = logging.getLogger("taskplace.kafka")
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
#: Properties that only producers take, and that a sink's options may have.
_OF_PRODUCERS = frozenset(
    (
        "acks", "batch.num.messages", "batch.size", "compression.codec", "compression.level", "compression.type",
        "delivery.timeout.ms", "enable.gapless.guarantee", "linger.ms", "message.send.max.retries",
        "message.timeout.ms", "partitioner", "queue.buffering.max.kbytes", "queue.buffering.max.messages",
        "queue.buffering.max.ms", "request.required.acks", "request.timeout.ms", "retries",
        "sticky.partitioning.linger.ms", "transaction.timeout.ms",
    )
)  # fmt: skip
#: No broker has answered, by the name of the code.
UNANSWERED = frozenset(("_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT", "_TRANSPORT"))
#: What a broker refuses a client for before it answers anything, by the name of its code, with the remedy.
CREDENTIALS = {
    "_AUTHENTICATION": "check the credentials in the {}",
    "SASL_AUTHENTICATION_FAILED": "check the credentials in the {}",
    "_SSL": "check the certificates in the {}",
    "UNSUPPORTED_SASL_MECHANISM": "check `sasl.mechanism` in the {}",
}
#: What does not pass by waiting, by the name of its code, with the remedy.
PERMANENT = {
    **{name: remedy.format("sink's options") for name, remedy in CREDENTIALS.items()},
    "CLUSTER_AUTHORIZATION_FAILED": "allow `IdempotentWrite` on the cluster",
    "TOPIC_AUTHORIZATION_FAILED": "allow `Write` and `Describe` on the topic, and on the marker topic `Read` as well",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "allow `Write` and `Describe` on transactional ids with the prefix "
    "'taskplace-'",
    "INVALID_TRANSACTION_TIMEOUT": "set `transaction.timeout.ms` in the sink's options to at most the brokers' "
    "`transaction.max.timeout.ms`",
    "MSG_SIZE_TOO_LARGE": "raise `max.message.bytes` of the topic; it has become smaller than the sink's "
    "`message.max.bytes`",
    "INVALID_TIMESTAMP": "raise `message.timestamp.before.max.ms` and `message.timestamp.after.max.ms` of the topic",
    "INVALID_RECORD": "a compacted topic takes records with a key only",
    "POLICY_VIOLATION": "ask the administrator of the brokers",
}
#: After so long without an answer, a line says so, in seconds.
SILENT_SECONDS = 4.0
#: What a producer queues at most, in KiB, unless `message.max.bytes` needs more. librdkafka's default is 1 GiB.
QUEUE_KBYTES = 64 << 10
_NO_DEFAULTS: Mapping[str, Any] = MappingProxyType({})
#: Of all clients of this process.
REPEATED = RepeatedWarnings()
#: What differs between clients and tries in a line of librdkafka: the client, its thread, and the time that it took.
_VARYING = re.compile(r"^\w+ \[.*?\]: |/(?:bootstrap|\d+)(?=: )| \(after \d.*")


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


def check_client(path: str, error: type[InputError] = InputError) -> None:
    """Refuse an installation without Kafka's client. Errors: of the given kind."""
    if find_spec("confluent_kafka") is None:
        hint = "pip install 'taskplace[kafka]'"
        raise error(path, found="no package confluent_kafka", expected="Kafka's client", hint=hint)


def listed_name(name: str) -> str:
    """Return the name under which librdkafka lists a property, which may be written with a suffix or by another name.

    >>> [listed_name(name) for name in ("bootstrap.servers", "linger.ms_env", "client.id")]
    ['metadata.broker.list', 'queue.buffering.max.ms', 'client.id']
    """
    return _LISTED.get(_meant(name), _meant(name))


def _meant(name: str) -> str:
    """Return the name of the property, without the suffix that says where its value is."""
    return next((name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix)), name)


class Clients:
    """Makes clients with the properties of one sink. `name` is for their log lines."""

    def __init__(self, options: ClientOptions, name: str) -> None:
        self._options, self._name = options, name
        self._refused: ck.KafkaError | None = None
        #: Whether a producer has lost a connection, or found none, since this was last set to False. Other clients do
        #: not count: their connections say nothing of the records.
        self.disturbed = False

    def producer(self, own: Mapping[str, Any]) -> ck.Producer:
        """Return a producer; `own` has the sink's own properties. Errors: `InputError` for what librdkafka refuses."""
        import confluent_kafka as ck

        return self._made(ck.Producer, own, self._defaults())

    def _defaults(self) -> dict[str, Any]:
        """Return the properties of producers that a user may set to something else."""
        largest = int(self._options.get("message.max.bytes", 0)) >> 10
        return {
            "partitioner": "murmur2_random",
            "queue.buffering.max.kbytes": max(QUEUE_KBYTES, 2 * largest),
        }

    def consumer(self, own: Mapping[str, Any]) -> ck.Consumer:
        """Return a consumer. Errors: as for `producer`."""
        import confluent_kafka as ck

        return self._made(ck.Consumer, own)

    def admin(self) -> AdminClient:
        """Return an admin client. Errors: as for `producer`."""
        from confluent_kafka.admin import AdminClient

        return self._made(AdminClient, {})

    def _made(self, kind: Any, own: Mapping[str, Any], defaults: Mapping[str, Any] = _NO_DEFAULTS) -> Any:
        self._refused = None
        named = {
            "client.id": f"taskplace-{self._name}",
            "error_cb": partial(self._on_error, of_producer=kind.__name__ == "Producer"),
        }
        return made(kind, self._options, own, {**named, **defaults}, path="KafkaSink.options")

    def _on_error(self, error: ck.KafkaError, *, of_producer: bool = False) -> None:
        if refuses(error):
            self._refused = error
        elif of_producer and error.name() in ("_ALL_BROKERS_DOWN", "_TRANSPORT", "_RESOLVE"):
            self.disturbed = True

    def look(self, admin: AdminClient, doing: str) -> Callable[[], None]:
        """Return what looks, between two questions, whether brokers refuse the client, and logs if none answers."""
        began = time.monotonic()

        def look() -> None:
            admin.poll(0)  # a refusal is said here, and not by the call
            self.raise_refusal(doing)
            self.warn_silent(began)

        return look

    def warn_silent(self, since: float) -> None:
        """Log that no broker has answered since a monotonic time, if that is long."""
        warn_silent(self._options, since)

    def raise_refusal(self, doing: str) -> None:
        """Raise `SinkError` if a broker has refused a client."""
        if self._refused is not None:
            raise self.permanent(self._refused, doing)

    def permanent(self, error: ck.KafkaError, doing: str, right: str = "") -> SinkError:
        """Return the error for what does not pass by waiting. `right`: what the client needs on the topic."""
        remedy = PERMANENT.get(error.name(), "")
        if right and error.name() == "TOPIC_AUTHORIZATION_FAILED":
            remedy = f"allow `{right}` on the topic"
        return SinkError(f"{doing}: {self.says(error)}{remedy and '; ' + remedy}")

    def says(self, error: Any) -> str:
        """Return the text of a client's error, without secrets; with the brokers' addresses, if none has answered."""
        found = cause(error)
        text = str(error) if found is None else f"{found.str()} ({found.name()})"
        if found is not None and found.name() in UNANSWERED:
            text = f"no answer of {self._options.servers}: {text}"
        return self._options.scrubbed(text)

    def scrubbed(self, text: str) -> str:
        """Return a text without secrets."""
        return self._options.scrubbed(text)


def made(
    kind: Any,
    options: ClientOptions,
    own: Mapping[str, Any],
    defaults: Mapping[str, Any] = _NO_DEFAULTS,
    *,
    path: str = "Kafka client",
) -> Any:
    """Return a client of a class of confluent-kafka, which logs without secrets.

    `own`: properties that replace those of the options; `defaults`: those that the options replace.
    Errors: `InputError` for properties that librdkafka refuses.
    """
    import confluent_kafka as ck

    given = options.resolved()
    if kind is not ck.Producer:  # librdkafka warns of properties that are for other clients
        others = _OF_PRODUCERS if kind is ck.Consumer else {*_OF_PRODUCERS, "group.id"}
        given = {name: value for name, value in given.items() if name not in others}
    try:
        return kind({"logger": ClientLog(options), **defaults, **given, **own})
    except (ck.KafkaException, ValueError, TypeError) as error:
        said = error if (found := cause(error)) is None else f"{found.str()} ({found.name()})"
        raise InputError(
            path,
            found=options.scrubbed(str(said)),
            expected="properties that librdkafka knows, with values that it takes",
        ) from None


def outline(error: Any) -> str:
    """Return a client's error for a log: its code, in librdkafka's own words, or its type.

    A broker's words about a record may quote the record, so they are only in the error that is raised.
    """
    import confluent_kafka as ck

    found = cause(error)
    return type(error).__name__ if found is None else f"{ck.KafkaError(found.code()).str()} ({found.name()})"


def refuses(error: ck.KafkaError, names: Container[str] = tuple(PERMANENT)) -> bool:
    """Return whether what a client says to its callback is one of these, and does not pass by waiting.

    A broker that ends while it greets a client does not refuse it, but librdkafka gives both the same code.
    """
    broken = (
        "disconnected",
        "hung up",
        "transport failure",
        "connection reset",
        "handle destroyed",
        "timed out",
    )
    return error.name() in names and not any(text in error.str().lower() for text in broken)


def cause(error: Any) -> ck.KafkaError | None:
    """Return the `KafkaError` of an exception, or the error itself; None if it is another one."""
    import confluent_kafka as ck

    found = error.args[0] if isinstance(error, ck.KafkaException) and error.args else error
    return found if isinstance(found, ck.KafkaError) else None


def cause_only(text: str) -> str:
    """Return what a client says without what differs between clients and tries.

    >>> said = "b:9092/1: Connect to ipv4#10.0.0.7:9092 failed: Connection refused"
    >>> cause_only(f"FAIL [rdkafka#producer-1] [thrd:b:9092/1]: {said} (after 3ms in state CONNECT)")
    'b:9092: Connect to ipv4#10.0.0.7:9092 failed: Connection refused'
    """
    return _VARYING.sub("", text)


class ClientLog:
    """The logger that librdkafka writes to. No line has a secret."""

    def __init__(self, options: ClientOptions) -> None:
        self._options = options

    def log(self, level: int, text: str, *values: Any) -> None:
        """Write one line, at most as a warning: what is an error is raised. Warnings come at growing intervals."""
        said = self._options.scrubbed(text % values if values else text)
        if level < logging.WARNING:
            log.log(level, "%s", said)
        else:
            said = cause_only(said)
            REPEATED.warn(log, "%s", said, key=self._options.servers, kind=said)


def warn_silent(options: ClientOptions, since: float) -> None:
    """Log that no broker has answered since a monotonic time, if that is long."""
    if (seconds := time.monotonic() - since) >= SILENT_SECONDS:
        REPEATED.warn(
            log, "no answer of %s for %.0f s; waiting", options.servers, seconds, key=options.servers
        )
