"""The table of docs/placement.md: how many of Kafka's cases agree, differ on purpose, or are refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tests.assign.test_kafka_convergence import RANDOM_SCENARIOS
from tests.assign.test_kafka_high_availability import HIGH_AVAILABILITY
from tests.assign.test_kafka_sticky import STICKY
from tests.support.kafka_cases import STRATEGIES, Case


def test_the_table_in_the_documentation_has_these_counts():
    """Rows: suite, cases, agreeing, differing on purpose, refused. Random input has a line of its own."""
    page = (Path(__file__).parents[2] / "docs" / "placement.md").read_text()
    text = page.partition("## What Kafka's own tests expect")[2]
    rows = re.findall(r"^\| `(\w+)`(, random input)? \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", text, re.M)
    found = {(name, bool(rest)): tuple(map(int, counts)) for name, rest, *counts in rows}
    n = len(STRATEGIES)
    high = [c for c in HIGH_AVAILABILITY for _ in STRATEGIES]
    methods = [c for c in STICKY if c.first_half]
    assert found == {
        ("HighAvailabilityTaskAssignorTest", False): counted(high),
        # Two methods. One differs under min_traffic.
        ("HighAvailabilityTaskAssignorTest", True): (2 * n, 2 * n - 1, 1, 0),
        ("TaskAssignorConvergenceTest", False): (3 * n, 3 * n, 0, 0),
        ("TaskAssignorConvergenceTest", True): (RANDOM_SCENARIOS * n, RANDOM_SCENARIOS * n, 0, 0),
        ("LegacyStickyTaskAssignorTest", False): counted(methods, refused=len(methods) * (n - 1)),
        ("LegacyStickyTaskAssignorTest", True): (2 * n, 2, 0, 2 * (n - 1)),
    }


def counted(suite: Sequence[Case], refused: int = 0) -> tuple[int, int, int, int]:
    differing = sum(bool(c.differs) for c in suite)
    return len(suite) + refused, len(suite) - differing, differing, refused
