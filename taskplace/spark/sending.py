"""Sends large values to executors as broadcasts that can be destroyed.

PySpark broadcasts each function that pickles to more than 1 MB, again for each job, and the broadcast's file stays on
the driver until the session ends. This module sends such a value once.

Properties:
- On executors, each task unpickles its own value, as if it were part of the function. Tasks share nothing.
- A value is sent once per name. A different object replaces it, and the old broadcast is destroyed.
- After `destroy`, no file stays on the driver. A task that first reads the value after that fails.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from pyspark import Broadcast, SparkContext
from pyspark.serializers import CloudPickleSerializer

log = logging.getLogger(__name__)

#: Pickled functions of more bytes are sent as a broadcast; less if Spark's own threshold is lower.
LARGE = 256 << 10


class Sent:
    """A reference to a value that was sent to executors. Jobs pickle only the reference."""

    def __init__(self, sc: SparkContext, pickled: bytes) -> None:
        self._broadcast: Broadcast[bytes] = sc.broadcast(pickled)

    def to(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function` with this value as its first argument."""
        return partial(_called, function, self._broadcast)

    def destroy(self) -> None:
        """Remove the value from driver and executors. Has no effect if the session has ended."""
        try:
            self._broadcast.destroy()
        except Exception as error:
            log.debug("a broadcast value cannot be removed: %s", error)


class Sending:
    """The values that one driver has sent. Thread-safe.

    `large`: pickled functions of more bytes are sent as a broadcast.
    """

    def __init__(self, sc: SparkContext, large: int = LARGE) -> None:
        self._sc, self._large = sc, large
        self._kept: dict[str, tuple[object, Sent]] = {}
        self._lock = threading.Lock()

    def keep(self, name: str, value: object) -> Sent:
        """Return the reference to a value under a name. Sends the value unless the last one under this name is the same
        object.
        """
        with self._lock:
            before = self._kept.get(name)
            if before is not None and before[0] is value:
                return before[1]
            sent = Sent(self._sc, _pickled(value))
            self._kept[name] = value, sent
        if before is not None:
            before[1].destroy()
        return sent

    def lighten(self, function: Callable[..., Any]) -> tuple[Callable[..., Any], Sent | None]:
        """Return a function that is small when pickled, and the reference to destroy after its job; None if none was
        needed.
        """
        pickled = _pickled(function)
        if len(pickled) <= self._large:
            return function, None
        sent = Sent(self._sc, pickled)
        return sent.to(_call), sent

    def close(self) -> None:
        """Destroy all kept values. A later `keep` sends its value again."""
        with self._lock:
            kept, self._kept = self._kept, {}
        for _, sent in kept.values():
            sent.destroy()


def _pickled(value: object) -> bytes:
    return bytes(CloudPickleSerializer().dumps(value))


def _call(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


def _called(function: Callable[..., Any], sent: Broadcast[bytes], *args: Any) -> Any:
    return function(CloudPickleSerializer().loads(sent.value), *args)
