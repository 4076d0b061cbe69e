"""Random lives of a whole checkpoint, without Spark: drivers, their journal, the changelog, snapshots and copies.

Each driver is a process of its own, which opens the checkpoint and runs batches: attempts on real copies, commit,
pruning, visits. It may be killed at any step it takes on files (a write is two steps: half of it can be there), and
stopped (SIGSTOP) at any step of its own, to go on when others have long gone further.

The model knows nothing of manifests, histories or changelogs. Before anything else an attempt tells, in a file beside
the checkpoint, what it starts from and what it writes; so what a chain of attempts amounts to is a matter of dicts.
Whatever happens, the checkpoint has to open, what counted once has to count for ever, and every copy that is brought
to the end has to hold what the attempts of its task amount to. Hypothesis prints the transcript of a failing life.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from taskplace.errors import Fenced, TaskplaceError
from taskplace.spark import faults
from taskplace.spark.codec import seal
from taskplace.spark.driver import journal as journal_module
from taskplace.spark.driver.journal import Journal
from taskplace.spark.messages import Change, Fence, History, Orders, Position, StagedFile, Visit
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.files import encode_changes, read_sealed, write_file
from taskplace.spark.worker import follow, identity
from topology import TaskId

TASKS = [TaskId(0, 0), TaskId(0, 1)]
STORES = ["s", "t"]
EXECUTORS = ["1", "2", "3"]
IDENTITY = {"hash": 1}
FULL_EVERY = 3

State = dict[str, dict[str, str]]
Writes = dict[str, dict[str, str | None]]  # store -> key -> value, None: deleted


#: When executors are visited: before a batch; with orders from before it, carried out when all is done, pruning too;
#: carried out before it, and reported when all is done; between commit and pruning.
BEFORE, ACROSS, REPORTED_LATE, BETWEEN = WHEN = "before", "across", "reported late", "between"


@dataclass(frozen=True)
class Batch:
    """What a driver does for one batch: its attempts, by task, and visits, which get their orders as they begin."""

    attempts: Mapping[TaskId, tuple[str, Writes]]  # the executor, and what the attempt writes
    visited: Sequence[str] = ()
    when: str = BEFORE


class Driver:
    """What a driver process does. `world` is where; `steps` counts."""

    def __init__(self, world: World, steps: Steps) -> None:
        self.world, self.steps = world, steps
        self.journal = Journal(world.root, IDENTITY)
        self.numbers = itertools.count()

    def run(self, batches: Sequence[Batch]) -> None:
        try:
            for batch in batches:
                self._run(batch)
        except TaskplaceError:
            with pytest.raises(Fenced):  # as `Placed.process_batch` asks, before it believes an error
                self.journal.check_epoch()

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
        """Order visits, carry them out before or after the block, and take in at its end what they report."""
        if not executors:
            yield
            return
        with self.journal.visit():
            orders = [self._orders(executor) for executor in executors]
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
            # When others have gone on, a driver cannot know whether its manifest came after them, and counts for
            # nothing, or before them, and they went on from it. It stops either way.
            if "gone on" not in str(refusal):
                self.world.tell(refused=attempts)
            raise
        self.world.tell(committed=attempts, batch=number)
        self.world.check_output(manifest)

    def _attempt(self, task: TaskId, executor: str, writes: Writes, batch: int) -> tuple[Change, StagedFile]:
        """As `worker.attempt` does it: position, seal, commit locally."""
        history = self.journal.history.get(task, History())
        base = history.end
        attempt = f"{self.journal.epoch}-{os.getpid()}.{next(self.numbers)}"
        self.world.tell(attempt=attempt, task=str(task), base=base.attempt, version=batch, writes=writes)
        changes = {s: {k.encode(): v and v.encode() for k, v in w.items()} for s, w in writes.items()}
        with Copy(self.world.copy(executor, task), STORES, fence=Fence(self.journal.epoch, batch)) as copy:
            copy.bring_to(history, self.world.root)
            self.world.check_contents(copy, base.attempt)
            data = encode_changes(changes, {})
            file = f"changelog/{task}/{batch:010d}-{attempt}.arrow"
            write_file(self.world.root / file, data, sync=True)
            output = f"batches/{batch:010d}/sinks/out/{task}-{attempt}.parquet"
            write_file(self.world.root / output, attempt.encode(), sync=True)
            records = sum(map(len, changes.values()))
            to = Position(batch, attempt, base.offset + records)
            copy.commit(changes, to)
        change = Change(batch, attempt, base.attempt, to.offset, records, file, data.size, seal(data))
        return change, StagedFile(output, 1, len(attempt), seal(attempt.encode()))

    def _orders(self, executor: str) -> Orders:
        return Orders(
            f"executor-{executor}",
            str(self.world.root),
            str(self.world.state),
            "app",
            {0: STORES},
            {0: STORES},
            follow=dict(self.journal.history),
            snapshot={t: h for t, h in self.journal.history.items() if h.changes},
        )

    def _carried_out(self, orders: Orders) -> Visit:
        for history in orders.follow.values():
            self.world.check_files(history)
        with self.steps.of_an_executor(), be(orders.instance.removeprefix("executor-")):
            visit = follow.visit(orders)
        if visit.errors:
            raise TaskplaceError(str(visit.errors))
        return visit


@contextmanager
def be(executor: str) -> Iterator[None]:
    identity.home.cache_clear()
    with patch.object(identity, "executor", lambda: (executor, identity.owner_of(psutil.Process()))):
        yield


class Steps:
    """Counts the steps of this process on files, and sends it a signal before one of them.

    To be stopped, only a driver's own steps count: what it has executors do goes on without it.
    """

    FILES = ("open", "link", "unlink", "mkdir", "rmdir", "rename", "replace", "fsync")
    LOOKS = ("listdir", "scandir")  # a kill changes nothing there; a stop may
    COPY = ("_put", "_write_meta", "_begin", "commit", "commit_unchanged")

    def __init__(self, at: int | None, sent: signal.Signals) -> None:
        self.at, self.sent, self.count = at, sent, 0
        self._counts = True
        for name in (*self.FILES, *(self.LOOKS if sent == signal.SIGSTOP else ())):
            setattr(os, name, self._before(getattr(os, name)))
        os.fsync = self._before(lambda handle: None)  # hosts do not crash here
        os.fdopen = self._in_two_writes(os.fdopen)  # type: ignore[assignment]
        for name in self.COPY:
            wrapped = self._before(getattr(Copy, name))
            setattr(Copy, name, staticmethod(wrapped) if name == "_put" else wrapped)
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
    """A file whose `write` is another one."""

    def __init__(self, file: Any, write: Callable[[Any], None]) -> None:
        self._file, self.write = file, write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _Written:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


@dataclass
class World:
    """A checkpoint, the executors' copies, what attempts have told, and what is known to count."""

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
        """Start a driver, which is sent a signal before its step number `at`; return its process id."""
        child = os.fork()
        if child == 0:
            try:
                journal_module.FULL_EVERY = FULL_EVERY
                self._log = os.open(self.folder / "told", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                Driver(self, Steps(at, sent)).run(batches)
            except BaseException:
                (self.folder / "failed").write_text(traceback.format_exc())
                os._exit(1)
            os._exit(0)
        return child

    def ended(self, driver: int) -> bool:
        """Wait until a driver has ended, or been stopped; return whether it has ended by itself."""
        _, status = os.waitpid(driver, os.WUNTRACED)
        failed = self.folder / "failed"
        assert not failed.exists(), failed.read_text()
        assert os.WIFSTOPPED(status) or os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
        self.listen()
        return os.WIFEXITED(status)

    # -- the model

    def tell(self, **what: Any) -> None:
        os.write(self._log, json.dumps(what).encode() + b"\n")

    def listen(self) -> None:
        """Take in what drivers have told meanwhile."""
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
        """Return the attempts that lead to one, itself included."""
        if attempt not in self.told:
            self.listen()
        return [*self.chain(self.told[attempt]["base"]), attempt] if attempt else []

    def amounts_to(self, attempt: str) -> State:
        """Return the contents of the stores after a chain of attempts."""
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
            read_sealed(self.root / part.file, part.size, part.checksum)

    def check_output(self, manifest: journal_module.Manifest) -> None:
        """The last batch may have to be published again: of it, every attempt's output is there."""
        staged = {self.told_by(file): file for file in manifest.sinks["out"]}
        assert set(staged) == {change.attempt for change in manifest.changes.values()}

    def told_by(self, file: StagedFile) -> str:
        return bytes(read_sealed(self.root / file.file, file.size, file.checksum)).decode()

    def looked_at(self) -> Journal:
        """Open the manifests as they are, elsewhere: the checkpoint itself is not taken over by looking."""
        elsewhere = self.folder / "looked-at"
        shutil.rmtree(elsewhere, ignore_errors=True)
        for part in ("manifests", "epochs"):
            if (self.root / part).exists():
                shutil.copytree(self.root / part, elsewhere / part, copy_function=os.link)
        with patch.object(os, "fsync"):
            return Journal(elsewhere, IDENTITY)

    def check(self) -> Journal:
        """Check what counts now against what has counted, and against what the attempts have told."""
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
        """Bring every copy to the end; and, from nothing, a new one by each way there is."""
        journal = self.check()
        for task in TASKS:
            history = journal.history.get(task, History())
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
        """After two quiet batches, there is nothing of the changelog but what is needed."""
        quiet = [Batch({task: ("1", {"s": {"k0": "quiet"}}) for task in TASKS})] * 2
        assert self.ended(self.fork(quiet))
        journal = self.check()
        for task in TASKS:
            history = journal.history[task]
            needed = {part.file for part in (*history.changes, *history.snapshots)}
            there = {str(path.relative_to(self.root)) for path in self.root.glob(f"*/{task}/*.arrow")}
            assert there == needed
        manifests = sorted(int(path.stem) for path in (self.root / "manifests").glob("[0-9]*.json"))
        assert journal.last is not None
        assert manifests == list(range(journal.last.needs, journal.last_batch + 1))


some_writes = st.dictionaries(
    st.sampled_from(STORES),
    st.dictionaries(
        st.sampled_from([f"k{i}" for i in range(4)]),
        st.none() | st.sampled_from(["1", "2", "3" * 2000]),
        min_size=1,
        max_size=3,
    ),
    min_size=1,
)
some_batches = st.lists(
    st.builds(
        Batch,
        st.dictionaries(st.sampled_from(TASKS), st.tuples(st.sampled_from(EXECUTORS), some_writes)),
        st.lists(st.sampled_from(EXECUTORS), max_size=2, unique=True),
        st.sampled_from(WHEN),
    ),
    min_size=1,
    max_size=4,
)


class Lives(RuleBasedStateMachine):
    """Drivers come one after the other; some are stopped on the way, and go on at any time after that."""

    @initialize()
    def begin(self) -> None:
        encode_changes(
            {"s": {b"k": b"v"}}, {}
        )  # what Arrow imports at its first use, each driver would import
        self.world = World(Path(tempfile.mkdtemp()))
        self.stopped: list[int] = []

    @rule(batches=some_batches)
    def a_driver_runs_batches(self, batches: list[Batch]) -> None:
        assert self.world.ended(self.world.fork(batches))

    @rule(batches=some_batches, at=st.integers(1, 300))
    def a_driver_is_killed(self, batches: list[Batch], at: int) -> None:
        self.world.ended(self.world.fork(batches, at))

    @precondition(lambda self: len(self.stopped) < 2)
    @rule(batches=some_batches, at=st.integers(1, 80))
    def a_driver_is_stopped(self, batches: list[Batch], at: int) -> None:
        driver = self.world.fork(batches, at, signal.SIGSTOP)
        if not self.world.ended(driver):
            self.stopped.append(driver)

    @precondition(lambda self: self.stopped)
    @rule(data=st.data())
    def a_stopped_driver_goes_on(self, data: st.DataObject) -> None:
        self.go_on(data.draw(st.sampled_from(self.stopped)), signal.SIGCONT)

    @precondition(lambda self: self.stopped)
    @rule()
    def a_stopped_driver_is_killed(self) -> None:
        self.go_on(self.stopped[0], signal.SIGKILL)

    def go_on(self, driver: int, sent: signal.Signals) -> None:
        self.stopped.remove(driver)
        os.kill(driver, sent)
        self.world.ended(driver)

    @rule(executor=st.sampled_from(EXECUTORS))
    def a_disk_is_lost(self, executor: str) -> None:
        shutil.rmtree(self.world.state / f"app.{executor}", ignore_errors=True)

    @rule()
    def every_copy_is_brought_to_the_end(self) -> None:
        self.world.check_copies()

    @invariant()
    def what_counts_is_right(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            for driver in list(self.stopped):
                self.go_on(driver, signal.SIGCONT)
            self.world.check_copies()
            self.world.check_nothing_is_left()
        finally:
            for driver in self.stopped:
                os.kill(driver, signal.SIGKILL)
                os.waitpid(driver, 0)
            shutil.rmtree(self.world.folder)


TestLives = Lives.TestCase
TestLives.settings = settings(
    print_blob=True,
    deadline=None,
    max_examples=10,
    stateful_step_count=12,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.slow
class TestManyLives(Lives.TestCase):
    settings = settings(TestLives.settings, max_examples=250, stateful_step_count=40)


# -- not at random: every step there is


def batches(count: int, visited: Sequence[str], when: str = BEFORE) -> list[Batch]:
    """Both tasks, on different executors; one with a deletion, the other in two stores."""
    return [
        Batch(
            {
                TaskId(0, 0): ("1", {"s": {"k0": f"{number}", "k1": None if number % 2 else "1"}}),
                TaskId(0, 1): ("2", {"s": {"k0": f"{number}"}, "t": {f"k{number % 4}": "2"}}),
            },
            visited,
            when,
        )
        for number in range(count)
    ]


@pytest.mark.parametrize(
    ("count", "visited", "when"),
    [
        pytest.param(1, ["1"], BETWEEN, marks=pytest.mark.long),
        *(pytest.param(2, ["1", "3"], when, marks=pytest.mark.slow) for when in WHEN),
    ],
)
def test_a_driver_may_be_killed_at_any_step(tmp_path, count, visited, when):
    """Driver after driver is killed one step later than the one before, until one ends by itself."""
    world = World(tmp_path)
    assert world.ended(world.fork(batches(4, ["3"])))
    for at in itertools.count(1):
        ended = world.ended(world.fork(batches(count, visited, when), at))
        world.check()
        if ended:
            break
    assert at > 60 * count, "what a driver does takes more steps than that"
    world.check_copies()
    world.check_nothing_is_left()


@pytest.mark.long
@pytest.mark.parametrize("others", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 2, 7))])
def test_a_driver_may_be_stopped_at_any_step_while_others_go_on(tmp_path, others):
    """With 7 batches of others, the stopped one's batch is pruned, and its name free again."""
    world = World(tmp_path)
    assert world.ended(world.fork(batches(4, ["3"])))
    for at in itertools.count(1):
        driver = world.fork(batches(1, ["1"]), at, signal.SIGSTOP)
        if world.ended(driver):
            break
        try:
            assert world.ended(world.fork(batches(others, ["1"])))
            world.check()
        finally:
            os.kill(driver, signal.SIGCONT)
            world.ended(driver)
        world.check()
    assert at > 20, "what a driver does takes more steps than that"
    world.check_copies()
    world.check_nothing_is_left()
