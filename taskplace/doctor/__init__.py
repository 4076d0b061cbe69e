"""Finds what is ignored, contradictory or slow in an application's configuration, before it runs.

**Idea.** Facts are gathered once: the settings, the topology, Spark's properties, a checkpoint, the installed packages,
this host. Then each rule, a small pure function, looks at them and yields findings. A finding says where, what, why it
matters, and the remedy.

Properties: nothing is started or changed. A rule whose facts are missing does not look, and the diagnosis says so.
Nothing that a rule says shows a secret.

Non-goals: what only a running stream shows (`taskplace status`); damage inside files (`taskplace verify`).

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

from taskplace.doctor.diagnosis import Diagnosis, diagnose, refusals
from taskplace.doctor.facts import (
    CheckpointFacts,
    Facts,
    HostFacts,
    MissingInput,
    Need,
    Package,
    StoreFacts,
    WrongInput,
)
from taskplace.doctor.findings import Finding, Found, Rule, Severity
from taskplace.doctor.rules import RULES, SUBJECTS
from taskplace.doctor.spark_properties import SparkProperties, read_properties

__all__ = [
    "RULES",
    "SUBJECTS",
    "CheckpointFacts",
    "Diagnosis",
    "Facts",
    "Finding",
    "Found",
    "HostFacts",
    "MissingInput",
    "Need",
    "Package",
    "Rule",
    "Severity",
    "SparkProperties",
    "StoreFacts",
    "WrongInput",
    "diagnose",
    "read_properties",
    "refusals",
]
