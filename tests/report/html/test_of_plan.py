"""Which tasks a page explains in full: the text of `taskplace explain --task`."""

from __future__ import annotations

import pytest
from taskplace.record.html import of_plan

import taskplace
from taskplace import Problem
from taskplace.explanation import Explainer
from tests.support.report_problems import cluster


@pytest.fixture(scope="module")
def explainer():
    problem = Problem.from_dict(cluster(tasks=24, instances=4))
    return Explainer(problem, taskplace.plan(problem))


def test_every_task_of_a_small_problem_is_explained_in_full(explainer):
    reasons, left_out = of_plan.reasons_of(explainer)
    assert (len(reasons), left_out) == (24, [])
    for reason in reasons:
        assert reason.text == str(explainer.in_full(reason.task))


@pytest.mark.parametrize("most", [0, 2])
def test_of_a_large_problem_the_first_tasks_on_their_way_are(explainer, monkeypatch, most):
    monkeypatch.setattr(of_plan, "ALL_IN_FULL", 23)
    monkeypatch.setattr(of_plan, "MOST_IN_FULL", most)
    first = {str(task) for task in sorted(explainer.on_their_way())[:most]}
    assert len(first) == most
    for reason in of_plan.reasons_of(explainer, of="my problem.json")[0]:
        assert reason.full == (reason.task in first)
        if reason.full:
            assert reason.text == str(explainer.in_full(reason.task))
        else:
            command = f"taskplace explain 'my problem.json' --task {reason.task}"
            assert reason.text == f"{explainer.task(reason.task)}\n  more    {command}"
