"""The flights job on Kafka topics: `conf/kafka-flights.yaml`, `make run-kafka`.

The application class adds three things to `YamlApplication`, which has the topology, the sources and the sink of the
file: it makes and fills the topics before the stream, and reads the topic of the result after it.

Own keys of `input`: those of `examples.flights` (`dir`, `files`, `repeated`, `seed`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from examples.flights.own_keys import PREPARED, PreparedInput
from taskplace.errors import InputError
from taskplace.record.events import CheckResult
from taskplace.spark.kafka.declared import with_servers
from taskplace.spark.yaml_application import YamlApplication
from taskplace.spec.application import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The sink of the topology.
SINK = "latest-delays"
INPUTS = ("flights", "weather")


class KafkaFlights(YamlApplication):
    """The application class."""

    def __init__(self, settings: Settings) -> None:
        own = {key: value for key, value in settings.input.items() if key in PREPARED}
        entries = {key: value for key, value in settings.input.items() if key not in PREPARED}
        super().__init__(replace(settings, input=entries))
        self._prepared = PreparedInput.of(own, "var/kafka-flights/input")
        built = self.topology().build()
        self._reads = {topic: built.node(topic).options["reads"] for topic in INPUTS}
        self._partitions = {topic: built.partitions[topic] for topic in INPUTS}
        self._servers = {
            topic: with_servers(f"input.{topic}.kafka", entries[topic]["kafka"])["servers"]
            for topic in INPUTS
        }
        out = with_servers(f"output.{SINK}.kafka", settings.output[SINK]["kafka"])
        self._out: tuple[str, str] = (out["servers"], out["topic"])

    def prepare(self) -> None:
        """Make the topics, and fill those of the input unless they have it; takes about 15 seconds."""
        from confluent_kafka.admin import NewTopic

        from examples.flights import topics

        self._prepared.prepare()
        for topic, reads in self._reads.items():
            topics.make(self._servers[topic], [NewTopic(reads.topic, self._partitions[topic])])
        servers, result = self._out
        topics.make(servers, [NewTopic(result, 4, config={"cleanup.policy": "compact"})])
        directory = self._prepared.dir
        records = {"flights": topics.flight_records(directory), "weather": topics.weather_records(directory)}
        if not any(self._has_records(topic) for topic in INPUTS):
            topics.send(
                self._servers["flights"],
                {self._reads[topic].topic: each for topic, each in records.items()},
            )

    def check(self, spark: SparkSession) -> CheckResult:
        """Read the topic of the result, and compare its last records by key with the batch query, row by row."""
        import pyarrow as pa

        from examples.flights import topics
        from examples.flights.truth import KEY, VALUES, checked

        servers, result = self._out
        rows = topics.consumed(servers, result)
        try:
            last = topics.latest(rows, KEY, "flights")
        except InputError as error:
            return CheckResult(False, f"topic {result!r}: {error}")
        if not last:
            return CheckResult(False, f"there is no result in topic {result!r}")
        kinds = {"bigint": pa.int64(), "double": pa.float64()}
        columns = {**dict.fromkeys(KEY, pa.string()), **{name: kinds[kind] for name, kind in VALUES.items()}}
        found = spark.createDataFrame(pa.Table.from_pylist(list(last.values()), pa.schema(columns)))
        answer = checked(spark, self._prepared.dir, found)
        counted = f"topic {result!r} has {len(rows):,} committed records of {len(last):,} keys, each once and in order"
        return replace(answer, detail=(counted, *answer.detail))

    def _has_records(self, topic: str) -> bool:
        ends: Any = self._reads[topic].last()["offsets"]
        return any(ends.values())
