"""One JSON line for each event of a run, for programs: `taskplace run --output json`, or `report.progress: json`.

`report.events` writes the same lines into a file, and `taskplace report` makes a page of them. `docs/command_line.md`
lists the fields from the events themselves, and `schema()` returns their JSON Schema. A field may be added in a later
version; one that is removed or changes its meaning makes another `SCHEMA`.

Properties: the first line is the `start`, the last one the `finish`, also after an error. Secrets are hidden, and no
line has rows or their keys. If the reader is gone, nothing more is written; the run goes on. A reader ignores lines and
fields that it does not know. The last line may be cut off: the driver was killed while it wrote.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import threading
from collections.abc import Iterator
from typing import Any, TextIO

import msgspec

from taskplace.errors import InputError
from taskplace.record.events import LINES, SCHEMA, Event, Finish, Line, Note, Start, Summary, WorkProgress
from taskplace.record.words import Throttle
from taskplace.redaction import scrubbed
from topology import BuiltTopology

_KNOWN = {line.__struct_config__.tag for line in LINES}


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a line, as in `taskplace/model/schema`.

    >>> sorted(schema()["$defs"])[:3]
    ['BatchDone', 'BatchRecovery', 'Change']
    """
    (found,), parts = msgspec.json.schema_components([Line])
    for line in LINES:
        for name, meaning in meanings(line).items():
            parts[line.__name__]["properties"][name]["description"] = meaning
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA,
        "title": "A line of `taskplace run --output json`",
        **found,
        "$defs": parts,
    }


def meanings(kind: type[Event]) -> dict[str, str]:
    """Return what the fields of an event mean, by their names in JSON: the list in its docstring.

    >>> meanings(Note)
    {'text': 'one line', 'time': 'when it happened, in UTC: `2026-11-23T12:00:00.123000Z`'}
    """
    names = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    texts = [inspect.cleandoc(one.__doc__ or "") for one in (kind, Event)]
    found = re.findall(r"^- `(\w+)`: (.+(?:\n  .+)*)", "\n".join(texts), re.MULTILINE)
    return {names[field]: " ".join(text.split()) for field, text in found}


class JsonReporter:
    """Writes events as lines of JSON and flushes each. The command writes the first and the last one.

    >>> import sys
    >>> from taskplace.record.events import ExecutorLost
    >>> JsonReporter(sys.stdout).failure(ExecutorLost("executor-1", 10, 8))  # doctest: +ELLIPSIS
    {"event":"loss","executor":"executor-1","batch":10,"active_tasks":8,"cancelled":false,"leaving":false,"time":"...Z"}
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._lock = stream, threading.Lock()
        self._throttle = Throttle(in_pairs=True)
        self._summary: Summary | None = None

    def start(self, *, application: str, checkpoint: str, built: BuiltTopology) -> None:
        """Write the first line."""
        self._write(
            Start(
                application=application,
                topology=built.name,
                subtopologies=len(built.subtopologies),
                tasks=len(built.tasks()),
                checkpoint=checkpoint,
            )
        )

    def finish(self, exit_code: int, error: str | None = None) -> None:
        """Write the last line."""
        said = None if error is None else scrubbed(" ".join(error.split()))
        self._write(Finish(exit_code=exit_code, error=said, totals=self._summary))

    def _write(self, event: Event) -> None:
        # ValueError: the stream was closed in this process; OSError: its reader is gone.
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._stream.write(msgspec.json.encode(event).decode() + "\n")
            self._stream.flush()

    batch = rebalance = warmup = failure = _write

    def note(self, text: str) -> None:
        """Write what the run is doing, or a warning."""
        self._write(Note(scrubbed(" ".join(text.split()))))

    def progress(self, event: WorkProgress) -> None:
        """Write a line now and then about work that takes long."""
        if self._throttle.passes(event):
            self._write(event)

    def summary(self, summary: Summary) -> None:
        """Keep the summary for the last line."""
        self._summary = summary

    def close(self) -> None:
        """Nothing to give back."""


class _Head(msgspec.Struct):
    event: str


def is_run_lines(text: str) -> bool:
    """Return whether a text begins like the lines of a run.

    >>> is_run_lines('{"event":"start","schema":"taskplace.run/1"}'), is_run_lines("{}")
    (True, False)
    """
    first = text.partition("\n")[0].replace(" ", "")
    return first.startswith("{") and '"event":"start"' in first and f'"schema":"{SCHEMA}"' in first


def read_run_lines(text: str, path: str) -> tuple[Line, ...]:
    """Parse the lines of a run into its events; the first is a `Start`. `path` names the file in errors.

    Errors: `InputError` with the number of a line that is none.
    """
    events = tuple(_events(text.splitlines(), path))
    if not events or not isinstance(events[0], Start):
        raise InputError(f"{path}:1", found="another line", expected="the start of a run")
    return events


def _events(lines: list[str], path: str) -> Iterator[Line]:
    for number, text in enumerate(lines, start=1):
        try:
            if msgspec.json.decode(text, type=_Head).event in _KNOWN:
                yield msgspec.json.decode(text, type=Line)
        except msgspec.MsgspecError as error:
            if number == len(lines) > 1:
                return
            raise InputError(
                f"{path}:{number}", found=str(error), expected=f"a line of a run ({SCHEMA})"
            ) from None
