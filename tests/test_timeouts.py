"""The time that a test may take, and what is left of it when the time is over."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.support.forks import wait_for

CONFTEST = Path(__file__).with_name("conftest.py")
EVERYDAY = 420  # seconds: pyproject.toml


@pytest.fixture
def conftest(request):
    plugins = request.config.pluginmanager.get_plugins()
    return next(plugin for plugin in plugins if getattr(plugin, "__file__", None) == str(CONFTEST))


@pytest.mark.parametrize(
    ("marks", "seconds"),
    [([], None), (["slow"], "many"), (["long"], None), (["slow", pytest.mark.timeout(77)], 77)],
    ids=["everyday", "slow", "long", "slow with its own"],
)
def test_a_slow_test_may_take_longer_than_an_everyday_one(request, conftest, marks, seconds):
    item = pytest.Function.from_parent(request.node.parent, name="drawn", callobj=lambda: None)
    for mark in marks:
        item.add_marker(mark)
    conftest.allow_hours([item])
    mark = item.get_closest_marker("timeout")
    if seconds == "many":
        assert mark.args[0] > EVERYDAY
    else:
        assert (mark and mark.args[0]) == seconds


def test_no_forked_process_outlives_a_wait_that_was_interrupted(monkeypatch):
    """It would change the files that the test is about to check."""
    waitpid, child = os.waitpid, os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)

    def interrupted(pid, options):
        monkeypatch.setattr(os, "waitpid", waitpid)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "waitpid", interrupted)
    with pytest.raises(KeyboardInterrupt):
        wait_for(child)
    assert not psutil.pid_exists(child)


def test_a_wait_returns_the_status_of_a_stop_and_of_an_end():
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(3)
    assert os.WIFSTOPPED(wait_for(child, os.WUNTRACED))
    os.kill(child, signal.SIGCONT)
    assert os.waitstatus_to_exitcode(wait_for(child)) == 3
