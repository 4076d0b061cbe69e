"""The metrics of a placed stream: what they are called, and how they are exported.

- `catalogue`: the one table of all metrics; docs/metrics.md, the Prometheus endpoint and the driver use it
- `prometheus`: a collector and an HTTP endpoint for Prometheus. It needs `prometheus-client` (the extra `metrics`), so
  it is loaded when it is first used

`Placed.metrics` returns the values as a plain dict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from taskplace.errors import InputError
from taskplace.metrics.catalogue import METRICS, Metric

if TYPE_CHECKING:
    from taskplace.metrics.prometheus import MetricsServer

__all__ = ["METRICS", "Metric", "check_installed", "serve"]


def check_installed(path: str) -> None:
    """Raise `InputError` if `prometheus-client` is missing. `path`: what asks for it."""
    if find_spec("prometheus_client") is None:
        raise InputError(
            path,
            found="no package prometheus-client",
            expected="prometheus-client",
            hint="pip install 'taskplace[metrics]'",
        )


def serve(
    read: Callable[[], Mapping[str, Any]], *, stream: str, port: int, host: str = "127.0.0.1"
) -> MetricsServer:
    """Serve what `read` returns to Prometheus over HTTP, under the label `stream`, and return the endpoint.

    Errors: `InputError` for a port or a host that cannot be used, and without `prometheus-client`.
    """
    check_installed("serve_metrics")
    from taskplace.metrics.prometheus import Collector, MetricsServer

    return MetricsServer(Collector(read, stream=stream), port=port, host=host)
