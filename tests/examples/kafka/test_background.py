"""Brokers in the background: `python -m examples.kafka up` and `down`."""

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient

from examples.kafka import background
from examples.kafka.broker import BrokerError

ROOT = Path(__file__).parents[3]
SECONDS = 60


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "examples.kafka", *arguments], cwd=ROOT, capture_output=True, text=True
    )


def gone(*processes):
    return not psutil.wait_procs(processes, timeout=30)[1]


@pytest.mark.kafka
def test_up_and_down(tmp_path):
    state = tmp_path / "running.json"
    up = command("up", "--state", str(state))
    assert (up.returncode, up.stderr) == (0, "")
    server = psutil.Process(json.loads(state.read_text())["pid"])
    broker = next(child for child in server.children(recursive=True) if "kafka.Kafka" in child.cmdline())
    try:
        again = command("up", "--state", str(state))
        assert again.stdout == up.stdout
        assert AdminClient({"bootstrap.servers": up.stdout.strip()}).list_topics(timeout=SECONDS).brokers
        serve = command("serve", "--state", str(state))
        assert (serve.returncode, serve.stdout) == (1, "")
        assert serve.stderr.startswith("brokers run already, or are being started")
    finally:
        down = command("down", "--state", str(state))
    assert (down.returncode, down.stdout, down.stderr) == (0, "", "")
    assert gone(server, broker)
    assert command("down", "--state", str(state)).stdout == "no brokers run\n"


@pytest.mark.kafka
@pytest.mark.long
def test_they_end_with_their_owner(tmp_path):
    owner = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    background.up(tmp_path / "running.json", owner=owner.pid)
    server = psutil.Process(json.loads((tmp_path / "running.json").read_text())["pid"])
    brokers = server.children(recursive=True)
    owner.kill()
    owner.communicate()
    assert gone(server, *brokers)


def test_brokers_that_do_not_start_are_one_error(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(BrokerError, match=r"(?s)the brokers were not started:.*found none at JAVA_HOME"):
        background.up(tmp_path / "running.json")
    assert not background.down(tmp_path / "running.json")


class Brokers:
    """Stands in for brokers, and remembers whether they have ended."""

    bootstrap, ended = "nowhere:9092", 0

    def __init__(self, count):
        self.count = count

    def __enter__(self):
        return self

    def __exit__(self, *_):
        Brokers.ended += 1


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("import os, sys; sys.exit(os.environ['KAFKA_SERVERS'] != 'nowhere:9092')", 0),
        ("import sys; sys.exit(7)", 7),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137),
        ("import os, signal; os.kill(os.getppid(), signal.SIGTERM); signal.pause()", 143),
        ("import os, signal, sys; os.kill(os.getppid(), signal.SIGINT); sys.exit(3)", 3),
    ],
    ids=["address", "exit code", "killed", "SIGTERM is passed on", "Ctrl-C is the command's"],
)
def test_a_command_has_brokers_while_it_runs(code, exit_code, monkeypatch):
    monkeypatch.setattr(background, "Brokers", Brokers)
    before = Brokers.ended
    assert background.main(["with", sys.executable, "-c", code]) == exit_code
    assert Brokers.ended == before + 1
