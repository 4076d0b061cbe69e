"""The arguments of the commands that take an application's YAML file, and their help."""

from __future__ import annotations

import argparse
from typing import Any

from taskplace.cli import codes
from taskplace.cli.parsers import Help, add_command, add_output

RUN = Help(
    group="run",
    line="run an application from its YAML file",
    text="""It reads what is there when it starts, and ends; with the key `spark.trigger.interval` it goes on until it
is stopped. A run that was interrupted goes on after its last committed batch. This is the only command that starts
Spark.""",
    examples=[
        ("run app.yaml --check", "check all that needs no Spark; starts nothing"),
        ("run app.yaml", "run it"),
        ("run app.yaml --ui 4050", "run it, with a live page at http://127.0.0.1:4050/"),
        ("run app.yaml --set placement.num.standby.replicas=1", "with another value than the file's"),
        ("run app.yaml --output json | jq -r .event", "for programs: a line for each event"),
    ],
    codes={
        codes.DONE: "done; with --check: valid",
        codes.FAILED: "a batch failed, the application's own check found differences, or Spark cannot be used",
        codes.BAD_INPUT: "bad input, such as an unknown key: nothing was started",
    },
    schemas=["taskplace.run/1", "taskplace.check/1"],
)
TOPOLOGY = Help(
    group="run",
    line="show the subtopologies and tasks of an application, or draw them",
    text="FILE may also be a topology's own document. Starts nothing.",
    examples=[
        ("topology app.yaml", "as text"),
        ("topology app.yaml --svg app.svg", "as a picture; needs taskplace[plots]"),
        ("topology app.yaml --dot | dot -Tpng -o app.png", "for a Graphviz of your own"),
    ],
    codes={
        codes.DONE: "shown, also if the topology is not ready to run",
        codes.FAILED: "the picture cannot be drawn",
    },
    schemas=["taskplace.topology/1"],
)

CONFIG = Help(
    group="run",
    line="show the values that are in force, and where each comes from",
    text="""From the file with its line, from --set, from the environment, from another key, or a default: Kafka's or
taskplace's. Values without an effect are named, and so are the Spark properties that the application sets. Secrets are
hidden. Starts nothing and needs no Spark.""",
    examples=[
        ("config app.yaml", "what is set"),
        ("config app.yaml --all", "and all defaults"),
        ("config app.yaml --set placement.num.standby.replicas=1", "what --set would change"),
    ],
    codes={codes.DONE: "shown"},
    schemas=["taskplace.config/1"],
)

DOCTOR = Help(
    group="run",
    line="find what is ignored, contradictory or slow in a configuration",
    text="""Each finding has the key, what was found, why it matters, and a remedy: options or a command to
paste, or what to do. Starts nothing. FILE may also steer a query of Spark's own. A checkpoint and
Spark's properties let more rules look.""",
    examples=[
        ("doctor app.yaml", "before the first run"),
        ("doctor app.yaml --checkpoint /data/checkpoint", "can the file continue this checkpoint?"),
        ("doctor app.yaml --spark-properties spark.conf", "with the cluster's properties"),
        ("doctor app.yaml --output json | jq .counts", "for programs"),
    ],
    codes={
        codes.DONE: "nothing above advice",
        codes.FAILED: "errors were found",
        codes.BAD_INPUT: "a file cannot be read, or a key in it is wrong",
        codes.WARNINGS: "warnings were found, and no errors",
    },
    schemas=["taskplace.diagnosis/1"],
)


def add_to(commands: Any) -> None:
    """Add the commands to the parser of the command line."""
    run = add_command(commands, "run", RUN, _run)
    _application(run)
    run.add_argument(
        "--ui",
        metavar="[HOST:]PORT",
        help="serve a live page while it runs; 0: a free port. Without HOST only this host can see it; "
        "there is no authentication. With --check: only whether the address is free",
    )
    run.add_argument(
        "--check",
        action="store_true",
        help="check all that needs no Spark, then stop: file, class, topology, inputs on this host, values for Spark",
    )
    run.add_argument(
        "--output",
        choices=("text", "json"),
        help="text for people, or json: a line for each event; default: as the key `report.progress` says",
    )

    topology = add_command(commands, "topology", TOPOLOGY, _topology)
    _application(topology)
    form = topology.add_mutually_exclusive_group()
    add_output(form, "dot")
    form.add_argument(
        "--dot",
        action="store_const",
        const="dot",
        dest="output",
        help="print the graph for Graphviz, same as --output dot",
    )
    form.add_argument("--svg", metavar="FILE", help="draw the graph into a file; - is standard output")

    config = add_command(commands, "config", CONFIG, _config)
    _application(config)
    add_output(config)
    config.add_argument("--all", action="store_true", help="also the defaults, and the whole topology")
    doctor = add_command(commands, "doctor", DOCTOR, _doctor)
    _application(doctor)
    doctor.add_argument("--checkpoint", metavar="CHECKPOINT", help="also look at this checkpoint; reads only")
    doctor.add_argument(
        "--spark-properties", metavar="FILE", help="also read Spark's properties, as in spark-defaults.conf"
    )
    add_output(doctor)


def _application(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the application's YAML file")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="override a key; may be repeated"
    )


# Each command is loaded when it is called, so that each loads only what it needs.


def _run(args: argparse.Namespace) -> int:
    from taskplace.cli.run import run

    return run(args)


def _doctor(args: argparse.Namespace) -> int:
    from taskplace.cli.doctor import doctor

    return doctor(args)


def _topology(args: argparse.Namespace) -> int:
    from taskplace.cli.run import topology

    return topology(args)


def _config(args: argparse.Namespace) -> int:
    from taskplace.cli.config import config

    return config(args)
