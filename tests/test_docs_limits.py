"""The limits that the pages state are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskplace import validation
from taskplace.groups.partitioner import MOST_BYTES
from taskplace.groups.subscriptions import MOST_PARTITIONS
from taskplace.model.placed_options import PlacedOptions
from taskplace.spark import types as type_text
from taskplace.spark.bridge import jobs
from taskplace.spark.checkpoint import files
from taskplace.spark.driver import bins
from taskplace.spark.driver import bins as task_costs
from taskplace.spark.state import environment as warm
from taskplace.spark.state import expiry, store
from topology import names

OPTIONS = PlacedOptions()
DOCS = Path(__file__).parents[1] / "docs"


def mib(size: int) -> str:
    """Return a size as the pages write it, so exactly that another size is another text."""
    return f"{size / 2**20:g} MiB"


@pytest.mark.parametrize(
    ("page", "about", "stated"),
    [
        ("runtime", "expired entries", f"{expiry.REMOVED_PER_BATCH:,}"),
        ("runtime", "expired entries", mib(expiry.REMOVED_BYTES_PER_BATCH)),
        ("runtime", "the input of one bin", mib(bins.MAX_BYTES)),
        ("runtime", "this subtopology count", f"the last {task_costs.EXPANSION_BATCHES} batches"),
        ("runtime", "`snapshot_bytes` |", f"| {OPTIONS.snapshot_interval}, {mib(OPTIONS.snapshot_bytes)} |"),
        ("runtime", "`bytes_per_task` |", f"| {mib(OPTIONS.bytes_per_task)} |"),
        ("runtime", "`locality_wait_ms` |", f"| {OPTIONS.locality_wait_ms:,} |"),
        ("runtime", "decimals of more than", f"{type_text.DIGITS} digits"),
        ("guarantees", "in steps of", f"{files.ROWS_PER_BATCH:,} records"),
        ("guarantees", "read a store", f"pieces of {files.SNAPSHOT_BYTES >> 20} or {mib(store.SCAN_BYTES)}"),
        ("architecture", "cancels the job", f"the driver waits up to {jobs.END_OF_TASKS_SECONDS:g} s"),
        ("architecture", "cancels the job", f"not ended after {jobs.END_BY_THEMSELVES_SECONDS:g} s"),
        ("architecture", "cancels the job", f"had run for {jobs.YOUNG_SECONDS:g} s before"),
        ("architecture", "lies in between", f"at most {mib(bins.WORTH_A_BIN)}"),
        ("architecture", "copies open", f"{warm.ENVIRONMENTS_LIMIT} copies"),
        ("placement", "weights between", f"{validation.MOST_CAPACITY:,} slots"),
        ("partitions", "partitions in all", f"{MOST_PARTITIONS:,}"),
        ("partitioner", "whole numbers of bytes", f"2^{MOST_BYTES.bit_length() - 1}."),
        ("topology", "name of a directory", f"{names.MOST_BYTES} bytes"),
        ("topology", "a topology at most", f"{names.MOST_PARTITIONS:,} partitions"),
    ],
)
def test_a_limit_is_the_one_that_the_page_states(page: str, about: str, stated: str) -> None:
    lines = [line for line in (DOCS / f"{page}.md").read_text(encoding="utf-8").splitlines() if about in line]
    assert any(stated in line for line in lines), (about, stated)
