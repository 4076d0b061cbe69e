"""taskplace beside Kafka Streams, live: the same topology on the same broker, under the same load.

    python benchmarks/bench_kafka_streams.py [--parts kill,stop,cut] [--variants "...; ..."] [--rounds 3] [--json FILE]

Orders are joined with a table of users, and counted by user and window of 10 s. Kafka Streams 4.3.1 is
benchmarks/kafka_streams/Instance.java: three instances, JVMs of two stream threads, exactly-once, otherwise with its
own defaults. taskplace is benchmarks/kafka_streams/placed_app.py: one driver and three executors of two slots. Its
tasks read their partitions themselves, and its sink has transactions. Each variant runs alone, with topics of its own
and the same users. This process sends the orders, and reads the totals as a consumer of committed records.

Each output is compared with plain Python: a count that is lost, repeated or of a wrong region ends the benchmark. An
order's latency is the time from its production until a committed output has it.

Parts:

- scale-out: from two instances to three under a steady load. Seconds from the request until the third is a member,
  until the active tasks are balanced, and until all standbys are where they belong and nothing is warmed up; the moves
  of active tasks (four are enough); the slowest order meanwhile.
- throughput: a burst of orders, sent as fast as possible; orders per second from the first one's production until the
  last one's output. The first burst does not count.
- latency: p50 and p99 at steady rates.
- kill, stop: the instance with the most active tasks gets SIGKILL, or SIGSTOP (an executor together with its Python
  workers), under a steady load. `detection`: the seconds from the signal (the last one, if several processes are
  stopped) until the group has no member of the instance, or Spark's list not the executor. `takeover`: from there until
  each lost partition has an output of an order that was produced after the signal. A killed instance is replaced at
  once: by Spark itself, and by this process for Kafka Streams. A stopped one goes on after the takeover.

`settled` is a time of polls. Tasks and Spark's list are looked at every 20 ms, a group's members every 50 ms, and Kafka
Streams moves a task to a copy that has caught up only at its next probing rebalance (`--probing`).

Figures are medians, with the range of all repetitions and rounds in brackets. Each repetition is printed, and written
to `--json`, when it ends. A run that is cut off (SIGINT, SIGTERM) prints the tables of what it has. `--minutes` has it
begin nothing new after so long. With `--rounds 3 --repeats 1`, all variants have their first figures early.

The session timeout is equal on both sides, with three heartbeats in it: Kafka's `session.timeout.ms` or
`streams.session.timeout.ms`, and Spark's timeout of executor heartbeats.

- cut: the same, but the instance is cut off from the network (benchmarks/kafka_streams/relay.py). Its processes go on,
  its connections stay open, and nothing comes through. The application is started once more for this part, behind
  relays: one in front of the broker for either system, and for taskplace two in front of the driver (its RPC and its
  blocks). After the takeover the network is healed.

A killed executor is noticed at once, because Spark's worker is its parent on the same host. Kafka Streams waits for the
session's end in all cases. So `stop` and `cut` are the cases of a lost host. What of an executor cannot be cut off on
one machine: its connections to other executors (they have few blocks of each other here); the directory of the
checkpoint, into which it goes on writing; and Spark's worker, which ends its JVM once it counts as lost.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import math
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from kafka_streams.ledger import Sample, back
from kafka_streams.network import RELAYED_HOST, Network
from kafka_streams.programs import NotInTimeError, ProgramError, wait_for
from kafka_streams.setup import Setup
from kafka_streams.systems import CUT, KILL, STOP, OnTaskplace, Streams, System, build
from kafka_streams.tables import show
from kafka_streams.traffic import Traffic
from spark_bench import EXECUTORS, PARTITIONS, Out, arguments, in_turn

from examples.kafka.broker import HOST, RELAYED, Brokers, free_ports

PARTS = ("scale-out", "throughput", "latency", "kill", "stop", "cut")
WINDOW_MS = 10_000
INSTANCES = EXECUTORS
BASE_SECONDS = 3.0  # of steady load before a signal
PATIENCE = 600.0  # seconds; Kafka Streams warms up two tasks in each probing interval

#: By name: the number of standbys, and what makes the system.
VARIANTS: dict[str, tuple[int, Callable[[Setup, Network | None], System]]] = {
    "taskplace, 1 standby": (1, OnTaskplace),
    "taskplace, no standby": (0, OnTaskplace),
    "Kafka Streams, classic, 1 standby": (1, partial(Streams, protocol="classic")),
    "Kafka Streams, classic, no standby": (0, partial(Streams, protocol="classic")),
    "Kafka Streams, streams, 1 standby": (1, partial(Streams, protocol="streams")),
    "Kafka Streams, streams, no standby": (0, partial(Streams, protocol="streams")),
}
CLUSTER = (
    f"{INSTANCES} instances or executors of 2 slots, {PARTITIONS} partitions, one broker, all on this machine"
)


class Run:
    """One variant in one round: its traffic, its system, and the measurements on them."""

    def __init__(
        self, out: Out, name: str, system: System, traffic: Traffic, args: argparse.Namespace
    ) -> None:
        self._out, self._name, self._system, self._traffic, self._args = out, name, system, traffic, args

    def measure(self, parts: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Start the system, and yield the figures of each repetition of each part; last, what was checked."""
        grows = "scale-out" in parts
        begun = time.monotonic()
        self._begin(INSTANCES - grows)
        self._traffic.burst(self._args.burst)
        self._drained()
        self._note(f"started and warm after {time.monotonic() - begun:.0f} s")
        measures: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
            "scale-out": self._scale_out,
            "throughput": self._throughput,
            "latency": self._latency,
            "kill": lambda: self._losses(KILL),
            "stop": lambda: self._losses(STOP),
            "cut": lambda: self._losses(CUT),
        }
        for part in (part for part in PARTS if part in parts):
            repetitions = measures[part]()
            while not over(self._args) and (figures := next(repetitions, None)) is not None:
                yield part, figures
        self._drained()
        ledger = self._traffic.ledger
        self._note(f"{ledger.orders:,} orders are right, in {ledger.outputs:,} outputs")
        yield "checked", {"orders": ledger.orders, "outputs": ledger.outputs}

    def _begin(self, instances: int) -> None:
        """Start the system, and then fill the table: without state, nothing has to be warmed up."""
        self._system.start(instances)
        self._wait(lambda: self._system.up(instances), f"{instances} instances run")
        self._traffic.fill()
        self._wait(lambda: self._system.balanced(instances), "the active tasks are balanced")
        with self._traffic.steady(self._args.load):
            self._wait(lambda: self._system.settled(instances), "the application is settled")
        self._drained()

    # -- the parts

    def _throughput(self) -> Iterator[dict[str, Any]]:
        for _ in range(self._args.repeats):
            begun = time.time()
            sending = self._traffic.burst(self._args.burst)
            seconds = self._drained() - begun
            rate = self._args.burst / seconds
            self._note(f"{self._args.burst:,} orders in {seconds:.1f} s, sent in {sending:.1f} s")
            yield {"sending": sending, "seconds": seconds, "rate": rate}

    def _latency(self) -> Iterator[dict[str, Any]]:
        for rate in self._args.rates:
            done = self._traffic.ledger.done
            with self._traffic.steady(rate):
                begun = time.time()
                self._pass(self._args.seconds)
            self._drained()
            settled = begun + self._args.seconds * 0.1
            seconds = [s.seconds for s in self._traffic.ledger.after(done) if s.sent >= settled]
            p50, p99 = (float(np.percentile(seconds, p)) for p in (50, 99))
            self._note(f"{rate:g} orders/s: p50 {p50:.3f} s, p99 {p99:.3f} s")
            yield {"rate": rate, "p50": p50, "p99": p99, "orders": len(seconds)}

    def _losses(self, how: str) -> Iterator[dict[str, Any]]:
        for _ in range(self._args.repeats):
            yield self._loss(how)

    def _loss(self, how: str) -> dict[str, Any]:
        system, ledger = self._system, self._traffic.ledger
        self._wait(lambda: system.settled(INSTANCES), "the application is settled")
        done = ledger.done
        with self._traffic.steady(self._args.load):
            self._pass(BASE_SECONDS)
            victim = system.victim()
            lost = system.placements.active(victim)
            at = system.hit(victim, how)
            if how == KILL:
                system.replace()
            self._wait(
                lambda: back(ledger.after(done), lost, at).keys() == lost, f"outputs of {sorted(lost)}"
            )
            returned = back(ledger.after(done), lost, at)
            self._wait(lambda: system.noticed(victim, at) is not None, f"the loss of {victim} is noticed")
            noticed = (system.noticed(victim, at) or at) - at
            if how != KILL:
                system.resume(victim, how)
            settled = self._settled(at)
        self._drained()
        found = {
            "lost": sorted(lost),
            "detection": noticed,
            "takeover": max(returned.values()) - noticed,
            "both": max(returned.values()),
            "first": min(returned.values()),
            "others": slowest(ledger.after(done), at, at + max(returned.values()), without=lost),
            **settled,
        }
        self._note(
            f"{how}: {len(lost)} partitions lost, noticed after {noticed:.2f} s, all back after {found['both']:.2f} s, "
            f"settled after {found['settled']:.1f} s"
        )
        return found

    def _scale_out(self) -> Iterator[dict[str, Any]]:
        system, ledger = self._system, self._traffic.ledger
        self._wait(lambda: system.settled(INSTANCES - 1), "the application is settled")
        done = ledger.done
        with self._traffic.steady(self._args.load):
            begun = time.time()
            self._pass(self._args.seconds)
            at = time.time()
            system.add()
            member = self._wait(lambda: system.joined(INSTANCES), "the new instance is a member") - at
            settled = self._settled(at)
            end = time.time()
        self._drained()
        samples = ledger.after(done)
        found = {
            "member": member,
            **settled,
            "moves": system.placements.moves(at),
            "slowest": slowest(samples, at, end),
            "slowest_before": slowest(samples, begun, at),
        }
        self._note(
            f"a member after {member:.1f} s, balanced after {found['balanced']:.1f} s, {found['moves']} moves"
        )
        yield found

    # -- waiting

    def _settled(self, at: float) -> dict[str, float]:
        """Wait until all instances are balanced and settled; return the seconds from `at` for both."""
        balanced = self._wait(lambda: self._system.balanced(INSTANCES), "the active tasks are balanced")
        settled = self._wait(lambda: self._system.settled(INSTANCES), "the application is settled")
        return {"balanced": balanced - at, "settled": settled - at}

    def _wait(self, condition: Callable[[], bool], what: str) -> float:
        try:
            return wait_for(condition, f"{self._name}: {what}", PATIENCE, self._check)
        except NotInTimeError as error:
            told = self._system.placements.told(self._system.instances())
            raise NotInTimeError(f"{error}; {told}") from None

    def _drained(self) -> float:
        return self._traffic.drained(PATIENCE, self._system.check)

    def _pass(self, seconds: float) -> None:
        """Let time pass under load, as long as nothing fails."""
        end = time.monotonic() + seconds
        self._wait(lambda: time.monotonic() >= end, f"{seconds:g} s under load")

    def _check(self) -> None:
        self._traffic.check()
        self._system.check()

    def _note(self, text: str) -> None:
        self._out.note(f"{self._name}: {text}")


