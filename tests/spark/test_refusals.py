"""What `Placed` refuses before it looks at Spark, or at any file."""

from __future__ import annotations

import pytest
from placed_harness import topology

from taskplace.errors import ConfigError, InputError
from taskplace.spark import Placed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"checkpoint": "s3://bucket/cp"},
            "checkpoint: found 's3://bucket/cp', expected a path, or a file:// URI",
        ),
        (
            {"checkpoint": "/data/[prod]/cp"},
            r"checkpoint: found '/data/\[prod\]/cp', expected a path without \* \?",
        ),
        (
            {"checkpoint": "file:///data/%7Bx%7D"},
            r"checkpoint: found '/data/\{x\}', expected a path without \* \?",
        ),
        ({"state_dir": "hdfs://host/state"}, "state_dir: found 'hdfs://host/state', expected a path"),
        ({"follower_share": 0}, "follower_share: found 0, expected a number above 0, at most 1"),
        ({"snapshot_interval": 0}, "snapshot_interval 0, snapshot_bytes .*, expected both at least 1"),
    ],
)
def test_options_that_make_no_sense(tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        Placed(
            None,
            topology(tmp_path),
            **{"checkpoint": tmp_path / "cp", "state_dir": tmp_path / "state", **options},
        )


def test_a_rack_aware_strategy_is_refused_with_what_serves_instead(tmp_path):
    config = {"rack.aware.assignment.strategy": "min_traffic"}
    with pytest.raises(ConfigError, match=r"rack\.aware\.assignment\.tags spreads standbys"):
        Placed(
            None, topology(tmp_path), checkpoint=tmp_path / "cp", state_dir=tmp_path / "state", config=config
        )
    assert not any(tmp_path.iterdir())
