"""The executors of an application, as its driver knows them."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from pyspark import SparkContext

from taskplace.spark.cluster import Executor


class Executors:
    """The executors of an application. The host and the cores of an id never change, so Spark is asked for them once.

    Which ids exist, and which of them Spark is decommissioning, is asked each time. Each call to the JVM takes a few
    tenths of a millisecond, and the list of executors takes several calls for each of them.
    """

    def __init__(self, sc: SparkContext, *, local: bool) -> None:
        self._sc, self._local = sc, local
        self._jsc: Any = sc._jsc.sc()
        self._known: dict[str, Executor] = {}

    def alive(self) -> frozenset[str]:
        """Return the ids that the scheduler knows now."""
        if self._local:
            return frozenset({"driver"})
        ids = self._jsc.getExecutorIds().mkString(",")
        return frozenset(ids.split(",")) if ids else frozenset()

    def usable(self) -> frozenset[str]:
        """Return the ids that may get tasks."""
        alive = self.alive()
        if self._local:
            return alive
        scheduler = self._jsc.taskScheduler()
        if scheduler.executorsPendingDecommission().isEmpty():
            return alive
        return frozenset(id_ for id_ in alive if scheduler.getExecutorDecommissionState(id_).isEmpty())

    def registered(self) -> list[Executor]:
        """Return the usable executors that have registered with their number of cores, sorted by id."""
        usable = self.usable()
        found = {id_: self._known[id_] for id_ in usable if id_ in self._known}
        if found.keys() < usable:
            found |= self._listed(usable - found.keys())
        self._known = found
        return sorted(found.values())

    def _listed(self, ids: Collection[str]) -> dict[str, Executor]:
        """Return those of `ids` that Spark's list of executors has."""
        infos = self._jsc.statusStore().executorList(True)
        found = {}
        for i in range(infos.size()):
            info = infos.apply(i)
            id_ = info.id()
            if id_ in ids and ((cores := info.totalCores()) > 0 or self._local):
                host = re.sub(r":\d+$", "", info.hostPort())
                found[id_] = Executor(id_, host, cores or self._sc.defaultParallelism)
        return found
