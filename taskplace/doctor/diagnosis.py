"""Lets all rules look at an application, and sums up what they found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from taskplace.doctor.facts import Facts
from taskplace.doctor.findings import Finding, Found, Rule, Severity
from taskplace.doctor.rules import RULES

SCHEMA = "taskplace.diagnosis/1"
_ORDER = {severity: at for at, severity in enumerate(Severity)}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the rules say.

    - `findings`: worst first; of one severity, in the order of the rules
    - `looked`: the ids of the rules that could look
    - `unable`: by rule that could not, the reason
    """

    findings: tuple[Finding, ...]
    looked: tuple[str, ...]
    unable: Mapping[str, str]

    @property
    def worst(self) -> Severity | None:
        """The severity of the worst finding; None without any."""
        return self.findings[0].severity if self.findings else None

    @property
    def counts(self) -> dict[str, int]:
        """The number of findings of each severity, worst first."""
        found = Counter(finding.severity for finding in self.findings)
        return {str(severity): found[severity] for severity in Severity}

    def to_dict(self) -> dict[str, Any]:
        """Return the diagnosis as a "taskplace.diagnosis/1" dict."""
        return {
            "schema": SCHEMA,
            "counts": self.counts,
            "findings": [finding.to_dict() for finding in self.findings],
            "rules": {"looked": list(self.looked), "unable": dict(self.unable)},
        }


def diagnose(facts: Facts, rules: Iterable[Rule] = RULES) -> Diagnosis:
    """Return what the rules find in an application. Rules for another kind of application are left out."""
    findings: list[Finding] = []
    looked, unable = [], {}
    for rule in rules:
        if not (rule.steered if facts.steered else rule.placed):
            continue
        missing = [need for need in rule.needs if getattr(facts, need) is None]
        if missing:
            unable[rule.id] = facts.unknown.get(missing[0], f"nothing is known of the {missing[0]}")
            continue
        looked.append(rule.id)
        findings += rule.findings(facts)
    findings.sort(key=lambda finding: _ORDER[finding.severity])
    return Diagnosis(tuple(findings), tuple(looked), unable)


def refusals(facts: Facts, rules: Iterable[Rule] = RULES) -> Iterator[Found]:
    """Yield the errors for which `taskplace run` does not start Spark.

    Only rules that need neither a checkpoint nor a topology look: of the others, the start itself says more.
    """
    for rule in rules:
        if rule.severity is Severity.ERROR and not rule.needs and (rule.steered or not facts.steered):
            yield from (found for found in rule.look(facts) if found.expected)
