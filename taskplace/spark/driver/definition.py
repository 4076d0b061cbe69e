"""The definition of a placed stream: its topology, programs, configuration and directories; its trigger.

It is complete once the driver has opened the checkpoint. All modules of the driver read it; none changes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from taskplace.durations import milliseconds
from taskplace.errors import InputError
from taskplace.model.config import PlacementConfig
from taskplace.model.placed_options import PlacedOptions
from taskplace.spark.compile import programs
from taskplace.spark.compile.forms import EventTime, event_times
from taskplace.spark.messages import Declaration, Manifest
from taskplace.spark.worker.program import Program
from taskplace.spark.worker.topic_reader import TopicReader
from taskplace.validation import nearest
from topology import BuiltTopology, TaskId

TRIGGERS = ("availableNow", "once", "processingTime")
_EXPECTED = "{'processingTime': '10 seconds'}, {'availableNow': True} or {'once': True}"


@dataclass(frozen=True, kw_only=True)
class StreamDefinition:
    """One placed stream.

    - `programs`: by subtopology
    - `event_times`: by source with an event time
    - `checkpoint`: a directory that driver and executors share
    - `state_dir`: a directory on the executors' local disks
    - `checkpoint_id`: names the local copies that belong to the checkpoint; "" before the checkpoint is opened
    """

    built: BuiltTopology
    config: PlacementConfig
    options: PlacedOptions
    checkpoint: Path
    state_dir: Path
    programs: tuple[Program, ...]
    event_times: Mapping[str, EventTime]
    checkpoint_id: str = ""

    @classmethod
    def of(
        cls,
        built: BuiltTopology,
        *,
        config: PlacementConfig,
        options: PlacedOptions,
        checkpoint: Path,
        state_dir: Path,
    ) -> StreamDefinition:
        """Compile a topology's programs. Errors: as for `programs.programs`."""
        return cls(
            built=built,
            config=config,
            options=options,
            checkpoint=checkpoint,
            state_dir=state_dir,
            programs=programs.programs(built),
            event_times=event_times(built),
        )

    def opened(self, declaration: Declaration) -> StreamDefinition:
        """Return the definition with the checkpoint's id and the incarnations of its stores."""
        at = declaration.incarnations
        opened = tuple(
            replace(one, stores={n: replace(s, incarnation=at[n]) for n, s in one.stores.items()})
            for one in self.programs
        )
        return replace(self, checkpoint_id=declaration.id, programs=opened)

    @property
    def state_root(self) -> Path:
        """The directory in which executors keep this checkpoint's copies."""
        return self.state_dir / self.checkpoint_id

    @cached_property
    def tasks(self) -> Mapping[int, tuple[TaskId, ...]]:
        """The tasks of each subtopology, sorted by partition."""
        tasks: dict[int, list[TaskId]] = {program.subtopology: [] for program in self.programs}
        for task in self.built.tasks():
            tasks[task.id.subtopology].append(task.id)
        return {subtopology: tuple(ids) for subtopology, ids in tasks.items()}

    @cached_property
    def readers(self) -> Mapping[str, TopicReader]:
        """By external topic whose records tasks read themselves: its reader."""
        return {topic: reader for program in self.programs for topic, reader in program.reads.items()}

    @cached_property
    def driven_by_time(self) -> bool:
        """Whether a task may have work because the watermark has moved."""
        return bool(self.event_times) and any(p.forgets or p.every_batch for p in self.programs)

    @cached_property
    def longest_retention(self) -> int:
        """An upper bound on how far event time must advance until all state has expired, in microseconds."""
        retentions = (store.ttl for program in self.programs for store in program.stores.values())
        lags = (operator.lag for program in self.programs for operator in program.operators)
        return sum(retentions) + sum(lags)

    def watermark_after(self, last: Manifest | None) -> int | None:
        """Return the sources' watermark in the batch after `last`, microseconds since 1970 (UTC); None: unknown."""
        if last is None:
            return None
        return programs.watermark(self.event_times, last.event_times, last.watermark)


def read_trigger(trigger: object) -> dict[str, Any]:
    """Return the arguments for `DataStreamWriter.trigger`; none for Spark's default.

    Errors: `InputError` with the path, what was found, and the nearest known name.

    >>> read_trigger({"processingTime": "1.5 min"}), read_trigger({"availableNow": True}), read_trigger(None)
    ({'processingTime': '90000 milliseconds'}, {'availableNow': True}, {})
    >>> read_trigger({"processingtime": "10 s"})
    Traceback (most recent call last):
    taskplace.errors.InputError: trigger.processingtime: found 'processingtime', expected one of availableNow, once, \
processingTime; did you mean 'processingTime'?
    """
    if trigger is None:
        return {}
    if not isinstance(trigger, Mapping):
        raise InputError("trigger", found=trigger, expected=_EXPECTED)
    if not trigger:
        return {}
    for key in trigger:
        if key not in TRIGGERS:
            hint = nearest(key, TRIGGERS)
            raise InputError(f"trigger.{key}", found=key, expected=f"one of {', '.join(TRIGGERS)}", hint=hint)
    if len(trigger) > 1:
        raise InputError("trigger", found=dict(trigger), expected=f"one of {_EXPECTED}")
    ((key, value),) = trigger.items()
    if key == "processingTime":
        return {key: f"{milliseconds(value, 'trigger.processingTime', zero=True)} milliseconds"}
    if value is not True:
        raise InputError(f"trigger.{key}", found=value, expected="True")
    return {key: True}
