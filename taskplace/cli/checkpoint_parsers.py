"""The arguments of the commands that look at a checkpoint from outside, and their help."""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple


class _Help(NamedTuple):
    """The help of a command: one line, an explanation with an example, and the exit codes."""

    line: str
    text: str
    codes: str


_HELP = {
    "inspect": _Help(
        "show what is in a checkpoint, and whether it is whole",
        """Show what is in a checkpoint: manifests, drivers, assignment, the state of each task, sizes, damaged or
missing files, and what is unfinished. Reads only; safe while a stream runs. Needs no Spark.

  taskplace inspect /data/checkpoint             manifests, and the lengths of all files that they name
  taskplace inspect /data/checkpoint --verify    and the checksums of these files: reads all of them
""",
        "0 sound; 1 damaged or incomplete; 2 not a checkpoint",
    ),
    "status": _Help(
        "show what a running stream is doing",
        """Show the placement, lags, warm-ups, last rebalances and batches of a running stream. Works on any host that
sees the checkpoint: the driver keeps a small status file in it. "No driver runs" is an answer.

  taskplace status /data/checkpoint
  taskplace status /data/checkpoint --watch
  taskplace status /data/checkpoint --watch --output json | jq .status.batch
""",
        "0 a driver runs; 4 no driver runs; 1 the status cannot be read; 2 not a checkpoint; 130 interrupted",
    ),
    "drain": _Help(
        "move all tasks away from executors",
        """Ask the running driver to move all tasks away from executors. Warm-ups catch up elsewhere first, so no task
stalls. Without --yes nothing changes, and the moves are shown. A drain ends with the driver.

  taskplace drain /data/checkpoint executor-2          show what would move
  taskplace drain /data/checkpoint executor-2 --yes    do it
  taskplace can-remove /data/checkpoint executor-2     is it empty now?
  taskplace drain /data/checkpoint executor-2 --undo --yes
""",
        "0 the driver does it, or nothing would move; 3 moves are planned (without --yes); 1 it failed; "
        "2 bad input, such as an unknown executor; 4 no driver runs; 5 no answer in time, the request was withdrawn",
    ),
    "can-remove": _Help(
        "say whether executors can be removed now",
        """Ask the running driver whether executors can be removed now: they have no task, and no copy that the others
lack. If not, show what must catch up first.

  taskplace can-remove /data/checkpoint executor-2 && echo "remove it"
""",
        "0 all of them can; 3 not yet; 2 bad input, such as an unknown executor; 4 no driver runs; "
        "5 no answer in time",
    ),
}


def add_to(commands: Any) -> None:
    """Add the commands to the parser of the command line."""
    for name, help_ in _HELP.items():
        command = commands.add_parser(
            name,
            help=help_.line,
            description=help_.text,
            epilog=f"Exit codes: {help_.codes}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_argument("checkpoint", metavar="CHECKPOINT", help="the directory of the checkpoint")
        command.add_argument("--output", choices=("text", "json"), default="text")
        command.set_defaults(command=_RUN[name])
        _options_of(name, command)


def _options_of(name: str, command: argparse.ArgumentParser) -> None:
    if name == "inspect":
        command.add_argument(
            "--verify", action="store_true", help="read all files and compare their checksums"
        )
    elif name == "status":
        command.add_argument("--watch", action="store_true", help="show each change until interrupted")
        command.add_argument(
            "--interval", metavar="SECONDS", type=float, default=1.0, help="with --watch; default 1"
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


_RUN = {"inspect": _inspect, "status": _status, "drain": _drain, "can-remove": _can_remove}
