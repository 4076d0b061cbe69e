"""The benchmark's tables: medians of all repetitions and rounds, with the range in brackets."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from spark_bench import Out

HEADS = {
    "throughput": ["orders/s", "all bursts"],
    "latency": ["orders/s", "p50", "p99", "orders"],
    "kill": ["detection", "takeover", "both", "first partition", "slowest of the others", "settled"],
    "scale-out": ["a member", "balanced", "settled", "moves", "slowest order", "before"],
}


def middle(found: list[dict[str, Any]], name: str, form: str, unit: str = " s") -> str:
    """Return the median of a figure, with the range of all if there are several.

    >>> middle([{"both": 1.0}, {"both": 4.0}, {"both": 2.5}], "both", ".1f")
    '2.5 s (1.0-4.0)'
    """
    values = [each[name] for each in found]
    text = f"{statistics.median(values):{form}}{unit}"
    return text if len(values) == 1 else f"{text} ({min(values):{form}}-{max(values):{form}})"


def row(part: str, found: list[dict[str, Any]]) -> list[list[str]]:
    """Return the cells of a variant's figures in one part: medians, and the ranges of all repetitions and rounds."""
    if part == "throughput":
        return [[middle(found, "rate", ",.0f", ""), " ".join(f"{each['rate']:,.0f}" for each in found)]]
    if part == "latency":
        rates = sorted({each["rate"] for each in found})
        by_rate = [[each for each in found if each["rate"] == rate] for rate in rates]
        return [
            [
                f"{rate:g}",
                *(middle(some, p, ".3f") for p in ("p50", "p99")),
                f"{sum(each['orders'] for each in some):,}",
            ]
            for rate, some in zip(rates, by_rate, strict=True)
        ]
    if part == "scale-out":
        seconds = [middle(found, name, ".1f") for name in ("member", "balanced", "settled")]
        slow = [middle(found, name, ".2f") for name in ("slowest", "slowest_before")]
        return [[*seconds, middle(found, "moves", "g", ""), *slow]]
    each = [middle(found, name, ".2f") for name in ("detection", "takeover", "both", "first", "others")]
    return [[*each, middle(found, "settled", ".1f")]]


def head(part: str) -> list[str]:
    """Return the names of the columns."""
    return ["variant", *HEADS["kill" if part in ("stop", "cut") else part]]


def show(out: Out, results: dict[str, dict[str, Any]], parts: Sequence[str]) -> None:
    """Print a table for each of these parts that has figures."""
    for part in parts:
        some = {name: found[part] for name, found in results.items() if part in found}
        if some:
            out.say(f"\n{part}: medians, and ranges")
            out.table(head(part), [[name, *cells] for name in some for cells in row(part, some[name])])
