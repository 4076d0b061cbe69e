"""The benchmark's application on taskplace: orders are joined with the table of users, then counted by user and window.

    python -m kafka_streams.placed_app SETUP EXECUTORS

A process of its own, as an instance of Kafka Streams is. It prints a line of JSON when Spark's list of executors or the
placement has changed. The word `add` on its standard input asks Spark for one more executor. It ends with its input.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from bench_scale_out import give_up, want_executors
from spark_bench import EXECUTORS, executor_count, session, wait_until

from kafka_streams.network import RELAYED_HOST
from kafka_streams.setup import GRACE, MOST_WARMUPS, Setup
from taskplace.model.plan import Roles
from taskplace.spark import KafkaSink, Placed
from taskplace.spark.kafka.decoding import Decoder
from taskplace.spark.kafka.formats import Raw
from taskplace.spark.kafka.records import KafkaRecords
from taskplace.spark.kafka.source import stream_of
from taskplace.spark.processors import Aggregate, TableJoin, Tumbling, count, last
from topology import Topology

LOOK_SECONDS = 0.02
USER = {"user": "string"}


def sources(setup: Setup) -> dict[str, KafkaRecords]:
    """Return the topics that tasks read."""
    key = Raw("user", "string")
    orders = Decoder(key=key, value=Raw("item", "string"), include={"timestamp": "at"})
    users = Decoder(key=key, value=Raw("region", "string"))
    return {
        "orders": KafkaRecords(setup.orders, setup.servers, orders),
        "users": KafkaRecords(setup.users, setup.servers, users),
    }


def topology(setup: Setup, records: dict[str, KafkaRecords]) -> Topology:
    """Return the same topology as that of Instance.java."""
    topo = Topology("orders-by-user")
    orders = topo.source(
        "orders",
        key="user",
        partitions=setup.partitions,
        reads=records["orders"],
        event_time="at",
        delay="0 seconds",
    )
    users = topo.source("users", key="user", partitions=setup.partitions, reads=records["users"])
    regions = TableJoin("regions", by=USER, columns={"region": "string"}, how="inner")
    window = Tumbling("at", f"{setup.window_ms} ms", grace=GRACE, emit="changes")
    totals = Aggregate("totals", by=USER, window=window, n=count(), region=last("region", "string"))
    counted = orders.join_table(users, regions, name="with-region").process(totals, name="count")
    target = KafkaSink(setup.totals, servers=setup.servers, key="user", value=["window_start", "n", "region"])
    counted.sink("totals", target=target)
    return topo


def conf(setup: Setup) -> dict[str, str]:
    """Return Spark's settings: an executor is lost after as long a silence as an instance of Kafka Streams."""
    settings = {
        "spark.executor.heartbeatInterval": f"{setup.heartbeat_ms}ms",
        "spark.storage.blockManagerHeartbeatTimeoutMs": f"{setup.session_ms}ms",
        "spark.network.timeoutInterval": f"{min(1000, setup.session_ms // 2)}ms",
        "spark.sql.streaming.pollingDelay": "10ms",  # Spark's default
    }
    if setup.driver_port is None:
        return settings
    return {  # executors reach the driver through relays only
        **settings,
        "spark.driver.host": RELAYED_HOST,
        "spark.driver.port": str(setup.driver_port),
        "spark.driver.blockManager.port": str(setup.blocks_port),
        "spark.port.maxRetries": "0",
    }


def executors(spark: Any) -> list[str]:
    """Return the instances' names of the executors that Spark lists."""
    ids = spark.sparkContext._jsc.sc().getExecutorIds().mkString(",")
    return [f"executor-{id_}" for id_ in ids.split(",") if id_]


def tasks(placed: Placed) -> dict[str, Any]:
    """Return, for each executor, its process and its tasks by the assignment in force."""
    with placed.rebalancer.lock:
        plan = placed.loop.plan
        assignment = {} if plan is None else dict(plan.assignment)
        members = {name: member.pid for name, member in placed.state.members.items()}
    return {
        name: {
            "pid": pid,
            "active": [task.partition for task in roles.active],
            "followed": [task.partition for task in (*roles.standby, *roles.warmup)],
        }
        for name, pid in members.items()
        for roles in (assignment.get(name, Roles()),)
    }


class Changes:
    """Prints a value when it is another than before, with the time at which it was asked for."""

    def __init__(self, name: str) -> None:
        self._name, self._before = name, None

    def say(self, at: float, value: Any) -> None:
        if value != self._before:
            self._before = value
            sys.stdout.write(
                json.dumps({"at": at, self._name: value}) + "\n"
            )  # in one piece: two threads print
            sys.stdout.flush()


def watch(name: str, ask: Any, ended: threading.Event) -> None:
    """Print the changes of what `ask` returns."""
    changes = Changes(name)
    while not ended.wait(LOOK_SECONDS):
        at = time.time()
        changes.say(at, ask())


def obey(spark: Any, ended: threading.Event) -> None:
    """Do what the standard input says, until it ends."""
    for line in sys.stdin:
        if line.strip() == "add":
            want_executors(spark, executor_count(spark) + 1)
    ended.set()


def main() -> int:
    setup, wanted = Setup.read(sys.argv[1]), int(sys.argv[2])
    folder = Path(setup.folder)
    with session("kafka-streams", folder / "spark", **conf(setup)) as spark:
        wait_until(lambda: executor_count(spark) >= EXECUTORS, "all executors are there", 120)
        for _ in range(EXECUTORS - wanted):
            give_up(spark)
        records = sources(setup)
        placed = Placed(
            spark,
            topology(setup, records),
            checkpoint=folder / "checkpoint",
            state_dir=folder / "state",
            config={
                "num.standby.replicas": setup.standbys,
                "max.warmup.replicas": MOST_WARMUPS,
                "acceptable.recovery.lag": setup.acceptable_lag,
                "probing.rebalance.interval.ms": setup.probing_ms,
            },
        )
        query = placed.start({name: stream_of(topic, placed) for name, topic in records.items()})
        ended = threading.Event()
        for target, given in (
            (watch, ("alive", lambda: executors(spark), ended)),
            (watch, ("tasks", lambda: tasks(placed), ended)),
            (obey, (spark, ended)),
        ):
            threading.Thread(target=target, args=given, daemon=True).start()
        while not ended.wait(0.2):
            if not query.isActive:
                print(f"the query has ended: {query.exception()}", file=sys.stderr)
                return 1
        query.stop()
        placed.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
