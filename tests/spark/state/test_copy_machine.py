"""Random lives of one task's copies: attempts, losses, kills, zombies, promotions, snapshots.

The model is a dict per committed attempt. Whatever happened to a copy, bringing it to the end of history has
to give exactly what the last committed attempt left. Hypothesis prints the transcript of a failing life.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from taskplace.errors import CheckpointError, Fenced
from taskplace.spark.checkpoint.files import (
    ROWS_PER_BATCH,
    encode_changes,
    encode_records,
    record_batch,
    write_file,
)
from taskplace.spark.codec import checksum_of
from taskplace.spark.messages import EMPTY, Change, Fence, History, Position, Snapshot
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.transaction import Transaction
from tests.support.copies import peek
from tests.support.forks import wait_for

STORES = ["a", "b"]
State = dict[str, dict[bytes, bytes]]
Writes = dict[str, dict[bytes, bytes | None]]

KEYS = [b"k%d" % i for i in range(6)] + [b"L" * 479, b"L" * 480, b"L" * 600, b"L" * 600 + b"!"]
writes_of_a_store = st.dictionaries(
    st.sampled_from(KEYS), st.none() | st.sampled_from([b"", b"1", b"2" * 5000]), max_size=5
)
writes_that_are_some = st.fixed_dictionaries(
    {
        "a": st.dictionaries(
            st.sampled_from(KEYS),
            st.none() | st.sampled_from([b"", b"1", b"2" * 5000]),
            min_size=1,
            max_size=5,
        )
    },
    optional={"b": writes_of_a_store},
)
some_writes = st.fixed_dictionaries({}, optional=dict.fromkeys(STORES, writes_of_a_store))
some_copy = st.integers(0, 2)

#: What a copy goes through on its way; a kill comes right before or after one of these calls.
POINTS = {
    "wipe": Transaction,
    "put": Transaction,
    "write_meta": Transaction,
    "_begin": Copy,
    "get_many": Copy,
    "commit": Copy,
}


@dataclass
class Pending:
    """An attempt that has committed locally and waits for the driver's word."""

    change: Change
    after: State


def applied(state: State, writes: Writes) -> State:
    after = {store: dict(entries) for store, entries in state.items()}
    for store, entries in writes.items():
        for key, value in entries.items():
            if value is None:
                after[store].pop(key, None)
            else:
                after[store][key] = value
    return after


