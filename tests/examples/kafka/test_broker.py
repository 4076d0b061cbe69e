"""Kafka brokers on this machine: they start, work, are killed and come back, and leave nothing behind."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from examples.kafka.broker import BrokerError, Brokers
from tests.support.kafka_broker import make_topics
from tests.support.kafka_topics import committed

ROOT = Path(__file__).parents[3]
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.xdist_group("kafka-broker"),
]  # one worker makes the fixture `one`
SECONDS = 60


@pytest.fixture(scope="module")
def one():
    """A broker that tests may kill."""
    with Brokers() as brokers:
        yield brokers


def send(bootstrap, topic, values, **settings):
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, **settings})
    for value in values:
        producer.produce(topic, key=value[:1], value=value)
    assert producer.flush(SECONDS) == 0


def values(bootstrap, topic):
    return [record.value().decode() for record in committed(bootstrap, topic)]


def test_a_broker_comes_back_with_its_data_on_its_port(one):
    address = one.bootstrap
    make_topics(AdminClient({"bootstrap.servers": address}), NewTopic("kept", 1))
    send(address, "kept", ["a1"])
    for end in (one.kill, one.shut_down):
        before = psutil.Process(one.pid(1))
        end(1)
        assert not before.is_running()
        with pytest.raises(BrokerError, match="broker 1 does not run"):
            one.pid(1)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(address.split(":")[1])))
        one.restart(1)
        assert one.bootstrap == address
        assert values(address, "kept") == ["a1"]
    with pytest.raises(BrokerError, match="broker 1 runs already"):
        one.restart(1)


def test_nothing_is_left_after_a_kill_of_the_starter():
    text = (
        "from examples.kafka.broker import Brokers; b = Brokers(); b.start(); "
        "print(b.pid(1), b.directory, flush=True); input()"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", text], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    pid, directory = starter.stdout.readline().split()
    broker = psutil.Process(int(pid))
    guards = psutil.Process(starter.pid).children()
    starter.send_signal(signal.SIGKILL)
    starter.communicate()
    assert len(guards) == 2  # the broker's and the directory's
    assert not psutil.wait_procs([broker, *guards], timeout=30)[1]
    assert not Path(directory).exists()


def test_a_broker_that_does_not_start_is_an_error_with_its_log():
    brokers = Brokers(settings={"num.io.threads": "none"})
    with pytest.raises(BrokerError, match=r"(?s)broker 1.*num\.io\.threads"):
        brokers.start()
    with pytest.raises(BrokerError, match="the brokers do not run"):
        brokers.directory  # noqa: B018
