"""Passes connections on to a Kafka broker, and holds the commit of a transaction on its way there or back.

**Idea.** Each request has a kind, and `EndTxn` ends a transaction. A process whose request or answer is held here is
inside `commit_transaction`, and does not know the outcome. So a test can kill it there, on either side of the commit.

    with CommitRelay(port, to=broker) as relay:      # Brokers(relay=port): its clients stay behind the relay
        relay.hold(ANSWER)
        ...
        relay.held.wait(SECONDS)                     # the broker has committed; the producer does not know

Nothing passes on a connection after its commit was held. New connections pass. For brokers without TLS.
"""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from examples.kafka.broker import HOST

#: The broker does not get the request.
REQUEST = "the request is held"
#: The broker gets the request. It may have committed or not.
PASSED = "the request has passed"
#: The broker has committed, and its answer does not pass. The connection stays open.
ANSWER = "the answer is held"
#: The broker has committed, and the connection is cut instead of the answer.
CUT = "the answer is lost"

_END_TRANSACTION = 26  # its API key
_FLEXIBLE = 3  # from this version on, a request ends with tagged fields: here one byte for none


@dataclass
class _Link:
    """One connection. `committing`: the number of the commit whose answer does not pass; `cut`: it is cut then."""

    client: socket.socket
    broker: socket.socket
    committing: bytes = b""
    cut: bool = False
    silent: bool = False


class CommitRelay:
    """Listens on a port of the loopback address, and passes connections on to an address `host:port`.

    `held`: set while a commit is held.
    """

    def __init__(self, port: int, to: str) -> None:
        host, _, number = to.rpartition(":")
        self._to = (host, int(number))
        self._where, self._before, self._left = "", 0, 0
        self._lock = threading.Lock()
        self.held = threading.Event()
        self._server = _Server((HOST, port), self._pass_on)

    def __enter__(self) -> CommitRelay:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def hold(self, where: str, *, after: int = 0, most: int = 1) -> None:
        """Hold so many of the commits that come from now on, at most, after so many others.

        A client asks again for an answer that does not come: that is one more commit here.
        """
        with self._lock:
            self.held.clear()
            self._where, self._before, self._left = where, after, most

    def release(self) -> None:
        """Hold no commit that comes from now on."""
        with self._lock:
            self._left = 0

    def _taken(self) -> str:
        """Return where the commit that has come now is held; "": it passes."""
        with self._lock:
            self._before -= 1
            if self._before >= 0 or self._left <= 0:
                return ""
            self._left -= 1
            return self._where

    def _pass_on(self, client: socket.socket) -> None:
        with socket.create_connection(self._to) as broker:
            link = _Link(client, broker)
            threading.Thread(target=self._answers, args=(link,), daemon=True).start()
            with suppress(OSError):
                for frame in _frames(client):
                    self._request(link, frame)
            _end(broker)

    def _request(self, link: _Link, frame: bytes) -> None:
        where = self._taken() if _commits(frame) else ""
        if where in (ANSWER, CUT):
            link.committing, link.cut = frame[8:12], where == CUT
        if where == REQUEST:
            link.silent = True
        if not link.silent:
            link.broker.sendall(frame)
        if where == PASSED:
            link.silent = True
        if where in (REQUEST, PASSED):
            self.held.set()

    def _answers(self, link: _Link) -> None:
        with suppress(OSError):
            for frame in _frames(link.broker):
                if link.committing and frame[4:8] == link.committing:
                    link.silent = True
                    self.held.set()
                    if link.cut:
                        break
                if not link.silent:
                    link.client.sendall(frame)
        _end(link.client)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = allow_reuse_address = True

    def __init__(self, at: tuple[str, int], pass_on) -> None:
        class Connection(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                pass_on(self.request)

        super().__init__(at, Connection)


def _end(connection: socket.socket) -> None:
    """End a connection, so that the thread that reads it ends too."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _frames(connection: socket.socket) -> Iterator[bytes]:
    """Yield requests or answers, each with its length before it."""
    with connection.makefile("rb") as read:
        while len(head := read.read(4)) == 4:
            yield head + read.read(int.from_bytes(head, "big"))


def _commits(frame: bytes) -> bool:
    """Return whether a request commits a transaction.

    A request: its length (4 bytes), its kind and its version (2 each), its number (4), and what it asks. The last of
    that is here whether to commit.
    """
    kind, version = struct.unpack_from(">hh", frame, 4)
    return kind == _END_TRANSACTION and frame[-2 if version >= _FLEXIBLE else -1] == 1
