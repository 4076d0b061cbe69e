"""Arguments that a processor does not have are refused, with the one that was meant."""

from __future__ import annotations

import inspect

import pytest

from taskplace.errors import InputError
from taskplace.spark.processors import Aggregate, Count, Deduplicate, PerKey, TableJoin, count, max_

KEY = {"k": "string"}


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (
            lambda: Deduplicate("s", on=KEY),
            r"Deduplicate\(.s.\).on: found 'an unknown argument', expected one of store, by, ",
        ),
        (lambda: Deduplicate("s", on=KEY), "did you mean 'by'"),
        (lambda: Aggregate("s", on=KEY, n=count()), r"Aggregate\(.s.\).on: .* did you mean 'by'"),
        (lambda: Count("s", key=KEY), r"Count\(.s.\).key: .* did you mean 'by'"),
        (
            lambda: PerKey("s", print, by=KEY, stat={}, output={}),
            r"PerKey\(.s.\).stat: .* did you mean 'state'",
        ),
        (
            lambda: TableJoin("s", by=KEY, colums={"v": "long"}),
            r"TableJoin\(.s.\).colums: .* did you mean 'columns'",
        ),
        (
            lambda: Deduplicate("s", by=KEY, retention="1 day"),
            r"Deduplicate\(.s.\).retention: .* did you mean 'ttl'",
        ),
    ],
)
def test_the_argument_that_was_meant_is_named(made, says):
    with pytest.raises(InputError, match=says):
        made()


def test_aggregates_may_have_any_other_name():
    made = Aggregate("s", by=KEY, on=count(), key=count(), event_time=max_("at", "timestamp"))
    assert set(made.layouts()["s"]["value"]) == {"on", "key", "event_time"}


def test_constructors_keep_their_signature():
    assert list(inspect.signature(TableJoin).parameters)[:3] == ["store", "by", "columns"]
