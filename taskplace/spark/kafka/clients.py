"""Makes the Kafka clients of a sink, and says what their errors mean.

**Idea.** librdkafka tries a failed request again by itself, and reports a wrong password only to a callback. `Clients`
keeps what the callback said. So a sink does not wait for minutes for a broker that refuses it, and an error has the
cause, not only "timed out".

Properties: no text that comes from here has a secret. librdkafka's own log lines, of sources as well, go to the logger
`taskplace.kafka`: one line for the same cause of all clients, at growing intervals.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Container, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from taskplace.errors import InputError, SinkError
from taskplace.logs import RepeatedWarnings
from taskplace.spark.kafka.clients import ClientOptions

if TYPE_CHECKING:
    import confluent_kafka as ck
    from confluent_kafka.admin import AdminClient

log = logging.getLogger("taskplace.kafka")

#: No broker has answered, by the name of the code.
UNANSWERED = frozenset(("_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT", "_TRANSPORT"))
#: After so long without an answer, a line says so, in seconds.
SILENT_SECONDS = 4.0
#: Of all clients of this process.
REPEATED = RepeatedWarnings()
#: What differs between clients and tries in a line of librdkafka: the client, its thread, and the time that it took.
_VARYING = re.compile(r"^\w+ \[.*?\]: |/(?:bootstrap|\d+)(?=: )| \(after \d.*")

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


#: What a producer queues at most, in KiB, unless `message.max.bytes` needs more. librdkafka's default is 1 GiB.
QUEUE_KBYTES = 64 << 10
_NO_DEFAULTS: Mapping[str, Any] = MappingProxyType({})


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
        import confluent_kafka as ck

        self._refused = None
        common = {
            "client.id": f"taskplace-{self._name}",
            "error_cb": partial(self._on_error, of_producer=kind is ck.Producer),
            "logger": ClientLog(self._options),
        }
        given = self._options.resolved()
        if (
            kind.__name__ == "AdminClient" or kind is ck.Consumer
        ):  # librdkafka warns of properties of producers
            given = {name: value for name, value in given.items() if name not in _OF_PRODUCERS}
        try:
            return kind({**common, **defaults, **given, **own})
        except (ck.KafkaException, ValueError, TypeError) as error:
            raise InputError(
                "KafkaSink.options",
                found=self.says(error),
                expected="properties that librdkafka knows, with values that it takes",
            ) from None

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
