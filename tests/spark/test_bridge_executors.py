"""Which executors the bridge finds, and how often it asks the JVM for that; without Spark."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from taskplace.spark.bridge import Bridge
from taskplace.spark.bridge.bridge import Executors
from taskplace.spark.cluster import Cluster, Executor, JobLostError
from tests.support.placed_without_spark import World


class Jvm:
    """Stands for Spark's side.

    - `cores`: of the executors that the scheduler knows, by id; 0 for one that the list does not have yet
    - `going`: the ids that are being decommissioned
    - `calls`: the methods that were called
    """

    def __init__(self, **cores: int) -> None:
        self.cores = {name.removeprefix("e"): number for name, number in cores.items()}
        self.going: set[str] = set()
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args: self._called(name, *args)

    def _called(self, name: str, *args: Any) -> Any:
        self.calls.append(name)
        return {
            "getExecutorIds": lambda: self._object(mkString=lambda by: by.join(self.cores)),
            "taskScheduler": lambda: self,
            "executorsPendingDecommission": lambda: self._object(isEmpty=lambda: not self.going),
            "getExecutorDecommissionState": lambda id_: self._object(isEmpty=lambda: id_ not in self.going),
            "statusStore": lambda: self,
            "executorList": lambda active: self._object(size=lambda: len(self.cores), apply=self._info),
        }[name](*args)

    def _info(self, number: int) -> Any:
        id_, cores = list(self.cores.items())[number]
        return self._object(id=lambda: id_, totalCores=lambda: cores, hostPort=lambda: f"host-{id_}:7000")

    def _object(self, **methods: Callable[..., Any]) -> Any:
        def counted(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *args: self.calls.append(name) or method(*args)

        return SimpleNamespace(**{name: counted(name, method) for name, method in methods.items()})


def bridged(jvm: Jvm) -> Bridge:
    made = object.__new__(Bridge)
    context: Any = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: jvm))
    made._executors = Executors(context, local=False)
    return made


def names(bridge: Bridge) -> list[str]:
    return [executor.id for executor in bridge.executors()]


@pytest.mark.parametrize("number", [1, 3, 100])
def test_executors_that_are_known_take_as_many_calls_as_one(number):
    jvm = Jvm(**{f"e{i}": 2 for i in range(number)})
    bridge = bridged(jvm)
    first = bridge.executors()
    assert first == sorted(Executor(str(i), f"host-{i}", 2) for i in range(number))
    assert "executorList" in jvm.calls
    jvm.calls.clear()
    assert bridge.executors() == first
    assert jvm.calls[:3] == ["getExecutorIds", "mkString", "taskScheduler"]
    assert jvm.calls[3:] == ["executorsPendingDecommission", "isEmpty"]


def test_a_dead_a_decommissioned_and_a_new_executor_are_seen_at_once():
    jvm = Jvm(e1=2, e2=2, e3=2)
    bridge = bridged(jvm)
    assert names(bridge) == ["1", "2", "3"]
    del jvm.cores["1"]
    assert names(bridge) == ["2", "3"]
    jvm.going.add("2")
    assert names(bridge) == ["3"]
    assert bridge.usable() == {"3"}
    assert bridge.alive() == {"2", "3"}
    jvm.cores["4"] = 1
    assert bridge.executors() == [Executor("3", "host-3", 2), Executor("4", "host-4", 1)]
    jvm.going.clear()
    assert names(bridge) == ["2", "3", "4"]


def test_an_executor_counts_when_its_cores_are_known():
    jvm = Jvm(e1=2, e2=0)
    bridge = bridged(jvm)
    assert names(bridge) == ["1"]
    jvm.cores["2"] = 4
    assert bridge.executors() == [Executor("1", "host-1", 2), Executor("2", "host-2", 4)]


# -- What the driver needs of a cluster is what Spark's bridge has, and what stands in for it; no Spark n


METHODS = [name for name, member in vars(Cluster).items() if inspect.isfunction(member) and name[0] != "_"]


@pytest.mark.parametrize("cluster", [Bridge, World])
@pytest.mark.parametrize("method", METHODS)
def test_a_cluster_takes_the_arguments_that_the_driver_gives(cluster, method):
    def taken(of: type) -> list[tuple[object, object]]:
        parameters = inspect.signature(getattr(of, method)).parameters.values()
        return [(p.kind, p.default) for p in parameters]

    assert taken(cluster) == taken(Cluster)


def test_an_executor_is_an_instance_and_a_place_to_pin_to():
    executor = Executor("3", "host-1", 4)
    assert (executor.instance, executor.location) == ("executor-3", "executor_host-1_3")
    assert str(JobLostError(frozenset({"2", "1"}))) == "executors were lost: 1, 2"
