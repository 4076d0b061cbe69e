"""The application as one handle sees it: the executors, the other steered queries, and the drains of all of them.

Each query is steered separately, but all queries share the executors. So each query publishes where its tasks are, and
plans with the tasks of the others: two queries do not both put their odd task on the same executor. A drain applies to
all queries, whichever handle it was requested on. So does a removal: any handle requests it once the executor is empty.
A failed request is repeated, up to three requests over all handles; any answer is final. A query that has stood down
keeps its tasks on a draining executor until a user acts; the handle on which the drain was requested logs that once. An
executor that is gone needs no removal, and no query keeps tasks on it.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from taskplace.errors import InputError
from taskplace.model.problem import Task
from taskplace.spark.cluster import DECOMMISSION_POLLS
from taskplace.spark.instances import instance_name
from taskplace.spark.steering.observation import Neighbours, NeighbourTask
from taskplace.wording import count
from topology.tasks import TaskId

if TYPE_CHECKING:
    from taskplace.spark.bridge import Executor
    from taskplace.spark.steering.bridge import StateBridge

log = logging.getLogger("taskplace.spark.steering")

MOST_TRIES = 3
"""A removal whose request fails is given up after this many tries, over all handles together."""
RETRY_POLLS = 20
"""A failed request is repeated after this many polls of all handles, which is about a second."""


class Blocker(NamedTuple):
    """A query that keeps an executor from being empty, and why. `stuck`: it does so until a user acts.

    >>> print(Blocker("clicks", "has 2 tasks there"))
    query clicks has 2 tasks there
    """

    query: str
    why: str
    stuck: bool = False

    def __str__(self) -> str:
        return f"query {self.query} {self.why}"


@dataclass(frozen=True)
class PublishedTasks:
    """The tasks of one steered query, as the other queries see them.

    `places`: where the tasks belong. `planned`: where other queries count them. That is `places`; for a query that
    has stood down it is where the tasks were at the stand-down. Otherwise, if Spark ran them elsewhere in every
    batch, the other queries would plan again for ever. `ran`: the executors on which tasks ran in the last batch,
    None if unknown. A task that was sent elsewhere may still run there, so an executor is empty only after a batch
    without its tasks. `stood_down`: why the query moves no tasks; empty while it moves them. `drains_version`: the
    version of the drains at the time of the decision.
    """

    places: Mapping[TaskId, str | None] = field(default_factory=dict)
    weights: Mapping[TaskId, float] = field(default_factory=dict)
    ran: frozenset[str] | None = None
    stood_down: str = ""
    drains_version: int = 0
    planned: Mapping[TaskId, str | None] = field(default_factory=dict)

    @property
    def subtopologies(self) -> int:
        """The number of subtopologies of this query in the joint problem."""
        return 1 + max((task.subtopology for task in self.planned), default=-1)

    def blocker(self, query: str, instance: str, *, drains_since: int) -> Blocker | None:
        """Return why this query keeps `instance` from being empty, None if it does not. `query`: its name in logs.

        `drains_since`: the version of the drains with which the executor began to drain.
        """
        if why := self._tasks_on(instance):
            if self.stood_down:
                why = f"has stood down, and {why}: {self.stood_down}; or stop() its handle"
            return Blocker(query, why, stuck=bool(self.stood_down))
        if self.places and self.drains_version < drains_since:
            return Blocker(query, "has not planned since the drain was requested")
        return None

    def _tasks_on(self, instance: str) -> str:
        """Return a text about the tasks that this query has, or may have, on an executor; empty for none."""
        if self.ran is None:
            return f"where its tasks run is unknown{'' if self.stood_down else ' until it has run a batch'}"
        if tasks := sum(name == instance for name in self.places.values()):
            return f"has {count(tasks, 'task')} there"
        return (
            "ran tasks there in its last batch; they have to run elsewhere first"
            if instance in self.ran
            else ""
        )


class SteeredQueries:
    """The steered queries of an application: where the tasks of each query are, and which executors drain.

    Properties: `drains_version` grows with every drain and undrain, so a waiting query notices them. Subtopologies are
    numbered in the order in which queries first published, so all queries plan the same problem. Thread-safe, because
    every query has its own thread.
    - `draining`: the executors that drain; `drains_version`: the number of drains and undrains so far
    - `to_remove`: those of them whose removal was requested once they are empty

    Lifetime: `_names` from `join` to `leave`, `_published` from the first `publish` to `leave`. `_draining_since` has
    the version of the drains with which an executor began to drain. `_tries` counts failed removals; `_waits`, the
    polls until the next one.

    >>> queries = SteeredQueries()
    >>> queries.publish("one", PublishedTasks({TaskId(0, 0): "executor-1"}))
    >>> queries.publish("two", PublishedTasks({TaskId(0, 0): "executor-2"}))
    >>> base, tasks = queries.neighbours("two")
    >>> base, [(str(other.task.id), other.place) for other in tasks]
    (1, [('0_0', 'executor-1')])
    """

    _by_application: dict[str, SteeredQueries] = {}  # noqa: RUF012  one dict for the process is the point
    _class_lock = threading.Lock()

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._published: dict[str, PublishedTasks] = {}
        self.draining: frozenset[str] = frozenset()
        self.to_remove: frozenset[str] = frozenset()
        self.drains_version = 0
        self._draining_since: dict[str, int] = {}
        self._tries: Counter[str] = Counter()
        self._waits: Counter[str] = Counter()
        self._lock = threading.RLock()
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
                expected = "a query that is not steered; use the existing handle, or call its stop() first"
                raise InputError("query", found="a query that is already steered", expected=expected)
            self._names[query] = name or query

    def leave(self, query: str) -> list[str]:
        """Forget a query. With the last query, return the executors whose removal is given up.

        Drains stay: they also apply to queries that are steered later.
        """
        with self._lock:
            self._published.pop(query, None)
            self._names.pop(query, None)
            given_up = [] if self._names else sorted(self.to_remove)
            self.to_remove -= {*given_up}
            return given_up

    def publish(self, query: str, tasks: PublishedTasks, alive: Collection[str] = ()) -> None:
        """Publish where the tasks of `query` belong, and on which executors they ran in its last batch.

        The first call numbers the query. `alive`: the executors that exist. The tasks of a query that has stood down
        count where they were at the stand-down as long as their executor exists.
        """
        with self._lock:
            planned, before = dict(tasks.places), self._published.get(query)
            if before and before.stood_down and tasks.stood_down:
                planned |= {t: at for t in planned if (at := before.planned.get(t)) in alive}
            self._published[query] = replace(tasks, planned=planned)

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
            for task, place in own.planned.items() if name != query else ():
                joint = TaskId(number + task.subtopology, task.partition)
                weighed = Task(joint, end_offset=1, weight=own.weights.get(task, 1.0))
                tasks.append(NeighbourTask(weighed, place, fixed=bool(own.stood_down)))
            number += own.subtopologies
        return Neighbours(number if base is None else base, tasks)

    # -- drains

    def drain(self, instance: str, *, remove: bool = False) -> None:
        """Drain an executor; with `remove`, request its removal once it is empty, with a fresh count of tries."""
        with self._lock:
            self.drains_version += 1
            self._draining_since.setdefault(instance, self.drains_version)
            self.draining |= {instance}
            if remove:
                self.cancel_removal(instance)
                self.to_remove |= {instance}

    def undrain(self, instance: str) -> None:
        """Take back the drain of an executor, and its removal."""
        with self._lock:
            self.drains_version += 1
            self._draining_since.pop(instance, None)
            self.draining -= {instance}
            self.cancel_removal(instance)

    def cancel_removal(self, instance: str) -> None:
        """Cancel the removal of an executor; it still drains."""
        with self._lock:
            self.to_remove -= {instance}
            del self._tries[instance], self._waits[instance]

    def blockers(self, instance: str) -> tuple[Blocker, ...]:
        """Return the steered queries that keep `instance` from being empty, each with the reason; empty without any.

        An executor is empty if no task of a steered query belongs there, nor ran there in its query's last batch. A
        query that has not run a batch yet, or has not planned since the drain began, keeps it from being empty.
        """
        with self._lock:
            since = self._draining_since.get(instance, 0)
            names = dict.fromkeys(self._published) | self._names
            found = [
                self._published.get(query, PublishedTasks()).blocker(
                    name or query, instance, drains_since=since
                )
                for query, name in names.items()
            ]
        return tuple(blocker for blocker in found if blocker)

    def remove(self, instance: str, request: Callable[[], bool | None]) -> bool | None:
        """Call `request` if the executor's removal is pending and the executor is empty; return its answer.

        Without a call, the result is None. Only one query requests at a time. Any answer ends the removal. If
        `request` raises, the removal stays pending, until it has failed `MOST_TRIES` times.
        """
        if not self._removing.acquire(blocking=False):
            return None
        try:
            waits = self._waits[instance]
            self._waits[instance] = max(0, waits - 1)
            if waits or instance not in self.to_remove or self.blockers(instance):
                return None
            try:
                answer = request()
            except Exception:
                with self._lock:
                    self._tries[instance] += 1
                    self._waits[instance] = RETRY_POLLS
                    if self._tries[instance] >= MOST_TRIES:
                        self.cancel_removal(instance)
                raise
            self.cancel_removal(instance)
            return answer
        finally:
            self._removing.release()


class SteeredApplication:
    """The Spark application as one handle sees it. `queries` are shared by all handles of the application.

    Lifetime: `refresh` replaces `present` and `ending`, by instance. Executors in `present` may run tasks. Spark is
    decommissioning those in `ending` and gives them no tasks. `known` has all executors that were ever read.
    `errors` counts this handle's failed requests of removals. `_requested` has the drains requested on this handle, and
    `_stuck` the queries that were logged to keep these executors.
    """

    def __init__(self, bridge: StateBridge, log_event: Callable[[str], None]) -> None:
        self.bridge = bridge
        self.queries = SteeredQueries.of(bridge.app_id)
        self.run_id, self.query_name = bridge.run_id, bridge.name or bridge.id
        self.present: dict[str, Executor] = {}
        self.ending: frozenset[str] = frozenset()
        self.known: frozenset[str] = frozenset()
        self.errors = 0
        self._log_event = log_event
        self._read = False
        self._polls = 0
        self._requested: set[str] = set()
        self._stuck: frozenset[tuple[str, str]] = frozenset()

    # -- the query

    def finished_batch(self) -> int:
        """Return the last batch that has ended, -1 before the first."""
        finished = self.bridge.finished_batch()
        return -1 if finished is None else finished

    def waits_after(self, batch: int) -> bool:
        """Return whether the query waits, and has begun no batch since `batch`."""
        return self.bridge.between_batches() and self.finished_batch() == batch

    # -- the executors

    def refresh(self) -> None:
        """Read the executors from Spark."""
        self._read = True
        present = {executor.instance: executor for executor in self.bridge.executors()}
        # Set `ending` first, so that an executor is always in `present` or in `ending`.
        self.ending = self.bridge.decommissioned() - present.keys()
        self.present = present
        self.known |= self.present.keys() | self.ending

    @property
    def gone(self) -> frozenset[str]:
        """The executors that existed once, but not at the last `refresh`."""
        return self.known - self.present.keys() - self.ending

    def changed(self) -> bool:
        """Return whether the executors that may run tasks changed since the last `refresh`. Mostly one short call.

        Before the first `refresh` nothing has changed. After a `refresh` without executors, the first executor is a
        change.
        """
        if not self._read:
            return False
        present = {executor.id for executor in self.present.values()}
        ending = {name.removeprefix("executor-") for name in self.ending}
        self._polls += 1
        if self._polls % DECOMMISSION_POLLS and self.bridge.alive() == present | ending:
            return False
        # These are no changes: an executor that has not reported its cores yet, and the end of an ending executor.
        self.ending = self.bridge.decommissioned() - self.present.keys()
        return {executor.id for executor in self.bridge.executors()} != present

    def name_of(self, executor: object, *, gone: bool = False, ask: bool = True) -> str:
        """Return the instance that `executor` names. It must exist; with `gone`, it may also have existed.

        Without `ask`, only known executors count, without a call to Spark. Errors: `InputError` for any other.
        """
        name = instance_name(executor)
        names = self.known if gone else frozenset()
        if name not in names and ask:
            names |= {running.instance for running in self.bridge.executors()}
        if name not in names:
            raise InputError("executor", found=executor, expected=f"one of {', '.join(sorted(names))}")
        return name

    # -- drains

    def drain(self, executor: object, *, remove: bool) -> None:
        """Drain an executor for all queries; with `remove`, request its removal once it is empty."""
        name = self.name_of(executor)
        running = {executor.instance for executor in self.bridge.executors()}
        if not running - self.queries.draining - {name}:
            raise InputError(
                "drain", found=name, expected="at least one other executor that can take its tasks"
            )
        self.queries.drain(name, remove=remove)
        self._requested.add(name)
        self._log_event(f"drain of {name} requested" + (", and its removal once empty" if remove else ""))

    def undrain(self, executor: object) -> None:
        """Take back a drain, whichever handle it was requested on."""
        name = self.name_of(executor, gone=True)
        self.queries.undrain(name)
        self._log_event(f"undrain of {name} requested: it may run tasks again")

    def kept(self) -> dict[str, tuple[str, ...]]:
        """Return, for each draining executor that is not empty, which queries keep tasks there, and why."""
        blockers = {name: self.queries.blockers(name) for name in sorted(self.queries.draining - self.gone)}
        return {name: tuple(map(str, blocking)) for name, blocking in blockers.items() if blocking}

    def follow_drains(self) -> None:
        """Request the removals that are due, and log newly stuck queries, each once."""
        wanted = self.queries.to_remove | self._requested
        alive = self.bridge.alive() if wanted else frozenset()
        gone = {name for name in wanted if name.removeprefix("executor-") not in alive}
        self._requested -= gone
        for name in sorted(self.queries.to_remove):
            if name in gone:
                self.queries.cancel_removal(name)
            else:
                self._remove(name)
        drains = [name for name in list(self._requested) if name in self.queries.draining]
        stuck = {
            (name, each.query): each for name in drains for each in self.queries.blockers(name) if each.stuck
        }
        for (name, query), each in stuck.items():
            if (name, query) not in self._stuck:
                self._log_event(f"{name} is not empty: {each}")
        self._stuck = frozenset(stuck)

    def _remove(self, name: str) -> None:
        id_ = name.removeprefix("executor-")
        try:
            accepted = self.queries.remove(
                name, lambda: self.bridge.remove(id_) if id_ in self.bridge.alive() else None
            )
        except Exception as error:
            log.warning("cannot request the removal of %s", name, exc_info=True)
            self.errors += 1
            next_ = "will be requested again" if name in self.queries.to_remove else "is given up"
            self._log_event(f"{name} is empty: {type(error).__name__}, its removal {next_}")
            return
        if accepted is not None:
            answer = "was requested" if accepted else "was refused by the cluster manager"
            self._log_event(f"{name} is empty: its removal {answer}")
