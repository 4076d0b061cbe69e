""""""

from __future__ import annotations

import json
import os
import shutil
import signal
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from taskplace.spark.checkpoint import compaction
from taskplace.spark.checkpoint import journal as journal_module
from taskplace.spark.checkpoint.files import read_sealed
from taskplace.spark.checkpoint.journal import Journal
from taskplace.spark.checkpoint.manifests import history_before
from taskplace.spark.messages import History, StagedFile
from taskplace.spark.state.copy import Copy
from taskplace.spark.worker import bin_context as segments
from tests.support.attempt_files import check_part
from tests.support.forks import wait_for
from tests.support.journal_driver import (
    BEFORE,
    EXECUTORS,
    FULL_EVERY,
    IDENTITY,
    STORES,
    TASKS,
    Batch,
    Driver,
    State,
    Steps,
)
from topology import TaskId


@dataclass
class World:
    """A checkpoint, the executors' copies, the reports of attempts, and the model of the committed state."""

    folder: Path
    told: dict[str, dict[str, Any]] = field(default_factory=lambda: {"": {}})
    refused: set[str] = field(default_factory=set)
    acknowledged: set[str] = field(default_factory=set)
    chains: dict[TaskId, list[str]] = field(default_factory=lambda: {task: [] for task in TASKS})
    last_batch: int = -1
    _read: int = 0  # of what was told
    _log: int = -1  # where a driver tells it

    @property
    def root(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def copy(self, executor: str, task: TaskId) -> Path:
        return self.state / f"app.{executor}" / str(task)

    # -- drivers

    def fork(
        self, batches: Sequence[Batch], at: int | None = None, sent: signal.Signals = signal.SIGKILL
    ) -> int:
        """Start a driver that gets a signal before its step number `at`. Return its process id."""
        child = os.fork()
        if child == 0:
            try:
                journal_module.FULL_EVERY = FULL_EVERY
                segments.BATCHES, compaction.MOST_NEEDED = 2, 0.6
                self._log = os.open(self.folder / "told", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                Driver(self, Steps(at, sent)).run(batches)
            except BaseException:
                (self.folder / "failed").write_text(traceback.format_exc())
                os._exit(1)
            os._exit(0)
        return child

    def ended(self, driver: int) -> bool:
        """Wait until a driver has ended or was stopped. Return whether it has ended by itself."""
        status = wait_for(driver, os.WUNTRACED)
        failed = self.folder / "failed"
        assert not failed.exists(), failed.read_text()
        assert os.WIFSTOPPED(status) or os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
        self.listen()
        return os.WIFEXITED(status)

    # -- the model

    def tell(self, **what: Any) -> None:
        os.write(self._log, json.dumps(what).encode() + b"\n")

    def listen(self) -> None:
        """Read the new log entries of the drivers."""
        file = self.folder / "told"
        text = file.read_bytes()[self._read :] if file.exists() else b""
        self._read += len(text)
        for line in text.decode().splitlines():
            what = json.loads(line)
            if "attempt" in what:
                self.told[what["attempt"]] = what
            self.refused |= set(what.get("refused", ()))
            self.acknowledged |= set(what.get("committed", ()))

    def chain(self, attempt: str) -> list[str]:
        """Return the chain of attempts up to this one, inclusive."""
        if attempt not in self.told:
            self.listen()
        return [*self.chain(self.told[attempt]["base"]), attempt] if attempt else []

    def amounts_to(self, attempt: str) -> State:
        """Return the expected contents of the stores after a chain of attempts."""
        state: State = {store: {} for store in STORES}
        for one in self.chain(attempt):
            for store, writes in self.told[one]["writes"].items():
                for key, value in writes.items():
                    if value is None:
                        state[store].pop(key, None)
                    else:
                        state[store][key] = value
        return state

    # -- what has to hold

    def check_contents(self, copy: Copy, attempt: str) -> None:
        found = {s: {k.decode(): v.decode() for k, v in copy.scan(s)} for s in STORES}
        assert found == self.amounts_to(attempt)

    def check_files(self, history: History) -> None:
        for part in (*history.changes, *history.snapshots):
            check_part(self.root, part)

    def check_output(self, manifest: journal_module.Manifest) -> None:
        """Check that the output of every attempt of the last batch exists, because it may be published again."""
        staged = {self.told_by(file): file for file in manifest.sinks["out"]}
        assert set(staged) == {change.attempt for change in manifest.changes.values()}

    def told_by(self, file: StagedFile) -> str:
        return bytes(read_sealed(self.root / file.file, file.size, file.checksum)).decode()

    def looked_at(self) -> Journal:
        """Open a copy of the manifests, so that the checkpoint itself is not taken over."""
        elsewhere = self.folder / "looked-at"
        shutil.rmtree(elsewhere, ignore_errors=True)
        for part in ("manifests", "epochs"):
            if (self.root / part).exists():
                shutil.copytree(self.root / part, elsewhere / part, copy_function=os.link)
        with patch.object(os, "fsync"):
            return Journal(elsewhere, IDENTITY)

    def check(self) -> Journal:
        """Check the committed state against the earlier committed state, and against the reports of attempts."""
        journal = self.looked_at()
        assert journal.last_batch >= self.last_batch, "a committed batch is gone"
        for task in TASKS:
            history = journal.history.get(task, History())
            chain = self.chain(history.end.attempt)
            known = self.chains[task]
            assert chain[: len(known)] == known, "what counted does not count any more"
            newer = [self.told[attempt]["version"] for attempt in chain[len(known) :]]
            assert all(version > self.last_batch for version in newer), "a batch has got another attempt"
            assert all(self.told[attempt]["task"] == str(task) for attempt in chain)
            left = [change.attempt for change in history.changes]
            assert left == chain[len(chain) - len(left) :]
            assert {snapshot.attempt for snapshot in history.snapshots} <= set(chain)
            self.check_files(history)
            self.chains[task] = chain
        if journal.last is not None:
            self.check_output(journal.last)
        self.last_batch = journal.last_batch
        counted = set().union(*self.chains.values())
        assert self.acknowledged <= counted, "a commit that was acknowledged does not count"
        assert not self.refused & counted, "a commit that was refused counts"
        return journal

    def check_copies(self) -> None:
        """Bring every copy to the newest position, and also a new, empty copy in each possible way."""
        journal = self.check()
        for task in TASKS:
            history = journal.history.get(task, History())
            assert history_before(self.root, journal.last_batch + 1, task) == history
            for executor in EXECUTORS:
                self._check_copy(self.copy(executor, task), history)
            ways = [history]
            for snapshot in history.snapshots:
                later = tuple(c for c in history.changes if c.version > snapshot.version)
                ways.append(History(later, (snapshot,)))
            if history.changes and not history.changes[0].base:
                ways.append(History(history.changes))
            for way in ways:
                shutil.rmtree(self.folder / "new", ignore_errors=True)
                self._check_copy(self.folder / "new", way)

    def _check_copy(self, path: Path, history: History) -> None:
        with Copy(path, STORES) as copy:
            recovery = copy.bring_to(history, self.root)
            assert not recovery.damaged
            self.check_contents(copy, history.end.attempt)
            copy.commit_unchanged()
            assert copy.position() == history.end

    def check_nothing_is_left(self) -> None:
        """Check that only needed changelog files remain after two batches without changes."""
        quiet = [Batch({task: ("1", {"s": {"k0": "quiet"}}) for task in TASKS})] * 2
        assert self.ended(self.fork(quiet))
        journal = self.check()
        for task in TASKS:
            history = journal.history[task]
            needed = {part.file for part in (*history.changes, *history.snapshots)}
            there = {str(path.relative_to(self.root)) for path in self.root.glob(f"snapshots/{task}/*.arrow")}
            assert there == {file for file in needed if file.startswith("snapshots/")}
        named = {change.file for history in journal.history.values() for change in history.changes}
        there = {str(path.relative_to(self.root)) for path in self.root.glob("changelog/*")}
        assert named <= there
        # Segments to which attempts of the next batch may still write stay as well.
        assert all(int(Path(name).name.split("-")[0]) > journal.last_batch for name in there - named)
        manifests = sorted(int(path.stem) for path in (self.root / "manifests").glob("[0-9]*.json"))
        assert journal.last is not None
        assert manifests == list(range(journal.last.needs, journal.last_batch + 1))


def batches(count: int, visited: Sequence[str], when: str = BEFORE) -> list[Batch]:
    """Draw batches of both tasks on different executors: one task with a deletion, the other with two stores."""

    def attempts(number: int) -> dict[TaskId, tuple[str, Any]]:
        deletes = {"s": {"k0": f"{number}", "k1": None if number % 2 else "1"}}
        writes = {"s": {"k0": f"{number}"}, "t": {f"k{number % 4}": "2"}}
        return {TaskId(0, 0): ("1", deletes), TaskId(0, 1): ("2", writes)}

    return [Batch(attempts(number), visited, when) for number in range(count)]
