"""The live page: serves the report of a running stream over HTTP, and tells the page what is new.

    GET /               the page
    GET /report.json    the report, as in the page, without reasons
    GET /reasons.json   why each task is where it is, under the assignment in force
    GET /news           Server-Sent Events: the `Now` of the stream, once a second when it has changed

**Idea.** The server only reads. News are small and frequent; the page asks for the report only when there was an event,
and for the reasons when there is a new assignment. Reading never waits for a batch.

Properties:
- loopback by default. There is no authentication: whoever reaches the address can read names of tasks, hosts and
  executors, counts, times and reasons. There are no rows and no keys of rows
- it only answers GET. On loopback it answers only requests that name this host, so that no foreign web page can read it
  through a name of its own (DNS rebinding)
- at the end it sends the last report, so a page knows whether the stream has ended or the driver is gone

Errors: `InputError` for an address or a port that cannot be used.
"""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol
from urllib.parse import parse_qs

import msgspec

from taskplace.addresses import check_address, unusable
from taskplace.report.html.page import page
from taskplace.report.html.values import Now, Reason, Report

#: The time between two looks for news.
NEWS_SECONDS = 1.0
#: A page that has heard nothing for so long says that the driver is gone; see static/live.js.
HEARTBEAT_SECONDS = 3.0
#: The most pages that listen at the same time.
MOST_LISTENERS = 64


class Live(Protocol):
    """What a live page shows. All may be called from any thread, at any time."""

    def report(self) -> Report:
        """Return the report so far, without reasons."""

    def now(self) -> Now:
        """Return what is going on."""

    def reasons(self) -> tuple[Reason, ...]:
        """Return why each task is where it is."""

    def reason(self, task: str) -> Reason | None:
        """Return why a task is where it is, in full; None for no such task."""


class LivePage:
    """A live page that is served. `url` is its address; `close` ends it.

    - `port`: 0 takes a free one
    - `host`: the address to listen on; there is no authentication
    - `path`: what asked for it, for errors
    """

    def __init__(self, live: Live, *, port: int = 0, host: str = "127.0.0.1", path: str = "serve_ui") -> None:
        check_address(path, port=port, host=host)
        self.host = host
        self._closing = threading.Event()
        try:
            self._server = _Server((host, port), live, self._closing)
        except OSError as error:
            raise unusable(path, host, port, error) from None
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.2}, name="taskplace-ui", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/"

    def __repr__(self) -> str:
        return f"LivePage({self.url!r})"

    def close(self) -> None:
        """End the page: those that look at it get the last report first. May be called again."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._server.told.wait(2 * NEWS_SECONDS)
        self.cut()

    def cut(self) -> None:
        """End the page without a word, as when its process is killed."""
        self._server.cut.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    """The server of one page. `told` is set while nobody listens; `cut`, when all connections are to end."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], live: Live, closing: threading.Event) -> None:
        if ":" in address[0]:
            import socket

            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)
        self.live, self.closing = live, closing
        self.loopback = _is_loopback(address[0])
        self.told, self.cut = threading.Event(), threading.Event()
        self.told.set()
        self._listeners, self._lock = 0, threading.Lock()

    def listen(self, by: int) -> bool:
        """Count a page that begins (1) or ends (-1) to listen. Return False if there are too many."""
        with self._lock:
            if by > 0 and self._listeners >= MOST_LISTENERS:
                return False
            self._listeners += by
            (self.told.clear if self._listeners else self.told.set)()
            return True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: pages that are closed break their connections."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "taskplace", ""

    def do_GET(self) -> None:
        """Answer a request."""
        answers: dict[str, tuple[str, Callable[[], str]]] = {
            "/": ("text/html", lambda: page(self.server.live.report(), live=True)),
            "/report.json": ("application/json", lambda: self.server.live.report().to_json()),
            "/reasons.json": ("application/json", self._reasons),
        }
        path, _, query = self.path.partition("?")
        if self.server.loopback and not _names_this_host(self.headers.get("Host", "")):
            self._send(HTTPStatus.FORBIDDEN, "text/plain", "this page is for this host only\n")
        elif path == "/reason.json":
            found = self.server.live.reason("".join(parse_qs(query).get("task", [])))
            status = HTTPStatus.OK if found is not None else HTTPStatus.NOT_FOUND
            self._send(status, "application/json", msgspec.json.encode(found).decode())
        elif path == "/news":
            self._news()
        elif path in answers:
            kind, text = answers[path]
            self._send(HTTPStatus.OK, kind, text())
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", "nothing here; the page is /\n")

    def _reasons(self) -> str:
        return msgspec.json.encode(self.server.live.reasons()).decode()

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self._headers(kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _headers(self, kind: str) -> None:
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")

    def _news(self) -> None:
        """Send what is new until the page or the stream ends."""
        if not self.server.listen(1):
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", "too many pages listen\n")
            return
        try:
            self.close_connection = True
            self.send_response(HTTPStatus.OK)
            self._headers("text/event-stream")
            self.end_headers()
            self._tell()
        finally:
            self.server.listen(-1)

    def _tell(self) -> None:
        said, silent = "", 0.0
        while not self.server.cut.is_set():
            ends = self.server.closing.is_set()
            text = self.server.live.now().to_json()
            if ends:  # in one piece: whoever would ask for the report now finds no server
                last = f'{{"now":{text},"report":{self.server.live.report().to_json()}}}'
                self.wfile.write(f"event: end\ndata: {last}\n\n".encode())
                return
            if text != said:
                self.wfile.write(f"data: {text}\n\n".encode())
                said, silent = text, 0.0
            elif silent >= HEARTBEAT_SECONDS:
                self.wfile.write(b"event: beat\ndata:\n\n")
                silent = 0.0
            self.wfile.flush()
            self.server.closing.wait(NEWS_SECONDS)
            silent += NEWS_SECONDS

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: requests are not news for the driver's log."""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _names_this_host(header: str) -> bool:
    """Return whether the name in a Host header is one of this host on loopback.

    >>> [_names_this_host(name) for name in ("127.0.0.1:80", "localhost", "[::1]:80", "evil.example:80")]
    [True, True, True, False]
    """
    name = header.rpartition(":")[0] if not header.endswith("]") and ":" in header else header
    return name.lower() == "localhost" or _is_loopback(name.strip("[]"))
