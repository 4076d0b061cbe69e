"""Follow jobs that do not end until a test lets them, in a world without Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from taskplace.spark.cluster import Job
from tests.support.placed_without_spark import World


class Held:
    """A follow job that does nothing until `go_on`."""

    def __init__(self, run: Callable[[], Job], on_done: Callable[[], None]) -> None:
        self.done, self.cancelled = threading.Event(), threading.Event()
        self._run, self._on_done = run, on_done
        self._ended: Job

    def go_on(self) -> None:
        """Run the job to its end."""
        self._ended = self._run()
        self.done.set()
        self._on_done()

    def result(self) -> list[Any]:
        return self._ended.result()

    def cancel(self) -> None:
        self.cancelled.set()


class HeldJobs:
    """Holds the follow jobs on some executors of a world.

    - `executors`: the ids of these executors
    - `jobs`: by id, the last job that is held
    - `held`: released once for each job that is held
    - `begun`: the ids of all executors that got a job, in order
    """

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch, *executors: str) -> None:
        self.executors = set(executors)
        self.jobs: dict[str, Held] = {}
        self.held = threading.Semaphore(0)
        self.begun: list[str] = []
        self._really = world.start
        monkeypatch.setattr(world, "start", self._start)

    def _start(
        self, job: Any, partitions: Sequence[int], *, on_done: Callable[[], None], **options: Any
    ) -> Job:
        id = job.locations[0].rpartition("_")[2]
        self.begun.append(id)
        if id not in self.executors:
            return self._really(job, partitions, on_done=on_done, **options)
        self.jobs[id] = Held(lambda: self._really(job, partitions, **options), on_done)
        self.held.release()
        return self.jobs[id]
