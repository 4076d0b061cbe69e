"""A page of 1,000 tasks on 50 instances is small enough to send, and quick enough to use."""

from __future__ import annotations

from taskplace.record.html import report_of_plan, write_page

import taskplace
from tests.support.browser import Keys
from tests.support.report_problems import cluster

MEBIBYTE = 1024 * 1024


def test_a_thousand_tasks_on_fifty_instances(browser, tmp_path):
    problem = taskplace.Problem.from_dict(cluster(tasks=1_000, instances=50))
    path = write_page(report_of_plan(taskplace.plan(problem), problem), tmp_path / "large.html")
    assert path.stat().st_size < 2 * MEBIBYTE
    browser.open(path)
    assert browser.one("#placement input[type=checkbox]").is_selected()  # only the changes, to begin with
    browser.one("#placement input[type=checkbox]").click()
    browser.wait(lambda: "1,000 of 1,000 tasks" in browser.one("#placement output").text)
    assert 0 < len(browser.all(".matrix .space .line")) < 60  # those in view
    browser.press(Keys.CONTROL, Keys.END, on=browser.one(".matrix"))
    last = max(problem.tasks, key=lambda task: task.id).id
    browser.wait(lambda: browser.texts("#placement .reading")[0].startswith(f"task {last} on executor-49"))
    browser.press("83_3", on=browser.one("#placement input[type=search]"))
    browser.wait(lambda: browser.one("#placement output").text.startswith("1 of 1,000 tasks"))
    assert browser.errors() == []