def over(args: argparse.Namespace) -> bool:
    """Return whether nothing new is to begin."""
    return time.monotonic() >= args.until


def slowest(
    samples: list[Sample], begin: float, end: float, *, without: frozenset[int] = frozenset()
) -> float:
    """Return the longest latency of the orders that were sent in a time, those of some partitions left out.

    >>> slowest([Sample(1.0, 0, 0.5), Sample(2.0, 1, 3.0), Sample(9.0, 0, 4.0)], 0.0, 5.0, without=frozenset({1}))
    0.5
    """
    seconds = [s.seconds for s in samples if begin <= s.sent < end and s.partition not in without]
    return max(seconds, default=0.0)


def starts(parts: Collection[str]) -> list[list[str]]:
    """Return the parts of each start of a variant: relays cost time, so only `cut` has them.

    >>> starts(["kill", "cut", "stop"])
    [['kill', 'stop'], ['cut']]
    """
    found = [[part for part in parts if part != "cut"], [part for part in parts if part == "cut"]]
    return [some for some in found if some]


@contextlib.contextmanager
def network(brokers: Brokers, ports: list[int], log: Path) -> Iterator[Network]:
    """Yield relays in front of the broker, and of a driver with these ports."""
    broker, port = brokers.listener(RELAYED).split(":")
    routes = [((RELAYED_HOST, each), (HOST, each)) for each in ports]
    relays = Network([((HOST, brokers.relay or 0), (broker, int(port))), *routes], log)
    try:
        yield relays
    finally:
        relays.end()


