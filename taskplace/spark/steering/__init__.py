"""Steering: places the state of Spark's own stateful operators across executors, for queries that already exist.

    config.py         the keys
    layout.py         the operators of a query, their stores, and the tasks that they make
    bridge.py         the private calls into Spark
    observation.py    what a round observes, as one value and as a problem for the engine
    measurements.py   learns the weight of each task, and the costs of tasks and of reloads
    target.py         where tasks belong, and the reasons to plan a new target
    moves.py          the moves that are left, which are made now, and whether they are worth it
    decide.py         the decision: decide(config, state, observed) -> (decision, next state), a pure function
    application.py    the executors, the other steered queries, and the drains of all of them
    rounds.py         a round: observe, decide, publish, send, log
    status.py         the decision and the status, as text and as a dict
    steering.py       the handle that users hold: owns the thread, and decides when a round is due

Everything but the bridge works without Spark; `steer` loads it when it is called. The public names are loaded on first
use.
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
