"""Spark's executors as a group: each visit's lag report is join metadata, the driver coordinates and leads.

Executors do not speak the protocol themselves: the driver hears of them in the visits it makes, and joins on
their behalf. So a rebalance is one call, and what the protocol guarantees holds: one leader, generations that
only grow, and a fence for work of older ones.

    group = ExecutorGroup("orders", generation=journal_generation)
    group.report("executor-1", visit.payload, now)      # with every visit: joins, or keeps the report up to date
    group.keep(alive, now)                               # who is gone, by Spark's own list
    if group.wants_rebalance:
        states = group.rebalance(now, assign)            # executor -> bytes of its `Work`
    group.admit("executor-1", generation)                # raises StaleGeneration for anything but the one in force

Non-goals: when to plan (`taskplace.rebalance`) and what (`taskplace.plan`). Fencing saves work; only the
manifest decides what counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from taskplace.errors import InputError
from taskplace.group.choice import always
from taskplace.group.coordinator import Coordinator
from taskplace.group.errors import Code, GroupError, UnknownVersion
from taskplace.group.messages import Ack, Join, Joined, Leave, Mode, Offer, Request, Role, Sync
from taskplace.group.settings import CoordinatorSettings
from taskplace.group.wire import Reader, Writer
from taskplace.model import reading
from topology.ids import TaskId

DRIVER = "driver"
NEWEST = 0  # of report and work alike
_FOREVER = 2**31 - 1  # ms; the longest session there is
_FIRST_MS = 1  # for the first join not to make a group of one
_I31 = 2**31 - 1


@dataclass(frozen=True)
class LagReport:
    """What an executor says of itself: (version, applied offset) of each copy it has, its tags, its slots.

    >>> said = LagReport({TaskId(0, 3): (17, 123_456)}, {"zone": "a"}, capacity=4)
    >>> LagReport.decode(said.encode()) == said, len(said.encode())
    (True, 17)
    """

    copies: Mapping[TaskId, tuple[int, int]] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    capacity: int = 1

    def encode(self) -> bytes:
        """Return the report in compact binary: 4 to 10 bytes for most copies."""
        w = Writer().uint(NEWEST).uint(self.capacity)
        w.many(sorted(self.tags.items()), lambda tag: w.text(tag[0]).text(tag[1]))
        w.many(
            sorted(self.copies.items()),
            lambda c: w.uint(c[0].subtopology).uint(c[0].partition).uint(c[1][0]).uint(c[1][1]),
        )
        return w.take()

    @classmethod
    def decode(cls, data: bytes) -> LagReport:
        """Return the report in `data`; `ProtocolError` if there is none."""
        r = _reader(data, "report")
        capacity = r.uint(_I31)
        tags = dict(r.rising(lambda: (r.text(), r.text()), least=2, key=lambda tag: tag[0]))
        copies = dict(r.rising(lambda: (_task(r), (r.uint(), r.uint())), least=4, key=lambda copy: copy[0]))
        r.end()
        return cls(copies, tags, capacity)


@dataclass(frozen=True)
class Work:
    """What an executor is to do: its tasks by role, and in how many ms the next probing rebalance is (0: none
    is due).

    >>> Work.decode(Work(active=(TaskId(0, 1),), probing_ms=600_000).encode()).active
    (TaskId(subtopology=0, partition=1),)
    """

    active: tuple[TaskId, ...] = ()
    standby: tuple[TaskId, ...] = ()
    warmup: tuple[TaskId, ...] = ()
    probing_ms: int = 0

    def encode(self) -> bytes:
        """Return the work in compact binary."""
        w = Writer().uint(NEWEST).uint(self.probing_ms)
        for tasks in (self.active, self.standby, self.warmup):
            w.many(sorted(tasks), lambda task: w.uint(task.subtopology).uint(task.partition))
        return w.take()

    @classmethod
    def decode(cls, data: bytes) -> Work:
        """Return the work in `data`; no bytes are no work."""
        if not data:
            return cls()
        r = _reader(data, "work")
        probing = r.uint(_I31)
        roles = [tuple(r.rising(lambda: _task(r), least=2)) for _ in range(3)]
        r.end()
        return cls(roles[0], roles[1], roles[2], probing)


Assign = Callable[[Mapping[str, LagReport]], Mapping[str, Work]]


class ExecutorGroup:
    """The group of a driver and its executors, by name. Times are seconds of any steady clock.

    `generation` is the one to go on from, after a restart of the driver. `session_timeout_ms`: an executor that
    no visit has heard from for so long is out; by default none is, since the driver asks Spark who is there
    (`keep`).

    >>> group = ExecutorGroup("orders")
    >>> group.report("executor-1", LagReport(capacity=4).encode(), now=0.0)
    >>> states = group.rebalance(0.0, lambda reports: {name: Work((TaskId(0, 0),)) for name in reports})
    >>> group.generation, Work.decode(states["executor-1"]).active
    (1, (TaskId(subtopology=0, partition=0),))
    """

    def __init__(self, name: str, *, generation: int = 0, session_timeout_ms: int = _FOREVER) -> None:
        self.name = reading.text(name, "name")
        self._generation = reading.integer(generation, "generation") or 0
        reading.integer(session_timeout_ms, "session_timeout_ms", 1)
        self._session = session_timeout_ms / 1000
        self._reports: dict[str, bytes] = {}
        self._heard: dict[str, float] = {}
        self._sequence = 0
        self._changed = False
        settings = CoordinatorSettings(
            group_initial_rebalance_delay_ms=_FIRST_MS,
            group_min_session_timeout_ms=1,
            group_max_session_timeout_ms=_FOREVER,
        )
        # No waiting: the executors of before work for a driver that is gone, and what they do is fenced.
        self._coordinator = Coordinator(
            settings, resume={name: generation}, wait_for_sessions=False, leader_rule=always(DRIVER)
        )

    @property
    def generation(self) -> int:
        """The generation in force, or the one to go on from."""
        return self._generation

    @property
    def wants_rebalance(self) -> bool:
        """Whether members have come or gone since the last rebalance."""
        return self._changed

    @property
    def reports(self) -> dict[str, LagReport]:
        """The newest report of every member."""
        return {name: LagReport.decode(data) for name, data in sorted(self._reports.items())}

    def report(self, executor: str, payload: bytes, now: float) -> None:
        """Take the report that a visit has brought: a new executor joins, a known one has been heard from.

        Errors: `ProtocolError` for bytes that are no report, before anything is changed.
        """
        if executor == DRIVER:
            raise InputError("executor", found=executor, expected="another name than the driver's")
        LagReport.decode(payload)
        self._changed |= executor not in self._reports
        self._reports[executor] = payload
        self._heard[executor] = now

    def keep(self, alive: Iterable[str], now: float) -> list[str]:
        """Take out the members that are not in `alive`, or silent for a session; return them."""
        silent = {name for name, heard in self._heard.items() if now >= heard + self._session}
        gone = sorted(set(self._reports) - (set(alive) - silent))
        for executor in gone:
            del self._reports[executor], self._heard[executor]
            self._changed = True
            self._send(Leave(self.name, executor, 0), now)
        return gone

    def rebalance(self, now: float, assign: Assign) -> dict[str, bytes]:
        """Form a new generation of all members; return what each gets, as the bytes of its `Work`.

        `assign` is called once, with the reports by executor. If it raises, the group is told, the error goes
        on to the caller, and nobody may work until the next rebalance: plan from `reports` first if that can
        happen.
        """
        states: dict[str, bytes] = {}
        failed: Exception | None = None
        answers: list[Joined | Ack] = []
        # New ones first: a group never gets through a rebalance while one it knows has not joined again.
        group = self._coordinator.groups.get(self.name)
        known = set(group.seats) if group else set()
        executors = sorted(self._reports)
        joining = [*(e for e in executors if e not in known), DRIVER, *(e for e in executors if e in known)]
        for executor in joining:
            answers += self._send(self._join(executor, self._reports.get(executor, b"")), now)
        answers += [message for _, message in self._coordinator.tick(now + _FIRST_MS / 1000)]
        asked = next((a for a in answers if isinstance(a, Joined) and a.role is Role.LEADER), None)
        if asked is None:
            refused = [a.detail for a in answers if a.code is not Code.NONE]
            raise GroupError(f"group {self.name}: no rebalance came about: {'; '.join(refused) or answers}")
        try:
            reports = {n: LagReport.decode(data) for n, data in asked.members if n != DRIVER}
            states = {name: work.encode() for name, work in assign(reports).items()}
            unknown = sorted(set(states) - set(reports))
            if unknown:
                raise GroupError(f"group {self.name}: work for {unknown[0]!r}, which is no member")
        except Exception as error:
            failed = error
        code = Code.ASSIGNMENT_FAILED if failed else Code.NONE
        sync = Sync(
            self.name, DRIVER, 0, asked.generation, code, str(failed or ""), tuple(sorted(states.items()))
        )
        given = [a for a in self._send(sync, now) if isinstance(a, Joined)]
        self._generation = asked.generation
        self._changed = failed is not None
        if failed:
            raise failed
        return {a.name: a.state for a in given if a.name != DRIVER}

    def admit(self, executor: str, generation: int) -> None:
        """Let work through that was given out in the generation in force; raise `StaleGeneration` for any other."""
        self._coordinator.fence(self.name, executor, generation)

    # ------------------------------------------------------------------------------------------- steps

    def _join(self, executor: str, payload: bytes) -> Join:
        offer = Offer("tasks", 0, payload)
        # Spark says who is alive, so sessions of the protocol itself do not end.
        number = self._sequence + 1
        times = (_FOREVER, _FOREVER)
        return Join(self.name, executor, "", 0, number, *times, Mode.SINGLE, "taskplace", NEWEST, 0, (offer,))

    def _send(self, request: Request, now: float) -> list[Joined | Ack]:
        self._sequence += 1
        numbered = replace(request, sequence=self._sequence)
        return [message for _, message in self._coordinator.handle(request.member_id, numbered, now)]


def _reader(data: bytes, path: str) -> Reader:
    r = Reader(data, path)
    version = r.uint()
    if version > NEWEST:
        raise UnknownVersion(path, version=version, known=NEWEST)
    return r


def _task(r: Reader) -> TaskId:
    return TaskId(r.uint(_I31), r.uint(_I31))
