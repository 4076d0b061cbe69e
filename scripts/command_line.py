"""Writes docs/command_line.md from the parsers of the command line: `python scripts/command_line.py`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from taskplace.record.json_lines import LINES, SCHEMA, schema

from taskplace.cli import parser
from taskplace.cli.codes import BAD_INPUT, INTERRUPTED, MEANINGS
from taskplace.cli.parsers import FIRST, GROUPS, CommandParser, all_codes

FILE = Path(__file__).parents[1] / "docs" / "command_line.md"
HEAD = """# Command line

All commands of `taskplace`, with their arguments, examples and exit codes. `scripts/command_line.py` writes this page
from the parsers, so it says the same as `taskplace COMMAND --help`.

What to type first:

{first}

Rules of all commands:

- **Dry run first.** A command that would change a running stream only shows what would change, until it gets `--yes`.
  Its last line says so.
- **Errors are one line** on standard error: the path, what was found, what was expected, and the nearest known word.
  Results are on standard output.
- **`--output json`** prints a [document](#json) in place of the text. Errors stay lines on standard error. Only
  `completion` has none: its output is a shell script.
- **An unknown command or option** is refused with the nearest known one. Options are not abbreviated.
- **A file that belongs to another command** is refused with the name of that command: a problem given to `run`, an
  application given to `plan` or `status`."""
CODES = """## Exit codes

Scripts can rely on these codes. {everywhere} apply to every command, and are not listed below.

{table}

The table of each command below says what a code means there. If the reader of its output is gone (`| head`), any
command ends with 1."""


DOCUMENTS = """## JSON

With `--output json`, a command prints one document, which names its schema. `status --watch` prints one in each line,
and `run` prints [lines of its own](#lines-of-a-run). Fields may be added to a schema. If one is removed or changes its
meaning, the number of the schema changes. `taskplace.model.schema.schema("plan")` returns a JSON Schema, which says
what each field means."""
LINES_HEAD = """## Lines of a run

`taskplace run FILE --output json`, or the key `report.progress: json`, prints one line of JSON for each event. The
first line is the `start`, with the `schema` {schema}; the last one is the `finish`, also after an error. What else is
printed goes to standard error. `taskplace.record.json_lines.schema()` returns the JSON Schema of a line.

Each line has its `event`, and the `time` when it was written, in UTC."""


def page() -> str:
    """Return the page."""
    commands = parser().commands.choices
    parts = [
        HEAD.format(first=_rows(("command", "what it does"), [(f"`{line}`", what) for line, what in FIRST]))
    ]
    parts.append(_codes(commands))
    for group, title in GROUPS.items():
        heading, _, note = title.partition("; ")
        parts.append(f"## {heading}")
        if note:
            parts.append(f"{note[0].upper()}{note[1:]}.")
        parts += [_command(name, one) for name, one in commands.items() if one.help_.group == group]
    parts += [_documents(commands), _lines()]
    return "\n\n".join(parts) + "\n"


def _documents(commands: dict[str, CommandParser]) -> str:
    rows = []
    for name, one in commands.items():
        for each in one.help_.schemas:
            kind = each.removeprefix("taskplace.").partition("/")[0]
            rows.append((f"`{name}`", f"`{each}`", f"`taskplace/model/schema/{kind}.json`"))
    return f"{DOCUMENTS}\n\n{_rows(('command', 'schema', 'JSON Schema'), rows)}"


def _lines() -> str:
    parts = [LINES_HEAD.format(schema=SCHEMA)]
    known = schema()["$defs"]
    for line in LINES:
        fields = known[line.__name__]["properties"]
        rows = [
            (f"`{name}`", of["description"]) for name, of in fields.items() if name not in ("event", "time")
        ]
        title = line.__struct_config__.tag
        parts.append(f"### `{title}`\n\n{line.__doc__}\n\n{_rows(('field', 'meaning'), rows)}")
    return "\n\n".join(parts)


def _codes(commands: dict[str, CommandParser]) -> str:
    rows = []
    for code, meaning in MEANINGS.items():
        of = [f"`{name}`" for name, one in commands.items() if code in all_codes(one.help_)]
        rows.append((f"{code}", meaning, "all" if len(of) == len(commands) else ", ".join(of)))
    table = _rows(("code", "meaning", "commands"), rows)
    return CODES.format(everywhere=f"{BAD_INPUT} and {INTERRUPTED}", table=table)


def _command(name: str, one: CommandParser) -> str:
    help_ = one.help_
    width = max(len(line) for line, _ in help_.examples) + 4
    examples = "\n".join(f"taskplace {line:<{width}}{what}" for line, what in help_.examples)
    own = [(f"{code}", what) for code, what in all_codes(help_).items() if code != INTERRUPTED]
    return "\n\n".join(
        [
            f"### `{' '.join([f'taskplace {name}', *_positional(one)])}`",
            " ".join([f"{help_.line[0].upper()}{help_.line[1:]}.", *help_.text.split()]),
            f"```text\n{examples}\n```",
            _rows(("argument", "meaning"), list(_arguments(one))),
            _rows(("exit code", "meaning"), own),
        ]
    )


def _positional(one: CommandParser) -> Iterator[str]:
    for action in one._actions:
        if not action.option_strings:
            shown = f"{action.metavar or action.dest}"
            yield f"{shown}..." if action.nargs == "+" else f"[{shown}]" if action.nargs == "?" else shown


def _arguments(one: CommandParser) -> Iterator[tuple[str, str]]:
    for action in one._actions:
        if action.dest != "help" and action.help != argparse.SUPPRESS:
            yield f"`{_name(action)}`", action.help or ""


def _name(action: argparse.Action) -> str:
    metavar = action.metavar
    if action.nargs == 0:
        value = ""
    elif isinstance(metavar, tuple):
        value = " ".join(metavar)
    else:
        value = metavar or "|".join(map(str, action.choices or [action.dest.upper()]))
    return " ".join(filter(None, [", ".join(action.option_strings), value]))


def _rows(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    written = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([written[0], f"|{'---|' * len(head)}", *written[1:]])


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
