"""Reads the observation of a round from Spark, and learns costs and load from the batch that has ended."""

from __future__ import annotations

from dataclasses import replace

from taskplace.spark.steering.application import SteeredApplication
from taskplace.spark.steering.config import LoadBy, SteeringConfig
from taskplace.spark.steering.measurements import Load
from taskplace.spark.steering.observation import ExecutorSlots, Observation
from taskplace.spark.steering.rounds import Learned, Observed, RoundMemory


def observe(
    app: SteeredApplication, config: SteeringConfig, memory: RoundMemory, *, batch: int, ran: bool
) -> tuple[Observation, Observed, Learned]:
    """Return the observation for a round after `batch`, and the memory updated with it. Spark may take seconds.

    `ran`: the batch has ended since the last round. Refreshes the executors; changes nothing else.
    Errors: any of Spark's.
    """
    app.executors.refresh()
    places, facts = app.bridge.places(memory.observed.layout), app.bridge.facts()
    sent = memory.observed.sent.observed(places)
    observed = replace(memory.observed, batch=batch, places=places, sent=sent)
    learned, load = memory.learned, None
    if ran:
        loaded = sent.loaded_in(batch, after=memory.observed.batch)
        learned, load = _learn(app, config, memory, loaded=loaded)
        observed = replace(observed, ran=places, sent=sent.after_batch(places))
    seen = Observation(
        batch=batch,
        cluster=_cluster(app),
        places=places,
        load=load,
        costs=learned.costs.costs,
        facts=facts,
        ran=ran,
        neighbours=app.queries.neighbours(app.run_id),
    )
    return seen, observed, learned


def _cluster(app: SteeredApplication) -> ExecutorSlots:
    executors = app.executors
    return ExecutorSlots(
        slots={name: executor.cores for name, executor in executors.present.items()},
        draining=app.queries.draining & executors.present.keys(),
        ending=executors.ending,
    )


def _learn(
    app: SteeredApplication, config: SteeringConfig, memory: RoundMemory, *, loaded: int | None
) -> tuple[Learned, Load | None]:
    """Learn from the batch that has just ended; return the updated costs and the measured load of each task.

    `loaded`: how many tasks loaded their state in the batch. If that is unknown (None), the batch does not count for
    the cost of reloads.
    """
    operators, layout = app.bridge.state_operators(), memory.observed.layout
    load, sampling = memory.learned.sampling.after_batch(app.bridge, layout, config)
    seconds = tuple(load.values()) if load and config.load_by == LoadBy.TASK_TIME else ()
    costs = memory.learned.costs.after_batch(
        operators, tasks=len(layout.tasks), loaded=loaded, seconds=seconds
    )
    return Learned(costs, sampling), load
