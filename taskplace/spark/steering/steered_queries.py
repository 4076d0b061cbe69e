"""What the steered queries of one application have in common: the executors, which of them drain, and each other.

Each query is steered by itself, but all share the slots. So each publishes where its tasks are, and plans with the
others in view: two queries do not both put the odd task on the same executor. A drain holds for all of them, whichever
was told, and so does the wish that an executor ends once it is empty; any of them carries that out.

Properties: `version` grows with every drain and every one taken back, so that a query that waits notices. The
numbering of subtopologies follows the order in which queries joined, so all queries see one problem. Thread-safe; each
query has its own thread.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from taskplace.errors import InputError
from taskplace.model.problem import Task
from taskplace.model.reading import MOST
from taskplace.spark.steering.decision import Other
from topology.ids import TaskId

MOST_TRIES = 3


@dataclass(frozen=True)
class Published:
    """What a query tells the others: where its tasks belong, what they weigh, and where they ran (None: nobody knows).

    Only what ran leaves an instance empty: what was sent elsewhere may still be running there. `stood_down`: why it
    moves nothing any more; empty while it does. `version`: of the fleet, when it looked which instances drain.
    `planned`: where others take its tasks to be. That is `places`, but of a query that has stood down, where they were
    then: Spark may run them elsewhere in each batch, and others would move after them for ever.
    """

    places: Mapping[TaskId, str | None]
    weights: Mapping[TaskId, float]
    ran: frozenset[str] | None
    stood_down: str = ""
    version: int = 0
    planned: Mapping[TaskId, str | None] = field(default_factory=dict)

    @property
    def subtopologies(self) -> int:
        """How many numbers it takes."""
        return 1 + max((task.subtopology for task in self.planned), default=-1)


class Keeper(NamedTuple):
    """A query that keeps an instance from being empty, and why; `stuck`: it will, unless somebody does something.

    >>> print(Keeper("clicks", "2 tasks there"))
    query clicks: 2 tasks there
    """

    query: str
    why: str
    stuck: bool = False

    def __str__(self) -> str:
        return f"query {self.query}: {self.why}"


class SteeredQueries:
    """The steered queries of an application.

    >>> fleet = SteeredQueries()
    >>> fleet.publish("one", {TaskId(0, 0): "executor-1"}, {})
    >>> fleet.publish("two", {TaskId(0, 0): "executor-2"}, {})
    >>> base, others = fleet.beside("two")
    >>> base, [(str(other.task.id), other.place) for other in others]
    (1, [('0_0', 'executor-1')])
    """

    _by_application: dict[str, SteeredQueries] = {}  # noqa: RUF012  one dict for the process is the point
    _lock = threading.Lock()

    def __init__(self) -> None:
        self._published: dict[str, Published] = {}
        self._draining: dict[str, int] = {}  # with the version since which it does
        self._leaving: set[str] = set()
        self._tries: Counter[str] = Counter()  # how often an end could not be asked for
        self._steered: dict[str, str] = {}  # the names of the queries, for people
        self._version = 0
        self._own = threading.Lock()
        self._ending = threading.Lock()

    @classmethod
    def of(cls, application: str) -> SteeredQueries:
        """Return the fleet of an application, by Spark's id of it."""
        with cls._lock:
            return cls._by_application.setdefault(application, cls())

    def join(self, query: str, name: str = "") -> None:
        """Take note that `query` is steered, until it leaves. Errors: `InputError` if it is steered already.

        Two that steer one query would move twice as much, and each would overrule the other.
        """
        with self._own:
            if query in self._steered:
                raise InputError(
                    "query",
                    found="a query that is steered already",
                    expected="one that is not; use its handle, or stop() that first",
                )
            self._steered[query] = name or query

    def publish(
        self,
        query: str,
        places: Mapping[TaskId, str | None],
        weights: Mapping[TaskId, float],
        ran: Collection[str] | None = (),
        stood_down: str = "",
        version: int | None = None,
        alive: Collection[str] | None = None,
    ) -> None:
        """Take note of where the tasks of `query` belong, and on which instances they ran in its last batch.

        It is numbered by its first call. `ran` is None while no batch of it was seen. `stood_down`: why nothing moves.
        `version`: the one that this was decided for, None for that of now. `alive`: the instances that there are, None
        for any; where a query has stood down, tasks count on as long as their instance is there.
        """
        with self._own:
            seen = None if ran is None else frozenset(ran)
            version = self._version if version is None else version
            planned, before = dict(places), self._published.get(query)
            if before and before.stood_down and stood_down:
                was = {t: before.planned.get(t) for t in places}
                planned |= {t: n for t, n in was.items() if n and (alive is None or n in alive)}
            self._published[query] = Published(
                dict(places), dict(weights), seen, stood_down, version, planned
            )

    def lose(self, query: str, stood_down: str) -> None:
        """Take note that `query` has stood down, and that nobody knows where its tasks run until it publishes again."""
        with self._own:
            said = self._published.get(query, Published({}, {}, None))
            self._published[query] = replace(said, ran=None, stood_down=stood_down)

    def leave(self, query: str) -> list[str]:
        """Forget a query; with the last one, return the instances that were to end, and now do not.

        Drains stay: they hold for queries that are steered later, too.
        """
        with self._own:
            self._published.pop(query, None)
            self._steered.pop(query, None)
            given_up = [] if self._steered else sorted(self._leaving)
            self._leaving.difference_update(given_up)
            return given_up

    def beside(self, query: str) -> tuple[int, list[Other]]:
        """Return the number of `query`'s first subtopology, and the tasks of all others with their places."""
        with self._own:
            published = dict(self._published)
        base, own, others = 0, 0, []
        for name, said in published.items():
            if name == query:
                own = base
            else:
                for t, place in said.planned.items():
                    id_ = TaskId(base + t.subtopology, t.partition)
                    task = Task(id_, end_offset=1, weight=said.weights.get(t, 1.0))
                    others.append(Other(task, place, fixed=bool(said.stood_down)))
            base += said.subtopologies
        return (own if query in published else base), others

    @property
    def draining(self) -> frozenset[str]:
        """The instances that were told to drain."""
        with self._own:
            return frozenset(self._draining)

    @property
    def leaving(self) -> frozenset[str]:
        """The instances that are to end once they are empty; they drain."""
        with self._own:
            return frozenset(self._leaving)

    @property
    def version(self) -> int:
        """How often a drain was asked for or taken back."""
        with self._own:
            return self._version

    def drain(self, instance: str, on: bool = True, *, end: bool = False) -> None:
        """Drain an instance, with `end` so that it ends once it is empty, tried from anew; or take both back."""
        with self._own:
            self._version += 1
            if on:
                self._draining.setdefault(instance, self._version)
            else:
                self._draining.pop(instance, None)
                self._leaving.discard(instance)
            if on and end:
                self._leaving.add(instance)
            if end or not on:
                del self._tries[instance]

    def end(self, instance: str, ask: Callable[[], bool | None]) -> bool | None:
        """Call `ask` for the end of an instance that is to end and is empty; return its answer, None without one.

        One query asks at a time. An answer, whatever it is, is the last; if `ask` raises, the instance is still to end,
        until that has happened `MOST_TRIES` times, whoever asked.
        """
        if not self._ending.acquire(blocking=False):
            return None
        try:
            if instance not in self.leaving or not self.empty(instance):
                return None
            try:
                answer = ask()
            except Exception:
                with self._own:
                    self._tries[instance] += 1
                    if self._tries[instance] >= MOST_TRIES:
                        self._leaving.discard(instance)
                raise
            self.keep(instance)
            return answer
        finally:
            self._ending.release()

    def tries(self, instance: str) -> int:
        """Return how often the end of an instance could not be asked for, since it was told to end."""
        with self._own:
            return self._tries[instance]

    def keep(self, instance: str) -> None:
        """Take back that an instance is to end; it drains on."""
        with self._own:
            self._leaving.discard(instance)

    def empty(self, instance: str) -> bool:
        """Return whether no task of any steered query belongs on `instance`, nor ran there in its last batch.

        Of a query of which no batch was seen yet nobody knows, so nothing is empty; and one that has not looked since
        the instance drains may be about to send tasks there.
        """
        return not self.keepers(instance)

    def keepers(self, instance: str) -> tuple[Keeper, ...]:
        """Return the steered queries that keep `instance` from being empty, each with the reason."""
        with self._own:
            published, names = dict(self._published), dict(self._steered)
            since = self._draining.get(instance, 0)
        found = []
        for query in dict.fromkeys([*published, *names]):
            said = published.get(query, Published({}, {}, None))
            why = _keeps(said, instance)
            if why and said.stood_down:
                why = f"it has stood down, and {why}: {said.stood_down}; or stop() its handle"
            if why:
                found.append(Keeper(names.get(query, query), why, stuck=bool(said.stood_down)))
            elif said.places and said.version < since:
                found.append(
                    Keeper(names.get(query, query), "it has not looked since the drain was asked for")
                )
        return tuple(found)


def _keeps(said: Published, instance: str) -> str:
    """Return why a query keeps an instance from being empty; empty if it does not."""
    if said.ran is None:
        known = "nobody knows where its tasks run"
        return known if said.stood_down else f"{known} before a batch of it has been seen"
    if count := sum(name == instance for name in said.places.values()):
        return f"{count} task{'' if count == 1 else 's'} there"
    return "tasks that ran there last have to run elsewhere first" if instance in said.ran else ""


def instance_name(executor: object) -> str:
    """Return the instance that is meant by "3", 3 or "executor-3". Errors: `InputError` for anything else.

    >>> instance_name(3)
    'executor-3'
    """
    number = isinstance(executor, int) and not isinstance(executor, bool) and 0 <= executor < MOST
    if not number and not isinstance(executor, str):
        raise InputError("executor", found=executor, expected="an id like '3' or 'executor-3'")
    name = str(executor)
    return name if name.startswith("executor-") else f"executor-{name}"
