"""All commands of the command line: their help and their arguments.

**Idea.** A command is a function that adds its arguments. Its docstring is the help: what the command does, examples,
exit codes, and the schemas of its JSON. `@command` names the function that runs it, which is loaded when it is called,
so each command loads only what it needs.

To add a command: a function here, one elsewhere that takes the parsed arguments and returns an exit code, and
`python scripts/command_line.py`, which writes docs/command_line.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from taskplace.cli.parsers import CommandParser

Declare = Callable[[CommandParser], None]
#: By command: its group (`taskplace.cli.parsers.GROUPS`), what runs it, and what declares it.
COMMANDS: dict[str, tuple[str, str, Declare]] = {}
SHELLS = ("bash", "zsh", "tcsh")


def command(group: str, runs: str) -> Callable[[Declare], Declare]:
    """Declare a command; its name is that of the function. `runs`: "module:function", below `taskplace.cli`."""

    def declared(declare: Declare) -> Declare:
        COMMANDS[declare.__name__.replace("_", "-")] = group, f"taskplace.cli.{runs}", declare
        return declare

    return declared


# ------------------------------------------------------------------------------------------------ an application


@command("run", "run:run")
def run(parser: CommandParser) -> None:
    """Run an application from its YAML file.

    It reads what is there at its start, and ends; with `spark.trigger.interval` it goes on until it is stopped. A new
    run goes on after the last committed batch. Only this command starts Spark.

    Examples:
        run app.yaml --check    start nothing
        run app.yaml    run it
        run app.yaml --ui 4050    with a live page on this port
        run app.yaml --output json | jq -r .event    a line for each event

    Exit codes:
        0    done, or valid
        1    a batch or the application's own check failed, or Spark cannot be used

    JSON: taskplace.run/1, taskplace.check/1
    """
    _application(parser)
    ui = "serve a live page without authentication; 0: a free port; default HOST: 127.0.0.1"
    parser.add_argument("--ui", metavar="[HOST:]PORT", help=ui)
    parser.add_argument("--check", action="store_true", help="check all that needs no Spark; start nothing")
    output = "text, or json: a line for each event; default: as the key `report.progress` says"
    parser.add_argument("--output", choices=("text", "json"), help=output)


@command("run", "topology:topology")
def topology(parser: CommandParser) -> None:
    """Show the subtopologies and tasks of an application, or draw them.

    FILE may also be a topology's document.

    Examples:
        topology app.yaml    as text
        topology app.yaml --svg app.svg    a picture; needs taskplace[plots]

    Exit codes:
        0    shown, also if not ready to run
        1    the picture cannot be drawn

    JSON: taskplace.topology/1
    """
    _application(parser)
    form = parser.add_mutually_exclusive_group()
    _output(form, "dot")
    form.add_argument("--dot", action="store_const", const="dot", dest="output", help="same as --output dot")
    form.add_argument("--svg", metavar="FILE", help="draw it into a file; - is standard output")


@command("run", "config:config")
def config(parser: CommandParser) -> None:
    """Show the values that are in force, and where each comes from.

    Also Spark's properties that the application sets. Values without effect are marked. Secrets are hidden.

    Examples:
        config app.yaml    without defaults
        config app.yaml --all    with defaults

    Exit codes:
        0    shown

    JSON: taskplace.config/1
    """
    _application(parser)
    _output(parser)
    parser.add_argument("--all", action="store_true", help="with defaults and the whole topology")


@command("run", "doctor:doctor")
def doctor(parser: CommandParser) -> None:
    """Find what is ignored, contradictory or slow in a configuration.

    Each finding has a reason and a remedy. FILE may also steer a query of Spark's own.

    Examples:
        doctor app.yaml    before the first run
        doctor app.yaml --checkpoint /data/checkpoint    can the file continue this checkpoint?
        doctor app.yaml --spark-properties spark.conf    with the cluster's properties

    Exit codes:
        0    nothing above advice
        1    errors
        2    bad input: a file or a key in it
        6    warnings, and no errors

    JSON: taskplace.diagnosis/1
    """
    _application(parser)
    parser.add_argument("--checkpoint", metavar="CHECKPOINT", help="also look at this checkpoint")
    properties = "with properties as in spark-defaults.conf"
    parser.add_argument("--spark-properties", metavar="FILE", help=properties)
    _output(parser)


@command("run", "pack:pack")
def pack(parser: CommandParser) -> None:
    """Pack the libraries that executors need, for hosts that do not have them.

    The key `spark.environment` sends the archive to executors; they need a Python of the same version and platform.

    Examples:
        pack environment.tar.gz    this library, and what its workers import
        pack environment.tar.gz --with scikit-learn    and what your processors import

    Exit codes:
        0    written

    JSON: taskplace.pack/1
    """
    parser.add_argument("out", metavar="FILE", help="the archive to write, a .tar.gz")
    more = "also this library and what it requires; may be repeated"
    parser.add_argument("--with", metavar="NAME", dest="more", action="append", default=[], help=more)
    _output(parser)


# ------------------------------------------------------------------------------------------------ a checkpoint


@command("look", "status:status")
def status(parser: CommandParser) -> None:
    """Show what a running stream is doing.

    Placement, lags, late rows, warm-ups, last rebalances and batches, on any host that sees the checkpoint.

    Examples:
        status /data/checkpoint    now
        status /data/checkpoint --watch    each change, until interrupted

    Exit codes:
        0    a driver runs
        1    the status cannot be read
        2    not a checkpoint
        4    no driver runs

    JSON: taskplace.status-seen/1
    """
    _checkpoint(parser)
    watch = "show each change; with --output json, each status that the driver writes"
    parser.add_argument("--watch", action="store_true", help=watch)
    interval = "with --watch: between two updates; default 1"
    parser.add_argument("--interval", metavar="SECONDS", type=float, help=interval)
    parser.add_argument("--count", metavar="N", type=int, help="with --watch: end after N updates")


@command("look", "inspect:inspect")
def inspect(parser: CommandParser) -> None:
    """Show what is in a checkpoint, and whether it is whole.

    Manifests, drivers, tasks, lags, sizes, and damaged or missing files. Safe while a stream runs.

    Examples:
        inspect /data/checkpoint    manifests, and the lengths of their files
        inspect /data/checkpoint --verify    and their checksums

    Exit codes:
        0    sound
        1    damaged or incomplete
        2    not a checkpoint

    JSON: taskplace.inspection/1
    """
    _checkpoint(parser)
    parser.add_argument("--verify", action="store_true", help="read all files, compare checksums")


@command("look", "drain:can_remove")
def can_remove(parser: CommandParser) -> None:
    """Say whether executors can be removed now.

    They can if they have no task, and no copy that the others lack. If not: what must catch up first.

    Examples:
        can-remove /data/checkpoint executor-2    can it be removed?
        can-remove /data/checkpoint executor-2 && echo "remove it"    in a script

    Exit codes:
        0    all of them can
        1    the request cannot be written
        2    an unknown executor, or other bad input
        3    not yet
        4    no driver runs
        5    no answer in time

    JSON: taskplace.answer/1, taskplace.no_answer/1
    """
    _executors(parser)


@command("change", "drain:drain")
def drain(parser: CommandParser) -> None:
    """Move all tasks away from executors.

    The running driver does it. Warm-ups catch up elsewhere first, so no task stalls. A drain ends with the driver.

    Examples:
        drain /data/checkpoint executor-2    show what would move
        drain /data/checkpoint executor-2 --yes    do it
        can-remove /data/checkpoint executor-2    is it empty now?
        drain /data/checkpoint executor-2 --undo --yes    let it run tasks again

    Exit codes:
        0    the driver does it, or nothing moves
        1    the request cannot be written
        2    bad input: an executor that is unknown, the last one, or has state that is not logged
        3    without --yes: something would change
        4    no driver runs
        5    no answer in time; the request was withdrawn

    JSON: taskplace.answer/1, taskplace.undo_preview/1, taskplace.no_answer/1
    """
    _executors(parser)
    parser.add_argument("--yes", action="store_true", help="do it")
    parser.add_argument("--undo", action="store_true", help="end a drain")
    unlogged = "even if stores with logged=False lose entries"
    parser.add_argument("--lose-unlogged", action="store_true", help=unlogged)


@command("look", "report:report")
def report(parser: CommandParser) -> None:
    """Write the HTML page of a run, a checkpoint, a plan or a simulation.

    One file that needs no network.

    Examples:
        report var/flights/events.jsonl    events of a run, also one that was killed
        report /data/checkpoint    a checkpoint and its driver
        report problem.json    the plan of it
        report plan.json --problem problem.json    a plan, and what it changes
        report simulation.json --out page.html    JSON of a simulation

    Exit codes:
        0    written; the path is printed

    JSON: taskplace.page/1
    """
    file = "a JSON file, event lines, or the directory of a checkpoint; - is standard input"
    parser.add_argument("file", metavar="FILE", help=file)
    out = "the page; - is standard output; default: taskplace-NAME.html here"
    parser.add_argument("--out", metavar="PATH", help=out)
    _output(parser)
    problem = "the problem.json of a plan.json; - is standard input"
    parser.add_argument("--problem", metavar="PROBLEM", help=problem)


# ------------------------------------------------------------------------------------------------ the engine

#: What FILE is where it may be a checkpoint.
_BOTH = "the directory of a checkpoint, or a problem.json; - is standard input"


@command("look", "engine:explain")
def explain(parser: CommandParser) -> None:
    """Explain why a task is where it is, why it waits or is stuck, and when it moves.

    FILE is a checkpoint with the last status of its driver, or a problem.json with its plan.

    Examples:
        explain /data/checkpoint    what moves in a stream, and what is stuck
        explain /data/checkpoint --task 0_3    this task
        explain problem.json    what changes

    Exit codes:
        0    stable; with --can-remove: yes
        1    the plan breaks an invariant
        3    moves are planned; with --can-remove: not yet
        4    no driver runs; its last status is shown

    JSON: taskplace.explanation/1, taskplace.removal/1, taskplace.no_answer/1
    """
    _problem(parser, _BOTH)
    task = "this task alone; may be repeated"
    parser.add_argument("--task", metavar="TASK", action="append", help=task)
    parser.add_argument("--can-remove", metavar="INSTANCE", help="can this instance be removed now?")


@command("look", "engine:verify")
def verify(parser: CommandParser) -> None:
    """Check all bytes of a checkpoint, or a plan, against what must hold.

    Of a checkpoint: the checksums of all files, and the last committed placement. Safe while a stream runs. Of a plan:
    every invariant.

    Examples:
        verify /data/checkpoint    a checkpoint
        verify problem.json    the engine's plan
        verify problem.json --plan plan.json    your plan

    Exit codes:
        0    valid and stable; of a checkpoint: valid
        1    an invariant is broken; of a checkpoint: also damaged or incomplete
        3    valid, and moves are planned

    JSON: taskplace.verification/1, taskplace.checkpoint_verification/1
    """
    _problem(parser, _BOTH)
    plan = "this plan.json instead of the engine's; - is standard input"
    parser.add_argument("--plan", metavar="PLAN", help=plan)


@command("engine", "engine:plan")
def plan(parser: CommandParser) -> None:
    """Plan the placement of a problem.

    Prints the step that is safe now, the moves with their reasons, and what is left to do.

    Examples:
        plan problem.json    for people
        plan problem.json --output json > plan.json    for verify and report

    Exit codes:
        0    stable: nothing moves
        1    an invariant is broken by the engine or your assignor
        3    moves are planned

    JSON: taskplace.plan/1
    """
    _problem(parser)
    _html(parser)


@command("engine", "engine:simulate")
def simulate(parser: CommandParser) -> None:
    """Simulate a cluster through events, round by round.

    FILE may also be the JSON of a simulation, to replay it.

    Examples:
        simulate problem.json    until nothing moves
        simulate problem.json --events events.json    with failures and joins
        simulate problem.json --random-events 20 --seed 7    with random ones

    Exit codes:
        0    stable at the end
        1    a plan breaks an invariant
        3    not stable within --limit rounds

    JSON: taskplace.transcript/1
    """
    _problem(parser)
    _html(parser)
    events = "JSON, a list of groups of events; - is standard input"
    parser.add_argument("--events", metavar="EVENTS", help=events)
    random = "N random failures and joins after EVENTS"
    parser.add_argument("--random-events", metavar="N", type=int, help=random)
    seed = "their seed; default 0"
    parser.add_argument("--seed", metavar="SEED", type=int, help=seed)
    rate = "records per second; default: any copy catches up within a round"
    parser.add_argument("--restore-rate", metavar="RATE", type=float, help=rate)
    limit = "most rounds per event; default 1000"
    parser.add_argument("--limit", metavar="N", type=int, help=limit)


@command("engine", "partitions:partitions")
def partitions(parser: CommandParser) -> None:
    """Assign topic partitions to the members of a group.

    Examples:
        partitions subscriptions.json    who gets which partitions
        partitions subscriptions.json --key orders 4711    which members have this key?

    Exit codes:
        0    no partition moves, or --key
        1    the assignment breaks an invariant
        3    partitions move, or a follow-up is needed

    JSON: taskplace.partition_assignment/1, taskplace.partition_location/1
    """
    _problem(parser, "a subscriptions.json; - is standard input")
    parser.add_argument("--assignor", metavar="NAME", help="use this assignor")
    key = "the members with the partition of this key, and their addresses"
    parser.add_argument("--key", nargs=2, metavar=("TOPIC", "KEY"), help=key)


# ------------------------------------------------------------------------------------------------ the shell


@command("shell", "completion:completion")
def completion(parser: CommandParser) -> None:
    """Print a script that lets your shell complete commands, options, files and keys.

    Install it once, and again after an upgrade; then start a new shell.

    Examples:
        completion bash > ~/.taskplace.bash    bash, with `source ~/.taskplace.bash` in ~/.bashrc
        completion zsh > ~/.zfunc/_taskplace    zsh, with `fpath=(~/.zfunc $fpath)` before compinit in ~/.zshrc
        completion tcsh > ~/.taskplace.tcsh    tcsh, with `source ~/.taskplace.tcsh` in ~/.tcshrc

    Exit codes:
        0    printed
    """
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help="bash, zsh or tcsh")


# ------------------------------------------------------------------------------------------------ arguments of several


def _application(parser: CommandParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the application's YAML file")
    override = "override a key; may be repeated"
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help=override)


def _checkpoint(parser: CommandParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="the directory of the checkpoint")
    _output(parser)


def _executors(parser: CommandParser) -> None:
    _checkpoint(parser)
    parser.add_argument("executors", metavar="EXECUTOR", nargs="+", help="its id, such as executor-2")
    timeout = "longest wait for the answer; default 30"
    parser.add_argument("--timeout", metavar="SECONDS", type=float, default=30.0, help=timeout)


def _problem(parser: CommandParser, file: str = "a problem.json; - is standard input") -> None:
    parser.add_argument("file", metavar="FILE", help=file)
    _output(parser)


def _html(parser: CommandParser) -> None:
    page = "also write the HTML page there; - is standard output"
    parser.add_argument("--html", metavar="PATH", help=page)


def _output(parser: argparse._ActionsContainer, *more: str) -> None:
    text = "text for people (default), or json: one document, with the name of its schema"
    parser.add_argument("--output", choices=("text", "json", *more), default="text", help=text)
