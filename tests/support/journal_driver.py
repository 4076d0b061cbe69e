"""Drivers of a checkpoint without Spark, step by step. They may be killed or stopped between any two steps."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import psutil
import pytest

from taskplace.errors import Fenced, TaskplaceError
from taskplace.spark import faults
from taskplace.spark.checkpoint.files import SectionFile, encode_changes, write_file
from taskplace.spark.checkpoint.journal import Journal
from taskplace.spark.checkpoint.manifests import path_of, read_manifest
from taskplace.spark.codec import checksum_of
from taskplace.spark.messages import Change, Fence, FollowReport, FollowRequest, History, Position, StagedFile
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.transaction import Transaction
from taskplace.spark.worker import follow, identity
from taskplace.spark.worker.bin_context import segment
from topology import TaskId

if TYPE_CHECKING:
    from tests.support.journal_world import World

TASKS = [TaskId(0, 0), TaskId(0, 1)]
STORES = ["s", "t"]
EXECUTORS = ["1", "2", "3"]
IDENTITY = {"hash": 1}
FULL_EVERY = 3
State = dict[str, dict[str, str]]
Writes = dict[str, dict[str, str | None]]  # store -> key -> value, None: deleted

#: When executors are visited: before a batch; ordered before it and executed after pruning; executed before it and
#: reported after pruning; between commit and pruning.
BEFORE, ACROSS, REPORTED_LATE, BETWEEN = WHEN = "before", "across", "reported late", "between"


@dataclass(frozen=True)
class Batch:
    """One batch of a driver: its attempts, by task, and its visits, which get their orders when they begin."""

    attempts: Mapping[TaskId, tuple[str, Writes]]  # task -> executor and writes of the attempt
    visited: Sequence[str] = ()
    when: str = BEFORE


class Driver:
    """The code of a driver process. `world`: the checkpoint and copies; `steps`: the counter of its file operations."""

    def __init__(self, world: World, steps: Steps) -> None:
        self.world, self.steps = world, steps
        self.journal = Journal(world.root, IDENTITY)
        self.numbers = itertools.count()

    def run(self, batches: Sequence[Batch]) -> None:
        try:
            for batch in batches:
                self._run(batch)
        except TaskplaceError as error:
            if self._lost_to_an_older_driver(error):
                return
            with pytest.raises(Fenced):  # `Placed.process_batch` makes this check after any error
                self.journal.check_epoch()

    def _lost_to_an_older_driver(self, error: TaskplaceError) -> bool:
        """Return whether this is the newest driver, and an older one has created the manifest of its batch.

        The older one was just creating it when this one took over. So this one has to be started again.
        """
        batch = self.journal.last_batch + 1
        path = path_of(self.journal.root, batch)
        if not str(error).startswith(f"{path}: another driver has committed this batch;"):
            return False
        return isinstance(error, Fenced) and read_manifest(path).epoch < self.journal.epoch

    def _run(self, batch: Batch) -> None:
        before, across, late, between = (batch.visited if batch.when == when else () for when in WHEN)
        with self._visits(before):
            pass
        with self._visits(across), self._visits(late, at_once=True):
            self._run_batch(batch)
            with self._visits(between):
                pass
            self.journal.prune()

    @contextmanager
    def _visits(self, executors: Sequence[str], *, at_once: bool = False) -> Iterator[None]:
        """Order visits, execute them before or after the block, and process their reports at its end."""
        if not executors:
            yield
            return
        orders = [self._orders(executor) for executor in executors]
        with ExitStack() as running:
            for one in orders:
                running.enter_context(self.journal.protected(one))
            visits = [self._carried_out(one) for one in orders if at_once]
            yield
            visits += [self._carried_out(one) for one in orders if not at_once]
            for visit in visits:
                self.journal.add_snapshots(visit.snapshots)

    def _run_batch(self, batch: Batch) -> None:
        journal, number = self.journal, self.journal.last_batch + 1
        changes, staged = {}, []
        for task, (executor, writes) in batch.attempts.items():
            with self.steps.of_an_executor():
                changes[task], file = self._attempt(task, executor, writes, number)
            staged.append(file)
        attempts = [change.attempt for change in changes.values()]
        try:
            manifest = journal.commit(number, 1, changes, {"out": staged}, {})
        except Fenced as refusal:
            # If other drivers have continued, this one cannot know whether they did so from its manifest or without
            # it. It stops in both cases.
            if "and later ones" not in str(refusal):
                self.world.tell(refused=attempts)
            raise
        self.world.tell(committed=attempts, batch=number)
        self.world.check_output(manifest)

    def _attempt(self, task: TaskId, executor: str, writes: Writes, batch: int) -> tuple[Change, StagedFile]:
        """Do the steps of `worker.attempt`: position, seal, commit locally."""
        history = self.journal.history.get(task, History())
        base = history.end
        attempt = f"{self.journal.epoch}-{os.getpid()}.{next(self.numbers)}"
        self.world.tell(attempt=attempt, task=str(task), base=base.attempt, version=batch, writes=writes)
        changes = {s: {k.encode(): v and v.encode() for k, v in w.items()} for s, w in writes.items()}
        with Copy(self.world.copy(executor, task), STORES, fence=Fence(self.journal.epoch, batch)) as copy:
            copy.bring_to(history, self.world.root)
            self.world.check_contents(copy, base.attempt)
            data = encode_changes(changes, {})
            file = segment(self.world.root, batch, self.journal.epoch)
            start = file.append(data)
            file.sync()
            output = f"batches/{batch:010d}/sinks/out/{task}-{attempt}.parquet"
            write_file(self.world.root / output, attempt.encode(), sync=True)
            records = sum(map(len, changes.values()))
            to = Position(batch, attempt, base.offset + records)
            copy.commit(changes, to)
        where = file.name, data.size, checksum_of(data), start
        change = Change(batch, attempt, base.attempt, to.offset, records, *where)
        return change, StagedFile(output, 1, len(attempt), checksum_of(attempt.encode()))

    def _orders(self, executor: str) -> FollowRequest:
        history = dict(self.journal.history)
        work = {"follow": history, "snapshot": {t: h for t, h in history.items() if h.changes}}
        where = f"executor-{executor}", str(self.world.root), str(self.world.state), "app"
        return FollowRequest(*where, {0: STORES}, {0: STORES}, **work)

    def _carried_out(self, orders: FollowRequest) -> FollowReport:
        for history in orders.follow.values():
            self.world.check_files(history)
        with self.steps.of_an_executor(), be(orders.instance.removeprefix("executor-")):
            visit = follow.follow(orders)
        if visit.errors:
            raise TaskplaceError(str(visit.errors))
        return visit


@contextmanager
def be(executor: str) -> Iterator[None]:
    identity.home.cache_clear()
    with patch.object(identity, "executor", lambda: (executor, identity.owner_of(psutil.Process()))):
        yield


class Steps:
    """Counts the file operations of this process, and sends the process a signal before one of them.

    For a stop, only a driver's own operations count, because executors continue without their driver.
    """

    FILES = ("open", "link", "unlink", "mkdir", "rmdir", "rename", "replace", "fsync")
    LOOKS = ("listdir", "scandir")  # a kill before these changes nothing; a stop may
    STATE = (
        *((SectionFile, "append"), (Transaction, "put"), (Transaction, "write_meta")),
        *((Copy, "_begin"), (Copy, "commit"), (Copy, "commit_unchanged")),
    )

    def __init__(self, at: int | None, sent: signal.Signals) -> None:
        self.at, self.sent, self.count = at, sent, 0
        self._counts = True
        os_open = os.open
        for name in (*self.FILES, *(self.LOOKS if sent == signal.SIGSTOP else ())):
            setattr(os, name, self._before(getattr(os, name)))
        os.open = self._before_writing(os.open, os_open)
        os.fsync = self._before(lambda handle: None)  # no host crashes in these tests
        os.fdopen = self._in_two_writes(os.fdopen)  # type: ignore[assignment]
        for owner, name in self.STATE:
            setattr(owner, name, self._before(getattr(owner, name)))
        faults.point = lambda name: self.take()

    def take(self) -> None:
        self.count += self._counts
        if self.count == self.at and self._counts:
            self.at = None
            os.kill(os.getpid(), self.sent)

    @contextmanager
    def of_an_executor(self) -> Iterator[None]:
        self._counts = self.sent == signal.SIGKILL
        try:
            yield
        finally:
            self._counts = True

    def _before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            self.take()
            return call(*args, **kwargs)

        return step

    @staticmethod
    def _before_writing(counted: Callable[..., int], plain: Callable[..., int]) -> Callable[..., int]:
        """Return `os.open` that counts as a step only if something may change; a long history is read in many."""

        def opened(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            return (plain if flags & os.O_ACCMODE == os.O_RDONLY else counted)(path, flags, *args, **kwargs)

        return opened

    def _in_two_writes(self, fdopen: Callable[..., Any]) -> Callable[..., Any]:
        def opened(*args: Any, **kwargs: Any) -> Any:
            file = fdopen(*args, **kwargs)
            write = file.write

            def halves(data: Any) -> None:
                half = len(data) // 2
                write(data[:half])
                file.flush()
                self.take()
                write(data[half:])

            return _Written(file, halves)

        return opened


class _Written:
    """A file with another `write`."""

    def __init__(self, file: Any, write: Callable[[Any], None]) -> None:
        self._file, self.write = file, write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _Written:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
