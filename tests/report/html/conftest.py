"""Pages, and the problems that they are made of."""

from __future__ import annotations

import pytest
from taskplace.record.html import report_of_plan, report_of_simulation, write_page

import taskplace
from taskplace import Problem, simulation
from tests.support.report_problems import EVENTS, cluster


@pytest.fixture(scope="session")
def problem():
    return Problem.from_dict(cluster(tasks=24, instances=4))


@pytest.fixture(scope="session")
def plan(problem):
    return taskplace.plan(problem)


@pytest.fixture(scope="session")
def plan_page(problem, plan, tmp_path_factory):
    report = report_of_plan(plan, problem, title="a plan")
    return write_page(report, tmp_path_factory.mktemp("pages") / "plan.html")


@pytest.fixture(scope="session")
def trajectory(problem):
    return simulation.simulate(problem, EVENTS, restore_rate=40)


@pytest.fixture(scope="session")
def simulation_page(trajectory, tmp_path_factory):
    report = report_of_simulation(trajectory, title="a simulation")
    return write_page(report, tmp_path_factory.mktemp("pages") / "simulation.html")
