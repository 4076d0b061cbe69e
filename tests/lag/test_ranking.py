"""The rules of ranking: special cases by hand, and the same answer of the engine and of the index for any reports."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from taskplace import Instance, LagIndex, PlacementConfig, Problem, Task, TaskId
from taskplace.errors import InputError
from taskplace.lag import ranking
from taskplace.lag.ranking import NO_COPY, UNKNOWN, Acceptable
from taskplace.model.placement import caught_at
from taskplace.model.problem import indexed_lags
from taskplace.validation import MOST

T = TaskId(0, 0)
IDS = [TaskId(0, 0), TaskId(0, 1), TaskId(1, 0)]
LAGS = st.sampled_from([0, 9, 10, 11, 99, 100, 101, 900, 989, 990, 1_000, 1_001, 50_000, 2**62, MOST])
ENDS = st.sampled_from([UNKNOWN, 0, 10, 100, 1_000, 50_000, MOST])
CONFIGS = st.builds(
    PlacementConfig,
    acceptable_recovery_lag=st.sampled_from([0, 10, 100, 10_000, MOST - 1, MOST]),
    acceptable_recovery_seconds=st.sampled_from([None, 0.5, 10.0]),
)
ACCEPTABLE = st.sampled_from([0, 10, 100, MOST - 1, MOST])
RATES = st.sampled_from([None, 1.0, 20.0, 1e30])


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Some tasks of each kind, and copies that lag in each way, with and without roles."""
    tasks = [
        Task(t, stateful=draw(st.booleans()), end_offset=None if end < 0 else end, logged=draw(st.booleans()))
        for t in IDS
        for end in (draw(ENDS),)
    ]
    instances = []
    for name in "abc":
        role = {t: draw(st.sampled_from(["none", "active", "standby", "warmup"])) for t in IDS}
        roles = {kind: [t for t in IDS if role[t] == kind] for kind in ("active", "standby", "warmup")}
        lags = draw(st.dictionaries(st.sampled_from(IDS), LAGS))
        instances.append(Instance(name, lags=lags, restore_rate=draw(RATES), **roles))
    return Problem(tasks, instances, draw(CONFIGS))


@settings(max_examples=200, deadline=None)
@given(problems())
def test_the_index_and_the_engine_agree_on_who_is_caught_up_and_who_is_most(problem):
    index = indexed_lags(problem.tasks, problem.instances, problem.config)
    c = problem.columns
    index.check()
    for t in np.flatnonzero(c.stateful).tolist():
        task = c.ids[t]
        ready = [bool(caught_at(c, np.full(c.n, i))[t]) for i in range(c.m)]
        assert [index.is_caught_up(name, task) for name in c.names] == ready
        assert index.universal(task) == bool(c.at_once[t])
        rows = {c.names[int(c.inst[k])]: k for k in range(int(c.start[t]), int(c.start[t + 1]))}
        rows = {name: k for name, k in rows.items() if (name, task) in index}
        assert {*index.caught_up(task)} == {name for name, k in rows.items() if c.caught[k]}
        owner = c.names[int(c.owner[t])] if c.owner[t] >= 0 else None
        assert {*index.most_caught_up(task, owner)} == {name for name, k in rows.items() if c.best[k]}
        for name, k in rows.items():
            rank = index.rank(name, task)
            assert rank == 0 if c.caught[k] else rank >= max(int(c.lag[k]), 1)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(LAGS | st.just(NO_COPY), ENDS, ACCEPTABLE, st.booleans()), min_size=1))
def test_one_copy_ranks_as_it_does_among_many(rows):
    def ranked(lag, end, acceptable, flag):
        whole = ranking.whole(end)
        needs_no_copy, usable = ranking.needs_no_copy(end, flag), ranking.usable_lag(lag, end, flag)
        lacking = ranking.lacking(lag, whole if isinstance(lag, np.ndarray) else int(whole))
        return needs_no_copy, usable, whole, lacking, ranking.rank(lag, end, acceptable, flag)

    many = ranked(*(np.array(column) for column in zip(*rows, strict=True)))
    for k, row in enumerate(rows):
        assert [column[k] for column in many] == [*ranked(*row)]


@pytest.mark.parametrize(
    ("lag", "end", "acceptable", "rank"),
    [
        (0, 500, 0, 0),
        (100, 500, 100, 0),
        (101, 500, 100, 101),
        (500, 500, 100, 500),
        (501, 500, 100, 500),  # a copy of a changelog that was reset is no copy
        (None, 500, 100, 500),
        (None, 50, 100, 101),  # whoever has no copy is never caught up
        (None, None, 100, MOST),
        (900, None, 100, 900),
        (None, 0, 100, 0),  # an empty changelog
        (None, 500, MOST, 0),  # any lag is acceptable
        (None, None, MOST, 0),
        (None, None, MOST - 1, MOST),
    ],
)
def test_the_rank_is_0_or_the_lag_or_the_whole_changelog(lag, end, acceptable, rank):
    index = LagIndex(acceptable)
    index.end_offset(T, end)
    if lag is not None:
        index.report("a", T, lag)
    assert index.rank("a", T) == rank


def test_seconds_are_worth_what_the_instance_reads_in_them():
    index = LagIndex(1_000, 2.0)
    index.end_offset(T, 10**6)
    for name in ("fast", "slow", "unknown"):
        index.report(name, T, 900)
    index.restore_rate("fast", 450.0)
    index.restore_rate("slow", 449.0)
    assert index.caught_up(T) == ("fast", "unknown")
    index.restore_rate("slow", None)
    assert index.is_caught_up("slow", T)
    index.restore_rate("slow", 1.0)
    index.forget("slow")
    index.report("slow", T, 900)
    assert index.is_caught_up("slow", T), "what comes back under the name is measured anew"


@pytest.mark.parametrize("seconds", [0, -1.0, True, "2"])
def test_seconds_and_rates_are_above_0(seconds):
    with pytest.raises(InputError, match=r"acceptable\.recovery\.seconds: .* expected a number above 0"):
        LagIndex(0, seconds)
    with pytest.raises(InputError, match=r"instances\[a\]\.restore_rate: .* expected a number above 0"):
        LagIndex().restore_rate("a", seconds)


def test_a_long_time_is_no_unbounded_one():
    assert Acceptable(0, 1e300).at(1e299) == 2**62
    assert Acceptable(MOST, 1.0).at(5.0) == MOST
    assert not Acceptable(MOST - 1, 1.0).unbounded


@pytest.mark.parametrize(
    ("acceptable", "other", "owner_stays"),
    [
        (0, 36_000, True),  # a tenth of what the owner lacks
        (0, 35_999, False),
        (5_000, 35_000, True),  # what is acceptable
        (5_000, 34_999, False),
        (36_000, 36_000, False),  # caught up, and the owner is not
    ],
)
def test_an_owner_stays_among_the_best_while_nobody_is_far_ahead(acceptable, other, owner_stays):
    index = LagIndex(acceptable)
    index.end_offset(T, 50_000)
    index.report("owner", T, 40_000)
    index.report("other", T, other)
    assert index.most_caught_up(T) == ("other",)
    assert index.most_caught_up(T, "owner") == (("other", "owner") if owner_stays else ("other",))
