"""Runs an application, or checks it: `taskplace run`."""

from __future__ import annotations

import argparse
import json
import logging
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from msgspec import structs

from taskplace.cli import codes
from taskplace.cli.application import Application, built_topology, check_inputs, judge, load_application
from taskplace.cli.documents import placed_application
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
    log, log_tasks = settings.report.log, settings.report.log_tasks
    with (
        interrupted_by_sigterm(),
        nullcontext() if log is None else logging_to(sys.stderr, log, tasks=log_tasks),
    ):
        return _run(settings, application, built)


def _checked(args: argparse.Namespace) -> tuple[Settings, Application, BuiltTopology]:
    settings = Settings.from_mapping(placed_application(args.file), [*args.set, *_ui(args.ui)])
    if args.output == "json" or (args.output == "text" and settings.report.progress == "json"):
        progress = "json" if args.output == "json" else "auto"
        settings = replace(settings, report=structs.replace(settings.report, progress=progress))
    application = load_application(settings)
    built = built_topology(application, settings)
    built.tasks()  # raises with the reason when the topology is not ready
    check_inputs(application, settings)
    report = settings.report
    if report.metrics_port is not None:
        check_serving("report.metrics.port", port=report.metrics_port, host=report.metrics_host)
    check_report(report)
    return settings, application, built


def _check(args: argparse.Namespace) -> int:
    """Print whether the application is valid. Errors: as those of a start."""
    checked: dict[str, Any] = {"schema": CHECK_SCHEMA, "file": args.file}
    try:
        settings, application, built = _checked(args)
        judge(application, built, settings)
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
    match = re.fullmatch(r"(?:(?P<host>[^:]+|\[.*\]):)?(?P<port>[0-9]{1,5})", address)
    if match is None or int(match["port"]) > 65_535:
        raise InputError(
            "--ui", found=address, expected="PORT or HOST:PORT, such as 4050; 0 takes a free port"
        )
    host = [f"report.ui.host={json.dumps(match['host'].strip('[]'))}"] if match["host"] else []
    return [f"report.ui.port={match['port']}", *host]


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Within this block, the first SIGTERM raises `KeyboardInterrupt`; later ones do nothing, while the block ends.

    Service managers and containers send SIGTERM, and kill what has not ended some time later. Does nothing outside of
    the main thread, which alone gets signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


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
        found, expected = f"{path} ({error.strerror})", "a path that can be written"
        raise InputError("report.events", found=found, expected=expected) from None


def _reported(settings: Settings, application: Application, reporter: Reporter) -> int:
    warnings = _Warnings(reporter)
    logging.getLogger().addHandler(warnings)
    try:
        if hasattr(application, "prepare"):
            with Work("preparing the input", show=reporter.progress):
                application.prepare()
        try:
            from taskplace.spark import app
        except ModuleNotFoundError as error:
            hint = "install it: pip install 'taskplace[spark]'"
            raise UnsupportedSpark(f"running needs Spark, and {error.name!r} is missing; {hint}") from None
        return app.run(settings, application, reporter)
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
