"""When a warm-up has caught up: from its progress, or from its executor's rate while it shows none yet."""

from __future__ import annotations

import pytest

from taskplace.spark.driver.cluster_state import WINDOW_SECONDS, WarmupProgress


@pytest.fixture
def progress():
    return WarmupProgress(now=0.0)


def test_only_the_last_minutes_count(progress):
    progress.observe(10_000, now=0.0)
    progress.observe(900, now=100.0)
    progress.observe(800, now=WINDOW_SECONDS + 50.0)
    assert progress.remaining() == 800 * (WINDOW_SECONDS - 50.0) / 100
    assert progress.seconds == WINDOW_SECONDS + 50.0


def test_a_copy_that_shows_no_progress_yet_takes_its_turn_at_the_rate_of_its_executor(progress):
    progress.observe(900, now=0.0)
    assert progress.remaining() is None
    assert progress.remaining(rate=100.0, ahead=1_100) == 20.0
    progress.observe(950, now=10.0)
    assert progress.remaining(rate=100.0) == 9.5


def test_a_copy_has_caught_up_when_its_lag_is_acceptable_not_when_it_is_gone(progress):
    progress.observe(900, now=0.0)
    assert progress.remaining(rate=100.0, acceptable=400) == 5.0
    progress.observe(500, now=10.0)
    assert progress.remaining(rate=1.0, acceptable=400) == 2.5
    progress.observe(400, now=12.0)
    assert progress.remaining(acceptable=400) == 0.0


def test_looking_often_does_not_shorten_the_past_that_counts(progress):
    for tenth in range(0, 600):
        progress.observe(10_000 - 10 * tenth, now=tenth / 10)
    assert progress.pace() == pytest.approx(100.0)
    assert progress.remaining() == pytest.approx(progress._samples[-1][1] / 100.0)
    assert len(progress._samples) <= 40, "of 600"


def test_the_time_without_a_record_is_known(progress):
    progress.observe(900, now=0.0, applied=100)
    progress.observe(1_000, now=10.0, applied=100)  # a batch has added records
    assert progress.idle == 10.0
    progress.observe(990, now=20.0, applied=110)
    assert progress.idle == 0.0


def test_a_copy_that_is_stuck_has_no_time(progress):
    for now in range(0, int(WINDOW_SECONDS), 2):
        progress.observe(900, now=float(now))
    assert progress.remaining(rate=100.0) is None
