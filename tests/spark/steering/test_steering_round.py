"""Rounds over a bridge that stands for Spark: when there is one, what it sends, what it learns of load."""

from __future__ import annotations

from taskplace.spark.bridge import Executor
from taskplace.spark.steering import rounds as steering_round
from taskplace.spark.steering.application import Executors
from taskplace.spark.steering.config import SteeringConfig
from taskplace.spark.steering.observation import Facts
from taskplace.spark.steering.steering import Steering
from tests.support.steering_stand_in import POLLS, Spark, polled, steering_of


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
    assert polled(steering) == 1, "one round, and no more of them"
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


def test_what_replaces_the_loss_of_all_executors_is_noticed_while_the_query_waits():
    spark = Spark("all lost", 6, 3, spread=True)
    steering = steering_of(spark)
    polled(steering)
    spark.there = []
    assert polled(steering) == 1, "one round, and no more of them"
    spark.there = [Executor(str(i), "host", 2) for i in (3, 4, 5)]
    assert polled(steering) == 1
    assert sorted(spark.at.values()) == sorted(["executor-3", "executor-4", "executor-5"] * 2)


def test_before_the_first_round_no_executor_is_news():
    executors = Executors(Spark("never read", 6, 3))
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


def test_a_dry_run_does_not_hide_a_change_from_the_thread():
    spark = Spark("dry", 8, 2, spread=True)
    steering = steering_of(spark)
    polled(steering)
    spark.there.append(Executor("2", "host", 2))
    assert steering.plan().moves
    assert spark.sent == 0
    assert polled(steering) == 1
    assert spark.sent == 1


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


def test_sizes_are_listed_once_the_moves_are_sent_and_count_from_the_next_batch_on(monkeypatch):
    spark, sent, loads = Spark("sizes", 12, 3), [], []
    sizes = {t: 41.0 if t.partition == 0 else 1.0 for t in spark.found.tasks}
    spark.state_sizes = lambda found: sent.append(spark.sent) or sizes
    steering = Steering(spark, SteeringConfig(load_by="state.size", max_moves_per_batch=3))
    polled(steering)
    decide = steering_round.decide
    monkeypatch.setattr(
        steering_round,
        "decide",
        lambda config, state, seen: loads.append(seen.load) or decide(config, state, seen),
    )
    for _ in range(8):
        spark.ran()
        polled(steering)
    assert sent[0] == 6, "after what the round before and this one send"
    assert loads == [None, *[sizes] * 5, None, None]
    assert steering.status().load == "by state.size"
    assert steering.status().weights["0_0"] == 41.0


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
