"""The facts that the doctor's rules read.

The command line gathers them once (`taskplace.cli.doctor`). Facts that are not known are None; `unknown` says
why. So rules need neither files nor Spark, and tests write facts down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

from packaging.specifiers import SpecifierSet

from taskplace.doctor.spark_properties import SparkProperties
from taskplace.spec.application import Settings
from topology import BuiltTopology

Need = Literal["topology", "stores", "checkpoint"]


class StoreFacts(NamedTuple):
    """A store.

    - `path`: of its node in the file, or the store's name, if the topology is not in the file
    - `processor`: the kind of the node: aggregate, count, deduplicate, per-key, table-join, or "" for one's own
    - `retention_ms`: after which its entries expire; None: never
    - `sends_final`: whether it has windows that are sent once, when they close
    """

    name: str
    path: str
    processor: str
    retention_ms: int | None
    sends_final: bool = False


class CheckpointFacts(NamedTuple):
    """A checkpoint.

    - `driver`: which driver runs it, or "" for none
    - `damaged`: a line for each damaged or missing file
    - `refused`: a line for each reason why this application cannot continue it
    - `records`: of the longest changelog of a task; 0 without any
    - `state_bytes`: of the newest snapshots of all tasks, and of the changes since
    - `executors`: how many had a task at the last commit
    """

    path: Path
    driver: str = ""
    damaged: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    records: int = 0
    state_bytes: int = 0
    executors: int = 0


class MissingInput(NamedTuple):
    """An input directory that does not exist on this host.

    - `path`: of its key in the file; `directory`: what is there
    - `near`: a directory at the same place with a similar name; "" if there is none
    """

    path: str
    directory: Path
    near: str = ""


class WrongInput(NamedTuple):
    """An input with a file that is not of the input's format.

    - `path`: of its key; `format`: the input's; `file`: the first of them; `found`: its beginning, a predicate
    """

    path: str
    format: str
    file: Path
    found: str


class HostFacts(NamedTuple):
    """This host.

    - `memory`: the bytes that this process and its children may use: the limit of the container, or all there are
    - `file_systems`: by mount point, the type of the file system, such as ext4 or nfs4
    """

    memory: int | None = None
    file_systems: Mapping[str, str] = MappingProxyType({})

    def file_system(self, path: Path) -> str | None:
        """Return the type of the file system that has a path; None if it is not known.

        >>> HostFacts(None, {"/": "ext4", "/mnt/share": "nfs4"}).file_system(Path("/mnt/share/state"))
        'nfs4'
        """
        for part in (path, *path.parents):
            if str(part) in self.file_systems:
                return self.file_systems[str(part)]
        return None


class Package(NamedTuple):
    """An installed package, and the range of versions that taskplace was tested with."""

    name: str
    version: str
    tested: SpecifierSet


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All that is known of an application.

    - `file`, `settings`: its file, and what is in it, checked
    - `written`: the paths of the keys that the file and `--set` have, such as placement.max.warmup.replicas
    - `spark`: the effective properties of Spark
    - `steered`: whether the file steers a query of Spark's own, instead of placing a topology
    - `refused`: why a start would be refused; "" if nothing is known to be wrong
    - `times`: by external topic, the first column of its rows that is a timestamp, as far as their schema is known
    - `missing_inputs`: the input directories that do not exist on this host
    - `wrong_inputs`: inputs with a file of another format
    - `unknown`: by fact that is missing, the reason
    """

    settings: Settings
    spark: SparkProperties
    file: str = "FILE"
    written: frozenset[str] = frozenset()
    steered: bool = False
    refused: str = ""
    topology: BuiltTopology | None = None
    stores: tuple[StoreFacts, ...] | None = None
    checkpoint: CheckpointFacts | None = None
    host: HostFacts = field(default_factory=HostFacts)
    packages: tuple[Package, ...] = ()
    times: Mapping[str, str] = field(default_factory=dict)
    missing_inputs: tuple[MissingInput, ...] = ()
    wrong_inputs: tuple[WrongInput, ...] = ()
    unknown: Mapping[Need, str] = field(default_factory=dict)

    @property
    def goes_on(self) -> bool:
        """Whether the stream runs until it is stopped. Otherwise it reads what is there, and ends."""
        return self.settings.spark.trigger_interval is not None

    @property
    def stateful_tasks(self) -> int:
        """The number of tasks with state; 0 if the topology is not known."""
        if self.topology is None:
            return 0
        return sum(sub.partitions or 0 for sub in self.topology.subtopologies if sub.stateful)
