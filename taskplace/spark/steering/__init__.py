"""Steering: places the state of Spark's own stateful operators across executors, for queries that already exist.

One round, from what is read to what is sent:

    layout.py            what there is to steer: operators, stores, and which operators share a stage
    executors.py         which executors may run tasks, and whether that has changed
    observation.py       what a round observes, as one value, and as a problem for the engine
    observe.py           reads it from Spark, and learns from the batch that has ended
    load_sampling.py     when and how the load of each task is measured
    task_weights.py      what each task weighs
    measured_costs.py    what a task and a reload of its state cost
    decide.py            the decision: decide(config, state, seen) -> (decision, next state), a pure function
      overrides.py         whether Spark ran tasks where they were sent, and when to give up
      goal.py              where tasks belong, and the reasons to plan that anew
      load_leveling.py     how tasks of different weights are spread
      move_benefit.py      whether moves gain more than the reloads that they cost
      pending_moves.py     which moves are left, and which of them are made now
    decision.py          the decision as a value
    sent_moves.py        moves that were sent and have not run
    round_memory.py      what one round hands to the next: observed, learned, decided, told
    steering_round.py    the round: observe, decide, publish, send, tell

The application around the rounds:

    config.py            the keys
    application.py       the bridge, the executors and the steered queries, as one handle sees them
    steered_queries.py   the steered queries of an application, and the drains
    published_tasks.py   what a query publishes to the others
    drains.py            removes drained executors, and logs what keeps others
    schedule.py          when a round is due
    failures.py          failed rounds
    events.py            what people are told, once each
    status.py            the status
    polling.py           a thread that polls
    steering.py          the handle that users hold: the only owner of a thread, and of the lock over a round

Every private call into Spark is in `taskplace.spark.bridge_state`, which `steer` loads when it is called.
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
