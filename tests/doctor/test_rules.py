"""Each rule fires on what it looks for, and not on a sound application; its remedy ends the finding."""

from __future__ import annotations

from itertools import combinations_with_replacement

import pytest

from taskplace.doctor import RULES, SUBJECTS, Severity, diagnose
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
from tests.support.doctor.remedies import changes
from tests.support.doctor.sound_application import facts

#: In so many rounds of remedies, everything that they can end has ended.
ROUNDS = 4
BY_ID = {rule.id: rule for rule in RULES}
SUBJECTS_OF_CASES = (checkpoints, executors, hosts, placement, scheduler, state, streams, versions)
NAMED = [
    pytest.param(name, case, id=f"{name}-{at}")
    for subject in SUBJECTS_OF_CASES
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
def test_a_remedy_ends_the_finding_and_makes_no_worse_one(name: str, case: Case) -> None:
    """Of remedies that are options of the command line, or keys to remove."""
    before = diagnose(case.facts()).findings
    first = next(finding for finding in before if (finding.rule, finding.path) == (name, case.path))
    made = changes(first.remedy)
    if not case.ends or made is None:
        return
    after = diagnose(case.facts(made)).findings
    assert (name, case.path) not in [(finding.rule, finding.path) for finding in after]
    # A key that another one has made useless is only said.
    worse = {(f.rule, f.path) for f in after if f.severity is not Severity.ADVICE and "ignored" not in f.rule}
    assert worse <= {(f.rule, f.path) for f in before}


#: Cases of the file alone, by subject: the remedies of one subject may meet the same keys.
MEETING = [
    [case for cases in subject.CASES.values() for case in cases if case.path and case.ends and not case.more]
    for subject in SUBJECTS_OF_CASES
]


@pytest.mark.parametrize(
    "cases", MEETING, ids=[subject.__name__.rpartition(".")[2] for subject in SUBJECTS_OF_CASES]
)
def test_all_remedies_one_after_the_other_end_all_findings(cases: list[Case]) -> None:
    """No remedy brings back what another one has ended: of each two cases together."""
    for one, other in combinations_with_replacement(cases, 2):
        case, done = Case("", (*one.overrides, *other.overrides)), []
        for _ in range(ROUNDS):
            done += [
                made for finding in diagnose(case.facts(*done)).findings if (made := changes(finding.remedy))
            ]
        findings = diagnose(case.facts(*done)).findings
        left = [(f.rule, f.path, f.remedy) for f in findings if changes(f.remedy)]
        assert left == [], case.overrides
