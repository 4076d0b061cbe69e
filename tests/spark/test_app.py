"""When the stream of `taskplace run` ends."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from taskplace.errors import ConfigError
from taskplace.spark import session_conf, session_properties
from taskplace.spark.app import trigger_of
from taskplace.spark.driver.definition import read_trigger
from taskplace.spec.application import Settings
from tests.support.pages import ROOT


def settings(*overrides: str) -> Settings:
    return Settings.from_mapping({"application": {"id": "a", "class": "a:B"}}, overrides)


def test_a_run_ends_with_what_was_there_at_its_start():
    assert read_trigger(trigger_of(settings())) == {"availableNow": True}


def test_with_an_interval_it_goes_on():
    made = trigger_of(settings("spark.trigger.interval=1.5 s"))
    assert read_trigger(made) == {"processingTime": "1500 milliseconds"}


def test_an_interval_is_a_duration():
    with pytest.raises(ConfigError, match=r"^spark\.trigger\.interval: found 'often', expected a duration"):
        settings("spark.trigger.interval=often")


# -- The properties with which a session of a program starts, and what executors find with them


PRINT = "import taskplace.spark; print(taskplace.spark.session_properties()['spark.executorEnv.PYTHONPATH'])"


def path_of(*arguments: str, cwd: object, inherited: str = "") -> list[str]:
    """Return the path of the executors of a program that is started so."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), inherited])}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip().split(os.pathsep)


def test_executors_find_the_modules_of_the_program_before_others(tmp_path):
    program, here = tmp_path / "program" / "stream.py", tmp_path / "here"
    program.parent.mkdir()
    here.mkdir()
    program.write_text(PRINT)
    expected = [str(program.parent), str(here), str(ROOT), "/other"]
    assert path_of(str(program), cwd=here, inherited="/other") == expected
    assert path_of("../program/stream.py", cwd=here, inherited=f"{here}:/other") == expected


def test_without_a_program_they_find_those_of_the_current_directory(tmp_path):
    """As in a shell or a notebook."""
    assert path_of("-c", PRINT, cwd=tmp_path) == [str(tmp_path), str(ROOT)]


def test_a_module_that_is_run_does_not_bring_its_directory(tmp_path):
    """As in Python itself: what lies beside it would hide modules of other packages."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "main.py").write_text(PRINT)
    assert path_of("-m", "package.main", cwd=tmp_path) == [str(tmp_path), str(ROOT)]


def test_placement_needs_two_more():
    found = session_properties()
    assert found["spark.scheduler.mode"] == "FAIR"
    assert found["spark.shuffle.reduceLocality.enabled"] == "false"
    assert len(found) == 3


@pytest.mark.parametrize(
    ("master", "conf", "expected"),
    [
        ("local[4]", {"executor.instances": "3"}, 1),
        ("local", {}, 1),
        ("local-cluster[3, 2, 1024]", {"cores.max": "2", "executor.cores": "2"}, 3),
        ("spark://h:7077", {}, 1),
        ("spark://h:7077", {"cores.max": "12", "executor.cores": "5"}, 2),
        ("spark://h:7077", {"cores.max": "12", "executor.cores": "2", "executor.instances": "3"}, 3),
        ("spark://h:7077", {"cores.max": "4", "executor.cores": "2", "executor.instances": "3"}, 2),
        ("spark://h:7077", {"cores.max": "12"}, 1),
        ("yarn", {}, 2),
        ("yarn", {"executor.instances": "5"}, 5),
        ("k8s://https://h:443", {}, 2),
        ("yarn", {"dynamicAllocation.enabled": "true"}, 1),
        ("yarn", {"dynamicAllocation.enabled": "TRUE", "dynamicAllocation.minExecutors": "4"}, 4),
        ("yarn", {"dynamicAllocation.enabled": "true", "dynamicAllocation.initialExecutors": "6"}, 6),
        ("yarn", {"dynamicAllocation.enabled": "false", "dynamicAllocation.minExecutors": "4"}, 2),
    ],
)
def test_the_executors_that_a_configuration_starts(master, conf, expected):
    given = {f"spark.{name}": value for name, value in conf.items()}
    assert session_conf.expected_executors(master, given) == expected
