"""The measurements, on an application in memory that counts right, and loses and gains instances."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import math
import threading
import time
from collections import Counter

import bench_kafka_streams as bench
import pytest
from kafka_streams.ledger import Ledger
from kafka_streams.programs import NotInTimeError, wait_for
from kafka_streams.setup import Setup
from kafka_streams.systems import KILL, System

DETECTION, TAKEOVER = 0.05, 0.1  # seconds
USERS = {f"user{i}": "north" for i in range(24)}
ARGS = argparse.Namespace(burst=50, repeats=2, rates=[200.0], seconds=0.2, load=500.0, until=math.inf)


class Memory(System):
    """An application in this process. Each user's orders are in the partition of its number."""

    def __init__(self, ledger: Ledger) -> None:
        names = dict.fromkeys(("servers", "orders", "users", "totals", "folder"), "")
        numbers = dict.fromkeys(("window_ms", "session_ms", "acceptable_lag", "probing_ms"), 1)
        super().__init__(Setup(**names, **numbers, partitions=bench.PARTITIONS, standbys=0))
        self.ledger, self.guard = ledger, threading.RLock()
        self.counts: Counter = Counter()
        self.waiting: list[tuple[str, float]] = []
        self.owners: dict[int, str] = {}
        self.living: set[str] = set()
        self.lost: dict[str, float] = {}
        self.numbers = itertools.count()
        self.hits: list[str] = []
        self.replacing = 0  # instances that were asked for

    def order(self, user: str, at: float) -> None:
        with self.guard:
            if self.owners[self.partition(user)] not in self.living:
                self.waiting.append((user, at))
                return
            window = round(at * 1000) // bench.WINDOW_MS * bench.WINDOW_MS
            self.counts[user, window] += 1
            n, partition = self.counts[user, window], self.partition(user)
            self.ledger.received(user, window, n=n, region="north", partition=partition, at=time.time())

    @staticmethod
    def partition(user: str) -> int:
        return int(user.removeprefix("user")) % bench.PARTITIONS

    def place(self) -> None:
        with self.guard:
            names = sorted(self.living)
            self.owners = {p: names[p % len(names)] for p in range(bench.PARTITIONS)}
            for name in names:
                active = [p for p, owner in self.owners.items() if owner == name]
                self.placements.take(time.time(), name, active)
            waiting, self.waiting = self.waiting, []
            for user, at in waiting:
                self.order(user, at)

    def start(self, instances):
        for _ in range(instances):
            self.add()

    def add(self):
        with self.guard:
            self.living.add(f"instance-{next(self.numbers)}")
            self.place()

    def end(self):
        pass

    def check(self):
        pass

    def instances(self):
        with self.guard:
            return frozenset(self.living)

    def up(self, instances):
        return len(self.living) == instances

    joined = up

    def hit(self, instance, how):
        with self.guard:
            self.living.remove(instance)
            at = time.time()
        self.hits.append(how)
        threading.Timer(DETECTION, self.notice, (instance, how)).start()
        return at

    def notice(self, instance: str, how: str) -> None:
        self.lost[instance] = time.time()
        threading.Timer(TAKEOVER, self.take_over, (how,)).start()

    def take_over(self, how: str) -> None:
        with self.guard:
            if how == KILL:  # the replacement, which was asked for at once, may have tasks now
                assert self.replacing == 1
                self.replacing = 0
                self.living.add(f"instance-{next(self.numbers)}")
            self.place()

    def replace(self):
        self.replacing += 1

    def resume(self, instance, how):
        with self.guard:
            self.living.add(instance)
            self.place()

    def noticed(self, instance, since):
        at = self.lost.get(instance)
        return at if at is not None and at >= since else None


class Direct:
    """Traffic that reaches the application without Kafka."""

    def __init__(self) -> None:
        self.ledger = Ledger(USERS, bench.WINDOW_MS)
        self.system = Memory(self.ledger)
        self.users = itertools.cycle(USERS)
        self.filled = False

    def fill(self):
        self.filled = True

    def order(self):
        user, now = next(self.users), time.time()
        assert self.filled
        self.ledger.sent(user, now)
        self.system.order(user, now)

    def burst(self, orders):
        for _ in range(orders):
            self.order()
        return 0.0

    @contextlib.contextmanager
    def steady(self, rate):
        ended = threading.Event()

        def send():
            while not ended.wait(1 / rate):
                self.order()

        thread = threading.Thread(target=send)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def drained(self, seconds, check):
        return wait_for(lambda: not self.ledger.missing, "all orders have come out", seconds, check)

    def check(self):
        pass


class Quiet:
    def note(self, text):
        pass


@pytest.fixture
def traffic():
    return Direct()


@pytest.fixture
def run(monkeypatch, traffic):
    """Return a function that measures some parts, and returns the figures."""
    monkeypatch.setattr(bench, "BASE_SECONDS", 0.1)
    monkeypatch.setattr(bench, "PATIENCE", 20.0)

    def measured(*parts):
        found = {}
        for part, figures in bench.Run(Quiet(), "memory", traffic.system, traffic, ARGS).measure(list(parts)):
            found.setdefault(part, []).append(figures)
        return found

    return measured


@pytest.mark.parametrize("part", ["kill", "stop", "cut"])
def test_a_loss_is_detected_and_then_taken_over(run, part):
    losses = run(part)[part]
    assert len(losses) == ARGS.repeats
    for loss in losses:
        assert len(loss["lost"]) == 4
        assert loss["detection"] >= DETECTION and loss["takeover"] >= TAKEOVER
        assert loss["both"] == pytest.approx(loss["detection"] + loss["takeover"])
        assert loss["detection"] < loss["first"] <= loss["both"] <= loss["balanced"] <= loss["settled"]
        assert loss["others"] < loss["both"]  # they are not held up


def test_an_added_instance_gets_its_share(run):
    (grown,) = run("scale-out")["scale-out"]
    assert 0 <= grown["member"] <= grown["balanced"] <= grown["settled"]
    assert grown["moves"] == 8  # partitions are dealt out anew: p % 3 and p % 2 agree for every third
    assert grown["slowest"] >= 0 and grown["slowest_before"] > 0


def test_bursts_and_steady_rates(run):
    found = run("throughput", "latency")
    assert [each["rate"] > 0 for each in found["throughput"]] == [True] * ARGS.repeats
    (latency,) = found["latency"]
    assert latency["rate"] == 200.0 and 0 <= latency["p50"] <= latency["p99"] and latency["orders"] > 0
    (checked,) = found["checked"]
    assert checked["orders"] == checked["outputs"] > 3 * ARGS.burst


def test_what_does_not_happen_is_told_with_the_placement(run, traffic, monkeypatch):
    monkeypatch.setattr(bench, "PATIENCE", 0.1)
    monkeypatch.setattr(traffic.system, "settled", lambda instances: False)
    with pytest.raises(
        NotInTimeError, match=r"memory: the application is settled; instance-0: active \[0, 3, 6, 9\]"
    ):
        run("kill")
