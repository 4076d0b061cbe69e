"""`taskplace run` and `taskplace topology`: the commands that need an application."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from msgspec import structs

from taskplace.cli import codes
from taskplace.cli.application import (
    Application,
    built_topology,
    check_inputs,
    judge,
    load_application,
    shown_topology,
)
from taskplace.cli.documents import page_option, placed_application
from taskplace.cli.termination import interrupted_by_sigterm
from taskplace.errors import InputError, UnsupportedSpark
from taskplace.logs import logging_to
from taskplace.model.work import Work
from taskplace.record import Reporter, reporter_for
from taskplace.record.html.page import check_report
from taskplace.record.json_lines import JsonReporter
from taskplace.record.prometheus import check_serving
from taskplace.record.reporters import FanOut
from taskplace.redaction import scrubbed
from taskplace.spec.application import Settings
from taskplace.wording import behind, count
from topology import BuiltTopology
from topology.errors import TopologyError

CHECK_SCHEMA = "taskplace.check/1"


def run(args: argparse.Namespace) -> int:
    """Run an application until its input ends or it is stopped; return the exit code.

    Everything that can be checked without Spark is checked first: the file, the class, the topology.
    """
    if args.check:
        return _check(args)
    settings, application, built = _checked(args)
    with interrupted_by_sigterm(), _logging(settings):
        return _run(settings, application, built)


def _checked(args: argparse.Namespace) -> tuple[Settings, Application, BuiltTopology]:
    settings = Settings.from_mapping(placed_application(args.file), [*args.set, *_ui(args.ui)])
    report = structs.replace(settings.report, progress=_progress(settings, args.output))
    settings = replace(settings, report=report)
    application = load_application(settings)
    built = built_topology(application, settings)
    built.tasks()  # raises with the reason when the topology is not ready
    check_inputs(application, settings)
    report = settings.report
    if report.metrics_port is not None:
        check_serving("report.metrics.port", port=report.metrics_port, host=report.metrics_host)
    check_report(report)
    return settings, application, built


def _progress(settings: Settings, output: str | None) -> str:
    """Return `report.progress`, or what `--output` has in its place."""
    given = settings.report.progress
    if output == "json":
        return "json"
    return "auto" if output == "text" and given == "json" else given


def _check(args: argparse.Namespace) -> int:
    """Print whether the application is valid. Errors: as those of a start."""
    checked: dict[str, Any] = {"schema": CHECK_SCHEMA, "file": args.file}
    try:
        settings, _, built = _checked(args)
        judge(built, settings)
    except (InputError, TopologyError) as error:
        if args.output == "json":
            print(json.dumps({**checked, "valid": False, "error": " ".join(str(error).split())}))
        raise
    subtopologies, tasks = len(built.subtopologies), len(built.tasks())
    if args.output == "json":
        counts = {"topology": built.name, "subtopologies": subtopologies, "tasks": tasks}
        print(json.dumps({**checked, "valid": True, **counts}))
    else:
        counted = f"{count(subtopologies, 'subtopology', 'subtopologies')}, {count(tasks, 'task')}"
        print(f"{args.file}: valid; {built.name}: {counted}")
    return codes.DONE


def _ui(address: str | None) -> list[str]:
    """Return the overrides that `--ui [HOST:]PORT` stands for. Errors: `InputError`."""
    if address is None:
        return []
    host, _, port = address.rpartition(":")
    if not port.isascii() or not port.isdigit() or (":" in host and not host.startswith("[")):
        raise InputError(
            "--ui", found=address, expected="PORT or HOST:PORT, such as 4050; 0 takes a free port"
        )
    if len(port) > 5 or int(port) > 65_535:
        raise InputError("--ui", found=address, expected="a port of at most 65535")
    return [f"report.ui.port={port}", *([f"report.ui.host={json.dumps(host.strip('[]'))}"] if host else [])]


def _logging(settings: Settings) -> AbstractContextManager[None]:
    log = settings.report.log
    return nullcontext() if log is None else logging_to(sys.stderr, log, tasks=settings.report.log_tasks)


def _run(settings: Settings, application: Application, built: BuiltTopology) -> int:
    with ExitStack() as stack:
        output, errors = sys.stdout, behind(sys.stderr)
        stack.enter_context(redirect_stderr(errors))  # the application may print, also what steers a terminal
        only_lines = settings.report.progress == "json"  # nothing else is on standard output
        stack.enter_context(redirect_stdout(errors if only_lines else behind(output)))
        reporter: Reporter = reporter_for(settings.report.progress, output)
        programs = [reporter] if isinstance(reporter, JsonReporter) else []
        if settings.report.events is not None:
            lines = JsonReporter(stack.enter_context(_opened(settings.report.events)))
            programs.append(lines)
            reporter = FanOut(reporter)
            reporter.add(lines)
        return _run_for_programs(programs, settings, application, built, reporter)


def _run_for_programs(
    programs: Sequence[JsonReporter],
    settings: Settings,
    application: Application,
    built: BuiltTopology,
    reporter: Reporter,
) -> int:
    """Run. The first line of each of `programs` says what starts, and the last line how the run ended."""
    for each in programs:
        each.start(application=settings.application.id, checkpoint=settings.checkpoint_dir, built=built)
    code, said = codes.FAILED, None
    try:
        code = _reported(settings, application, reporter)
    except BaseException as error:
        code, said = codes.of(error), str(error) or type(error).__name__
        said = "interrupted" if code == codes.INTERRUPTED else said
        raise
    finally:
        for each in programs:
            each.finish(code, said)
    return code


def _opened(path: str) -> TextIO:
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return Path(path).open("w", encoding="utf-8")
    except OSError as error:
        expected = "a path that can be written"
        raise InputError("report.events", found=f"{path} ({error.strerror})", expected=expected) from None


def _reported(settings: Settings, application: Application, reporter: Reporter) -> int:
    warnings = _Warnings(reporter)
    logging.getLogger().addHandler(warnings)
    try:
        if hasattr(application, "prepare"):
            with Work("preparing the input", show=reporter.progress):
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
    page_option("--svg", args.svg)
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
            tasks = "an unknown number of tasks" if sub.partitions is None else count(sub.partitions, "task")
            print(f"subtopology {sub.id}: {tasks}, {stores}")
        if not (ready := built.readiness()):
            print(f"not ready: {ready.reason}")
    return 0
