"""Random lives of a whole checkpoint, without Spark: drivers, their journal, the changelog, snapshots and copies."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from taskplace.spark.checkpoint.files import encode_changes
from tests.support.journal_driver import EXECUTORS, STORES, TASKS, WHEN, Batch
from tests.support.journal_world import World

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
