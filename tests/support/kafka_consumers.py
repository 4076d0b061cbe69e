"""A consumer group on a real broker: consumers in processes of their own, and what each of them holds."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.kafka_broker import SharedBroker

ROOT = Path(__file__).parents[2]
SECONDS = 60  # the most that a group may take until it is as a test expects it

Held = frozenset[tuple[str, int]]
Assignor = str | dict[str, Any]  # kafka-python's own by its name, ours by its arguments


@dataclass
class Consumer:
    """One consumer: what it has said, and what it holds by that."""

    process: subprocess.Popen[str]
    errors: Path
    listener: threading.Thread = field(default_factory=threading.Thread)
    held: Held = frozenset()
    protocol: str = ""
    generation: int = -1
    said: list[dict[str, Any]] = field(default_factory=list)

    def note(self, event: dict[str, Any]) -> None:
        """Take in one event."""
        self.said.append(event)
        self.held -= _pairs(event.get("revoked", ()))
        self.held |= _pairs(event.get("assigned", ()))
        self.protocol = event.get("protocol", self.protocol)
        self.generation = event.get("generation", self.generation)

    def led(self) -> bool:
        """Return whether it led the last assignment that it knows of."""
        return any("leads" in event for event in self.said)

    def revoked(self) -> Held:
        """Return all partitions that were ever taken from it."""
        return frozenset().union(*(_pairs(event.get("revoked", ())) for event in self.said))

    def forget(self) -> None:
        """Forget what was said until now, but not what it holds."""
        self.said.clear()


class ConsumerGroup:
    """The consumers of a group by their names. Events come in by threads; `wait` waits for them."""

    def __init__(self, bootstrap: str, group: str, topics: Sequence[str], directory: Path) -> None:
        self.bootstrap, self.group, self.topics, self.directory = bootstrap, group, list(topics), directory
        self.consumers: dict[str, Consumer] = {}
        self.history: list[tuple[float, str, str, Held]] = []
        self._changed = threading.Condition()
        self._awaited: Callable[[], bool] | None = None
        self._seen: dict[str, Held] | None = None  # what the consumers held when the awaited condition held

    def join(
        self, name: str, *assignors: Assignor, topics: Sequence[str] | None = None, assign_seconds: float = 0
    ) -> Consumer:
        """Start a consumer of kafka-python with these assignors, which take so long where it leads."""
        given = {
            "bootstrap": self.bootstrap,
            "group": self.group,
            "topics": list(topics or self.topics),
            "assignors": assignors,
            "assign_seconds": assign_seconds,
        }
        return self.start(name, [sys.executable, "-m", "tests.support.kafka_member", json.dumps(given)])

    def start(self, name: str, command: Sequence[str]) -> Consumer:
        """Start a consumer that prints its events as `kafka_member` does."""
        errors = self.directory / f"{self.group}-{name}-{len(self.history)}.log"
        with errors.open("w") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        consumer = self.consumers[name] = Consumer(process, errors)
        consumer.listener = threading.Thread(target=self._listen, args=(name, consumer), daemon=True)
        consumer.listener.start()
        return consumer

    def leave(self, name: str) -> None:
        """Have a consumer leave, and wait until its process has ended."""
        consumer = self.consumers.pop(name)
        if consumer.process.stdin:
            consumer.process.stdin.close()
        consumer.process.wait(SECONDS)
        consumer.listener.join(SECONDS)

    def crash(self, name: str) -> None:
        """Kill a consumer: the group learns of it when its session is over."""
        consumer = self.consumers.pop(name)
        consumer.process.kill()
        consumer.process.wait(SECONDS)
        consumer.listener.join(SECONDS)
        self.history.append((time.monotonic(), name, "revoked", consumer.held))

    def close(self) -> None:
        """End all consumers."""
        for name in list(self.consumers):
            self.crash(name)

    def wait(self, what: str, holds: Callable[[], bool]) -> dict[str, Held]:
        """Wait until a condition holds, and return what each consumer holds then.

        It is asked after each event, so it may hold for a moment only.
        """
        with self._changed:
            self._awaited, self._seen = holds, None
            self._look()
            self._changed.wait_for(lambda: self._seen is not None or self._ended(), SECONDS)
            self._awaited = None
            if self._seen is None:
                raise AssertionError(f"not within {SECONDS} s: {what}\n{self._report()}")
            return self._seen

    def balanced(self, *sizes: int, protocol: str = "") -> dict[str, Held]:
        """Wait until all partitions are held, once each, by consumers of one generation with loads of these sizes."""

        def holds() -> bool:
            now = list(self.consumers.values())
            held = [tp for consumer in now for tp in consumer.held]
            return (
                sorted(len(consumer.held) for consumer in now) == sorted(sizes)
                and len(set(held)) == len(held)
                and len({consumer.generation for consumer in now}) == 1
                and all(not protocol or consumer.protocol == protocol for consumer in now)
            )

        return self.wait(f"loads of {sorted(sizes)} by {protocol or 'any protocol'}", holds)

    def overlaps(self) -> list[tuple[str, str, tuple[str, int]]]:
        """Return the partitions that one consumer was given before another one had let go of them."""
        owner: dict[tuple[str, int], str] = {}
        found = []
        for _, name, what, partitions in sorted(self.history):
            for tp in partitions:
                if what == "revoked" and owner.get(tp) == name:
                    del owner[tp]
                elif what == "assigned":
                    if owner.get(tp, name) != name:
                        found.append((owner[tp], name, tp))
                    owner[tp] = name
        return found

    def leader(self) -> str:
        """Return the consumer that led last, of those that are in the group."""
        led = [
            (event["at"], name) for name, c in self.consumers.items() for event in c.said if "leads" in event
        ]
        return max(led)[1]

    def told(self) -> str:
        """Return what all consumers have said, in the order of time."""
        said = [
            {"name": name, **event} for name, consumer in self.consumers.items() for event in consumer.said
        ]
        return "\n".join(map(str, sorted(said, key=lambda event: float(event["at"]))))

    def _listen(self, name: str, consumer: Consumer) -> None:
        for line in consumer.process.stdout or ():
            event = json.loads(line)
            with self._changed:
                consumer.note(event)
                self.history += [
                    (event["at"], name, what, _pairs(event[what]))
                    for what in ("revoked", "assigned")
                    if what in event
                ]
                self._look()
                self._changed.notify_all()
        consumer.process.wait()
        with self._changed:
            self._changed.notify_all()

    def _look(self) -> None:
        if self._awaited and self._seen is None and self._awaited():
            self._seen = {name: consumer.held for name, consumer in self.consumers.items()}

    def _ended(self) -> bool:
        return any(consumer.process.poll() is not None for consumer in self.consumers.values())

    def _report(self) -> str:
        return "\n".join(
            f"{name}: {consumer.protocol} {consumer.generation} {sorted(consumer.held)}"
            f" exit code {consumer.process.poll()}\n{consumer.errors.read_text()[-3000:]}"
            for name, consumer in self.consumers.items()
        )


@contextmanager
def consumer_group(
    bootstrap: str, group: str, topics: Sequence[str], directory: Path
) -> Iterator[ConsumerGroup]:
    """Yield a group without consumers, and end its consumers afterwards."""
    made = ConsumerGroup(bootstrap, group, topics, directory)
    try:
        yield made
    finally:
        made.close()


def _pairs(partitions: Any) -> Held:
    return frozenset((topic, partition) for topic, partition in partitions)


Groups = Callable[..., ConsumerGroup]


@pytest.fixture
def group(kafka: SharedBroker, tmp_path: Path) -> Iterator[Groups]:
    """Make groups with topics of these partition counts."""
    with ExitStack() as stack:

        def make(*counts: int) -> ConsumerGroup:
            topics = [kafka.topic("group", count) for count in counts]
            return stack.enter_context(
                consumer_group(kafka.bootstrap, kafka.unique("group"), topics, tmp_path)
            )

        yield make
