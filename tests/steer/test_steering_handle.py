"""The handle over a bridge that stands for Spark: what is seen, what is sent between batches, what is refused."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from taskplace.errors import InputError
from taskplace.spark.bridge import Executor
from taskplace.spark.steering.config import SteeringConfig
from taskplace.spark.steering.executors import DECOMMISSION_POLLS, Executors
from taskplace.spark.steering.layout import Layout, Operator
from taskplace.spark.steering.overrides import Facts
from taskplace.spark.steering.steered_queries import SteeredQueries
from taskplace.spark.steering.steering import Steering
from tests.steer.steer_harness import wait_until

POLLS = 3 * DECOMMISSION_POLLS


class Spark:
    """A query of one operator that waits for data; `ran` is the end of one more batch.

    `at` is the coordinator's map, which shows at once what was sent; `running`, where the last batch really ran.
    """

    def __init__(
        self, app: str, partitions: int, executors: int, *, run: str = "run", spread: bool = False
    ) -> None:
        self.app_id, self.run_id, self.name, self.id = app, run, run, run
        self.there = [Executor(str(i), "host", 2) for i in range(executors)]
        self.ending: set[str] = set()
        self.found = Layout(((Operator(0, "stateStoreSave", ("default",), partitions),),))
        self.at = {t: f"executor-{t.partition % executors if spread else 0}" for t in self.found.tasks}
        self.batch, self.looks, self.sent, self.on = 0, 0, 0, True
        self.running, self.removed = dict(self.at), []

    def ran(self) -> None:
        self.running = dict(self.at)
        self.batch += 1

    def active(self) -> bool:
        return self.on

    def between_batches(self) -> bool:
        return True

    def finished_batch(self) -> int:
        return self.batch

    def state_operators(self):
        return [{"commitTimeMs": 100_000, "memoryUsedBytes": 1000}]

    def facts(self) -> Facts:
        return Facts()

    def layout(self, *, planned: bool) -> Layout:
        return self.found

    def places(self, found: Layout):
        self.looks += 1
        return dict(self.at)

    def send(self, found: Layout, intended) -> None:
        for task, executor in intended:
            self.at[task] = executor.instance
            self.sent += 1

    def executors(self) -> list[Executor]:
        return [executor for executor in self.there if executor.id not in self.ending]

    def alive(self) -> frozenset[str]:
        return frozenset(executor.id for executor in self.there)

    def decommissioned(self) -> frozenset[str]:
        return frozenset(f"executor-{name}" for name in self.ending)

    def remove(self, executor_id: str) -> bool:
        self.removed.append(executor_id)
        return True

    def task_load(self, found: Layout, by: str):
        return {}


def steering_of(spark: Spark, per_batch: int = 1) -> Steering:
    return Steering(spark, SteeringConfig(max_moves_per_batch=per_batch, load_by="even"))


def polled(steering: Steering, times: int = POLLS) -> int:
    """Poll, as the thread does; return how often there was a look."""
    return sum(steering._turn() for _ in range(times))


def test_between_two_batches_no_more_is_sent_than_the_budget_whatever_is_asked_for():
    spark = Spark("budget", 30, 1)
    steering = steering_of(spark)
    assert polled(steering) == 1
    for i in range(1, 6):
        spark.there.append(Executor(str(i), "host", 2))
        steering.undrain(0)
        assert polled(steering) == 1
    assert spark.sent == 1
    spark.ran()
    assert polled(steering) == 1
    assert spark.sent == 2


def test_what_spark_decommissions_is_noticed_while_the_query_waits_and_emptied_at_once():
    spark = Spark("decommissions", 24, 3, spread=True)
    steering = steering_of(spark)
    polled(steering)
    spark.ending = {"2"}
    assert polled(steering) == 1, "one look, and no more of them"
    assert spark.sent == 8
    assert "executor-2" not in spark.at.values()
    status = steering.status()
    assert status.draining == ("executor-2",)
    assert status.changes[-1] == "batch 0: 8 moves now, 0 later; decommissioned: executor-2"
    spark.there.pop()  # it has ended, as was to be expected
    assert polled(steering) == 0
    spark.ran()
    polled(steering)
    assert steering.drained("2")


def test_what_stood_down_stays_so_until_it_is_resumed_though_the_operators_are_read_later():
    spark = Spark("reads later", 6, 2)
    read, failures = spark.layout, [ZeroDivisionError("no plan")] * 3
    spark.layout = lambda *, planned: (
        (_ for _ in ()).throw(failures.pop()) if failures else read(planned=planned)
    )
    steering = steering_of(spark)
    while failures:
        with pytest.raises(ZeroDivisionError) as error:
            steering._turn()
        steering._failed(error.value)
        spark.ran()
    assert steering.status().state == "stood down"
    for _ in range(3):
        spark.ran()
        polled(steering)
    assert steering.status().state == "stood down"
    assert "ZeroDivisionError: no plan" in steering.status().reason
    assert spark.sent == 0
    steering.resume()
    polled(steering)
    assert spark.sent == 1


def test_what_replaces_the_loss_of_all_executors_is_noticed_while_the_query_waits():
    spark = Spark("all lost", 6, 3, spread=True)
    steering = steering_of(spark)
    polled(steering)
    spark.there = []
    assert polled(steering) == 1, "one look, and no more of them"
    spark.there = [Executor(str(i), "host", 2) for i in (3, 4, 5)]
    assert polled(steering) == 1
    assert sorted(spark.at.values()) == sorted(["executor-3", "executor-4", "executor-5"] * 2)


def test_before_the_first_look_no_executor_is_news():
    executors = Executors(Spark("never looked", 6, 3))
    assert not any(executors.changed() for _ in range(POLLS))


def test_the_reason_for_the_tasks_of_a_dead_executor_is_its_death(caplog):
    spark = Spark("dies", 6, 3, spread=True)
    steering = steering_of(spark)
    polled(steering)
    spark.there.pop()
    with caplog.at_level("INFO"):
        assert polled(steering) == 1
    assert caplog.text.count("(executor-2 is gone)") == 2
    assert steering.status().changes[-1].endswith("membership: executor-2 left")


def test_a_query_is_steered_by_one_handle_at_a_time():
    first, second, other = (Spark("once", 4, 2, run=run) for run in ("q", "q", "another"))
    one = steering_of(first)
    one.start()
    with pytest.raises(
        InputError, match=r"query: found 'a query that is steered already'.*stop\(\) that first"
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
        InputError, match=r"^executor: found .*, expected (one of \['executor-0'|an id like '3')"
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
        InputError, match="steering: found 'a handle that is stopped', expected one that steers"
    ):
        getattr(steering, call)(*([] if call in ("plan", "resume") else ["1"]))


def test_a_dry_run_does_not_hide_a_change_from_the_thread():
    spark = Spark("dry", 8, 2, spread=True)
    steering = steering_of(spark)
    polled(steering)
    spark.there.append(Executor("2", "host", 2))
    assert steering.plan().moves
    assert spark.sent == 0
    assert polled(steering) == 1
    assert spark.sent == 1


def test_before_the_first_look_the_status_has_nothing_to_name():
    status = steering_of(Spark("not yet", 4, 2)).status()
    assert (status.executors, status.weights, status.kept) == ({}, {}, {})
    assert status.to_dict()["executors"] == {}


def test_the_changes_are_counted_beyond_those_that_are_kept():
    steering = steering_of(Spark("many", 4, 2, spread=True))
    polled(steering)
    before = steering.status().said
    for _ in range(15):
        steering.drain("1")
        steering.undrain("1")
    status = steering.status()
    assert status.said == before + 30
    assert status.changes[-1] == "undrain of executor-1 asked for: it may have tasks again"
    assert len(status.changes) <= 20


def test_a_new_executor_gets_its_share_however_long_after_the_last_observation_it_comes():
    """Tasks take half a second each, of which the operators' own times are next to nothing; a reload takes four."""
    for joins in range(4, 34, 3):
        spark = Spark(f"joins after {joins}", 12, 3, spread=True)
        spark.state_operators = lambda: [{"commitTimeMs": 24, "memoryUsedBytes": 1_000_000_000}]
        spark.task_load = lambda found, by: dict.fromkeys(found.tasks, 0.5)
        steering = Steering(spark, SteeringConfig())
        for batch in range(joins + 2):
            if batch == joins:
                spark.there.append(Executor("3", "host", 2))
            polled(steering, 3)
            spark.ran()
        assert list(spark.at.values()).count("executor-3") == 3


