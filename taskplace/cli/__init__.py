"""The command line: `taskplace COMMAND`.

`taskplace.cli.commands` declares each command, with its help; `docs/command_line.md` has them all.

Errors are one line on standard error. The exit codes are in `taskplace.cli.codes`. Spark is loaded by `run`, and by
applications that load it.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from importlib.metadata import version
from pathlib import Path
from pkgutil import resolve_name
from types import TracebackType

from taskplace.cli import codes
from taskplace.cli.commands import COMMANDS
from taskplace.cli.parsers import MainParser
from taskplace.errors import TaskplaceError
from taskplace.redaction import scrubbed
from taskplace.spec.paths import why_not
from taskplace.wording import Printable, printable
from topology.errors import TopologyError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code.

    >>> main(["run", "no-such-file.yaml"])
    2
    """
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _print_traceback
    with redirect_stdout(Printable(sys.stdout)), redirect_stderr(Printable(sys.stderr)):
        return _main(argv)


def _main(argv: Sequence[str] | None) -> int:
    whole = parser()
    args = whole.parse_args(_as_option(list(sys.argv[1:] if argv is None else argv)))
    if "command" not in args:
        print(whole.format_help(), end="", file=sys.stderr)
        return codes.BAD_INPUT
    try:
        code: int = resolve_name(args.command)(args)
        sys.stdout.flush()
        return code
    except (TaskplaceError, TopologyError) as error:
        return _print_error(_with_line(f"{error}", args), codes.of(error))
    except KeyboardInterrupt as error:
        return _print_error("interrupted", codes.of(error))
    except BrokenPipeError:
        # The reader has gone (`| head`); what is still buffered must not be reported at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return codes.FAILED
    except OSError as error:  # of a file that no command has an error of its own for
        if error.filename is None:
            raise
        return _print_error(f"{os.fsdecode(error.filename)}: {why_not(error)}", codes.of(error))


def _as_option(words: list[str]) -> list[str]:
    """Return `help`, `help COMMAND` and `version` as the options that people mean.

    >>> _as_option(["help"]), _as_option(["help", "plan"]), _as_option(["version"]), _as_option(["plan", "help"])
    (['--help'], ['plan', '--help'], ['--version'], ['plan', 'help'])
    """
    if words[:1] == ["help"]:
        return [*words[1:], "--help"]
    return ["--version"] if words == ["version"] else words


def _with_line(text: str, args: argparse.Namespace) -> str:
    """Return an error with the line, in the YAML file of the command, of the key that it begins with."""
    path, file = text.partition(": ")[0], f"{getattr(args, 'file', '')}"
    overrides = [override.partition("=")[0] for override in getattr(args, "set", None) or ()]
    if not file.endswith((".yaml", ".yml")) or any(f"{path}.".startswith(f"{each}.") for each in overrides):
        return text
    from taskplace.spec.document import key_lines

    with suppress(OSError, ValueError):
        lines = key_lines(Path(file).read_text(encoding="utf-8"))
        by_path = {".".join(steps).replace(".[", "["): line for steps, line in lines.items()}
        near = [key for key in by_path if path == key or path.startswith((f"{key}.", f"{key}["))]
        if near:
            return f"{file}:{by_path[max(near, key=len)]}: {text}"
    return text


def _print_error(what: object, code: int) -> int:
    print("taskplace:", *scrubbed(str(what)).split(), file=sys.stderr)
    return code


def _print_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    text = scrubbed("".join(traceback.format_exception(kind, error, trace)))
    print(printable(text), end="", file=sys.stderr)


def parser() -> MainParser:
    """Return the parser of the whole command line. Each command says in its help what it does."""
    made = MainParser(
        prog="taskplace",
        description="Keeps the state of PySpark streams on the right executors, with hot standbys.",
    )
    made.add_argument("--version", action="version", version=f"taskplace {version('taskplace')}")
    for name, declared in COMMANDS.items():
        made.add(name, *declared)
    return made
