"""The run that the screenshots are of: the flights job on a terminal, in a directory of its own."""

from __future__ import annotations

import json
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import URLError
from urllib.request import urlopen

import pyte
from rich.style import Style
from rich.text import Text

from tests.support.terminal import Terminal

ROOT = Path(__file__).parents[2]
CHECKPOINT = "var/flights/checkpoint"
CODE = "import sys; from taskplace.cli import main; sys.exit(main())"
COLUMNS, ROWS = 110, 60
#: What a screen of the run shows, from the least to the most telling.
TELLING = ("lost", "catching up standbys", "catching up warm-ups")
#: The last line of a run's screen: how many batches there were, and the time.
BATCHES = re.compile(r" \d+ of \d+ batches +for [\d:]+")
#: What is said of a task that is not yet where it belongs.
ON_ITS_WAY = "It is to move to"
#: The longest time until something has happened, in seconds.
PATIENCE = 900

T = TypeVar("T")


class Drawn(Terminal):
    """A terminal whose screen can be kept with its colours."""

    def __init__(self, columns: int = COLUMNS, rows: int = ROWS) -> None:
        super().__init__(columns, rows)
        self._stream = _Dimming(self._screen)

    def type(self, command: str) -> None:
        """Write a command after a prompt, as somebody types it."""
        self._stream.feed(f"\x1b[32m$\x1b[0m \x1b[1m{command}\x1b[0m\r\n".encode())

    @property
    def whole(self) -> bool:
        """Whether the last line is drawn."""
        return self._screen.cursor.y >= len("\n".join(self._screen.display).rstrip().splitlines()) - 1

    def lines(self) -> list[Text]:
        """Return the screen as it is now, without the empty lines at its end."""
        lines = [_line(self._screen, y) for y in range(self._screen.lines)]
        while lines and not lines[-1].plain:
            lines.pop()
        return lines


class _Dimming(pyte.ByteStream):
    """pyte does not know faint text; it gets darker colours."""

    def feed(self, data: bytes) -> None:
        super().feed(re.sub(rb"\x1b\[2(?:;(3[0-7]))?m", self._darker, data))

    @staticmethod
    def _darker(found: re.Match[bytes]) -> bytes:
        return b"\x1b[38;5;%dm" % {b"32": 65, b"33": 136}.get(found[1], 245)


def _line(screen: pyte.Screen, y: int) -> Text:
    text = Text()
    for x in range(screen.columns):
        cell = screen.buffer[y][x]
        text.append(cell.data, Style(color=_colour(cell.fg), bgcolor=_colour(cell.bg), bold=cell.bold))
    text.rstrip()
    return text


def _colour(name: str) -> str | None:
    """Return the name of a colour of pyte as rich knows it."""
    if name == "default":
        return None
    if len(name) == 6 and set(name) <= set("0123456789abcdef"):
        return f"#{name}"
    name = name.replace("brown", "yellow")
    return name.replace("bright", "bright_")


class Job:
    """`taskplace run conf/flights.yaml --ui PORT` in a folder; a context in which it runs.

    `screen` is its terminal at the most telling moment.
    """

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.url = folder, f"http://127.0.0.1:{port}/"
        self.arguments = ("run", "conf/flights.yaml", "--ui", str(port))
        self.screen: list[Text] = []
        self._told = -1
        self._thread = threading.Thread(target=self._run)
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("conf", "examples"):
            if not (folder / name).exists():
                (folder / name).symlink_to(ROOT / name)

    def __enter__(self) -> Job:
        for name in ("checkpoint", "state", "output"):
            shutil.rmtree(self.folder / "var" / "flights" / name, ignore_errors=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.join()

    def _run(self) -> None:
        terminal = Drawn(rows=36)
        terminal.type(f"taskplace {' '.join(self.arguments)}")

        def seen(screen: tuple[str, ...]) -> None:
            text = "\n".join(screen)
            tells = max((k for k, words in enumerate(TELLING) if words in text), default=-1)
            if tells > self._told and BATCHES.search(screen[-1]) and terminal.whole:
                self._told, self.screen = tells, terminal.lines()

        terminal.run([sys.executable, "-c", CODE, *self.arguments], cwd=self.folder, seen=seen)

    def wait(self, until: Callable[[], T]) -> T:
        """Wait until something holds, and return it. Errors: `TimeoutError`; `RuntimeError` if the run has ended."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if found := until():
                return found
            if not self._thread.is_alive():
                raise RuntimeError("the run has ended before")
            time.sleep(0.1)
        raise TimeoutError(f"not within {PATIENCE} s")

    def now(self) -> dict[str, Any]:
        """Return what the live page is told first; nothing before it is served."""
        try:
            with urlopen(f"{self.url}news", timeout=30) as answer:
                return dict(json.loads(answer.readline().decode().removeprefix("data: ")))
        except (URLError, ConnectionError):
            return {}

    def warm_ups(self) -> list[str]:
        """Return the tasks that warm up now."""
        return [copy["task"] for copy in self.now().get("copies", ()) if copy["role"] == "warm-up"]

    def on_their_way(self) -> list[str]:
        """Return the tasks that are not yet where they belong."""
        with urlopen(f"{self.url}reasons.json", timeout=60) as answer:
            return [one["task"] for one in json.load(answer) if ON_ITS_WAY in " ".join(one["text"].split())]

    def command(self, *arguments: str, rows: int = ROWS) -> list[Text]:
        """Run another command of taskplace in the folder, and return its screen."""
        terminal = Drawn(rows=rows)
        terminal.type(f"taskplace {' '.join(arguments)}")
        terminal.run([sys.executable, "-c", CODE, *arguments], cwd=self.folder)
        return terminal.lines()


def plain(lines: Sequence[Text]) -> str:
    """Return a screen as text."""
    return "\n".join(line.plain for line in lines)
