"""Runs stages as the driver does, on a bridge without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

from taskplace.spark.bridge import ArrowInput, Executor
from taskplace.spark.driver import stages
from taskplace.spark.driver.bins import TaskCosts
from taskplace.spark.messages import BinDescriptor, Report, ReportGroup
from topology import TaskId


@dataclass
class Job:
    """A started job: the function and the tasks of each bin, and its cancellation."""

    attempt: Callable[[int], Iterator[bytes]]
    tasks: Callable[[int], list[TaskId]]
    on_lost: Callable[[], None] | None = None


class Sparkless:
    """A bridge that runs tasks where they are pinned, one after the other, in this process.

    - `owners`: task -> the id of its executor; "1" for tasks without an entry
    - `elsewhere`: the id of an executor that gets every task, regardless of pins
    - `before_attempt`: called with the task of each attempt; it may raise `JobLostError`
    - `job`: the last job; `rounds`: the number of jobs; `attempted`: the task of each attempt, in order
    """

    local = False

    def __init__(self, runtime) -> None:
        self.runtime = runtime
        self.owners: dict[TaskId, str] = {}
        self.elsewhere: str | None = None
        self.before_attempt: Callable[[TaskId], None] = lambda task: None
        self.job: Job
        self.rounds = 0
        self.attempted: list[TaskId] = []
        self.costs = TaskCosts()
        self._tasks: list[TaskId] = []

    def stage(
        self,
        subtopology: int,
        flights: Sequence[tuple] = (),
        planes: Sequence[tuple] = (),
        reports: Sequence[Report] = (),
    ) -> dict[TaskId, Report]:
        """Run one batch of one subtopology, from the committed positions."""
        runtime = self.runtime
        program = (runtime.first, runtime.second)[subtopology]
        self._tasks = [TaskId(subtopology, p) for p in range(runtime.TASKS[subtopology])]
        setting = runtime.setting(program, reports)
        arrow = None
        if program.external:
            rows = [runtime.input(p, flights, planes) for p in range(runtime.TASKS[subtopology])]
            sizes = tuple(sum(map(len, batches)) for batches in rows)
            arrow = ArrowInput(rows, setting.schema, tuple(range(len(rows))), sizes)
        sizes = arrow.sizes if arrow is not None else (1,) * len(self._tasks)
        work = {"expected": self.costs.estimates(self._tasks, sizes), "histories": runtime.history}
        read = {"boundaries": runtime.boundaries(program, reports), "arrow": arrow}
        tasks = {"tasks": self._tasks, "idle": frozenset()}
        stage = stages.Stage(program=program, setting=setting, **read, **tasks, **work)
        state = SimpleNamespace(
            owners=lambda: {task: Executor(self.owners.get(task, "1"), "host", 1) for task in self._tasks},
            behind=lambda: self._tasks,
        )
        rebalancer: Any = SimpleNamespace(state=state, lock=nullcontext(), loop=SimpleNamespace(generation=1))
        return stages.run(self, stage, rebalancer, lambda lost: None)  # type: ignore[arg-type]

    def keep(self, name: str, value: object) -> SimpleNamespace:
        return SimpleNamespace(to=lambda function: partial(function, value))

    def pinned(
        self,
        elements: Sequence[bytes],
        locations: Sequence[str],
        function: Callable[[list[Any]], Any],
        arrow: ArrowInput | None,
        ranges: Sequence[tuple[int, int]],
    ) -> Job:
        def attempt(i: int) -> Iterator[bytes]:
            element: Any = elements[i]
            if arrow is not None:
                element = element, [batch for part in arrow.rows[slice(*ranges[i])] for batch in part]
            reports = iter(function([element]))
            while True:
                self.runtime.be(self.elsewhere or locations[i].rpartition("_")[2])
                if (report := next(reports, None)) is None:
                    return
                yield report

        return Job(attempt, lambda i: [d.task for d in BinDescriptor.decode(elements[i]).descriptors])

    def run(
        self, job: Job, partitions: Sequence[int], *, on_lost: Callable[[], None], **_: Any
    ) -> list[bytes]:
        job.on_lost = on_lost
        self.job = job
        self.rounds += 1
        done = []
        for i in partitions:
            groups, reported = job.attempt(i), frozenset[TaskId]()
            for task in job.tasks(i):
                self.attempted.append(task)
                self.before_attempt(task)
                if task not in reported:
                    if (group := next(groups, None)) is None:  # its round was cancelled
                        break
                    done.append(group)
                    reported |= ReportGroup.decode(group).tasks
        return done
