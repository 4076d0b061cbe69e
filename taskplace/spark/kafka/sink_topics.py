"""Recognises the topics of a sink: one that was deleted, made again, or got more partitions.

**Idea.** A name says little: a topic that was made again has the same one, and none of the rows. Each manifest keeps
the ids of the sink's topics. A driver compares them before it takes the checkpoint over, and asks the brokers again
before it publishes a batch: one request.

Properties:
- A topic that is missing, was made again, or has other partitions ends the query; it is not waited for. But a topic
  that was there a moment ago counts as missing only if brokers go on saying so: one of them may lag behind, above all
  for a marker topic that was just made.
- Another marker topic is harmless, unless a committed batch has to be published again: nobody knows then whether the
  sink's topic has the batch. The same holds for another `delivery`.
- With `go_on`, what has changed is a warning, and counts from then on.
- A checkpoint that keeps no ids yet takes the topics as they are.

Errors: `CheckpointError` for topics that are not those of the checkpoint; `SinkError` for a missing one, and for
brokers that refuse the client; `TimeoutError` if they do not answer in time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from taskplace.errors import CheckpointError, SinkError
from taskplace.spark.kafka import brokers as asking
from taskplace.spark.kafka.clients import PERMANENT, Clients

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

log = logging.getLogger(__name__)

#: The remedy for all that a user may accept.
GO_ON = "set `changed_topics: go-on` to take it as it is"
#: What brokers without ids of topics say.
_NO_ID = ("", "None", "AAAAAAAAAAAAAAAAAAAAAA")
_LATE_SECONDS = 5.0
#: How long brokers that know nothing of a topic are asked again while the stream runs, in seconds.
GONE_SECONDS = 2.0


@dataclass(frozen=True)
class SeenTopic:
    """A topic as the brokers have it. `id`: "" if they have no ids."""

    name: str
    id: str
    partitions: int

    def kept(self) -> dict[str, Any]:
        """Return the entry of the manifest."""
        return {"name": self.name, "id": self.id, "partitions": self.partitions}

    def is_other(self, kept: Mapping[str, Any]) -> bool:
        """Return whether this is not the topic of an entry."""
        return self.name != kept.get("name") or bool(self.id and kept.get("id") and self.id != kept["id"])


class SinkTopics:
    """The topics of one sink. Lifetime: one client, from the first question until an error or `close`.

    - `topic`, `markers`: their names; `markers` is "" for a sink without them
    - `delivery`: how batches are published
    - `ordered`: whether records have keys, so that new partitions break an order
    """

    def __init__(
        self, clients: Clients, topic: str, markers: str, *, delivery: str, ordered: bool, go_on: bool
    ) -> None:
        self._clients, self._topic, self._markers = clients, topic, markers
        self._delivery, self._ordered, self._go_on = delivery, ordered, go_on
        self._admin: AdminClient | None = None
        self._bound: dict[str, SeenTopic] = {}
        self._lock = threading.Lock()

    def kept(self) -> dict[str, Any]:
        """Return what the next manifest keeps of the topics; empty before `bind`."""
        if not self._bound:
            return {}
        topics = {"topic": self._topic, "markers": self._markers}
        return {"delivery": self._delivery} | {
            role: self._bound[name].kept() for role, name in topics.items() if name in self._bound
        }

    # -- at the start

    def check(self, kept: Mapping[str, Any], repeated: int | None, seconds: float) -> None:
        """Compare the topics with those of the last manifest. Changes nothing.

        `repeated`: the committed batch with rows that is published again; None if there is none.
        """
        if not kept:
            return
        found = self._seen(seconds)
        self._check_topic(kept.get("topic") or {}, found[self._topic])
        before = kept.get("delivery", self._delivery)
        if repeated is None or self._delivery == "at-least-once" or before == "at-least-once":
            return  # nothing is published again, or it may be there twice
        markers, now = kept.get("markers") or {}, found.get(self._markers)
        if markers and (now is None or now.is_other(markers)):
            was = f"{markers.get('name')!r} with the id {markers.get('id')}"
            is_now = "no such topic" if now is None else f"{now.name!r} with the id {now.id}"
            self._changed(
                f"topic of markers: found {is_now}, expected {was}; nobody knows whether topic {self._topic!r} has "
                f"batch {repeated}, which is committed and published again",
                f"restore that topic or its name in `marker_topic`; or {GO_ON}: the rows of batch {repeated} may be in "
                "the topic twice then",
            )

    def bind(self, kept: Mapping[str, Any], seconds: float) -> None:
        """Take the topics as they are now, after `check`. Errors: for one that is missing."""
        found = self._seen(seconds, asking.NEW_SECONDS)
        for name, topic in found.items():
            if topic is None:
                raise self._missing(name)
        markers = kept.get("markers") or {}
        if self._markers and markers and found[self._markers].is_other(markers):  # type: ignore[union-attr]
            log.warning(
                "the markers of topic %r were in topic %r (id %s); from now on they are in %r (id %s)",
                self._topic, markers.get("name"), markers.get("id"), self._markers,
                found[self._markers].id,  # type: ignore[union-attr]
            )  # fmt: skip
        self._bound = {name: topic for name, topic in found.items() if topic is not None}

    # -- while the stream runs

    def check_now(self, seconds: float) -> None:
        """Compare the topics with those of `bind`; nothing before it. Errors: also `TimeoutError`."""
        if not self._bound:
            return
        with self._lock:
            found = self._asked(seconds, GONE_SECONDS)
            for name, topic in found.items():
                if topic is None:
                    raise self._missing(name)
            self._check_topic(self._bound[self._topic].kept(), found[self._topic])
            markers = found.get(self._markers)
            if markers is not None and markers.is_other(self._bound[self._markers].kept()):
                self._changed(
                    f"topic {self._markers!r} was deleted and made again while the stream ran: found the id "
                    f"{markers.id}, expected {self._bound[self._markers].id}; its markers are lost",
                    f"start again; or {GO_ON}",
                )
            self._bound = {name: topic for name, topic in found.items() if topic is not None}

    def close(self) -> None:
        """Give the client up. The next question makes another one."""
        self._admin = None

    # -- the comparison

    def _check_topic(self, kept: Mapping[str, Any], found: SeenTopic | None) -> None:
        if not kept or kept.get("name") != self._topic:
            return  # the user has named another topic
        if found is None:
            raise self._missing(self._topic)
        if found.is_other(kept):
            self._changed(
                f"topic {self._topic!r} was deleted and made again: found the id {found.id}, expected "
                f"{kept.get('id')}; the rows of earlier batches went with the old topic",
                f"start a new checkpoint to write all rows again, or {GO_ON}",
            )
        elif self._ordered and found.partitions != kept.get("partitions", found.partitions):
            self._changed(
                f"topic {self._topic!r}: found {found.partitions} partitions, expected {kept['partitions']}; keys go "
                "to other partitions from now on, so the records of a key before and after have no order",
                f"write to a topic with {kept['partitions']} partitions, or {GO_ON}",
            )

    def _changed(self, what: str, remedy: str) -> None:
        if not self._go_on:
            raise CheckpointError(f"{what}; {remedy}")
        log.warning("%s; the sink goes on, because of `changed_topics: go-on`", what)

    def _missing(self, name: str) -> SinkError:
        return SinkError(
            f"topic {name!r} does not exist any more; what was in it is lost. Create it again, and start again: the "
            "error will say what can be done"
        )

    # -- the questions

    def _seen(self, seconds: float, gone: float = 0.0) -> dict[str, SeenTopic | None]:
        try:
            return self._asked(seconds, gone)
        except TimeoutError as error:
            raise SinkError(f"{error}; check `servers`, and that the brokers run") from None

    def _asked(self, seconds: float, gone: float) -> dict[str, SeenTopic | None]:
        """Return the topics by name; None for a missing one. Errors: `TimeoutError`; `SinkError` for a refusal.

        `gone`: for how long brokers have to say that a topic is missing, in seconds.
        """
        import confluent_kafka as ck

        if self._admin is None:
            self._admin = self._clients.admin()
        admin, names = self._admin, [name for name in (self._topic, self._markers) if name]
        doing = f"topic {self._topic!r} cannot be checked"
        found: dict[str, SeenTopic | None] = {}

        def question(at_most: float) -> dict[str, SeenTopic | None]:
            asked = admin.describe_topics(ck.TopicCollection(names), request_timeout=at_most)
            found.update({name: _topic(name, asked[name], at_most) for name in names})
            if None in found.values():
                raise ck.KafkaException(ck.KafkaError(ck.KafkaError.UNKNOWN_TOPIC_OR_PART))
            return found

        try:
            return asking.ask(question, seconds, admin=admin, look=self._clients.look(admin, doing), new=gone)
        except ck.KafkaException as raised:
            error = raised.args[0]
            if found and error.name() in asking.NEW:
                return found
            self._admin = None
            if error.name() in PERMANENT:
                raise self._clients.permanent(error, doing, "Describe") from None
            raise TimeoutError(f"{doing}: {self._clients.says(error)}") from None


def _topic(name: str, future: Any, seconds: float) -> SeenTopic | None:
    import confluent_kafka as ck

    try:
        found = future.result(seconds + _LATE_SECONDS)
    except ck.KafkaException as error:
        if error.args[0].name() in asking.NEW:
            return None
        raise
    id_ = str(getattr(found, "topic_id", ""))
    return SeenTopic(name, "" if id_ in _NO_ID else id_, len(found.partitions))
