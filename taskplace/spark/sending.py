"""Values that a job's function needs beside its elements, and that are too large to be part of it.

PySpark makes a broadcast of each function that pickles to more than 1 MB, a new one with each job, and the file of it
stays on the driver until the session ends. What is sent here is sent once, by a broadcast that can be destroyed.

Properties:
- On executors a value is made anew for each task, as if it were part of the function: tasks share nothing.
- A value that was `kept` under a name is sent again only when it is another one; the one before is destroyed then.
- Destroyed, nothing of it is left on the driver. A task that begins to use it only then fails.
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

#: Bytes of a pickled function from which on it is sent apart; less if Spark's own threshold is lower.
LARGE = 256 << 10


class Sent:
    """Refers to a value that was sent to executors. Only the reference is pickled, in the thread that runs the job."""

    def __init__(self, sc: SparkContext, pickled: bytes) -> None:
        self._broadcast: Broadcast[bytes] = sc.broadcast(pickled)

    def to(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function` with this value as its first argument."""
        return partial(_called, function, self._broadcast)

    def destroy(self) -> None:
        """Remove it everywhere. A session that has ended has done so already."""
        try:
            self._broadcast.destroy()
        except Exception as error:
            log.debug("a broadcast value cannot be removed: %s", error)


class Sending:
    """What one driver has sent, and what becomes of it. Any thread may use it."""

    def __init__(self, sc: SparkContext) -> None:
        self._sc = sc
        threshold = int(sc._jvm.PythonUtils.getBroadcastThreshold(sc._jsc))
        self._large = min(LARGE, threshold)
        self._kept: dict[str, tuple[object, Sent]] = {}
        self._lock = threading.Lock()

    def keep(self, name: str, value: object) -> Sent:
        """Return a value as it was sent under this name; it is sent now if it is another one than before."""
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
        """Return a function that is small when it is pickled, and what to destroy when its job has ended."""
        pickled = _pickled(function)
        if len(pickled) <= self._large:
            return function, None
        sent = Sent(self._sc, pickled)
        return sent.to(_call), sent

    def close(self) -> None:
        """Destroy what is kept; what is asked for again is sent again."""
        with self._lock:
            kept, self._kept = self._kept, {}
        for _, sent in kept.values():
            sent.destroy()


def _pickled(value: object) -> bytes:
    return bytes(CloudPickleSerializer().dumps(value))


def _called(function: Callable[..., Any], sent: Broadcast[bytes], *args: Any) -> Any:
    return function(CloudPickleSerializer().loads(sent.value), *args)


def _call(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)
