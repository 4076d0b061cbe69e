"""Starts Kafka brokers on this machine: one or three, on loopback and free ports, with data in a temporary directory.

    with Brokers() as kafka:
        Producer({"bootstrap.servers": kafka.bootstrap})

Each broker is a KRaft broker and controller in one JVM. scripts/kafka.sh fetches the jars once. `start` returns when
every broker answers a metadata request and knows all others. A guard (examples/kafka/guard.py) ends each broker with
the process that started it, also after kill -9, and removes the data.

Single brokers can be killed, shut down, paused and started again, on the same port and data. With three brokers, the
internal topics have three replicas, so any one of them may be missing.

The settings are those of a small cluster that starts fast: few threads, internal topics with few partitions, short
intervals for the cleaner, retention and aborted transactions, no delay before a group's first rebalance, sessions from
half a second. `settings` replaces any of them.

The command line (examples/kafka/background.py) starts brokers in the background; `make kafka-up` uses it.

Errors: `BrokerError` with the end of the broker's log.
"""

from __future__ import annotations

import base64
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ClusterMetadata,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

ROOT = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"
PLAIN = "PLAINTEXT"
RELAYED = "RELAYED"
CONTROLLER = "CONTROLLER"
READY_SECONDS = 120  # the most that a start may take; 5 to 15 s are usual
STOP_SECONDS = 60
_GUARD = Path(__file__).with_name("guard.py")
_JARS = ROOT / "var" / "kafka" / "jars"
_LOG_LINES = 30  # of a broker's log in an error

#: For a JVM that starts fast and needs little memory.
_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss512k", "-Dlog4j2.level=WARN")
_SETTINGS = {
    "num.network.threads": "2",
    "num.io.threads": "2",
    "background.threads": "2",
    "num.partitions": "1",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "log.cleaner.threads": "1",
    "log.cleaner.dedupe.buffer.size": "4194304",  # the default needs 128 MB of the heap
    "log.cleaner.backoff.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "4000",  # for so long, a broker that was killed cannot come back
}
_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class BrokerError(RuntimeError):
    """A broker that does not start, has ended, or does not stop."""


@dataclass(slots=True)
class _Node:
    """One broker: its number, the ports of its listeners, its directory; while it runs, its guard and process id."""

    number: int
    ports: Mapping[str, int]  # of each listener
    directory: Path
    guard: subprocess.Popen[str] | None = None
    pid: int | None = None

    def address(self, listener: str = PLAIN) -> str:
        return f"{HOST}:{self.ports[listener]}"

    @property
    def log(self) -> Path:
        return self.directory / "broker.log"


