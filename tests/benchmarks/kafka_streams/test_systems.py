"""What the systems make of the lines that their processes print."""

from __future__ import annotations

import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pytest
from kafka_streams.programs import family, wait_for
from kafka_streams.setup import Setup
from kafka_streams.systems import CUT, STOP, OnTaskplace, Streams


@pytest.fixture
def setup(tmp_path):
    return Setup(
        servers="localhost:9092",
        orders="orders",
        users="users",
        totals="totals",
        partitions=4,
        standbys=1,
        window_ms=10_000,
        session_ms=6_000,
        acceptable_lag=100,
        probing_ms=60_000,
        folder=str(tmp_path),
    )


class Wire:
    """A network that notes who is cut off."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def cut(self, pid):
        self.told.append(pid)
        return 7.5

    def heal(self):
        self.told.append("healed")


class TestTaskplace:
    @pytest.fixture
    def system(self, setup):
        system = OnTaskplace(setup)
        system._take({"at": 1.0, "alive": ["executor-0", "executor-1"]})
        tasks = {
            "executor-0": {"pid": 10, "active": [0, 1], "followed": [2, 3]},
            "executor-1": {"pid": 11, "active": [2, 3], "followed": [0, 1]},
        }
        system._take({"at": 1.5, "tasks": tasks})
        return system

    def test_it_is_settled(self, system):
        assert system.up(2) and system.joined(2) and system.settled(2)
        assert not system.up(3) and not system.joined(3) and not system.settled(3)
        assert system.placements.active(system.victim()) == {0, 1}

    def test_a_loss_is_noticed_when_spark_no_longer_lists_the_executor(self, system):
        assert system.noticed("executor-0", 2.0) is None
        system._take({"at": 2.5, "alive": ["executor-1"]})
        system._take({"at": 3.0, "alive": ["executor-1", "executor-2"]})
        assert system.noticed("executor-0", 2.0) == 2.5
        assert not system.settled(2)  # the new one has no tasks yet

    def test_a_stopped_executor_goes_on_with_its_workers_even_if_it_was_killed_itself(self, system):
        worker = "import subprocess, sys; c = [sys.executable, '-c', 'input()']; subprocess.Popen(c).wait()"
        with subprocess.Popen([sys.executable, "-c", worker], stdin=subprocess.PIPE) as executor:
            wait_for(lambda: len(family(executor.pid)) == 2, "a worker", 30)
            _, child = family(executor.pid)
            tasks = {"executor-1": {"pid": executor.pid, "active": [2, 3], "followed": []}}
            system._take({"at": 2.0, "tasks": tasks})
            assert system.hit("executor-1", STOP) <= time.time()
            wait_for(lambda: child.status() == psutil.STATUS_STOPPED, "the worker is stopped", 30)
            executor.kill()
            executor.wait()
            system.resume("executor-1", STOP)
            wait_for(lambda: child.status() != psutil.STATUS_STOPPED, "the worker goes on", 30)
            child.kill()

    def test_it_is_cut_off_by_the_executors_process_and_healed(self, system):
        system.network = Wire()
        assert system.hit("executor-1", CUT) == 7.5
        system.resume("executor-1", CUT)
        assert system.network.told == [11, "healed"]


class TestStreams:
    @pytest.fixture
    def system(self, setup):
        system = Streams(setup, Wire(), "classic")
        system._running = {f"instance-{k}": SimpleNamespace(pid=10 + k) for k in range(2)}  # no processes
        for name, active, standby in (("instance-0", [0, 1], [2, 3]), ("instance-1", [2, 3], [0, 1])):
            system._take_tasks(name, {"at": 1.0, "state": "RUNNING", "active": active, "standby": standby})
        system._take_members({"at": 0.5, "members": {"instance-0": 2, "instance-1": 1}})
        system._take_members({"at": 0.6, "members": {"instance-0": 2, "instance-1": 2}})
        return system

    def test_it_is_settled(self, system):
        assert system.up(2) and system.joined(2) and system.settled(2)
        assert not system.joined(3) and not system.settled(3)

    def test_it_is_not_balanced_while_an_instance_restores(self, system):
        line = {"at": 2.0, "state": "REBALANCING", "active": [0, 1], "standby": [2, 3]}
        system._take_tasks("instance-0", line)
        assert not system.balanced(2) and not system.settled(2)

    def test_an_instance_is_a_member_with_all_its_threads(self, system):
        system._take_members({"at": 1.0, "members": {"instance-0": 2, "instance-1": 2, "instance-2": 1}})
        assert system.joined(2) and not system.joined(3)

    def test_a_loss_is_noticed_when_the_group_has_no_member_of_it(self, system):
        assert system.noticed("instance-0", 2.0) is None
        for at, threads in ((2.1, 2), (2.4, 1)):  # its replacement joins before that
            members = {"instance-0": threads, "instance-1": 2, "instance-2": 2}
            system._take_members({"at": at, "members": members})
        assert system.noticed("instance-0", 2.0) is None
        system._take_members({"at": 2.5, "members": {"instance-1": 2, "instance-2": 2}})
        system._take_members({"at": 3.0, "members": {"instance-0": 2, "instance-1": 2, "instance-2": 2}})
        assert system.noticed("instance-0", 2.0) == 2.5

    def test_it_is_cut_off_by_its_process_and_healed(self, system):
        assert system.hit("instance-1", CUT) == 7.5
        system.resume("instance-1", CUT)
        assert system.network.told == [11, "healed"]
        assert system.instances() == {"instance-0", "instance-1"}
