"""Exports the metrics of a stream to Prometheus: a collector, and an endpoint that answers scrapes over HTTP.

**Idea.** The collector reads `Placed.metrics` when Prometheus scrapes. Nothing is counted twice, and there is no work
between scrapes. `Placed.metrics` never waits for a batch, so a scrape neither delays a batch nor waits for one.

Properties: labels are bounded. Tasks are those of the topology, executors those that are members now, and every sample
has the name of the stream. A value that is not known yet has no sample.

Needs `prometheus-client` (the extra `metrics`), which is loaded when it is first used. Errors: `InputError` naming what
asked for it, with the remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from taskplace.errors import InputError
from taskplace.record.http_server import HttpServer, check_free
from taskplace.record.metrics import METRICS, STREAM, Metric

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily


def serve(
    read: Callable[[], Mapping[str, Any]], *, stream: str, port: int, host: str = "127.0.0.1"
) -> HttpServer:
    """Serve what `read` returns, under the label `stream`, and return the endpoint.

    - `port`: 0 takes a free one
    - `host`: the address to listen on; the endpoint has no authentication
    """
    path = "serve_metrics"
    _check_installed(path)
    return HttpServer(application(read, stream=stream), port=port, host=host, path=path, at="metrics")


def check_serving(path: str, *, port: int, host: str) -> None:
    """Check that metrics could be served there now, before anything is started. `path`: the key that asks for it."""
    _check_installed(path)
    check_free(path, port=port, host=host)


def _check_installed(path: str) -> None:
    if find_spec("prometheus_client") is None:
        hint = "pip install 'taskplace[metrics]'"
        raise InputError(path, found="no package prometheus-client", expected="prometheus-client", hint=hint)


class Collector:
    """The metrics of one stream, for a registry of prometheus_client.

    - `read`: returns the values, as `Placed.metrics` does
    - `stream`: the value of the label `stream`

        registry.register(Collector(placed.metrics, stream="delays"))
    """

    def __init__(self, read: Callable[[], Mapping[str, Any]], *, stream: str) -> None:
        self._read, self._stream = read, stream

    def describe(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Yield the metrics without values, so that registering does not read them."""
        return map(_family, METRICS)

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Yield the metrics with their current values."""
        values = self._read()
        for metric in METRICS:
            family = _family(metric)
            found = values.get(metric.name)
            series = found if isinstance(found, list) else [{"value": found}]
            for one in series:
                if one["value"] is not None:
                    labels = [self._stream, *(str(one[label]) for label in metric.labels)]
                    family.add_metric(labels, one["value"] * metric.scale)
            yield family


def _family(metric: Metric) -> CounterMetricFamily | GaugeMetricFamily:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return kind(metric.exported, metric.doc, labels=[STREAM, *metric.labels])


def application(read: Callable[[], Mapping[str, Any]], *, stream: str) -> Callable[..., Any]:
    """Return a WSGI application that answers a scrape."""
    from prometheus_client import CollectorRegistry, make_wsgi_app

    registry = CollectorRegistry()
    registry.register(Collector(read, stream=stream))
    return make_wsgi_app(registry)
