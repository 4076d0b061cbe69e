"""What the doctor learns of an application by making it: its topology and stores, and what a start would refuse."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from taskplace.cli.application import built_topology, judge, load_application
from taskplace.doctor import MissingInput, StoreFacts, WrongInput
from taskplace.dotted_keys import topology_section
from taskplace.errors import InputError
from taskplace.spec.application import YAML_APPLICATION, Settings
from taskplace.wording import listed
from topology import BuiltTopology, Node
from topology.errors import TopologyError

#: The packages that processors and sources need.
NEEDED = ("pyspark", "pyarrow", "lmdb")


@dataclass(frozen=True, kw_only=True)
class Judged:
    """An application.

    - `topology`, `stores`: None if they are not known; `unknown` says why
    - `refused`: the first reason why a start would be refused; ""
    - `against`: why it cannot continue the checkpoint, a line each
    - `times`: by external topic, the first column of its rows that is a timestamp
    - `missing`: its input directories that do not exist
    - `wrong`: its inputs with a file of another format
    """

    topology: BuiltTopology | None = None
    stores: tuple[StoreFacts, ...] | None = None
    refused: str = ""
    against: tuple[str, ...] = ()
    times: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[MissingInput, ...] = ()
    wrong: tuple[WrongInput, ...] = ()
    unknown: str = ""


def judged(settings: Settings, root: Path | None = None) -> Judged:
    """Return what is known of an application without starting it. `root`: the checkpoint that it would continue.

    Where Spark's packages are missing, only the topology of a file is known.
    """
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        why = f"they need {listed(missing)} on this host: pip install 'taskplace[spark]'"
        return Judged(topology=_shown(settings), unknown=why)
    try:
        application = load_application(settings)
        built = built_topology(application, settings)
        built.tasks()  # raises with the reason when the topology is not ready
        judge(built, settings)
    except (InputError, TopologyError) as error:
        shown = _shown(settings)
        return Judged(
            topology=shown,
            stores=None if shown is None else tuple(_stores(shown, settings)),
            refused=_line(error),
            unknown="the application cannot be made: see start-refused",
        )
    stores = tuple(_stores(built, settings))
    against = () if root is None else _against(root, application, built, settings)
    return Judged(
        topology=built,
        stores=stores,
        against=against,
        times=_times(application),
        missing=missing_inputs(application, settings),
        wrong=wrong_inputs(application, settings),
    )


def _times(application: Any) -> dict[str, str]:
    """Return the first column with a timestamp of each topic whose schema is known."""
    schemas: Mapping[str, Any] = application.schemas() if hasattr(application, "schemas") else {}
    columns = {
        topic: next((field.name for field in schema if field.dataType.typeName() == "timestamp"), "")
        for topic, schema in schemas.items()
    }
    return {topic: column for topic, column in columns.items() if column}


def missing_inputs(application: Any, settings: Settings) -> tuple[MissingInput, ...]:
    """Return the input directories of an application of YAML alone that do not exist on this host."""
    if settings.application.cls != YAML_APPLICATION:  # a class may make them in `prepare`
        return ()
    return tuple(
        MissingInput(path, directory, _near(directory))
        for path, directory in application.missing_inputs().items()
    )


def wrong_inputs(application: Any, settings: Settings) -> tuple[WrongInput, ...]:
    """Return the inputs of an application of YAML alone with a file of another format."""
    if settings.application.cls != YAML_APPLICATION:
        return ()
    return tuple(WrongInput(path, kind, *file) for path, (kind, file) in application.wrong_inputs().items())


def _near(directory: Path) -> str:
    """Return a directory beside a missing one that has a similar name; "" if there is none."""
    with suppress(OSError):
        beside = [each.name for each in directory.parent.iterdir() if each.is_dir()]
        for name in difflib.get_close_matches(directory.name, beside, n=1):
            return str(directory.with_name(name))
    return ""


def _shown(settings: Settings) -> BuiltTopology | None:
    """Return the topology that is in the file itself; None if there is none that can be built."""
    from taskplace.spark.yaml_application import declared_topology

    try:
        return declared_topology(settings).build()
    except (InputError, TopologyError):
        return None


def _against(root: Path, application: Any, built: BuiltTopology, settings: Settings) -> tuple[str, ...]:
    from taskplace.spark.driver.definition import StreamDefinition
    from taskplace.spark.inspection.comparison import reasons_against

    known: Mapping[str, Any] = application.schemas() if hasattr(application, "schemas") else {}
    try:
        definition = StreamDefinition.of(
            built,
            config=settings.placement,
            options=settings.runtime,
            checkpoint=root,
            state_dir=settings.state_dir,
        )
    except (InputError, TopologyError):  # a start says the same before it opens the checkpoint
        return ()
    return reasons_against(root, definition, known)


def _stores(built: BuiltTopology, settings: Settings) -> Iterator[StoreFacts]:
    """Yield the stores, each at the first node that has it."""
    nodes = topology_section(settings.topology).get("nodes")
    in_file = nodes if isinstance(nodes, Mapping) else {}
    by_name, seen = {store.name: store for store in built.stores}, set()
    for node in built.nodes:
        kind, sends_final = _kind(node)
        for name in node.stores:
            if name not in seen:
                seen.add(name)
                path = f"topology.nodes.{node.name}" if node.name in in_file else f"store {name!r}"
                path += ".options" if kind and node.name in in_file else ""
                yield StoreFacts(name, path, kind, by_name[name].retention_ms, sends_final)


def _kind(node: Node) -> tuple[str, bool]:
    """Return the name of a built-in processor, or "", and whether it has windows that are sent when they close."""
    from taskplace.spark import processors

    kinds = {
        processors.Deduplicate: "deduplicate",
        processors.TableJoin: "table-join",
        processors.PerKey: "per-key",
        processors.Count: "count",
        processors.Aggregate: "aggregate",
    }
    kind = next((name for made, name in kinds.items() if isinstance(node.processor, made)), "")
    layouts = node.processor.layouts() if kind else {}
    final = any(layout.get("meaning", {}).get("emit") == "final" for layout in layouts.values())
    return kind, final


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
