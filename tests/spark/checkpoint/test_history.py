"""`next_step`: from wherever a copy is, its steps lead to the end of history."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from taskplace.errors import CheckpointError
from taskplace.spark.checkpoint.history import Action, Step, next_step, records_to_read, without
from taskplace.spark.messages import EMPTY, Change, History, Position, Snapshot


def chain(records: list[int], gaps: list[int]) -> tuple[Change, ...]:
    changes: list[Change] = []
    at, version = EMPTY, -1
    for n, gap in zip(records, gaps, strict=True):
        version += gap
        changes.append(Change(version, f"won-{version}", at.attempt, at.offset + n, n, "file"))
        at = changes[-1].position
    return tuple(changes)


def snapshot_of(position: Position, records: int) -> Snapshot:
    return Snapshot(position.version, position.attempt, position.offset, records, "file", 0, "")


@st.composite
def histories(draw: st.DrawFn) -> tuple[History, list[Position]]:
    """Return a history as a journal may hold it, and every position that was ever committed."""
    count = draw(st.integers(0, 8))
    records = draw(st.lists(st.sampled_from([0, 1, 10, 15]), min_size=count, max_size=count))
    gaps = draw(st.lists(st.integers(1, 3), min_size=count, max_size=count))
    changes = chain(records, gaps)
    kept = sorted(draw(st.sets(st.integers(0, count - 1), max_size=2))) if count else []
    sizes = draw(st.lists(st.sampled_from([0, 5, 12, 30]), min_size=2, max_size=2))
    snapshots = tuple(snapshot_of(changes[i].position, size) for i, size in zip(kept, sizes, strict=False))
    trimmed = changes[kept[0] + 1 :] if kept and draw(st.booleans()) else changes
    # A snapshot of a state that this chain does not come by, such as one beyond its end, is of no use, and no harm.
    beyond = st.builds(Position, st.integers(0, 12), st.just("elsewhere"), st.integers(0, 99))
    foreign = [snapshot_of(at, draw(st.sampled_from([0, 5]))) for at in draw(st.lists(beyond, max_size=1))]
    ordered = sorted([*snapshots, *foreign], key=lambda snapshot: snapshot.version)
    if not trimmed:  # then the newest one is the end
        ordered = list(snapshots)
    return History(trimmed, tuple(ordered)), [EMPTY, *(change.position for change in changes)]


def ways(committed: list[Position]) -> st.SearchStrategy[tuple[Position, Position | None]]:
    """Return where a copy may be: in history, ahead of a point of it by an attempt that lost, or anywhere."""
    ahead = st.builds(
        lambda undo, gap: (Position(undo.version + gap, f"lost-{gap}", undo.offset + 3), undo),
        st.sampled_from(committed),
        st.integers(1, 12),
    )
    unknown = st.builds(Position, st.integers(-1, 20), st.sampled_from(["x", "y"]), st.integers(0, 99))
    return (
        st.sampled_from(committed).map(lambda at: (at, None))
        | ahead
        | st.tuples(unknown, st.none() | unknown)
    )


def walk(at: Position, undo: Position | None, history: History) -> list[tuple[Position, Step]]:
    """Return the steps a copy takes, and where it is before each; the last is READY."""
    taken: list[tuple[Position, Step]] = []
    while True:
        step = next_step(at, undo, history)
        taken.append((at, step))
        assert len(taken) <= 2 + len(history.changes), f"no end: {taken}"
        if step.action is Action.READY:
            return taken
        if step.action is Action.ROLL_BACK:
            assert undo is not None
            at, undo = undo, None
        elif step.action is Action.REPLAY:
            assert step.change is not None and step.change.base == at.attempt, "a change onto another state"
            at, undo = step.change.position, None
        else:
            at, undo = (step.snapshot.position if step.snapshot else EMPTY), None


@settings(print_blob=True, deadline=None, max_examples=150)
@given(st.data(), histories())
def test_every_way_leads_to_the_end(data, drawn):
    history, committed = drawn
    at, undo = data.draw(ways(committed), label="at, undo")
    steps = walk(at, undo, history)
    assert steps[-1][0] == history.end
    actions = [step.action for _, step in steps]
    assert actions.count(Action.ROLL_BACK) <= 1 and actions.count(Action.RESTORE) <= 1
    if Action.ROLL_BACK in actions:
        assert actions[0] is Action.ROLL_BACK


@settings(print_blob=True, deadline=None, max_examples=80)
@given(st.data(), histories())
def test_a_copy_in_history_never_pays_more_than_its_tail(data, drawn):
    history, _ = drawn
    reachable = [EMPTY] if history.changes and not history.changes[0].base else []
    reachable += [change.position for change in history.changes]
    if not reachable:
        return
    at = data.draw(st.sampled_from(reachable))
    tail = history.end.offset - at.offset
    paid = 0
    for _, step in walk(at, None, history):
        assert not step.unknown, "a copy in history is not unknown"
        paid += step.change.records if step.change else step.snapshot.records if step.snapshot else 0
    assert paid <= tail


@settings(print_blob=True, deadline=None, max_examples=150)
@given(st.data(), histories())
def test_the_lag_of_a_copy_is_what_it_will_read(data, drawn):
    """Also of a copy that is older than the history, which is restored from a snapshot."""
    history, committed = drawn
    at, end = data.draw(st.sampled_from(committed)), history.end.offset
    steps = [step for _, step in walk(at, None, history)]
    paid = sum(
        step.change.records if step.change else step.snapshot.records if step.snapshot else 0
        for step in steps
    )
    lag = records_to_read(at, history, end)
    if any(step.unknown and step.snapshot for step in steps):
        assert lag == min(paid, end)
    else:
        assert paid <= lag == end - at.offset, "a snapshot on the way may be cheaper"


def test_the_lag_of_a_copy_in_a_long_history_that_was_trimmed():
    """It lacks 20 of 1,000 records. But the history has only the last 10 of them, so it has to load 400."""
    changes = chain([980, 10, 5, 5], [1, 1, 1, 1])
    snapshots = (snapshot_of(changes[1].position, 390), snapshot_of(changes[2].position, 395))
    history = History(changes[2:], snapshots)
    lags = [records_to_read(change.position, history, 1000) for change in changes]
    assert lags == [400, 10, 5, 0]
    assert records_to_read(changes[0].position, History(changes, snapshots), 1000) == 20
    ahead = Position(9, "attempt of a batch that is not committed", 1007)
    assert records_to_read(ahead, history, 1000) == 0


@settings(print_blob=True, deadline=None, max_examples=50)
@given(st.data(), histories())
def test_an_attempt_that_lost_costs_its_roll_back_and_no_more(data, drawn):
    history, _ = drawn
    lost = Position(history.end.version + 1, "lost", history.end.offset + 7)
    steps = [step.action for _, step in walk(lost, history.end, history)]
    assert steps == [Action.ROLL_BACK, Action.READY]


@settings(print_blob=True, deadline=None, max_examples=50)
@given(histories(), st.integers(1, 8))
def test_without_a_beginning_it_says_so(drawn, cut):
    history, _ = drawn
    if cut >= len(history.changes):
        return
    cut_off = History(history.changes[cut:], ())
    with pytest.raises(CheckpointError, match="no snapshot leads to version"):
        next_step(Position(99, "nobody's"), None, cut_off)
    with pytest.raises(CheckpointError, match="no snapshot leads to version"):
        next_step(EMPTY, None, cut_off)


def arrives(history: History, damaged: list[Change | Snapshot]) -> bool:
    """Whether an empty copy comes to the end, when each damaged file is found as it is needed."""
    at, end, left = EMPTY, history.end, history
    for _ in range(100):
        try:
            step = next_step(at, None, left)
        except CheckpointError:
            return False
        assert left.end == end
        needed = step.change or step.snapshot
        if step.action is Action.READY:
            return True
        if needed in damaged and needed is not None:
            around = without(left, needed)
            if around is None:
                return False
            left = around
        else:
            at = needed.position if needed else EMPTY
    raise AssertionError("no end")


@settings(print_blob=True, deadline=None, max_examples=150)
@given(st.data(), histories())
def test_whatever_is_damaged_a_whole_way_is_found_if_there_is_one(data, drawn):
    history, _ = drawn
    parts = [*history.changes, *history.snapshots]
    damaged = data.draw(st.lists(st.sampled_from(parts), unique=True) if parts else st.just([]))
    # From where undamaged changes lead to the end: backwards, as far as that goes.
    starts = {history.end.attempt}
    for change in reversed(history.changes):
        if change in damaged:
            break
        starts.add(change.base)
    whole = {s.attempt for s in history.snapshots if s not in damaged} | {EMPTY.attempt}
    assert arrives(history, damaged) == bool(starts & whole)


def test_a_snapshot_that_no_change_leads_on_from_is_no_beginning():
    changes = chain([5, 5, 5, 5], [1, 1, 1, 1])
    early, late = snapshot_of(changes[0].position, 5), snapshot_of(changes[2].position, 5)
    with pytest.raises(CheckpointError, match=r"begins at version 3 and its snapshots are \[0\]"):
        next_step(EMPTY, None, History(changes[3:], (early,)))
    found = next_step(EMPTY, None, History(changes[3:], (early, late)))
    assert found == Step(Action.RESTORE, snapshot=late, unknown=True)


def test_equal_versions_of_two_attempts_are_two_states():
    history = History(chain([5, 5], [1, 1]))
    twin = replace(history.end, attempt="lost-1")
    assert next_step(twin, history.changes[0].position, history).action is Action.ROLL_BACK
    assert next_step(twin, None, history) == Step(Action.RESTORE, unknown=True)


def test_a_snapshot_is_taken_when_it_is_the_cheaper_way():
    changes = chain([1000, 1000, 10], [1, 1, 1])
    dear, cheap = snapshot_of(changes[1].position, 3000), snapshot_of(changes[1].position, 100)
    assert next_step(EMPTY, None, History(changes, (cheap,))) == Step(Action.RESTORE, snapshot=cheap)
    assert next_step(EMPTY, None, History(changes, (dear,))) == Step(Action.REPLAY, change=changes[0])
    # Smaller than the tail, but not together with what has to be replayed behind it.
    halfway = snapshot_of(changes[0].position, 1500)
    assert next_step(EMPTY, None, History(changes, (halfway,))) == Step(Action.REPLAY, change=changes[0])
    behind_it = changes[1].position
    assert next_step(behind_it, None, History(changes, (cheap,))) == Step(Action.REPLAY, change=changes[2])
