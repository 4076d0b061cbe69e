"""Steering real queries on a real local-cluster."""

from __future__ import annotations

import logging
import threading

import pytest

from taskplace.spark.steering.measurements import EARLY_BATCHES
from tests.support.steering_streams import (
    aggregation,
    arbitrary,
    chained,
    join,
    kill,
    once,
    stateless,
    transform,
    wait_until,
    want_executors,
)

pytestmark = pytest.mark.spark

ENOUGH = 6  # batches, for a few moves each
FIRM = {
    "load_tolerance": 1e6
}  # load is observed, but the noise of a busy machine is no reason to leave counts

KINDS = [
    aggregation,
    pytest.param(join, marks=pytest.mark.slow),
    pytest.param(transform, marks=pytest.mark.slow),
    pytest.param(arbitrary, marks=pytest.mark.slow),
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
    steering = one.steer(max_moves_per_batch=4, **FIRM)
    one.observed()  # what is sent while a batch runs may come too late for it, which counts as overruled
    settle(one, one.even, "even over executors")
    assert steering.status().moved >= 4

    name = max(e.instance for e in one.bridge().executors())
    steering.drain(name)
    told = f"drain: {name} drains"
    wait_until(
        lambda: any(told in change for change in steering.status().changes), "its tasks are sent elsewhere"
    )
    settle(one, lambda: one.ran_on()[name] == 0, "drained")
    assert steering.drained(name)
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
    steering = steered.steer(**FIRM)
    for one in (steered, plain):
        one.feed()
    bridge = steered.bridge()
    before = {e.instance for e in bridge.executors()}
    lost = max(before)
    for one in (steered, plain):  # both are as even, and lose the same
        one.put(*sorted(before))
        assert one.ran_on()[lost] == len(one.layout().tasks) // len(before)
    want_executors(bridge, len(before) - 1)  # no replacement before both have run without the lost one
    try:
        kill(lost)
        wait_until(lambda: lost not in {e.instance for e in bridge.executors()}, "the loss is known")
        for one in (steered, plain):
            one.feed()
            assert one.ran_on().keys() == before - {lost}
    finally:
        want_executors(bridge, len(before))
    wait_until(lambda: len(bridge.executors()) == 3, "the replacement is there", seconds=90)
    (new,) = {e.instance for e in bridge.executors()} - before
    settle(steered, lambda: steered.ran_on()[new] >= 2 and steered.even(), "the new executor has its share")
    plain.feed(steered.fed - plain.fed)
    assert plain.ran_on()[new] == 0
    assert steered.result() == plain.result()
    assert any("joined" in change for change in steering.status().changes)


@pytest.mark.slow
def test_the_partition_of_a_hot_key_ends_up_alone(stream):
    one = stream(once, "hot", hot=1000)
    steering = one.steer(load_by="rows")
    one.feed(EARLY_BATCHES[-1])
    assert sorted(one.ran_on().values()) == [2, 2, 2]
    settle(one, lambda: sorted(one.ran_on().values()) != [2, 2, 2], "the last observation tells")
    settle(one, lambda: steering.status().waiting == 0, "all is where it belongs")
    (hot,) = [task for task, weight in steering.status().weights.items() if weight > 10]
    places = steering.plan().intended
    (name,) = [name for task, name in places.items() if str(task) == hot]
    assert one.ran_on()[name] == 1
    assert any(f"{hot} weighs" in change for change in steering.status().changes)
    assert len(one.result()) == 60


def test_a_query_without_state_is_nothing_to_steer(stream):
    one = stream(stateless, "stateless")
    steering = one.steer()
    one.feed(2)
    assert steering.status().state == "nothing to steer"
    assert steering.status().errors == 0
    assert not steering.plan().moves


def test_errors_inside_never_reach_the_query(stream, monkeypatch, caplog):
    from taskplace.spark.steering.bridge import StateBridge

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
    assert "the query continues" in caplog.text
    assert one.query.isActive
    one.steering = steering
    steering.resume()
    one.feed()
    assert steering.status().state == "steering"
    assert len(one.result()) == 60


@pytest.mark.slow
def test_a_restarted_query_is_spread_again(stream):
    one = stream(aggregation, "restarts")
    one.feed()
    one.query.stop()
    one.query = one.start()
    steering = one.steer(**FIRM)
    settle(one, lambda: one.fed > 1 and one.even(), "even over executors")
    assert steering.status().errors == 0
    assert len(one.result()) == 60


def hold_slots(folder):
    """Return what a task does that keeps its slot until the folder says it is over."""

    def hold(elements):
        import time
        import uuid

        (folder / f"holds-{uuid.uuid4()}").touch()
        while not (folder / "over").exists():
            time.sleep(0.05)
        return [str(element) for element in elements]

    return hold


@pytest.mark.slow
def test_when_spark_overrules_again_and_again_it_stands_down_with_the_reason(stream, tmp_path):
    one = stream(aggregation, "overruled")
    one.feed()
    bridge = one.bridge()
    executors = bridge.executors()
    full, *others = executors
    one.put(*[e.instance for e in others])
    conf, wait = bridge._jsc.conf(), bridge._jsc.conf().get("spark.locality.wait", "3s")
    held = bridge.pinned([b"x"] * full.cores, [full.location] * full.cores, hold_slots(tmp_path))
    blocker = threading.Thread(target=held.rdd.mapPartitions(held.function).collect, daemon=True)
    blocker.start()
    try:
        wait_until(lambda: len(list(tmp_path.glob("holds-*"))) == full.cores, "all its slots are taken")
        conf.set("spark.locality.wait", "0")
        steering = one.steer(worth_batches=0, patience_batches=2, **FIRM)
        one.feed(3)
        status = steering.status()
        assert status.state == "stood down", status
        assert "spark.locality.wait is 0 ms: Spark ran" in status.reason
        assert "set spark.locality.wait to 3s or more" in status.reason
        assert status.overruled >= 2
    finally:
        conf.set("spark.locality.wait", wait)
        (tmp_path / "over").touch()
        blocker.join(timeout=60)
    steering.resume()
    settle(one, one.even, "even, once there are slots and patience")


@pytest.mark.slow
def test_a_decommissioned_executor_is_emptied_and_then_ended(stream):
    one = stream(aggregation, "leaves")
    steering = one.steer()
    one.feed()
    bridge = one.bridge()
    executors = bridge.executors()
    name = max(e.instance for e in executors)
    try:
        steering.decommission(name)
        settle(one, lambda: one.ran_on()[name] == 0, "emptied")
        one.feed()
        wait_until(lambda: name not in {e.instance for e in bridge.executors()}, "it is ended")
        one.feed()
        assert name not in one.ran_on()
        assert any("is empty: its removal was requested" in change for change in steering.status().changes)
    finally:
        wait_until(lambda: len(bridge.executors()) < len(executors), "the count is known")
        steering.undrain(name)
        want_executors(bridge, len(executors))  # the next test wants all of them


@pytest.mark.slow
def test_what_spark_decommissions_is_noticed_while_the_query_waits_and_empty_after_one_batch(stream):
    one = stream(aggregation, "decommissions")
    one.feed()
    bridge = one.bridge()
    one.put(*(e.instance for e in bridge.executors()))
    steering = one.steer(max_moves_per_batch=1)
    wait_until(lambda: steering.status().batch >= 0, "it has had a round")
    name = max(e.instance for e in bridge.executors())
    nobody = bridge._jvm.scala.Option.empty()
    info = bridge._jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo("a test", nobody)
    try:
        bridge._jsc.taskScheduler().executorDecommission(name.removeprefix("executor-"), info)
        said = f"2 moves now, 0 later; decommissioned: {name}"
        wait_until(
            lambda: steering.status().changes[-1].endswith(said), "it is noticed, and all is sent at once"
        )
        assert steering.status().draining == (name,)
        one.feed()
        assert one.ran_on()[name] == 0
        assert steering.drained(name)
        assert steering.status().errors == 0
    finally:
        kill(name)  # the mark stays with it
        wait_until(lambda: name not in {e.instance for e in bridge.executors()}, "it has ended")
