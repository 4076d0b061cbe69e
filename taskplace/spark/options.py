"""Checks what `Placed` is given: one error a mistake, before anything is opened.

Errors: `InputError` with the parameter, what was found, what was expected, the nearest known name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from taskplace import paths
from taskplace.errors import InputError
from taskplace.model import reading
from taskplace.model.config import PlacementConfig
from topology import BuiltTopology, Topology

COMPRESSIONS = ("lz4", "zstd")
#: One element of a partition travels as one Java array: 2 GiB is where those end.
MOST_BYTES = 2**31 - 1
_EVENTS = ("batch", "rebalance", "failure")  # those that `Placed` itself tells


def built_topology(topology: object) -> BuiltTopology:
    """Return the topology, built."""
    if isinstance(topology, BuiltTopology):
        return topology
    if not isinstance(topology, Topology):
        raise InputError(
            "topology", found=topology, expected="a topology.Topology, or what its build() gives"
        )
    return topology.build()


def placement_config(config: object) -> PlacementConfig:
    """Return the configuration that an object, a mapping of Kafka's keys, or nothing describes."""
    if isinstance(config, PlacementConfig):
        return config
    return PlacementConfig.from_properties({} if config is None else config)  # type: ignore[arg-type]


def local_path(path: object, what: str) -> Path:
    """Return a local path. Errors: `InputError` for a file system without an exclusive create that is known to work."""
    if (
        not isinstance(path, str | os.PathLike)
        or not isinstance(os.fspath(path), str)
        or not str(path).strip()
    ):
        raise InputError(what, found=path, expected="a directory, as a path or a file:// URI")
    found = paths.local_path(
        path if isinstance(path, str) else Path(path),
        what,
        expected="a path, or a file:// URI, on a file system that driver and executors share",
    )
    if what == "checkpoint" and set(str(found)) & set("*?[]{}"):
        raise InputError(
            what, found=str(found), expected="a path without * ? [ ] { }, which Spark takes for patterns"
        )
    return found


def check_numbers(
    snapshot_interval: object,
    snapshot_bytes: object,
    follower_share: object,
    bytes_per_task: object,
    locality_wait_ms: object,
) -> None:
    """Refuse numbers that are none, or out of their range."""
    reading.integer(snapshot_interval, "snapshot_interval", 1)
    reading.integer(snapshot_bytes, "snapshot_bytes", 1)
    reading.integer(bytes_per_task, "bytes_per_task", 1, MOST_BYTES)
    reading.integer(locality_wait_ms, "locality_wait_ms", 0)
    share = follower_share
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise InputError("follower_share", found=share, expected="a number above 0, at most 1")


def check_compression(compression: object) -> None:
    """Refuse a compression that is not there."""
    if compression is not None and (not isinstance(compression, str) or compression not in COMPRESSIONS):
        hint = reading.nearest(compression, COMPRESSIONS)
        raise InputError("compression", found=compression, expected="'lz4', 'zstd' or None", hint=hint)


def check_tags(tags: object) -> None:
    """Refuse tags that are not texts by name, by host."""
    for host, of_host in _mapping(tags, "tags", "the tags of each host, such as {'host-1': {'zone': 'a'}}"):
        for name, tag in _mapping(of_host, f"tags.{host}", "tags, such as {'zone': 'a'}"):
            if not isinstance(name, str) or not isinstance(tag, str):
                raise InputError(f"tags.{host}.{name}", found=tag, expected="a text by a name")


def check_weights_given(weights: object) -> None:
    """Refuse weights that are no mapping; which tasks there are is looked at later."""
    _mapping(weights, "weights", "the weights of tasks, such as {'1_3': 2.5}")


def check_reporter(reporter: object) -> None:
    """Refuse a reporter that cannot be told anything."""
    if reporter is not None and not all(callable(getattr(reporter, event, None)) for event in _EVENTS):
        raise InputError("reporter", found=reporter, expected=f"an object with {', '.join(_EVENTS)}")


def check_sources(sources: object, *, streaming: bool = False) -> None:
    """Refuse sources that are not data frames by name, or with `streaming` not streams."""
    expected = "a data frame for each external topic, by its name"
    for name, df in _mapping(sources, "sources", expected, empty=False):
        if not isinstance(name, str) or not all(
            hasattr(df, part) for part in ("columns", "schema", "isStreaming")
        ):
            raise InputError(f"sources.{name}", found=df, expected="a Spark data frame, by a topic's name")
        if streaming and not df.isStreaming:
            expected = "a streaming data frame: spark.readStream, not spark.read"
            raise InputError(f"sources.{name}", found="a data frame that does not stream", expected=expected)


def _mapping(found: object, path: str, expected: str, *, empty: bool = True) -> list[tuple[Any, Any]]:
    if found is None and empty:
        return []
    if not isinstance(found, Mapping):
        raise InputError(path, found=found, expected=expected)
    return list(found.items())
