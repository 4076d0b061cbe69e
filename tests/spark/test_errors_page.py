"""The catalogue of errors is complete, and its examples are the messages of errors that are really raised."""

from __future__ import annotations

import errno
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pyarrow as pa
import pytest

import taskplace
import topology
from taskplace.groups.consumer import ConsumerProtocol
from taskplace.groups.coordinator import Coordinator
from taskplace.groups.messages import decode
from taskplace.groups.strategies import Strategy
from taskplace.model import callables
from taskplace.model.config import PlacementConfig
from taskplace.model.plan import Plan
from taskplace.model.problem import Problem
from taskplace.spark import ddl
from taskplace.spark.checkpoint.history import next_step
from taskplace.spark.messages import Change, History, Position
from taskplace.spark.processors import Count
from taskplace.spark.state.keys import checked, verified
from taskplace.spark.types import readable
from taskplace.spark.worker.guard import raising_disk_full
from topology import Topology

PAGE = (Path(__file__).parents[2] / "docs" / "errors.md").read_text(encoding="utf-8")
ENTRIES = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", PAGE, re.M | re.S))
TASKS = {"tasks": [{"id": "0_0"}], "instances": [{"id": "a"}]}
KEYS = pa.table({"k": ["a"]})


def counting(world, by="string"):
    topo = Topology("t")
    source = topo.source("in", key="k", partitions=1)
    source.process(Count("n", by={"k": by}), name="n").sink("out", target=_Nowhere())
    return topo


class _Nowhere:
    def publish(self, spark, batch_id, files):
        """Drop the rows."""


def unequal(world, patch):
    topo = Topology("t")
    a, b = (topo.source(name, key="k", partitions=count) for name, count in (("a", 4), ("b", 3)))
    a.join_table(b, name="joined")
    topo.build()


def not_ready(world, patch):
    topo = Topology("t")
    topo.source("a", key="k").process(name="p")
    topo.build().tasks()


def other_topology(world, patch):
    world.come(1)
    world.batch(world.open(counting(world)), 0, **{"in": KEYS})
    world.open(counting(world, "binary"))


def two_drivers(world, patch):
    world.come(1)
    first = world.open(counting(world))
    world.batch(first, 0, **{"in": KEYS})
    world.batch(world.open(counting(world)), 1, **{"in": KEYS})
    world.batch(first, 2, **{"in": KEYS})


def full_disk(world, patch):
    with raising_disk_full(world.folder):
        raise OSError(errno.ENOSPC, "no space left on device")


def old_spark(world, patch):
    from taskplace.spark import steer

    patch.setattr("pyspark.__version__", "3.4.4")
    steer(type("StreamingQuery", (), {"runId": "r", "_jsq": object()})())


def no_rights(world, patch):
    ck = pytest.importorskip("confluent_kafka")
    from taskplace.spark import KafkaSink
    from taskplace.spark.kafka import brokers as questions

    def refuse(*_, **__):
        raise ck.KafkaException(ck.KafkaError(ck.KafkaError.TOPIC_AUTHORIZATION_FAILED))

    patch.setattr(questions.Admin, "describe", refuse)
    KafkaSink("totals", servers="127.0.0.1:1").probe()


def no_leader(world, patch):
    ck = pytest.importorskip("confluent_kafka")
    from taskplace.spark.kafka.clients import Clients
    from taskplace.spark.kafka.options import ClientOptions

    answer = ck.KafkaError(ck.KafkaError.LEADER_NOT_AVAILABLE)
    clients = Clients(ClientOptions("KafkaSink", "broker-1:9092", {}), "totals")
    raise clients.failed("topic 'totals' cannot be checked", answer)


def no_such_topic(world, patch):
    ck = pytest.importorskip("confluent_kafka")
    from taskplace.spark.kafka.clients import Clients
    from taskplace.spark.kafka.offsets import refused
    from taskplace.spark.kafka.options import ClientOptions

    answer = ck.KafkaError(ck.KafkaError.UNKNOWN_TOPIC_OR_PART)
    clients = Clients(ClientOptions("KafkaRecords", "broker-1:9092", {}), "flihgts")
    raise refused("flihgts", answer, clients, right="Read")


