"""The handle over a bridge that stands for Spark: names, what is refused, who waits for whom."""

from __future__ import annotations

import threading

import pytest

from taskplace.errors import InputError
from tests.support.steering_stand_in import Spark, polled, steering_of
from tests.support.steering_streams import wait_until


def test_a_query_is_steered_by_one_handle_at_a_time():
    first, second, other = (Spark("once", 4, 2, run=run) for run in ("q", "q", "another"))
    one = steering_of(first)
    one.start()
    with pytest.raises(
        InputError, match=r"query: found 'a query that is already steered'.*its stop\(\) first"
    ):
        steering_of(second).start()
    beside = steering_of(other)
    beside.start()
    one.stop()
    again = steering_of(second)
    again.start()
    for steering in (again, beside):
        steering.stop()
        assert steering.status().state == "stopped"


def test_when_spark_itself_is_gone_the_handle_has_ended():
    spark = Spark("gone", 4, 2)
    steering = steering_of(spark)
    spark.active = lambda: (_ for _ in ()).throw(ConnectionRefusedError("nobody there"))
    steering.start()
    wait_until(lambda: steering.status().state == "ended", "it notices")
    assert steering.status().errors == 0
    with pytest.raises(InputError, match="executor: found '99', expected one of"):
        steering.drained("99")


@pytest.mark.parametrize("method", ["drain", "undrain", "drained", "decommission"])
@pytest.mark.parametrize("bad", ["99", 99, "", "executor-", "Executor-1", "1 ", None, 1.0, True])
def test_an_executor_that_never_was_is_one_clear_error(method, bad):
    steering = steering_of(Spark("names", 4, 2))
    polled(steering)
    with pytest.raises(
        InputError, match=r"^executor: found .*, expected (one of executor-0, executor-1$|an id like '3')"
    ):
        getattr(steering, method)(bad)


@pytest.mark.parametrize("name", ["1", 1, "executor-1"])
def test_an_executor_is_named_by_its_id_or_its_instance(name):
    steering = steering_of(Spark(f"called {name!r}", 4, 2, spread=True))
    polled(steering)
    steering.drain(name)
    assert steering.status().draining == ("executor-1",)
    assert not steering.drained(name)
    steering.undrain(name)
    assert steering.status().draining == ()


@pytest.mark.parametrize("call", ["plan", "resume", "drain", "undrain", "decommission"])
def test_a_handle_that_is_stopped_refuses_what_it_cannot_do(call):
    steering = steering_of(Spark("stopped", 4, 2))
    steering.start()
    steering.stop()
    with pytest.raises(
        InputError, match="steering: found 'a handle that is stopped', expected a handle that is steering"
    ):
        getattr(steering, call)(*([] if call in ("plan", "resume") else ["1"]))


def test_nobody_waits_for_a_round_that_waits_for_spark():
    spark = Spark("slow", 6, 3, spread=True)
    began, over = threading.Event(), threading.Event()
    layout = spark.layout
    spark.layout = lambda *, planned: (began.set(), over.wait(30), layout(planned=planned))[-1]
    steering = steering_of(spark)
    steering.start()
    told = []

    def ask() -> None:
        steering.drain("2")
        steering.undrain("2")
        told.extend([steering.drained("2"), steering.status().state])

    try:
        assert began.wait(30)
        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(10)
        assert told == [False, "waiting for the first batch"]
    finally:
        over.set()
        steering.stop()
