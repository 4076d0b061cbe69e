"""The command line.

    taskplace run FILE [--set key=value]... [--check]     run an application
    taskplace topology FILE [--dot] [--svg FILE]          show its subtopologies and tasks, or draw them
    taskplace plan|explain|verify|simulate FILE           a problem.json, without Spark
    taskplace partitions FILE                             a subscriptions.json: assign topic partitions
    taskplace inspect CHECKPOINT [--verify]               what is in a checkpoint, and whether it is whole
    taskplace status CHECKPOINT [--watch]                 what its running driver is doing
    taskplace drain CHECKPOINT EXECUTOR... [--yes]        move all tasks away from executors
    taskplace can-remove CHECKPOINT EXECUTOR...           whether executors can be removed now

Exit codes:
    0     done; for plan, explain, verify and simulate: stable, nothing has to move; the instance can go
    1     it failed: the check found differences, a plan breaks an invariant, a checkpoint is damaged, no usable Spark
    2     bad input: nothing was started
    3     plan, explain, verify, simulate, drain: moves are planned; the instance cannot go yet
    4     status, drain, can-remove: no driver runs
    5     drain, can-remove: the driver did not answer in time
    130   interrupted

Errors are one line on standard error. Spark is loaded by `run`, and by applications that load it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from taskplace.cli import checkpoint_parsers, codes
from taskplace.errors import InputError, TaskplaceError
from topology.errors import TopologyError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code.

    >>> main(["run", "no-such-file.yaml"])
    2
    """
    args = _parser().parse_args(argv)
    try:
        code: int = args.command(args)
        sys.stdout.flush()
        return code
    except (InputError, TopologyError) as error:
        return _print_error(error, codes.BAD_INPUT)
    except TaskplaceError as error:
        return _print_error(error, codes.FAILED)
    except KeyboardInterrupt:
        return _print_error("interrupted", codes.INTERRUPTED)
    except BrokenPipeError:
        # The reader has gone (`| head`); what is still buffered must not be reported at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return codes.FAILED


def _print_error(what: object, code: int) -> int:
    line = " ".join(str(what).split()).encode("utf-8", "backslashreplace").decode("utf-8")
    print("taskplace:", line, file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="taskplace", description="Task placement for stateful PySpark.")
    parser.add_argument("--version", action="version", version=f"taskplace {version('taskplace')}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    run = commands.add_parser("run", help="run an application from its YAML file")
    _application(run)
    run.add_argument("--check", action="store_true", help="check file, class and topology, then stop")
    run.set_defaults(command=_run)

    topology = commands.add_parser("topology", help="show the subtopologies and tasks of an application")
    _application(topology)
    form = topology.add_mutually_exclusive_group()
    form.add_argument("--output", choices=("text", "json", "dot"), default="text")
    form.add_argument(
        "--dot",
        action="store_const",
        const="dot",
        dest="output",
        help="print the graph for Graphviz, same as --output dot",
    )
    form.add_argument("--svg", metavar="FILE", help="draw the graph into a file; - is standard output")
    topology.set_defaults(command=_topology)

    for name, what in _ENGINE.items():
        command = commands.add_parser(name, help=what)
        command.add_argument("file", metavar="FILE", help="a problem.json; - is standard input")
        command.add_argument("--output", choices=("text", "json"), default="text")
        command.set_defaults(command=_engine, name=name)
        _options_of(name, command)

    partitions = commands.add_parser("partitions", help="assign topic partitions to the members of a group")
    partitions.add_argument("file", metavar="FILE", help="a subscriptions.json; - is standard input")
    partitions.add_argument("--output", choices=("text", "json"), default="text")
    partitions.add_argument("--assignor", metavar="NAME", help="use this assignor instead of the file's")
    partitions.add_argument(
        "--key",
        nargs=2,
        metavar=("TOPIC", "KEY"),
        help="show the members that have the partition of this key, and their addresses",
    )
    partitions.set_defaults(command=_partitions)
    checkpoint_parsers.add_to(commands)
    return parser


_ENGINE = {
    "plan": "plan the placement of a problem",
    "explain": "explain why the plan puts each task where it is",
    "verify": "check a plan against every invariant",
    "simulate": "simulate a cluster through events, round by round",
}


def _options_of(name: str, command: argparse.ArgumentParser) -> None:
    """Add the options that only this command of `_ENGINE` has."""
    if name == "simulate":
        command.add_argument("--events", metavar="EVENTS", help="a JSON file with a list of groups of events")
        command.add_argument(
            "--random-events", metavar="N", type=int, help="add N random failures and joins after EVENTS"
        )
        command.add_argument("--seed", type=int, default=0, help="seed of the random events; default 0")
        command.add_argument("--restore-rate", type=float, help="records per second that a copy restores")
        command.add_argument("--limit", type=int, default=1000, help="largest number of rounds per event")
    if name == "explain":
        command.add_argument("--task", metavar="TASK", help="explain only this task, such as 0_3")
        command.add_argument(
            "--can-remove",
            metavar="INSTANCE",
            help="check whether this instance can be removed now; exit code 0: yes, 3: not yet",
        )
    if name == "verify":
        command.add_argument(
            "--plan", metavar="PLAN", help="verify this plan.json instead of the engine's plan"
        )


def _application(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the application's YAML file")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="override a key; may be repeated"
    )


# Each command is loaded when it is called: `taskplace plan` needs no YAML, and only `run` needs Spark.


def _run(args: argparse.Namespace) -> int:
    from taskplace.cli.run import run

    return run(args)


def _topology(args: argparse.Namespace) -> int:
    from taskplace.cli.run import topology

    return topology(args)


def _partitions(args: argparse.Namespace) -> int:
    from taskplace.cli.partitions import partitions

    return partitions(args)


def _engine(args: argparse.Namespace) -> int:
    from taskplace.cli import engine

    commands = {
        "plan": engine.plan,
        "explain": engine.explain,
        "verify": engine.verify,
        "simulate": engine.simulate,
    }
    return commands[args.name](args)
