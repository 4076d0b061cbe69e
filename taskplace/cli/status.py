"""`taskplace status`: what the driver of a checkpoint is doing, once or again and again."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from taskplace import validation
from taskplace.cli import codes, documents
from taskplace.cli.status import line, lines
from taskplace.cli.terminal import columns, show
from taskplace.spark.inspection.driver_seen import DriverSeen, look
from taskplace.spark.operator_messages import Status

SCHEMA = "taskplace.status-seen/1"
#: The seconds between two looks without `--interval`.
INTERVAL = 1.0
Key = Callable[[DriverSeen], object]


def status(args: argparse.Namespace) -> int:
    """Print the status, with `--watch` for each change. Return 0 if a driver runs, 4 if none does."""
    for option, given in (("--interval", args.interval), ("--count", args.count)):
        documents.needs(option, given, "--watch", args.watch)
    root = documents.checkpoint(args.checkpoint)
    if not args.watch:
        seen = look(root)
        if args.output == "json":
            print(json.dumps(to_dict(seen), indent=1))
        else:
            show(lines(seen, columns()))
        return codes.DONE if seen.runs else codes.NO_DRIVER
    interval = INTERVAL
    if args.interval is not None:
        interval = validation.positive(args.interval, "--interval") or INTERVAL
    limit = None if args.count is None else validation.integer(args.count, "--count", 1)
    with _shown(args.output) as (update, key):
        return _watch(root, update, key, interval=interval, limit=limit)


def _watch(
    root: Path, update: Callable[[DriverSeen], None], key: Key, *, interval: float, limit: int | None
) -> int:
    """Show each change, at most `limit` of them. `key`: what is shown again only if it differs."""
    shown, before = 0, None
    while True:
        seen = look(root)
        now = key(seen) if seen.runs else (seen.epoch, seen.status and seen.status.written)
        if now != before:
            before = now
            update(seen)
            shown += 1
        if limit is not None and shown >= limit:
            return codes.DONE if seen.runs else codes.NO_DRIVER
        time.sleep(interval)


@contextmanager
def _shown(output: str) -> Iterator[tuple[Callable[[DriverSeen], None], Key]]:
    """Yield what shows an update, and what tells whether there is one.

    JSON in a line and a table that is redrawn in place: for each status that the driver writes. A line for a log: if it
    is another one.
    """

    def written(seen: DriverSeen) -> object:
        return seen.status and seen.status.written

    if output == "json":
        yield (lambda seen: print(json.dumps(to_dict(seen)), flush=True)), written
    elif sys.stdout.isatty():
        from rich.live import Live

        from taskplace.cli.status import StatusView
        from taskplace.record.terminal import Screen

        with Live(console=Screen(), auto_refresh=False) as live:
            yield (lambda seen: live.update(StatusView(seen), refresh=True)), written
    else:
        yield (lambda seen: print(line(seen), flush=True)), line


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a "taskplace.status-seen/1" document, as in `taskplace/model/schema`."""
    (status,), parts = msgspec.json.schema_components([Status])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA,
        "title": "What is known of a checkpoint's driver, and its last status",
        "type": "object",
        "required": ["schema", "runs", "why", "epoch", "age_seconds", "status"],
        "additionalProperties": False,
        "properties": {
            "schema": {"const": SCHEMA},
            "runs": {"description": "a driver runs", "type": "boolean"},
            "why": {"description": "how that is known", "type": "string"},
            "epoch": {
                "description": "of the driver that has taken over last; 0: none has",
                "type": "integer",
            },
            "age_seconds": {"description": "of the status; null: there is none", "type": ["number", "null"]},
            "status": {"anyOf": [status, {"type": "null"}]},
        },
        "$defs": parts,
    }


def to_dict(seen: DriverSeen) -> dict[str, Any]:
    """Return what was seen as a "taskplace.status-seen/1" dict."""
    return {
        "schema": SCHEMA,
        "runs": seen.runs,
        "why": seen.why,
        "epoch": seen.epoch,
        "age_seconds": seen.age,
        "status": None if seen.status is None else msgspec.to_builtins(seen.status),
    }
