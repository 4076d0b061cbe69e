"""What reporters are told of rebalances, losses and batches, from a whole `Placed` without Spark."""

from __future__ import annotations

from taskplace.record.events import BatchDone, ExecutorLost, Rebalanced
from tests.support.word_counts import counts, words

STANDBY = {"num.standby.replicas": 1, "acceptable.recovery.lag": 0}


class Listener:
    """A reporter that keeps what it is told."""

    def __init__(self) -> None:
        self.batches: list[BatchDone] = []
        self.rebalances: list[Rebalanced] = []
        self.losses: list[ExecutorLost] = []
        self.batch, self.rebalance, self.failure = (
            self.batches.append,
            self.rebalances.append,
            self.losses.append,
        )


def test_a_rebalance_has_its_assignment_its_changes_and_its_balance(world):
    world.come(1)
    listener = Listener()
    placed = world.open(counts(world), config=STANDBY, reporter=listener)
    world.batch(placed, 0, **{"in": words(*"abcdef")})
    [told] = listener.rebalances
    plan = placed.loop.plan
    assert told.assignment == {
        name: {role: tuple(map(str, tasks)) for role, tasks in roles._asdict().items()}
        for name, roles in plan.assignment.items()
    }
    assert [str(change.task) for change in told.changes] == [str(move.task) for move in plan.moves]
    assert {change.why for change in told.changes} == {move.why for move in plan.moves}
    assert told.to_go == 0
    assert told.seconds > 0
    assert told.imbalance == placed.metrics()["imbalance-max-mean"] == 1.0
    assert placed.rebalancer.in_force().assignment == told.assignment


def test_a_batch_has_the_lags_of_its_followers(world):
    world.come(1)
    listener = Listener()
    placed = world.open(counts(world), config=STANDBY, reporter=listener)
    world.batch(placed, 0, **{"in": words(*"abcdef")})
    world.batch(placed, 1, **{"in": words(*"abcdef")})
    told = listener.batches[-1]
    by_instance = {view.id: view.lag for view in told.placement}
    summed = {name: sum(told.lags.get(name, {}).values()) for name in by_instance}
    assert summed == by_instance
    assert sum(summed.values()) > 0  # nobody has visited them yet
    assert told.behind == sum(map(len, told.lags.values()))
    world.follow(placed)
    world.batch(placed, 2, **{"in": words("a")})
    assert listener.batches[-1].lags == {}
    assert listener.batches[-1].behind == 0


def test_a_batch_after_a_loss_has_what_was_replayed(world):
    world.come(1)
    listener = Listener()
    placed = world.open(counts(world), config=STANDBY, reporter=listener)
    world.batch(placed, 0, **{"in": words(*"abcdef")})
    world.follow(placed)
    before = placed.summary()
    world.lose("1")
    world.batch(placed, 1, **{"in": words(*"abcdef")})
    [loss] = listener.losses
    assert (loss.instance, loss.batch_id) == ("executor-1", 1)
    told, after = listener.batches[-1].recovery, placed.summary()
    assert told.replayed == after.replayed_records - before.replayed_records
    assert told.restored == after.snapshot_records - before.snapshot_records
    assert told.scratch == after.scratch_restores - before.scratch_restores
    lost = set(listener.rebalances[0].assignment["executor-1"]["active"])
    assert {change.task for change in listener.rebalances[1].changes if change.role == "promotion"} == lost
