"""Steering real queries on a real local-cluster."""

from __future__ import annotations

import logging

import pytest

from taskplace.errors import InputError
from tests.steer.steer_harness import aggregation, chained, join, kill, transform, wait_until

pytestmark = pytest.mark.spark

ENOUGH = 6  # batches, for a few moves each

KINDS = [
    aggregation,
    pytest.param(join, marks=pytest.mark.slow),
    pytest.param(transform, marks=pytest.mark.slow),
    pytest.param(chained, marks=pytest.mark.slow),
]


def settle(one, condition, what: str, batches: int = ENOUGH) -> None:
    for _ in range(batches):
        if condition():
            return
        one.feed()
    assert condition(), f"{what}: not within {batches} batches: {one.ran_on()}\n{one.steering.status()}"


@pytest.mark.parametrize("kind", KINDS)
def test_piled_state_is_spread_a_drained_executor_ends_with_none_and_results_are_the_same(stream, kind):
    one = stream(kind, "steered")
    one.feed()
    one.put(min(e.instance for e in one.bridge().executors()))
    steering = one.steer(max_moves_per_batch=4)
    settle(one, one.even, "even over executors")
    assert steering.status().moved >= 4

    name = max(e.instance for e in one.bridge().executors())
    steering.drain(name)
    settle(one, lambda: one.ran_on()[name] == 0, "drained")
    assert steering.drained(name)
    assert any("drain" in change for change in steering.status().changes)
    steering.undrain(name)

    status = steering.status()
    assert (status.state, status.errors, status.overruled) == ("steering", 0, 0)
    # Late rows depend on where one batch ends and the next begins.
    plain = stream(kind, "plain", files=1 if kind is chained else 1000)
    plain.feed_as_much_as(one)
    assert one.result() == plain.result()
    assert one.result()


@pytest.mark.parametrize("kind", KINDS)
def test_a_replaced_executor_gets_its_share_and_without_steering_it_does_not(stream, kind):
    steered, plain = stream(kind, "steered"), stream(kind, "plain")
    steering = steered.steer()
    for one in (steered, plain):
        one.feed()
    before = {e.instance for e in steered.bridge().executors()}
    lost = max(before)
    plain.put(*sorted(before - {lost}))  # where it would be after the loss anyway, if nothing else happens
    kill(lost)
    bridge = steered.bridge()
    wait_until(lambda: lost not in {e.instance for e in bridge.executors()}, "the loss is known")
    for one in (steered, plain):
        one.feed()
    wait_until(lambda: len(bridge.executors()) == 3, "the replacement is there", seconds=90)
    (new,) = {e.instance for e in bridge.executors()} - before
    settle(steered, lambda: steered.ran_on()[new] >= 2 and steered.even(), "the new executor has its share")
    plain.feed(steered.fed - plain.fed)
    assert plain.ran_on()[new] == 0
    assert steered.result() == plain.result()
    assert any("joined" in change for change in steering.status().changes)


def test_unload_on_commit_stands_down_with_a_reason_and_the_query_goes_on(stream):
    one = stream(
        aggregation, "unloads", conf={"spark.sql.streaming.stateStore.unloadOnCommit": "true"}.items()
    )
    steering = one.steer()
    one.feed(2)
    status = steering.status()
    assert status.state == "stood down"
    assert "unloadOnCommit=true" in status.reason
    assert "set it to false" in status.reason
    assert status.moved == 0
    assert one.query.isActive


def test_errors_inside_never_reach_the_query(stream, monkeypatch, caplog):
    from taskplace.spark.bridge_state import StateBridge

    one = stream(aggregation, "errors")
    steering = one.steer()
    one.feed()
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
        patched.setattr(StateBridge, "places", lambda *_: 1 / 0)
        one.steering = None  # there is nothing to wait for while it fails
        one.feed()
        wait_until(lambda: steering.status().state == "stood down", "it stands down")
    one.feed()
    status = steering.status()
    assert "ZeroDivisionError" in status.reason
    assert status.errors >= 3
    assert "the query runs on" in caplog.text
    assert one.query.isActive
    one.steering = steering
    steering.resume()
    one.feed()
    assert steering.status().state == "steering"
    assert len(one.result()) == 60


def test_the_handle_ends_with_the_query_and_refuses_what_it_cannot_do(stream):
    one = stream(aggregation, "ends")
    steering = one.steer()
    with pytest.raises(InputError, match=r"executor: found '99', expected one of \['executor-"):
        steering.drain("99")
    one.feed()
    assert "aggregation" in str(steering.status()) or "stateStoreSave" in str(steering.status())
    steering.stop()
    assert steering.status().state == "stopped"
    one.feed()
    one.query.stop()
    with pytest.raises(InputError, match="a query that has ended"):
        one.steer()
