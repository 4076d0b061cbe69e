"""An admin client whose brokers fail in a given way first, and clients of a sink that use it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from confluent_kafka.admin import AclOperation

from taskplace.spark.kafka.clients import Clients
from taskplace.spark.kafka.options import ClientOptions
from tests.support.fake_kafka import error

CONFIG = {"cleanup.policy": "compact", "min.insync.replicas": "2"}


class FakeAdmin:
    """A client of three brokers with one topic of two partitions.

    - `failures`: what the first questions are answered with, in their order: the name of an error, a `TimeoutError`, or
      an offset. None is a right answer
    - `says`: the name of an error that the client says to its callback when it is polled
    - `rights`: what the client may do with the topic; none: the brokers do not say
    - `asked`: the questions so far; `seconds`: how long each might take
    """

    def __init__(
        self, *failures: object, says: str = "", rights: tuple[str, ...] = (), partitions: int = 2
    ) -> None:
        self.failures, self._says, self._rights = list(failures), says, rights
        self._partitions = [SimpleNamespace(replicas=[1, 2, 3])] * partitions
        self.brokers = self.others = [1, 2, 3]
        self.callback: Any = None
        self.asked: list[str] = []
        self.seconds: list[float] = []

    def poll(self, _seconds: float) -> None:
        if self._says and self.callback is not None:
            self.callback(error(self._says).args[0])

    def list_offsets(self, wanted: Any, *, request_timeout: float, **_: object) -> dict[Any, Any]:
        answer = self._answer("offsets", 7, request_timeout)
        return {
            at: SimpleNamespace(result=lambda _: SimpleNamespace(offset=answer(), timestamp=0))
            for at in wanted
        }

    def describe_topics(self, _topics: Any, *, request_timeout: float, **_: object) -> dict[str, Any]:
        operations = [AclOperation[right] for right in self._rights] or None
        found = SimpleNamespace(topic_id="id", partitions=self._partitions, authorized_operations=operations)
        return {"t": self._future("describe", found, request_timeout)}

    def describe_configs(self, resources: list[Any], *, request_timeout: float) -> dict[Any, Any]:
        found = {name: SimpleNamespace(value=value) for name, value in CONFIG.items()}
        return {resources[0]: self._future("configuration", found, request_timeout)}

    def create_topics(self, _topics: Any, *, request_timeout: float, **_: object) -> dict[str, Any]:
        return {"t": self._future("create", None, request_timeout)}

    def list_topics(self, *, timeout: float) -> Any:
        one = SimpleNamespace(replicas=self.others)
        topic = SimpleNamespace(error=None, partitions={1: one, 0: one})
        found = SimpleNamespace(brokers=dict.fromkeys(self.brokers), topics={"t": topic})
        return self._answer("list", found, timeout)()

    def _future(self, question: str, found: object, seconds: float) -> Any:
        answer = self._answer(question, found, seconds)
        return SimpleNamespace(result=lambda _: answer())

    def _answer(self, question: str, right: object, seconds: float) -> Any:
        self.asked.append(question)
        self.seconds.append(seconds)
        failure = self.failures.pop(0) if self.failures else None

        def answer() -> object:
            if isinstance(failure, str):
                raise error(failure)
            if isinstance(failure, Exception):
                raise failure
            return right if failure is None else failure

        return answer


class AdminClients(Clients):
    """Clients of a sink, of which all admin clients are this one."""

    def __init__(self, admin: FakeAdmin) -> None:
        super().__init__(ClientOptions("KafkaSink", "nowhere:9092", {}), "sink")
        self._one = admin
        admin.callback = self.refusal

    def admin(self) -> Any:
        return self._one
