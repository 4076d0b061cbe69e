"""`taskplace run` and `taskplace topology`: the commands that need an application."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from taskplace.cli.application import (
    Application,
    built_topology,
    internal_plan,
    judge,
    load_application,
    shown_topology,
)
from taskplace.cli.documents import application_document
from taskplace.errors import UnsupportedSpark
from taskplace.logs import logging_to
from taskplace.metrics.endpoint import check_serving
from taskplace.redaction import scrubbed
from taskplace.report import Reporter, reporter_for
from taskplace.settings import Settings


def run(args: argparse.Namespace) -> int:
    """Run an application until its input ends or it is stopped; return the exit code.

    Everything that can be checked without Spark is checked first: the file, the class, the topology.
    """
    settings = Settings.from_mapping(application_document(args.file), args.set)
    application = load_application(settings)
    built = built_topology(application, settings)
    tasks = built.tasks()  # raises with the reason when the topology is not ready
    report = settings.report
    if report.metrics_port is not None:
        check_serving("report.metrics.port", port=report.metrics_port, host=report.metrics_host)
    if args.check:
        judge(built, settings)
        parts = f"{len(built.subtopologies)} subtopologies, {len(tasks)} tasks"
        print(f"{args.file}: valid; {built.name}: {parts}")
        return 0
    with _logging(settings):
        return _run(settings, application)


def _logging(settings: Settings) -> AbstractContextManager[None]:
    log = settings.report.log
    return nullcontext() if log is None else logging_to(sys.stderr, log, tasks=settings.report.log_tasks)


def _run(settings: Settings, application: Application) -> int:
    reporter = reporter_for(settings.report.progress)
    warnings = _Warnings(reporter)
    logging.getLogger().addHandler(warnings)
    try:
        if hasattr(application, "prepare"):
            reporter.note("preparing the input")
            application.prepare()
        return _spark_run()(settings, application, reporter)
    finally:
        logging.getLogger().removeHandler(warnings)
        reporter.close()


class _Warnings(logging.Handler):
    """Shows warnings where everything else is shown: a line to standard error would tear the live view apart."""

    def __init__(self, reporter: Reporter) -> None:
        super().__init__(logging.WARNING)
        self._reporter = reporter

    def emit(self, record: logging.LogRecord) -> None:
        # Py4J logs what it raises as well, with a traceback for every call that an interrupt breaks off.
        if record.module not in ("java_gateway", "clientserver"):
            self._reporter.note(scrubbed(record.getMessage()))


def _spark_run() -> Callable[[Settings, Application, Reporter], int]:
    try:
        from taskplace.spark import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "taskplace":
            raise
        hint = "install it: pip install 'taskplace[spark]'"
        raise UnsupportedSpark(f"running needs Spark, and {error.name!r} is missing; {hint}") from None
    run: Callable[[Settings, Application, Reporter], int] = app.run
    return run


def topology(args: argparse.Namespace) -> int:
    """Print the topology of a file: its subtopologies, stores and tasks; or draw it."""
    built = shown_topology(args.file, args.set).build()
    if args.svg is not None:
        from taskplace.cli.drawing import write_svg

        write_svg(built, args.svg)
    elif args.output == "json":
        json.dump(built.to_dict(), sys.stdout, indent=2)
        print()
    elif args.output == "dot":
        print(built.to_dot(), end="")
    else:
        print(built.describe(), end="")
        for sub in built.subtopologies:
            stores = ", ".join(store.name for store in sub.stores) or "no stores"
            print(f"subtopology {sub.id}: {sub.partitions} tasks, {stores}")
        print(internal_plan(built), end="")
        if not (ready := built.readiness()):
            print(f"not ready: {ready.reason}")
    return 0
