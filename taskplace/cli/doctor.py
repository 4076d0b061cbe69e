"""`taskplace doctor`: what endangers data in a configuration, and what has no effect, each with its remedy.

The facts of the rules are gathered here. What cannot be known is no error: the fact stays None, and `unknown` has the
reason. Only a file that cannot be read ends the command.

Properties: reads only, and starts nothing. As for `taskplace run --check`, the module of an application class is
imported, and brokers are asked only for the partitions of a Kafka topic whose source does not say them.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from taskplace.cli import codes, documents
from taskplace.cli.application import built_topology, check_inputs, judge, load_application
from taskplace.cli.terminal import INDENT, columns
from taskplace.doctor import (
    CheckpointFacts,
    Diagnosis,
    Facts,
    Severity,
    SparkProperties,
    StoreFacts,
    diagnose,
    read_properties,
)
from taskplace.errors import CheckpointError, ConfigError, InputError
from taskplace.spark.inspection.checkpoint import inspect, is_checkpoint
from taskplace.spark.inspection.driver import driver_of
from taskplace.spark.steering.config import SteeringConfig
from taskplace.spark.stub_processors import STATEFUL
from taskplace.spec.application import SECTIONS, Settings
from taskplace.spec.document import override
from taskplace.spec.paths import local_path
from taskplace.wording import count, listed, wrapped
from topology import BuiltTopology
from topology.errors import TopologyError

#: How wide texts are at most. Remedies to paste are never broken; those that begin with # are comments.
WIDTH = 110
#: The packages that processors and sources need.
NEEDED = ("pyspark", "pyarrow", "lmdb")
_CODES = {Severity.ERROR: codes.FAILED, Severity.WARNING: codes.WARNINGS}


def doctor(args: argparse.Namespace) -> int:
    """Print the findings. Return 0 for nothing above advice, 1 for errors, 6 for warnings without errors."""
    facts = gather(args.file, args.set, checkpoint=args.checkpoint, spark_properties=args.spark_properties)
    found = diagnose(facts)
    if args.output == "json":
        print(json.dumps({**found.to_dict(), "file": args.file, "checkpoint": args.checkpoint}, indent=1))
    else:
        print("\n".join(lines(found, min(WIDTH, columns()))))
    return codes.DONE if found.worst is None else _CODES.get(found.worst, codes.DONE)


# ------------------------------------------------------------------------------------------------------------ text


def lines(found: Diagnosis, width: int = WIDTH) -> Iterator[str]:
    """Yield a diagnosis as text: findings worst first, then which rules could not look, and a summary."""
    for severity in Severity:
        of_it = [finding for finding in found.findings if finding.severity is severity]
        if of_it:
            yield _counted(severity, len(of_it))
        for one in of_it:
            yield f"  {one.path}  [{one.rule}]"
            yield from wrapped(one.found, width, "    found   ", INDENT)
            yield from wrapped(one.why, width, "    why     ", INDENT)
            if one.remedy.startswith("# "):
                yield from wrapped(one.remedy, width, "    remedy  ", f"{INDENT}# ")
            else:  # to be copied as it is
                yield f"    remedy  {one.remedy}"
            yield ""
    for reason, rules in Counter(found.unable.values()).most_common():
        yield from wrapped(f"{count(rules, 'rule')} could not look: {reason}", width, others=INDENT)
    counted = [_counted(severity, found.counts[severity]) for severity in Severity if found.counts[severity]]
    summary = f"{', '.join(counted) or 'nothing found'}; {count(len(found.looked), 'rule')} looked"
    yield from wrapped(summary, width, others=INDENT)


def _counted(severity: Severity, number: int) -> str:
    words = ("piece of advice", "pieces of advice") if severity is Severity.ADVICE else (str(severity),)
    return count(number, *words)


# ----------------------------------------------------------------------------------------------------------- facts


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
    section = document.pop(documents.STEERING, None)
    prefix = f"{documents.STEERING}."
    steering = dict(override(text) for text in overrides if text.startswith(prefix))
    overrides = [text for text in overrides if not text.startswith(prefix)]
    steered = section is not None or bool(steering)
    if steered:
        given = {key.removeprefix(prefix): value for key, value in steering.items()}
        if not isinstance(section, Mapping | None):
            raise ConfigError(documents.STEERING, found=section, expected="a mapping")
        SteeringConfig.from_properties({**(section or {}), **given})
    settings = Settings.from_mapping(document, overrides)
    documents.has_path(spark_properties or "", "--spark-properties")
    properties = {} if spark_properties is None else read_properties(spark_properties)
    root = None if checkpoint is None else documents.checkpoint(checkpoint)
    made = _Made(unknown="a steered query has no topology") if steered else _made(settings, root)
    return Facts(
        settings=settings,
        spark=SparkProperties(settings.spark, properties, spark_properties or ""),
        written=frozenset(_written(document, overrides)),
        steered=steered,
        refused=made.refused,
        topology=made.topology,
        stores=made.stores,
        checkpoint=None if root is None else _checkpoint(root, made.against),
        file_systems=file_systems(),
        unknown={
            "topology": made.unknown,
            "stores": made.unknown,
            "checkpoint": _without_checkpoint(settings),
        },
    )


def _written(document: Mapping[str, Any], overrides: Sequence[str]) -> Iterator[str]:
    """Yield the paths of the keys that are written; of `spark.conf`, only the key itself."""
    for section in SECTIONS:
        if isinstance(keys := document.get(section), Mapping):
            yield from (f"{section}.{key}" for key in keys)
    yield from (override(text)[0] for text in overrides)


def _checkpoint(root: Path, against: Sequence[str]) -> CheckpointFacts:
    damaged = [f"{one.kind} {one.file}: {one.what}" for one in inspect(root).damaged]
    driver = ""
    try:
        seen = driver_of(root)
        driver = seen.why if seen.runs else ""
    except CheckpointError as error:
        damaged.append(_line(error))
    return CheckpointFacts(path=root, driver=driver, damaged=tuple(damaged), refused=tuple(against))


def _without_checkpoint(settings: Settings) -> str:
    """Return why nothing is known of a checkpoint; it names the application's own, if there is one."""
    own = local_path(settings.checkpoint_dir, "checkpoint.dir")
    there = f", such as {own}" if is_checkpoint(own) else ""
    return f"no checkpoint was given (--checkpoint CHECKPOINT{there})"


