"""The arguments of `taskplace report`, and its help."""

from __future__ import annotations

import argparse
from typing import Any

from taskplace.cli import codes
from taskplace.cli.parsers import Help, add_command, add_output

REPORT = Help(
    group="look",
    line="write the HTML page of a run, a checkpoint, a plan or a simulation",
    text="""One file that needs no network: the placement before and after with the moves, batches, losses, lags,
balance, and the reasons in a table that can be searched. FILE may be the event lines of a run (the key report.events),
a checkpoint, a problem.json, which is planned, a plan.json, or the JSON output of a simulation.""",
    examples=[
        ("report var/flights/events.jsonl", "a run, also one that was killed"),
        ("report /data/checkpoint", "a checkpoint, and what its driver does"),
        ("report problem.json", "plans it; writes taskplace-problem.html"),
        ("report plan.json --problem problem.json", "a plan, with what it changes and why"),
        ("report simulation.json --out page.html", "the JSON output of a simulation, to this path"),
    ],
    codes={codes.DONE: "written; the path is printed"},
    schemas=["taskplace.page/1"],
)


def add_to(commands: Any) -> None:
    """Add the command to the parser of the command line."""
    report = add_command(commands, "report", REPORT, _report)
    report.add_argument(
        "file",
        metavar="FILE",
        help="a JSON file, event lines, or the directory of a checkpoint; - is standard input",
    )
    report.add_argument(
        "--out",
        metavar="PATH",
        help="where to write the page; - is standard output; default: taskplace-NAME.html in this directory",
    )
    add_output(report)
    report.add_argument(
        "--problem", metavar="PROBLEM", help="the problem.json of a plan.json; - is standard input"
    )


def _report(args: argparse.Namespace) -> int:
    from taskplace.cli.report import report

    return report(args)
