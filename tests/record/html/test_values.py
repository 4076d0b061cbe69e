"""The document of a page: steps that name only what changes, lags as series, and text that cannot end a script."""

from __future__ import annotations

import json

import pytest

import taskplace
from taskplace.errors import InputError
from taskplace.record.html import report_of_plan, report_of_simulation, write_page
from taskplace.record.html.page import check_page, for_script
from taskplace.record.html.values import MOST_COPIES, Placements, copy_lags
from taskplace.simulation import simulate
from tests.support.report_problems import EVENTS, cluster

TASKS = [f"0_{k}" for k in range(4)]


def places(placements: Placements) -> dict[str, list[tuple[str, int]]]:
    """The places after the last step, by task."""
    now: dict[int, tuple[tuple[int, int], ...]] = {}
    for step in placements.steps:
        now |= step.changes
    return {
        placements.tasks[task]: [(placements.instances[instance], role) for instance, role in held]
        for task, held in now.items()
        if held
    }


def test_steps_name_only_what_changes_and_lost_tasks_are_empty():
    placements = Placements()
    placements.add("one", {"a": {"active": TASKS}, "b": {}})
    placements.add("two", {"a": {"active": TASKS[1:]}, "b": {"standby": [TASKS[2]]}})
    assert [sorted(step.changes) for step in placements.steps] == [[0, 1, 2, 3], [0, 2]]
    assert placements.steps[1].changes[0] == ()
    assert places(placements) == {"0_1": [("a", 0)], "0_2": [("a", 0), ("b", 1)], "0_3": [("a", 0)]}


def test_many_steps_are_merged_and_the_last_placement_stays():
    placements = Placements(keep=3)
    for k in range(10):
        placements.add(f"step {k}", {"a": {"active": [TASKS[k % 4]]}, "b": {"standby": [TASKS[(k + 1) % 4]]}})
    assert [step.label for step in placements.steps] == ["step 7", "step 8", "step 9"]
    assert placements.merged == 7
    assert places(placements) == {"0_1": [("a", 0)], "0_2": [("b", 1)]}


def test_only_the_copies_that_lacked_most_have_a_series():
    lags = {("a", f"0_{k}"): (k + 1, "standby") for k in range(MOST_COPIES + 5)}
    copies, more = copy_lags([lags, {}])
    assert (len(copies), more) == (MOST_COPIES, 5)
    assert copies[0].peak == MOST_COPIES + 5


@pytest.mark.parametrize("text", ["</script>", "<!--", "a&b", "\u2028\u2029"])
def test_text_in_a_script_stays_text(text):
    made = for_script(json.dumps({"text": text}, ensure_ascii=False))
    assert json.loads(made)["text"] == text
    assert not set(made) & set("<>&\u2028\u2029")


def test_a_recovery_ends_when_the_standbys_have_caught_up():
    problem = cluster(tasks=12, instances=4)
    problem["config"]["acceptable.recovery.lag"] = 100
    trajectory = simulate(problem, EVENTS, restore_rate=400)
    [recovery] = report_of_simulation(trajectory).recoveries
    lost = next(k for k, one in enumerate(trajectory.rounds) if one.events)
    whole = lost + int(recovery.whole / 600)
    behind = [
        any(lag > 100 for lags in one.lags.values() for lag in lags.values()) for one in trajectory.rounds
    ]
    assert behind[lost]
    assert not behind[whole]
    assert recovery.tasks == recovery.promoted == trajectory.rounds[lost].promoted


def test_a_page_is_written_as_a_whole_or_not_at_all(tmp_path):
    report = report_of_plan(taskplace.plan({"tasks": [{"id": "0_0"}], "instances": [{"id": "a"}]}))
    path = write_page(report, tmp_path / "new" / "page.html")
    assert [file.name for file in path.parent.iterdir()] == ["page.html"]
    with pytest.raises(InputError, match="found 'a directory'"):
        write_page(report, tmp_path)


def test_a_page_takes_the_place_of_a_file_that_cannot_be_written(tmp_path, monkeypatch):
    file = tmp_path / "page.html"
    file.touch()
    monkeypatch.setattr("os.access", lambda path, mode: path == tmp_path)  # a file of another user
    check_page(file, "--out")
    with pytest.raises(
        InputError, match=r"report\.events: found .* is read-only', expected a path that can be"
    ):
        check_page(file, "report.events", replaced=False)


def test_an_instance_that_drains_at_the_end_says_so():
    events = [[{"kind": "drain", "name": f"executor-{k}"}] for k in range(3)]
    events += [[{"kind": "undrain", "name": "executor-1"}], [{"kind": "stop", "name": "executor-2"}]]
    events += [[{"kind": "start", "name": "executor-2"}]]
    report = report_of_simulation(simulate(cluster(tasks=12, instances=4), events))
    assert {row.id: row.state for row in report.now} == {
        "executor-0": "draining",
        "executor-1": "",
        "executor-2": "draining",
        "executor-3": "",
    }
