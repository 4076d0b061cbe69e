"""The code of metrics.md runs: the numbers of a stream, the endpoint, the listener, the lines of the log."""

from __future__ import annotations

import logging.config
from unittest.mock import MagicMock

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("taskplace.record")
pytest.importorskip("prometheus_client")

from taskplace.spark.processors import Count
from tests.support.pages import blocks
from topology import Topology

PAGE = "docs/metrics.md"


class _Nowhere:
    def publish(self, spark, batch_id, files):
        """Drop the rows."""


def test_the_code_of_the_page_runs(world, monkeypatch):
    topology = Topology("t")
    topology.source("in", key="k", partitions=1).process(Count("n", by={"k": "string"}), name="n").sink(
        "out", target=_Nowhere()
    )
    world.come(1)
    placed = world.open(topology)
    world.batch(placed, 0, **{"in": pa.table({"k": ["a"]})})
    numbers, endpoint, registry, listener, log = blocks(PAGE, "python")
    names = {"placed": placed, "spark": MagicMock(name="spark"), "logging": logging}
    exec(numbers, names)
    assert names["metrics"]["rebalance-total"] == 1
    exec(endpoint.replace("port=9404", "port=0"), names)
    assert names["server"].url.endswith("/metrics")
    exec(
        registry.replace("import REGISTRY", "import CollectorRegistry\nREGISTRY = CollectorRegistry()"), names
    )
    exec(listener, names)
    (call,) = names["spark"].streams.addListener.call_args_list
    assert type(call.args[0]).__name__ == "MetricsListener"
    before = logging.getLogger("taskplace").handlers[:]
    exec(log, names)
    monkeypatch.setattr(logging.getLogger("taskplace"), "handlers", before)
    placed.close()
