"""The benchmark's own arguments and figures, and the examples in the docstrings of its modules."""

from __future__ import annotations

import doctest

import bench_kafka_streams as bench
import pytest
from kafka_streams import ledger, placements, programs, tables, traffic


@pytest.mark.parametrize(
    "module", [bench, ledger, placements, programs, tables, traffic], ids=lambda module: module.__name__
)
def test_the_examples_hold(module):
    found = doctest.testmod(module)
    assert found.attempted > 0 and found.failed == 0


LOSS = {"detection": 1.0, "takeover": 2.0, "both": 3.0, "first": 2.5, "others": 0.5, "settled": 60.0}
GROWN = {"member": 1.0, "balanced": 2.0, "settled": 3.0, "moves": 4, "slowest": 0.5, "slowest_before": 0.25}
RATES = [
    {"rate": rate, "p50": p50, "p99": 1.0, "orders": 10} for rate, p50 in ((20, 0.1), (9, 0.2), (20, 0.3))
]
LATENCIES = [
    ["9", "0.200 s", "1.000 s", "10"],
    ["20", "0.200 s (0.100-0.300)", "1.000 s (1.000-1.000)", "20"],
]


@pytest.mark.parametrize(
    ("part", "found", "rows"),
    [
        (
            "kill",
            [LOSS, LOSS | {"takeover": 9.0, "settled": 62.0}, LOSS | {"takeover": 3.0, "settled": 61.0}],
            [
                [
                    "1.00 s (1.00-1.00)",
                    "3.00 s (2.00-9.00)",
                    "3.00 s (3.00-3.00)",
                    "2.50 s (2.50-2.50)",
                    "0.50 s (0.50-0.50)",
                    "61.0 s (60.0-62.0)",
                ]
            ],
        ),
        ("latency", RATES, LATENCIES),
        (
            "throughput",
            [{"rate": 1000.0}, {"rate": 3000.0}],
            [["2,000 (1,000-3,000)", "1,000 3,000"]],
        ),
        ("scale-out", [GROWN], [["1.0 s", "2.0 s", "3.0 s", "4", "0.50 s", "0.25 s"]]),
    ],
)
def test_rows_are_medians_with_ranges(part, found, rows):
    assert tables.row(part, found) == rows
    assert {len(cells) for cells in rows} == {len(tables.HEADS[part])}
