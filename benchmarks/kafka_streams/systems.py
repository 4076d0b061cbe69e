"""The two systems under test, behind one interface: instances that have tasks, are hit, noticed, replaced and added."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from functools import partial
from pathlib import Path

import psutil

from kafka_streams.network import Network
from kafka_streams.placements import Placements
from kafka_streams.programs import Line, Program, ProgramError, family, wait_for
from kafka_streams.setup import MOST_WARMUPS, SLOTS, Setup

ROOT = Path(__file__).resolve().parents[2]
JARS = ROOT / "var" / "kafka-streams" / "jars"
START_SECONDS = 60
KILL, STOP, CUT = "SIGKILL", "SIGSTOP", "cut"
RUNNING = "RUNNING"  # the state of an instance whose tasks are restored


def build() -> None:
    """Build Kafka Streams' side, if it is not there. Errors: `ProgramError` with what is missing."""
    done = subprocess.run(
        [ROOT / "scripts" / "kafka-streams.sh"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    if done.returncode:
        raise ProgramError(done.stderr.strip())


class System(ABC):
    """A running application. `placements` has what its instances say.

    - `network`: through which its instances talk, if it can be cut
    """

    def __init__(self, setup: Setup, network: Network | None = None) -> None:
        self.setup, self.network = setup, network
        self.placements = Placements(setup.partitions, setup.standbys)
        self._lock = threading.Lock()

    @abstractmethod
    def start(self, instances: int) -> None:
        """Start it."""

    @abstractmethod
    def end(self) -> None:
        """End all of its processes."""

    @abstractmethod
    def check(self) -> None:
        """Raise if a process has ended that was not hit."""

    @abstractmethod
    def instances(self) -> frozenset[str]:
        """Return the instances that live, or are being started."""

    @abstractmethod
    def add(self) -> None:
        """Ask for one more instance."""

    @abstractmethod
    def up(self, instances: int) -> bool:
        """Return whether so many instances run. They may not have tasks yet."""

    @abstractmethod
    def joined(self, instances: int) -> bool:
        """Return whether so many instances are members, which may get tasks."""

    @abstractmethod
    def hit(self, instance: str, how: str) -> float:
        """Kill or stop an instance, or cut it off. Return the time: with its last process, all of it is hit."""

    @abstractmethod
    def replace(self) -> None:
        """Start a new instance for a killed one, unless the system does so itself."""

    @abstractmethod
    def resume(self, instance: str, how: str) -> None:
        """Let an instance go on that was stopped or cut off."""

    @abstractmethod
    def noticed(self, instance: str, since: float) -> float | None:
        """Return when the system has noticed the loss of an instance, or None."""

    def cut(self, pid: int) -> float:
        """Cut a process and its descendants off. Return the time. Errors: `ProgramError` without a network."""
        if self.network is None:
            raise ProgramError("the application was started without relays, so it cannot be cut off")
        return self.network.cut(pid)

    def victim(self) -> str:
        """Return an instance with the most active tasks."""
        return max(sorted(self.instances()), key=lambda name: len(self.placements.active(name)))

    def balanced(self, instances: int) -> bool:
        """Return whether there are so many instances, with equal numbers of active tasks."""
        names = self.instances()
        return len(names) == instances and self.placements.balanced(names)

    def settled(self, instances: int) -> bool:
        """Return whether it is balanced, with all standbys and without warm-ups."""
        return self.balanced(instances) and self.placements.settled(self.instances())


class Streams(System):
    """Kafka Streams: a JVM for each instance, and one that watches the group.

    Each stream thread is a member of the group. Its client id begins with the instance's name.

    - `protocol`: "classic", with an assignor that knows warm-ups, or "streams", where the broker assigns
    """

    def __init__(self, setup: Setup, network: Network | None, protocol: str) -> None:
        super().__init__(setup, network)
        self._protocol, self._id = protocol, setup.totals
        self._running: dict[str, Program] = {}
        self._watch: Program | None = None
        self._members: list[tuple[float, dict[str, int]]] = []  # by instance
        self._states: dict[str, str] = {}
        self._count = 0

    def start(self, instances: int) -> None:
        settings = []
        if self._protocol == "streams":  # the broker has what is the client's in the classic protocol
            settings = [
                f"streams.session.timeout.ms={self.setup.session_ms}",
                f"streams.heartbeat.interval.ms={self.setup.heartbeat_ms}",
                f"streams.num.standby.replicas={self.setup.standbys}",
            ]
        command = [*_java("64m"), "GroupWatch", self.setup.servers, self._id, self._protocol, *settings]
        watch = self._watch = Program("the watch", command, self._log("watch"), self._take_members)
        wait_for(lambda: bool(self._members), "the group has its settings", START_SECONDS, watch.check)
        for _ in range(instances):
            self.add()

    def end(self) -> None:
        for program in (*self._running.values(), *([] if self._watch is None else [self._watch])):
            program.end()
        self._running, self._watch = {}, None

    def check(self) -> None:
        for program in (*self._running.values(), *([] if self._watch is None else [self._watch])):
            program.check()

    def instances(self) -> frozenset[str]:
        return frozenset(self._running)

    def add(self) -> None:
        name = f"instance-{self._count}"
        self._count += 1
        settings = [f"{key}={value}" for key, value in self._settings(name).items()]
        topics = [self.setup.orders, self.setup.users, self.setup.totals, str(self.setup.window_ms)]
        command = [*_java("512m"), "Instance", *topics, *settings]
        self._running[name] = Program(name, command, self._log(name), partial(self._take_tasks, name))

    def up(self, instances: int) -> bool:
        return self.joined(instances)

    def joined(self, instances: int) -> bool:
        with self._lock:
            members = self._members[-1][1] if self._members else {}
        return sum(threads >= SLOTS for threads in members.values()) >= instances

    def balanced(self, instances: int) -> bool:
        with self._lock:
            running = all(self._states.get(name) == RUNNING for name in self._running)
        return running and super().balanced(instances)  # not while it restores

    def hit(self, instance: str, how: str) -> float:
        if how == CUT:
            return self.cut(self._running[instance].pid)
        self._running[instance].kill(signal.SIGKILL if how == KILL else signal.SIGSTOP)
        at = time.time()
        if how == KILL:
            self._running.pop(instance).wait()
        return at

    def replace(self) -> None:
        self.add()

    def resume(self, instance: str, how: str) -> None:
        if how == CUT and self.network is not None:
            self.network.heal()
        else:
            self._running[instance].kill(signal.SIGCONT)

    def noticed(self, instance: str, since: float) -> float | None:
        with self._lock:
            return next(
                (at for at, members in self._members if at >= since and instance not in members), None
            )

    def _settings(self, name: str) -> dict[str, object]:
        own = {
            "num.standby.replicas": self.setup.standbys,
            "max.warmup.replicas": MOST_WARMUPS,
            "acceptable.recovery.lag": self.setup.acceptable_lag,
            "probing.rebalance.interval.ms": self.setup.probing_ms,
            "session.timeout.ms": self.setup.session_ms,
            "heartbeat.interval.ms": self.setup.heartbeat_ms,
        }
        return {
            "bootstrap.servers": self.setup.servers,
            "application.id": self._id,
            "client.id": name,
            "num.stream.threads": SLOTS,
            "state.dir": Path(self.setup.folder) / name,
            "processing.guarantee": "exactly_once_v2",
            "group.protocol": self._protocol,
            **(own if self._protocol == "classic" else {}),
        }

    def _log(self, name: str) -> Path:
        return Path(self.setup.folder) / f"{name}.log"

    def _take_members(self, line: Line) -> None:
        with self._lock:
            self._members.append((line["at"], line["members"]))

    def _take_tasks(self, name: str, line: Line) -> None:
        with self._lock:
            self._states[name] = line["state"]
        self.placements.take(line["at"], name, line["active"], line["standby"])


class OnTaskplace(System):
    """taskplace: one driver, and Spark's executors as instances."""

    def __init__(self, setup: Setup, network: Network | None = None) -> None:
        super().__init__(setup, network)
        self._app: Program | None = None
        self._alive: list[tuple[float, frozenset[str]]] = []
        self._pids: dict[str, int] = {}
        self._stopped: list[psutil.Process] = []

    def start(self, instances: int) -> None:
        command = [sys.executable, "-m", "kafka_streams.placed_app", self.setup.text(), str(instances)]
        log = Path(self.setup.folder) / "driver.log"
        path = f"{ROOT}{os.pathsep}{ROOT / 'benchmarks'}"
        self._app = Program("the driver", command, log, self._take, env={"PYTHONPATH": path})

    def end(self) -> None:
        self._resume()
        if self._app is not None:
            self._app.end()
        self._app = None

    def check(self) -> None:
        self._driver.check()

    def instances(self) -> frozenset[str]:
        with self._lock:
            return self._alive[-1][1] if self._alive else frozenset()

    def add(self) -> None:
        self._driver.tell("add")

    def up(self, instances: int) -> bool:
        return len(self.instances()) >= instances

    def joined(self, instances: int) -> bool:
        with self._lock:
            return len(self._pids) >= instances

    def hit(self, instance: str, how: str) -> float:
        with self._lock:
            pid = self._pids[instance]
        if how == KILL:
            os.kill(pid, signal.SIGKILL)
            return time.time()
        if how == CUT:
            return self.cut(pid)  # with its Python workers, which read from the broker
        self._stopped = family(pid)  # with its Python workers, as a host that hangs
        for process in self._stopped:
            process.suspend()
        return time.time()

    def replace(self) -> None:
        """Spark's worker has done so at once."""

    def resume(self, instance: str, how: str) -> None:
        if how == CUT and self.network is not None:
            self.network.heal()
        else:
            self._resume()

    def noticed(self, instance: str, since: float) -> float | None:
        with self._lock:
            return next((at for at, names in self._alive if at >= since and instance not in names), None)

    def _resume(self) -> None:
        """Let what was stopped go on. Spark may have killed the executor, but not its Python workers."""
        for process in self._stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
        self._stopped = []

    @property
    def _driver(self) -> Program:
        if self._app is None:
            raise ProgramError("the driver was not started")
        return self._app

    def _take(self, line: Line) -> None:
        if "alive" in line:
            with self._lock:
                self._alive.append((line["at"], frozenset(line["alive"])))
            return
        found = line["tasks"]
        with self._lock:
            self._pids |= {name: each["pid"] for name, each in found.items()}
        for name, each in found.items():
            self.placements.take(line["at"], name, each["active"], each["followed"])


def _java(heap: str) -> list[str]:
    home = os.environ.get("JAVA_HOME")
    command = f"{home}/bin/java" if home else "java"
    classpath = f"{JARS}{os.pathsep}{JARS}/*"
    return [command, f"-Xmx{heap}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", classpath]
