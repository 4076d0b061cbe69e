"""What holds for all modes: complete, the same whatever the order, at rest when nothing changes."""

from __future__ import annotations

import os
import subprocess
import sys

import hypothesis.strategies as st
from hypothesis import given, settings

from taskplace.groups.partitions import MODES, Member, Subscriptions, assign_partitions
from tests.support.assignments import verify
from tests.support.groups import claims, document, group, subscriptions, tables

modes = st.sampled_from([*MODES, "copartitioned"])


@settings(max_examples=40, deadline=None)
@given(subscriptions(most=12, members=6, topics=5, racks=True), modes, st.randoms(use_true_random=False))
def test_the_order_of_the_input_means_nothing(s: Subscriptions, mode: str, rng) -> None:  # type: ignore[no-untyped-def]
    asked = document(s)

    def shuffled(value: object) -> object:
        if isinstance(value, dict):
            items = [(k, shuffled(v)) for k, v in value.items()]
            rng.shuffle(items)
            return dict(items)
        return value

    mixed = shuffled(asked)
    for member in mixed["members"].values():  # type: ignore[index]
        rng.shuffle(member["topics"])
        rng.shuffle(member["owned"])
    made = assign_partitions(s, mode)
    assert assign_partitions(mixed, mode).to_json() == made.to_json()  # type: ignore[arg-type]
    assert assign_partitions(Subscriptions.from_dict(asked), mode).to_json() == made.to_json()


@settings(max_examples=40, deadline=None)
@given(subscriptions(most=12, members=6, topics=5, racks=True), modes)
def test_nothing_moves_when_nothing_changes(s: Subscriptions, mode: str) -> None:
    made = assign_partitions(s, mode)
    assert verify(s, made) == []
    for _ in range(2 if made.followup else 1):  # copartitioned: first a standby, then the move
        s = s.owning(made.assignment, standby=made.standby, generation=7)
        before, made = made, assign_partitions(s, mode)
        assert verify(s, made) == []
    s = s.owning(made.assignment, standby=made.standby, generation=8)
    again = assign_partitions(s, mode)
    assert (again.assignment, again.standby) == (made.assignment, made.standby)
    assert again.moved == 0 and not again.followup
    if mode != "copartitioned":
        assert made.assignment == before.assignment


@settings(max_examples=40, deadline=None)
@given(subscriptions(most=8))
def test_claims_count_by_generation(s: Subscriptions) -> None:
    c = s.columns
    found = {}
    for p, owner in enumerate(c.owner.tolist()):
        if owner >= 0:
            t = int(c.topic[p])
            found[c.topics[t], p - int(c.start[t])] = c.members[owner]
    assert found == claims(s)


def test_topics_without_subscribers_and_subscriptions_without_topics() -> None:
    made = assign_partitions(group({"t0": 2, "lonely": 3, "empty": 0}, C0="t0 tomorrow"))
    assert made.unassigned == ("empty", "lonely")
    assert tables(made.assignment) == {"C0": "t0p0 t0p1"}
    assert made.warnings == (
        "1 topics have subscribers but do not exist: tomorrow; create them, or unsubscribe",
    )
    nothing = assign_partitions(group({}, C0="", C1="later"))
    assert (nothing.assignment, nothing.balance_score) == ({"C0": (), "C1": ()}, 0)


def test_what_is_owned_and_gone_is_dropped() -> None:
    s = Subscriptions({"t": 1}, {"A": Member(["t"], [("t", 0), ("t", 5), ("gone", 0), ("t", 2**63 - 1)])})
    made = assign_partitions(s)
    assert (made.preserved, made.moved, tables(made.assignment)) == (1, 0, {"A": "tp0"})


def test_who_unsubscribes_loses_what_it_had() -> None:
    s = Subscriptions({"t": 2, "u": 1}, {"A": Member(["u"], [("t", 0), ("u", 0)]), "B": Member(["t"])})
    for mode in ("fair_sticky", "sticky_fair"):
        made = assign_partitions(s, mode)
        assert tables(made.assignment) == {"A": "up0", "B": "tp0 tp1"}
        assert (made.preserved, made.moved) == (1, 1)


def test_the_same_bytes_in_another_process() -> None:
    code = (
        "import hashlib, random; from taskplace.groups.partitions import *; rng = random.Random(1);"
        "T = {f't{k}': rng.randint(1, 9) for k in range(6)};"
        "s = Subscriptions(T, {f'C{k}': Member(set(rng.sample(sorted(T), 3))) for k in range(7)}, replicas=1);"
        f"made = [assign_partitions(s, mode).to_json() for mode in {[*MODES, 'copartitioned']!r}];"
        "print(hashlib.sha256(''.join(made).encode()).hexdigest())"
    )
    made = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True, timeout=60,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(made) == 1


def test_what_an_assignor_does_not_read_is_a_warning():
    asked = {
        "topics": {"t": 2},
        "members": {"a": {"topics": ["t"]}, "b": {"topics": ["t"]}},
        "global_topics": ["t"],
    }
    made = assign_partitions({**asked, "assignor": "sticky", "replicas": 1})
    [warning] = made.warnings
    assert (
        warning
        == "global_topics and replicas: the assignor 'sticky' places no standbys; use the assignor 'copartitioned'"
    )
    assert assign_partitions({**asked, "assignor": "copartitioned"}).warnings == ()
    assert assign_partitions({**asked, "global_topics": [], "assignor": "sticky"}).warnings == ()
