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
- bounds, methods and names of hosts are those of `taskplace.record.http_server`
- at the end it sends the last report, so a page knows whether the stream has ended or the driver is gone

Errors: `InputError` for an address or a port that cannot be used.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import msgspec

from taskplace.record.html.page import page
from taskplace.record.html.values import Now, Reason, Report
from taskplace.record.http_server import HttpServer

#: The time between two news.
NEWS_SECONDS = 1.0
#: A page that has heard nothing for so long says that the driver is gone; see static/live.js.
HEARTBEAT_SECONDS = 3.0
#: The most pages that listen at the same time.
MOST_LISTENERS = 16
_HEADERS = (
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Frame-Options", "DENY"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


class Live(Protocol):
    """What a live page shows. All may be called from any thread, at any time."""

    def report(self) -> Report:
        """Return the report so far, without reasons."""

    def now(self) -> Now:
        """Return what is going on."""

    def reasons(self) -> tuple[Reason, ...]:
        """Return why each task is where it is."""


class LivePage:
    """A live page that is served. `url` is its address; `close` ends it.

    - `port`: 0 takes a free one
    - `host`: the address to listen on; there is no authentication
    - `path`: what asked for it, for errors
    """

    def __init__(self, live: Live, *, port: int = 0, host: str = "127.0.0.1", path: str = "serve_ui") -> None:
        self._live = live
        #: `told` is set while nobody listens; `cut`, when all who listen are to be left.
        self._closing, self._told, self._cut = threading.Event(), threading.Event(), threading.Event()
        self._told.set()
        self._listeners, self._lock = 0, threading.Lock()
        self._server = HttpServer(self._answer, port=port, host=host, path=path, threads=MOST_LISTENERS + 4)
        self.port, self.url = self._server.port, self._server.url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def close(self) -> None:
        """End the page: those that look at it get the last report first. May be called again."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._told.wait(2 * NEWS_SECONDS)
        self.cut()

    def cut(self) -> None:
        """End the page without a word, as when its process is killed."""
        self._cut.set()
        self._server.close()

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request: a WSGI application."""
        answers: dict[str, tuple[str, Callable[[], str]]] = {
            "/": ("text/html", lambda: page(self._live.report(), live=True)),
            "/report.json": ("application/json", lambda: self._live.report().to_json()),
            "/reasons.json": ("application/json", lambda: _json(self._live.reasons())),
        }

        def send(status: str, kind: str, text: str) -> list[bytes]:
            start(status, [("Content-Type", f"{kind}; charset=utf-8"), *_HEADERS])
            return [text.encode()]

        path = environ["PATH_INFO"]
        if path == "/news":
            return self._news(start)
        if path in answers:
            kind, text = answers[path]
            return send("200 OK", kind, text())
        return send("404 Not Found", "text/plain", "nothing here; the page is /\n")

    def _news(self, start: Callable[..., Any]) -> Iterator[bytes]:
        """Yield what is new until the page or the stream ends."""
        with self._lock:
            if self._listeners >= MOST_LISTENERS:
                start("503 Service Unavailable", [("Content-Type", "text/plain"), *_HEADERS])
                yield b"too many pages listen\n"
                return
            self._listeners += 1
            self._told.clear()
        try:
            start("200 OK", [("Content-Type", "text/event-stream; charset=utf-8"), *_HEADERS])
            yield from self._tell()
        finally:
            with self._lock:
                self._listeners -= 1
                if not self._listeners:
                    self._told.set()

    def _tell(self) -> Iterator[bytes]:
        said, silent = "", 0.0
        while not self._cut.is_set():
            ends = self._closing.is_set()
            text = self._live.now().to_json()
            if ends:  # in one piece: whoever would ask for the report now finds no server
                last = f'{{"now":{text},"report":{self._live.report().to_json()}}}'
                yield f"event: end\ndata: {last}\n\n".encode()
                return
            if text != said:
                yield f"data: {text}\n\n".encode()
                said, silent = text, 0.0
            elif silent >= HEARTBEAT_SECONDS:
                yield b"event: beat\ndata:\n\n"
                silent = 0.0
            self._closing.wait(NEWS_SECONDS)
            silent += NEWS_SECONDS


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
