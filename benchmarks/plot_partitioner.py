"""KIP-794's argument as a simulation: 30 partitions, each on a broker of its own, linger 0, one broker slow.

    python benchmarks/plot_partitioner.py [--table] [FILE]

Prints the table of docs/partitioner.md, and draws its picture unless `--table` (FILE: docs/img/partitioner.svg).
Three partitioners see the same records: Kafka's first sticky one (KIP-480), which moves on when a batch begins, and
`UniformStickyPartitioner`, strictly uniform and adaptive.
"""

from __future__ import annotations

import argparse
import heapq
import random
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path

from taskplace.groups.partitioner import PartitionerConfig, UniformStickyPartitioner

PICTURE = Path(__file__).parents[1] / "docs" / "img" / "partitioner.svg"
PARTITIONS = 30
SLOW = 7  # the partition whose broker is slow
IN_FLIGHT = 5
RECORD = 1_000  # bytes
BATCH = 16_384
NAMES = ("sticky (KIP-480)", "uniform", "adaptive")
ROTATING = "sticky, in rotation"


class SwitchOnNewBatch:
    """Kafka's first sticky partitioner: the partition stays until a new batch begins for it; then another, at random.

    It is also what a partitioner of one's own looks like: `on_new_batch` is the hook for it. `rotate` takes the
    partitions in turn instead, which is how the text counts.
    """

    def __init__(self, partitions: int, seed: int = 0, *, rotate: bool = False) -> None:
        self._partitions = partitions
        self._rotate = rotate
        self._random = random.Random(seed)
        self._current = 0 if rotate else self._random.randrange(partitions)

    def partition(self, key: bytes | None, size: int) -> int:
        return self._current

    def on_new_batch(self, partition: int) -> None:
        if partition == self._current:
            step = 1 if self._rotate else 1 + self._random.randrange(self._partitions - 1)
            self._current = (partition + step) % self._partitions


@dataclass
class Producer:
    """A producer with linger 0: a batch is sent as soon as its broker takes one more; until then it fills."""

    partitioner: SwitchOnNewBatch | UniformStickyPartitioner
    latency: list[float]  # seconds from sending a batch to its answer, by partition
    now: float = 0.0
    records: Counter[int] = field(default_factory=Counter)  # produced, by partition
    sent: Counter[int] = field(default_factory=Counter)  # records, by partition
    batches: Counter[int] = field(default_factory=Counter)  # they were sent in, by partition
    first_wait: int | None = None  # how many records had been produced when the first one had to wait
    most_waiting: int = 0  # records

    def __post_init__(self) -> None:
        self._queues: list[deque[int]] = [deque() for _ in self.latency]  # batches not sent yet, in records
        self._flying = [0] * len(self.latency)
        self._answers: list[tuple[float, int]] = []
        self._waiting = 0

    def produce(self, at: float) -> None:
        """Produce one record at a time (seconds)."""
        while self._answers and self._answers[0][0] <= at:
            self.now, partition = heapq.heappop(self._answers)
            self._flying[partition] -= 1
            self._send(partition)
        self.now = at
        chosen = self.partitioner.partition(None, RECORD)
        if not self._has_room(chosen):
            # As in Kafka's producer: the record has not been added yet, and the partitioner may choose again.
            if isinstance(self.partitioner, SwitchOnNewBatch):
                self.partitioner.on_new_batch(chosen)
            if isinstance(self.partitioner, SwitchOnNewBatch):
                chosen = self.partitioner.partition(None, RECORD)
        self.records[chosen] += 1
        queue = self._queues[chosen]
        if self._has_room(chosen):
            queue[-1] += 1
        else:
            queue.append(1)
        self._waiting += 1
        self._send(chosen)
        if self._waiting and self.first_wait is None:
            self.first_wait = sum(self.records.values())
        self.most_waiting = max(self.most_waiting, self._waiting)

    def backlog(self) -> dict[int, int]:
        return {p: len(queue) for p, queue in enumerate(self._queues)}

    def _has_room(self, partition: int) -> bool:
        queue = self._queues[partition]
        return bool(queue) and (queue[-1] + 1) * RECORD <= BATCH

    def _send(self, partition: int) -> None:
        while self._queues[partition] and self._flying[partition] < IN_FLIGHT:
            count = self._queues[partition].popleft()
            self._waiting -= count
            self.sent[partition] += count
            self.batches[partition] += 1
            self._flying[partition] += 1
            heapq.heappush(self._answers, (self.now + self.latency[partition], partition))


