"""The Spark properties that an application sets, and where each comes from.

**Idea.** `taskplace run` starts Spark with properties of its own, and with those of the file. `taskplace config` shows
the same properties without Spark. So both take them from here, in their order: a later one replaces an earlier one of
the same name.

Properties: needs neither Spark nor a session. What spark-submit and `spark-defaults.conf` set comes in addition; what
is listed here has priority over it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from taskplace.spec.application import Settings

#: The version of Spark that placed streams are tested with.
TESTED = "4.3"
#: The oldest and the newest version on which placed state and steering run, and all of them.
OLDEST, NEWEST = (3, 5), (4, 3)
SUPPORTED = "3.5, 4.0, 4.1, 4.2 and 4.3"
#: How many batches Spark's own logs go back. A stream goes on after its last batch only; Spark would keep 100.
BATCHES_RETAINED = 10
#: What is set while Spark plans a batch, and restored after it. AQE would run the shuffle during planning.
WHILE_PLANNING = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
}
ARCHIVES = "spark.archives"
#: The directory beside an executor into which Spark unpacks `spark.environment`.
ENVIRONMENT = "taskplace-environment"
LOCALITY_WAIT = "spark.locality.wait"
#: The rows of an Arrow batch. Set for each batch, from the size of its rows.
ROWS_OF_A_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_STREAMING = re.compile(r"(?<=\.sql\.execution\.streaming\.)(?:runtime|checkpointing)\.")


class SparkProperty(NamedTuple):
    """A property.

    - `key`: the path in the file that sets it; "" if taskplace sets it
    - `why`: why taskplace sets it
    """

    name: str
    value: str
    key: str = ""
    why: str = ""

    @property
    def in_conf(self) -> bool:
        """Whether `spark.conf` of the file sets it."""
        return self.key == f"spark.conf.{self.name}"


def application_properties(settings: Settings) -> Iterator[SparkProperty]:
    """Yield the properties of an application's session, in the order in which they are set."""
    named = "spark.app.name" if settings.spark.app_name != settings.application.id else "application.id"
    yield SparkProperty("spark.app.name", settings.spark.app_name or settings.application.id, named)
    if settings.spark.master:
        yield SparkProperty("spark.master", settings.spark.master, "spark.master")
    yield from _own()
    for name, value in settings.spark.conf.items():
        yield SparkProperty(name, value, f"spark.conf.{name}")
    if (archive := settings.spark.environment) is not None:
        given, path = settings.spark.conf, _python_path()
        archives = [f"{Path(archive).expanduser().absolute()}#{ENVIRONMENT}", given.get(ARCHIVES, "")]
        yield SparkProperty(ARCHIVES, ",".join(filter(None, archives)), "spark.environment")
        paths = [ENVIRONMENT, given.get(path.name, path.value)]
        yield SparkProperty(path.name, os.pathsep.join(filter(None, paths)), "spark.environment")


def later_properties(settings: Settings) -> Iterator[SparkProperty]:
    """Yield the properties that are set after the start of the session."""
    if LOCALITY_WAIT not in settings.spark.conf:
        key = "runtime.locality.wait.ms"
        yield SparkProperty(LOCALITY_WAIT, f"{settings.runtime.locality_wait_ms}ms", key)
    for name, value in WHILE_PLANNING.items():
        yield SparkProperty(name, value, why="while a batch is planned")


def query_properties() -> Iterator[SparkProperty]:
    """Yield the properties of a placed query alone, which `Placed.start` sets where the session leaves them open."""
    if supported(installed()):  # in other versions the class may have another name
        why = "checkpoints are on a POSIX file system; the default starts processes for each file"
        yield SparkProperty(_MANAGER, class_name(_FILE_MANAGER, installed()), why=why)
    if (4, 0) <= release_of(installed()) < (4, 2):
        why = "an availableNow run with the source of ticks has as many batches as it would have without"
        yield SparkProperty("spark.sql.streaming.triggerAvailableNowWrapper.enabled", "true", why=why)
    why = "a stream goes on after its last batch only"
    yield SparkProperty("spark.sql.streaming.minBatchesToRetain", f"{BATCHES_RETAINED}", why=why)


