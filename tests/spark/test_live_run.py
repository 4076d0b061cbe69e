"""The live page of a whole `Placed` without Spark: what it serves at known points of a stream's life."""

from __future__ import annotations

import json
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from taskplace.errors import InputError
from taskplace.record.html import RunRecorder
from taskplace.spark.driver import operations
from taskplace.spark.live_run import LiveRun
from tests.support.operators import turn
from tests.support.pages import run
from tests.support.word_counts import counts, words

STANDBY = {"num.standby.replicas": 1, "acceptable.recovery.lag": 0}


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(operations, "LEAST_SECONDS", 0.0)


@pytest.fixture
def placed(world):
    world.come(1)
    placed = world.open(counts(world), config=STANDBY)
    yield placed
    placed.close()


def asked(served, what=""):
    with urlopen(f"{served.url}{what}", timeout=30) as answer:
        return answer.read().decode()


def news(served) -> dict:
    """The first news that a page gets."""
    with urlopen(f"{served.url}news", timeout=30) as answer:
        line = answer.readline().decode()
    assert line.startswith("data: ")
    return json.loads(line.removeprefix("data: "))


def test_it_shows_what_happens_from_its_beginning(world, placed):
    served = placed.serve_ui()
    assert served.url.startswith("http://127.0.0.1:")
    assert asked(served).startswith("<!doctype html>")
    assert news(served)["state"]["word"] == "running"
    world.batch(placed, 0, **{"in": words(*"abcdefgh")})
    report = json.loads(asked(served, "report.json"))
    assert report["samples"]["rows"] == [8]
    assert [step["label"] for step in report["steps"]] == ["generation 1"]
    assert report["reasons"] == []
    reasons = json.loads(asked(served, "reasons.json"))
    assert [reason["task"] for reason in reasons] == ["0_0", "0_1"]
    assert reasons[0]["text"].startswith("0_0")


def test_news_have_the_lags_of_now(world, placed):
    served = placed.serve_ui()
    for number in range(2):
        world.batch(placed, number, **{"in": words(*"abcdefgh")})
    turn(placed)
    before = news(served)
    assert sum(copy["last"] for copy in before["copies"]) == 8
    assert {row["id"]: row["active"] for row in before["rows"]} == {"executor-1": 1, "executor-2": 1}
    assert before["state"]["text"].startswith("batch 1 took")
    world.follow(placed)
    after = news(served)
    assert after["copies"] == []
    assert after["version"] == before["version"]


def test_reasons_are_those_of_explain_and_made_once_an_assignment_and_minute(world, placed):
    world.batch(placed, 0, **{"in": words("a")})
    now = [0.0]
    live = LiveRun(placed._runner, RunRecorder("words"), clock=lambda: now[0])
    first = live.reasons()
    assert first[0].why == placed.explain("0_0").why
    assert live.reasons() is first
    now[0] = 61.0
    assert live.reasons() is not first
    assert live.now().explained == "1, 1"


def test_the_code_of_the_docs(world, placed, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run("docs/report.md", {"placed": placed})
    assert capsys.readouterr().out.startswith("http://127.0.0.1:")
    assert "two tasks" in (tmp_path / "plan.html").read_text()


def test_a_page_that_begins_later_has_the_assignment_in_force(world, placed):
    world.batch(placed, 0, **{"in": words("a")})
    report = json.loads(asked(placed.serve_ui(), "report.json"))
    assert [step["label"] for step in report["steps"]] == ["generation 1"]
    assert report["timeline"] == []
    assert next(one["value"] for one in report["figures"] if one["name"] == "rebalances") == "0"


def test_whoever_looks_is_told_of_the_end(world, placed):
    served = placed.serve_ui()
    world.batch(placed, 0, **{"in": words("a")})
    with urlopen(f"{served.url}news", timeout=30) as answer:
        answer.readline()
        placed.close()
        rest = answer.read().decode()
    last = [json.loads(line[6:]) for line in rest.splitlines() if line.startswith("data: {")][-1]
    assert (last["now"]["state"]["word"], last["report"]["state"]["live"]) == ("ended", False)
    assert last["report"]["samples"]["rows"] == [1]
    assert "event: end" in rest
    with pytest.raises(URLError):
        asked(served)
    placed.close()


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ({"port": -1}, r"^serve_ui: found '127.0.0.1:-1', expected an address"),
        ({"host": "203.0.113.1"}, r"^serve_ui: found '203.0.113.1:0 \("),
    ],
)
def test_an_address_that_cannot_be_used_is_refused(placed, where, said):
    with pytest.raises(InputError, match=said):
        placed.serve_ui(**where)


def test_two_pages_and_a_reporter_of_ones_own(world, placed):
    one, two = placed.serve_ui(), placed.serve_ui()
    world.batch(placed, 0, **{"in": words("a")})
    one.close()
    one.close()
    world.batch(placed, 1, **{"in": words("a")})
    assert json.loads(asked(two, "report.json"))["samples"]["number"] == [0, 1]


def test_the_page_at_the_end_has_the_text_of_explain_for_every_task(world, placed):
    for batch in range(2):
        world.batch(placed, batch, **{"in": words(*"abcdefgh")})
        world.follow(placed)
    live = LiveRun(placed._runner, RunRecorder("words"))
    reasons = live.whole_report().reasons
    assert [reason.task for reason in reasons] == sorted(map(str, placed.rebalancer.task_ids))
    for reason in reasons:
        assert reason.text == str(placed.explain(reason.task))
