"""Parsers whose help teaches, and whose errors are one line with the nearest known word.

**Idea.** Each command is declared once, by a `Help`: what it does in one sentence, examples, and its exit codes. From
this come `taskplace COMMAND --help`, the groups of `taskplace --help`, and `docs/command_line.md`
(`scripts/command_line.py`). `add_command` refuses a command that leaves one of them out.

Errors: a wrong command line is one line on standard error, with exit code 2.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from taskplace.cli import codes
from taskplace.validation import nearest
from taskplace.wording import wrapped

#: The groups of `taskplace --help`, in their order: what people want, and behind ";" what holds for all commands of it.
#: Each command is in one of them.
GROUPS: Mapping[str, str] = {
    "run": "Run a stream",
    "look": "Look at a stream or its checkpoint",
    "change": "Change a running stream; without --yes, only show what would change",
    "engine": "The engine alone, on JSON files, without Spark; explain, verify and report take such files as well",
    "shell": "Your shell",
}
#: What to type first.
FIRST = (
    ("taskplace run app.yaml --check", "is the application right? starts nothing"),
    ("taskplace doctor app.yaml", "is anything in it ignored, contradictory or slow?"),
    ("taskplace run app.yaml", "run it"),
    ("taskplace status var/ID/checkpoint", "what is it doing? from any host that sees the checkpoint"),
    (
        "taskplace explain var/ID/checkpoint",
        "why is a task where it is, and what is stuck?",
    ),
)
#: Words that people try, and the command that they want.
WANTED: Mapping[str, str] = {
    "check": "run FILE --check",
    "validate": "run FILE --check",
    "lint": "doctor FILE",
    "diagnose": "doctor FILE",
    "start": "run FILE",
    "submit": "run FILE",
    "ps": "status CHECKPOINT",
    "top": "status CHECKPOINT --watch",
    "watch": "status CHECKPOINT --watch",
    "undrain": "drain CHECKPOINT EXECUTOR --undo",
    "decommission": "drain CHECKPOINT EXECUTOR",
    "draw": "topology FILE --svg OUT",
    "settings": "config FILE",
}
#: Options that people try, and those that they want; the first one that the command has.
MEANT: Mapping[str, Sequence[str]] = {
    "--json": ("--output json",),
    "--format": ("--output json",),
    "--config": ("--set KEY=VALUE",),
    "--conf": ("--set KEY=VALUE",),
    "--dry-run": ("--check",),
    "--validate": ("--check",),
    "--properties-file": ("--spark-properties",),
    "--follow": ("--watch",),
}
WIDTH = 100
_OPTION = re.compile(r"--?[A-Za-z][\w-]*")


class Help(NamedTuple):
    """What a command's help says.

    - `group`: a key of `GROUPS`
    - `line`: one sentence: what the command does
    - `examples`: command lines and what they do
    - `codes`: what its exit codes mean; 2 and 130 need not be there
    - `text`: more about it
    - `schemas`: of the documents that `--output json` prints
    """

    group: str
    line: str
    examples: Sequence[tuple[str, str]]
    codes: Mapping[int, str]
    text: str = ""
    schemas: Sequence[str] = ()


class CommandParser(argparse.ArgumentParser):
    """The parser of one command."""

    help_: Help

    def __init__(self, **options: Any) -> None:
        # An abbreviation that works today means something else as soon as there is another option.
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def options(self) -> list[str]:
        """Return the names of all options."""
        return [name for action in self._actions for name in action.option_strings]

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as always, but look for unknown options first: they explain why an argument is missing."""
        args, known = list(sys.argv[1:] if args is None else args), self.options()
        for word in self.before_commands(args):
            if word == "--":
                break
            name = word.partition("=")[0]
            if _OPTION.fullmatch(name) and name not in known:
                listed = ", ".join(option for option in known if option.startswith("--"))
                meant = next((option for option in MEANT.get(name, ()) if option.split()[0] in known), "")
                hint = f"did you mean `{meant}`?" if meant else nearest(name, known)
                self.refuse(_found(f"option {name!r}", listed, hint))
        parsed, more = super().parse_known_args(args, namespace)
        if more and hasattr(self, "help_"):  # named with the command, and not by the parser of all commands
            self.error(f"unrecognized arguments: {' '.join(more)}")
        return parsed, more

    def before_commands(self, args: list[str]) -> Sequence[str]:
        """Return the arguments that are this parser's own."""
        return args

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a value that is none of the choices: argparse has no public hook for this."""
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        name = "/".join(action.option_strings) or f"{action.metavar or action.dest}"
        hint = f"`{self.prog} {WANTED[value]}` does this" if value in WANTED else nearest(value, known)
        self.refuse(f"{name}: {_found(repr(value), 'one of ' + ', '.join(known), hint)}")

    def error(self, message: str) -> NoReturn:
        """Refuse what argparse refuses, such as a missing argument: with an example."""
        example = f"; for example: taskplace {self.help_.examples[0][0]}" if hasattr(self, "help_") else ""
        self.refuse(f"{message}{example}")

    def refuse(self, message: str) -> NoReturn:
        """Print what is wrong in one line, and where to read more; exit with 2."""
        command = self.prog.partition(" ")[2]
        where = f"{command}: " if command else ""
        line = " ".join(f"taskplace: {where}{message}; see {self.prog} --help".split())
        self.exit(codes.BAD_INPUT, line.encode(errors="backslashreplace").decode() + "\n")


class MainParser(CommandParser):
    """The parser of `taskplace`: its help lists the commands by group."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = self.add_subparsers(metavar="COMMAND", parser_class=CommandParser)

    def before_commands(self, args: list[str]) -> Sequence[str]:
        """Return the options before the command."""
        end = next((i for i, word in enumerate(args) if not word.startswith("-")), len(args))
        return args[:end]

    def format_help(self) -> str:
        """Return the help: what to type first, and the commands by group."""
        by_group: dict[str, list[tuple[str, str]]] = {group: [] for group in GROUPS}
        for name, command in self.commands.choices.items():
            by_group[command.help_.group].append((name, command.help_.line))
        width = max(map(len, self.commands.choices))
        listed = [
            f"{title}:\n{_table(by_group[group], width)}"
            for group, title in GROUPS.items()
            if by_group[group]
        ]
        parts = [
            f"usage: {self.prog} COMMAND ...",
            f"{self.description}",
            f"First steps:\n{_table(FIRST)}",
            *listed,
            f"{self.prog} COMMAND --help shows examples and exit codes. {self.prog} --version shows the version.",
        ]
        return "\n\n".join(parts) + "\n"


