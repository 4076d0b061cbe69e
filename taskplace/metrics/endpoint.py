"""Serves metrics to Prometheus over HTTP, if that is possible: checks the package, the port and the address.

Errors: `InputError` naming what asked for it, with the remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

from taskplace.errors import InputError
from taskplace.record.http_server import HttpServer, check_free


def serve(
    read: Callable[[], Mapping[str, Any]], *, stream: str, port: int, host: str = "127.0.0.1"
) -> HttpServer:
    """Serve what `read` returns, under the label `stream`, and return the endpoint.

    - `port`: 0 takes a free one
    - `host`: the address to listen on; the endpoint has no authentication
    """
    path = "serve_metrics"
    _check_installed(path)
    from taskplace.record.prometheus import application

    return HttpServer(application(read, stream=stream), port=port, host=host, path=path, at="metrics")


def check_serving(path: str, *, port: int, host: str) -> None:
    """Check that metrics could be served there now, before anything is started. `path`: the key that asks for it."""
    _check_installed(path)
    check_free(path, port=port, host=host)


def _check_installed(path: str) -> None:
    if find_spec("prometheus_client") is None:
        hint = "pip install 'taskplace[metrics]'"
        raise InputError(path, found="no package prometheus-client", expected="prometheus-client", hint=hint)
