"""The private calls that steering makes into Spark; `taskplace.spark.bridge` has all others.

What is used beyond the public API, and why:

- `StateStoreCoordinatorRef.getLocation` and `reportActiveInstance`, on the driver: read and write the executor on which
  a state store is loaded. It is the preferred location of the store's task.
- `StreamExecution.lastExecution`: the physical plan, for which operators share a stage, and the session it ran in.
- `AppStatusStore.taskList` and `operationGraphForStage`: how long each task of a stage took, and which stages hold
  state. If these fail, all tasks weigh the same.

Nothing here changes Spark's configuration, and the only thing that is written is the coordinator's map.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from taskplace.errors import InputError, UnsupportedSpark
from taskplace.spark.bridge import Bridge, Executor
from taskplace.spark.bridge.queries import JVM_ENDED
from taskplace.spark.session_conf import supported
from taskplace.spark.steering.layout import (
    WORKS,
    QueryLayout,
    SparkSettings,
    layout,
    operators_in,
    read_operators,
    that_ran,
)
from taskplace.spark.versions import STATE_METADATA
from topology.tasks import TaskId

RECENT_JOBS = 8
"""The jobs of a batch are among this many last jobs of its query."""
OVERHEAD_SECONDS = 0.05
"""Added to the time of each task, so that two very short tasks do not differ in load."""

_STATE_RDD = re.compile(r"\bStateStore\w*RDD\b")
_Store = tuple[int, int, str]


class StateBridge(Bridge):
    """The private side of one running query. Errors: `UnsupportedSpark` when anything needed is not there."""

    def __init__(self, query: Any) -> None:
        self._query: Any = getattr(query, "_jsq", None)
        if self._query is None or not hasattr(query, "runId"):
            if type(query).__module__.startswith("pyspark.sql.connect"):
                raise UnsupportedSpark(f"found a query of Spark Connect; {WORKS}")
            raise InputError("query", found=query, expected="a running StreamingQuery")
        # In another version, private methods may mean something else under the same name.
        if not supported(pyspark.__version__):
            raise UnsupportedSpark(f"found PySpark {pyspark.__version__}; {WORKS}")
        super().__init__(_session_of(self._query))
        self.run_id, self.id, self.name = query.runId, query.id, query.name
        self._package = self._jvm.org.apache.spark.sql.execution.streaming.state
        self._run_uuid = self._jvm.java.util.UUID.fromString(self.run_id)
        self._stores: dict[_Store, Any] = {}
        self._nobody = self._jvm.PythonUtils.toSeq(self._jvm.java.util.ArrayList())
        self._mapper: Any = None
        self._ended: Any = None  # the progress of the last batch
        self._searched: str | None = None  # the progress that had the recent ones searched

    def _probe(self) -> None:
        release = f"found PySpark {pyspark.__version__}"
        execution = self._query.streamingQuery() if _has(self._query, "streamingQuery") else None
        if execution is None or not _has(execution, "lastExecution", "resolvedCheckpointRoot"):
            raise UnsupportedSpark(f"{release}, whose queries do not show their execution; {WORKS}")
        if "Continuous" in execution.getClass().getSimpleName():
            raise UnsupportedSpark(f"found a query in continuous mode, which keeps no state; {WORKS}")
        manager = self.spark._jsparkSession.sessionState().streamingQueryManager()
        coordinator = manager.stateStoreCoordinator() if _has(manager, "stateStoreCoordinator") else None
        if coordinator is None or not _has(coordinator, "getLocation", "reportActiveInstance"):
            raise UnsupportedSpark(f"{release}, whose state store coordinator accepts no locations; {WORKS}")
        self._execution, self._coordinator = execution, coordinator

    def _configure(self, locality_wait_ms: int) -> None:
        """Leave the user's configuration as it is."""

    # -- the query

    def active(self) -> bool:
        """Return whether the query runs. Errors: `ConnectionError` when Spark itself has ended."""
        try:
            return bool(self._query.isActive())
        except JVM_ENDED as error:
            raise ConnectionError("the JVM of this Spark session has ended; start a new session") from error

    def between_batches(self) -> bool:
        """Return whether the query waits for data or for its trigger."""
        return not self._query.status().isTriggerActive()

    def finished_batch(self) -> int | None:
        """Return the id of the last batch that has ended, None before the first one."""
        progress = self._finished()
        return None if progress is None else int(progress.batchId())

    def state_operators(self) -> list[Mapping[str, Any]]:
        """Return the state operators in the progress of the last batch."""
        progress = self._finished()
        return [] if progress is None else json.loads(progress.json()).get("stateOperators", [])

    def _finished(self) -> Any:
        """Return the last progress of a batch; while a query waits, Spark reports that as progress too."""
        last = self._query.lastProgress()
        if last is not None and last.durationMs().containsKey("addBatch"):
            self._ended = last
        elif last is not None and self._searched != last.timestamp():
            # The query waits: since before it was steered, or since a batch that ended between two polls.
            self._searched = last.timestamp()
            ended = (p for p in reversed(self._query.recentProgress()) if "addBatch" in p.durationMs())
            self._ended = next(ended, self._ended)
        return self._ended

    def settings(self) -> SparkSettings:
        """Return the settings in force that steering depends on."""
        conf, last = self._jsc.conf(), self._execution.lastExecution()
        session = last.sparkSession() if last is not None else self._query.sparkSession()
        unload = session.conf().get("spark.sql.streaming.stateStore.unloadOnCommit", "false")
        wait = conf.get("spark.locality.wait", "3s")
        return SparkSettings(
            locality_wait_ms=int(conf.getTimeAsMs("spark.locality.wait.process", wait)),
            unload_on_commit=str(unload).lower() == "true",
        )

    def layout(self, *, planned: bool) -> QueryLayout | None:
        """Return the operators to steer, None while their partitions are not known. Runs a small job.

        `planned`: a batch has ended, so there is a plan to read; reading it earlier would make Spark plan. Until the
        query's very first batch has ended, only a part of the partitions has a directory in the checkpoint.
        """
        root = self._execution.resolvedCheckpointRoot()
        if not self._names(f"{root}/state"):
            return QueryLayout() if planned else None
        if not planned and not any(name.isdecimal() for name in self._names(f"{root}/commits")):
            return None
        plan = self._execution.lastExecution().executedPlan().toString() if planned else None
        if STATE_METADATA:
            rows = self.spark.read.format("state-metadata").load(root).collect()
            operators = read_operators([row.asDict() for row in rows])
        elif plan is not None:
            operators = operators_in(plan, lambda number: self._names(f"{root}/state/{number}/0"))
        else:
            return None
        there = {op.id: count_partitions(self._names(f"{root}/state/{op.id}")) for op in operators}
        return layout(that_ran(operators, there, planned=planned), plan)

    def _names(self, directory: str) -> list[str]:
        """Return the names in a directory; none if it is not there."""
        path = self._jvm.org.apache.hadoop.fs.Path(directory)
        files = path.getFileSystem(self._jsc.hadoopConfiguration())
        listed = files.listStatus(path) if files.exists(path) else []
        return [status.getPath().getName() for status in listed]

    # -- where tasks are, and where they are to be

    def places(self, layout: QueryLayout) -> dict[TaskId, str | None]:
        """Return the instance on which each task ran last; half a millisecond a task."""
        return {task: self._place(layout.stores(task)[0]) for task in layout.tasks}

    def _place(self, store: _Store) -> str | None:
        # "Some(executor_<host>_<id>)" or "None"; an id has no underscore.
        location = self._coordinator.getLocation(self._store(store)).toString()
        match = re.search(r"executor_.*_([^_)]+)\)$", location)
        return f"executor-{match[1]}" if match else None

    def send(self, layout: QueryLayout, intended: Iterable[tuple[TaskId, Executor]]) -> int:
        """Write these executors as the locations of all stores of these tasks; return the number of stores."""
        sent = 0
        for task, executor in intended:
            for store in layout.stores(task):
                id_ = self._store(store)
                self._coordinator.reportActiveInstance(id_, executor.host, executor.id, self._nobody)
                sent += 1
        return sent

    def _store(self, store: _Store) -> Any:
        if store not in self._stores:
            operator, partition, name = store
            root = f"{self._execution.resolvedCheckpointRoot()}/state"
            inner = self._package.StateStoreId(root, operator, partition, name)
            self._stores[store] = self._package.StateStoreProviderId(inner, self._run_uuid)
        return self._stores[store]

    # -- executors

    def decommissioned(self) -> frozenset[str]:
        """Return the instances that Spark is decommissioning: they run, but get no more tasks."""
        alive = self.alive()
        return frozenset(f"executor-{name}" for name in alive - self.usable())

    def remove(self, executor_id: str) -> bool:
        """Ask the cluster manager to end an executor and not to replace it; return whether it accepts."""
        return bool(self._jsc.killExecutor(executor_id))

    # -- load

    def task_load(self, layout: QueryLayout, by: str) -> dict[TaskId, float]:
        """Return the seconds or the input rows of each task in the last batch whose stages are all known.

        Empty if no such batch was found. A few Py4J calls a stage.
        """
        wanted = [operators[0].partitions for operators in layout.subtopologies]
        store, tracker = self._jsc.statusStore(), self._jsc.statusTracker()
        for job in sorted(tracker.getJobIdsForGroup(self.run_id), reverse=True)[:RECENT_JOBS]:
            info = tracker.getJobInfo(job)
            stages = sorted(info.get().stageIds(), reverse=True) if info.isDefined() else []
            tasks = [self._tasks(store, stage) for stage in stages if self._has_state(store, stage)]
            # Parents have lower numbers, so the last stage of the data flow comes first, as in the layout.
            if [len(stage) for stage in tasks] == wanted:
                found = [
                    (number, stage[at]["taskMetrics"], at)
                    for number, stage in enumerate(tasks)
                    for at in stage
                ]
                if by == "rows":
                    return {
                        TaskId(n, at): float(of["shuffleReadMetrics"]["recordsRead"]) for n, of, at in found
                    }
                return {TaskId(n, at): OVERHEAD_SECONDS + of["executorRunTime"] / 1000 for n, of, at in found}
        return {}

    def _has_state(self, store: Any, stage: int) -> bool:
        graph = getattr(self._jvm.org.apache.spark.ui.scope, "RDDOperationGraph$").__getattr__("MODULE$")
        return bool(_STATE_RDD.search(graph.makeDotFile(store.operationGraphForStage(stage))))

    def _tasks(self, store: Any, stage: int) -> dict[int, Mapping[str, Any]]:
        """Return the tasks that succeeded, by partition."""
        if self._mapper is None:
            # One JSON document instead of ten calls a task.
            self._mapper = self._jvm.com.fasterxml.jackson.databind.ObjectMapper()
            module = getattr(self._jvm.com.fasterxml.jackson.module.scala, "DefaultScalaModule$")
            self._mapper.registerModule(module.__getattr__("MODULE$"))
        attempt = store.lastStageAttempt(stage).attemptId()
        said = json.loads(self._mapper.writeValueAsString(store.taskList(stage, attempt, 1_000_000)))
        done = [task for task in said if task["status"] == "SUCCESS" and task["taskMetrics"]]
        return {int(task["partitionId"]): task for task in done}

    def state_sizes(self, layout: QueryLayout) -> dict[TaskId, float]:
        """Return the bytes of each task's state in the checkpoint. One listing per store."""
        hadoop = self._jsc.hadoopConfiguration()
        sizes = {}
        for task in layout.tasks:
            sizes[task] = 0.0
            for operator in sorted({operator for operator, _, _ in layout.stores(task)}):
                where = f"state/{operator}/{task.partition}"
                path = self._jvm.org.apache.hadoop.fs.Path(self._execution.resolvedCheckpointRoot(), where)
                sizes[task] += path.getFileSystem(hadoop).getContentSummary(path).getLength()
        return sizes


def _session_of(query: Any) -> SparkSession:
    """Return the session that a query runs in; never starts one.

    Errors: `InputError` when that session was stopped, also if another one has been started since.
    """
    session = SparkSession._instantiatedSession
    context = session.sparkContext._jsc if session is not None else None
    try:
        if session is not None and context is not None and not context.sc().isStopped():
            its = query.sparkSession().sparkContext()
            if not its.isStopped() and its.applicationId() == context.sc().applicationId():
                return session
    except JVM_ENDED:
        pass
    expected = "a running StreamingQuery of the current session"
    raise InputError("query", found="a query whose Spark session was stopped", expected=expected)


def _has(owner: Any, *methods: str) -> bool:
    names = {method.getName() for method in owner.getClass().getMethods()}
    return names.issuperset(methods)


def count_partitions(names: Iterable[str]) -> int:
    """Return how many partitions the directory of an operator has, by the names in it.

    >>> count_partitions(["_metadata", "0", "1", "10", ".1.crc"])
    11
    """
    return 1 + max((int(name) for name in names if name.isdecimal()), default=-1)