def session_properties() -> dict[str, str]:
    """Return the properties with which a Spark session should start, for `SparkSession.builder.config(map=...)`.

    They are properties of the whole session, so they have to be there before it starts:

    - `spark.scheduler.mode=FAIR`: standbys catch up beside the batches
    - `spark.shuffle.reduceLocality.enabled=false`: Spark does not prefer other executors than the planned one
    - `spark.executorEnv.PYTHONPATH`: executors import modules from the directory of the program's file, from the
      current one, and from the PYTHONPATH of this process

    `taskplace run` sets them by itself. Another property of the same name, set after them, replaces theirs.

    >>> sorted(session_properties())
    ['spark.executorEnv.PYTHONPATH', 'spark.scheduler.mode', 'spark.shuffle.reduceLocality.enabled']
    """
    main = sys.modules["__main__"]
    # `python -m` has the current directory in its path, and not that of the module.
    program = getattr(main, "__file__", None) if getattr(main, "__spec__", None) is None else None
    directories = [] if program is None else [str(Path(program).resolve().parent)]
    return {each.name: each.value for each in (*_placement(), _python_path(directories))}


def _own() -> Iterator[SparkProperty]:
    yield from _placement()
    yield from query_properties()
    yield _python_path()


def _placement() -> Iterator[SparkProperty]:
    yield SparkProperty("spark.scheduler.mode", "FAIR", why="standbys are updated beside the batches")
    # A task that has waited for its executor in vain could otherwise not run on just any executor.
    why = "preferred hosts of the shuffle would be added to the planned executor"
    yield SparkProperty("spark.shuffle.reduceLocality.enabled", "false", why=why)


def _python_path(first: Iterable[str] = ()) -> SparkProperty:
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    every = dict.fromkeys([*first, str(Path.cwd()), *filter(None, inherited)])
    why = "executors import modules from the current directory and PYTHONPATH"
    return SparkProperty("spark.executorEnv.PYTHONPATH", os.pathsep.join(every), why=why)


def expected_executors(master: str, conf: Mapping[str, str]) -> int:
    """Return how many executors a session begins with, as far as its configuration tells; 1 where it does not.

    - dynamic allocation: the greatest of its initial and its least number, and of `spark.executor.instances`
    - otherwise `spark.executor.instances`; without it YARN and Kubernetes start 2
    - a standalone cluster starts no more than `spark.cores.max` has cores for

    >>> expected_executors("local-cluster[3, 2, 1024]", {}), expected_executors("yarn", {})
    (3, 2)
    >>> expected_executors("spark://host:7077", {"spark.cores.max": "12", "spark.executor.cores": "4"})
    3
    """
    if of_local := re.match(r"local(?:-cluster\[\s*(\d+)|\b)", master):
        return int(of_local[1] or 1)

    def number(name: str) -> int:
        return int(conf.get(name) or 0)

    wanted = number("spark.executor.instances")
    if conf.get("spark.dynamicAllocation.enabled", "").strip().lower() == "true":
        begin = ("minExecutors", "initialExecutors")
        wanted = max(wanted, *(number(f"spark.dynamicAllocation.{name}") for name in begin))
    elif master == "yarn" or master.startswith("k8s://"):
        wanted = wanted or 2
    cores, of_one = number("spark.cores.max"), number("spark.executor.cores")
    if master.startswith("spark://") and cores and of_one:
        wanted = min(wanted or cores, cores // of_one)
    return max(wanted, 1)


def installed() -> str:
    """Return the version of PySpark; without it, the one that would be used."""
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return f"{TESTED}.0"


def release_of(version: str) -> tuple[int, ...]:
    """Return the release that a version belongs to.

    >>> release_of("4.3.0.dev1")
    (4, 3)
    """
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def supported(version: str) -> bool:
    """Return whether placed state and steering run on a version of PySpark.

    >>> supported("3.5.1"), supported("3.4.4"), supported("4.3.0.dev1"), supported("4.30"), supported("5.0.0")
    (True, False, True, False, False)
    """
    return OLDEST <= release_of(version) <= NEWEST


def class_name(name: str, version: str) -> str:
    """Return the name of a Java class in a version of Spark; `name` is that in the newest.

    >>> class_name("org.apache.spark.sql.execution.streaming.runtime.StreamExecution", "4.0.5")
    'org.apache.spark.sql.execution.streaming.StreamExecution'
    >>> class_name("org.apache.spark.sql.classic.Dataset", "3.5.9")
    'org.apache.spark.sql.Dataset'
    """
    release = release_of(version)
    if release < (4, 1):
        name = _STREAMING.sub("", name)
    return name.replace(".sql.classic.", ".sql.") if release < (4, 0) else name
