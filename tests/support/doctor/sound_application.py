"""A sound application for the doctor's rules: all rules look at it, and none finds anything."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from packaging.specifiers import SpecifierSet
from taskplace.spec.application import SECTIONS, Settings
from taskplace.spec.application import overridden as set_value

from taskplace.doctor import CheckpointFacts, Facts, HostFacts, Package, SparkProperties, StoreFacts
from taskplace.durations import milliseconds
from taskplace.yaml_io import override
from topology import BuiltTopology, Topology

DAY = 86_400_000
PROPERTIES = "spark-defaults.conf"
DOCUMENT: Mapping[str, Any] = {
    "application": {"id": "shop", "class": "shop:Shop"},
    "checkpoint": {"dir": "/shared/shop/checkpoint"},
    "state": {"dir": "/disk/shop/state"},
    "spark": {
        "master": "spark://driver:7077",
        "trigger.interval": "10 s",
        "conf": {
            "spark.executor.instances": 3,
            "spark.executor.cores": 2,
            "spark.executor.memory": "4g",
            "spark.locality.wait.node": "10s",
        },
    },
    "placement": {
        "num.standby.replicas": 1,
        "max.warmup.replicas": 4,
        "probing.rebalance.interval.ms": 60_000,
        "acceptable.recovery.lag": 10_000,
        "rack.aware.assignment.tags": ["zone"],
        "state.cleanup.delay.ms": 600_000,
    },
    "runtime": {
        "tags": {"host-1": {"zone": "a"}, "host-2": {"zone": "b"}},
        "weights": {"0_0": 2},
        "idle.closing": "10 minutes",
        "locality.wait.ms": 30_000,
    },
    "input": {
        "orders": {
            "format": "kafka",
            "options": {
                "subscribe": "orders",
                "maxOffsetsPerTrigger": 100_000,
                "kafka.isolation.level": "read_committed",
                "kafka.ssl.truststore.location": "/etc/trust.jks",
            },
        },
        "clicks": {
            "kafka": {"topic": "clicks", "servers": "broker:9092", "most_records": 10_000, "options": {}}
        },
    },
    "output": {
        "totals": {
            "kafka": {
                "topic": "totals",
                "servers": "broker:9092",
                "options": {"sasl.password_env": "PASSWORD", "transaction.timeout.ms": 60_000},
            }
        }
    },
    "report": {"log": "text", "log.tasks": True, "metrics.port": 9404, "metrics.host": "127.0.0.1"},
}
STORES = (
    StoreFacts("seen", "topology.nodes.once.options", "deduplicate", DAY),
    StoreFacts("hours", "topology.nodes.by-hour.options", "count", 3_900_000, True),
    StoreFacts("customers", "topology.nodes.with-customer.options", "table-join", None),
)
CHECKPOINT = CheckpointFacts(
    path=Path("/shared/shop/checkpoint"), records=5_000_000, state_bytes=1 << 30, executors=3
)
HOST = HostFacts(64 << 30, {"/": "ext4", "/shared": "nfs4", "/disk": "xfs"})
PACKAGES = (
    Package("pandas", "2.3.3", SpecifierSet(">=2.2,<3")),
    Package("pyspark", "4.3.0", SpecifierSet(">=4.3,<4.4")),
    Package("rich", "14.0", SpecifierSet(">=14,<16")),
)


def topology(partitions: int = 12, **options: Any) -> BuiltTopology:
    """Return a topology with a stateful task per partition. `options`: of its source."""
    given = options or {"event_time": "at", "delay": "10 minutes"}
    topo = Topology("shop")
    topo.source("orders", key="customer", partitions=partitions, **given).process(
        name="once", stores=[{"name": "seen", "retention_ms": DAY}]
    )
    return topo.build()


def facts(
    *overrides: str,
    properties: Mapping[str, str] | None = None,
    without: Collection[str] = (),
    removed: Collection[str] = (),
    lines: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    **changes: Any,
) -> Facts:
    """Return the facts of the sound application with some changes.

    - `overrides`: as for `--set`; `without`: paths of keys that the file does not have
    - `removed`: paths of keys that are removed after the overrides; `name: key` of a property in the file of them
    - `lines`: by path, what is added to the file there
    - `properties`: of a file of Spark's properties
    - `changes`: fields of `Facts`
    """
    document = {
        section: {key: value for key, value in keys.items() if f"{section}.{key}" not in without}
        for section, keys in DOCUMENT.items()
    }
    of_topology = [text for text in overrides if text.startswith("topology.")]
    for text in overrides:
        document = set_value(document, *override(text)) if text not in of_topology else document
    for path, more in lines.items():
        document = merged(document, path, more)
    for path in removed:
        document = without_key(document, path)
    settings = Settings.from_mapping(document, of_topology)
    keys = {f"{section}.{key}" for section in SECTIONS for key in document.get(section) or {}}
    kept = {key: value for key, value in (properties or {}).items() if f"{PROPERTIES}: {key}" not in removed}
    sound = Facts(
        settings=settings,
        spark=SparkProperties(settings.spark, kept, PROPERTIES),
        written=frozenset(keys | {key for text in overrides if (key := override(text)[0]) not in removed}),
        topology=topology(),
        stores=STORES,
        checkpoint=CHECKPOINT,
        host=HOST,
        packages=PACKAGES,
    )
    made = replace(sound, **changes)
    return made if "topology" in changes else without_options(made, removed)


def merged(tree: Mapping[str, Any], path: str, lines: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested values with more of them at a path; what is there is kept."""
    if path:
        inner = [key for key in tree if f"{path}.".startswith(f"{key}.") and isinstance(tree[key], Mapping)]
        key = max(inner, key=len) if inner else path.partition(".")[0]
        return {**tree, key: merged(tree.get(key) or {}, path.removeprefix(key).removeprefix("."), lines)}
    both = {
        name: merged(tree[name], "", each)
        for name, each in lines.items()
        if isinstance(each, Mapping) and isinstance(tree.get(name), Mapping)
    }
    return {**tree, **lines, **both}


def without_key(tree: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return nested values without the one at a path; the longest key that leads on is followed at each step."""
    inner = [key for key in tree if path.startswith(f"{key}.") and isinstance(tree[key], Mapping)]
    if path in tree or not inner:
        return {key: value for key, value in tree.items() if key != path}
    key = max(inner, key=len)
    return {**tree, key: without_key(tree[key], path.removeprefix(f"{key}."))}


def without_options(made: Facts, removed: Collection[str]) -> Facts:
    """Return facts without some options of the topology's source."""
    names = [
        path.rpartition(".")[2] for path in removed if path.startswith("topology.sources.orders.options.")
    ]
    if not names or made.topology is None:
        return made
    options = made.topology.node("orders").options
    return replace(
        made, topology=topology(**{k: v for k, v in options.items() if k not in names} or {"spare": 1})
    )


def overridden(made: Facts, path: str, value: Any) -> Facts:
    """Return facts with one value of the topology set: of its source, or the `ttl` and `time` of a store."""
    assert made.topology is not None and made.stores is not None
    _, part, name, *rest = path.split(".")
    if part == "sources":
        source = made.topology.node(name)
        given = {
            "partitions": made.topology.partitions[source.topic or ""],
            **source.options,
            rest[-1]: value,
        }
        return replace(made, topology=topology(**given))
    ends = {f"{store.path}.ttl": store for store in made.stores}
    if path not in ends:
        return made  # what else a node gets beside its `ttl`
    after = [
        s._replace(retention_ms=milliseconds(value, path)) if s == ends[path] else s for s in made.stores
    ]
    return replace(made, stores=tuple(after))
