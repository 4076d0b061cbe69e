"""Checks the arguments of `Placed` before anything is opened.

Errors: one `InputError` per mistake, with the parameter, the value found, the values expected, and the nearest known
name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from taskplace import validation
from taskplace.assign.registry import BUILT_IN
from taskplace.assign.registry import find as find_assignor
from taskplace.errors import ConfigError, InputError
from taskplace.model.callables import check_function
from taskplace.model.config import PlacementConfig
from taskplace.model.placed_options import PlacedOptions
from taskplace.spark.driver.definition import StreamDefinition
from taskplace.spark.driver.directory_overlaps import Used, check_overlaps
from taskplace.spec import paths
from topology import BuiltTopology, Topology, TopologyNotReady


def stream_definition(
    topology: object,
    *,
    checkpoint: object,
    state_dir: object,
    config: object = None,
    options: object = None,
    keywords: Mapping[str, Any] = MappingProxyType({}),
) -> StreamDefinition:
    """Check what defines a stream, and compile its topology. `keywords`: fields of `PlacedOptions`, without `options`.

    Errors: also `TopologyNotReady`; `TopologyError`, for directories that overlap, and as for `StreamDefinition.of`.
    """
    built, placement = built_topology(topology), config
    if not isinstance(placement, PlacementConfig):
        placement = PlacementConfig.from_properties({} if config is None else config)  # type: ignore[arg-type]
    if not (ready := built.readiness()):  # other checks would take an unknown count for a wrong one
        raise TopologyNotReady(f"topology {built.name!r} is not ready: {ready.reason}")
    chosen = placed_options(options, keywords)
    check_supported(placement)
    shared = local_path(checkpoint, "checkpoint", patterns=False)
    local = local_path(state_dir, "state_dir")
    check_overlaps(
        built, [Used(shared, "checkpoint", "the checkpoint"), Used(local, "state_dir", "the state_dir")]
    )
    return StreamDefinition.of(built, config=placement, options=chosen, checkpoint=shared, state_dir=local)


def built_topology(topology: object) -> BuiltTopology:
    """Return the topology; build it if it is not built yet. Errors: also `TopologyError`, from building."""
    if isinstance(topology, BuiltTopology):
        return topology
    if not isinstance(topology, Topology):
        raise InputError(
            "topology", found=topology, expected="a topology.Topology, or what its build() gives"
        )
    return topology.build()


def check_supported(config: PlacementConfig, prefix: str = "config.") -> None:
    """Refuse an assignor that is not installed, and strategies that have no meaning on Spark.

    `prefix` is put before the key in an error: "config." for the argument of `Placed`, as in its other errors, and
    "placement." for the section of a file.
    """
    if config.task_assignor_class not in BUILT_IN:
        find_assignor(config.task_assignor_class, f"{prefix}task.assignor.class")
    if config.rack_aware_assignment_strategy != "none":
        raise ConfigError(
            f"{prefix}rack.aware.assignment.strategy",
            found=config.rack_aware_assignment_strategy,
            expected="none: rows come to tasks through a shuffle, so that no rack is nearer to a task than another",
            hint="rack.aware.assignment.tags spreads standbys over racks or zones",
        )


def placed_options(options: object, keywords: Mapping[str, Any]) -> PlacedOptions:
    """Return the `PlacedOptions`, given as an object or as keywords.

    Errors: also `TypeError` for an unknown keyword, as for any call, with the nearest known one.

    >>> placed_options(None, {"snapshot_interval": 5}).snapshot_interval
    5
    """
    if options is None:
        return PlacedOptions.of(keywords)
    if keywords:
        expected = "either `options` or keywords, not both"
        raise InputError(next(iter(keywords)), found="a keyword beside `options`", expected=expected)
    return validation.of_type(options, PlacedOptions, "options")


def local_path(path: object, what: str, *, patterns: bool = True) -> Path:
    """Return a local path; without `patterns`, one without the letters of a pattern.

    Errors: `InputError` for a file system that is not known to have an exclusive create.
    """
    if not isinstance(path, str | os.PathLike) or not str(path).strip():
        raise InputError(what, found=path, expected="a directory, as a path or a file:// URI")
    local = paths.local_path(
        path if isinstance(path, str) else Path(path),
        what,
        expected="a path, or a file:// URI, on a file system that driver and executors share",
    )
    if not patterns and set(str(local)) & set("*?[]{}"):
        raise InputError(
            what, found=str(local), expected="a path without * ? [ ] { }, which Spark takes for patterns"
        )
    return local


def check_reporter(reporter: object) -> None:
    """Refuse a reporter that lacks the method of an event, or has one with other parameters."""
    for event in ("batch", "rebalance", "failure", "progress") if reporter is not None else ():
        method = getattr(reporter, event, None)
        if method is not None or event != "progress":
            check_function(method, f"reporter.{event}", arguments=["event"])


def check_sources(sources: object, *, streaming: bool = False) -> None:
    """Refuse sources that are not a mapping of names to data frames. With `streaming`, the frames must be streams."""
    expected = "a data frame for each external topic, by its name"
    for name, df in validation.entries(sources, "sources", expected):
        if not isinstance(name, str) or not all(
            hasattr(df, part) for part in ("columns", "schema", "isStreaming")
        ):
            raise InputError(f"sources.{name}", found=df, expected="a Spark data frame, by a topic's name")
        if streaming and not df.isStreaming:
            expected = "a streaming data frame: spark.readStream, not spark.read"
            raise InputError(f"sources.{name}", found="a data frame that does not stream", expected=expected)
