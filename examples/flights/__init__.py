"""The flights job: delays of a year of departures from New York, per aircraft, in good and bad weather.

    data.py       the input: two file streams, two weeks a file, with repeated rows
    topology.py   the job's own processor function, and the columns of the input
    truth.py      the expected result as a batch query, and the comparison

`conf/flights.yaml` has the topology (join with the weather, repartition by aircraft, de-duplicate, aggregate). Keys
of its `input`: `dir`; `files` (only the first files of each stream, for a short run; 0 is all), `repeated` (the share
of rows that are delivered twice) and `seed`. Key of its `output`: `dir`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taskplace.errors import ConfigError
from taskplace.model.events import CheckResult
from taskplace.settings import Settings

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
        read = _Reader(settings.input, "input", ("dir", "files", "repeated", "seed"))
        self.input = Path(read("dir", "var/flights/input", str, "a directory"))
        self._files = read("files", 0, int, "a number of files, 0 for all", least=0)
        self._repeated = read("repeated", 0.02, (int, float), "a share from 0 to 1", least=0, most=1)
        self._seed = read("seed", 2013, int, "a number from 0", least=0)
        self._settings = settings
        write = _Reader(settings.output, "output", ("dir",))
        self.output = Path(write("dir", "var/flights/output", str, "a directory"))

    def topology(self) -> Topology:
        """Return the topology of the configuration; its result goes to `output.dir`, by batch."""
        from taskplace.spark import ParquetSink
        from taskplace.spark.yaml_application import declared_topology

        return declared_topology(self._settings, {"delays-by-batch": ParquetSink(self.output)})

    def prepare(self) -> None:
        """Write the input files unless they exist; takes about a second."""
        from examples.flights.data import prepare

        prepare(self.input, files=self._files, repeated=self._repeated, seed=self._seed)

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
        from examples.flights.truth import compare, findings, result, truth

        if not any(self.output.glob("batch_id=*")):
            return CheckResult(False, f"there is no result in {self.output}")
        found = result(spark, self.output).cache()  # also for the findings: it is hundreds of small files
        answer = compare(truth(spark, self.input), found)
        if not answer.ok:
            return answer
        return replace(answer, detail=findings(found, spark.read.parquet(str(self.input / "planes.parquet"))))


class _Reader:
    """Reads the application's own keys, as strictly as taskplace reads its keys."""

    def __init__(self, given: Mapping[str, Any], section: str, known: tuple[str, ...]) -> None:
        for key in given:
            if key not in known:
                raise ConfigError.unknown_key(section, key, known)
        self._given, self._section = given, section

    def __call__(
        self,
        key: str,
        default: Any,
        kind: Any,
        expected: str,
        *,
        least: float | None = None,
        most: float | None = None,
    ) -> Any:
        value = self._given.get(key, default)
        fits = isinstance(value, kind) and not isinstance(value, bool)
        if not fits or (least is not None and value < least) or (most is not None and value > most):
            raise ConfigError(f"{self._section}.{key}", found=value, expected=expected)
        return value
