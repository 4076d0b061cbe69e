"""docs/operations.md is right: its commands print what it says, in turn, on a stream without Spark.

Numbers, times and names of this machine are not compared. If a text has changed, the test shows what to paste.
"""

from __future__ import annotations

import contextlib
import getpass
import io
import re
import shlex
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from taskplace.cli import main
from taskplace.spark import ParquetSink, Placed
from taskplace.spark.processors import Count
from taskplace.spark.state.copy import Copy
from tests.support.operators import attended
from tests.support.pages import blocks
from tests.support.placed_without_spark import World
from topology import Topology

PAGE = "docs/operations.md"
CHECKPOINT, BACKUP = "/data/checkpoint", "/backup/checkpoint"
#: What differs from run to run, and what stands for it.
VARIES = (
    (r"\b[0-9a-f]{16,32}\b", "ID"),
    (r"\b(?:[\d.,]+ (?:ms|s|min|h)(?: [\d.,]+ (?:s|min))?|a few seconds) ago\b|\bjust now\b", "AGO"),
    (r"\b[\d.,]+ (?:ms|s|min|h)\b(?: [\d.,]+ (?:s|min))?", "TIME"),
    (r"process \d+ on \S+\)", "process P on HOST)"),
    (r"\b\d[\d,]*\b(?!_)", "N"),
)


class Story:
    """The run of the page: 12 tasks with a standby each on two executors, and a third executor that joins."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world, self.patch, self.batches = world, monkeypatch, 0
        topology = Topology("words")
        words = topology.source("words", key="value", partitions=12)
        words.process(Count("seen", by={"value": "string"}), name="seen").sink(
            "counts", target=ParquetSink(world.folder / "counts")
        )
        self.topology = topology
        world.come(1)
        self.placed = self.open()
        for _ in range(3):
            self.batch(follow=True)
        self.batch()
        world.come(1)
        world.follow(self.placed)
        self.batch()

    def open(self) -> Placed:
        config = {"num.standby.replicas": 1, "acceptable.recovery.lag": 100}
        return self.world.open(self.topology, config=config, snapshot_interval=3)

    def batch(self, *, follow: bool = False) -> None:
        drawn = np.random.default_rng(self.batches).integers(0, 2_000, 5_000)
        table = pa.table({"value": [f"w{number}" for number in drawn]})
        self.world.batch(self.placed, self.batches, words=table)
        self.batches += 1
        if follow:
            self.world.follow(self.placed)
        self.write_status()

    def write_status(self) -> None:
        self.placed.rebalancer.events.changes += 1
        self.placed._runner.operations._last = 0.0
        self.placed._runner.operations.turn()

    # -- what happens before a command of the page

    def stuck(self) -> None:
        really = Copy.follow

        def follow(copy: Copy, *args: Any, **more: Any) -> Any:
            if self.world.running == "3":
                raise OSError(28, "No space left on device")
            return really(copy, *args, **more)

        with self.patch.context() as patch:
            patch.setattr(Copy, "follow", follow)
            self.world.follow(self.placed)
            self.write_status()

    def end(self) -> None:
        self.placed.close()

    def again(self) -> None:
        self.placed = self.open()
        for _ in range(10):
            self.batch(follow=True)

    def damage(self) -> None:
        self.kept = self.world.folder / "kept"
        shutil.copytree(self.placed.checkpoint, self.kept)
        segment = max((self.placed.checkpoint / "changelog").iterdir(), key=lambda path: path.stat().st_size)
        data = bytearray(segment.read_bytes())
        data[-200] ^= 1
        segment.write_bytes(data)

    def repair(self) -> None:
        shutil.rmtree(self.placed.checkpoint / "changelog")
        shutil.copytree(self.kept / "changelog", self.placed.checkpoint / "changelog")

    def drained(self) -> None:
        for _ in range(6):
            self.batch(follow=True)


#: What happens before each command.
BEFORE: tuple[tuple[str, Callable[[Story], None] | None], ...] = (
    ("status", None),
    ("explain", Story.stuck),
    ("status", Story.end),
    ("inspect", Story.again),
    ("inspect", Story.damage),
    ("verify", Story.repair),
    ("drain", None),
    ("drain", None),
    ("can-remove", None),
    ("can-remove", Story.drained),
)


def transcripts() -> list[tuple[str, str]]:
    """Return the commands of the page, and what they print."""
    found = [block.partition("\n") for block in blocks(PAGE, "console")]
    return [(line.removeprefix("$ "), printed) for line, _, printed in found]


def printed(story: Story, line: str) -> str:
    """Run a command on the stream, and return what it prints, with the paths of the page."""
    real = str(story.placed.checkpoint)
    out = io.StringIO()
    with contextlib.redirect_stdout(out), attended(story.placed):
        main([real if word in (CHECKPOINT, BACKUP) else word for word in shlex.split(line)[1:]])
    path = BACKUP if BACKUP in line else CHECKPOINT
    text = out.getvalue().replace(real, path).replace(str(story.world.folder / "state"), "/state")
    return text.replace(socket.gethostname(), "vm").replace(getpass.getuser(), "me")


def bare(text: str) -> str:
    """Return a text without what varies, and without its line breaks."""
    for pattern, name in VARIES:
        text = re.sub(pattern, name, text)
    return " ".join(text.split())


def test_the_commands_print_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = transcripts()
    assert [line.split()[1] for line, _ in said] == [command for command, _ in BEFORE]
    story = Story(World(tmp_path, monkeypatch), monkeypatch)
    for (line, text), (_, before) in zip(said, BEFORE, strict=True):
        if before is not None:
            before(story)
        found = printed(story, line)
        if text.startswith("...\n"):
            assert bare(found).endswith(bare(text.removeprefix("...\n"))), found
        elif text.endswith("\n...\n"):
            assert bare(found).startswith(bare(text.removesuffix("...\n"))), found
        else:
            assert bare(found) == bare(text), found
