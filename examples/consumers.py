"""A consumer group without a broker: members join and leave, and only the partitions that must move do.

Run it from the repository's root:  .venv/bin/python -m examples.consumers

Three consumers read orders and payments; the third reads audits as well. One leaves and one joins. Rebalances have two
phases, so that a consumer reads a partition only after its previous reader has released it. Each consumer keeps state
per partition, and the listener cleans up and initialises exactly the partitions that changed.
"""

from __future__ import annotations

from taskplace.groups.partitions import (
    Member,
    StickyListener,
    Subscriptions,
    TopicPartition,
    assign_partitions,
)

TOPICS = {"orders": 6, "payments": 6, "audits": 2}
BOTH, ALL = ("orders", "payments"), ("orders", "payments", "audits")


class Consumer:
    """A consumer: its partitions, and a state for each."""

    def __init__(self, *topics: str) -> None:
        self.topics = topics
        self.generation = -1
        self.state: dict[tuple[str, int], int] = {}
        self.made = self.dropped = 0
        self.listener = StickyListener(initialise=self._make, clean_up=self._drop)

    def _make(self, tp: tuple[str, int]) -> None:
        self.state[tp] = 0
        self.made += 1

    def _drop(self, tp: tuple[str, int]) -> None:
        del self.state[tp]
        self.dropped += 1


def rebalance(group: dict[str, Consumer], generation: int) -> None:
    """Rebalance: members join with what they own and get their assignment; repeat while partitions are withheld."""
    while True:
        joins = {n: Member(c.topics, sorted(c.state), c.generation) for n, c in group.items()}
        made = assign_partitions(Subscriptions(TOPICS, joins), cooperative=True)
        for name, consumer in group.items():
            consumer.listener.on_assigned(made.assignment[name])
            consumer.generation = generation
        for name, waits in made.withheld.items():
            print(f"  {name} waits for {len(waits)} partitions to be let go")
        if not made.followup:
            break
    for name, consumer in sorted(group.items()):
        print(
            f"  {name}: {len(consumer.state)} partitions; state made {consumer.made}, dropped {consumer.dropped}"
        )
        consumer.made = consumer.dropped = 0
    print(f"  balance score {made.balance_score}")


def main() -> int:
    """Print three rebalances."""
    group = {"ann": Consumer(*BOTH), "bob": Consumer(*BOTH), "cleo": Consumer(*ALL)}
    print("start")
    rebalance(group, 1)
    print("bob leaves")
    del group["bob"]
    rebalance(group, 2)
    print("dora comes")
    group["dora"] = Consumer(*BOTH)
    rebalance(group, 3)
    held = sorted(tp for consumer in group.values() for tp in consumer.state)
    right = held == sorted(TopicPartition(t, p) for t, n in TOPICS.items() for p in range(n))
    print("every partition has one reader" if right else f"wrong: {held}")
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
