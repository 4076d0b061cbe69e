"""Each rule fires on what it looks for, and not on a sound application; its remedy, pasted, ends the finding."""

from __future__ import annotations

import pytest

from taskplace.doctor import RULES, SUBJECTS
from tests.support.doctor import (
    checkpoints,
    executors,
    hosts,
    placement,
    scheduler,
    state,
    streams,
    versions,
)
from tests.support.doctor.cases import Case
from tests.support.doctor.sound_application import facts, pasted

BY_ID = {rule.id: rule for rule in RULES}
NAMED = [
    pytest.param(name, case, id=f"{name}-{at}")
    for subject in (checkpoints, executors, hosts, placement, scheduler, state, streams, versions)
    for name, cases in subject.CASES.items()
    for at, case in enumerate(cases)
]
FIRING = [param for param in NAMED if param.values[1].path]
QUIET = [param for param in NAMED if not param.values[1].path]


def test_rules_have_different_names_and_each_has_a_case_that_fires() -> None:
    assert len(BY_ID) == len(RULES) == sum(map(len, SUBJECTS.values()))
    assert {param.values[0] for param in FIRING} == set(BY_ID)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_sound_application_has_no_finding(rule) -> None:
    assert rule.findings(facts()) == ()


@pytest.mark.parametrize(("name", "case"), FIRING)
def test_a_rule_fires(name: str, case: Case) -> None:
    found = BY_ID[name].findings(case.facts())
    assert case.path in [finding.path for finding in found]
    first = next(finding for finding in found if finding.path == case.path)
    assert first.severity is (case.severity or BY_ID[name].severity)
    assert case.says in first.found
    assert first.why.endswith(".")
    assert first.remedy and "\n" not in first.remedy


@pytest.mark.parametrize(("name", "case"), QUIET)
def test_a_rule_does_not_fire_beside_what_it_looks_for(name: str, case: Case) -> None:
    assert BY_ID[name].findings(case.facts()) == ()


@pytest.mark.parametrize(("name", "case"), FIRING)
def test_a_pasted_remedy_ends_the_finding(name: str, case: Case) -> None:
    """Of remedies that are options of the command line."""
    if not case.ends:
        return
    before = BY_ID[name].findings(case.facts())
    first = next(finding for finding in before if finding.path == case.path)
    overrides = pasted(first.remedy)
    if overrides is None:
        return
    after = BY_ID[name].findings(case.facts(*overrides))
    assert case.path not in [finding.path for finding in after]