def make(name: str, seed: int) -> SwitchOnNewBatch | UniformStickyPartitioner:
    if name in (NAMES[0], ROTATING):
        return SwitchOnNewBatch(PARTITIONS, seed, rotate=name == ROTATING)
    config = PartitionerConfig(batch_size=BATCH, adaptive=name == NAMES[2])
    return UniformStickyPartitioner(PARTITIONS, config, seed=seed)


def run(
    name: str, *, slow: float, fast: float = 0.005, rate: float = 20_000, seconds: float = 20, seed: int = 1
) -> Producer:
    """Return a producer that has produced `rate` records a second; latencies in seconds."""
    latency = [fast] * PARTITIONS
    latency[SLOW] = slow
    producer = Producer(make(name, seed), latency)
    for k in range(int(rate * seconds)):
        producer.produce(k / rate)
        if name == NAMES[2] and k % 100 == 0:
            producer.partitioner.update_load(producer.backlog())  # type: ignore[attr-defined]
    return producer


def slow_share(producer: Producer) -> float:
    """Return the slow partition's records over the mean of the others."""
    total = sum(producer.records.values())
    return producer.records[SLOW] / ((total - producer.records[SLOW]) / (PARTITIONS - 1))


def table() -> list[tuple[str, str, str, str, str]]:
    """Return a row for each partitioner: slow / others, records per batch with equal brokers, and so on."""
    rows = []
    for name in (NAMES[0], ROTATING, *NAMES[1:]):
        skewed, equal = run(name, slow=0.1), run(name, slow=0.005)
        # Answers that take long show when batching begins: nothing comes back before.
        begin = run(name, slow=10, fast=10, seconds=0.05)
        rows.append(
            (
                name,
                f"{slow_share(skewed):.2f}",
                f"{equal.sent.total() / equal.batches.total():.1f}",
                str(begin.first_wait),
                str(skewed.most_waiting),
            )
        )
    return rows


HEADER = (
    "partitioner",
    "slow / others, records",
    "records per batch, equal brokers",
    "first record that waits",
    "most records waiting",
)


def draw(file: Path) -> None:
    import matplotlib as mpl  # of the extra "plots"
    from matplotlib.figure import Figure

    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "taskplace", "font.size": 9})
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    for axis, name in zip(axes, NAMES, strict=True):
        producer = run(name, slow=0.1)
        heights = [producer.records[p] for p in range(PARTITIONS)]
        colours = ["#d1495b" if p == SLOW else "#2f6f9f" for p in range(PARTITIONS)]
        axis.bar(range(PARTITIONS), heights, color=colours, width=0.85)
        axis.set_title(f"{name}: slow / others = {slow_share(producer):.2f}", fontsize=9)
        axis.set_xlabel("partition (red: its broker is slow)")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("records in 20 s")
    figure.savefig(file, format="svg", metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", nargs="?", type=Path, default=PICTURE)
    parser.add_argument("--table", action="store_true", help="print the table, draw nothing")
    args = parser.parse_args()
    print("| " + " | ".join(HEADER) + " |\n|" + "---|" * len(HEADER))
    for row in table():
        print("| " + " | ".join(row) + " |")
    if not args.table:
        draw(args.file)
        print(f"{args.file} written")


if __name__ == "__main__":
    main()
