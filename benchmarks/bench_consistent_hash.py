"""How many partitions change hands with consistent hashing when one member comes or goes.

    python benchmarks/bench_consistent_hash.py

One topic of 1,000 partitions, one owner each; 20 groups with names of their own per row. "share" is the even share
of who came or went.
"""

from __future__ import annotations

import statistics

from taskplace.groups.metadata import Topics
from taskplace.groups.strategies import ConsistentHash
from taskplace.groups.subscriptions import Member

PARTITIONS, GROUPS = 1_000, 20


def owners(members: list[str], slack: float) -> dict[int, str]:
    """Return the owner of each partition."""
    consumers = {name: Member(["t"]) for name in members}
    given = ConsistentHash(slack=slack).assign(Topics({"t": PARTITIONS}), consumers).assignment
    return {p.partition: name for name, held in given.items() for p in held}


def moved(size: int, slack: float, group: int) -> int:
    """Return how many partitions differ between `size` members and one more."""
    names = [f"{group}-{k}" for k in range(size + 1)]
    before, after = owners(names[:-1], slack), owners(names, slack)
    return sum(before[p] != after[p] for p in before)


def main() -> None:
    """Print the table."""
    print("| members | slack | share | median | most |")
    print("|---|---|---|---|---|")
    for size in (3, 10, 30):
        for slack in (0.0, 0.25, 1.0):
            found = [moved(size, slack, group) for group in range(GROUPS)]
            share = PARTITIONS // (size + 1)
            print(
                f"| {size} and {size + 1} | {slack} | {share} | {statistics.median(found):.0f} | {max(found)} |"
            )


if __name__ == "__main__":
    main()
