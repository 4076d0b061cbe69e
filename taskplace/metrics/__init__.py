"""The metrics of a placed stream: what they are called, and how they are exported.

- `catalogue`: the one table of all metrics; docs/metrics.md, the Prometheus endpoint and the driver use it
- `endpoint`: serves metrics to Prometheus, and checks beforehand whether that is possible
- `prometheus`: the collector and the HTTP server. It needs `prometheus-client` (the extra `metrics`), so `endpoint`
  loads it when it is first used

`Placed.metrics` returns the values as a plain dict.
"""

from taskplace.record.metrics import METRICS, Metric

__all__ = ["METRICS", "Metric"]