@contextlib.contextmanager
def running(
    brokers: Brokers, name: str, number: int, folder: Path, args: argparse.Namespace, *, relayed: bool
) -> Iterator[tuple[System, Traffic]]:
    """Yield a variant's system, not started yet, and its traffic; all of it is ended and removed afterwards."""
    standbys, make = VARIANTS[name]
    ports = free_ports(2) if relayed else []
    traffic = Traffic(
        brokers.bootstrap,
        str(number),
        partitions=PARTITIONS,
        users=args.users,
        window_ms=WINDOW_MS,
        seed=args.seed,
    )
    topics = traffic.topics
    setup = Setup(
        servers=f"{HOST}:{brokers.relay}" if relayed else brokers.bootstrap,
        orders=topics.orders,
        users=topics.users,
        totals=topics.totals,
        partitions=PARTITIONS,
        standbys=standbys,
        window_ms=WINDOW_MS,
        session_ms=round(args.session * 1000),
        acceptable_lag=args.acceptable_lag,
        probing_ms=round(args.probing * 1000),
        folder=str(folder / str(number)),
        **dict(zip(("driver_port", "blocks_port"), ports)),  # noqa: B905
    )
    own = Path(setup.folder)
    own.mkdir()
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, own, ignore_errors=True)
        relays = stack.enter_context(network(brokers, ports, own / "relay.log")) if relayed else None
        system = make(setup, relays)
        stack.callback(system.end)
        stack.enter_context(traffic)
        yield system, traffic


