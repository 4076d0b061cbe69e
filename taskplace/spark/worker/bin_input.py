"""Brings a bin's rows from Spark into its Spark task, batch by batch.

**Idea.** Spark sends pairs of byte strings: the bin's element, which is the same in all of them, and one Arrow batch of
its rows. A bin without rows has one pair, with an empty batch. Pairs of byte strings go to Python as they are. A list
of batches would be pickled in the executor's JVM, which holds it several times over while it does.

Memory: one batch at a time, in the JVM and here, plus what the reader keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from taskplace.errors import TaskplaceError

Pairs = Iterable[tuple[bytes, bytes]]


def with_batches(function: Callable[[Iterator[Any]], Iterable[Any]], pairs: Pairs) -> Iterator[Any]:
    """Call `function` with one element: a pair of the bin and its batches, which can be read once.

    Errors: `TaskplaceError` if Spark sends nothing, although its statistics say that there are rows.

    >>> list(with_batches(lambda bins: [(bin_, list(rows)) for bin_, rows in bins], [(b"bin", b"1"), (b"bin", b"2")]))
    [(b'bin', [b'1', b'2'])]
    >>> list(with_batches(lambda bins: [(bin_, list(rows)) for bin_, rows in bins], [(b"bin", b"")]))
    [(b'bin', [])]
    """
    left = iter(pairs)
    first = next(left, None)
    if first is None:
        raise TaskplaceError(
            "a bin: found no rows in its range of the shuffle, expected some by Spark's statistics"
        )
    element, read = first[0], chain((first,), left)
    del first  # its batch is held only until it is read
    batches = (batch for _, batch in read if batch)
    yield from function(iter([(element, batches)]))
    for _ in batches:  # Spark ends a worker that has not read all of its input
        pass