def test_sizes_are_listed_once_the_moves_are_sent_and_count_from_the_next_batch_on():
    spark, sent, seen = Spark("sizes", 12, 3), [], []
    sizes = {t: 41.0 if t.partition == 0 else 1.0 for t in spark.found.tasks}
    spark.state_sizes = lambda found: sent.append(spark.sent) or sizes
    steering = Steering(spark, SteeringConfig(load_by="state.size", max_moves_per_batch=3))
    polled(steering)
    look = steering._looks.loop.look
    steering._looks.loop.look = lambda found: seen.append(found.load) or look(found)
    for _ in range(8):
        spark.ran()
        polled(steering)
    assert sent[0] == 6, "after what the look before and this one send"
    assert seen == [None, *[sizes] * 5, None, None]
    assert steering.status().load == "by state.size"
    assert steering.status().weights["0_0"] == 41.0


def test_reloads_are_priced_by_all_that_was_sent_since_the_batch_before():
    spark = Spark("prices", 8, 2)
    asked = []
    steering = steering_of(spark, per_batch=2)
    observe = steering._looks.book.observe
    steering._looks.book.observe = lambda operators, tasks, loaded, seconds: (
        asked.append(loaded) or observe(operators, tasks, loaded, seconds)
    )
    polled(steering)
    steering.undrain("0")
    polled(steering)
    for _ in range(3):
        spark.ran()
        polled(steering)
    assert asked == [None, 2, 2, 0], "nobody knows what the first batch had to load"


