"""A checkpoint that an earlier version has made on Spark is continued, Spark's own beside it."""

from __future__ import annotations

import pytest

from tests.golden import on_spark
from tests.golden.formats import HERE

ARCHIVES = sorted(HERE.glob(f"manifest-*/{on_spark.NAME}.tar.xz"))


@pytest.mark.everyday("Formats and versions")
@pytest.mark.parametrize("archived", ARCHIVES, ids=lambda file: file.parent.name)
def test_a_checkpoint_of_an_earlier_version_is_continued_on_spark(cluster, tmp_path, archived):
    on_spark.opened(tmp_path, archived)
    assert on_spark.MADE - 1 not in on_spark.sent(tmp_path)["joined"], "it is committed, and not published"
    on_spark.run(cluster, tmp_path, range(on_spark.MADE, len(on_spark.BATCHES)))
    assert on_spark.sent(tmp_path) == on_spark.answers()
