"""What `Placed` refuses before it looks at Spark, or at any file."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskplace.errors import ConfigError, InputError
from taskplace.spark import Placed
from taskplace.spark.sinks import ParquetSink
from tests.support.placed_harness import topology


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"checkpoint": "s3://bucket/cp"},
            "checkpoint: found 's3://bucket/cp', expected a path, or a file:// URI",
        ),
        (
            {"checkpoint": "/data/[prod]/cp"},
            r"checkpoint: found '/data/\[prod\]/cp', expected a path without",
        ),
        ({"checkpoint": "file:///data/%7Bx%7D"}, r"checkpoint: found '/data/\{x\}', expected a path without"),
        ({"checkpoint": "file://nas/cp"}, "checkpoint: found 'file://nas/cp', .*'nas' would be another host"),
        ({"state_dir": "file://nas:99/state"}, "state_dir: found 'file://nas:99/state', .*another host"),
        ({"checkpoint": "file:///data/cp?x=1"}, r"checkpoint: .*\? and # are written %3F and %23"),
        ({"checkpoint": "file:cp"}, "checkpoint: found 'file:cp', .*has an absolute path"),
        ({"checkpoint": Path("file://nas/cp")}, "checkpoint: found 'file:/nas/cp', .*give a URI as text"),
        ({"checkpoint": " "}, "checkpoint: found ' ', expected a directory"),
        ({"state_dir": "s3:/bucket/state"}, "state_dir: found 's3:/bucket/state', .*another file system"),
        ({"state_dir": "hdfs://host/state"}, "state_dir: found 'hdfs://host/state', expected a path"),
        ({"follower_share": 0}, "follower_share: found 0, expected a number above 0, at most 1"),
        ({"snapshot_interval": 0}, "snapshot_interval: found 0, expected an integer of at least 1"),
    ],
)
def test_options_that_make_no_sense(tmp_path, options, message):
    where = {"checkpoint": tmp_path / "cp", "state_dir": tmp_path / "state"}
    with pytest.raises(InputError, match=message):
        Placed(None, topology(tmp_path), **{**where, **options})


@pytest.mark.parametrize("path", ["s3://bucket/out", "file://nas/out", "file:out", ""])
def test_output_is_never_written_to_a_directory_that_is_called_like_a_uri(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"ParquetSink\.path: found "):
        ParquetSink(path)
    assert ParquetSink("file://localhost/out%20put").path == Path("/out put")
    assert not any(tmp_path.iterdir())


def test_a_rack_aware_strategy_is_refused_with_what_serves_instead(tmp_path):
    config = {"rack.aware.assignment.strategy": "min_traffic"}
    where = {"checkpoint": tmp_path / "cp", "state_dir": tmp_path / "state"}
    with pytest.raises(ConfigError, match=r"rack\.aware\.assignment\.tags spreads standbys"):
        Placed(None, topology(tmp_path), config=config, **where)
    assert not any(tmp_path.iterdir())