def add_command(
    commands: Any, name: str, help_: Help, run: Callable[[argparse.Namespace], int]
) -> CommandParser:
    """Add a command to `MainParser.commands`, and return its parser.

    Errors: `ValueError` for a help without its group, its sentence, two examples or the code 0.

    >>> main = MainParser(prog="taskplace", description="Example.")
    >>> one = Help("look", "look at it", [("look a", "at a"), ("look b", "at b")], {0: "seen"})
    >>> print(add_command(main.commands, "look", one, print).epilog)
    Examples:
      taskplace look a    at a
      taskplace look b    at b
    <BLANKLINE>
    Exit codes:
      0      seen
      2      bad input: nothing was started, nothing was changed
      130    interrupted
    """
    if (
        help_.group not in GROUPS
        or not help_.line
        or len(help_.examples) < 2
        or codes.DONE not in help_.codes
    ):
        raise ValueError(f"{name}: a command needs a group of {list(GROUPS)}, a line, 2 examples and code 0")
    examples = _table([(f"taskplace {line}", what) for line, what in help_.examples])
    listed = _table([(str(code), what) for code, what in all_codes(help_).items()])
    described = " ".join([f"{help_.line[0].upper()}{help_.line[1:]}.", *help_.text.split()])
    schemas = f"\n\nJSON: {', '.join(help_.schemas)}" if help_.schemas else ""
    parser: CommandParser = commands.add_parser(
        name,
        help=help_.line,
        description="\n".join(wrapped(described, WIDTH)),
        epilog=f"Examples:\n{examples}\n\nExit codes:\n{listed}{schemas}",
    )
    parser.help_ = help_
    parser.set_defaults(command=run)
    return parser


def all_codes(help_: Help) -> dict[int, str]:
    """Return all exit codes of a command, in their order.

    >>> all_codes(Help("look", "", (), {4: "no driver runs", 0: "a driver runs", 2: "no checkpoint"}))
    {0: 'a driver runs', 2: 'no checkpoint', 4: 'no driver runs', 130: 'interrupted'}
    """
    every = {
        codes.BAD_INPUT: "bad input: nothing was started, nothing was changed",
        codes.INTERRUPTED: "interrupted",
    }
    return dict(sorted({**every, **help_.codes}.items()))


def add_output(parser: argparse._ActionsContainer, *more: str) -> None:
    """Add `--output text|json`."""
    parser.add_argument(
        "--output",
        choices=("text", "json", *more),
        default="text",
        help="text for people (default), or json: one document, with the name of its schema",
    )


def _found(what: str, known: str, hint: str) -> str:
    return f"found {what}, expected {known}{hint and f'; {hint}'}"


def _table(rows: Iterable[tuple[str, str]], least: int = 0) -> str:
    """Return rows of two columns; the second is wrapped. The first is at least `least` wide."""
    rows = list(rows)
    width = max(least, *(len(left) for left, _ in rows)) + 4
    lines = []
    for left, right in rows:
        first, *rest = wrapped(right, max(40, WIDTH - width - 2)) or [""]
        lines += [f"  {left:<{width}}{first}", *(f"  {'':<{width}}{line}" for line in rest)]
    return "\n".join(lines)
