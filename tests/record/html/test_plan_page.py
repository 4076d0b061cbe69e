"""The page of a plan in Chromium: it opens offline, its numbers are the plan's, and all of it works by keyboard."""

from __future__ import annotations

import re

import pytest

import taskplace
from taskplace.explanation import explain
from taskplace.record.html import page, report_of_plan, write_page
from tests.support.browser import PHONE, Keys


@pytest.fixture
def opened(browser, plan_page):
    browser.open(plan_page)
    return browser


def test_it_opens_from_a_file_without_requests_and_without_errors(opened, plan_page):
    opened.wait(lambda: opened.all("#placement .matrix .cell"))
    assert opened.requests() == [plan_page.as_uri()]
    assert opened.errors() == []


def test_nothing_in_it_leads_to_a_network(plan_page):
    text = plan_page.read_text()
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", text)
    assert "default-src 'none'" in text
    assert "connect-src" not in text


def test_the_figures_are_those_of_the_plan(opened, plan):
    figures = opened.figures()
    assert figures["changes now"] == str(len(plan.moves))
    assert figures["moves to the target"] == str(plan.optimality.moves)
    assert figures["forced promotions"] == str(plan.optimality.forced_promotions)
    assert figures["warm-ups"] == str(sum(len(roles.warmup) for roles in plan.assignment.values()))
    notes = opened.texts("#figures .note")
    assert plan.optimality.moves == plan.optimality.lower_bound
    assert "the fewest possible" in notes


#: The cells of a section's first table, a text for each row.
ROWS = """return [...document.querySelector(`${arguments[0]} table.rows tbody`).rows]
  .map((row) => [...row.cells].map((cell) => cell.textContent.trim()).join("|"))"""


def test_the_matrix_marks_what_the_plan_changes(opened, plan, problem):
    before = {
        (str(task), one.id): role
        for one in problem.instances
        for role in ("active", "standby", "warmup")
        for task in getattr(one, role)
    }
    after = {
        (str(task), name): role
        for name, roles in plan.assignment.items()
        for role, tasks in roles._asdict().items()
        for task in tasks
    }
    words = {"warmup": "warm-up"}

    def said(copy):
        now, was = (words.get(side.get(copy), side.get(copy)) for side in (after, before))
        if now == was:
            return now
        if now is None:
            return f"no longer {was}"
        return f"{now}, new" if was is None else f"{now}, was {was}"

    shown = {}
    top = 0
    while len(shown) < len(problem.tasks):  # only the rows in view are there
        opened.script("document.querySelector('.matrix').scrollTop = arguments[0]", top)
        opened.wait(lambda: opened.script(CELLS))
        shown |= opened.script(CELLS)
        top += 200
    expected = {}
    for task, name in {*before, *after}:
        expected.setdefault(task, {})[name] = said((task, name))
    assert shown == expected


#: By task, what the cells of the matrix say by instance, as far as they are in view.
CELLS = """const heads = [...document.querySelectorAll('.matrix [role=columnheader]')].slice(1);
const names = heads.map((one) => one.textContent);
const found = {};
for (const line of document.querySelectorAll('.matrix .space .line')) {
  const cells = [...line.querySelectorAll('.cell')].map((cell, k) => [names[k], cell.getAttribute('aria-label')]);
  found[line.querySelector('.task').textContent] = Object.fromEntries(cells.filter(([, said]) => said !== 'none'));
}
return found"""


def test_the_reasons_are_those_of_explain_and_can_be_searched(opened, plan, problem):
    search = opened.one("#reasons input[type=search]")
    task = str(plan.moves[0].task)
    opened.press(task, on=search)
    opened.wait(lambda: "of 24 tasks" in opened.one("#reasons output").text)
    assert task in opened.texts("#reasons tbody th")
    assert explain(problem, plan, task) in opened.texts("#reasons tbody pre")
    opened.press("no such task", on=search)
    opened.wait(lambda: opened.texts("#reasons tbody td") == ["nothing is found"])


