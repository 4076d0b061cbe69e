"""A diagnosis: the order of findings, the rules that cannot look, and no secrets."""

from __future__ import annotations

import pytest

from taskplace.doctor import RULES, Facts, Found, Severity, diagnose
from taskplace.doctor.findings import rule
from tests.support.doctor.sound_application import facts


def test_all_rules_look_at_an_application_of_which_all_is_known() -> None:
    found = diagnose(facts())
    assert (found.findings, found.unable, found.worst) == ((), {}, None)
    assert set(found.looked) == {rule.id for rule in RULES}


def test_findings_are_listed_worst_first() -> None:
    overrides = (
        "spark.conf.spark.sql.adaptive.enabled=true",  # advice
        "spark.conf.spark.speculation=true",  # warning
        "spark.conf.spark.remote='sc://host'",  # error
    )
    found = diagnose(facts(*overrides))
    assert [finding.severity for finding in found.findings] == ["error", "warning", "advice"]
    assert found.worst is Severity.ERROR
    assert found.counts == {"error": 1, "warning": 1, "advice": 1}


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ({"checkpoint": None}, "no checkpoint was given"),
        ({"topology": None}, "the topology is not in the file"),
        ({"stores": None}, "no Spark"),
    ],
)
def test_a_rule_without_its_facts_does_not_look(missing: dict[str, None], reason: str) -> None:
    (need,) = missing
    found = diagnose(facts(**missing, unknown={need: reason}))
    expected = {rule.id for rule in RULES if need in rule.needs}
    assert expected
    assert set(found.unable) == expected
    assert set(found.unable.values()) == {reason}
    assert set(found.looked) == {rule.id for rule in RULES} - expected


def test_rules_for_placed_streams_do_not_look_at_a_steered_query() -> None:
    found = diagnose(facts(steered=True, topology=None, stores=None))
    assert set(found.looked) == {rule.id for rule in RULES if rule.steered}
    assert found.unable == {}


def test_a_finding_shows_no_secret() -> None:
    @rule("leaky", Severity.ADVICE, "secrets")
    def leaky(facts: Facts):
        yield Found(
            "spark.conf.spark.ssl.keyPassword", "hunter2", "password=hunter2.", "login --password=hunter2"
        )

    (finding,) = leaky.findings(facts())
    assert "hunter2" not in str(finding.to_dict())


def test_a_diagnosis_as_a_document() -> None:
    document = diagnose(facts("spark.conf.spark.speculation=true", checkpoint=None)).to_dict()
    assert document["schema"] == "taskplace.diagnosis/1"
    (finding,) = document["findings"]
    assert finding == {
        "rule": "speculation",
        "severity": "warning",
        "path": "spark.conf.spark.speculation",
        "found": "true",
        "why": finding["why"],
        "remedy": "--set spark.conf.spark.speculation=false",
    }
    assert document["counts"] == {"error": 0, "warning": 1, "advice": 0}
    assert document["rules"]["unable"]["driver-runs"] == "nothing is known of the checkpoint"