def test_no_reload_is_priced_by_a_batch_in_which_spark_loaded_more_than_was_sent():
    spark = Spark("more", 8, 2, spread=True)
    asked = []
    steering = steering_of(spark)
    observe = steering._looks.book.observe
    steering._looks.book.observe = lambda operators, tasks, loaded, seconds: (
        asked.append(loaded) or observe(operators, tasks, loaded, seconds)
    )
    polled(steering)
    spark.ran()
    polled(steering)
    spark.at[next(iter(spark.at))] = "executor-1"  # there is no slot on the other one
    spark.ran()
    polled(steering)
    spark.ran()
    polled(steering)
    for _ in range(2):  # one of them has ended unseen
        spark.ran()
    polled(steering)
    spark.ran()
    polled(steering)
    assert asked == [None, 0, None, 1, None, 0]


def test_nor_by_the_first_batch_of_a_query_that_was_placed_before_it_nor_after_one_that_was_given_up():
    spark = Spark("first", 8, 2)
    asked = []
    steering = steering_of(spark)
    observe = steering._looks.book.observe
    steering._looks.book.observe = lambda operators, tasks, loaded, seconds: (
        asked.append(loaded) or observe(operators, tasks, loaded, seconds)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spark, "finished_batch", lambda: None)
        spark.at = dict.fromkeys(spark.at)
        polled(steering)
        assert spark.sent == 8
    polled(steering)
    spark.ran()
    polled(steering)
    spark.state_operators = failing(3, spark.state_operators)
    for _ in range(2):
        spark.ran()
        turned(steering)
    assert steering.status().state == "stood down"
    assert asked == [None, 0, None]


