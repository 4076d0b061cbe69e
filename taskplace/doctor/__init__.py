"""Finds what endangers data in an application's configuration, and what has no effect, before it runs.

**Idea.** Facts are gathered once: the settings, the topology, Spark's properties, a checkpoint, this host. Then each
rule, a small pure function, reads them and yields findings. A finding says where, what, why it matters, and the remedy.

Properties: nothing is started or changed. A rule whose facts are missing is left out, and the diagnosis says so. No
finding shows a secret.

Non-goals: what Spark itself refuses at its start; what only a running stream shows (`taskplace status`); damage inside
files (`taskplace verify`); advice that needs no facts (docs/doctor.md).

>>> from taskplace.spec.application import Settings
>>> settings = Settings.from_mapping({
...     "application": {"id": "demo", "class": "shop.orders:Orders"},
...     "checkpoint": {"dir": "/data/demo/checkpoint"}, "state": {"dir": "/data/demo/state"},
...     "spark": {"conf": {"spark.speculation": True}},
... })
>>> facts = Facts(settings=settings, spark=SparkProperties(settings.spark))
>>> [(finding.rule, finding.remedy) for finding in diagnose(facts).findings]
[('speculation', '--set spark.conf.spark.speculation=false')]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import to_builtins

from taskplace.doctor.facts import CheckpointFacts as CheckpointFacts
from taskplace.doctor.facts import Facts as Facts
from taskplace.doctor.facts import Need as Need
from taskplace.doctor.facts import SparkProperties as SparkProperties
from taskplace.doctor.facts import StoreFacts as StoreFacts
from taskplace.doctor.facts import read_properties as read_properties
from taskplace.doctor.rules import RULES as RULES
from taskplace.doctor.rules import Finding as Finding
from taskplace.doctor.rules import Rule as Rule
from taskplace.doctor.rules import Severity as Severity
from taskplace.doctor.rules import ignored_key
from taskplace.spec.application import Settings

SCHEMA = "taskplace.diagnosis/1"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings of all rules.

    - `findings`: worst first; of one severity, in the order of the rules
    - `looked`: the ids of the rules that had their facts
    - `unable`: by rule that had not, the reason
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
            "findings": to_builtins(self.findings),
            "rules": {"looked": list(self.looked), "unable": dict(self.unable)},
        }


def diagnose(facts: Facts, rules: Iterable[Rule] = RULES) -> Diagnosis:
    """Return the findings for an application. Rules for another kind of application are left out."""
    findings: list[Finding] = []
    looked, unable = [], {}
    for rule in rules:
        if facts.steered and not rule.steered:
            continue
        missing = [need for need in rule.needs if getattr(facts, need) is None]
        if missing:
            unable[rule.id] = facts.unknown.get(missing[0], f"nothing is known of the {missing[0]}")
            continue
        looked.append(rule.id)
        findings += rule.findings(facts)
    worst_first = [finding for severity in Severity for finding in findings if finding.severity is severity]
    return Diagnosis(tuple(worst_first), tuple(looked), unable)


def ignored(settings: Settings, written: Collection[str]) -> dict[str, str]:
    """Return the keys without effect, each with the reason; a property of Spark is `spark.conf.<name>`.

    `written`: the paths of the keys that are set: a default is not ignored.
    """
    facts = Facts(settings=settings, spark=SparkProperties(settings.spark), written=frozenset(written))
    return {finding.path: finding.why for finding in ignored_key.findings(facts)}


def reason(reasons: Mapping[str, str], path: str) -> str:
    """Return why the value at a path has no effect, or "". The reason of a mapping is that of all its entries.

    >>> reason({"runtime.tags": "unused"}, "runtime.tags.host-1.zone")
    'unused'
    """
    return next((why for key, why in reasons.items() if f"{path}.".startswith(f"{key}.")), "")