class Brokers:
    """`count` brokers as one cluster. A context manager; `start` and `stop` do the same by hand.

    - `settings`: settings of the brokers, instead of the ones above or in addition to them
    - `racks`: the rack of each broker (`broker.rack`), for rack-aware consumers
    - `heap`: the largest heap of each JVM. A broker needs about as much again
    - `users`: names and passwords. Adds the listener SASL_PLAINTEXT, with SCRAM-SHA-512
    - `tls`: adds the listener SSL, with a certificate for the loopback address (openssl). With `users`, also SASL_SSL
    - `acls`: users may do only what access control lists allow (StandardAuthorizer). Clients of PLAINTEXT may do all
    - `relay`: the port of a relay on the loopback address, for one broker. Adds the listener RELAYED, like PLAINTEXT:
      its clients are told the relay's port instead of its own, so they stay behind the relay

    Brokers have the numbers 1 to `count`. They and their controllers speak PLAINTEXT among each other.
    """

    def __init__(
        self,
        count: int = 1,
        *,
        settings: Mapping[str, str] | None = None,
        racks: Sequence[str] = (),
        heap: str = "320m",
        users: Mapping[str, str] | None = None,
        tls: bool = False,
        acls: bool = False,
        relay: int | None = None,
    ) -> None:
        if count not in (1, 3):
            raise BrokerError(f"found {count} brokers, expected 1 or 3")
        if racks and len(racks) != count:
            raise BrokerError(f"found {len(racks)} racks, expected one for each of {count} brokers, or none")
        if relay is not None and count != 1:
            raise BrokerError(f"found a relay for {count} brokers, expected 1 broker")
        self.count = count
        self._settings = dict(settings or {})
        self._racks = tuple(racks)
        self._heap = heap
        self._users = dict(users or {})
        self._tls = tls
        self._acls = acls
        self.relay = relay
        self._nodes: dict[int, _Node] = {}
        self._directory: Path | None = None
        self._keeper: subprocess.Popen[str] | None = None

    def __enter__(self) -> Brokers:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, for `bootstrap.servers`."""
        return self.listener(PLAIN)

    def listener(self, name: str) -> str:
        """Return the addresses of all brokers at a listener: PLAINTEXT, RELAYED, SASL_PLAINTEXT, SSL or SASL_SSL."""
        if name not in self._listeners():
            raise BrokerError(f"found listener {name!r}, expected one of {', '.join(self._listeners())}")
        return ",".join(node.address(name) for node in self._nodes.values())

    @property
    def certificate(self) -> Path:
        """The certificate of the brokers, which clients have to trust (`ssl.ca.location`)."""
        return self.directory / "certificate.pem"

    @property
    def directory(self) -> Path:
        """The temporary directory with configuration, data and log of each broker (`node-1`, ...)."""
        if self._directory is None:
            raise BrokerError("the brokers do not run; start them first")
        return self._directory

    def address(self, number: int) -> str:
        """Return the address of one broker."""
        return self._node(number).address()

    def pid(self, number: int) -> int:
        """Return the process id of one broker's JVM."""
        pid = self._node(number).pid
        if pid is None:
            raise BrokerError(f"broker {number} does not run")
        return pid

    def start(self) -> None:
        """Start all brokers, and wait until they are ready."""
        if self._directory is not None:
            raise BrokerError(f"the brokers run already, in {self._directory}")
        classpath = jars()
        self._directory = Path(tempfile.mkdtemp(prefix="taskplace-kafka-"))
        try:
            self._keeper = self._guard(self._directory)
            if self._tls:
                _make_certificate(self.certificate, self._key_store)
            self._lay_out()
            self._format(classpath)
            for node in self._nodes.values():
                self._launch(node)
            self._wait_until_ready(self._nodes.values())
            if self._users:
                self._add_users()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill all brokers and remove their data. Without effect if they do not run."""
        for number, node in self._nodes.items():
            if node.guard is not None:
                self.kill(number)
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
        if self._keeper is not None:
            self._keeper.kill()
            self._keeper.communicate()
        self._nodes, self._keeper, self._directory = {}, None, None

    def kill(self, number: int) -> None:
        """Kill one broker (SIGKILL), and wait until it has ended."""
        self._end(number, signal.SIGKILL)

    def shut_down(self, number: int) -> None:
        """Shut one broker down in order (SIGTERM), and wait until it has ended."""
        self._end(number, signal.SIGTERM)

    def restart(self, number: int) -> None:
        """Start one broker that was killed, was shut down or has ended, and wait until it is ready and in sync.

        So another broker may be killed then: every partition has all the replicas that run.
        """
        node = self._node(number)
        if node.guard is not None and node.guard.poll() is None:
            raise BrokerError(f"broker {number} runs already, as process {node.pid}")
        self._launch(node)
        self._wait_until_ready([node])
        self._wait_until(node, _in_sync, "in sync")

    def pause(self, number: int) -> None:
        """Stop one broker's process (SIGSTOP): its connections stay open, nothing is answered."""
        os.kill(self.pid(number), signal.SIGSTOP)

    def resume(self, number: int) -> None:
        """Let a paused broker go on."""
        os.kill(self.pid(number), signal.SIGCONT)

    def log_end(self, number: int, lines: int = _LOG_LINES) -> str:
        """Return the last lines of one broker's log."""
        log = self._node(number).log
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""

    def _node(self, number: int) -> _Node:
        if number not in self._nodes:
            known = ", ".join(map(str, self._nodes)) or "none; start them first"
            raise BrokerError(f"found broker {number!r}, expected one of {known}")
        return self._nodes[number]

    def _listeners(self) -> list[str]:
        others = {
            RELAYED: self.relay is not None,
            "SASL_PLAINTEXT": self._users,
            "SSL": self._tls,
            "SASL_SSL": self._users and self._tls,
        }
        return [PLAIN, *(name for name, asked in others.items() if asked)]

    @property
    def _key_store(self) -> Path:
        return self.directory / "key-store.pem"

    def _lay_out(self) -> None:
        """Choose the ports and write the configuration of each broker."""
        listeners = [*self._listeners(), CONTROLLER]
        ports = free_ports(len(listeners) * self.count)
        for number in range(1, self.count + 1):
            own = {name: ports.pop() for name in listeners}
            node = self._nodes[number] = _Node(number, own, self.directory / f"node-{number}")
            node.directory.mkdir()
        voters = ",".join(f"{node.number}@{node.address(CONTROLLER)}" for node in self._nodes.values())
        replicas, in_sync = ("1", "1") if self.count == 1 else ("3", "2")
        for node in self._nodes.values():
            properties = {
                **_SETTINGS,
                "default.replication.factor": replicas,
                "min.insync.replicas": in_sync,
                "offsets.topic.replication.factor": replicas,
                "transaction.state.log.replication.factor": replicas,
                "transaction.state.log.min.isr": in_sync,
                "share.coordinator.state.topic.replication.factor": replicas,
                "share.coordinator.state.topic.min.isr": in_sync,
                **({"broker.rack": self._racks[node.number - 1]} if self._racks else {}),
                **self._settings,
                "process.roles": "broker,controller",
                "node.id": str(node.number),
                "log.dirs": str(node.directory / "data"),
                "controller.quorum.voters": voters,
                "controller.listener.names": CONTROLLER,
                "inter.broker.listener.name": PLAIN,
                "listeners": ",".join(f"{name}://{node.address(name)}" for name in listeners),
                "advertised.listeners": ",".join(
                    f"{name}://{f'{HOST}:{self.relay}' if name == RELAYED else node.address(name)}"
                    for name in self._listeners()
                ),
                "listener.security.protocol.map": f"{CONTROLLER}:{PLAIN},"
                + ",".join(f"{name}:{PLAIN if name == RELAYED else name}" for name in self._listeners()),
                **self._security(),
            }
            text = "".join(f"{key}={value}\n" for key, value in properties.items())
            (node.directory / "server.properties").write_text(text)

    def _security(self) -> dict[str, str]:
        """Return the settings of the listeners with users and with TLS, and of access control lists."""
        module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        made = {
            f"listener.name.{name.lower()}.scram-sha-512.sasl.jaas.config": module
            for name in self._listeners()
            if name.startswith("SASL_")
        }
        if self._users:
            made["sasl.enabled.mechanisms"] = "SCRAM-SHA-512"
        if self._tls:
            made |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self._key_store)}
        if self._acls:  # brokers and controllers speak PLAINTEXT among each other, so they are anonymous
            made |= {"authorizer.class.name": _AUTHORIZER, "super.users": "User:ANONYMOUS"}
        return made

    def _add_users(self) -> None:
        """Add the users, and wait until every broker knows them."""
        kind, names = ScramMechanism.SCRAM_SHA_512, list(self._users)
        added = [
            UserScramCredentialUpsertion(name, ScramCredentialInfo(kind, 4096), password.encode())
            for name, password in self._users.items()
        ]
        for k, node in enumerate(self._nodes.values()):
            admin = AdminClient({"bootstrap.servers": node.address(), "log_level": 0})
            if k == 0:
                for future in admin.alter_user_scram_credentials(added).values():
                    future.result(READY_SECONDS)
            deadline = time.monotonic() + READY_SECONDS
            while any(future.exception() for future in admin.describe_user_scram_credentials(names).values()):
                if time.monotonic() > deadline:
                    raise BrokerError(f"broker {node.number} does not know the users after {READY_SECONDS} s")

    def _format(self, classpath: str) -> None:
        """Format the data directories of all brokers, beside each other."""
        cluster = _cluster_id()
        running = []
        for node in self._nodes.values():
            command = [*_java(classpath, "64m"), "kafka.tools.StorageTool", "format", "--cluster-id", cluster]
            command += ["--config", str(node.directory / "server.properties")]
            with node.log.open("ab") as log:
                running.append(
                    subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
                )
        codes = [process.wait() for process in running]
        for node, code in zip(self._nodes.values(), codes, strict=True):
            if code:
                raise BrokerError(
                    f"formatting the data of broker {node.number} failed:\n{self.log_end(node.number)}"
                )

    def _launch(self, node: _Node) -> None:
        command = [*_java(jars(), self._heap), "kafka.Kafka", str(node.directory / "server.properties")]
        node.guard = self._guard(self.directory, str(node.log), *command)
        line = node.guard.stdout.readline() if node.guard.stdout else ""
        if not line:
            node.guard.wait()
            node.guard = None
            raise BrokerError(f"broker {node.number} was not started: {command[0]} cannot be run")
        node.pid = int(line)

    def _guard(self, directory: Path, *rest: str) -> subprocess.Popen[str]:
        """Start a guard. It has a session of its own, so that Ctrl-C reaches only this process."""
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), str(directory), *rest],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def _end(self, number: int, how: signal.Signals) -> None:
        node = self._node(number)
        pid, guard = self.pid(number), node.guard
        if guard is None:
            raise BrokerError(f"broker {number} does not run")
        if guard.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself just now
                os.kill(pid, how)
        try:
            guard.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise BrokerError(
                f"broker {number} has not ended within {STOP_SECONDS} s of {how.name}"
            ) from None
        if guard.stdout:
            guard.stdout.close()
        node.guard = node.pid = None

    def _wait_until_ready(self, nodes: Iterable[_Node]) -> None:
        """Wait until each of these brokers answers that all of them are in the cluster."""
        waiting = list(nodes)
        expected = {node.number for node in waiting}
        for node in waiting:
            self._wait_until(node, lambda asked: expected <= _members(asked), "ready")

    def _wait_until(self, node: _Node, reached: Callable[[_Node], bool], what: str) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not reached(node):
            if node.guard is not None and _ended(node.guard):
                raise BrokerError(f"broker {node.number} has ended:\n{self.log_end(node.number)}")
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"broker {node.number} is not {what} after {READY_SECONDS} s:\n{self.log_end(node.number)}"
                )


