"""The server of the live page and of metrics: clients cost the process a bounded number of threads and handles."""

import logging
import socket
import threading
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from taskplace.record import http_server
from taskplace.record.html.live import MOST_LISTENERS, LivePage
from taskplace.record.http_server import MOST_CONNECTIONS, HttpServer
from tests.record.html.test_live_page import Told


def hello(environ, start):
    if environ["PATH_INFO"] != "/":
        raise LookupError("no such path")
    start("200 OK", [("Content-Type", "text/plain")])
    return [b"hello"]


@pytest.fixture
def server():
    with closing(HttpServer(hello, port=0, host="127.0.0.1", path="test")) as made:
        yield made


def get(url, **headers):
    with urlopen(Request(url, headers=headers), timeout=60) as answer:
        return answer.read()


def handles():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_half_open_requests_take_no_threads_and_few_handles_and_end(monkeypatch):
    monkeypatch.setattr(http_server, "SILENT_SECONDS", 1)
    before = threading.active_count()
    server = HttpServer(hello, port=0, host="127.0.0.1", path="test")
    threads, base = threading.active_count(), handles()
    with ExitStack() as clients:
        for _ in range(150):
            client = clients.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        assert get(server.url) == b"hello"  # behind them all: they have been cut off
        assert threading.active_count() == threads
        assert handles() - base - 150 <= MOST_CONNECTIONS
    server.close()
    server.close()
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost:1\r\n\r\n", 200),
        (b"GET / HTTP/1.1\r\nHost: [::1]\r\n\r\n", 200),
        (b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
        (b"GET / HTTP/1.0\r\n\r\n", 403),
        (b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"GET /a%0a%1b[2J HTTP/1.1\r\nHost: localhost\r\n\r\n", 500),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", 431),
        (b"\x16\x03\x01\r\n\r\n", 400),
    ],
)
def test_what_is_answered(server, caplog, sent, status):
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(sent)
        assert client.recv(4096).split(b" ", 2)[1] == str(status).encode()
    assert [record.message for record in caplog.records] == ["a request could not be answered"] * (
        status == 500
    )
    assert "\x1b" not in caplog.text


def test_busy_clients_are_no_news_for_the_log(caplog):
    caplog.set_level(logging.INFO)
    go = threading.Event()

    def slow(environ, start):
        go.wait(60)
        return hello(environ, start)

    with (
        closing(HttpServer(slow, port=0, host="127.0.0.1", path="test", threads=1)) as server,
        ExitStack() as clients,
    ):
        for _ in range(3):
            client = clients.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        go.set()
        assert client.recv(4096).startswith(b"HTTP/1.1 200")
    assert caplog.text == ""


def test_many_who_listen_leave_the_page_to_others_and_all_get_the_end():
    with ExitStack() as listeners:
        page = LivePage(Told())
        listening = [
            listeners.enter_context(urlopen(page.url + "news", timeout=60)) for _ in range(MOST_LISTENERS)
        ]
        assert all(each.readline().startswith(b"data: ") for each in listening)
        with pytest.raises(HTTPError, match="503"):
            get(page.url + "news")
        assert get(page.url).startswith(b"<!doctype html>")
        page.close()
        assert all(b"event: end" in each.read() for each in listening)
