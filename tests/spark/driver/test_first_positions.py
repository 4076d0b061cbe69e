"""What a restarted driver knows of the copies it finds: a copy's last attempt is committed if the journal says so."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.support.word_counts import counts, words

STANDBY = {"num.standby.replicas": 1}


def roles(placed):
    return {name: roles.active for name, roles in placed.loop.plan.assignment.items()}


@contextmanager
def no_commit(placed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(placed.journal), "commit", lambda *_, **__: 1 // 0)
        yield


def test_after_the_first_batch_the_copies_are_known_and_the_tasks_stay_where_they_are(world):
    world.come(1)
    first = world.open(counts(world), config=STANDBY)
    world.batch(first, 0, **{"in": words(*"abcdefgh")})
    world.follow(first)
    second = world.open(counts(world), config=STANDBY)
    world.welcome(second)
    assert {at.version for member in second.state.members.values() for at in member.copies.values()} == {0}
    world.batch(second, 1, **{"in": words(*"abcdefgh")})
    assert roles(second) == roles(first)
    assert (second.stats.scratch, second.stats.replayed) == (0, 0)


def test_a_crash_before_the_second_manifest_leaves_copies_that_roll_back(world):
    world.come(1)
    first = world.open(counts(world), config=STANDBY)
    world.batch(first, 0, **{"in": words(*"abcdefgh")})
    world.follow(first)
    with no_commit(first), pytest.raises(ZeroDivisionError):
        world.batch(first, 1, **{"in": words("a")})  # a part of the tasks has changes
    second = world.open(counts(world), config=STANDBY)
    world.batch(second, 1, **{"in": words(*"abcdefgh")})
    assert roles(second) == roles(first)
    assert (second.stats.scratch, second.stats.replayed) == (0, 0)


def test_an_attempt_that_was_not_committed_is_no_position(world):
    first = world.open(counts(world))
    with no_commit(first), pytest.raises(ZeroDivisionError):
        world.batch(first, 0, **{"in": words("a")})
    second = world.open(counts(world))
    world.welcome(second)
    copies = second.state.members["executor-1"].copies
    assert all(at.version == -1 for at in copies.values())
    world.batch(second, 0, **{"in": words("a", "a")})
    assert world.sent("out") == {0: [("a", 2)]}


def test_an_executor_whose_visit_ran_elsewhere_is_asked_again(world, monkeypatch):
    world.come(2)
    first = world.open(counts(world))
    world.batch(first, 0, **{"in": words(*"abcdefgh")})
    start, elsewhere = world.start, []

    def once_elsewhere(job, *args, **kwargs):
        other = world.there["1"].location
        if not elsewhere and job.locations != [other]:
            elsewhere.append(job.locations)
            job = replace(job, locations=[other])
        return start(job, *args, **kwargs)

    monkeypatch.setattr(world, "start", once_elsewhere)
    second = world.open(counts(world))
    world.batch(second, 1, **{"in": words(*"abcdefgh")})
    assert elsewhere
    assert roles(second) == roles(first)
    assert second.stats.scratch == 0
