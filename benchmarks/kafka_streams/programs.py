"""Child processes that print lines of JSON: started, read, waited for, and ended.

A program ends when its standard input does, so none outlives this process. The program's other output goes to a log.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

LOG_LINES = 30
END_SECONDS = 60

#: A line of a program, as the mapping that it is.
Line = dict[str, Any]


class ProgramError(RuntimeError):
    """A program that has ended, or does not say what it should; with the end of its log."""


class NotInTimeError(ProgramError):
    """What was waited for has not happened."""


class Program:
    """One child process. `take` gets its lines, on a thread of its own; what is no JSON object goes to the log."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        take: Callable[[Line], None],
        *,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self._log, self._take = name, log, take
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, **(env or {})},
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def tell(self, word: str) -> None:
        """Write a line to its standard input."""
        if self._process.stdin is None:
            raise ProgramError(f"{self.name} has no standard input")
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def check(self) -> None:
        """Raise `ProgramError` if it has ended."""
        code = self._process.poll()
        if code is not None:
            raise ProgramError(f"{self.name} has ended with code {code}:\n{self.log_end()}")

    def log_end(self) -> str:
        """Return the last lines of its log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-LOG_LINES:])

    def kill(self, signal: int) -> None:
        """Send it a signal."""
        self._process.send_signal(signal)

    def wait(self) -> None:
        """Wait until it has ended, after a SIGKILL."""
        self._process.wait(END_SECONDS)
        self._close()

    def end(self) -> None:
        """End its standard input, wait until it has ended, and kill it with its children if it does not."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in family(self._process.pid):  # one that was stopped cannot see the end of its input
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.resume()
        with contextlib.suppress(BrokenPipeError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            for process in family(self._process.pid):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            self._process.wait(END_SECONDS)
        self._close()

    def _close(self) -> None:
        self._reader.join(END_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()

    def _read(self) -> None:
        with contextlib.suppress(ValueError):  # the pipe was closed
            for line in self._process.stdout or ():
                found = parsed(line)
                if found is None:
                    with self._log.open("a") as log:
                        log.write(line)
                else:
                    self._take(found)


def parsed(line: str) -> Line | None:
    """Return the JSON object of a line, or None.

    >>> parsed('{"at": 1.5}'), parsed("WARN something"), parsed("[1]")
    ({'at': 1.5}, None, None)
    """
    try:
        found = json.loads(line)
    except json.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


def family(pid: int) -> list[psutil.Process]:
    """Return a process and all its descendants, the process first."""
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def wait_for(
    condition: Callable[[], bool], what: str, seconds: float, check: Callable[[], None] = lambda: None
) -> float:
    """Wait for a condition, and return the time when it was seen. `check` raises if there is no point in waiting."""
    deadline = time.monotonic() + seconds
    while not condition():
        check()
        if time.monotonic() > deadline:
            raise NotInTimeError(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.02)
    return time.time()
