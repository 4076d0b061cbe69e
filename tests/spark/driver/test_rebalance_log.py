"""One line for each rebalance, one for each task that moves, and no row or key in any line."""

from __future__ import annotations

import json
import logging

from taskplace.logs import JsonFormatter
from tests.support.word_counts import counts, words

KEYS = [f"secret-key-{number}" for number in range(40)]


def disturbed(world):
    """Run batches in which an executor joins and another one is lost."""
    world.come(1)
    placed = world.open(counts(world), config={"num.standby.replicas": 1})
    world.batch(placed, 0, **{"in": words(*KEYS)})
    world.follow(placed)
    world.come(1)
    world.follow(placed)
    world.batch(placed, 1, **{"in": words(*KEYS)})
    world.lose("1")
    world.batch(placed, 2, **{"in": words(*KEYS)})
    return placed


def lines(caplog, logger):
    return [each for each in caplog.records if each.name == logger]


def test_a_rebalance_is_one_line_with_its_reason_and_counts(world, caplog):
    caplog.set_level(logging.INFO)
    placed = disturbed(world)
    found = lines(caplog, "taskplace")
    assert len(found) == placed.stats.rebalances == 3
    assert all(each.levelno == logging.INFO for each in found)
    texts = [each.getMessage() for each in found]
    assert texts[0].startswith(
        "rebalance at batch 0, generation 1: start: 2 tasks on 2 instances; moves: 0 planned, 0 forced; "
    )
    assert texts[1].startswith("rebalance at batch 1, generation 2: membership: executor-3 joined; ")
    assert "executor-1 left" in texts[2]
    assert f"; moves: 0 planned, {placed.stats.promotions} forced; warm-ups: 0; " in texts[2]
    assert all(text.endswith(" ms") for text in texts)
    assert lines(caplog, "taskplace.tasks") == [], "they are of level DEBUG"


def test_a_line_of_json_has_the_counts_as_fields(world, caplog):
    caplog.set_level(logging.INFO)
    placed = disturbed(world)
    found = [json.loads(JsonFormatter().format(each)) for each in lines(caplog, "taskplace")]
    assert [each["generation"] for each in found] == [1, 2, 3]
    assert [each["batch"] for each in found] == [0, 1, 2]
    assert {each["event"] for each in found} == {"rebalance"}
    assert sum(each["moves_forced"] for each in found) == placed.stats.promotions == 1
    assert found[0]["reason"] == "start: 2 tasks on 2 instances"
    assert found[-1].keys() >= {"moves_planned", "warmups", "followup", "latency_ms"}


def test_each_task_that_moves_has_a_line_of_its_own(world, caplog):
    caplog.set_level(logging.DEBUG, "taskplace.tasks")
    disturbed(world)
    found = [json.loads(JsonFormatter().format(each)) for each in lines(caplog, "taskplace.tasks")]
    assert {each["level"] for each in found} == {"DEBUG"}
    first = [each for each in found if each["generation"] == 1]
    assert sorted((each["task"], each["role"]) for each in first) == [
        ("0_0", "active"), ("0_0", "standby"), ("0_1", "active"), ("0_1", "standby"),
    ]  # fmt: skip
    (forced,) = [each for each in found if each["role"] == "promotion"]
    assert (forced["event"], forced["from"], forced["to"]) == ("move", None, "executor-2")
    assert forced["why"]
    assert forced["message"] == (f"generation 3: {forced['task']}: executor-2 takes over ({forced['why']})")


def test_no_line_has_a_row_or_a_key(world, caplog):
    caplog.set_level(logging.DEBUG)
    disturbed(world).close()
    text = "\n".join(JsonFormatter().format(each) for each in caplog.records)
    assert "rebalance at batch 2" in text
    assert "secret-key" not in text
