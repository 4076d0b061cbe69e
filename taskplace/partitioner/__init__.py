"""Chooses the partition of each record: by Kafka's hash of its key, or in turns measured in bytes if it has no key.

**Idea.** Kafka's first sticky partitioner moved on whenever a batch was sent. A slow broker sends its batches late, so
it kept the turn longer and got more records, which made it slower. `UniformStickyPartitioner` moves on after so many
*bytes*, whatever the brokers do.

Properties:
- strictly uniform: at any time, the bytes of two partitions differ by less than a turn and the largest record. A record
  that exceeds its turn is taken off the next turn of that partition (deficit round robin);
- sticky: consecutive records stay together for a whole turn;
- a partition without a leader gets no keyless record while another partition has a leader. It is not compensated: it
  returns with the next round, level with the others;
- keyed records go where Kafka's own producers put them, and do not count towards turns;
- reproducible: `seed` alone determines the order of the turns, and `assign` for a whole batch returns what `partition`
  returns record by record;
- `UniformStickyPartitioner` serves one topic and one thread at a time; `TopicPartitioner` serves many of both.

Non-goals: buffering and sending. Adaptive turns (weighted by queue length, without slow partitions) give up uniformity
for throughput. KIP-794's first version rejects them. Kafka's released producer has them on by default; here they are
off.

Reading order: `config`, `interface`, `hashing` (records with a key), `turns` (records without one), `availability`
(which partitions take part in turns), `sticky` (one topic), `topics` (many topics and threads), `arguments`.

Source: KIP-794, first version (uniform) and as released (adaptive).
"""

from taskplace.groups.partitioner import (
    MOST_BYTES,
    MOST_COUNTED,
    Partitioner,
    TopicPartitioner,
    UniformStickyPartitioner,
    murmur2,
    partition_for_key,
)
from taskplace.groups.settings import PartitionerConfig

__all__ = [
    "MOST_BYTES",
    "MOST_COUNTED",
    "Partitioner",
    "PartitionerConfig",
    "TopicPartitioner",
    "UniformStickyPartitioner",
    "murmur2",
    "partition_for_key",
]