class Lives(RuleBasedStateMachine):
    """The driver is played by the rules: `history`, `epoch` and `batch` are its truth."""

    @initialize()
    def begin(self) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.history = History()
        self.full: list[Change] = []
        self.state: State = {store: {} for store in STORES}
        self.epoch, self.batch, self.number = 1, 0, 0
        self.pending: list[Pending] = []
        self.seen = [Fence() for _ in range(3)]
        self.committed = {EMPTY}

    def path(self, copy: int) -> Path:
        return self.root / f"executor-{copy}" / "0_0"

    def teardown(self) -> None:
        if hasattr(self, "root"):
            for copy in range(3):
                self.check(copy)
            shutil.rmtree(self.root)

    def contents(self, copy: Copy) -> State:
        found = {store: dict(copy.scan(store)) for store in STORES}
        for store in STORES:
            assert copy.count(store) == len(found[store])
            assert copy.get_many(store, KEYS) == [found[store].get(key) for key in KEYS]
        return found

    def attempt(self, copy: Copy, writes: Writes, history: History, batch: int) -> Change:
        """Seal a change and commit it locally, as an attempt does."""
        self.number += 1
        base, attempt = history.end, f"{self.epoch}-{self.number}-{os.getpid()}"
        records = sum(map(len, writes.values()))
        to = Position(batch, attempt, base.offset + records)
        data = encode_changes(writes, {})
        file = f"changelog/{batch}-{attempt}.arrow"
        write_file(self.root / file, data, sync=False)
        copy.commit(writes, to)
        return Change(batch, attempt, base.attempt, to.offset, records, file, data.size, checksum_of(data))

    # -- what the driver and the executors do

    @rule(copy=some_copy, writes=some_writes, tail=st.integers(0, 3))
    def run_attempt(self, copy: int, writes: Writes, tail: int = 0) -> None:
        """Also on a copy that was a standby until now, and beside other attempts of the same batch.

        `tail`: how many changes the driver sends; 0 for the whole history.
        """
        fence = Fence(self.epoch, self.batch)
        sent, asked = self.history, []
        if 0 < tail < len(sent.changes):
            sent = History(sent.changes[-tail:])
        with Copy(self.path(copy), STORES, fence=fence) as open_copy:
            at_the_end = open_copy.position() == self.history.end
            open_copy.bring_to(sent, self.root, None, lambda: asked.append(tail) or self.history)
            assert not (asked and at_the_end)
            assert self.contents(open_copy) == self.state
            if any(writes.values()):
                change = self.attempt(open_copy, writes, self.history, self.batch)
                self.pending.append(Pending(change, applied(self.state, writes)))
            else:
                open_copy.commit_unchanged()
        self.seen[copy] = fence

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        self.commit_this(data.draw(st.sampled_from(self.pending)))

    def commit_this(self, won: Pending) -> None:
        self.history = History((*self.history.changes, won.change), self.history.snapshots)
        self.full.append(won.change)
        self.state, self.pending = won.after, []
        self.committed.add(won.change.position)
        self.batch += 1

    @rule(batches=st.lists(st.tuples(some_copy, writes_that_are_some), min_size=1, max_size=4))
    def run_batches(self, batches: list[tuple[int, Writes]]) -> None:
        for copy, writes in batches:
            self.run_attempt(copy, writes)
            self.commit_this(self.pending[-1])

    @rule(driver_died=st.booleans())
    def lose_what_is_pending(self, driver_died: bool) -> None:
        """The driver dies, and the batch comes again; or it goes on with a batch that had no rows here."""
        self.pending = []
        if driver_died:
            self.epoch += 1
        else:
            self.batch += 1

    @rule(copy=some_copy)
    def follow(self, copy: int) -> None:
        with Copy(self.path(copy), STORES) as open_copy:
            before = open_copy.position()
            done = open_copy.follow(self.history, self.root)
            assert (done is None) == (before.version > self.history.end.version)
            if done is None:
                assert open_copy.position() == before
        if done is not None:
            with Copy(self.path(copy), STORES) as open_copy:
                assert open_copy.position() == self.history.end
                assert {store: dict(e) for store, e in self.dumped(open_copy)[1].items()} == self.state

    @rule(copy=some_copy, behind=st.integers(1, 3))
    def follow_orders_that_are_old(self, copy: int, behind: int) -> None:
        old = History(self.history.changes[:-behind])
        if not old.changes or old.changes[0].base:
            return
        with Copy(self.path(copy), STORES) as open_copy:
            before = open_copy.position()
            done = open_copy.follow(old, self.root)
            assert open_copy.position() == (before if done is None else old.end)
            assert done is not None or before.version > old.end.version

    def dumped(self, open_copy: Copy) -> tuple[Position, State]:
        at, pieces = open_copy.dump(3)
        found: State = {store: {} for store in STORES}
        for store, entries in pieces:
            assert 0 < len(entries) <= 3
            found[store].update({key: value for key, value in entries if value is not None})
        return at, found

    @precondition(lambda self: self.history.changes)
    @rule(copy=some_copy, trim=st.booleans())
    def snapshot(self, copy: int, trim: bool) -> None:
        """By a standby that has caught up; then drop the changes that both kept snapshots cover, files and all."""
        with Copy(self.path(copy), STORES) as open_copy:
            open_copy.follow(self.history, self.root)
            at, pieces = open_copy.dump(ROWS_PER_BATCH)
            if at != self.history.end or any(s.attempt == at.attempt for s in self.history.snapshots):
                return
            batches = [record_batch(STORES.index(store), entries) for store, entries in pieces]
        data = encode_records(STORES, batches, {}, "lz4")
        file = f"snapshots/{at.version}-{at.attempt}.arrow"
        write_file(self.root / file, data, sync=False)
        records = sum(batch.num_rows for batch in batches)
        added = Snapshot(at.version, at.attempt, at.offset, records, file, data.size, checksum_of(data))
        kept = (*self.history.snapshots, added)[-2:]
        changes = self.history.changes
        if trim and len(kept) == 2:
            for change in changes:
                if change.version <= kept[0].version:
                    (self.root / change.file).unlink()
            changes = tuple(change for change in changes if change.version > kept[0].version)
        self.history = History(changes, kept)

    @rule(copy=some_copy)
    def wipe(self, copy: int) -> None:
        shutil.rmtree(self.path(copy), ignore_errors=True)
        self.seen[copy] = Fence()

    # -- what goes wrong

    @rule(copy=some_copy, writes=some_writes)
    def abandon(self, copy: int, writes: Writes) -> None:
        """An attempt fails after its writes were sealed, before they were committed: the copy is closed."""
        with Copy(self.path(copy), STORES, fence=Fence(self.epoch, self.batch)) as open_copy:
            open_copy.bring_to(self.history, self.root)
            for store, entries in writes.items():
                open_copy._begun().put(store, [*entries], [*entries.values()])
        self.catch_up_with_fence(copy)

    @rule(
        copy=some_copy,
        writes=writes_that_are_some,
        point=st.sampled_from(sorted(POINTS)),
        nth=st.integers(1, 2),
        before=st.booleans(),
    )
    def killed(self, copy: int, writes: Writes, point: str, nth: int, before: bool) -> None:
        """A worker of the executor is killed by SIGKILL while it runs an attempt."""

        def doomed() -> None:
            kill_at(point, nth, before)
            with Copy(self.path(copy), STORES, fence=Fence(self.epoch, self.batch)) as open_copy:
                open_copy.bring_to(self.history, self.root)
                self.attempt(open_copy, writes, self.history, self.batch)

        in_a_child(doomed)
        self.number += 1
        self.catch_up_with_fence(copy)

    @precondition(lambda self: self.batch > 0 or self.epoch > 1)
    @rule(copy=some_copy, writes=some_writes, epochs=st.integers(0, 1), behind=st.integers(0, 3))
    def zombie(self, copy: int, writes: Writes, epochs: int, behind: int) -> None:
        """An attempt of an older batch or driver comes late. It is refused where newer work has been."""
        fence = Fence(max(1, self.epoch - epochs), max(0, self.batch - behind))
        if fence == Fence(self.epoch, self.batch):
            return
        old = History(
            tuple(c for c in self.history.changes if c.version < fence.batch),
            tuple(s for s in self.history.snapshots if s.version < fence.batch),
        )
        with Copy(self.path(copy), STORES, fence=fence) as open_copy:
            before = open_copy.position()
            try:
                open_copy.bring_to(old, self.root)
                self.attempt(open_copy, writes, old, fence.batch)
            except Fenced:
                assert order(fence) < order(self.seen[copy])
                assert open_copy.position() == before
                return
            except CheckpointError:  # what it was to start from was trimmed long ago
                pass
        assert order(fence) >= order(self.seen[copy])
        self.catch_up_with_fence(copy)

    # -- what has to hold

    @rule(copy=some_copy)
    def check(self, copy: int) -> None:
        with Copy(self.path(copy), STORES) as open_copy:
            open_copy.bring_to(self.history, self.root)
            assert self.contents(open_copy) == self.state
            meta = open_copy._begun().meta()
            assert (meta.at, meta.undo) == (self.history.end, None)
            open_copy.commit_unchanged()

    @invariant()
    def a_look_from_outside_sees_committed_points_only(self) -> None:
        for copy in range(3):
            at = peek(self.path(copy))
            assert at is None or at in self.committed, f"{at} was never committed"

    def catch_up_with_fence(self, copy: int) -> None:
        """Note the fence a copy has really seen: an attempt that died may have left its own, or not."""
        with Copy(self.path(copy), STORES) as open_copy, Transaction(open_copy._env) as txn:
            self.seen[copy] = txn.meta().fence


def order(fence: Fence) -> tuple[int, int]:
    return fence.epoch, fence.batch


def kill_at(point: str, nth: int, before: bool) -> None:
    """Have this process killed right before or after the nth call of a method."""
    whole: Callable[..., Any] = getattr(POINTS[point], point)
    calls = 0

    def fatal(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == nth and before:
            os.kill(os.getpid(), signal.SIGKILL)
        result = whole(*args, **kwargs)
        if calls == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(POINTS[point], point, fatal)


def in_a_child(work: Callable[[], None]) -> int:
    """Run `work` in a forked process; return the signal that ended it, 0 if none did."""
    child = os.fork()
    if child == 0:
        failed = 1
        try:
            work()
            failed = 0
        finally:
            os._exit(failed)
    status = wait_for(child)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the child failed by itself"
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


TestLives = Lives.TestCase
TestLives.settings = settings(
    print_blob=True,
    deadline=None,
    max_examples=20,
    stateful_step_count=30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@pytest.mark.slow
class TestManyLives(Lives.TestCase):
    settings = settings(TestLives.settings, max_examples=250, stateful_step_count=50)
