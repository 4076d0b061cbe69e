"""Moves that were sent and have not run: what is on the way, what has moved, what goes back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from taskplace.spark.steering.rounds import SentMoves

from tests.support.steering_simulation import grid

TASKS = grid(1, 4)
PLACES = st.fixed_dictionaries(dict.fromkeys(TASKS, st.sampled_from([None, "a", "b"])))
SENDS = st.lists(st.dictionaries(st.sampled_from(TASKS), st.sampled_from("abc")), max_size=4)


def send(places, sends) -> tuple[SentMoves, dict]:
    """Send again and again before a batch runs; return the moves, and Spark's map after them."""
    moves, now = SentMoves(), dict(places)
    for new in sends:
        new = {task: name for task, name in new.items() if now[task] != name}
        moves = moves.send(now, new)
        now |= new
    return moves, now


@given(PLACES, SENDS)
def test_a_batch_that_obeys_runs_all_that_is_on_the_way_and_leaves_nothing(places, sends):
    moves, now = send(places, sends)
    assert moves.on_the_way == sum(now[task] != places[task] for task in TASKS)
    left = moves.after_batch(now)
    assert (left.moved, left.on_the_way, left.origins) == (moves.on_the_way, 0, {})


@given(PLACES, SENDS)
def test_a_batch_that_runs_all_tasks_where_they_were_moves_none(places, sends):
    moves, _ = send(places, sends)
    assert moves.after_batch(places).moved == 0


@given(PLACES, SENDS, st.sets(st.sampled_from("abc")))
def test_what_is_sent_back_goes_to_its_origin_if_that_is_usable(places, sends, usable):
    moves, now = send(places, sends)
    back = moves.to_return(now, usable)
    assert back == {
        task: places[task] for task in TASKS if now[task] != places[task] and places[task] in usable
    }


@given(PLACES, SENDS, PLACES, st.integers(0, 3))
def test_how_many_loaded_their_state_is_known_only_of_the_next_batch_of_an_undisturbed_map(
    places, sends, elsewhere, skipped
):
    moves, now = send(places, sends)
    assert moves.observed(now).loaded_in(1, after=0) is None, "no batch was observed before"
    moves = SentMoves().after_batch(places)
    for new in sends:
        moves = moves.send({**places, **moves.expected}, new)
    seen = {**places, **moves.expected}
    known = moves.observed(seen).loaded_in(1 + skipped, after=0) if sends else None
    assert known == (moves.on_the_way if sends and not skipped else None)
    if sends and elsewhere != seen:
        assert moves.observed(elsewhere).observed(seen).loaded_in(1, after=0) is None
    assert moves.sent_late(0).observed(seen).loaded_in(2, after=1) is None
    assert moves.disturbed().observed(seen).loaded_in(1, after=0) is None
