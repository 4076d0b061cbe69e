"""`taskplace completion`: a script that lets a shell complete commands, options, files and configuration keys.

**Idea.** shtab makes the script from the parsers. What an argument takes is told by its metavar, so a new command is
completed without a change here: `FILES` are files, `DIRECTORIES` are directories, `KEYS` are configuration keys.
Everything else has no completion.

Non-goals: asking a running driver for its executors. A completion has to be there at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import shtab

from taskplace.cli import codes, parser
from taskplace.cli.parsers import MainParser
from taskplace.spec.application import SECTIONS

FILES = ("FILE", "EVENTS", "PLAN", "PROBLEM", "PATH")
DIRECTORIES = ("CHECKPOINT",)
KEYS = ("KEY=VALUE",)
#: A key is not the whole word: its value follows.
_NO_SPACE = """
_taskplace() {
  _shtab_taskplace "$@"
  [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
  return 0
}

complete -o bashdefault -F _taskplace taskplace"""


def completion(args: argparse.Namespace) -> int:
    """Print the script for a shell."""
    print(script(parser(), args.shell))
    return codes.DONE


def script(whole: MainParser, shell: str) -> str:
    """Return the script for bash, zsh or tcsh. `whole` is not to be used for anything else afterwards."""
    for one in whole.commands.choices.values():
        one.description = one.help_.line  # zsh shows it beside the name, in one line
    for action in actions(whole):
        _complete(action)
    written = shtab.complete(whole, shell)
    return written + _NO_SPACE if shell == "bash" else written


def actions(whole: MainParser) -> Iterator[argparse.Action]:
    """Yield the arguments of all commands."""
    for one in whole.commands.choices.values():
        yield from one._actions


def _complete(action: Any) -> None:
    if action.metavar in FILES:
        action.complete = shtab.FILE
    elif action.metavar in DIRECTORIES:
        action.complete = shtab.DIRECTORY
    elif action.metavar in KEYS:
        keys = " ".join(f"{path}=" for path in paths())
        function = f'_taskplace_keys() {{ compgen -W "{keys}" -- "$1"; }}'
        zsh = f"{{compadd -S '' -- {keys}}}"
        action.complete = {"bash": "_taskplace_keys", "zsh": zsh, "preamble": {"bash": function}}


def paths() -> list[str]:
    """Return the paths of all keys that `--set` may name: not the entries of topology, input and output."""
    return sorted(f"{name}.{key}" for name, section in SECTIONS.items() for key in section.known_keys())
