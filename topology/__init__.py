"""Describes a stream processing topology, and derives its subtopologies and their tasks: the units to place.

    from topology import Topology

    topo = Topology("flights")
    flights = topo.source("flights", key=["origin", "time_hour"], partitions=12)
    ...
    built = topo.build()

Reading order: `node` (the values), `builder` and `draft` (the description), `graph` (subtopologies), `partitions`
(co-partitioning and counts), `tasks`, `built` (the result), then `structure` and `evolution`, `describe`, `document`
and `entry_fields` (the written form). `names`, `stores` and `errors` check arguments; `verify` checks results.

Names are loaded on first use, so `import topology` is fast. The first `build()` loads networkx.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topology.builder import Topology as Topology
    from topology.built import BuiltTopology as BuiltTopology
    from topology.draft import Stream as Stream
    from topology.errors import TopologyError as TopologyError
    from topology.errors import TopologyNotReady as TopologyNotReady
    from topology.evolution import Evolution as Evolution
    from topology.evolution import compare as compare
    from topology.node import Node as Node
    from topology.node import Readiness as Readiness
    from topology.node import Reason as Reason
    from topology.node import Store as Store
    from topology.node import Subtopology as Subtopology
    from topology.node import TopicPartition as TopicPartition
    from topology.tasks import Task as Task
    from topology.tasks import TaskId as TaskId
    from topology.tasks import TopicGroup as TopicGroup
    from topology.tasks import group_topics as group_topics
    from topology.verify import violations as violations

_NAMES = {
    "builder": "Topology",
    "built": "BuiltTopology",
    "draft": "Stream",
    "errors": "TopologyError TopologyNotReady",
    "evolution": "Evolution compare",
    "node": "Node Readiness Reason Store Subtopology TopicPartition",
    "tasks": "Task TaskId TopicGroup group_topics",
    "verify": "violations",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
