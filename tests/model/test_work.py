"""How far work has come: its rate and the time that is left, by a clock that stands still."""

from __future__ import annotations

import pytest

from taskplace.model.work import LEAST_SECONDS, WINDOW_SECONDS, Work
from taskplace.record.events import WorkProgress
from tests.support.clocks import Clock


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def shown():
    return []


def test_the_rate_is_that_of_late_and_what_is_left_follows_from_it(clock, shown):
    work = Work("verifying", "bytes", 10_000, show=shown.append, clock=clock)
    for seconds, done in ((10, 1_000), (10, 2_000), (WINDOW_SECONDS, 2_000 + 200 * WINDOW_SECONDS)):
        clock.seconds += seconds
        work.to(done)
    assert (shown[0].rate, shown[0].eta, shown[0].seconds) == (100, 90, 10)
    assert (shown[-1].rate, shown[-1].eta) == (200, 10)  # the slow begin is forgotten
    assert shown[-1].fraction == 0.8


def test_work_that_stands_still_has_no_rate(clock, shown):
    work = Work("verifying", "bytes", 10, show=shown.append, clock=clock)
    work.to(5)
    for _ in range(3):
        clock.seconds += WINDOW_SECONDS
        work.to(5, eta=7.0)
    assert (shown[-1].rate, shown[-1].eta) == (None, 7.0)


def test_not_every_step_is_shown_but_the_last_one_is(clock, shown):
    with Work("verifying", "files", 1_000, show=shown.append, clock=clock) as work:
        for _ in range(1_000):
            clock.seconds += LEAST_SECONDS / 100
            work.add(1)
    assert 10 <= len(shown) <= 13
    assert (shown[0].done, shown[0].ended) == (0, False)
    assert (shown[-1].done, shown[-1].ended, shown[-1].fraction) == (1_000, True, 1.0)


def test_work_that_fails_has_ended(clock, shown):
    with pytest.raises(OSError, match="gone"), Work("verifying", "files", 9, show=shown.append, clock=clock):
        raise OSError("gone")
    assert shown[-1].ended and shown[-1].fraction == 0.0


def test_work_of_no_size_is_complete():
    assert WorkProgress("verifying", 0, 0, "bytes").fraction == 1.0
