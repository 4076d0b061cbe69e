"""The facts that the doctor's rules read.

The command line gathers them once (`taskplace.cli.doctor`). Facts that are not known are None; `unknown` says why. So
rules need neither files nor Spark, and tests write facts down.

Spark's properties: `taskplace run` passes `spark.conf` of the file to the session's builder. So the file has priority
over a file of properties (`spark-defaults.conf`), and `spark.master` in `spark.conf` over the key `spark.master`. Units
are Spark's: a time without a unit is in milliseconds, a size in MiB.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import javaproperties

from taskplace.errors import InputError
from taskplace.spec.application import Settings, SparkSettings
from taskplace.spec.document import unreadable
from topology import BuiltTopology

Need = Literal["topology", "stores", "checkpoint"]
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_POWERS = {"b": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_MEBI = 1 << 20
_LOOPBACK = re.compile(r"spark://(127\.\d+\.\d+\.\d+|localhost|\[::1\])(:|$)")


def read_properties(file: str | Path) -> dict[str, str]:
    """Return the properties of a file like `spark-defaults.conf`.

    Errors: `InputError` for a file that cannot be read, and for one without a name that begins with `spark.`.
    """
    path = Path(file)
    try:
        with path.open("rb") as stream:
            given = javaproperties.load(stream)
    except (OSError, ValueError) as error:
        raise unreadable(path, error, "a readable file of Spark's properties") from None
    if given and not any(name.startswith("spark.") for name in given):
        found = f"the name {next(iter(given))[:80]!r}"
        raise InputError(str(path), found=found, expected="names that begin with 'spark.', one in a line")
    return {name: value.strip() for name, value in given.items() if name.startswith("spark.")}


class SparkProperties:
    """The effective properties of an application. `file`: those of `--spark-properties`, read from `name`.

    >>> spark = SparkProperties(SparkSettings(master="yarn", conf={"spark.locality.wait": "5s"}))
    >>> spark.seconds("spark.locality.wait"), spark.where("spark.locality.wait"), spark.several_hosts
    (5.0, 'spark.conf.spark.locality.wait', True)
    """

    def __init__(
        self, settings: SparkSettings, file: Mapping[str, str] | None = None, name: str = ""
    ) -> None:
        self.conf, self.file, self.name = dict(settings.conf), dict(file or {}), name
        #: The master that `taskplace run` uses: without spark-submit, `local[*]` if none is given.
        self.master = (
            self.conf.get("spark.master") or settings.master or self.file.get("spark.master") or "local[*]"
        )

    def get(self, key: str, default: str = "") -> str:
        """Return the value of a property."""
        return self.conf.get(key, self.file.get(key, default))

    def where(self, key: str) -> str:
        """Return where a property is set: its path in the application's file, or the file of properties.

        For a property that is not set, it is the path where it belongs.
        """
        in_file = key not in self.conf and key in self.file
        return f"{self.name}: {key}" if in_file else f"spark.conf.{key}"

    def number(self, key: str, default: int) -> int:
        """Return a whole number; the default for a property that is not set, or that is none."""
        value = self.get(key).strip()
        return int(value) if value.isdecimal() else default

    def seconds(self, key: str, unit: str = "ms") -> float | None:
        """Return a time in seconds; None if there is none that Spark can read. `unit`: of a number without one.

        >>> spark = SparkProperties(SparkSettings(conf=dict(zip("abcde", ("30s", "3000", "2min", "1.5s", "soon")))))
        >>> [spark.seconds(name) for name in "abcde"]
        [30.0, 3.0, 120.0, None, None]
        """
        match = re.fullmatch(r"(-?\d+)([a-z]*)", self.get(key).strip().lower())
        scale = _SECONDS.get((match[2] or unit) if match else "")
        return None if match is None or scale is None else int(match[1]) * scale

    def mebibytes(self, key: str, default: float) -> float:
        """Return a size in MiB; the default if there is none that Spark can read.

        >>> spark = SparkProperties(SparkSettings(conf=dict(zip("abcde", ("900m", "2g", "512", "1GB", "1.5g")))))
        >>> [spark.mebibytes(name, 7.0) for name in "abcde"]
        [900.0, 2048.0, 512.0, 1024.0, 7.0]
        """
        match = re.fullmatch(r"(\d+)(b|[kmgtp]b?)?", self.get(key).strip().lower())
        return default if match is None else int(match[1]) * (1 << _POWERS[(match[2] or "m")[0]]) / _MEBI

    @property
    def local(self) -> bool:
        """Whether the driver is the only executor."""
        return re.fullmatch(r"local(\[.*\])?", self.master) is not None

    @property
    def several_hosts(self) -> bool:
        """Whether executors may run on other hosts than the driver: what lies on one of them is not seen by others."""
        return self.containers or (self.master.startswith("spark://") and not _LOOPBACK.match(self.master))

    @property
    def containers(self) -> bool:
        """Whether executors run in containers with a limit of memory: on YARN and Kubernetes."""
        return self.master == "yarn" or self.master.startswith("k8s://")


class StoreFacts(NamedTuple):
    """A store.

    - `path`: of its node's options in the file, or the store's name, if the topology is not in the file
    - `processor`: its name in YAML, or "" for one of the user's
    - `retention_ms`: after which its entries expire; None: never
    """

    name: str
    path: str
    processor: str
    retention_ms: int | None


class CheckpointFacts(NamedTuple):
    """A checkpoint.

    - `driver`: which driver runs it, or "" for none
    - `damaged`: a line for each damaged or missing file
    - `refused`: a line for each reason why this application cannot continue it
    """

    path: Path
    driver: str = ""
    damaged: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All that is known of an application.

    - `settings`: its file, checked
    - `written`: the paths of the keys that the file and `--set` have, such as placement.max.warmup.replicas
    - `spark`: the effective properties of Spark
    - `steered`: whether the file steers a query of Spark's own, instead of placing a topology
    - `refused`: why a start would be refused; "" if nothing is known to be wrong
    - `file_systems`: of this host, by mount point: the type, such as ext4 or nfs4
    - `unknown`: by fact that is missing, the reason
    """

    settings: Settings
    spark: SparkProperties
    written: frozenset[str] = frozenset()
    steered: bool = False
    refused: str = ""
    topology: BuiltTopology | None = None
    stores: tuple[StoreFacts, ...] | None = None
    checkpoint: CheckpointFacts | None = None
    file_systems: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[Need, str] = field(default_factory=dict)

    def file_system(self, path: Path) -> str:
        """Return the type of the file system that has a path of this host; "" if it is not known."""
        found = (self.file_systems.get(str(part)) for part in (path, *path.parents))
        return next(filter(None, found), "")
