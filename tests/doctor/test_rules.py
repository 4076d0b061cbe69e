"""Each rule fires on what it looks for, and not on a sound application; its remedy ends the finding."""

from __future__ import annotations

from itertools import combinations_with_replacement
from pathlib import Path

import pytest

from taskplace.doctor import RULES, SUBJECTS, MissingInput, Severity, diagnose
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
from tests.support.doctor.sound_application import CHECKPOINT, facts

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


@pytest.mark.parametrize(
    ("refused", "remedy"),
    [
        (
            "input.a.kafka.servers_env: found 'BROKERS', expected an environment variable that has brokers",
            "export BROKERS=host:9092",
        ),
        (
            "input.a.kafka: found 'no package', expected Kafka's client; pip install 'taskplace[kafka]'",
            "pip install 'taskplace[kafka]'",
        ),
        (
            "topology.nodes.n.options.tttl: found an unknown key, expected one of 2 known keys; did you mean 'ttl'?",
            "# rename topology.nodes.n.options.tttl to ttl",
        ),
        ("input.a.path: found nothing, expected a directory", "# correct input.a.path: expected a directory"),
        ("topology.nodes.n: unknown store 'delay'", "# correct topology.nodes.n"),
    ],
)
def test_the_remedy_of_a_refusal_is_what_the_refusal_asks_for(refused: str, remedy: str) -> None:
    (finding,) = BY_ID["start-refused"].findings(facts(refused=refused))
    assert finding.remedy == remedy


def test_the_remedy_of_a_missing_input_is_the_directory_that_is_there() -> None:
    missing = MissingInput("input.orders.path", Path("/data/order"), "/data/orders")
    (finding,) = BY_ID["input-missing"].findings(facts(missing_inputs=(missing,)))
    assert finding.remedy == "--set input.orders.path=/data/orders"
    (finding,) = BY_ID["input-missing"].findings(
        facts(file="a.yaml", missing_inputs=(missing._replace(near=""),))
    )
    assert finding.remedy.startswith("# make the input first, as the comments of a.yaml may say; ")
    assert finding.remedy.endswith(": mkdir -p /data/order")


def test_a_checkpoint_that_does_not_fit_is_left_alone() -> None:
    """The new one is beside that of the file, but not in a temporary directory; another one is never proposed."""
    rule, refused = BY_ID["checkpoint-of-another-application"], ("store 'n' is new", "store 'm' is gone")
    of_file = CHECKPOINT._replace(refused=refused)
    (finding,) = rule.findings(facts(checkpoint=of_file))
    assert finding.found == "store 'n' is new; store 'm' is gone"
    assert finding.remedy == "--set checkpoint.dir=/shared/shop/checkpoint-2"
    temporary = of_file._replace(path=Path("/tmp/checkpoint"))
    (finding,) = rule.findings(facts("checkpoint.dir=/tmp/checkpoint", checkpoint=temporary))
    assert finding.remedy == "--set checkpoint.dir=/shared/shop/checkpoint-2"
    (finding,) = rule.findings(facts(checkpoint=of_file._replace(path=Path("/backup"))))
    assert finding.remedy == "# leave checkpoint.dir as it is: /shared/shop/checkpoint"