def jars() -> str:
    """Return the class path of Kafka's jars. Fetches them if they are missing."""
    done = subprocess.run(
        [ROOT / "scripts" / "kafka.sh"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    if done.returncode:
        raise BrokerError(done.stderr.strip())
    return f"{_JARS}/*"


def free_ports(count: int) -> list[int]:
    """Return free ports of the loopback address that no outgoing connection gets.

    The kernel gives outgoing connections the ports of a range. Such a port could be taken while a broker is down, even
    by a client that tries to reach it. So these ports are below the range.
    """
    try:
        lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        lowest = 32768
    if lowest <= 2048:
        raise BrokerError(f"no ports from 1024 to {lowest - 1} for brokers; see net.ipv4.ip_local_port_range")
    found: list[int] = []
    for port in random.SystemRandom().sample(range(1024, lowest), lowest - 1024):
        with socket.socket() as trial, contextlib.suppress(OSError):
            trial.bind((HOST, port))
            found.append(port)
        if len(found) == count:
            return found
    raise BrokerError(f"found {len(found)} free ports on {HOST} below {lowest}, expected {count}")


def _java(classpath: str, heap: str) -> list[str]:
    home = os.environ.get("JAVA_HOME")
    command = f"{home}/bin/java" if home else "java"
    if shutil.which(command) is None:
        where = f"at JAVA_HOME={home}" if home else "on the PATH"
        raise BrokerError(f"a Kafka broker needs Java 17 or newer; found none {where}")
    return [command, f"-Xmx{heap}", *_JVM, "-cp", classpath]


def _make_certificate(certificate: Path, key_store: Path) -> None:
    """Make a key and a certificate that it signs itself; the key store has both."""
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "30",
        "-subj",
        f"/CN={HOST}",
    ]
    command += ["-addext", f"subjectAltName=IP:{HOST}", "-keyout", str(key_store), "-out", str(certificate)]
    if shutil.which(command[0]) is None:
        raise BrokerError("TLS needs openssl to make a certificate; found none on the PATH")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BrokerError(f"openssl could not make a certificate:\n{done.stderr.strip()}")
    key_store.write_text(key_store.read_text() + certificate.read_text())


def _cluster_id() -> str:
    """Return a random id in Kafka's form: 22 letters, without a dash at the beginning."""
    return "k" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]


def _members(node: _Node) -> set[int]:
    """Return the brokers in the metadata that a broker has; none if it does not answer within a second."""
    found = _metadata(node)
    return set() if found is None else set(found.brokers)


def _in_sync(node: _Node) -> bool:
    """Return whether a broker's replicas are in sync in all partitions, as it says itself."""
    found = _metadata(node)
    if found is None:
        return False
    partitions = [each for topic in found.topics.values() for each in topic.partitions.values()]
    return all(node.number in each.isrs for each in partitions if node.number in each.replicas)


def _metadata(node: _Node) -> ClusterMetadata | None:
    asked = AdminClient(
        {
            "bootstrap.servers": node.address(),
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
            "error_cb": lambda error: None,  # it is not up yet
        }
    )
    try:
        return asked.list_topics(timeout=1)
    except KafkaException:
        return None


def _ended(process: subprocess.Popen[str]) -> bool:
    """Return whether the process ends within a moment; the pause between two questions."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(0.05)
        return True
    return False
