"""A sound application for the doctor: every rule has its facts, and none finds anything."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from taskplace.doctor import CheckpointFacts, Facts, SparkProperties, StoreFacts
from taskplace.spec.application import SECTIONS, Settings
from taskplace.spec.application import overridden as set_value
from taskplace.spec.document import override
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
        "conf": {"spark.executor.cores": 2, "spark.executor.memory": "4g", "spark.locality.wait.node": "10s"},
    },
    "placement": {
        "num.standby.replicas": 1,
        "max.warmup.replicas": 4,
        "probing.rebalance.interval.ms": 60_000,
        "rack.aware.assignment.tags": ["zone"],
    },
    "runtime": {
        "tags": {"host-1": {"zone": "a"}, "host-2": {"zone": "b"}},
        "weights": {"0_0": 2},
        "locality.wait.ms": 30_000,
    },
    "input": {
        "orders": {
            "format": "kafka",
            "options": {
                "subscribe": "orders",
                "kafka.isolation.level": "read_committed",
                "kafka.ssl.truststore.location": "/etc/trust.jks",
            },
        },
        "clicks": {"kafka": {"topic": "clicks", "servers": "broker:9092", "options": {}}},
    },
    "output": {
        "totals": {
            "kafka": {
                "topic": "totals",
                "servers": "broker:9092",
                "options": {"sasl.password_env": "PASSWORD"},
            }
        }
    },
    "report": {"log": "text", "log.tasks": True, "metrics.port": 9404, "metrics.host": "127.0.0.1"},
}


def topology(partitions: int = 12, **options: Any) -> BuiltTopology:
    """Return a topology with a stateful task per partition. `options`: of its source."""
    topo = Topology("shop")
    source = topo.source("orders", key="customer", partitions=partitions, **(options or {"event_time": "at"}))
    source.process(name="once", stores=[{"name": "seen", "retention_ms": DAY}])
    return topo.build()


SOUND: Mapping[str, Any] = {
    "topology": topology(),
    "stores": (
        StoreFacts("seen", "topology.nodes.once.options", "deduplicate", DAY),
        StoreFacts("customers", "topology.nodes.with-customer.options", "table-join", None),
    ),
    "checkpoint": CheckpointFacts(path=Path("/shared/shop/checkpoint")),
    "file_systems": {"/": "ext4", "/shared": "nfs4", "/disk": "xfs"},
}


def facts(
    *overrides: str,
    properties: Mapping[str, str] | None = None,
    without: Collection[str] = (),
    **changes: Any,
) -> Facts:
    """Return the facts of the sound application with some changes.

    - `overrides`: as for `--set`; `without`: paths of keys that the file does not have
    - `properties`: of a file of Spark's properties
    - `changes`: fields of `Facts`
    """
    document = {
        section: {key: value for key, value in keys.items() if f"{section}.{key}" not in without}
        for section, keys in DOCUMENT.items()
    }
    for text in overrides:
        document = set_value(document, *override(text))
    settings = Settings.from_mapping(document)
    written = {f"{section}.{key}" for section in SECTIONS for key in document.get(section) or {}}
    given = {
        "settings": settings,
        "spark": SparkProperties(settings.spark, properties, PROPERTIES),
        "written": frozenset(written | {override(text)[0] for text in overrides}),
    }
    return Facts(**{**SOUND, **given, **changes})
