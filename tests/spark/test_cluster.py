"""What the driver needs of a cluster is what Spark's bridge has, and what stands in for it; no Spark needed."""

from __future__ import annotations

import inspect

import pytest

from taskplace.errors import InputError
from taskplace.spark.bridge import Bridge
from taskplace.spark.cluster import METHODS, Cluster, Executor, JobLostError
from taskplace.spark.options import check_bridge
from taskplace.spark.placed import Placed
from tests.support.placed_without_spark import World
from topology import Topology


def lacking(method: str) -> object:
    """A cluster without one of the methods."""
    return type("Almost", (), {name: lambda *_: None for name in METHODS if name != method})()


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


def test_a_lost_job_names_the_executors_in_order():
    assert str(JobLostError(frozenset({"2", "1"}))) == "executors were lost: 1, 2"


@pytest.mark.parametrize("bridge", [3, "spark", object()])
def test_what_runs_no_jobs_is_no_bridge(tmp_path, bridge):
    topology = Topology("t")
    topology.source("in", key="k", partitions=2).sink("out")
    with pytest.raises(
        InputError, match=r"^bridge: found .*, expected a taskplace\.spark\.cluster\.Cluster, or None"
    ):
        Placed(None, topology, checkpoint=tmp_path / "c", state_dir=tmp_path / "s", bridge=bridge)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("method", METHODS)
def test_each_method_that_a_bridge_lacks_is_named(method):
    with pytest.raises(InputError, match=rf"expected .*, or None; it has no method {method}$"):
        check_bridge(lacking(method))


def test_a_bridge_with_all_methods_is_taken_and_none_is_the_one_of_spark():
    assert {"pinned", "run", "start", "close"} < set(METHODS)
    check_bridge(lacking("none of them"))
    check_bridge(None)