def broker_settings(args: argparse.Namespace) -> dict[str, str]:
    """Return what lets groups of the streams protocol have short sessions too."""
    return {
        "group.streams.min.session.timeout.ms": "1000",
        "group.streams.min.heartbeat.interval.ms": "100",
        "group.streams.initial.rebalance.delay.ms": "0",  # as for the classic protocol
        "group.streams.session.timeout.ms": str(round(args.session * 1000)),
        "group.streams.heartbeat.interval.ms": str(round(args.session * 1000 / 3)),
    }


def listed(text: str, known: Collection[str], separator: str) -> list[str]:
    """Return the names in a text. Errors: argparse's, for an unknown one.

    >>> listed("kill, stop", PARTS, ",")
    ['kill', 'stop']
    """
    names = [name.strip() for name in text.split(separator)]
    if unknown := [name for name in names if name not in known]:
        raise argparse.ArgumentTypeError(f"found {unknown[0]!r}, expected some of: {'; '.join(known)}")
    return names


def parsed(arguments_given: list[str] | None = None) -> argparse.Namespace:
    parser = arguments(__doc__ or "")
    parser.add_argument(
        "--parts", type=lambda text: listed(text, PARTS, ","), default=list(PARTS), help="with , between"
    )
    parser.add_argument(
        "--variants",
        type=lambda text: listed(text, VARIANTS, ";"),
        default=list(VARIANTS),
        help="with ; between",
    )
    parser.add_argument("--rounds", type=int, default=1, help="how often each variant is run (%(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="bursts and losses in a round (%(default)s)")
    parser.add_argument("--users", type=int, default=60_000, help="rows of the table (%(default)s)")
    parser.add_argument("--burst", type=int, default=300_000, help="orders of a burst (%(default)s)")
    parser.add_argument("--rates", type=float, nargs="+", default=[20.0, 1000.0], help="orders per second")
    parser.add_argument("--load", type=float, default=300.0, help="orders per second at losses (%(default)s)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of a steady rate (%(default)s)")
    parser.add_argument("--session", type=float, default=10.0, help="seconds of a session (%(default)s)")
    parser.add_argument(
        "--probing", type=float, default=60.0, help="seconds of probing.rebalance.interval.ms"
    )
    parser.add_argument(
        "--acceptable-lag", type=int, default=1000, help="acceptable.recovery.lag (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin nothing new after so many")
    args = parser.parse_args(arguments_given)
    args.until = time.monotonic() + 60 * args.minutes
    if args.quick:
        args.users, args.burst, args.repeats, args.rounds = 600, 2_000, 1, 1
        args.seconds, args.rates, args.load, args.session = 3.0, [50.0], 100.0, 6.0
    return args


def measure_all(
    out: Out, args: argparse.Namespace, brokers: Brokers, folder: Path
) -> dict[str, dict[str, Any]]:
    """Run each variant in each round. One that fails does not end the others.

    Errors: `WrongResultError`, which ends all.
    """
    results: dict[str, dict[str, Any]] = {name: {} for name in args.variants}
    turns = [
        (turn, name, parts)
        for turn in range(args.rounds)
        for name in in_turn(args.variants, turn)
        for parts in starts(args.parts)
    ]
    for number, (turn, name, parts) in enumerate(turns, start=1):
        if over(args):
            what = f"{name}, {', '.join(parts)}"
            out.note(f"{what}: not begun in round {turn + 1}, after {args.minutes:g} minutes")
            continue
        relayed = "cut" in parts
        try:
            with running(brokers, name, number, folder, args, relayed=relayed) as (system, traffic):
                keep(out, results, name, Run(out, name, system, traffic, args).measure(parts))
        except ProgramError as error:
            results[name].setdefault("failed", []).append(str(error))
            out.keep("results", results)
            out.note(f"{name} has failed: {error}")
    show(out, results, PARTS)
    return results


def keep(
    out: Out, results: dict[str, dict[str, Any]], name: str, figures: Iterator[tuple[str, dict[str, Any]]]
) -> None:
    """Keep each repetition of a variant when it ends."""
    try:
        for part, each in figures:
            results[name].setdefault(part, []).append(each)
            out.keep("results", results)
    except ProgramError:
        raise
    except BaseException:
        show(out, results, PARTS)  # now: it takes a while to end all processes
        raise


def main() -> int:
    """Measure and print. Return 1 if a variant has failed."""
    args = parsed()
    # Also in the background, where a shell has SIGINT ignored: all is ended, and the tables are printed.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.default_int_handler)
    gc.disable()  # the orders are kept to the end; looking through all of them would delay the next ones
    out = Out(args, "taskplace beside Kafka Streams", cluster=CLUSTER)
    out.say(
        f"session {args.session:g} s on both sides, {args.users:,} users, bursts of {args.burst:,} orders, "
        f"{args.load:g} orders/s at losses, {args.rounds} rounds of {args.repeats} repetitions, seed {args.seed}"
    )
    build()
    folder = Path(tempfile.mkdtemp(prefix="kafka-streams-", dir=args.scratch))
    try:
        relay = free_ports(1)[0] if "cut" in args.parts else None
        with Brokers(settings=broker_settings(args), relay=relay) as brokers:
            results = measure_all(out, args, brokers, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        out.close()
    return int(any("failed" in found for found in results.values()))


if __name__ == "__main__":
    sys.exit(main())
