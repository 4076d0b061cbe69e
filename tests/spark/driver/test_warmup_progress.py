"""When a warm-up has caught up: from its progress, or from its executor's rate while it shows none yet."""

from __future__ import annotations

import pytest

from taskplace.spark.driver.warmup_progress import WINDOW_SECONDS, WarmupProgress
from topology import TaskId

COPY = ("executor-2", TaskId(0, 3))


@pytest.fixture
def progress():
    return WarmupProgress()


def test_only_the_last_minutes_count(progress):
    progress.observe(COPY, 10_000, now=0.0)
    progress.observe(COPY, 900, now=100.0)
    progress.observe(COPY, 800, now=WINDOW_SECONDS + 50.0)
    assert progress.eta(COPY) == 800 * (WINDOW_SECONDS - 50.0) / 100
    assert progress.seconds(COPY) == WINDOW_SECONDS + 50.0


def test_a_copy_that_shows_no_progress_yet_takes_its_turn_at_the_rate_of_its_executor(progress):
    progress.observe(COPY, 900, now=0.0)
    assert progress.eta(COPY) is None
    assert progress.eta(COPY, rate=100.0, waiting=2_000) == 20.0
    progress.observe(COPY, 950, now=10.0)
    assert progress.eta(COPY, rate=100.0) == 9.5


def test_a_copy_that_is_stuck_has_no_time(progress):
    for now in range(0, int(WINDOW_SECONDS), 2):
        progress.observe(COPY, 900, now=float(now))
    assert progress.eta(COPY, rate=100.0) is None


def test_a_copy_that_is_a_warm_up_again_begins_anew(progress):
    progress.observe(COPY, 900, now=0.0)
    progress.keep([])
    progress.observe(COPY, 800, now=10.0)
    assert (progress.eta(COPY), progress.seconds(COPY)) == (None, 0.0)
    progress.observe(COPY, 0, now=11.0)
    assert progress.eta(COPY) == 0.0
