"""A consumer of aiokafka in a process of its own, which says the same as `kafka_member`.

    python -m tests.support.aiokafka_member CONFIGURATION

The configuration is JSON: `bootstrap`, `group`, `topics`, and `assignor`: "sticky" for aiokafka's own, or arguments of
`TaskplaceAssignor`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from taskplace.groups.aiokafka import TaskplaceAssignor


def say(**what: Any) -> None:
    """Print an event with its time, which is the same clock in all processes."""
    print(json.dumps({"at": time.monotonic(), **what}), flush=True)


def told(assignor: Any) -> Any:
    """Have an assignor say when it leads."""
    assign = assignor.assign

    def leading(cluster: Any, members: Any) -> Any:
        say(leads=assignor.name)
        return assign(cluster, members)

    assignor.assign = leading
    return assignor


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Says what is assigned and revoked. The interface tells no generation, so the consumer is asked."""

    def __init__(self, consumer: AIOKafkaConsumer, protocol: str) -> None:
        self._consumer, self._protocol = consumer, protocol

    def on_partitions_revoked(self, revoked: Any) -> None:
        say(revoked=sorted(map(tuple, revoked)))

    def on_partitions_assigned(self, assigned: Any) -> None:
        generation = self._consumer._coordinator.generation
        say(assigned=sorted(map(tuple, assigned)), protocol=self._protocol, generation=generation)


async def main(configuration: str) -> None:
    given = json.loads(configuration)
    assignor = (
        StickyPartitionAssignor if given["assignor"] == "sticky" else TaskplaceAssignor(**given["assignor"])
    )
    consumer = AIOKafkaConsumer(
        bootstrap_servers=given["bootstrap"],
        group_id=given["group"],
        partition_assignment_strategy=[told(assignor)],
        session_timeout_ms=6000,
        heartbeat_interval_ms=200,
        enable_auto_commit=False,
        metadata_max_age_ms=1000,
    )
    await consumer.start()
    consumer.subscribe(given["topics"], listener=Listener(consumer, assignor.name))
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    while not ended.done():
        await consumer.getmany(timeout_ms=200)  # raises what has ended the membership
    say(revoked=sorted(map(tuple, consumer.assignment())))  # the listener is not told at the end
    await consumer.stop()
    say(closed=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d %(name)s %(message)s")
    asyncio.run(main(sys.argv[1]))
