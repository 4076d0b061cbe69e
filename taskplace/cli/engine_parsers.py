"""The arguments of the engine's commands, and their help.

They take JSON files. `explain` and `verify` take a checkpoint as well, and are shown beside the commands that do.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from taskplace.cli import codes
from taskplace.cli.parsers import CommandParser, Help, add_command, add_output

PLAN = Help(
    group="engine",
    line="plan the placement of a problem",
    text="It prints the step that is safe now, the moves with their reasons, and what is left to do.",
    examples=[
        ("plan problem.json", "for people"),
        ("plan problem.json --output json > plan.json", 'as a "taskplace.plan/1" document'),
        ("plan - < problem.json", "from standard input"),
    ],
    codes={
        codes.DONE: "stable: nothing has to move",
        codes.FAILED: "the plan breaks an invariant: an error of the engine or of your assignor",
        codes.MOVES: "moves are planned",
    },
    schemas=["taskplace.plan/1"],
)
EXPLAIN = Help(
    group="look",
    line="explain why a task is where it is, why it waits or is stuck, and when it moves",
    text="""FILE is the directory of a stream's checkpoint. Then the last status of its driver is explained, also if no
driver runs any more; the first lines say of when it is. FILE may also be a problem.json. Then its plan is
explained.""",
    examples=[
        ("explain /data/checkpoint", "what is on its way in a stream, and what is stuck"),
        ("explain /data/checkpoint --task 0_3", "why this task is where it is, and when it moves"),
        ("explain problem.json", "what changes, and why each task is where it is"),
        ("explain problem.json --task 0_3", "this task alone"),
        ("explain problem.json --can-remove executor-2", "can this instance be removed now?"),
    ],
    codes={
        codes.DONE: "stable: nothing has to move; with --can-remove: yes",
        codes.FAILED: "the plan breaks an invariant",
        codes.MOVES: "moves are planned; with --can-remove: not yet",
        codes.NO_DRIVER: "no driver runs this checkpoint; what its last status says is printed",
    },
    schemas=["taskplace.explanation/1", "taskplace.removal/1", "taskplace.last-commit/1"],
)
VERIFY = Help(
    group="look",
    line="check all bytes of a checkpoint, or a plan, against what must hold",
    text="""Of a checkpoint, all files that its manifests name are read and compared with their checksums, and the
placement of the last commit is checked. It reads only, also while a stream runs. Of a plan, every invariant is
checked.""",
    examples=[
        ("verify /data/checkpoint", "a checkpoint: manifests, checksums, placement"),
        ("verify problem.json", "the plan that the engine makes of this problem"),
        ("verify problem.json --plan plan.json", "a plan that you have"),
    ],
    codes={
        codes.DONE: "valid and stable; of a checkpoint: valid",
        codes.FAILED: "the plan breaks an invariant; of a checkpoint: damaged, incomplete, or such a placement",
        codes.MOVES: "valid, and moves are planned",
    },
    schemas=["taskplace.verification/1", "taskplace.checkpoint_verification/1"],
)
SIMULATE = Help(
    group="engine",
    line="simulate a cluster through events, round by round",
    text="FILE may also be the JSON output of an earlier simulation, which is replayed.",
    examples=[
        ("simulate problem.json", "until nothing moves any more"),
        ("simulate problem.json --events events.json", "with failures and joins from a file"),
        ("simulate problem.json --random-events 20 --seed 7", "with random ones"),
    ],
    codes={
        codes.DONE: "stable at the end",
        codes.FAILED: "a plan breaks an invariant",
        codes.MOVES: "not stable within --limit rounds",
    },
    schemas=["taskplace.transcript/1"],
)
PARTITIONS = Help(
    group="engine",
    line="assign topic partitions to the members of a group",
    examples=[
        ("partitions subscriptions.json", "who gets which partitions"),
        ("partitions subscriptions.json --assignor cooperative", "by another assignor than the file's"),
        ("partitions subscriptions.json --key orders 4711", "which members have the partition of this key?"),
    ],
    codes={
        codes.DONE: "no partition moves; with --key: shown",
        codes.FAILED: "the assignment breaks an invariant",
        codes.MOVES: "partitions move, or another assignment must follow",
    },
    schemas=["taskplace.partition_assignment/1", "taskplace.partition_location/1"],
)

#: What FILE is where it may be a checkpoint.
BOTH = "the directory of a checkpoint, or a problem.json; - is standard input"


def add_to(commands: Any) -> None:
    """Add the commands to the parser of the command line."""
    _html(_problem(add_command(commands, "plan", PLAN, _engine("plan"))))

    explain = _problem(add_command(commands, "explain", EXPLAIN, _engine("explain")), BOTH)
    explain.add_argument(
        "--task",
        metavar="TASK",
        action="append",
        help="explain this task alone, such as 0_3; may be repeated",
    )
    explain.add_argument(
        "--can-remove",
        metavar="INSTANCE",
        help="check whether this instance can be removed now; exit code 0: yes, 3: not yet",
    )

    verify = _problem(add_command(commands, "verify", VERIFY, _engine("verify")), BOTH)
    verify.add_argument(
        "--plan",
        metavar="PLAN",
        help="verify this plan.json instead of the engine's plan; - is standard input",
    )

    simulate = _html(_problem(add_command(commands, "simulate", SIMULATE, _engine("simulate"))))
    simulate.add_argument(
        "--events", metavar="EVENTS", help="a JSON file with a list of groups of events; - is standard input"
    )
    simulate.add_argument(
        "--random-events", metavar="N", type=int, help="add N random failures and joins after EVENTS"
    )
    simulate.add_argument(
        "--seed", metavar="SEED", type=int, help="with --random-events: their seed; default 0"
    )
    simulate.add_argument(
        "--restore-rate",
        metavar="RATE",
        type=float,
        help="records per second that a copy restores; default: any copy catches up within a round",
    )
    simulate.add_argument(
        "--limit",
        metavar="N",
        type=int,
        help="largest number of rounds per event; default 1000",
    )

    partitions = add_command(commands, "partitions", PARTITIONS, _partitions)
    partitions.add_argument("file", metavar="FILE", help="a subscriptions.json; - is standard input")
    add_output(partitions)
    partitions.add_argument("--assignor", metavar="NAME", help="use this assignor instead of the file's")
    partitions.add_argument(
        "--key",
        nargs=2,
        metavar=("TOPIC", "KEY"),
        help="show the members that have the partition of this key, and their addresses",
    )


def _problem(parser: CommandParser, meaning: str = "a problem.json; - is standard input") -> CommandParser:
    parser.add_argument("file", metavar="FILE", help=meaning)
    add_output(parser)
    return parser


def _html(parser: CommandParser) -> CommandParser:
    parser.add_argument(
        "--html",
        metavar="PATH",
        help="also write the HTML page there; - is standard output, which then has only the page",
    )
    return parser


# Each command is loaded when it is called: the solver takes a while to load.


def _engine(name: str) -> Callable[[argparse.Namespace], int]:
    def call(args: argparse.Namespace) -> int:
        from taskplace.cli import engine

        commands = {
            "plan": engine.plan,
            "explain": engine.explain,
            "verify": engine.verify,
            "simulate": engine.simulate,
        }
        return commands[name](args)

    return call


def _partitions(args: argparse.Namespace) -> int:
    from taskplace.cli.partitions import partitions

    return partitions(args)
