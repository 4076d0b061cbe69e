"""Exports the metrics of a stream to Prometheus: a collector, and an HTTP endpoint.

**Idea.** The collector reads `Placed.metrics` when Prometheus scrapes. Nothing is counted twice, and there is no work
between scrapes. The endpoint answers in threads of its own. `Placed.metrics` never waits for a batch, so a scrape
neither delays a batch nor waits for one.

Properties: labels are bounded. Tasks are those of the topology, executors those that are members now, and every sample
has the name of the stream. A value that is not known yet has no sample.

Needs `prometheus-client` (the extra `metrics`). The endpoint has no authentication: it listens on loopback by default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector as _Collector

from taskplace.metrics.catalogue import METRICS, STREAM, Metric


class Collector(_Collector):
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
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return kind(metric.exported, metric.doc, labels=[STREAM, *metric.labels])


class MetricsServer:
    """An HTTP endpoint that Prometheus scrapes. `url` is its address; `close` ends it.

    Errors: `OSError` for an address or a port that cannot be used.
    """

    def __init__(self, collector: Collector, *, port: int, host: str) -> None:
        registry = CollectorRegistry()
        registry.register(collector)
        server, self._thread = start_http_server(port, addr=host, registry=registry)
        self._server: WSGIServer | None = server
        self.host, self.port = host, int(server.server_port)

    @property
    def url(self) -> str:
        """The address of the endpoint."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/metrics"

    def __repr__(self) -> str:
        return f"MetricsServer({self.url!r})"

    def close(self) -> None:
        """End the endpoint. May be called again."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
            self._thread.join()
