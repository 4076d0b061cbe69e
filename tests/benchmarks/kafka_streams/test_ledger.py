"""Outputs are compared with plain Python, order by order."""

from __future__ import annotations

import pytest
from kafka_streams.ledger import Ledger, Sample, WrongResultError, back


@pytest.fixture
def ledger():
    made = Ledger({"ann": "north", "bob": "east"}, window_ms=10_000)
    for at in (10.0, 11.0, 12.0, 21.0):
        made.sent("ann", at)
    made.sent("bob", 12.5)
    return made


def receive(ledger, n, *, user="ann", window=10_000, region="north", at=13.0):
    ledger.received(user, window, n=n, region=region, partition=4, at=at)


def test_an_output_has_the_orders_behind_the_count_before(ledger):
    receive(ledger, 1, at=13.0)
    receive(ledger, 3, at=14.0)
    assert ledger.samples == [Sample(10.0, 4, 3.0), Sample(11.0, 4, 3.0), Sample(12.0, 4, 2.0)]
    assert (ledger.missing, ledger.outputs, ledger.done) == (2, 2, 3)
    assert ledger.after(1) == ledger.samples[1:]


@pytest.mark.parametrize("n", [1, 2])
def test_a_count_that_comes_again_is_an_error(ledger, n):
    receive(ledger, 2)
    with pytest.raises(WrongResultError, match=f"found the count {n}, expected more than 2"):
        receive(ledger, n)


def test_a_count_above_the_orders_is_an_error(ledger):
    with pytest.raises(WrongResultError, match="at most 3"):
        receive(ledger, 4)


def test_a_wrong_region_is_an_error(ledger):
    with pytest.raises(WrongResultError, match="found region 'east', expected 'north'"):
        receive(ledger, 1, region="east")
    assert ledger.done == 0


def test_partitions_are_back_with_an_order_that_was_sent_after_the_loss():
    samples = [Sample(9.0, 1, 5.0), Sample(11.0, 1, 4.0), Sample(12.0, 1, 1.0), Sample(10.5, 2, 0.1)]
    assert back(samples, {1, 2, 3}, 10.0) == {1: 3.0, 2: 0.6}
