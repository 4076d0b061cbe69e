"""The steered queries of one application: which executors drain, and where the tasks of each query are.

Each query is steered separately, but all queries share the executors. So each query publishes where its tasks are, and
plans with the tasks of the others: two queries do not both put their odd task on the same executor. A drain applies to
all queries, whichever handle it was requested on. So does a removal: any handle requests it once the executor is empty.

Properties: `drains_version` grows with every drain and undrain, so a waiting query notices them. Subtopologies are
numbered in the order in which queries first published, so all queries plan the same problem.
Thread-safe, because every query has its own thread.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from taskplace.errors import InputError
from taskplace.model.problem import Task
from taskplace.spark.steering.application import Blocker, PublishedTasks
from taskplace.spark.steering.observation import Neighbours, NeighbourTask
from topology.tasks import TaskId

MOST_TRIES = 3
"""A removal whose request fails is given up after this many tries, over all handles together."""


class SteeredQueries:
    """The steered queries of an application.

    Lifetime: `_names` from `join` to `leave`, `_published` from the first `publish` to `leave`. `_draining` has, for
    each draining executor, the version of the drains with which it began to drain. `_tries` counts failed removals.

    >>> queries = SteeredQueries()
    >>> queries.publish("one", {TaskId(0, 0): "executor-1"}, {})
    >>> queries.publish("two", {TaskId(0, 0): "executor-2"}, {})
    >>> base, tasks = queries.neighbours("two")
    >>> base, [(str(other.task.id), other.place) for other in tasks]
    (1, [('0_0', 'executor-1')])
    """

    _by_application: dict[str, SteeredQueries] = {}  # noqa: RUF012  one dict for the process is the point
    _class_lock = threading.Lock()

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._published: dict[str, PublishedTasks] = {}
        self._draining: dict[str, int] = {}
        self._to_remove: set[str] = set()
        self._tries: Counter[str] = Counter()
        self._drains_version = 0
        self._lock = threading.Lock()
        self._removing = threading.Lock()

    @classmethod
    def of(cls, application: str) -> SteeredQueries:
        """Return the steered queries of an application, by Spark's id of it."""
        with cls._class_lock:
            return cls._by_application.setdefault(application, cls())

    # -- queries

    def join(self, query: str, name: str = "") -> None:
        """Register `query` as steered until it leaves. Errors: `InputError` if it is steered already.

        Two handles on one query would each send moves and overrule the other.
        """
        with self._lock:
            if query in self._names:
                raise InputError(
                    "query",
                    found="a query that is already steered",
                    expected="a query that is not steered; use the existing handle, or call its stop() first",
                )
            self._names[query] = name or query

    def leave(self, query: str) -> list[str]:
        """Forget a query. With the last query, return the executors whose removal is given up.

        Drains stay: they also apply to queries that are steered later.
        """
        with self._lock:
            self._published.pop(query, None)
            self._names.pop(query, None)
            given_up = [] if self._names else sorted(self._to_remove)
            self._to_remove.difference_update(given_up)
            return given_up

    def publish(
        self,
        query: str,
        places: Mapping[TaskId, str | None],
        weights: Mapping[TaskId, float],
        *,
        ran: Collection[str] | None = (),
        stood_down: str = "",
        drains_version: int | None = None,
        alive: Collection[str] | None = None,
    ) -> None:
        """Publish where the tasks of `query` belong, and on which executors they ran in its last batch.

        The first call numbers the query. `ran`: None while no batch of the query was observed. `stood_down`: why no
        task moves. `drains_version`: the version of the drains at the time of the decision, None for the current one.
        `alive`: the executors that exist, None for any. The tasks of a query that has stood down count where they were
        at the stand-down as long as their executor exists.
        """
        with self._lock:
            planned, before = dict(places), self._published.get(query)
            if before and before.stood_down and stood_down:
                was = {task: before.planned.get(task) for task in places}
                planned |= {t: name for t, name in was.items() if name and (alive is None or name in alive)}
            self._published[query] = PublishedTasks(
                places=dict(places),
                weights=dict(weights),
                ran=None if ran is None else frozenset(ran),
                stood_down=stood_down,
                drains_version=self._drains_version if drains_version is None else drains_version,
                planned=planned,
            )

    def publish_unknown(self, query: str, stood_down: str) -> None:
        """Publish that `query` has stood down, and that it is unknown where its tasks run."""
        with self._lock:
            before = self._published.get(query, PublishedTasks())
            self._published[query] = replace(before, ran=None, stood_down=stood_down)

    def neighbours(self, query: str) -> Neighbours:
        """Return the tasks of all other queries, and the number of `query`'s first subtopology beside them."""
        with self._lock:
            published = dict(self._published)
        number, base, tasks = 0, None, list[NeighbourTask]()
        for name, own in published.items():
            if name == query:
                base = number
            else:
                tasks += _numbered(own, number)
            number += own.subtopologies
        return Neighbours(number if base is None else base, tasks)

    # -- drains

    @property
    def draining(self) -> frozenset[str]:
        """The executors that drain."""
        with self._lock:
            return frozenset(self._draining)

    @property
    def to_remove(self) -> frozenset[str]:
        """The executors whose removal was requested once they are empty; they drain."""
        with self._lock:
            return frozenset(self._to_remove)

    @property
    def drains_version(self) -> int:
        """The number of drains and undrains so far."""
        with self._lock:
            return self._drains_version

    def drain(self, instance: str, *, remove: bool = False) -> None:
        """Drain an executor; with `remove`, request its removal once it is empty, with a fresh count of tries."""
        with self._lock:
            self._drains_version += 1
            self._draining.setdefault(instance, self._drains_version)
            if remove:
                self._to_remove.add(instance)
                del self._tries[instance]

    def undrain(self, instance: str) -> None:
        """Take back the drain of an executor, and its removal."""
        with self._lock:
            self._drains_version += 1
            self._draining.pop(instance, None)
            self._to_remove.discard(instance)
            del self._tries[instance]

    def empty(self, instance: str) -> bool:
        """Return whether no task of a steered query belongs on `instance`, nor ran there in its query's last batch.

        A query that has not run a batch yet, or has not planned since the drain began, keeps it from being empty.
        """
        return not self.blockers(instance)

    def blockers(self, instance: str) -> tuple[Blocker, ...]:
        """Return the steered queries that keep `instance` from being empty, each with the reason."""
        with self._lock:
            published, names = dict(self._published), dict(self._names)
            since = self._draining.get(instance, 0)
        blockers = (
            published.get(query, PublishedTasks()).blocker(
                names.get(query, query), instance, drains_since=since
            )
            for query in dict.fromkeys([*published, *names])
        )
        return tuple(blocker for blocker in blockers if blocker)

    # -- removals

    def remove(self, instance: str, request: Callable[[], bool | None]) -> bool | None:
        """Call `request` if the executor's removal is pending and the executor is empty; return its answer.

        Without a call, the result is None. Only one query requests at a time. Any answer ends the removal. If
        `request` raises, the removal stays pending, until it has failed `MOST_TRIES` times.
        """
        if not self._removing.acquire(blocking=False):
            return None
        try:
            if instance not in self.to_remove or not self.empty(instance):
                return None
            try:
                answer = request()
            except Exception:
                self._count_try(instance)
                raise
            self.cancel_removal(instance)
            return answer
        finally:
            self._removing.release()

    def tries(self, instance: str) -> int:
        """Return how many requests to remove an executor have failed since its drain was requested."""
        with self._lock:
            return self._tries[instance]

    def cancel_removal(self, instance: str) -> None:
        """Cancel the removal of an executor; it still drains."""
        with self._lock:
            self._to_remove.discard(instance)

    def _count_try(self, instance: str) -> None:
        with self._lock:
            self._tries[instance] += 1
            if self._tries[instance] >= MOST_TRIES:
                self._to_remove.discard(instance)


def _numbered(own: PublishedTasks, number: int) -> list[NeighbourTask]:
    """Return the tasks of a query whose first subtopology has this number in the joint problem."""
    tasks = []
    for task, place in own.planned.items():
        joint = TaskId(number + task.subtopology, task.partition)
        weighed = Task(joint, end_offset=1, weight=own.weights.get(task, 1.0))
        tasks.append(NeighbourTask(weighed, place, fixed=bool(own.stood_down)))
    return tasks
