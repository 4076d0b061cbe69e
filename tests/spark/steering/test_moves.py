"""What moves gain, and whether that is worth their reloads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskplace.spark.steering.measurements import Costs
from taskplace.spark.steering.moves import Verdict, gained, judge
from topology.tasks import TaskId

TASKS = [TaskId(0, p) for p in range(6)]


@given(st.dictionaries(st.sampled_from(TASKS), st.sampled_from("xyz"), min_size=1))
def test_going_nowhere_gains_and_costs_nothing(places):
    verdict = judged(dict.fromkeys(TASKS, 1.0), places, places, [], {"x": 1, "y": 1, "z": 1}, batches=1)
    assert (verdict.gain, verdict.cost, verdict.worth) == (0.0, 0.0, True)


def judged(seconds, places, target, optional, slots, *, batches=10) -> Verdict:
    """The verdict where a task takes a second and a reload takes one."""
    return judge(
        seconds=seconds,
        places=places,
        target=target,
        optional=optional,
        slots=slots,
        costs=Costs(1, 1),
        batches=batches,
    )


SLOTS = st.dictionaries(st.sampled_from("wxyz"), st.integers(1, 4), min_size=2)


@st.composite
def placements(draw, slots=SLOTS):
    """Seconds of tasks of one or two subtopologies, where they are and might be, and slots."""
    names = draw(slots)
    tasks = [TaskId(s, p) for s in range(draw(st.integers(1, 2))) for p in range(draw(st.integers(1, 8)))]
    place, weight = st.sampled_from(sorted(names)), st.sampled_from([1 / 64, 0.5, 1.0, 1.0, 1.0, 3.0, 20.0])
    drawn = [{t: draw(kind) for t in tasks} for kind in (weight, place, place)]
    return *drawn, names


@given(placements())
def test_there_and_back_again_gains_nothing(found):
    seconds, here, there, slots = found
    assert gained(seconds, here, here, slots) == 0
    assert gained(seconds, here, there, slots) == pytest.approx(-gained(seconds, there, here, slots))


@given(placements(slots=st.dictionaries(st.sampled_from("vwxyz"), st.integers(1, 8), min_size=2)), st.data())
def test_each_handing_over_to_one_that_ends_up_below_what_the_giver_had_is_a_gain(found, data):
    """As load leveling hands over: within a subtopology of unequal weights, and nobody above the busiest of all."""
    seconds, here, _, slots = found
    seconds |= {TaskId(0, 9): 2.0, TaskId(0, 10): 7.0}
    here = {t: here.get(t, min(slots)) for t in seconds}

    def load(name: str, *subtopologies: int) -> float:
        own = (t for t in seconds if here[t] == name and t.subtopology in subtopologies)
        return sum(seconds[t] for t in own) / slots[name]

    highest = max(load(name, 0, 1) for name in slots)
    helps = [
        (t, name)
        for t in sorted(seconds)
        for name in slots
        if t.subtopology == 0
        and load(name, 0) + seconds[t] / slots[name] < load(here[t], 0) - 1e-6
        and load(name, 0, 1) + seconds[t] / slots[name] <= highest
    ]
    if helps:
        task, taker = data.draw(st.sampled_from(helps))
        assert gained(seconds, here, {**here, task: taker}, slots) > 0


@given(placements())
def test_filling_an_instance_that_has_none_gains_at_least_half_of_its_lightest_task(found):
    seconds, here, there, slots = found
    moved = [t for t in here if here[t] != there[t]]
    verdict = judged(seconds, here, there, moved, slots)
    for name in set(there.values()) - set(here.values()):
        assert verdict.gain >= min(seconds[t] for t in there if there[t] == name) / 2


def test_what_a_hot_task_has_beside_it_is_a_gain_to_lose_though_it_is_heavier_than_any_share():
    slots, seconds = dict.fromkeys("xyz", 1), dict.fromkeys(TASKS, 1.0) | {TASKS[0]: 50.0}
    there = dict(zip(TASKS, "xxyyyy", strict=True))
    assert gained(seconds, there, {**there, TASKS[1]: "z"}, slots) == 1.0
    assert gained(seconds, there, {**there, TASKS[1]: "y"}, slots) == 1.0, "the busiest comes first"
    assert gained(seconds, there, {**there, TASKS[2]: "z", TASKS[3]: "z"}, slots) == 2.0


def test_what_a_stage_of_unequal_tasks_gains_is_not_lost_by_what_others_have_below_the_busiest_slot():
    a, b, c, d = *TASKS[:3], TaskId(1, 0)
    seconds, slots = {a: 4.0, b: 1.0, c: 2.0, d: 2.0}, {"x": 1, "y": 1, "z": 1}
    here = {a: "x", b: "y", c: "y", d: "z"}
    there = here | {c: "z"}  # all together: from 4, 3 and 2 to 4, 4 and 1
    assert gained(seconds, here, there, slots) == 0.5
    assert gained(seconds, there, here, slots) == -0.5
