"""Follows tasks from the moment they are sent to another executor until a batch has run them there.

Spark's map of state stores shows a task on its new executor as soon as it is sent. So the map alone does not show
where a task really runs, nor which tasks load their state in the next batch. This module remembers what is needed for
both.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from topology.tasks import TaskId

Places = Mapping[TaskId, str | None]

UNCERTAIN_BATCHES = 3
"""After moves that were sent while a batch was running, the loads of a batch are known again this many batches after
the last one that had ended. The tasks load in the running batch or in the next one, and the map does not show which.
"""


@dataclass(frozen=True)
class SentMoves:
    """The tasks that were sent and have not run. Immutable.

    `expected`: Spark's map after the last send. `origins`: for each task that was sent elsewhere since the last batch,
    its place before. `undisturbed`: the map was as expected in all rounds since a batch was observed. `certain_from`:
    the first batch for which it is known which tasks load their state. `moved`: the number of tasks that have run
    where they were sent.
    """

    expected: Places = field(default_factory=dict)
    origins: Places = field(default_factory=dict)
    undisturbed: bool = False
    certain_from: int = 0
    moved: int = 0

    @property
    def on_the_way(self) -> int:
        """The number of tasks that will load their state elsewhere in the next batch; there and back is no move."""
        return sum(self.expected.get(task) != at for task, at in self.origins.items())

    def observed(self, places: Places) -> SentMoves:
        """Return the moves after a round has read Spark's map."""
        return replace(self, undisturbed=self.undisturbed and places == self.expected)

    def loaded_in(self, batch: int, *, after: int) -> int | None:
        """Return how many tasks loaded their state in `batch`, None if unknown. `after`: the batch observed before."""
        certain = self.undisturbed and batch == after + 1 and batch >= self.certain_from
        return self.on_the_way if certain else None

    def after_batch(self, places: Places) -> SentMoves:
        """Return the moves that are left after a batch; `places`: where its tasks ran."""
        ran = [task for task, at in self.origins.items() if places.get(task) not in (None, at)]
        arrived = sum(places[task] == self.expected.get(task) for task in ran)
        return replace(self, origins={}, undisturbed=True, moved=self.moved + arrived)

    def send(self, places: Places, moves: Mapping[TaskId, str]) -> SentMoves:
        """Return these moves with new ones; `places`: Spark's map before."""
        origins = {**{task: places[task] for task in moves}, **self.origins}
        return replace(self, expected={**places, **moves}, origins=origins)

    def sent_late(self, finished: int) -> SentMoves:
        """Return the moves after some were sent late: a batch after `finished` may have been running."""
        return replace(self, certain_from=finished + UNCERTAIN_BATCHES)

    def disturbed(self) -> SentMoves:
        """Return the moves after a failed round: the map may change unobserved until the next round."""
        return replace(self, undisturbed=False)

    def abandoned(self) -> SentMoves:
        """Return the moves after a batch that will not be observed; it is unknown whether they ran in it."""
        return replace(self, origins={})

    def to_return(self, now: Places, usable: Collection[str]) -> dict[TaskId, str]:
        """Return the tasks to send back, each with its origin: those that `now` are still where they were sent."""
        return {
            task: at
            for task, at in self.origins.items()
            if at is not None
            and at in usable
            and now.get(task) not in (None, at)
            and now[task] == self.expected.get(task)
        }
