"""The long form: the same properties on many more and larger groups. Run by `make test-all`; hypothesis prints what
reproduces a failure, the plain flow its seed.
"""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.groups import test_assignment, test_copartitioned, test_sticky, test_subscriptions
from tests.support.groups import subscriptions

pytestmark = pytest.mark.slow

LONG = settings(max_examples=1_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
LARGER = subscriptions(most=14, members=6, topics=5, racks=True)


@pytest.mark.parametrize(
    ("short", "strategies"),
    [
        (test_sticky.test_sticky_fair_brings_back_what_nobody_keeps, [subscriptions(most=6, racks=True)]),
        (test_assignment.test_two_phases, [LARGER, test_subscriptions.modes, st.integers(0, 2)]),
        (
            test_subscriptions.test_nothing_moves_when_nothing_changes,
            [LARGER, test_subscriptions.modes, test_subscriptions.priorities],
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_properties(short, strategies):
    LONG(given(*strategies)(short.hypothesis.inner_test))()


@pytest.mark.parametrize("seed", range(1_000, 1_300))
def test_larger_groups(seed):
    test_sticky.test_larger_groups_against_a_plain_flow(seed, "racks" if seed % 2 else "stickiness")


def test_workers():
    run_state_machine_as_test(
        test_copartitioned.Workers, settings=settings(max_examples=150, stateful_step_count=25, deadline=None)
    )
