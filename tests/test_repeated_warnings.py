"""Warnings that repeat: when they are logged, with which count, and what is forgotten."""

from __future__ import annotations

import logging
from itertools import pairwise
from pathlib import Path

import pytest

from taskplace.logs import FIRST_SECONDS, FORGOTTEN_SECONDS, MOST_KINDS, MOST_SECONDS, RepeatedWarnings


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def repeated(clock: Clock) -> RepeatedWarnings:
    return RepeatedWarnings(clock=clock, wall_clock=clock)


def test_the_intervals_double_up_to_the_longest_one(repeated: RepeatedWarnings, clock: Clock) -> None:
    shown = []
    while clock.seconds < 2_000:
        if repeated.again("visit") is not None:
            shown.append(clock.seconds)
        clock.seconds += 0.5
    gaps = [after - before for before, after in pairwise(shown)]
    assert gaps[:4] == [FIRST_SECONDS * 2**k for k in range(4)]
    assert gaps[-2:] == [MOST_SECONDS, MOST_SECONDS]
    assert gaps == sorted(gaps)


def test_a_line_has_the_count_and_the_time_of_the_first(repeated: RepeatedWarnings, clock: Clock) -> None:
    clock.seconds = 60.0
    assert repeated.again("visit") == ""
    clock.seconds += 1
    assert repeated.again("visit") is None
    clock.seconds += FIRST_SECONDS
    assert repeated.again("visit") == " (3 times since 1970-01-01 00:01:00 UTC)"
    assert repeated.over("visit") == " (after 3 failures since 1970-01-01 00:01:00 UTC)"
    assert repeated.again("visit") == "", "what is over begins anew"


def test_keys_are_independent_and_another_cause_is_a_new_warning(repeated: RepeatedWarnings) -> None:
    assert repeated.again("a", kind=OSError) == ""
    assert repeated.again("b", kind=OSError) == ""
    assert repeated.again("a", kind=OSError) is None
    assert repeated.again("a", kind=ValueError) == ""
    assert repeated.over("c") is None


@pytest.mark.parametrize("kinds", [2, 3 * MOST_KINDS])
def test_causes_that_alternate_are_logged_as_seldom_as_one(
    repeated: RepeatedWarnings, clock: Clock, kinds: int
) -> None:
    lines = 0
    for second in range(600):
        lines += repeated.again("visit", kind=second % kinds) is not None
        clock.seconds += 1
    assert lines <= 8 * min(kinds, MOST_KINDS + 1)
    assert len(repeated._warned["visit"]) == min(kinds, MOST_KINDS + 1)
    assert repeated.over("visit") == " (after 600 failures since 1970-01-01 00:00:00 UTC)"


def test_a_cause_that_was_silent_for_long_is_forgotten_while_another_goes_on(
    repeated: RepeatedWarnings, clock: Clock
) -> None:
    repeated.again("visit", kind=OSError)
    while clock.seconds <= FORGOTTEN_SECONDS:
        clock.seconds += MOST_SECONDS / 2
        repeated.again("visit", kind=ValueError)
    assert repeated.again("visit", kind=OSError) == ""
    assert (repeated.over("visit") or "").startswith(" (after 6 failures since 1970-01-01 00:02:30 UTC")


def test_what_was_silent_for_long_is_forgotten(repeated: RepeatedWarnings, clock: Clock) -> None:
    for executor in range(100):
        repeated.again(executor)
    clock.seconds = FORGOTTEN_SECONDS + 1
    assert repeated.again(0) == ""
    assert len(repeated._warned) == 1


def test_lines_have_the_count_and_the_place_of_the_caller(caplog, repeated, clock):
    log = logging.getLogger("taskplace.repeated")
    repeated.settle(log, "%s works again", "it")
    for _ in range(3):
        repeated.warn(log, "%s fails", "it", kind=ValueError, level=logging.ERROR)
        clock.seconds += FIRST_SECONDS / 2
    repeated.settle(log, "%s works again", "it")
    since = "1970-01-01 00:00:00 UTC"
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", "it fails"),
        ("ERROR", f"it fails (3 times since {since})"),
        ("WARNING", f"it works again (after 3 failures since {since})"),
    ]
    assert {record.filename for record in caplog.records} == {Path(__file__).name}
