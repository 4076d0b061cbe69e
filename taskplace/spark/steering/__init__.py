"""Steering: places the state of Spark's own stateful operators across executors, for queries that already exist.

    layout.py    what there is to steer: operators, stores, and which operators share a stage
    load.py      what a task weighs; prices.py what a move costs; worth.py whether it is worth it
    relief.py    where tasks weigh differently: what is hot costs its executor others
    watch.py     whether Spark did as intended, and why not
    decision.py  what is there after a batch, and what to do about it
    loop.py      what to send where after a batch: the decisions, without Spark
    fleet.py     what the steered queries of an application have in common
    observe.py   what is observed of each task
    executors.py which executors there are, and whether that changed
    drains.py    what becomes of drains: who keeps an executor, and the question for its end
    looks.py     a look: what is seen, decided and sent, and what is learned from it
    handle.py    the thread that looks, and the handle that users hold

Every private call into Spark is in `taskplace.spark.bridge_state`, which `steer` loads when it is called; all else does
without Spark. The public names are loaded on first use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taskplace.spark.steering.config import SteeringConfig as SteeringConfig
    from taskplace.spark.steering.handle import Steering as Steering
    from taskplace.spark.steering.handle import steer as steer

_HOME = {"Steering": "handle", "SteeringConfig": "config", "steer": "handle"}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    return value
