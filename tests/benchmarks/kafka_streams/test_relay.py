"""Connections through relays: whose network is cut has everything arrive after it is healed."""

from __future__ import annotations

import socket
import socketserver
import subprocess
import sys
import threading

import pytest
from kafka_streams.network import Network
from kafka_streams.programs import ProgramError, wait_for

from examples.kafka.broker import HOST, free_ports

#: Connects, sends each line of its input, says so, and says what comes back. "again" is another connection.
CLIENT = """
import socket, sys
def connected():
    return socket.create_connection(("127.0.0.1", int(sys.argv[1]))).makefile("rw")
to = connected()
for line in sys.stdin:
    if line == "again\\n":
        to = connected()
        continue
    to.write(line); to.flush(); print("sent", flush=True)
    print(to.readline(), end="", flush=True)
"""
PARENT = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', *sys.argv[1:]]).wait()"


class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.server.lines.append(line.decode().strip())
            self.wfile.write(line)
        self.server.ends += 1


class Client:
    def __init__(self, *command: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def send(self, *lines: str) -> None:
        self.process.stdin.write("".join(f"{line}\n" for line in lines))
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "sent\n"

    def reply(self) -> str:
        return self.process.stdout.readline().strip()


@pytest.fixture
def server():
    with socketserver.ThreadingTCPServer((HOST, 0), Echo) as server:
        server.lines, server.ends = [], 0
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def port():
    return free_ports(1)[0]


@pytest.fixture
def network(server, port, tmp_path):
    made = Network([((HOST, port), (HOST, server.server_address[1]))], tmp_path / "log")
    yield made
    made.end()


@pytest.fixture
def client(network, port):
    """A process that has sent a line and got it back; all are ended afterwards."""
    made = []

    def start(*command):
        made.append(Client(*command, str(port)))
        made[-1].send("hello")
        assert made[-1].reply() == "hello"
        return made[-1]

    yield start
    for each in made:
        with each.process:
            each.process.kill()


@pytest.fixture
def other(network, port):
    """Return a function that has a line of this process sent and come back, some times: it is not cut off."""
    with socket.create_connection((HOST, port)) as connection, connection.makefile("rw") as to:

        def passes():
            for k in range(5):
                to.write(f"other {k}\n")
                to.flush()
                assert to.readline() == f"other {k}\n"

        passes()
        yield passes


@pytest.mark.parametrize("command", [(CLIENT,), (PARENT, CLIENT)], ids=["a process", "its child"])
def test_what_is_sent_while_cut_off_arrives_after_it(network, server, client, other, command):
    cut = client(*command)
    network.cut(cut.process.pid)
    cut.send("late")
    other()
    assert "late" not in server.lines
    network.heal()
    assert cut.reply() == "late"
    cut.send("later")
    assert cut.reply() == "later"


def test_an_end_is_not_heard_of_while_cut_off(network, server, client, other):
    cut = client(CLIENT)
    network.cut(cut.process.pid)
    cut.process.kill()
    cut.process.wait()
    other()
    assert server.ends == 0
    network.heal()
    wait_for(lambda: server.ends == 1, "the server has seen the end", 30, network.check)


def test_one_that_has_no_connection_cannot_be_cut_off(network):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as alone:
        with pytest.raises(ProgramError, match=f"process {alone.pid} has no connection"):
            network.cut(alone.pid)
        alone.kill()
