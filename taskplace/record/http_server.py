"""Serves a WSGI application over HTTP beside a stream, with bounds, so that no client costs the stream anything.

**Idea.** Waitress reads requests in one thread that never waits for a client, and answers them in a fixed number of
others. Connections beyond a limit wait in the kernel, and one that sends no whole request in time is closed.

Properties: it only answers GET. On loopback it answers only requests that name this host, so that no foreign web page
can read it through a name of its own (DNS rebinding). An application's error is a 500 and one line of the log.

`check_free` checks an address before anything is started. Errors: `InputError` naming what asked for an address or a
port that cannot be used.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from taskplace.errors import InputError

HIGHEST_PORT = 65_535

#: The most connections of a server at the same time: its part of the process's handles.
MOST_CONNECTIONS = 40
#: A connection without a whole request is closed after so many seconds.
SILENT_SECONDS = 10
#: The time that the last answers have to reach their clients when a server ends.
FLUSH_SECONDS = 1.0
log = logging.getLogger(__name__)
#: A WSGI application.
Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def listen(path: str, *, port: int, host: str) -> socket.socket:
    """Return a socket that listens on an address. `path`: what asks for it.

    >>> listen("serve_ui", port=70_000, host="127.0.0.1")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    taskplace.errors.InputError: serve_ui: found '127.0.0.1:70000', expected an address of this host, and a port ...
    """
    found, why = f"{host}:{port}", ""
    if type(port) is int and 0 <= port <= HIGHEST_PORT and isinstance(host, str) and host:
        try:
            family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            return socket.create_server(address[:2], family=family)
        except OSError as error:
            # The text of `create_server` names the address again; an unknown host has a number below 0.
            number = error.errno or 0
            why = f" ({os.strerror(number) if number > 0 else error.strerror or error})"
    expected = (
        f"an address of this host, and a port up to {HIGHEST_PORT} that is free; port 0 takes a free one"
    )
    raise InputError(path, found=f"{found}{why}", expected=expected)


def check_free(path: str, *, port: int, host: str) -> None:
    """Refuse an address that cannot be listened on now. `path`: the key that asks for it."""
    listen(path, port=port, host=host).close()


class HttpServer:
    """An HTTP server in threads of its own. `url` is its address; `close` ends it.

    - `port`: 0 takes a free one
    - `path`: what asked for it, for errors
    - `threads`: the most requests that are answered at the same time
    - `at`: the path of `url`
    """

    def __init__(
        self, application: Application, *, port: int, host: str, path: str, threads: int = 4, at: str = ""
    ) -> None:
        import waitress

        listening = listen(path, port=port, host=host)
        for name in ("waitress", "waitress.queue"):  # busy clients are no news for the driver's log
            logging.getLogger(name).setLevel(logging.ERROR)
        self._map: dict[int, Any] = {}
        self._server = waitress.create_server(
            _Guarded(application, loopback=_is_loopback(host)),
            map=self._map,
            sockets=[listening],
            threads=threads,
            connection_limit=MOST_CONNECTIONS,
            channel_timeout=SILENT_SECONDS,
            cleanup_interval=1,
            channel_request_lookahead=1,  # notices a client that goes while it is answered
            max_request_header_size=16_384,
            max_request_body_size=1,
            log_socket_errors=False,
            ident="taskplace",
        )
        self.port = int(self._server.effective_port)
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}/{at}"
        self._closing, self._woken = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._serve, name="taskplace-http", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"HttpServer({self.url!r})"

    def close(self) -> None:
        """End the server, after what has been answered was sent. May be called again."""
        if not self._closing.is_set():
            self._closing.set()
            self._server.pull_trigger()
            self._woken.set()
        self._thread.join()

    def _serve(self) -> None:
        from waitress import wasyncore

        def turn(seconds: float) -> None:
            wasyncore.loop(seconds, use_poll=True, map=self._map, count=1)

        while not self._closing.is_set():
            turn(1.0)
        self._server.task_dispatcher.shutdown(timeout=FLUSH_SECONDS)
        until, open_now = time.monotonic() + FLUSH_SECONDS, self._server.active_channels
        while time.monotonic() < until and any(channel.total_outbufs_len for channel in open_now.values()):
            turn(0.1)
        for channel in list(open_now.values()):
            channel.handle_close()  # a thread that still answers it would wake a server that is no more
        self._woken.wait()  # `close` must not write to a handle that was closed, or that is another file's by then
        self._server.close()


class _Guarded:
    """An application, of which only what may be asked for reaches it."""

    def __init__(self, application: Application, *, loopback: bool) -> None:
        self._application, self._loopback = application, loopback

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "GET":
            return _said(start, "405 Method Not Allowed", "only GET is answered\n", ("Allow", "GET"))
        if self._loopback and not _names_this_host(environ.get("HTTP_HOST", "")):
            return _said(start, "403 Forbidden", "this server is for this host only\n")
        try:
            return self._application(environ, start)
        except Exception:
            log.warning("a request could not be answered", exc_info=True)
            return _said(start, "500 Internal Server Error", "no answer: see the driver's log\n")


def _said(start: Callable[..., Any], status: str, text: str, *headers: tuple[str, str]) -> list[bytes]:
    start(status, [("Content-Type", "text/plain; charset=utf-8"), *headers])
    return [text.encode()]


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
