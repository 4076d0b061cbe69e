"""The values of a report: what the page shows, as one JSON document with the schema "taskplace.report/1".

A report is of a plan, a simulation, a run or a checkpoint. It is made by `of_plan`, `of_simulation`, `of_run` and
`taskplace.spark.inspection.report`, and the page (`page`) shows it. The page computes nothing but sums and formats, so
its numbers are those of the document.

Properties:
- frozen values of plain types; equal reports give equal bytes
- times are seconds since `Report.began`: by the clock for a run, in virtual time for a simulation
- tasks and instances are numbers: positions in `Report.tasks` and `Report.instances`. So a matrix of thousands of tasks
  stays small; steps name only what changes
- no rows, keys or values of a stream, and no configuration: nothing that could be a secret
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec

from taskplace.model.plan import Roles
from taskplace.record.events import Change

SCHEMA = "taskplace.report/1"

Kind = Literal["plan", "simulation", "run", "checkpoint"]
#: How a figure or a state is meant: nothing special, good, under way, bad.
Tone = Literal["", "good", "busy", "bad"]
#: The roles in the order of their numbers.
ROLES = ("active", "standby", "warm-up")


@dataclass(frozen=True)
class Figure:
    """A headline figure: a short name, a value for people, and one more line."""

    name: str
    value: str
    note: str = ""
    tone: Tone = ""


@dataclass(frozen=True)
class State:
    """What became of it, in a word and a sentence. `live`: whether it still goes on."""

    word: str
    text: str = ""
    tone: Tone = ""
    live: bool = False


@dataclass(frozen=True)
class Step:
    """One assignment in a sequence of assignments.

    - `label`, `text`: what it is called, and why it came
    - `at`: when it came into force; None without a time
    - `up`: the instances that were there
    - `changes`: by task, its (instance, role) pairs where they differ from the step before; the first step has all
    - `imbalance`: the largest load of an instance divided by the mean
    - `to_go`: the moves that remain to the target; None: unknown
    """

    label: str
    at: float | None = None
    text: str = ""
    up: tuple[int, ...] = ()
    changes: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    imbalance: float | None = None
    to_go: int | None = None


@dataclass(frozen=True)
class TimelineRow:
    """Something on the timeline. `kind`: rebalance, loss, leaving, event or failure; `step`: the label of its step."""

    at: float
    kind: str
    text: str
    step: str = ""


class MoveRow(Change, frozen=True):
    """A move, and the label of its step."""

    step: str = ""


@dataclass(frozen=True)
class Reason:
    """Why a task is where it is: where it is active, the reason in a line, and the whole explanation."""

    task: str
    where: str
    why: str
    text: str


@dataclass(frozen=True)
class CopyLag:
    """The lag of one copy in records.

    - `last`, `peak`: now, and the largest
    - `values`: at the times of the samples, 0 where it lacked nothing; empty where only the last lag is known
    - `note`: more in words, such as when a warm-up has caught up
    """

    task: str
    instance: str
    role: str
    last: int
    peak: int
    values: tuple[int, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Samples:
    """Columns with one entry for each batch or round. `lag`: of all standbys and warm-ups together."""

    at: tuple[float, ...] = ()
    number: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()
    seconds: tuple[float, ...] = ()
    phases: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    lag: tuple[int, ...] = ()
    imbalance: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class Recovery:
    """The recovery after the loss of an instance. Seconds count from the moment when the loss was noticed.

    - `planned`: until the tasks had new places; `committed`: until the batch was committed; `whole`: until every
      standby had caught up again. None: not yet, or never
    - `promoted`: tasks that a caught-up copy took over; `scratch`: tasks that were restored without a local copy
    - `replayed`: changelog records that active tasks applied first
    """

    at: float
    instance: str
    batch: int
    tasks: int
    leaving: bool = False
    planned: float | None = None
    committed: float | None = None
    whole: float | None = None
    promoted: int | None = None
    replayed: int | None = None
    scratch: int | None = None


@dataclass(frozen=True)
class InstanceRow:
    """An instance now. `state`: "" if it runs, else a word such as lost or draining."""

    id: str
    active: int
    standby: int
    warmup: int
    lag: int | None = None
    state: str = ""
    note: str = ""


@dataclass(frozen=True)
class InputRow:
    """How far a partition of a topic was read: offsets, and the age of its first unread record. None: not known."""

    topic: str
    partition: int
    position: int | None = None
    end: int | None = None
    lag: int | None = None
    seconds: int | None = None


@dataclass(frozen=True)
class Now:
    """What a live page shows between two events: the state, the instances, the input, and the copies that lag now.

    `figures` replace those of the report with the same names.

    `version` counts the events: if it has changed, there is a new report. `explained` names the reasons: if it has
    changed, there may be new ones.
    """

    state: State
    rows: tuple[InstanceRow, ...] = ()
    copies: tuple[CopyLag, ...] = ()
    version: int = 0
    explained: str = ""
    inputs: tuple[InputRow, ...] = ()
    figures: tuple[Figure, ...] = ()

    def to_json(self) -> str:
        """Return the document as JSON text."""
        return msgspec.json.encode(self).decode()


@dataclass(frozen=True)
class Report:
    """All that a page shows.

    - `made`: seconds since 1970; `began`: the same, of the zero of all times; None for virtual time or none
    - `virtual`: whether times are those of a simulation
    - `unit`: what `Samples.number` counts: batch or round
    - `facts`: (name, value) pairs, for the table of all counts
    - `left_out`: what is not in the report because of its size, a line each
    """

    kind: Kind
    title: str
    state: State
    made: float
    began: float | None = None
    virtual: bool = False
    unit: str = "batch"
    figures: tuple[Figure, ...] = ()
    tasks: tuple[str, ...] = ()
    instances: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    timeline: tuple[TimelineRow, ...] = ()
    samples: Samples = Samples()
    copies: tuple[CopyLag, ...] = ()
    recoveries: tuple[Recovery, ...] = ()
    now: tuple[InstanceRow, ...] = ()
    inputs: tuple[InputRow, ...] = ()
    moves: tuple[MoveRow, ...] = ()
    reasons: tuple[Reason, ...] = ()
    warnings: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    left_out: tuple[str, ...] = ()
    schema: str = SCHEMA

    def to_json(self) -> str:
        """Return the document as JSON text.

        >>> Report("plan", "p", State("stable"), made=0.0).to_json()[:30]
        '{"kind":"plan","title":"p","st'
        """
        return msgspec.json.encode(self).decode()


#: A copy: its instance and its task.
Copy = tuple[str, str]
#: The copies that lack something at one time: their lag in records, and their role.
LagsNow = Mapping[Copy, tuple[int, str]]

#: The most copies with a series; the largest lags come first.
MOST_COPIES = 100


def copy_lags(samples: Sequence[LagsNow]) -> tuple[tuple[CopyLag, ...], int]:
    """Return the copies with the largest lags, and how many further copies lacked something.

    O(lags in the samples).

    >>> copies, more = copy_lags([{("a", "0_0"): (40, "standby")}, {}])
    >>> copies[0].peak, copies[0].last, copies[0].values, more
    (40, 0, (40, 0), 0)
    """
    peaks: dict[Copy, int] = {}
    roles: dict[Copy, str] = {}
    for sample in samples:
        for copy, (lag, role) in sample.items():
            peaks[copy] = max(lag, peaks.get(copy, 0))
            roles[copy] = role
    chosen = sorted(peaks, key=lambda copy: (-peaks[copy], copy))[:MOST_COPIES]
    found = []
    for instance, task in chosen:
        copy = (instance, task)
        values = tuple(sample[copy][0] if copy in sample else 0 for sample in samples)
        found.append(CopyLag(task, instance, roles[copy], values[-1], peaks[copy], values=values))
    return tuple(found), len(peaks) - len(chosen)


#: By instance and role, its tasks.
Assignment = Mapping[str, Mapping[str, Sequence[str]]]


#: By task, its (instance, role) pairs.
Places = dict[int, tuple[tuple[int, int], ...]]

#: The most steps of a report.
KEPT = 200


class Placements:
    """A sequence of assignments. `tasks` and `instances` are the names in the order of their numbers.

    >>> placements = Placements()
    >>> placements.add("before", {"a": {"active": ["0_0"]}})
    >>> placements.add("after", {"b": {"active": ["0_0"]}, "a": {"standby": ["0_0"]}})
    >>> [step.changes for step in placements.steps]
    [{0: ((0, 0),)}, {0: ((0, 1), (1, 0))}]
    """

    def __init__(self, keep: int = KEPT) -> None:
        self.steps: list[Step] = []
        self.merged = 0
        self._keep = keep
        self._tasks: dict[str, int] = {}
        self._instances: dict[str, int] = {}
        self._now: Places = {}

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks, in the order of their numbers."""
        return tuple(self._tasks)

    @property
    def instances(self) -> tuple[str, ...]:
        """The instances, in the order of their numbers."""
        return tuple(self._instances)

    def add(
        self,
        label: str,
        assignment: Assignment,
        *,
        at: float | None = None,
        text: str = "",
        imbalance: float | None = None,
        to_go: int | None = None,
    ) -> None:
        """Add an assignment. O(tasks)."""
        places = self._places(assignment)
        gone = self._now.keys() - places.keys()
        changes = {task: places.get(task, ()) for task in sorted({*gone, *places})}
        changes = {task: there for task, there in changes.items() if self._now.get(task, ()) != there}
        self._now = places
        up = tuple(self._number(self._instances, name) for name in sorted(assignment))
        step = Step(label, at, text, up, changes, imbalance=imbalance, to_go=to_go)
        self.steps.append(step)
        if len(self.steps) > self._keep:
            first, second = self.steps[:2]
            self.steps[:2] = [replace(second, changes={**first.changes, **second.changes})]
            self.merged += 1

    def _places(self, assignment: Assignment) -> Places:
        found: dict[int, list[tuple[int, int]]] = {}
        for name in sorted(assignment):
            instance = self._number(self._instances, name)
            for number, role in enumerate(Roles._fields):
                for task in assignment[name].get(role, ()):
                    found.setdefault(self._number(self._tasks, task), []).append((instance, number))
        return {task: tuple(sorted(there)) for task, there in found.items()}

    @staticmethod
    def _number(numbers: dict[str, int], name: str) -> int:
        return numbers.setdefault(name, len(numbers))


def move_rows(changes: Iterable[Change], step: str) -> tuple[MoveRow, ...]:
    """Return the moves of a step as rows of the page, with roles in its words."""
    words = {"warmup": "warm-up"}
    return tuple(
        MoveRow(one.task, words.get(one.role, one.role), one.origin or "", one.to, one.why, step)
        for one in changes
    )
