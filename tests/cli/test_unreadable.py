"""A checkpoint that belongs to another user, or that cannot be read, is one line that says so."""

from __future__ import annotations

import os
import pwd

import pytest

from taskplace.cli import main
from tests.support.operators import stream

COMMANDS = ("status", "inspect", "verify", "explain", "report")


@pytest.fixture
def checkpoint(world):
    placed = stream(world)
    placed.close()
    return placed.checkpoint


def refused(*words: object) -> str:
    """Raise as the kernel does for another user; root may read everything."""
    raise PermissionError(13, "Permission denied", str(words[0]))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_private_checkpoint_of_another_user(checkpoint, monkeypatch, capsys, command):
    monkeypatch.setattr("pathlib.Path.iterdir", refused)
    monkeypatch.setattr(os, "geteuid", lambda: 65_534)
    assert main([command, str(checkpoint)]) == 2
    owner = pwd.getpwuid(checkpoint.stat().st_uid).pw_name
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        f"taskplace: {checkpoint}: it cannot be read (Permission denied; it belongs to user '{owner}': run the command "
        "as that user)"
    )


@pytest.mark.parametrize("command", ["status", "explain"])
def test_a_status_that_is_a_directory(checkpoint, capsys, command):
    (checkpoint / "status.json").unlink()
    (checkpoint / "status.json").mkdir()
    assert main([command, str(checkpoint)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        f"taskplace: {checkpoint}/status.json: damaged (it is not a file), expected a file with the schema "
        "'taskplace.status/1'; it may be deleted: no state depends on it, and the running driver writes its "
        "status again"
    )


def test_a_file_that_no_command_expects_to_fail(checkpoint, monkeypatch, capsys):
    monkeypatch.setattr("taskplace.spark.inspection.driver.numbered", lambda *_, **__: refused("/x/epochs"))
    assert main(["status", str(checkpoint)]) == 1
    assert capsys.readouterr().err.startswith("taskplace: /x/epochs: Permission denied")
