"""The configuration: Kafka's keys and defaults; one clear error for everything else."""

from __future__ import annotations

import pytest

from taskplace import PlacementConfig
from taskplace.errors import ConfigError

KAFKA_DEFAULTS = {
    "num.standby.replicas": 0,
    "max.warmup.replicas": 2,
    "acceptable.recovery.lag": 10_000,
    "probing.rebalance.interval.ms": 600_000,
    "rack.aware.assignment.tags": [],
    "rack.aware.assignment.strategy": "none",
    "rack.aware.assignment.traffic_cost": None,
    "rack.aware.assignment.non_overlap_cost": None,
    "task.assignor.class": "high_availability",
    "balance.factor": 1,
    "acceptable.recovery.seconds": None,
    "state.cleanup.delay.ms": 600_000,
}


def test_the_defaults_are_kafkas():
    assert PlacementConfig().to_properties() == KAFKA_DEFAULTS
    assert set(PlacementConfig.known_keys()) == set(KAFKA_DEFAULTS)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("max.warmup.replicas", 0, "an integer of at least 1"),
        ("max.warmup.replicas", True, "an integer of at least 1"),
        ("num.standby.replicas", -1, "an integer of at least 0"),
        ("num.standby.replicas", "one", "an integer of at least 0"),
        ("num.standby.replicas", 1.0, "an integer of at least 0"),
        ("acceptable.recovery.lag", None, "an integer of at least 0"),
        ("acceptable.recovery.seconds", 0, "a number above 0"),
        ("acceptable.recovery.seconds", "soon", "a number above 0"),
        ("rack.aware.assignment.strategy", "min-traffic", "one of none, min_traffic, balance_subtopology"),
        ("rack.aware.assignment.tags", ["zone", "zone"], "a list of different tag names"),
        ("rack.aware.assignment.tags", 3, "a list of different tag names"),
        ("rack.aware.assignment.traffic_cost", -1, "an integer of at least 0, at most 1000000"),
        ("rack.aware.assignment.traffic_cost", 10**7, "at most 1000000"),
        ("acceptable.recovery.lag", 2**63, "an integer of at least 0"),
        ("acceptable.recovery.lag", "9" * 5000, "an integer of at least 0"),
        ("acceptable.recovery.seconds", 10**400, "a number above 0"),
        ("rack.aware.assignment.strategy", "min_trafic", "did you mean 'min_traffic'?"),
        ("rack.aware.assignment.tags", ["\ud800"], "surrogates"),
        ("task.assignor.class", "", "high_availability, sticky"),
    ],
)
def test_a_bad_value_names_path_value_and_what_was_expected(key, value, expected):
    with pytest.raises(ConfigError) as caught:
        PlacementConfig.from_properties({key: value}, path="placement")
    assert caught.value.path == f"placement.{key}"
    assert caught.value.found == value
    assert expected in str(caught.value)


def test_the_assignor_has_a_second_name_and_only_one_may_be_used():
    config = PlacementConfig.from_properties({"task.assignor": "sticky"})
    assert config.task_assignor_class == "sticky"
    assert "task.assignor" not in config.to_properties()
    with pytest.raises(ConfigError, match=r"config\.task\.assignor(\.class)?: found 'a key given twice'"):
        PlacementConfig.from_properties({"task.assignor": "sticky", "task.assignor.class": "sticky"})


@pytest.mark.parametrize(
    ("key", "near"), [("num.standby.replica", "num.standby.replicas"), ("max.warmups", "max.warmup.replicas")]
)
def test_an_unknown_key_names_the_nearest(key, near):
    with pytest.raises(ConfigError, match=f"did you mean '{near}'"):
        PlacementConfig.from_properties({key: 1})