def file_systems(mounts: Path = Path("/proc/self/mounts")) -> dict[str, str]:
    """Return the types of this host's file systems by mount point; empty where the system does not tell."""
    found = {}
    with suppress(OSError):
        for line in mounts.read_text().splitlines():
            _, point, kind, *_ = line.split()
            found[point.replace("\\040", " ")] = kind
    return found


# ----------------------------------------------------------------------------------------------------- application


class _Made(NamedTuple):
    """What is learned of an application by making it.

    - `topology`, `stores`: None if they are not known; `unknown` says why
    - `refused`: the first reason why a start would be refused; ""
    - `against`: why it cannot continue the checkpoint, a line each
    """

    topology: BuiltTopology | None = None
    stores: tuple[StoreFacts, ...] | None = None
    refused: str = ""
    against: tuple[str, ...] = ()
    unknown: str = ""


def _made(settings: Settings, root: Path | None) -> _Made:
    """Return what is known of an application without starting it. `root`: the checkpoint that it would continue.

    Where Spark's packages are missing, only the topology of a file is known.
    """
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        why = f"they need {listed(missing)} on this host: pip install 'taskplace[spark]'"
        return _Made(_declared(settings), unknown=why)
    try:
        application = load_application(settings)
        built = built_topology(application, settings)
        built.tasks()  # raises with the reason when the topology is not ready
        definition = judge(application, built, settings)
    except (InputError, TopologyError) as error:
        shown = _declared(settings)
        stores = None if shown is None else tuple(_stores(shown, settings))
        return _Made(shown, stores, _line(error), unknown="the application cannot be made: see start-refused")
    refused = ""
    try:
        check_inputs(application, settings)
    except InputError as error:
        refused = _line(error)
    against: tuple[str, ...] = ()
    if root is not None and definition is not None:
        from taskplace.spark.inspection.comparison import reasons_against

        known = application.schemas() if hasattr(application, "schemas") else {}
        against = reasons_against(root, definition, known)
    return _Made(built, tuple(_stores(built, settings)), refused, against)


def _declared(settings: Settings) -> BuiltTopology | None:
    """Return the topology that is in the file itself; None if there is none that can be built."""
    from taskplace.spark.yaml_application import declared_topology

    try:
        return declared_topology(settings).build()
    except (InputError, TopologyError):
        return None


def _stores(built: BuiltTopology, settings: Settings) -> Iterator[StoreFacts]:
    """Yield the stores, each at the first node that has it."""
    nodes = settings.topology.get("nodes")
    in_file = nodes if isinstance(nodes, Mapping) else {}
    by_name, seen = {store.name: store for store in built.stores}, set()
    for node in built.nodes:
        for name in node.stores:
            if name not in seen:
                seen.add(name)
                path = f"topology.nodes.{node.name}.options" if node.name in in_file else f"store {name!r}"
                classes = {each.__name__ for each in type(node.processor).__mro__}
                kind = next((kind for kind, of in STATEFUL.items() if of in classes), "")
                yield StoreFacts(name, path, kind, by_name[name].retention_ms)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
