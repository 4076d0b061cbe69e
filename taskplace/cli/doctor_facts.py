"""Gathers the facts that the doctor's rules read: the file, Spark's properties, the topology, a checkpoint, this host.

**Idea.** What cannot be known is no error here: the fact stays None, and `unknown` has the reason. Only a file that
cannot be read ends the command.

Properties: reads only, and starts nothing. As for `taskplace run --check`, the module of an application class is
imported, and brokers are asked only for the partitions of a Kafka topic whose source does not say them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from taskplace.cli import documents
from taskplace.cli.doctor import Judged, installed, judged, this_host
from taskplace.doctor import CheckpointFacts, Facts, Need, SparkProperties, read_properties
from taskplace.errors import CheckpointError, ConfigError
from taskplace.spark.inspection.checkpoint import inspect, is_checkpoint
from taskplace.spark.inspection.driver_seen import look
from taskplace.spark.steering.config import SteeringConfig
from taskplace.spec.application import SECTIONS, Settings
from taskplace.spec.paths import local_path
from taskplace.yaml_io import override

#: The section of a file that steers a query of Spark's own, as in conf/steer.yaml.
STEERING = "steering"


def gather(
    file: str,
    overrides: Sequence[str] = (),
    *,
    checkpoint: str | None = None,
    spark_properties: str | None = None,
) -> Facts:
    """Return the facts of an application.

    - `checkpoint`: a checkpoint to look at, usually the one that the application would continue
    - `spark_properties`: a file such as `spark-defaults.conf`

    Errors: `InputError` for a file that cannot be read, and for a path without a checkpoint; `ConfigError` for a key.
    """
    document = dict(documents.application_document(file))
    steered = _check_steering(document.pop(STEERING, None), overrides)
    of_sections = [text for text in overrides if not text.startswith(f"{STEERING}.")]
    settings = Settings.from_mapping(document, of_sections)
    documents.has_path(spark_properties or "", "--spark-properties")
    properties = {} if spark_properties is None else read_properties(spark_properties)
    root = None if checkpoint is None else documents.checkpoint(checkpoint)
    application = Judged() if steered else judged(settings, root)
    unknown: dict[Need, str] = dict.fromkeys(
        ("topology", "stores"), "a steered query has no topology" if steered else application.unknown
    )
    return Facts(
        file=file,
        settings=settings,
        spark=SparkProperties(settings.spark, properties, spark_properties or ""),
        written=frozenset(_written(document, of_sections)),
        steered=steered,
        refused=application.refused,
        topology=application.topology,
        stores=application.stores,
        checkpoint=None if root is None else _checkpoint(root, application.against),
        host=this_host(),
        packages=installed(steered=steered),
        times=application.times,
        missing_inputs=application.missing,
        wrong_inputs=application.wrong,
        unknown={**unknown, "checkpoint": _without_checkpoint(settings)},
    )


def _check_steering(section: Any, overrides: Sequence[str]) -> bool:
    """Return whether a file steers a query, after checking its section. Errors: `ConfigError`."""
    given = [override(text) for text in overrides if text.startswith(f"{STEERING}.")]
    if section is None and not given:
        return False
    if not isinstance(section, Mapping | None):
        raise ConfigError(STEERING, found=section, expected="a mapping")
    SteeringConfig.from_properties(
        {**(section or {}), **{key.removeprefix(f"{STEERING}."): value for key, value in given}}
    )
    return True


def _written(document: Mapping[str, Any], overrides: Sequence[str]) -> list[str]:
    """Return the paths of the keys that are written; of `spark.conf`, only the key itself."""
    return [
        *(
            f"{section}.{key}"
            for section in SECTIONS
            if isinstance(keys := document.get(section), Mapping)
            for key in keys
        ),
        *(override(text)[0] for text in overrides),
    ]


def _checkpoint(root: Path, against: Sequence[str]) -> CheckpointFacts:
    found = inspect(root)
    damaged = [f"{one.kind} {one.file}: {one.what}" for one in found.damaged]
    driver = ""
    try:
        seen = look(root)
        driver = seen.why if seen.runs else ""
    except CheckpointError as error:
        damaged.append(" ".join(str(error).split()))
    return CheckpointFacts(
        path=root,
        driver=driver,
        damaged=tuple(damaged),
        refused=tuple(against),
        records=max((task.records for task in found.tasks.values()), default=0),
        state_bytes=sum(task.bytes for task in found.tasks.values()),
        executors=sum(1 for roles in found.assignment.values() if any(roles.values())),
    )


def _without_checkpoint(settings: Settings) -> str:
    """Return why nothing is known of a checkpoint; it names the application's own, if there is one."""
    own = local_path(settings.checkpoint_dir, "checkpoint.dir")
    there = f", such as {own}" if is_checkpoint(own) else ""
    return f"no checkpoint was given (--checkpoint CHECKPOINT{there})"