def test_moves_are_listed_with_their_reasons_and_sorted(opened, plan):
    rows = [text.split("|") for text in opened.script(ROWS, "#moves")]
    assert {(row[1], row[4], row[5]) for row in rows} <= {(str(m.task), m.to, m.why) for m in plan.moves}
    head = opened.one("#moves thead th:nth-child(2) button")
    head.click()
    tasks = [text.split("|")[1] for text in opened.script(ROWS, "#moves")]
    assert tasks == sorted(tasks, key=lambda task: [int(part) for part in task.split("_")])
    assert opened.one("#moves thead th:nth-child(2)").get_attribute("aria-sort") == "ascending"


def test_it_follows_the_system_theme_and_can_be_switched(browser, plan_page):
    ground = "return getComputedStyle(document.body).backgroundColor"
    browser.open(plan_page)
    light = browser.script(ground)
    browser.open(plan_page, dark=True)
    dark = browser.script(ground)
    assert light != dark
    button = browser.one("#theme")
    button.click()
    assert (button.text, browser.script(ground)) == ("Theme: light", light)
    button.click()
    assert (button.text, browser.script(ground)) == ("Theme: dark", dark)
    browser.open(plan_page)  # it is remembered
    assert browser.script(ground) == dark
    browser.one("#theme").click()
    assert browser.script(ground) == light


@pytest.mark.parametrize("made", ["plan_page", "simulation_page"])
def test_a_phone_does_not_scroll_sideways(browser, made, request):
    browser.open(request.getfixturevalue(made), width=PHONE, height=740)
    for details in browser.all("details.data > summary"):
        details.click()
    assert browser.script("return document.documentElement.scrollWidth") == PHONE
    assert browser.errors() == []


def test_the_keyboard_is_enough(opened, problem):
    opened.press(Keys.TAB)
    assert opened.focus() == "Skip to the content"
    opened.press(Keys.ENTER)
    opened.press(Keys.TAB)
    assert opened.script("return document.getElementById('main').contains(document.activeElement)")
    opened.script("document.querySelector('.matrix').focus()")
    opened.press(Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    assert opened.texts("#placement .reading") == [
        f"task 0_1 on executor-1: {opened.one('.cell.here').get_attribute('aria-label')}"
    ]
    opened.press(Keys.CONTROL, Keys.END)
    last = max(problem.tasks, key=lambda task: task.id).id
    opened.wait(lambda: opened.texts("#placement .reading")[0].startswith(f"task {last} on executor-3"))
    pointed = opened.one(".matrix").get_attribute("aria-activedescendant")
    assert opened.script("return document.getElementById(arguments[0]).className", pointed) == "cell here"


def test_everything_that_can_be_used_has_a_name(opened):
    nameless = opened.script(
        """return [...document.querySelectorAll('button, select, input, a, [tabindex="0"], [role=img]')]
          .filter((one) => !(one.getAttribute('aria-label') || one.labels?.length || one.textContent.trim()))
          .map((one) => one.outerHTML)"""
    )
    assert nameless == []
    levels = opened.script("return [...document.querySelectorAll('h1, h2, h3')].map((one) => one.tagName)")
    assert levels[0] == "H1"
    assert levels.count("H1") == 1


def test_a_plan_without_its_problem_has_a_page_as_well(browser, plan, tmp_path):
    browser.open(write_page(report_of_plan(plan), tmp_path / "plan.html"))
    assert browser.figures()["changes now"] == str(len(plan.moves))
    assert not browser.one("#reasons").is_displayed()
    assert browser.errors() == []


def test_names_cannot_break_out_of_the_page(browser, tmp_path):
    name = "</script><img src=x onerror=alert(1)>"
    problem = taskplace.Problem.from_dict({"tasks": [{"id": "0_0"}], "instances": [{"id": name}]})
    report = report_of_plan(taskplace.plan(problem), problem, title=name)
    assert name not in page(report)
    browser.open(write_page(report, tmp_path / "page.html"))
    assert browser.one("h1").text == name
    assert browser.texts("#now tbody th") == [name]
    assert browser.errors() == []
