"""A bridge that replaces Spark, and handles on it that tests poll."""

from __future__ import annotations

from taskplace.spark.bridge import Executor
from taskplace.spark.cluster import DECOMMISSION_POLLS
from taskplace.spark.steering.application import PublishedTasks, SteeredQueries
from taskplace.spark.steering.config import SteeringConfig
from taskplace.spark.steering.layout import QueryLayout, SparkSettings, StateOperator
from taskplace.spark.steering.measurements import MeasuredCosts
from taskplace.spark.steering.steering import Steering

POLLS = 3 * DECOMMISSION_POLLS


class Spark:
    """A query with one operator that waits for data. `ran` ends one more batch.

    - `at`: the coordinator's map, which shows sent locations at once
    - `running`: the executors on which the last batch really ran
    """

    def __init__(
        self, app: str, partitions: int, executors: int, *, run: str = "run", spread: bool = False
    ) -> None:
        self.app_id, self.run_id, self.name, self.id = app, run, run, run
        self.there = [Executor(str(i), "host", 2) for i in range(executors)]
        self.ending: set[str] = set()
        self.found = QueryLayout(((StateOperator(0, "stateStoreSave", ("default",), partitions),),))
        self.at = {t: f"executor-{t.partition % executors if spread else 0}" for t in self.found.tasks}
        self.batch, self.rounds, self.sent, self.on = 0, 0, 0, True
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

    def settings(self) -> SparkSettings:
        return SparkSettings()

    def layout(self, *, planned: bool) -> QueryLayout:
        return self.found

    def places(self, found: QueryLayout):
        self.rounds += 1
        return dict(self.at)

    def send(self, found: QueryLayout, intended) -> None:
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

    def task_load(self, found: QueryLayout, by: str):
        return {}


def steering_of(spark: Spark, per_batch: int = 1) -> Steering:
    return Steering(spark, SteeringConfig(max_moves_per_batch=per_batch, load_by="even"))


def polled(steering: Steering, times: int = POLLS) -> int:
    """Poll as the thread does. Return the number of rounds."""
    return sum(steering._turn() for _ in range(times))


def publish(steered: SteeredQueries, query: str, places, weights=(), *, alive=(), **more) -> None:
    """Publish the tasks of a query that has run a batch and has planned since the last drain."""
    tasks = PublishedTasks(
        places, dict(weights), ran=frozenset(), drains_version=steered.drains_version, **more
    )
    steered.publish(query, tasks, alive)


def failing(times: int, really):
    """Return a function that fails this many times, and then works."""
    left = [OSError("a passing error")] * times
    return lambda *args, **kwargs: (_ for _ in ()).throw(left.pop()) if left else really(*args, **kwargs)


def turned(steering: Steering, times: int = POLLS) -> int:
    """Poll as the thread does, including its handling of errors. Return the number of rounds."""
    rounds = 0
    for _ in range(times):
        try:
            rounds += steering._turn()
        except OSError as error:
            steering._failed(error)
    return rounds


def reloads_counted(monkeypatch) -> list[int | None]:
    """Return a growing list: the number of state loads in each batch that costs are learned from, None if unknown."""
    counted, really = [], MeasuredCosts.after_batch

    def after_batch(costs, operators, *, tasks, loaded, seconds=()):
        counted.append(loaded)
        return really(costs, operators, tasks=tasks, loaded=loaded, seconds=seconds)

    monkeypatch.setattr(MeasuredCosts, "after_batch", after_batch)
    return counted


def on(places, name: str) -> int:
    return sum(place == name for place in places.values())


def pair(app: str, budget: int = 4):
    """Return two steered queries that have run a few batches, each with two tasks on each of three executors."""
    queries = [Spark(app, 6, 3, run=run, spread=True) for run in ("a", "b")]
    handles = [steering_of(query, budget) for query in queries]
    for _ in range(3):
        for query, steering in zip(queries, handles, strict=True):
            query.ran()
            polled(steering)
    return (*queries, *handles)


def unreadable(app: str):
    """Return two queries on three executors. The operators of the second cannot be read, so it stops steering."""
    queries = [Spark(app, 6, 3, run=run, spread=True) for run in ("a", "b")]
    queries[1].layout = failing(10**6, None)
    handles = [steering_of(query, 6) for query in queries]
    for steering in handles:
        SteeredQueries.of(app).join(steering._app.run_id)
    for _ in range(3):
        for query, steering in zip(queries, handles, strict=True):
            query.ran()
            turned(steering)
    return (*queries, *handles)
