"""Serves metrics to Prometheus over HTTP, if that is possible: checks the package, the port and the address.

Errors: `InputError` naming what asked for it, with the remedy.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from taskplace.errors import InputError

if TYPE_CHECKING:
    from taskplace.metrics.prometheus import MetricsServer

HIGHEST_PORT = 65_535


def serve(
    read: Callable[[], Mapping[str, Any]], *, stream: str, port: int, host: str = "127.0.0.1"
) -> MetricsServer:
    """Serve what `read` returns, under the label `stream`, and return the endpoint.

    - `port`: 0 takes a free one
    - `host`: the address to listen on; the endpoint has no authentication
    """
    path = "serve_metrics"
    _check_installed(path)
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= HIGHEST_PORT:
        expected = f"a port from 0 to {HIGHEST_PORT}; 0 takes a free one"
        raise InputError(f"{path}: port", found=port, expected=expected)
    if not isinstance(host, str) or not host:
        raise InputError(f"{path}: host", found=host, expected="an address of this host")
    from taskplace.metrics.prometheus import Collector, MetricsServer

    try:
        return MetricsServer(Collector(read, stream=stream), port=port, host=host)
    except OSError as error:
        raise _unusable(path, host, port, error) from error


def check_serving(path: str, *, port: int, host: str) -> None:
    """Check that metrics could be served there now, before anything is started. `path`: the key that asks for it."""
    _check_installed(path)
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        socket.create_server(address[:2], family=family).close()
    except OSError as error:
        raise _unusable(path, host, port, error) from error


def _check_installed(path: str) -> None:
    if find_spec("prometheus_client") is None:
        hint = "pip install 'taskplace[metrics]'"
        raise InputError(path, found="no package prometheus-client", expected="prometheus-client", hint=hint)


def _unusable(path: str, host: str, port: int, error: OSError) -> InputError:
    # The text of `create_server` names the address again; an unknown host has a negative number, and a text of its own.
    number = error.errno or 0
    text = os.strerror(number) if number > 0 else error.strerror or error
    return InputError(
        path,
        found=f"{host}:{port} ({text})",
        expected="an address of this host, and a port that no other process uses; port 0 takes a free one",
    )
