"""The flights job: delays of a year of departures from New York, per aircraft, in good and bad weather.

    data.py       the input: two file streams, two weeks a file, with repeated rows
    topology.py   the job's own processor function, and the columns of the input
    truth.py      the expected result as a batch query, and the comparison
    own_keys.py   the keys of the example in `input`
    on_kafka.py   the same job on Kafka topics (`conf/kafka-flights.yaml`)
    topics.py     fills the topics with the input, and reads the topic of the result

`conf/flights.yaml` has the topology (join with the weather, repartition by aircraft, de-duplicate, aggregate). Keys
of its `input`: `dir`; `files` (only the first files of each stream, for a short run; 0 is all), `repeated` (the share
of rows that are delivered twice) and `seed`. Key of its `output`: `dir`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from examples.flights.own_keys import OwnKeys, PreparedInput
from taskplace.record.events import CheckResult
from taskplace.spec.application import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from topology import Topology

# The methods that need Spark and Arrow import them: checking the configuration needs neither.


class Flights:
    """The application class.

    >>> app = {"application": {"id": "flights", "class": "examples.flights:Flights"}}
    >>> Flights(Settings.from_mapping({**app, "input": {"file": 3}}))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    taskplace.errors.ConfigError: input.file: found an unknown key, expected ... did you mean 'files'?
    """

    def __init__(self, settings: Settings) -> None:
        self._prepared = PreparedInput.of(settings.input, "var/flights/input")
        self.input = self._prepared.dir
        self._settings = settings
        write = OwnKeys(settings.output, "output", ("dir",))
        self.output = Path(write("dir", "var/flights/output", str, "a directory"))

    def topology(self) -> Topology:
        """Return the topology of the configuration; its result goes to `output.dir`, by batch."""
        from taskplace.spark import ParquetSink
        from taskplace.spark.yaml_application import declared_topology

        return declared_topology(self._settings, {"delays-by-batch": ParquetSink(self.output)})

    def prepare(self) -> None:
        """Write the input files unless they exist; takes about a second."""
        self._prepared.prepare()

    def batches(self) -> int:
        """Return how many batches there will be: one for each file of flights."""
        return len(list((self.input / "flights").glob("*.parquet")))

    def sources(self, spark: SparkSession) -> Mapping[str, DataFrame]:
        """Return the two streams, one file of each a batch, in the order of their modification times."""
        from examples.flights.topology import FLIGHT_COLUMNS, WEATHER_COLUMNS

        def stream(topic: str, columns: Mapping[str, str]) -> DataFrame:
            schema = ", ".join(f"{name} {kind}" for name, kind in columns.items())
            files = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
            return files.parquet(str((self.input / topic).absolute()))

        return {"flights": stream("flights", FLIGHT_COLUMNS), "weather": stream("weather", WEATHER_COLUMNS)}

    def check(self, spark: SparkSession) -> CheckResult:
        """Compare the stream's result with the batch query, row by row."""
        from examples.flights.truth import checked, result

        if not any(self.output.glob("batch_id=*")):
            return CheckResult(False, f"there is no result in {self.output}")
        return checked(spark, self.input, result(spark, self.output))
