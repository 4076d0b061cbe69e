"""Streams on the one local-cluster of the tests."""

from __future__ import annotations

import pytest

from tests.support.steering_streams import Stream


@pytest.fixture
def stream(cluster, tmp_path):
    """Makes streams, and stops them."""
    made = []

    def make(kind, name, **options) -> Stream:
        made.append(Stream(cluster, tmp_path, kind, name=f"{name}_{len(made)}", **options))
        return made[-1]

    yield make
    for one in made:
        one.stop()
