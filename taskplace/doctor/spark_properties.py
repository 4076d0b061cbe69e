"""Spark's properties: their effective values, where each comes from, and what they say about executors.

**Idea.** `taskplace run` passes `spark.conf` of the file to the session's builder. So the file has priority over a file
of properties (`spark-defaults.conf`), and `spark.master` in `spark.conf` has priority over the key `spark.master`.

Units are those of Spark: a time of `spark.locality.wait` without a unit is in milliseconds, a size of
`spark.executor.memory` in MiB.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import javaproperties

from taskplace.errors import InputError, plainly
from taskplace.spec.application import SparkSettings

_SECONDS = {
    "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0,
}  # fmt: skip
_POWERS = {"b": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_MEBI = 1 << 20
#: Several hosts: what lies on one of them is not seen by the others.
_OF_HOSTS = re.compile(r"yarn|k8s://.*|spark://.*")
_LOOPBACK = re.compile(r"spark://(127\.\d+\.\d+\.\d+|localhost|\[::1\])(:|$)")


def read_properties(file: str | Path) -> dict[str, str]:
    """Return the properties of a file like `spark-defaults.conf`, also those whose names Spark ignores.

    Errors: `InputError` for a file that cannot be read, and for one without a name that begins with `spark.`.
    """
    path = Path(file)
    try:
        with path.open("rb") as stream:
            given = javaproperties.load(stream)
    except (OSError, ValueError) as error:
        found = getattr(error, "strerror", None) or str(error)
        wrong = InputError(str(path), found=found, expected="a readable file of Spark's properties")
        if isinstance(error, FileNotFoundError):
            raise plainly(wrong, "there is no such file") from None
        raise wrong from None
    if given and not any(name.startswith("spark.") for name in given):
        found = f"the name {next(iter(given))[:80]!r}"
        raise InputError(str(path), found=found, expected="names that begin with 'spark.', one in a line")
    return {name: value.strip() for name, value in given.items()}


class Executors(NamedTuple):
    """The executors as the properties describe them; None where they do not.

    - `least`, `most`: their number; they differ with dynamic allocation
    - `slots`: of one executor: its cores, by the cores of a task
    """

    least: int | None
    most: int | None
    slots: int | None


class SparkProperties:
    """The effective properties of an application.

    `file`: the properties of `--spark-properties`, read from `name`; `others`: those of it that Spark ignores.

    >>> spark = SparkProperties(SparkSettings(master="yarn", conf={"spark.locality.wait": "5s"}))
    >>> spark.seconds("spark.locality.wait"), spark.where("spark.locality.wait"), spark.executors.most
    (5.0, 'spark.conf.spark.locality.wait', 2)
    """

    def __init__(
        self, settings: SparkSettings, file: Mapping[str, str] | None = None, name: str = ""
    ) -> None:
        self.conf, self.name = dict(settings.conf), name
        self.file = {key: value for key, value in (file or {}).items() if key.startswith("spark.")}
        self.others = {key: value for key, value in (file or {}).items() if key not in self.file}
        self._master = settings.master

    def get(self, key: str) -> str | None:
        """Return the value of a property; None if it is not set."""
        return self.conf.get(key, self.file.get(key))

    def where(self, key: str) -> str:
        """Return where a property is set: its path in the application's file, or the file of properties.

        For a property that is not set, it is the path where it belongs.
        """
        if key not in self.conf and key in self.file:
            return f"{self.name}: {key}"
        return f"spark.conf.{key}"

    def flag(self, key: str, default: bool = False) -> bool:
        """Return a property that is true or false."""
        value = self.get(key)
        return default if value is None else value.strip().lower() == "true"

    def number(self, key: str, default: int | None = None) -> int | None:
        """Return an integer; the default for a property that is not set, or that is none."""
        value = self.get(key)
        return int(value) if value is not None and re.fullmatch(r"\s*\d+\s*", value) else default

    def seconds(self, key: str, default: float | None = None, unit: str = "ms") -> float | None:
        """Return a time in seconds; `unit`: of a number without one. The default also for what is no time."""
        value = self.get(key)
        found = None if value is None else seconds_of(value, unit)
        return default if found is None else found

    def mebibytes(self, key: str, default: float | None = None) -> float | None:
        """Return a size in MiB, which is also the unit of a number without one. The default also for what is none."""
        value = self.get(key)
        found = None if value is None else mebibytes_of(value)
        return default if found is None else found

    @property
    def master(self) -> str:
        """The master that `taskplace run` uses: without spark-submit, `local[*]` if none is given."""
        return self.conf.get("spark.master") or self._master or self.file.get("spark.master") or "local[*]"

    @property
    def where_master(self) -> str:
        """The path of the key that decides the master: that of a new one has to be the same, or be above it."""
        return "spark.conf.spark.master" if self.conf.get("spark.master") else "spark.master"

    @property
    def local(self) -> bool:
        """Whether the driver is the only executor."""
        return re.fullmatch(r"local(\[.*\])?", self.master) is not None

    @property
    def several_hosts(self) -> bool:
        """Whether executors may run on other hosts than the driver."""
        return _OF_HOSTS.fullmatch(self.master) is not None and not _LOOPBACK.match(self.master)

    @property
    def containers(self) -> bool:
        """Whether executors run in containers with a limit of memory: on YARN and Kubernetes."""
        return self.master == "yarn" or self.master.startswith("k8s://")

    @property
    def of_cluster(self) -> tuple[int, int, int] | None:
        """The executors, the cores and the MiB of each of `local-cluster[3,2,1024]`; None for other masters."""
        match = re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]", self.master)
        return (int(match[1]), int(match[2]), int(match[3])) if match else None

    @property
    def dynamic(self) -> bool:
        """Whether Spark adds and removes executors."""
        return self.flag("spark.dynamicAllocation.enabled") and not self.local

    @property
    def executors(self) -> Executors:
        """The executors, as far as the properties tell."""
        least, most = self._numbers()
        cores = self._cores()
        cpus = self.number("spark.task.cpus", 1) or 1
        return Executors(least, most, None if cores is None else cores // cpus)

    def _numbers(self) -> tuple[int | None, int | None]:
        if self.local:
            return 1, 1
        if self.dynamic:
            return (
                self.number("spark.dynamicAllocation.minExecutors", 0),
                self.number("spark.dynamicAllocation.maxExecutors"),
            )
        if (cluster := self.of_cluster) is not None:
            return cluster[0], cluster[0]
        number = self.number("spark.executor.instances", 2 if self.containers else None)
        total, cores = self.number("spark.cores.max"), self.number("spark.executor.cores")
        if number is None and total and cores:
            number = total // cores
        return number, number

    def _cores(self) -> int | None:
        if self.local:
            match = re.match(r"local\[(\d+)", self.master)
            return int(match[1]) if match else (1 if self.master == "local" else None)
        cluster = self.of_cluster
        default = 1 if self.containers else None
        return self.number("spark.executor.cores", cluster[1] if cluster else default)


def local_cluster(executors: int, cores: int, mebibytes: int) -> str:
    """Return a master with executors on this host.

    >>> local_cluster(3, 2, 1024)
    'local-cluster[3,2,1024]'
    """
    return f"local-cluster[{executors},{cores},{mebibytes}]"


def seconds_of(text: str, unit: str = "ms") -> float | None:
    """Return a time of Spark's in seconds; None for what Spark would refuse. `unit`: of a number without one.

    >>> [seconds_of(text) for text in ("30s", "3000", "2min", "1.5s", "soon")]
    [30.0, 3.0, 120.0, None, None]
    """
    match = re.fullmatch(r"(-?\d+)([a-z]*)", text.strip().lower())
    scale = _SECONDS.get((match[2] or unit) if match else "")
    return None if match is None or scale is None else int(match[1]) * scale


def mebibytes_of(text: str) -> float | None:
    """Return a size of Spark's in MiB; None for what Spark would refuse.

    >>> [mebibytes_of(text) for text in ("900m", "2g", "512", "1GB", "1.5g")]
    [900.0, 2048.0, 512.0, 1024.0, None]
    """
    match = re.fullmatch(r"(\d+)(b|[kmgtp]b?)?", text.strip().lower())
    return None if match is None else int(match[1]) * (1 << _POWERS[(match[2] or "m")[0]]) / _MEBI
