"""Brokers that take no records are told from a broker that no record waits for, and from a slow batch."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from taskplace.spark.kafka import transactions as progress
from taskplace.spark.kafka.transactions import Progress


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def looks(clock: list[float], *each: tuple[float, int], waiting: bool = False) -> Progress:
    """Return the progress of a try with 100 records, after looks: how long each comes after the last one, and what the
    producer still has then.
    """
    found = Progress()
    found.sent = 100
    for seconds, waiting_for in each:
        clock[0] += seconds
        found.seen(range(waiting_for), waiting=waiting)
    return found


@pytest.mark.parametrize(
    ("each", "lost"),
    [
        ([(5, 90), (5, 80), (5, 10)], 0),  # it goes on with each look
        ([(0.9, 100 - number // 2) for number in range(60)], 0),  # pauses between acknowledgements
        ([(5, 90), (10, 90), (10, 90)], 20),
        ([(5, 90), (10, 90), (10, 90), (1, 80), (1, 80)], 20),
        ([(5, 90), (10, 90), (1, 80), (10, 80), (1, 0)], 20),
        ([(5, 0), (50, 0)], 0),  # nothing is waited for: the rows are slow
    ],
)
def test_the_time_in_which_no_record_is_taken(clock, each, lost):
    assert looks(clock, *each).stalled() == lost


def test_a_commit_that_is_waited_for(clock):
    assert looks(clock, (5, 0), (5, 0), (5, 0), waiting=True).stalled() == 10


def test_what_was_acknowledged(clock):
    found = Progress()
    found.sent = 10
    assert found.seen(range(7)) and found.acknowledged == 3
    assert not found.seen(range(7))
    assert not found.seen(range(9)), "events of the client count as well"
    assert found.acknowledged == 3
    assert found.seen(range(0)) and found.acknowledged == 10
