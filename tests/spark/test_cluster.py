"""What the driver needs of a cluster is what Spark's bridge has, and what stands in for it; no Spark needed."""

from __future__ import annotations

import inspect

import pytest

from taskplace.spark.bridge import Bridge
from taskplace.spark.cluster import Cluster, Executor, JobLostError
from tests.support.placed_without_spark import World

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