def test_what_was_sent_when_the_next_batch_had_begun_teaches_no_price_for_nobody_knows_which_loads_it():
    spark, load, asked = Spark("late", 12, 3, spread=True), [24], []
    spark.state_operators = lambda: [
        {"commitTimeMs": 1200, "memoryUsedBytes": 1000, "customMetrics": {"rocksdbLoadLatencyMs": load[0]}}
    ]
    steering = steering_of(spark, 8)
    observe = steering._looks.book.observe
    steering._looks.book.observe = lambda operators, tasks, loaded, seconds: (
        asked.append(loaded) or observe(operators, tasks, loaded, seconds)
    )
    for _ in range(3):
        spark.ran()
        polled(steering)
    steering.drain("2")
    send = spark.send
    spark.send = lambda found, intended: (
        setattr(spark, "between_batches", lambda: False),
        send(found, intended),
    )
    spark.ran()
    polled(steering)  # the next batch begins while this one is looked at
    assert spark.sent == 4
    for load[0] in (24, 4 * 5000 + 24, 24):
        spark.ran()
        polled(steering)
    assert asked == [None, 0, 0, 0, None, None, 0]
    steering.undrain("2")
    spark.send, spark.between_batches = send, lambda: True
    polled(steering)
    load[0] = 4 * 5000 + 24
    spark.ran()
    polled(steering)
    assert asked[-1] == 4
    assert steering._looks.prices.reload == pytest.approx(5.0)


def test_what_is_sent_there_and_back_before_it_has_run_is_no_move():
    spark = Spark("there and back", 12, 3, spread=True)
    asked = []
    steering = steering_of(spark, 8)
    observe = steering._looks.book.observe
    steering._looks.book.observe = lambda operators, tasks, loaded, seconds: (
        asked.append(loaded) or observe(operators, tasks, loaded, seconds)
    )
    for _ in range(2):
        spark.ran()
        polled(steering)
    steering.drain("2")
    polled(steering)
    steering.undrain("2")
    polled(steering)
    moves = sum(name != spark.running[task] for task, name in spark.at.items())
    assert moves < spark.sent == 8
    assert steering.status().moved == moves
    spark.ran()
    polled(steering)
    assert asked == [None, 0, moves]
    assert steering.status().moved == moves


def test_what_spark_did_not_run_where_it_was_sent_counts_as_moved_once_it_has():
    spark = Spark("sent again", 12, 3, spread=True)
    steering = steering_of(spark, 4)
    polled(steering)
    steering.drain("2")
    polled(steering)
    stays = next(task for task, name in spark.running.items() if name == "executor-2")
    for _ in range(2):
        spark.at[stays] = "executor-2"  # there was no slot elsewhere
        spark.ran()
        polled(steering)
        assert steering.status().moved == 3 + 1, "it is on its way again"
    spark.ran()
    polled(steering)
    assert spark.sent == 4 + 2
    assert steering.status().moved == 4


@pytest.mark.parametrize("first", [60_000, 24])
def test_what_a_reload_costs_is_the_same_whatever_the_first_batch_that_was_seen_had_to_load(first):
    """A query that has restarted loads all its state in its first batch: five seconds of each task."""
    spark, load = Spark(f"restarts {first}", 12, 3, spread=True), [first]
    spark.state_operators = lambda: [
        {"commitTimeMs": 1200, "memoryUsedBytes": 1000, "customMetrics": {"rocksdbLoadLatencyMs": load[0]}}
    ]
    steering = steering_of(spark)
    polled(steering)
    for load[0] in (24, 24):
        spark.ran()
        polled(steering)
    spark.ending = {"2"}
    polled(steering)
    assert spark.sent == 4
    load[0] = 4 * 5000 + 24
    spark.ran()
    polled(steering)
    assert steering._looks.prices.reload == pytest.approx(5.0)


# ------------------------------------------------------------------------------- stopped, stood down, errors


def failing(times: int, really):
    """Return a call that fails so many times, and then does what it should."""
    left = [OSError("a passing error")] * times
    return lambda *args, **kwargs: (_ for _ in ()).throw(left.pop()) if left else really(*args, **kwargs)


