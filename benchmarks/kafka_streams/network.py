"""The network between an application and what it talks to, which can be cut for one of its processes.

Relays (relay.py) run in a process of their own, so that this one's work does not delay them.
"""

from __future__ import annotations

import json
import os
import queue
import sys
from collections.abc import Sequence
from pathlib import Path

from kafka_streams.programs import Line, Program, ProgramError
from kafka_streams.relay import Address

BENCHMARKS = Path(__file__).resolve().parents[1]
RELAYED_HOST = "127.0.0.2"  # the driver's, to executors: relays listen there at the ports of the driver
ANSWER_SECONDS = 30


class Network:
    """Relays from addresses to others. `end` has to be called."""

    def __init__(self, routes: Sequence[tuple[Address, Address]], log: Path) -> None:
        self._answers: queue.Queue[Line] = queue.Queue()
        command = [sys.executable, "-m", "kafka_streams.relay", json.dumps(routes)]
        path = f"{BENCHMARKS.parent}{os.pathsep}{BENCHMARKS}"
        self._program = Program("the relay", command, log, self._answers.put, env={"PYTHONPATH": path})
        self._answer()

    def cut(self, pid: int) -> float:
        """Cut a process and its descendants off. Return the time. Errors: `ProgramError` if none is connected."""
        self._program.tell(json.dumps({"cut": pid}))
        answer = self._answer()
        if not answer["connections"]:
            raise ProgramError(f"process {pid} has no connection that could be cut")
        return float(answer["at"])

    def heal(self) -> None:
        """Let everything go on."""
        self._program.tell(json.dumps({"heal": True}))
        self._answer()

    def check(self) -> None:
        """Raise if the relays have ended."""
        self._program.check()

    def end(self) -> None:
        """End the relays, and all connections."""
        self._program.end()

    def _answer(self) -> Line:
        try:
            return self._answers.get(timeout=ANSWER_SECONDS)
        except queue.Empty:
            self._program.check()
            raise ProgramError(f"the relay does not answer:\n{self._program.log_end()}") from None
