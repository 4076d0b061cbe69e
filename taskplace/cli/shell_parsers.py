"""The arguments of the command for the user's shell, and its help."""

from __future__ import annotations

import argparse

from taskplace.cli import codes
from taskplace.cli.parsers import Help, MainParser, add_command

SHELLS = ("bash", "zsh", "tcsh")
COMPLETION = Help(
    group="shell",
    line="print a script that lets your shell complete commands, options, files and keys",
    text="""Install it once, and start a new shell. Make it again after an upgrade. The output is a shell script,
so there is no --output json.""",
    examples=[
        ("completion bash > ~/.taskplace.bash", "bash, with `source ~/.taskplace.bash` in ~/.bashrc"),
        (
            "completion zsh > ~/.zfunc/_taskplace",
            "zsh, with `fpath=(~/.zfunc $fpath)` before compinit in ~/.zshrc",
        ),
        ("completion tcsh > ~/.taskplace.tcsh", "tcsh, with `source ~/.taskplace.tcsh` in ~/.tcshrc"),
    ],
    codes={codes.DONE: "printed"},
)


def add_to(whole: MainParser) -> None:
    """Add the command to the parser of the command line."""

    def call(args: argparse.Namespace) -> int:
        from taskplace.cli.completion import completion

        return completion(args, whole)

    completion = add_command(whole.commands, "completion", COMPLETION, call)
    completion.add_argument("shell", metavar="SHELL", choices=SHELLS, help="bash, zsh or tcsh")
