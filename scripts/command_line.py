"""Writes docs/command_line.md from the parsers of the command line: `python scripts/command_line.py`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from taskplace.cli import parser
from taskplace.cli.codes import BAD_INPUT, INTERRUPTED, MEANINGS
from taskplace.cli.parsers import EVERYWHERE, FIRST, GROUPS, CommandParser
from taskplace.record.events import LINES, SCHEMA
from taskplace.record.json_lines import meanings

FILE = Path(__file__).parents[1] / "docs" / "command_line.md"
HEAD = """# Command line

All commands, as `taskplace COMMAND --help` shows them (`scripts/command_line.py`).

{first}

- A command that would change a running stream needs `--yes`; without it, it shows what would change.
- An error is one line on stderr: the path, what was found, what was expected, and the nearest known word.
- `--output json` prints a [document](#json). Only `completion` has none.
- Options are not abbreviated. `--set KEY=VALUE` overrides a key of the file, and may be repeated.
- `-` is standard input where FILE is JSON."""
CODES = """## Exit codes

{everywhere} apply to every command.

{table}

If the reader of its output is gone (`| head`), any command ends with 1."""
DOCUMENTS = """## JSON

With `--output json`, a command prints one document with the name of its schema, `status --watch` one a line, and `run`
[lines of its own](#lines-of-a-run). Fields may be added to a schema; any other change changes its number.
`taskplace.model.schema.schema("plan")` returns a JSON Schema with the meaning of each field."""
LINES_HEAD = """## Lines of a run

`taskplace run FILE --output json`, or the key `report.progress: json`, prints a line of JSON for each event, and the
rest to standard error. The first line is the `start`, with the `schema` {schema}; the last is the `finish`, also after
an error. Each line has its `event`, and its `time` in UTC. `taskplace.record.json_lines.schema()` is the schema."""
#: Arguments of several commands, which the head explains.
SHARED = ("--help", "--output", "--set", "FILE", "CHECKPOINT")


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
    lines = [
        f"- `{name}`: {', '.join(f'`{each}`' for each in one.help_.schemas)}"
        for name, one in commands.items()
        if one.help_.schemas
    ]
    return "\n".join([DOCUMENTS, "", *lines])


def _lines() -> str:
    lines = [LINES_HEAD.format(schema=SCHEMA), ""]
    for line in LINES:
        names = ", ".join(f"`{name}`" for name in meanings(line) if name != "time")
        what = (line.__doc__ or "").partition("\n")[0]
        lines.append(f"- `{line.__struct_config__.tag}`: {what} {names}")
    return "\n".join(lines)


def _codes(commands: dict[str, CommandParser]) -> str:
    rows = []
    for code, meaning in MEANINGS.items():
        of = [f"`{name}`" for name, one in commands.items() if code in one.help_.codes]
        rows.append((f"{code}", meaning, "all" if len(of) == len(commands) else ", ".join(of)))
    table = _rows(("code", "meaning", "commands"), rows)
    return CODES.format(everywhere=f"{BAD_INPUT} and {INTERRUPTED}", table=table)


def _command(name: str, one: CommandParser) -> str:
    help_ = one.help_
    width = max(len(line) for line, _ in help_.examples) + 4
    examples = "\n".join(f"taskplace {line:<{width}}{what}" for line, what in help_.examples)
    own = {code: what for code, what in help_.codes.items() if (code, what) not in EVERYWHERE.items()}
    parts = [
        f"### `{' '.join([f'taskplace {name}', *_positional(one)])}`",
        f"{help_.line[0].upper()}{help_.line[1:]}. {help_.text}".strip(),
        f"```text\n{examples}\n```",
        "\n".join(_arguments(one)),
        f"Exit codes: {'; '.join(f'{code}: {what}' for code, what in own.items())}.",
    ]
    return "\n\n".join(filter(None, parts))


def _positional(one: CommandParser) -> Iterator[str]:
    for action in one._actions:
        if not action.option_strings:
            shown = f"{action.metavar or action.dest}"
            yield f"{shown}..." if action.nargs == "+" else f"[{shown}]" if action.nargs == "?" else shown


def _arguments(one: CommandParser) -> Iterator[str]:
    for action in one._actions:
        name = action.option_strings[-1] if action.option_strings else action.metavar
        if name not in SHARED:
            yield f"- `{_name(action)}`: {action.help}"


def _name(action: argparse.Action) -> str:
    metavar = action.metavar
    if action.nargs == 0:
        value = ""
    elif isinstance(metavar, tuple):
        value = " ".join(metavar)
    else:
        value = metavar or "|".join(map(str, action.choices or [action.dest.upper()]))
    return " ".join(filter(None, [", ".join(action.option_strings), value]))


def _rows(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    written = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([written[0], f"|{'---|' * len(head)}", *written[1:]])


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
