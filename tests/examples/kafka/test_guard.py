"""The guard of a process and its directory, with `sleep` instead of a broker."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

GUARD = Path(__file__).parents[3] / "examples" / "kafka" / "guard.py"
#: Starts the guard that its arguments say, passes on the guard's first line, and waits to be killed.
STARTER = """
import os, subprocess, sys
guard = [sys.executable, sys.argv[1], str(os.getpid()), *sys.argv[2:]]
guarding = subprocess.Popen(guard, stdout=subprocess.PIPE, text=True)
print(guarding.pid, guarding.stdout.readline().strip() if len(guard) > 4 else "", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def guarded(tmp_path):
    """Start a guard of a directory, from a process of its own."""
    started = []

    def start(*command):
        directory = tmp_path / "data"
        (directory / "below").mkdir(parents=True)
        (directory / "below" / "file").touch()
        arguments = [str(directory), *([str(tmp_path / "log"), *command] if command else [])]
        starter = subprocess.Popen(
            [sys.executable, "-c", STARTER, str(GUARD), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(starter)
        guard, *pid = starter.stdout.readline().split()
        return starter, psutil.Process(int(guard)), directory, *map(psutil.Process, map(int, pid))

    yield start
    for starter in started:
        starter.kill()
        starter.communicate()


def gone(*processes):
    left = psutil.wait_procs(processes, timeout=20)[1]
    return not left


def test_the_command_is_killed_with_its_starter_and_the_directory_removed(guarded):
    starter, guard, directory, command = guarded("sleep", "600")
    assert command.is_running() and directory.exists()
    starter.kill()
    assert gone(command, guard)
    assert not directory.exists()


def test_the_command_does_not_outlive_its_guard(guarded):
    _, guard, _, command = guarded("sleep", "600")
    guard.kill()
    assert gone(command)


def test_a_command_that_ends_by_itself_leaves_the_directory(tmp_path):
    log = tmp_path / "log"
    guard = [sys.executable, GUARD, str(os.getpid()), tmp_path, log]
    done = subprocess.run(
        [*guard, "sh", "-c", "echo out; echo err >&2; exit 3"], stdout=subprocess.PIPE, text=True
    )
    assert done.returncode == 3
    assert int(done.stdout) > 0
    assert log.read_text() == "out\nerr\n"
