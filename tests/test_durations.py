"""Durations: a text needs a unit, a bare number is deprecated, what has no fixed length is refused."""

from __future__ import annotations

import logging
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskplace.durations import MOST, milliseconds
from taskplace.errors import InputError


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("10 minutes", 600_000), ("1.5 h", 5_400_000), ("250ms", 250), ("1 day 2 hours", 93_600_000),
        ("1h30m", 5_400_000), (" 2 Weeks ", 1_209_600_000), ("1.001 seconds", 1001), (".5 s", 500),
        ("1500000 us", 1500), ("0.25 day", 21_600_000),
        (f"{MOST} ms", MOST),
    ],
)  # fmt: skip
def test_a_text_with_units(text, ms):
    assert milliseconds(text, "ttl") == ms


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ("3600000", r"^ttl: found '3600000', expected a duration with its unit.*did you mean '3600000 ms'\?"),
        ("10", r"did you mean '10 seconds' or '10 ms'\?"),
        ("1", r"did you mean '1 second' or '1 ms'\?"),
        ("10 minuts", r"did you mean '10 minutes'\?"),
        ("1 month", "a month has no fixed length.*'30 days'"),
        ("2 years", "a year has no fixed length.*'365 days'"),
        ("3M", "a month has no fixed length"),
        ("2 hours 1 day", "the largest first, each once"),
        ("1 h 1 h", "the largest first, each once"),
        ("1 h 5", "expected a duration with its unit"),
        ("-5 minutes", "expected a duration above 0"),
        ("1 day -2 hours", "expected a duration with its unit"),
        ("0 s", "expected a duration above 0"),
        ("0.5 ms", "whole milliseconds"),
        (f"{MOST + 1} ms", "at most 9223372036854775 ms"),
        ("9" * 99, "expected a duration with its unit"),
        ("1 s" * 99, "found 'a string of 297 characters'"),
        ("", "expected a duration with its unit"),
        (True, "found true"), (None, "found nothing"), (float("nan"), "found nan"), (float("inf"), "found inf"),
        ([], "found"), (np.timedelta64(5, "s"), r"or a datetime\.timedelta"),
        pytest.param(10**5000, "hundreds of digits", id="endless"),
        (-5, "above 0"), (0, "above 0"), (2.5, "whole milliseconds"), (timedelta(0), "above 0"),
        (timedelta(days=-1), "above 0"), (timedelta(microseconds=1), "whole milliseconds"),
    ],
)  # fmt: skip
def test_what_is_no_duration(found, message):
    with pytest.raises(InputError, match=message):
        milliseconds(found, "ttl")


@pytest.mark.parametrize("nothing", ["0 minutes", "0 ms", 0, 0.0, timedelta(0)])
def test_nothing_is_a_duration_where_it_makes_sense(nothing, recwarn):
    assert milliseconds(nothing, "grace", zero=True) == 0
    assert not recwarn.list
    with pytest.raises(InputError, match=r"^grace: .*at least 0"):
        milliseconds("-1 s", "grace", zero=True)


def test_a_bare_number_is_taken_where_the_name_says_its_unit(recwarn, caplog):
    assert milliseconds(250, "stores.s.retention_ms") == 250
    assert milliseconds(np.int64(250), "probing.rebalance.interval.ms") == 250
    assert not recwarn.list
    assert not caplog.records


def test_a_bare_number_elsewhere_is_read_as_before_and_said_once(caplog):
    with (
        caplog.at_level(logging.WARNING),
        pytest.warns(DeprecationWarning, match="did you mean '17 seconds'"),
    ):
        assert milliseconds(17, "sources.clicks.delay") == 17
    assert [r.getMessage() for r in caplog.records] == [
        "sources.clicks.delay: found 17, read as '17 ms'; a number without a unit is deprecated: write '17 ms', "
        "or did you mean '17 seconds'?"
    ]
    caplog.clear()
    assert milliseconds(17, "sources.clicks.delay") == 17
    assert not caplog.records


@given(st.integers(1, MOST))
def test_milliseconds_and_timedeltas_are_exact(ms):
    assert milliseconds(f"{ms} ms", "ttl") == ms
    if ms < 86_399_999_999_999_999 // 1000:
        assert milliseconds(timedelta(milliseconds=ms), "ttl") == ms
