"""Starts and stops Kafka brokers in the background.

    python -m examples.kafka up [--brokers 3]    # prints the address; `make kafka-up`
    python -m examples.kafka down                # `make kafka-down`
    python -m examples.kafka serve               # in the foreground, until Ctrl-C
    python -m examples.kafka with COMMAND...     # only while a command runs, which finds the address in KAFKA_SERVERS

A server process holds the brokers. While it runs, it keeps a lock on its state file (var/kafka/running.json), in which
are its process id and the address. `up` does nothing if brokers run already.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from examples.kafka.broker import ROOT, BrokerError, Brokers, jars

STATE = ROOT / "var" / "kafka" / "running.json"
#: The environment variable in which a command finds the addresses of the brokers.
VARIABLE = "KAFKA_SERVERS"


def up(state: Path = STATE, *, brokers: int = 1, owner: int | None = None) -> str:
    """Start brokers in the background if none run with this state file, and return their address.

    With `owner`, a process id, they end when that process does.
    """
    if (running := _running(state)) is not None:
        return str(running["bootstrap"])
    jars()  # says that it fetches them; the first line of the server is the address
    state.parent.mkdir(parents=True, exist_ok=True)
    log = state.with_suffix(".log")
    command = [
        sys.executable,
        "-m",
        "examples.kafka",
        "serve",
        "--state",
        str(state),
        "--brokers",
        str(brokers),
    ]
    command += [] if owner is None else ["--owner", str(owner)]
    with log.open("w") as errors:
        server = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    with contextlib.closing(server.stdout or sys.stdin) as output:
        address = output.readline().strip()
    if not address:
        server.wait()
        raise BrokerError(f"the brokers were not started:\n{log.read_text().strip()}")
    return address


def down(state: Path = STATE) -> bool:
    """Stop the brokers of this state file, and wait until their server has ended. Return whether there were any."""
    running = _running(state)
    if running is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(running["pid"]), signal.SIGTERM)
    with state.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # the server lets go of it when it ends
    return True


def serve(state: Path, *, brokers: int, owner: int | None) -> int:
    """Run brokers until SIGTERM, Ctrl-C, or the end of the owner."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if owner is not None:
        threading.Thread(target=_end_with, args=(owner,), daemon=True).start()
    state.parent.mkdir(parents=True, exist_ok=True)
    with state.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BrokerError(f"brokers run already, or are being started: see {state}") from None
        file.truncate(0)
        with Brokers(brokers) as cluster:
            json.dump({"pid": os.getpid(), "bootstrap": cluster.bootstrap}, file)
            file.flush()
            print(cluster.bootstrap, flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                threading.Event().wait()
    return 0


def run_with(command: Sequence[str], *, brokers: int) -> int:
    """Run a command with brokers of its own, and return its exit code. The brokers end with it.

    Ctrl-C reaches the command as well, and SIGTERM is passed on to it: the command says when it ends.
    """
    process: subprocess.Popen[bytes] | None = None

    def interrupt(*_: object) -> None:
        if process is None:
            raise KeyboardInterrupt

    def terminate(*_: object) -> None:
        if process is None:
            sys.exit(128 + signal.SIGTERM)
        process.terminate()

    handlers = {signal.SIGINT: interrupt, signal.SIGTERM: terminate}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        with Brokers(brokers) as cluster:
            try:
                process = subprocess.Popen(command, env={**os.environ, VARIABLE: cluster.bootstrap})
            except OSError as error:
                raise BrokerError(f"{command[0]} cannot be run: {error.strerror}") from None
            code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code  # killed by a signal: as a shell says it


def _running(state: Path) -> dict[str, object] | None:
    """Return what the server wrote into its state file, or None if no server runs."""
    if not state.exists():
        return None
    with state.open() as file:
        if not _locked(file):
            return None
        text = file.read()
    if not text:
        raise BrokerError(f"brokers are being started: see {state.with_suffix('.log')}")
    return dict(json.loads(text))


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _end_with(owner: int) -> None:
    """Send this process SIGTERM when the owner ends."""
    with contextlib.suppress(ProcessLookupError):
        poll = select.poll()
        poll.register(os.pidfd_open(owner), select.POLLIN)
        poll.poll()
    os.kill(os.getpid(), signal.SIGTERM)


def main(arguments: list[str] | None = None) -> int:
    """Run one command."""
    parser = argparse.ArgumentParser(prog="python -m examples.kafka", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in {
        "up": "start brokers in the background",
        "down": "stop them",
        "serve": "run brokers until Ctrl-C",
    }.items():
        command = commands.add_parser(name, help=text)
        command.add_argument("--state", type=Path, default=STATE, help="the file that says what runs")
        if name != "down":
            command.add_argument("--brokers", type=int, choices=(1, 3), default=1)
            command.add_argument("--owner", type=int, help="a process id: the brokers end with this process")
    command = commands.add_parser("with", help="run a command with brokers of its own")
    command.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    command.add_argument("run", nargs=argparse.REMAINDER, metavar="COMMAND", help=f"finds them in {VARIABLE}")
    given = parser.parse_args(arguments)
    if given.command == "with" and not given.run:
        parser.error("with: expected a command to run")
    try:
        if given.command == "with":
            return run_with(given.run, brokers=given.brokers)
        if given.command == "serve":
            return serve(given.state, brokers=given.brokers, owner=given.owner)
        if given.command == "up":
            print(up(given.state, brokers=given.brokers, owner=given.owner))
        elif not down(given.state):
            print("no brokers run")
    except BrokerError as error:
        print(error, file=sys.stderr)
        return 1
    return 0
