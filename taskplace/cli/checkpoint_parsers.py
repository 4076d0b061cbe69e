"""The arguments of the commands that look at a checkpoint from outside, and their help."""

from __future__ import annotations

import argparse
from typing import Any

from taskplace.cli import codes
from taskplace.cli.parsers import Help, add_command, add_output

INSPECT = Help(
    group="look",
    line="show what is in a checkpoint, and whether it is whole",
    text="""Manifests, drivers, totals, generations, the tasks of each executor, the lags in the last status file with
its age, the state of each task, sizes, damaged or missing files, and what is unfinished. Reads only; safe while a
stream runs. Needs no Spark.""",
    examples=[
        ("inspect /data/checkpoint", "manifests, and the lengths of all files that they name"),
        ("inspect /data/checkpoint --verify", "and the checksums of these files: reads all of them"),
    ],
    codes={
        codes.DONE: "sound",
        codes.FAILED: "damaged or incomplete",
        codes.BAD_INPUT: "not a checkpoint",
    },
    schemas=["taskplace.inspection/1"],
)
STATUS = Help(
    group="look",
    line="show what a running stream is doing",
    text="""Placement, lags, late rows, warm-ups, last rebalances and batches. Works on any host that sees the
checkpoint: the driver keeps a small status file in it. "No driver runs" is an answer.""",
    examples=[
        ("status /data/checkpoint", "now"),
        ("status /data/checkpoint --watch", "each change, until interrupted"),
        ("status /data/checkpoint --watch --output json | jq .status.batch", "for programs"),
    ],
    codes={
        codes.DONE: "a driver runs",
        codes.FAILED: "the status cannot be read",
        codes.BAD_INPUT: "not a checkpoint",
        codes.NO_DRIVER: "no driver runs",
    },
    schemas=["taskplace.status-seen/1"],
)
DRAIN = Help(
    group="change",
    line="move all tasks away from executors",
    text="""The running driver does it. Warm-ups catch up elsewhere first, so no task stalls. Without --yes nothing
changes, and the moves are shown. A drain ends with the driver.""",
    examples=[
        ("drain /data/checkpoint executor-2", "show what would move"),
        ("drain /data/checkpoint executor-2 --yes", "do it"),
        ("can-remove /data/checkpoint executor-2", "is it empty now?"),
        ("drain /data/checkpoint executor-2 --undo --yes", "let it run tasks again"),
    ],
    codes={
        codes.DONE: "the driver does it, or nothing would move",
        codes.FAILED: "the request cannot be written",
        codes.BAD_INPUT: "bad input, such as an unknown executor, the last one that does not drain, or one with "
        "state that is not logged",
        codes.MOVES: "without --yes: something would change",
        codes.NO_DRIVER: "no driver runs",
        codes.NO_ANSWER: "no answer in time; the request was withdrawn",
    },
    schemas=["taskplace.answer/1", "taskplace.undo_preview/1", "taskplace.no_answer/1"],
)
CAN_REMOVE = Help(
    group="look",
    line="say whether executors can be removed now",
    text="They can if they have no task, and no copy that the others lack. If not, it shows what must catch up first.",
    examples=[
        ("can-remove /data/checkpoint executor-2", "can it be removed?"),
        ('can-remove /data/checkpoint executor-2 && echo "remove it"', "in a script"),
    ],
    codes={
        codes.DONE: "all of them can",
        codes.FAILED: "the request cannot be written",
        codes.BAD_INPUT: "bad input, such as an unknown executor",
        codes.MOVES: "not yet",
        codes.NO_DRIVER: "no driver runs",
        codes.NO_ANSWER: "no answer in time",
    },
    schemas=["taskplace.answer/1", "taskplace.no_answer/1"],
)


def add_to(commands: Any) -> None:
    """Add the commands to the parser of the command line."""
    for name, help_ in _HELP.items():
        command = add_command(commands, name, help_, _RUN[name])
        command.add_argument("checkpoint", metavar="CHECKPOINT", help="the directory of the checkpoint")
        add_output(command)
        _options_of(name, command)


def _options_of(name: str, command: argparse.ArgumentParser) -> None:
    if name == "inspect":
        command.add_argument(
            "--verify", action="store_true", help="read all files and compare their checksums"
        )
    elif name == "status":
        command.add_argument(
            "--watch",
            action="store_true",
            help="show each change until interrupted; with --output json, each status that the driver writes",
        )
        command.add_argument(
            "--interval", metavar="SECONDS", type=float, help="with --watch: between two looks; default 1"
        )
        command.add_argument(
            "--count", metavar="N", type=int, help="with --watch: end after N updates; default: never"
        )
    else:
        command.add_argument(
            "executors", metavar="EXECUTOR", nargs="+", help="such as executor-2, or only its id"
        )
        command.add_argument(
            "--timeout",
            metavar="SECONDS",
            type=float,
            default=30.0,
            help="how long to wait for the answer; default 30",
        )
    if name == "drain":
        command.add_argument("--yes", action="store_true", help="do it; without, only show what would move")
        command.add_argument(
            "--undo", action="store_true", help="end a drain: the executors may run tasks again"
        )
        command.add_argument(
            "--lose-unlogged",
            action="store_true",
            help="also if entries of stores with logged=False are lost by it",
        )


def _inspect(args: argparse.Namespace) -> int:
    from taskplace.cli.inspect import inspect

    return inspect(args)


def _status(args: argparse.Namespace) -> int:
    from taskplace.cli.status import status

    return status(args)


def _drain(args: argparse.Namespace) -> int:
    from taskplace.cli.drain import drain

    return drain(args)


def _can_remove(args: argparse.Namespace) -> int:
    from taskplace.cli.drain import can_remove

    return can_remove(args)


_HELP = {"status": STATUS, "inspect": INSPECT, "can-remove": CAN_REMOVE, "drain": DRAIN}
_RUN = {"inspect": _inspect, "status": _status, "drain": _drain, "can-remove": _can_remove}