def turned(steering: Steering, times: int = POLLS) -> int:
    """Poll as the thread does, errors and all; return how often there was a look."""
    looks = 0
    for _ in range(times):
        try:
            looks += steering._turn()
        except OSError as error:
            steering._failed(error)
    return looks


def test_stopping_takes_moves_back_that_have_not_run():
    spark = Spark("takes back", 12, 3)
    steering = steering_of(spark, 4)
    polled(steering)
    assert spark.at != spark.running
    steering.stop()
    assert spark.at == spark.running
    assert steering.status().changes[-2:] == ("4 moves that have not run are taken back", "stopped")


def test_stopping_takes_moves_back_after_errors_too_unless_a_batch_has_run_since():
    for what in ("waits", "ran"):
        spark = Spark(f"errors: {what}", 12, 3)
        steering = steering_of(spark, 4)
        polled(steering)
        sent, there = dict(spark.at), dict(spark.running)
        if what == "ran":
            spark.ran()
        else:
            steering.undrain("0")  # looked at once more
        really, spark.places = spark.places, failing(3, spark.places)
        turned(steering)
        assert steering.status().state == "stood down"
        spark.places = really
        steering.stop()
        assert spark.at == (sent if what == "ran" else there)


@pytest.mark.parametrize("what", ["begins", "begins and ends", "has ended"])
def test_stopping_takes_back_nothing_once_a_batch_has_begun_or_the_query_has_ended_meanwhile(what):
    spark = Spark(f"meanwhile: {what}", 12, 3)
    steering = steering_of(spark, 4)
    polled(steering)
    sent, places = dict(spark.at), spark.places

    def meanwhile(found):
        if what == "begins":
            spark.between_batches = lambda: False
        else:
            spark.ran()
        return places(found)

    if what == "has ended":
        spark.on = False
    else:
        spark.places = meanwhile
    steering.stop()
    assert spark.at == sent
    assert not any("taken back" in change for change in steering.status().changes)


def test_stopping_takes_back_nothing_that_has_run_or_may_be_running():
    for what in ("ran, unseen", "runs"):
        spark = Spark(f"too late: {what}", 12, 3)
        steering = steering_of(spark, 4)
        polled(steering)
        sent = dict(spark.at)
        if what == "runs":
            spark.between_batches = lambda: False
        else:
            spark.ran()
        steering.stop()
        assert spark.at == sent


def test_stopping_sends_nothing_back_to_an_executor_that_is_gone_or_drains():
    for what in ("gone", "drains", "decommissioned"):
        spark = Spark(f"no way back: {what}", 6, 3, spread=True)
        steering = steering_of(spark, 6)
        polled(steering)
        if what == "gone":
            spark.there.pop()
        elif what == "drains":
            steering.drain("2")
        else:
            spark.ending = {"2"}
        polled(steering)
        assert "executor-2" not in spark.at.values()
        steering.stop()
        assert "executor-2" not in spark.at.values()


def test_stopping_sends_nothing_back_to_an_executor_that_has_just_gone():
    spark = Spark("just gone", 12, 3)
    steering = steering_of(spark, 4)
    polled(steering)
    spark.there.pop(0)
    steering.stop()
    assert spark.sent == 4
    assert steering.status().errors == 0


def test_a_stop_that_cannot_take_moves_back_stops_all_the_same():
    spark = Spark("cannot", 12, 3)
    steering = steering_of(spark, 4)
    polled(steering)
    spark.places = failing(1, spark.places)
    steering.stop()
    assert steering.status().state == "stopped"
    assert steering.status().errors == 1


def test_a_stand_down_is_said_once():
    spark = Spark("once said", 6, 2)
    steering = steering_of(spark)
    polled(steering)
    spark.facts = lambda: Facts(unload_on_commit=True)
    for _ in range(5):
        spark.ran()
        polled(steering)
    assert sum("stood down" in change for change in steering.status().changes) == 1
    steering.resume()
    polled(steering)
    assert sum("stood down" in change for change in steering.status().changes) == 2, (
        "again, since it was resumed"
    )


