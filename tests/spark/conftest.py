"""Pipelines on the one local-cluster that `tests/conftest.py` starts."""

from __future__ import annotations

import pytest
from placed_harness import Pipeline


@pytest.fixture
def pipeline(cluster, tmp_path, fault_orders):
    """Makes pipelines, and closes them."""
    made = []

    def make(kind: type[Pipeline] = Pipeline, **options) -> Pipeline:
        made.append(kind(cluster, tmp_path, **options))
        return made[-1]

    yield make
    for one in made:
        one.placed.close()
    for order in fault_orders.iterdir():
        order.unlink()
