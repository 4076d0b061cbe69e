"""The arguments that a partitioner is made with are checked when it is made."""

from __future__ import annotations

from typing import Any

import pytest
from taskplace.groups.partitioner import PartitionerConfig, TopicPartitioner, UniformStickyPartitioner

from taskplace.errors import InputError


@pytest.mark.parametrize("seed", [-1, 1.5, "7", None, True])
def test_a_seed_is_a_whole_number(seed: Any) -> None:
    with pytest.raises(InputError, match=r"^seed: found"):
        UniformStickyPartitioner(2, seed=seed)
    with pytest.raises(InputError, match=r"^seed: found"):
        TopicPartitioner({"a": 2}, seed=seed)


@pytest.mark.parametrize("config", [{"batch.size": 5}, 5, PartitionerConfig])
def test_a_configuration_is_a_partitioner_config(config: Any) -> None:
    with pytest.raises(InputError, match=r"^config: found .*, expected a PartitionerConfig"):
        UniformStickyPartitioner(2, config)
    with pytest.raises(InputError, match=r"^config: found .*, expected a PartitionerConfig"):
        TopicPartitioner({"a": 2}, config)


def test_a_topic_has_at_most_ten_million_partitions() -> None:
    with pytest.raises(InputError, match=r"^partitions: found 10000001, expected .* at most 10000000"):
        UniformStickyPartitioner(10_000_001)
