"""Weights, prices, overrules, the fleet, configuration: each part of steering by itself."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskplace.errors import ConfigError
from taskplace.spark.steering.config import SteeringConfig
from taskplace.spark.steering.decision import Seen
from taskplace.spark.steering.loop import SteeringLoop
from taskplace.spark.steering.measured_costs import MeasuredCosts
from taskplace.spark.steering.move_benefit import Prices, gained, judge
from taskplace.spark.steering.overrides import Facts, OverrideWatch
from taskplace.spark.steering.steered_queries import SteeredQueries
from taskplace.spark.steering.task_weights import FEWEST, HEAVIEST, SAME, Calm, LoadHistory
from topology.ids import TaskId

TASKS = [TaskId(0, p) for p in range(6)]
HOUSE = Path(__file__).parents[2] / "taskplace" / "spark" / "steering"


# ------------------------------------------------------------------------------------------------- weights


@given(st.lists(st.fixed_dictionaries({t: st.floats(0.9, 1.2) for t in TASKS}), max_size=10))
def test_noise_never_changes_a_weight(samples):
    loads = LoadHistory()
    for sample in samples:
        assert not loads.observe(sample)
    assert {loads.weight(t) for t in TASKS} == {1.0}


@given(st.lists(st.fixed_dictionaries({t: st.floats(0, 1e9) for t in TASKS}), max_size=6))
def test_weights_are_positive_and_settle(samples):
    loads = LoadHistory()
    for sample in samples:
        loads.observe(sample)
    assert all(loads.weight(t) > 0 for t in TASKS)
    if samples:
        for _ in range(5):
            loads.observe(samples[-1])
        assert not loads.observe(samples[-1])


def hot(loads: LoadHistory) -> None:
    for _ in range(FEWEST):
        loads.observe({**dict.fromkeys(TASKS, 1.0), TASKS[0]: 4.0})


def test_a_weight_needs_more_than_one_observation():
    loads = LoadHistory()
    for _ in range(FEWEST - 1):
        assert not loads.observe({**dict.fromkeys(TASKS, 1.0), TASKS[0]: 4.0})
    assert loads.weight(TASKS[0]) == 1.0


def test_one_slow_run_is_forgotten():
    loads = LoadHistory()
    usual = dict.fromkeys(TASKS, 1.0)
    for _ in range(FEWEST):
        loads.observe(usual)
    assert not loads.observe({**usual, TASKS[0]: 50.0})
    assert loads.weight(TASKS[0]) == 1.0


def test_subtopologies_are_compared_with_themselves():
    loads = LoadHistory()
    other = {TaskId(1, p): 100.0 for p in range(6)}
    assert not loads.observe({**dict.fromkeys(TASKS, 1.0), **other})


def test_a_weight_that_has_left_one_stays_until_it_is_left_again():
    loads = LoadHistory()
    hot(loads)
    assert loads.weight(TASKS[0]) == 4.0
    for _ in range(5):
        assert not loads.observe({**dict.fromkeys(TASKS, 1.0), TASKS[0]: 4.0 / (SAME - 0.1)})


@given(st.lists(st.sampled_from([0.0, 0.0, 0.0, 1.0, 7.0, 500.0, 1e6]), min_size=2, max_size=20))
def test_what_has_something_to_do_never_weighs_less_than_what_has_nothing_however_many_have_that(rows):
    loads, found = LoadHistory(), {TaskId(0, p): count for p, count in enumerate(rows)}
    for _ in range(FEWEST):
        loads.observe(found)
    weights = [loads.weight(t) for t in found]
    assert [w for _, w in sorted(zip(rows, weights, strict=True))] == sorted(weights)
    if 0 in rows and max(rows) > 0:
        assert max(weights) > 2 * min(weights)


def test_where_most_have_nothing_the_usual_is_the_mean():
    loads = LoadHistory()
    for _ in range(FEWEST):
        loads.observe({**dict.fromkeys(TASKS, 0.0), TASKS[0]: 600.0, TASKS[1]: 120.0})
    assert [loads.weight(t) for t in TASKS[:3]] == [5.0, 1.0, 1 / HEAVIEST]


def test_what_is_gone_is_forgotten():
    loads = LoadHistory()
    hot(loads)
    loads.keep(TASKS[1:])
    assert loads.weight(TASKS[0]) == 1.0


@given(st.lists(st.booleans(), max_size=300))
def test_changed_weights_count_ever_more_rarely_but_none_is_lost(changes):
    calm, counted = Calm(), []
    for tick, changed in enumerate(changes):
        if calm.tick(changed):
            counted.append(tick)
    if True in changes:
        assert counted[0] == changes.index(True), "the first counts at once"
        for _ in range(2 ** len(counted)):
            last = calm.tick(False)
            if last:
                break
        after = len(changes) - 1 - changes[::-1].index(True)
        assert last or counted[-1] >= after, "the last one counts in the end"


def test_after_a_long_calm_weights_count_at_once_again():
    calm = Calm()
    for _ in range(20):
        calm.tick(True)
    for _ in range(11 + 2 * (32 + 16 + 8 + 4 + 2)):  # the last change waits, and then five are forgotten
        calm.tick(False)
    assert [calm.tick(True) for _ in range(3)] == [True, False, True]


# ------------------------------------------------------------------------------------------------- worth


@given(st.dictionaries(st.sampled_from(TASKS), st.sampled_from("xyz"), min_size=1))
def test_going_nowhere_gains_and_costs_nothing(places):
    verdict = judge(dict.fromkeys(TASKS, 1.0), places, places, [], {"x": 1, "y": 1, "z": 1}, Prices(1, 1), 1)
    assert (verdict.gain, verdict.cost, verdict.worth) == (0.0, 0.0, True)


def test_forced_moves_are_no_gain_of_the_optional_ones():
    a, b, c = TASKS[:3]
    there, goal = dict.fromkeys([a, b, c], "x"), {a: "x", b: "y", c: "y"}
    slots = {"x": 1, "y": 1}
    seconds = dict.fromkeys([a, b, c], 1.0)
    assert judge(seconds, there, goal, [b, c], slots, Prices(1, 1), 10).gain == 1.0
    assert judge(seconds, there, goal, [c], slots, Prices(1, 1), 10).gain == 0.0


def test_shares_are_by_slot():
    slots, there = {"x": 2, "y": 1}, dict.fromkeys(TASKS, "x")
    goal = dict(zip(TASKS, "xxxxyy", strict=True))
    assert gained(dict.fromkeys(TASKS, 1.0), there, goal, slots) == 2.0
    assert gained(dict.fromkeys(TASKS, 1.0) | {TASKS[0]: 2.0}, there, goal, slots) == 2.0


def test_what_is_levelled_below_the_busiest_is_a_gain_too():
    there = dict(zip(TASKS, "xxyyzz", strict=True))
    goal = {**there, TASKS[0]: "w"}
    slots = dict.fromkeys("wxyz", 1)
    verdict = judge(dict.fromkeys(TASKS, 1.0), there, goal, TASKS[:1], slots, Prices(1, 1), 10)
    assert (verdict.gain, verdict.worth) == (1.0, True), "w lacks one, of the subtopology and of all"


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
    """As `relief` hands over: within a subtopology of unequal weights, and nobody above the busiest of all."""
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
    verdict = judge(seconds, here, there, moved, slots, Prices(1, 1), 10)
    for name in set(there.values()) - set(here.values()):
        assert verdict.gain >= min(seconds[t] for t in there if there[t] == name) / 2


def test_what_a_hot_task_has_beside_it_is_a_gain_to_lose_though_it_is_heavier_than_any_share():
    slots, seconds = dict.fromkeys("xyz", 1), dict.fromkeys(TASKS, 1.0) | {TASKS[0]: 50.0}
    there = dict(zip(TASKS, "xxyyyy", strict=True))
    assert gained(seconds, there, {**there, TASKS[1]: "z"}, slots) == 1.0
    assert gained(seconds, there, {**there, TASKS[1]: "y"}, slots) == 1.0, "the busiest comes first"
    assert gained(seconds, there, {**there, TASKS[2]: "z", TASKS[3]: "z"}, slots) == 2.0


def test_tasks_that_are_moved_anyway_are_neither_gain_nor_cost():
    """Such as those of other queries that leave a draining instance, or whose goal is one that is gone."""
    a, b, c, d = TASKS[:4]
    there, goal = {a: "x", b: "x", c: "drains", d: "x"}, {a: "x", b: "y", c: "y", d: "gone"}
    verdict = judge(dict.fromkeys(there, 1.0), there, goal, [b, c, d], {"x": 1, "y": 1}, Prices(1, 1), 10)
    assert (verdict.moves, verdict.cost) == (1, 1.0)


def test_the_only_tasks_of_two_stages_side_by_side_gain_by_leaving_each_other():
    """Each of them is best off where most slots are; both together are one too many there."""
    slots, tasks = {**dict.fromkeys("vwxyz", 1), "big": 3}, [TaskId(0, 0), TaskId(1, 0)]
    there = dict.fromkeys(tasks, "big")
    verdict = judge(
        dict.fromkeys(tasks, 1.0), there, {**there, tasks[1]: "v"}, tasks[1:], slots, Prices(1, 1), 10
    )
    assert (verdict.gain, verdict.worth) == (0.5, True)


def test_what_a_stage_of_unequal_tasks_gains_is_not_lost_by_what_others_have_below_the_busiest_slot():
    a, b, c, d = *TASKS[:3], TaskId(1, 0)
    seconds, slots = {a: 4.0, b: 1.0, c: 2.0, d: 2.0}, {"x": 1, "y": 1, "z": 1}
    here = {a: "x", b: "y", c: "y", d: "z"}
    there = here | {c: "z"}  # all together: from 4, 3 and 2 to 4, 4 and 1
    assert gained(seconds, here, there, slots) == 0.5
    assert gained(seconds, there, here, slots) == -0.5


# ------------------------------------------------------------------------------------------------- prices


def test_a_batch_of_which_nobody_knows_what_it_loaded_teaches_nothing_of_reloads():
    book = MeasuredCosts(bytes_per_second=1000)

    def said(load: int) -> list[dict]:
        return [
            {"commitTimeMs": 400, "memoryUsedBytes": 8000, "customMetrics": {"rocksdbLoadLatencyMs": load}}
        ]

    assert book.observe(said(60_000), tasks=4, loaded=None) == Prices(task=0.1, reload=2.0)
    assert book.observe(said(20_000), tasks=4, loaded=4).reload == 2.0, "what is usual is not known yet"
    assert book.observe(said(40), tasks=4, loaded=0).reload == 2.0
    assert book.observe(said(20_040), tasks=4, loaded=4).reload == 5.0
    assert book.observe(said(90_000), tasks=4, loaded=None).reload == 5.0


# ------------------------------------------------------------------------------------------------- watch


def test_a_task_whose_instance_is_gone_was_not_overruled():
    watch = OverrideWatch(1)
    watch.send({TASKS[0]: "a", TASKS[1]: "b"})
    assert watch.verify({TASKS[0]: "b", TASKS[1]: "b"}, ["b"]) == ()
    assert watch.verdict(Facts()) is None


def test_stragglers_among_many_tasks_are_no_reason_to_stand_down():
    watch, many = OverrideWatch(3), [TaskId(0, p) for p in range(200)]
    for batch in range(9):
        watch.send(dict.fromkeys(many, "a"))
        watch.verify({**dict.fromkeys(many, "a"), many[batch]: "b"}, ["a", "b"])
        assert watch.verdict(Facts()) is None
    assert watch.total == 9


def test_the_same_task_again_and_again_is():
    watch, many = OverrideWatch(3), [TaskId(0, p) for p in range(200)]
    said = []
    for _ in range(3):
        watch.send(dict.fromkeys(many, "a"))
        watch.verify({**dict.fromkeys(many, "a"), many[7]: "b"}, ["a", "b"])
        said.append(watch.verdict(Facts()) is not None)
    assert said == [False, False, True]


def test_a_share_of_the_tasks_again_and_again_is_whichever_they_are():
    watch = OverrideWatch(2)
    said = []
    for elsewhere in (TASKS[:2], TASKS[2:4]):
        watch.send(dict.fromkeys(TASKS, "a"))
        watch.verify({**dict.fromkeys(TASKS, "a"), **dict.fromkeys(elsewhere, "b")}, ["a", "b"])
        said.append(watch.verdict(Facts()) is not None)
    assert said == [False, True]


def test_a_long_wait_names_the_other_causes():
    watch = OverrideWatch(1)
    watch.send({TASKS[0]: "a"})
    watch.verify({TASKS[0]: "b"}, ["a", "b"])
    assert "no free slot within spark.locality.wait (3000 ms)" in watch.verdict(Facts()).reason


# ------------------------------------------------------------------------------------------------- fleet


def test_two_queries_do_not_put_the_odd_task_on_the_same_instance():
    fleet, slots = SteeredQueries(), {"a": 2, "b": 2}
    found = {}
    for query in ("one", "two"):
        base, others = fleet.beside(query)
        seen = Seen(0, slots, dict.fromkeys(TASKS[:3]), others=others, base=base)
        found[query] = SteeringLoop(SteeringConfig()).look(seen).goal
        fleet.publish(query, found[query], {})
    assert sorted(list(found["one"].values()) + list(found["two"].values())) == ["a"] * 3 + ["b"] * 3


def test_a_drain_holds_for_all_until_it_is_taken_back():
    fleet = SteeredQueries()
    fleet.publish("one", {TASKS[0]: "a"}, {})
    fleet.drain("a")
    assert fleet.draining == {"a"}
    assert not fleet.empty("a")
    fleet.publish("one", {TASKS[0]: "b"}, {})
    assert fleet.empty("a")
    fleet.drain("a", on=False)
    assert not fleet.draining
    fleet.leave("one")
    assert fleet.beside("two") == (0, [])


def test_an_application_has_one_fleet():
    assert SteeredQueries.of("app-1") is SteeredQueries.of("app-1")
    assert SteeredQueries.of("app-1") is not SteeredQueries.of("app-2")


# ------------------------------------------------------------------------------------------------- config


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "max.moves.per.batch",
            0,
            "steering.max.moves.per.batch: found 0, expected an integer of at least 1",
        ),
        ("max.moves.per.batch", True, "found True"),
        ("worth.batches", -1, "steering.worth.batches: found -1"),
        ("worth.batches", 10**400, "steering.worth.batches: found 'an integer of 1329 bits'"),
        ("worth.batches", float("nan"), "steering.worth.batches: found nan"),
        ("reload.bytes.per.second", 0, "expected a number of bytes above 0"),
        ("load.tolerance", 0, "expected a part of a share, above 0"),
        ("load.by", "task.tim", "did you mean 'task.time'?"),
        ("patience.batche", 3, "did you mean 'patience.batches'?"),
    ],
)
def test_a_bad_key_or_value_is_one_clear_error(key, value, message):
    with pytest.raises(ConfigError) as error:
        SteeringConfig.from_properties({key: value})
    assert message in str(error.value)


# ------------------------------------------------------------------------------------------------- house


@pytest.mark.parametrize("name", [path.stem for path in sorted(HOUSE.glob("*.py"))])
def test_all_does_without_spark_until_a_query_is_steered(name):
    for node in ast.walk(ast.parse((HOUSE / f"{name}.py").read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not [n for n in names if n.partition(".")[0] in ("pyspark", "py4j")]
