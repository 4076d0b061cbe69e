"""Steering: places the state of Spark's own stateful operators across executors, for queries that already exist.

One round, from reading Spark to sending moves:

    executors.py         the executors that may run tasks, and whether they have changed
    observation.py       the observation of a round, as one value and as a problem for the engine
    observe.py           reads the observation from Spark, and learns from the batch that has ended
    load_sampling.py     when and how the load of each task is measured
    task_weights.py      the weight of each task
    measured_costs.py    the cost of a task and of a reload of its state
    decide.py            the decision: decide(config, state, seen) -> (decision, next state), a pure function
      overrides.py         whether Spark ran tasks where they were sent, and when to give up
      goal.py              where tasks belong, and the reasons for a new goal
      load_leveling.py     spreads tasks of different weights
      move_benefit.py      whether moves gain more than the reloads that they cost
      pending_moves.py     the moves that are left, and which of them are made now
    decision.py          the decision as a value
    sent_moves.py        moves that were sent and have not run
    round_memory.py      the state from one round to the next: observed, learned, decided, logged
    steering_round.py    the round: observe, decide, publish, send, log

The application around the rounds:

    config.py            the keys
    application.py       the bridge, the executors and the steered queries, as one handle sees them
    steered_queries.py   the steered queries of an application, and the drains
    published_tasks.py   what a query publishes to the others
    drains.py            removes drained executors, and logs the queries that keep others
    schedule.py          when a round is due
    failures.py          failed rounds
    events.py            the events of a handle, each logged once
    status.py            the status
    polling.py           a thread that polls
    steering.py          the handle that users hold: owns the thread and the lock over a round

Every private call into Spark is in `taskplace.spark.steering.bridge`, which `steer` loads when it is called. The operators
of a query, their stores and stages are a `QueryLayout` of `taskplace.spark.steering.layout`.
Everything here works without Spark. The public names are loaded on first use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taskplace.spark.steering.config import SteeringConfig as SteeringConfig
    from taskplace.spark.steering.steering import Steering as Steering
    from taskplace.spark.steering.steering import steer as steer

_HOME = {"Steering": "steering", "SteeringConfig": "config", "steer": "steering"}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    return value
