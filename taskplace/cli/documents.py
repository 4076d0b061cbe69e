"""Tells what a file is, so that one given to the wrong command is refused with the name of the right one.

**Idea.** People give a problem to `run`, an application to `plan`, or a file to `status`. The reader of the expected
document would complain about its first unknown key. So the kind of a document is looked at first: its `schema`, or
else its keys. A document that looks like none of them is left to its reader.

Errors: `InputError` with the file, what it is, what was expected, and the command that takes it.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from taskplace.errors import InputError, plainly
from taskplace.record.json_lines import is_run_lines

#: A file to read that is standard input, and a file to write that is standard output.
STDIN = STDOUT = "-"
#: The section of a file that steers a query of Spark's own, as in conf/steer.yaml.
STEERING = "steering"


class Kind(NamedTuple):
    """A kind of document: what it is called, and the command that takes it."""

    what: str
    command: str


KINDS: Mapping[str, Kind] = {
    "application": Kind("an application's YAML file", "run {}"),
    "topology": Kind("a topology", "topology {}"),
    "problem": Kind("a placement problem (problem.json)", "plan {}"),
    "plan": Kind("a plan (plan.json)", "verify PROBLEM --plan {}"),
    "transcript": Kind("a simulation to replay (transcript.json)", "simulate {}"),
    "subscriptions": Kind("subscriptions of a group (subscriptions.json)", "partitions {}"),
    "events": Kind("events of a simulation (events.json)", "simulate PROBLEM --events {}"),
    "lines": Kind("the lines of a run (`run --output json`)", "report {}"),
    "checkpoint": Kind("a checkpoint", "inspect {}"),
    "sealed": Kind("a file of a checkpoint, with its checksum", "inspect CHECKPOINT"),
}
#: The keys that a document without a schema is known by.
_KEYS: Mapping[str, Collection[str]] = {
    "problem": ("tasks", "instances"),
    "plan": ("assignment", "target"),
    "transcript": ("problem", "events", "plans"),
    "subscriptions": ("topics", "members"),
    "topology": ("sources", "nodes"),
    "sealed": ("body", "seal"),
}
_SECTIONS = ("application", "spark", "placement", "topology", "runtime")


def kind_of(document: Any) -> str | None:
    """Return the kind of a document; None if it looks like none of them.

    >>> kind_of({"tasks": [], "instances": []}), kind_of({"application.id": "a"}), kind_of({"x": 1})
    ('problem', 'application', None)
    """
    if isinstance(document, list):
        inner = [each for group in document for each in (group if isinstance(group, list) else [group])]
        events = inner and all(isinstance(each, Mapping) and "kind" in each for each in inner)
        return "events" if events else None
    if not isinstance(document, Mapping):
        return None
    name, _, version = f"{document.get('schema', '')}".removeprefix("taskplace.").partition("/")
    if version and name in KINDS:
        return name
    words = {f"{key}".partition(".")[0] for key in document}
    if "application" in words:
        return "application"
    found = [kind for kind, keys in _KEYS.items() if words.issuperset(keys)]
    return next(iter(found), "application" if words.intersection(_SECTIONS) else None)


def expect(document: Any, path: str, *wanted: str) -> Any:
    """Return a document that is of one of these kinds, or of none that is known. Errors: `InputError`."""
    kind = kind_of(document)
    if kind is not None and kind not in wanted:
        _refuse(path, kind, wanted)
    return document


def application_document(path: str, *wanted: str) -> Mapping[str, Any]:
    """Return the mapping in a YAML file: an application, or one of `wanted`."""
    from taskplace.spec.document import read_file

    kinds = ("application", *wanted)
    has_path(path, path)
    if Path(path).is_dir():
        _refuse_directory(path, kinds)
    return expect(read_file(Path(path), _expected(kinds)), path, *kinds)  # type: ignore[no-any-return]


def placed_application(path: str) -> Mapping[str, Any]:
    """Return the mapping in the YAML file of an application that `taskplace run` can start.

    A file of a steered query is as good an application for `taskplace doctor`, but it has no topology to run.
    """
    document = application_document(path)
    if STEERING in document:
        raise InputError(
            path,
            found=f"the file of a steered query: it has a section `{STEERING}`",
            expected=KINDS["application"].what,
            hint="a program of your own calls `taskplace.spark.steer`: see docs/steering.md",
        )
    return document


def has_path(file: str, where: str) -> None:
    """Refuse "-" for a file that is no JSON: it is read more than once, or by other processes. Errors: `InputError`."""
    if file == STDIN:
        hint = "only JSON is read from standard input; ./- is a file of this name"
        raise InputError(where, found=f"{STDIN}, standard input", expected="the path of a file", hint=hint)


def one_stdin(file: str, option: str, second: str | None) -> None:
    """Refuse standard input for two files of one command. Errors: `InputError` that names the option."""
    if file == second == STDIN:
        raise InputError(option, found=STDIN, expected="a path: standard input is FILE already")


def needs(option: str, given: object, other: str, present: object) -> None:
    """Refuse an option that does nothing without another one. Errors: `InputError` that names both.

    >>> needs("--count", None, "--watch", False)
    >>> needs("--count", 2, "--watch", False)
    Traceback (most recent call last):
    taskplace.errors.InputError: --count: found 2, expected it only with --watch
    """
    if given is not None and not present:
        raise InputError(option, found=given, expected=f"it only with {other}")


@contextmanager
def as_options(**options: str) -> Iterator[None]:
    """Name an argument in an error by the option of the command line that it was given with.

    >>> with as_options(task="--task"):
    ...     raise InputError("task", found="9_9", expected="one of 2 tasks: 0_0, 0_1")
    Traceback (most recent call last):
    taskplace.errors.ConfigError: --task: found '9_9', expected one of 2 tasks: 0_0, 0_1
    """
    try:
        yield
    except InputError as error:
        if error.path not in options:
            raise
        raise error.at(options[error.path]) from None


def page_option(option: str, path: str | None, output: str = "text", *, replaced: bool = True) -> None:
    """Refuse, before the work, a file that cannot be written, and one on standard output beside a JSON document.

    `replaced`: as of `check_page`. Errors: `InputError` that names the option.
    """
    if path == STDOUT and output == "json":
        raise InputError(option, found=STDOUT, expected="a path, with --output json")
    if path not in (None, STDOUT):
        from taskplace.record.html.page import check_page  # loads jinja2

        check_page(path, option, replaced=replaced)


def is_directory(path: str, *wanted: str) -> bool:
    """Return whether a path is a directory, for a command that takes a checkpoint or a file of one of these kinds.

    Errors: `InputError` if nothing is there; it names the nearest checkpoint or file. A name that ends in ".json" is
    meant for a file, whose reader says that it is missing.
    """
    given = Path(path)
    if path == STDIN or given.exists() or given.suffix == ".json":
        return path != STDIN and given.is_dir()
    from taskplace.spark.inspection.checkpoint import is_checkpoint
    from taskplace.spec.document import nearest_file

    near = nearest_file(given, "*", lambda one: one.suffix == ".json" or is_checkpoint(one))
    hint = f"did you mean {near!r}?" if near else ""
    expected = f"the directory of a checkpoint, or {_expected(wanted)}"
    wrong = InputError(path, found="nothing there", expected=expected, hint=hint)
    raise plainly(wrong, f"there is no such file or directory; expected {expected}{hint and '; ' + hint}")


def json_document(path: str, *wanted: str) -> Any:
    """Return a JSON document of one of these kinds; "-" is standard input.

    Errors: `InputError` with the path, and the line if it is not JSON.
    """
    return json_in(text_of(path, *wanted), path, *wanted)


def json_in(text: str, path: str, *wanted: str) -> Any:
    """Return the JSON document in a text that was read from `path`. Errors: as `json_document`."""
    return expect(_parsed(text, path, wanted), path, *wanted)


def text_of(path: str, *wanted: str) -> str:
    """Return the text of a JSON file; "-" is standard input. Errors: as `json_document`."""
    try:
        text = sys.stdin.read() if path == STDIN else Path(path).read_text(encoding="utf-8")
        return text.removeprefix("\ufeff")  # a byte order mark
    except IsADirectoryError:
        _refuse_directory(path, wanted)
    except (OSError, UnicodeDecodeError) as error:
        from taskplace.spec.document import unreadable

        raise unreadable(Path(path), error, "a readable JSON file", "*.json") from None


def _parsed(text: str, path: str, wanted: Collection[str]) -> Any:
    if not text.strip():
        raise InputError(path, found="an empty file", expected=_expected(wanted))
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        if (kind := _kind_of_text(text)) is not None and kind not in wanted:
            _refuse(path, kind, wanted)
        where, found = f"{path}:{error.lineno}:{error.colno}", error.msg
    except RecursionError:
        where, found = path, "brackets nested too deeply"
    except ValueError as error:
        where, found = path, str(error)
    raise InputError(where, found=found, expected="a JSON document")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    twice = [name for name, times in Counter(name for name, _ in pairs).items() if times > 1]
    if twice:
        raise ValueError(f"the key {twice[0]!r} twice in one object")
    return dict(pairs)


def _no_number(name: str) -> Any:
    raise ValueError(f"{name}, which JSON has not")


def _kind_of_text(text: str) -> str | None:
    """Return the kind of a document, in JSON, YAML or lines; None if it is none."""
    from taskplace.spec.document import load

    if is_run_lines(text):
        return "lines"
    with suppress(InputError):
        return kind_of(load(text, ""))
    return None


def checkpoint(path: str) -> Path:
    """Return the directory of a checkpoint.

    Errors: `InputError`; for an application's file, it names the checkpoint that the file says.
    """
    from taskplace.spark.inspection.checkpoint import checkpoint_at
    from taskplace.spec.application import Settings

    if Path(path).is_file():
        hint, kind = "", None
        with suppress(InputError):
            kind, hint = "application", Settings.from_mapping(application_document(path)).checkpoint_dir
        with suppress(UnicodeDecodeError):
            kind = kind or _kind_of_text(Path(path).read_text(encoding="utf-8"))
        if kind is not None:
            _refuse(path, kind, ["checkpoint"], hint and f"its checkpoint is {hint}")
    return checkpoint_at(path)


def _refuse_directory(path: str, wanted: Collection[str]) -> NoReturn:
    from taskplace.spark.inspection.checkpoint import is_checkpoint

    if is_checkpoint(Path(path)):
        _refuse(path, "checkpoint", wanted)
    raise InputError(path, found="a directory", expected=_expected(wanted))


def _refuse(path: str, kind: str, wanted: Collection[str], hint: str = "") -> NoReturn:
    what, command = KINDS[kind]
    name = path if path == STDIN else shlex.quote(path)
    takes = f"`taskplace {command.format(name)}` takes it"
    raise InputError(path, found=what, expected=_expected(wanted), hint=hint or takes)


def _expected(wanted: Collection[str]) -> str:
    return " or ".join(KINDS[kind].what for kind in wanted) or "a JSON document"