def no_way(world, patch):
    next_step(Position(0, "x"), None, History((Change(2, "b", "a", offset=9, records=1),)))


def own_callback(world, patch):
    from taskplace.groups.coordinator import CoordinatorSettings
    from taskplace.groups.local import LocalCoordinator, LocalMember
    from taskplace.groups.member import MemberSettings
    from taskplace.groups.metadata import Topics

    with LocalCoordinator(CoordinatorSettings(group_initial_rebalance_delay_ms=0)) as coordinator:
        way = ConsumerProtocol(["t"], fetch=lambda: Topics({"t": 1}), assigners=[Strategy("fair_sticky")])
        quick = MemberSettings(heartbeat_interval_ms=30, session_timeout_ms=5000)
        LocalMember(coordinator, "shop", way, quick).wait_for(lambda owned: owned is not None, timeout=20)


#: What raises each error, by the class whose entry shows it.
RAISED = {
    "InputError": lambda world, patch: taskplace.plan({"tasks": [{"id": "0-3"}], "instances": []}),
    "ConfigError": lambda world, patch: PlacementConfig.from_properties({"num.standby.replica": 1}),
    "TopologyError": unequal,
    "TopologyNotReady": not_ready,
    "MissingTopic": no_such_topic,
    "TypeTextError": lambda world, patch: ddl.read_type("array<lnog>"),
    "Unreadable": lambda world, patch: readable(pa.time64("us")),
    "UnknownName": lambda world, patch: callables.load("json:dumpps"),
    "InvalidPlan": lambda world, patch: taskplace.check(
        Problem.from_dict(TASKS), Plan({"a": taskplace.Roles()}, {})
    ),
    "TaskplaceError": lambda world, patch: world.open(counting(world)).explain("0_0"),
    "UnsupportedSpark": old_spark,
    "CheckpointError": other_topology,
    "NoWay": no_way,
    "DamagedEntry": lambda world, patch: verified(b"k", checked(b"k", b"value")[:-1] + b"?"),
    "Fenced": two_drivers,
    "DiskFull": full_disk,
    "SinkError": no_rights,
    "RetriableSinkError": no_leader,
    "GroupError": lambda world, patch: Coordinator().fence("orders", "m1", 3),
    "StaleGeneration": lambda world, patch: Coordinator().fence("orders", "m1", 3),
    "ProtocolError": lambda world, patch: decode(b"abc"),
    "UnknownVersion": lambda world, patch: decode(b"tg\x09" + bytes(9)),
    "GroupFailed": own_callback,
}


def errors() -> dict[str, type[BaseException]]:
    """Every error class of the two packages, by name. Private ones never leave their module."""
    found = {}
    for package in (taskplace, topology):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            made = vars(importlib.import_module(module.name)).values()
            found |= {
                each.__name__: each
                for each in made
                if inspect.isclass(each)
                and issubclass(each, BaseException)
                and each.__module__ == module.name
                and not each.__name__.startswith("_")
            }
    return found


def test_the_page_has_every_error_and_no_other():
    inside = set(re.findall(r"^- `(\w+)`: ", PAGE.partition("## Inside only")[2], re.M))
    assert set(ENTRIES) == set(RAISED) == set(errors()) - inside
    for name, text in ENTRIES.items():
        assert "- **Cause**: " in text and "- **Remedy**: " in text, name


@pytest.mark.parametrize("name", list(RAISED))
def test_the_example_is_what_the_error_says(name, world, monkeypatch):
    with pytest.raises(errors()[name]) as caught:
        RAISED[name](world, monkeypatch)
    said = str(caught.value).replace(str(world.folder), "/data")
    said = re.sub(r"\d+ of \d+ MiB free", "3 of 20480 MiB free", said)
    assert re.search(r"```text\n(.*?)\n```", ENTRIES[name], re.S)[1] == said
    if name not in ("GroupError",):
        assert type(caught.value).__name__ == name