@pytest.mark.parametrize("part", ["places", "state_operators", "facts", "layout"])
def test_a_batch_whose_look_has_failed_is_looked_at_once_more(part):
    spark = Spark(f"passes {part}", 12, 3)
    steering = steering_of(spark, 2)
    if part != "layout":
        polled(steering)
        spark.ran()
    setattr(spark, part, failing(2, getattr(spark, part)))
    assert turned(steering) == 1
    assert steering.status().batch == spark.batch
    assert steering._looks.ran is not None
    assert spark.sent == (2 if part == "layout" else 4), "with the budget of a batch that ran"
    assert (steering.status().state, steering.status().errors) == ("steering", 2)


def test_it_waits_for_that_until_the_query_does():
    spark = Spark("busy", 12, 3)
    steering = steering_of(spark, 2)
    polled(steering)
    spark.ran()
    spark.places, spark.between_batches = failing(1, spark.places), lambda: False
    assert turned(steering) == 0
    spark.ran()
    assert turned(steering) == 1, "the next batch is looked at when it has ended"


def test_what_fails_after_each_batch_and_never_between_them_stands_down():
    spark = Spark("after each", 6, 2)
    steering = steering_of(spark)
    polled(steering)
    spark.state_operators = failing(10**6, None)
    spark.ran()
    turned(steering)
    assert steering.status().state == "stood down"
    assert steering.status().errors == 3
    assert "OSError: a passing error" in steering.status().reason
    spark.ran()
    turned(steering)
    assert steering.status().errors == 4, "one look a batch, to know what is there"


def test_after_a_stand_down_that_was_resumed_errors_have_to_come_in_a_row_again():
    spark = Spark("in a row", 6, 2)
    steering = steering_of(spark)
    polled(steering)
    places = spark.places
    spark.ran()
    spark.places = failing(3, places)
    turned(steering)
    assert steering.status().state == "stood down"
    steering.resume()
    for _ in range(4):
        assert turned(steering) == 1
        assert steering.status().state == "steering"
        spark.places = failing(1, places)
        steering.undrain("0")


def test_an_error_after_the_stop_does_not_bring_the_query_back():
    """The thread may be in a call to Spark when it is stopped, which then fails."""
    spark = Spark("after the stop", 6, 2)
    steering = steering_of(spark)
    polled(steering)
    steering.stop()
    for _ in range(5):
        steering._failed(OSError("a late error"))
    assert SteeredQueries.of("after the stop").empty("executor-0")
    assert SteeredQueries.of("after the stop").beside("another") == (0, [])


def test_what_can_be_seen_and_never_sent_stands_down_too():
    """Between batches there is nothing left to send, so the look that is taken once more does not fail."""
    spark = Spark("never sent", 12, 3)
    fails = failing(10**6, None)
    spark.send = lambda found, intended: fails() if intended else None
    steering = steering_of(spark)
    for looks in (1, 1, 0):
        assert turned(steering) == looks
        spark.ran()
    assert steering.status().state == "stood down"
    assert "OSError: a passing error" in steering.status().reason


def test_nobody_waits_for_a_look_that_waits_for_spark():
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


def test_without_the_classic_part_of_pyspark_it_is_one_clear_error():
    """As with a PySpark for Spark Connect alone."""
    code = """
import sys
for name in ("py4j", "py4j.protocol", "py4j.java_gateway"):
    sys.modules[name] = None
from taskplace.errors import UnsupportedSpark
from taskplace.spark import steer
query = type("StreamingQuery", (), {"runId": "r", "__module__": "pyspark.sql.connect.streaming.query"})()
try:
    steer(query)
except UnsupportedSpark as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert "classic PySpark cannot be imported" in done.stdout
    assert "not with Spark Connect" in done.stdout
