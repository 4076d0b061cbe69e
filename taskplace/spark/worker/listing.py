"""The list of the slices that a stage reads: the driver writes it to one file, and each worker reads it once.

**Idea.** A stage with N writers and P readers has up to N * P slices. As messages, a million of them would cost each
worker half a second and 200 MB. So only the head is a message: the writers of each topic. The slices are an array
(`SLICE`), sorted by partition and then by writer, and a reader takes what it needs by partition.

The file has the length of its head (8 bytes, little-endian), the head as JSON (a `ListingHead` for each topic), and the
arrays of the topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from taskplace.spark.checkpoint.files import read_sealed, write_file
from taskplace.spark.codec import checksum_of, decoded, encoded
from taskplace.spark.messages import Boundary, ListingFile, ListingHead

#: One slice, with the position of its writer in `ListingHead.writers`.
SLICE = np.dtype(
    [
        ("partition", "<i4"),
        ("writer", "<i4"),
        ("offset", "<i8"),
        ("length", "<i8"),
        ("rows", "<i8"),
        ("crc", "<u4"),
    ]
)


@dataclass(frozen=True)
class TopicListing:
    """The slices of one internal topic: the driver lists them, and the bins of a stage choose theirs.

    `slices` is an array of `SLICE`, sorted by partition and then by writer.
    """

    head: ListingHead
    slices: npt.NDArray[Any]

    def of(self, partitions: Iterable[int]) -> npt.NDArray[Any]:
        """Return the slices of some partitions, in their order. O(partitions + their slices)."""
        known = range(len(self._starts) - 1)
        parts = [
            self.slices[self._starts[one] : self._starts[one + 1]]
            for one in sorted(partitions)
            if one in known
        ]
        return np.concatenate(parts) if parts else self.slices[:0]

    @cached_property
    def _starts(self) -> list[int]:
        """By partition, where its slices begin; at the end, where those of the last one end."""
        partitions = np.ascontiguousarray(self.slices["partition"])
        edges = np.arange(partitions[-1] + 2 if len(partitions) else 1, dtype=partitions.dtype)
        return np.searchsorted(partitions, edges).tolist()


def write_listing(root: Path, file: str, topics: Mapping[str, Sequence[Boundary]]) -> ListingFile:
    """Write the list of boundaries that a stage reads, by topic. O(n log n) for n slices."""
    listed = {topic: _listed(boundaries) for topic, boundaries in topics.items()}
    heads = encoded({topic: one.head for topic, one in listed.items()})
    data = b"".join(
        [len(heads).to_bytes(8, "little"), heads, *(one.slices.tobytes() for one in listed.values())]
    )
    write_file(root / file, data, sync=False)  # not synced, like the files that it lists
    return ListingFile(file, len(data), checksum_of(data))


@lru_cache(maxsize=1)  # all bins of a stage that a worker runs read the same list
def read_listing(root: Path, listing: ListingFile) -> Mapping[str, TopicListing]:
    """Return the slices by topic. Errors: `CheckpointError` for a missing or damaged file."""
    data = memoryview(read_sealed(root / listing.file, listing.size, listing.checksum))
    at = 8 + int.from_bytes(data[:8], "little")
    found = {}
    for topic, head in decoded(dict[str, ListingHead], bytes(data[8:at])).items():
        found[topic] = TopicListing(head, np.frombuffer(data, SLICE, head.slices, at))
        at += found[topic].slices.nbytes
    return found


def _listed(boundaries: Sequence[Boundary]) -> TopicListing:
    # Only writers with rows count: an empty table may lack columns, or have wrong types.
    some = [boundary for boundary in boundaries if boundary.slices] or list(boundaries[:1])
    schemas = {schema: number for number, schema in enumerate(dict.fromkeys(one.schema for one in some))}
    files = {file: number for number, file in enumerate(dict.fromkeys(one.file for one in some))}
    slices = np.fromiter(
        (
            (partition, writer, piece.offset, piece.length, piece.rows, piece.crc)
            for writer, boundary in enumerate(some)
            for partition, piece in boundary.slices.items()
        ),
        SLICE,
    )
    head = ListingHead(
        writers=tuple(one.task for one in some),
        files=tuple(files),
        schemas=tuple(schemas),
        written_to=tuple(files[one.file] for one in some),
        written_as=tuple(schemas[one.schema] for one in some),
        slices=len(slices),
    )
    return TopicListing(head, slices[np.argsort(slices["partition"], kind="stable")])
