"""A consumer of kafka-python in a process of its own: a member of a group that a test may kill.

    python -m tests.support.kafka_member CONFIGURATION

The configuration is JSON: `bootstrap`, `group`, `topics`, and `assignors`: names of kafka-python's own, or arguments of
`TaskplaceAssignor`. As a leader it takes `assign_seconds` to assign. It prints what happens as lines of JSON, and
leaves the group when standard input ends.
"""

from __future__ import annotations

import json
import logging
import select
import sys
import time
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError

from taskplace.groups.kafka_python import TaskplaceAssignor, finish_joins

THEIRS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


def say(**what: Any) -> None:
    """Print an event with its time, which is the same clock in all processes."""
    print(json.dumps({"at": time.monotonic(), **what}), flush=True)


def told(assignor: Any, seconds: float) -> Any:
    """Have an assignor say when it leads, and what it is assigned, and take so long to assign."""
    assign, on_assignment = assignor.assign, assignor.on_assignment

    def leading(cluster: Any, members: Any) -> Any:
        say(leads=assignor.name)
        time.sleep(seconds)
        return assign(cluster, members)

    def assigned(assignment: Any, generation: int) -> None:
        say(protocol=assignor.name, generation=generation)
        on_assignment(assignment, generation)

    assignor.assign, assignor.on_assignment = leading, assigned
    return assignor


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def on_partitions_revoked(self, revoked: Any) -> None:
        say(revoked=sorted(map(tuple, revoked)))

    def on_partitions_assigned(self, assigned: Any) -> None:
        say(assigned=sorted(map(tuple, assigned)))


def main(configuration: str) -> None:
    logging.basicConfig(
        level=logging.INFO, format="%(relativeCreated)d %(name)s %(message)s"
    )  # for a failure's report
    logging.getLogger("kafka.cluster").setLevel(logging.WARNING)  # says every second that metadata came
    given = json.loads(configuration)
    assignors = [
        THEIRS[one]() if isinstance(one, str) else TaskplaceAssignor(one.pop("mode", "fair_sticky"), **one)
        for one in given["assignors"]
    ]
    consumer = finish_joins(
        KafkaConsumer(
            bootstrap_servers=given["bootstrap"],
            group_id=given["group"],
            partition_assignment_strategy=[told(one, given.get("assign_seconds", 0)) for one in assignors],
            session_timeout_ms=6000,
            heartbeat_interval_ms=200,
            enable_auto_commit=False,
            metadata_max_age_ms=1000,
        )
    )
    consumer.subscribe(given["topics"], listener=Listener())
    while not select.select([sys.stdin], [], [], 0)[0]:
        try:
            consumer.poll(timeout_ms=500)
        except KafkaError as error:  # a broker is down just now: `poll` raises what the next call may heal
            if not error.retriable:
                raise
            logging.info("poll: %r", error)
    consumer.close()
    say(closed=True)


if __name__ == "__main__":
    main(sys.argv[1])
