"""Steering: places the state of Spark's own stateful operators across executors, for queries that already exist.

    layout.py            what there is to steer: operators, stores, and which operators share a stage
    task_weights.py      what each task weighs, as observed
    measured_costs.py    what a task and a reload of its state cost, as observed
    move_benefit.py      whether moves gain more than the reloads they cause
    load_leveling.py     how tasks of different weights are spread
    overrides.py         whether Spark ran tasks where it was told to, and why not
    decision.py          what is known after a batch, and what to do about it
    loop.py              the decision after each batch, without Spark
    steered_queries.py   what the steered queries of an application have in common
    observe.py           how the load of each task is read from Spark
    executors.py         which executors there are, and whether that changed
    drains.py            who keeps an executor from being empty, and how the wait for it ends
    steering_round.py    one round: read what is there, decide, send, learn
    steering.py          the thread that runs rounds, and the handle that users hold

Every private call into Spark is in `taskplace.spark.bridge_state`, which `steer` loads when it is called; all else does
without Spark. The public names are loaded on first use.
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
