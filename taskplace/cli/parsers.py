"""Parsers whose help teaches, and whose errors are one line with the nearest known word.

**Idea.** The docstring of a command's declaration (`taskplace.cli.commands`) is its help. From it come
`taskplace COMMAND --help`, the groups of `taskplace --help`, and `docs/command_line.md` (`scripts/command_line.py`).

Errors: a wrong command line is one line on standard error, with exit code 2.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from taskplace.cli import codes
from taskplace.validation import nearest
from taskplace.wording import wrapped

#: The groups of `taskplace --help`, in their order: what people want, and behind ";" what holds for all commands of it.
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
    ("taskplace explain var/ID/checkpoint", "why is a task where it is, and what is stuck?"),
)
#: What two exit codes mean for every command that does not say more.
EVERYWHERE = {codes.BAD_INPUT: "bad input: nothing was started or changed", codes.INTERRUPTED: "interrupted"}
WIDTH = 100
_OPTION = re.compile(r"--?[A-Za-z][\w-]*")


class Help(NamedTuple):
    """What a command's help says.

    - `group`: a key of `GROUPS`
    - `line`: one sentence: what the command does; `text`: more about it
    - `examples`: command lines and what they do
    - `codes`: what its exit codes mean, in their order
    - `schemas`: of the documents that `--output json` prints
    """

    group: str
    line: str
    text: str
    examples: Sequence[tuple[str, str]]
    codes: Mapping[int, str]
    schemas: Sequence[str]

    @classmethod
    def of(cls, docstring: str, group: str) -> Help:
        """Return the help in a docstring. The codes 2 and 130 need not be there.

        >>> help_ = "Look at it.\\n\\nMore.\\n\\nExamples:\\n  look a    at a\\n\\nExit codes:\\n  0    seen"
        >>> Help.of(help_, "look")[1:4]
        ('look at it', 'More.', [('look a', 'at a')])
        """
        head, *parts = re.split(r"\n\n(Examples|Exit codes|JSON):\s", inspect.cleandoc(docstring))
        line, _, text = head.partition("\n\n")
        sections = dict(zip(parts[::2], parts[1::2], strict=True))
        examples, listed = (_rows(sections[name]) for name in ("Examples", "Exit codes"))
        every = EVERYWHERE | {int(code): meaning for code, meaning in listed}
        return cls(
            group,
            f"{line[0].lower()}{line[1:].removesuffix('.')}",
            " ".join(text.split()),
            examples,
            dict(sorted(every.items())),
            re.findall(r"[^\s,]+", sections.get("JSON", "")),
        )


def _rows(text: str) -> list[tuple[str, str]]:
    """Return lines of two columns, which have at least two blanks between them."""
    cut = (re.split(r" {2,}", row.strip(), maxsplit=1) for row in text.splitlines())
    return [(left, right) for left, right in cut]


class CommandParser(argparse.ArgumentParser):
    """The parser of one command."""

    help_: Help

    def __init__(self, **options: Any) -> None:
        # An abbreviation that works today means something else as soon as there is another option.
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as always, but look for unknown options first: they explain why an argument is missing."""
        args = list(sys.argv[1:] if args is None else args)
        known = [name for action in self._actions for name in action.option_strings]
        for word in self.before_commands(args):
            if word == "--":
                break
            name = word.partition("=")[0]
            if _OPTION.fullmatch(name) and name not in known:
                listed = ", ".join(option for option in known if option.startswith("--"))
                self.refuse(_found(f"option {name!r}", listed, nearest(name, known)))
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
        self.refuse(f"{name}: {_found(repr(value), 'one of ' + ', '.join(known), nearest(value, known))}")

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

    def add(self, name: str, group: str, runs: str, declare: Callable[[CommandParser], None]) -> None:
        """Add a command. `runs`: the "module:function" that runs it; `declare` has its help and its arguments."""
        help_ = Help.of(declare.__doc__ or "", group)
        examples = _table((f"taskplace {line}", what) for line, what in help_.examples)
        listed = _table((str(code), what) for code, what in help_.codes.items())
        described = f"{help_.line[0].upper()}{help_.line[1:]}. {help_.text}".strip()
        schemas = f"\n\nJSON: {', '.join(help_.schemas)}" if help_.schemas else ""
        parser: CommandParser = self.commands.add_parser(
            name,
            help=help_.line,
            description="\n".join(wrapped(described, WIDTH)),
            epilog=f"Examples:\n{examples}\n\nExit codes:\n{listed}{schemas}",
        )
        parser.help_ = help_
        parser.set_defaults(command=runs)
        declare(parser)

    def before_commands(self, args: list[str]) -> Sequence[str]:
        """Return the options before the command."""
        end = next((i for i, word in enumerate(args) if not word.startswith("-")), len(args))
        return args[:end]

    def format_help(self) -> str:
        """Return the help: what to type first, and the commands by group."""
        width = max(map(len, self.commands.choices))
        parts = [f"usage: {self.prog} COMMAND ...", f"{self.description}", f"First steps:\n{_table(FIRST)}"]
        helps = {name: one.help_ for name, one in self.commands.choices.items()}
        for group, title in GROUPS.items():
            rows = [(name, help_.line) for name, help_ in helps.items() if help_.group == group]
            parts.append(f"{title}:\n{_table(rows, width)}")
        end = f"{self.prog} COMMAND --help shows examples and exit codes. {self.prog} --version shows the version."
        return "\n\n".join([*parts, end]) + "\n"


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
