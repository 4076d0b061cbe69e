"""Placement keys and options that cannot work on Spark, or not with this topology, are refused at the start."""

from __future__ import annotations

import pytest

from taskplace.errors import InputError
from taskplace.spark.yaml_application import judge
from taskplace.spec.application import Settings
from topology import Topology


def settings(tmp_path, **more) -> Settings:
    return Settings.from_mapping(
        {
            "application": {"id": "a", "class": "examples.flights:Flights"},
            "checkpoint": {"dir": str(tmp_path / "checkpoint")},
            "state": {"dir": str(tmp_path / "state")},
            **more,
        }
    )


def rows():
    topo = Topology("t")
    topo.source("in", key="k", partitions=2).sink("out", target=None)
    return topo.build()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (
            {"placement": {"rack.aware.assignment.strategy": "min_traffic"}},
            r"^placement\.rack\.aware\.assignment\.strategy: found 'min_traffic', expected none",
        ),
        (
            {"placement": {"task.assignor.class": "high_availabilty"}},
            r"^placement\.task\.assignor\.class: found 'high_availabilty', .*'high_availability'",
        ),
        (
            {"runtime": {"idle.closing": "10 minutes"}},
            r"^runtime\.idle\.closing: found '10 minutes', expected a topology with windows",
        ),
    ],
)
def test_a_key_without_a_use_is_named_by_its_path(tmp_path, more, says):
    with pytest.raises(InputError, match=says):
        judge(rows(), settings(tmp_path, **more))


def test_the_same_description_without_them_is_fine(tmp_path):
    judge(rows(), settings(tmp_path))
