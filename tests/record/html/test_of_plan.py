"""Why tasks are where they are, on a page: the text of `taskplace explain --task`."""

from __future__ import annotations

import pytest

import taskplace
from taskplace import Problem
from taskplace.explanation import Explainer
from taskplace.record.html import of_plan
from tests.support.report_problems import cluster


@pytest.mark.parametrize("most", [5, 24])
def test_the_tasks_on_their_way_are_explained_first(monkeypatch, most):
    problem = Problem.from_dict(cluster(tasks=24, instances=4))
    explainer = Explainer(problem, taskplace.plan(problem))
    monkeypatch.setattr(of_plan, "MOST_REASONS", most)
    reasons, left_out = of_plan.reasons_of(explainer)
    assert len(reasons) == most and len(left_out) == (most < 24)
    for reason in reasons:
        assert reason.text == str(explainer.task(reason.task))
    moving = {str(task) for task in explainer.on_their_way()}
    assert len(moving & {reason.task for reason in reasons}) == min(most, len(moving))
