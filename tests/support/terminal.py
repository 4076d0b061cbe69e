"""A pseudo-terminal for tests: runs a command on it, and shows what is on its screen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyte

ROOT = Path(__file__).resolve().parents[2]
#: What decides how a terminal is written to; tests set what they need of it.
DECIDING = ("CI", "NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS", "LINES", "TTY_COMPATIBLE", "TTY_INTERACTIVE")


class Terminal:
    """A terminal of so many columns, on which a command runs. Its screen is drawn by an emulator.

    - `screens`: every screen that was seen, as lines without the spaces at their ends
    - `bytes`: what was written
    """

    def __init__(self, columns: int = 80, rows: int = 12) -> None:
        self.columns, self.rows = columns, rows
        self.bytes = b""
        self.screens: list[tuple[str, ...]] = []
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)

    def run(
        self,
        command: Sequence[str | Path],
        *,
        stdout: Any = None,
        cwd: Path | None = None,
        seen: Callable[[tuple[str, ...]], object] = lambda screen: None,
        **env: str,
    ) -> int:
        """Run a command until it ends, and return its exit code. What it has left in its process group is killed.

        - `stdout`: a file for its standard output; None: the terminal, like its standard error
        - `cwd`: the directory to run it in
        - `seen`: called with each new screen
        - `env`: set in the command's environment
        """
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", self.rows, self.columns, 0, 0))
        inherited = {name: value for name, value in os.environ.items() if name not in DECIDING}
        process = subprocess.Popen(
            list(map(str, command)),
            stdin=slave,
            stdout=stdout or slave,
            stderr=slave,
            cwd=cwd,
            env={**inherited, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **env},
            start_new_session=True,
        )
        os.close(slave)
        try:
            while data := _read(master):
                self.bytes += data
                # Several drawings may come at once.
                for part in re.split(rb"(?=\r)", data):
                    self._stream.feed(part)
                    self.screens.append(self.screen)
                    seen(self.screen)
        finally:
            os.close(master)
            process.wait(60)
            # What the command has left in the background, such as the clock's `sleep`.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        return process.returncode

    def python(self, code: str, **options: Any) -> int:
        """Run Python code; see `run`."""
        return self.run([sys.executable, "-c", code], **options)

    @property
    def screen(self) -> tuple[str, ...]:
        """The lines of the screen that are not empty."""
        return tuple(line.rstrip() for line in self._screen.display if line.strip())

    @property
    def cursor_hidden(self) -> bool:
        """Whether the cursor is hidden now."""
        return bool(self._screen.cursor.hidden)


def _read(master: int) -> bytes:
    try:
        return os.read(master, 65_536)
    except OSError:  # the last process that had the terminal has ended
        return b""
