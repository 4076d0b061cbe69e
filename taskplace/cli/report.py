"""`taskplace report`: the HTML page of a plan, a simulation, a run or a checkpoint."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import taskplace
from taskplace import simulation
from taskplace.cli import codes, documents
from taskplace.errors import InputError
from taskplace.explanation import Explainer
from taskplace.model.plan import Plan
from taskplace.model.problem import Problem
from taskplace.record import html
from taskplace.record.json_lines import is_run_lines, read_run_lines

SCHEMA = "taskplace.page/1"
#: The kinds of documents that have a page.
KINDS = ("problem", "plan", "transcript", "lines", "checkpoint")


def report(args: argparse.Namespace) -> int:
    """Write the page of a file, and print its path. Return 0."""
    documents.page_option("--out", args.out, args.output)
    documents.one_stdin(args.file, "--problem", args.problem)
    made = report_of(args.file, problem=args.problem)
    if args.out == documents.STDOUT:
        sys.stdout.write(html.page(made))
        return codes.DONE
    path = html.write_page(made, args.out or default_path(args.file))
    if args.output == "json":
        print(json.dumps({"schema": SCHEMA, "page": str(path), "kind": made.kind, "title": made.title}))
    else:
        print(path)
    return codes.DONE


def default_path(file: str) -> Path:
    """Return the path of a page without `--out`: in the current directory, named after the file.

    >>> str(default_path("runs/plan.json")), str(default_path("-"))
    ('taskplace-plan.html', 'taskplace-report.html')
    """
    name = "report" if file == documents.STDIN else Path(file).resolve().name.partition(".")[0]
    return Path(f"taskplace-{name or 'report'}.html")


def report_of(file: str, *, problem: str | None = None) -> html.Report:
    """Return the report of a file. `problem`: the problem.json of a plan.json.

    Errors: `InputError` for a file that is none of those that have a page.
    """
    if problem is None and documents.is_directory(file, *KINDS[:-1]):
        from taskplace.spark.inspection.report import report_of_checkpoint

        return report_of_checkpoint(documents.checkpoint(file))
    text = documents.text_of(file, *KINDS)
    if problem is None and is_run_lines(text):
        return html.report_of_lines(read_run_lines(text, file))
    document = documents.json_in(text, file, *KINDS)
    name = "standard input" if file == documents.STDIN else Path(file).name
    kind = documents.kind_of(document)
    if problem is not None and kind != "plan":
        raise InputError("--problem", found=problem, expected="a FILE that is a plan")
    if kind == "transcript":
        return html.report_of_simulation(simulation.replay(document), title=name)
    if kind == "plan":
        return _of_plan(document, problem, name)
    given = Problem.from_dict(document)
    return html.report_of_plan(taskplace.plan(given), given, title=name)


def _of_plan(document: Any, problem: str | None, name: str) -> html.Report:
    plan = Plan.from_dict(document)
    given = None if problem is None else Problem.from_dict(documents.json_document(problem, "problem"))
    if given is not None:
        Explainer(given, plan)  # refuses a plan of other instances
    return html.report_of_plan(plan, given, title=name)
