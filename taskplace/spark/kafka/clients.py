"""Kafka's clients of one source or sink, and what their errors mean.

librdkafka tries a failed request again by itself, and reports a wrong password only to a callback. `Refusal` keeps what
the callback said. So nothing waits for minutes for a broker that refuses it, and an error has the cause, not only
"timed out".

Properties:
- No error and no log line shows a secret.
- librdkafka's own log lines go to the logger `taskplace.kafka`: one line for the same cause of all clients, at growing
  intervals.

Errors: `InputError` for properties that librdkafka refuses.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient

from taskplace.errors import InputError, SinkError
from taskplace.logs import RepeatedWarnings
from taskplace.spark.kafka.brokers import Admin
from taskplace.spark.kafka.options import ClientOptions

log = logging.getLogger("taskplace.kafka")
#: No broker has answered, by the name of the code.
UNANSWERED = frozenset(("_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT", "_TRANSPORT"))
#: What does not pass by waiting, by the name of its code, with the remedy.
PERMANENT = {
    "_AUTHENTICATION": "check the credentials in the options",
    "SASL_AUTHENTICATION_FAILED": "check the credentials in the options",
    "_SSL": "check the certificates in the options",
    "UNSUPPORTED_SASL_MECHANISM": "check `sasl.mechanism` in the options",
    "CLUSTER_AUTHORIZATION_FAILED": "allow `IdempotentWrite` on the cluster",
    "TOPIC_AUTHORIZATION_FAILED": "allow {right} on the topic",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "allow `Write` and `Describe` on transactional ids with the prefix "
    "'taskplace-'",
    "INVALID_TRANSACTION_TIMEOUT": "set `transaction.timeout.ms` in the options to at most the brokers' "
    "`transaction.max.timeout.ms`",
    "MSG_SIZE_TOO_LARGE": "raise `max.message.bytes` of the topic to the sink's `message.max.bytes`",
    "INVALID_TIMESTAMP": "raise `message.timestamp.before.max.ms` and `message.timestamp.after.max.ms` of the topic",
    "INVALID_RECORD": "a compacted topic takes records with a key only",
    "POLICY_VIOLATION": "ask the administrator of the brokers",
}
_REMEDIES = {
    **PERMANENT,
    "GROUP_AUTHORIZATION_FAILED": "allow `Read` on the group",
    "UNKNOWN_MEMBER_ID": "the group has members, which commit themselves; set another `group.id`",
    "UNKNOWN_TOPIC_OR_PART": "make the topic first, or correct its name",
    "_UNKNOWN_TOPIC": "make the topic first, or correct its name",
}
#: What librdkafka says of a broker that ends while it greets a client, with the code of one that refuses it.
_BROKEN = re.compile(
    "disconnected|hung up|transport failure|connection reset|handle destroyed|timed out", re.IGNORECASE
)
#: After so long without an answer, a line says so, in seconds.
SILENT_SECONDS = 4.0
_NOTHING: Mapping[str, Any] = MappingProxyType({})
#: Of all clients of this process.
REPEATED = RepeatedWarnings()
#: What differs between clients and tries in a line of librdkafka: the client, its thread, and the time that it took.
_VARYING = re.compile(r"^\w+ \[.*?\]: |/(?:bootstrap|\d+)(?=: )| \(after \d.*")
#: In a warning that a property is for another kind of client: consumers and producers share the options.
_OF_OTHERS = " property and will be ignored by this "


class RetriableSinkError(SinkError):
    """What may pass by waiting. `logged`: its text for the log, without what brokers say of a record."""

    def __init__(self, said: str, logged: str | None = None) -> None:
        super().__init__(said)
        self.logged = said if logged is None else logged


class Refusal:
    """Keeps what librdkafka says to a callback only.

    - `error`: why brokers refuse a client; `said`: why a broker was not reached, which it tries again
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget what was said."""
        self.error: ck.KafkaError | None = None
        self.said = ""

    def __call__(self, error: ck.KafkaError) -> None:
        """Take what the client says."""
        if refuses(error):
            self.error = error
        elif error.name() in ("_TRANSPORT", "_RESOLVE"):
            self.said = cause_only(error.str())


class Clients:
    """Makes clients with the properties of one source or sink. `name` is for their log lines.

    Lifetime: one admin client, from the first question until an error or `close`.
    """

    def __init__(self, options: ClientOptions, name: str) -> None:
        self.options, self.refusal = options, Refusal()
        self._name = name
        self._admin: AdminClient | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to this process."""
        return {**self.__dict__, "_admin": None, "refusal": Refusal()}

    def made(
        self, kind: Any, own: Mapping[str, Any] = _NOTHING, defaults: Mapping[str, Any] = _NOTHING
    ) -> Any:
        """Return a client of a class of confluent-kafka, which logs without secrets.

        `own`: properties that replace those of the options; `defaults`: those that the options replace.
        """
        self.refusal.clear()
        given = self.options.resolved()
        named = {"logger": ClientLog(self.options), "client.id": f"taskplace-{self._name}"}
        try:
            return kind({**named, **defaults, **given, **own, "error_cb": self.refusal})
        except (ck.KafkaException, ValueError, TypeError) as error:
            expected = "properties that librdkafka knows, with values that it takes"
            raise InputError(self.options.path, found=self.says(error), expected=expected) from None

    def admin(self) -> AdminClient:
        """Return the admin client."""
        if self._admin is None:
            self._admin = self.made(AdminClient)
        return self._admin

    def close(self) -> None:
        """Give the admin client up. The next question makes another one, which reads its secrets anew."""
        self._admin = None

    @contextmanager
    def asked(self, seconds: float, failed: Callable[[ck.KafkaError], Exception]) -> Iterator[Admin]:
        """Yield what asks the brokers. `failed`: makes the error for what they say."""
        client, began = self.admin(), time.monotonic()
        self.refusal.clear()

        def look() -> None:
            client.poll(0)  # a refusal is said here, and not by the call
            if self.refusal.error is not None:
                raise ck.KafkaException(self.refusal.error)
            self.warn_silent(began)

        try:
            yield Admin(client, seconds, look)
        except ck.KafkaException as error:
            self.close()
            raise failed(error.args[0]) from None

    def warn_silent(self, since: float) -> None:
        """Log that no broker has answered since a monotonic time, if that is long."""
        if (seconds := time.monotonic() - since) >= SILENT_SECONDS:
            servers = self.options.servers
            REPEATED.warn(log, "no answer of %s for %.0f s; waiting", servers, seconds, key=servers)

    def raise_refusal(self, doing: str) -> None:
        """Raise `SinkError` if a broker has refused a client."""
        if self.refusal.error is not None:
            raise self.failed(doing, self.refusal.error)

    def failed(self, doing: str, error: ck.KafkaError, right: str = "`Write` and `Describe`") -> SinkError:
        """Return a sink's error for what a client says: a `RetriableSinkError`, unless it does not pass by waiting."""
        if error.name() in PERMANENT:
            return SinkError(f"{doing}: {self.says(error)}; {remedy(error, right)}")
        return RetriableSinkError(f"{doing}: {self.says(error)}; check `servers`, and that the brokers run")

    def says(self, error: Any) -> str:
        """Return the text of a client's error, without secrets; with the brokers' addresses, if none has answered."""
        found = cause(error)
        text = str(error) if found is None else f"{found.str()} ({found.name()})"
        if found is not None and found.name() in UNANSWERED:
            text = f"no answer of {self.options.servers}: {self.refusal.said or text}"
        return self.options.scrubbed(text)


def remedy(error: ck.KafkaError, right: str) -> str:
    """Return what can be done about an error; "" if that is not known. `right`: what the client needs on the topic."""
    return _REMEDIES.get(error.name(), "").format(right=right)


def outline(error: Any) -> str:
    """Return a client's error for a log: its code, in librdkafka's own words, or its type.

    A broker's words about a record may quote the record, so they are only in the error that is raised.
    """
    found = cause(error)
    return type(error).__name__ if found is None else f"{ck.KafkaError(found.code()).str()} ({found.name()})"


def refuses(error: ck.KafkaError) -> bool:
    """Return whether what a client says to its callback does not pass by waiting."""
    return error.name() in PERMANENT and not _BROKEN.search(error.str())


def cause(error: Any) -> ck.KafkaError | None:
    """Return the `KafkaError` of an exception, or the error itself; None if it is another one."""
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
        elif _OF_OTHERS not in said:
            said = cause_only(said)
            REPEATED.warn(log, "%s", said, key=self._options.servers, kind=said)
