"""The remedies of the doctor, applied to the file that caused them: the file stays valid, and the findings are gone."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("pyspark")

from taskplace.spec.application import overridden

from taskplace.cli import main
from taskplace.cli.doctor import gather
from taskplace.doctor import Finding, diagnose
from taskplace.yaml_io import override
from tests.doctor.test_rules import BY_ID, FIRING
from tests.support.doctor.cases import Case
from tests.support.doctor.remedies import Changes, changes
from tests.support.doctor.sound_application import DOCUMENT, merged, without_key

PROPERTIES = "spark-defaults.conf"
#: No section has options, so each remedy has to make what it sets a key in.
WORDS: Mapping[str, Any] = yaml.safe_load("""
application: {id: words}
topology:
  sources:
    words: {key: word, partitions: 2}
  nodes:
    seen: {process: words, processor: aggregate, options: {by: {word: string}, aggregates: {n: count}}}
    counts: {sink: seen}
input:
  words: {format: parquet, path: in, schema: "word string, at timestamp"}
output:
  counts: {path: out}
""")
SEEN, SOURCE, INPUT = "topology.nodes.seen", "topology.sources.words", "input.words"
_TO = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "a"}
_KAFKA = {"format": "kafka", "select": ["cast(value as string) as word", "timestamp as at"]}
_TOPIC = {"kafka": {"topic": "words", "servers": "broker:9092", "value": {"format": "json"}}}
#: What is added to the file, or replaced in it; by path.
CASES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "nothing": {},
    "goes on": {"spark": {"trigger.interval": "10 s"}},
    "deduplicate": {
        SEEN: {"processor": "deduplicate", "options": {"by": {"word": "string"}, "aggregates": None}}
    },
    "count": {SEEN: {"processor": "count"}},
    "window without delay": {
        SOURCE: {"options": {"event_time": "at"}},
        SEEN: {"options": {"window": {"column": "at", "size": "1 h"}}},
    },
    "total behind a window, with a table": {
        SOURCE: {"options": {"event_time": "at", "delay": "1 minute"}},
        SEEN: {"process": "named", "options": {"window": {"column": "at", "size": "1 h", "emit": "final"}}},
        "topology.sources.names": {"key": "word", "partitions": 2},
        "topology.nodes": {
            "named": {"join_table": ["words", "names"], "processor": "table-join"},
            "totals": {**WORDS["topology"]["nodes"]["seen"], "process": "seen"},
            "counts": {"sink": "totals"},
        },
        "topology.nodes.named.options": {"by": {"word": "string"}, "columns": {"name": "string"}},
        "topology.nodes.totals.options": {"aggregates": {"all": {"sum": "n"}}},
        "input.names": {"format": "parquet", "path": "in", "schema": "word string, name string"},
    },
    "event time unused": {
        SOURCE: {"options": {"event_time": "at"}},
        SEEN: {"processor": "deduplicate"},
    },
    "kafka": {INPUT: {**_KAFKA, "options": _TO}},
    "kafka with options": {
        INPUT: {**_KAFKA, "options": {**_TO, "minPartitions": 8, "failOnDataLoss": False}}
    },
    "several hosts": {"spark": {"master": "spark://driver:7077", "trigger.interval": "10 s"}},
    "few slots": {"spark": {"master": "local-cluster[2,1,1024]"}, "placement": {"num.standby.replicas": 1}},
    "waits": {"spark": {"conf": {"spark.locality.wait": 0}}, "runtime": {"locality.wait.ms": 10}},
    "values": {"spark": {"conf": {"spark.executor.memory": "lots", "spark.executor.cores": "two"}}},
    "tags": {"placement": {"rack.aware.assignment.tags": ["zone"]}},
    "drill": {"chaos": [{"batch": 1, "kill": "1"}]},
    "report": {"report": {"log.tasks": True, "metrics.host": "0.0.0.0"}},
    "master twice": {"spark": {"master": "yarn", "conf": {"spark.master": "local[2]"}}},
}


#: The sections that rules look at beside the pipeline itself.
SETTINGS = ("spark", "placement", "runtime", "report", "checkpoint", "state")


def remedy(rule: str, case: Case) -> str:
    """The remedy of a rule's own case."""
    return next(found.remedy for found in BY_ID[rule].findings(case.facts()) if found.path == case.path)


def only_settings(case: Case, made: Changes | None) -> bool:
    """Whether a case and its remedy change these sections alone."""
    if made is None:
        return False
    keys = [*case.overrides, *made.overrides, *made.removed, *made.written]
    return bool(case.overrides) and all(key.partition(".")[0] in SETTINGS for key in keys)


OF_SETTINGS = [param for param in FIRING if only_settings(param.values[1], changes(remedy(*param.values)))]


def file_of(case: str) -> dict[str, Any]:
    document = dict(WORDS)
    for path, more in CASES[case].items():
        document = merged(document, path, more) if isinstance(more, Mapping) else {**document, path: more}
    if CASES[case].get(INPUT, {}).get("format") == "kafka":
        document = without_key(without_key(document, f"{INPUT}.path"), f"{INPUT}.schema")
    if document["topology"]["nodes"]["seen"]["processor"] != "aggregate":
        document = without_key(document, f"{SEEN}.options.aggregates")
    return document


def findings(properties: str = "") -> tuple[Finding, ...]:
    if properties:
        Path(PROPERTIES).write_text(properties)
    return diagnose(gather("app.yaml", spark_properties=PROPERTIES if properties else None)).findings


def apply(document: dict[str, Any], made: Changes) -> dict[str, Any]:
    """Return the file after the changes that are not options of the command line."""
    for path, lines in made.written.items():
        document = merged(document, path, lines)
    for path in made.removed:
        document = without_key(document, path)
    return document


def options(made: Changes) -> list[str]:
    """Return the overrides as options. The port is a free one: others may use the one of the remedy just now."""
    return [word for text in made.overrides for word in ("--set", text.replace("port=9404", "port=0"))]


@pytest.fixture(autouse=True)
def _directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()


@pytest.mark.parametrize("case", CASES)
def test_a_file_stays_valid_and_the_finding_is_gone(case: str) -> None:
    document = file_of(case)
    Path("app.yaml").write_text(yaml.safe_dump(document))
    before = findings()
    assert "start-refused" not in {finding.rule for finding in before}
    for finding in before:
        made = changes(finding.remedy)
        if made is None or "COLUMN" in finding.remedy:
            continue
        Path("app.yaml").write_text(yaml.safe_dump(apply(document, made)))
        after = diagnose(gather("app.yaml", made.overrides)).findings
        told = {(each.rule, each.path) for each in after}
        assert (finding.rule, finding.path) not in told, finding.remedy
        assert "start-refused" not in {rule for rule, _ in told}, finding.remedy
        if not any(each.severity == "error" for each in after):
            assert main(["run", "app.yaml", "--check", *options(made)]) == 0


@pytest.mark.parametrize("case", CASES)
def test_all_remedies_together_leave_nothing_to_do(case: str) -> None:
    document, overrides = file_of(case), []
    for _ in range(4):
        Path("app.yaml").write_text(yaml.safe_dump(document))
        for finding in diagnose(gather("app.yaml", overrides)).findings:
            made = changes(finding.remedy)
            if made is not None:
                document, overrides = apply(document, made), [*overrides, *made.overrides]
                overrides = [text for text in overrides if text.partition("=")[0] not in made.removed]
    Path("app.yaml").write_text(yaml.safe_dump(document))
    left = [f for f in diagnose(gather("app.yaml", overrides)).findings if changes(f.remedy)]
    assert [(f.rule, f.remedy) for f in left if "COLUMN" not in f.remedy] == []


def test_a_column_that_does_not_reach_the_node_is_no_remedy_to_paste() -> None:
    second = {"process": "seen", "processor": "aggregate", "options": {"by": {"word": "string"}}}
    nodes = {"twice": {**second, "options": {**second["options"], "aggregates": {"m": {"max": "n"}}}}}
    document = merged(WORDS, "topology.nodes", {**nodes, "counts": {"sink": "twice"}})
    document = merged(document, "topology.nodes.twice.options", {"over_changes": True})
    Path("app.yaml").write_text(yaml.safe_dump(document))
    remedies = {f.path: f.remedy for f in findings() if f.rule == "state-without-end"}
    assert remedies[f"{SEEN}.options.ttl"].startswith("--set ")
    assert remedies["topology.nodes.twice.options.ttl"].endswith(
        ", with the column at in the rows that reach twice"
    )


@pytest.mark.parametrize(("rule", "case"), OF_SETTINGS)
def test_the_remedy_of_a_rule_leaves_a_file_that_can_be_started(rule: str, case: Case) -> None:
    document = {**{name: DOCUMENT[name] for name in SETTINGS}, **file_of("window without delay")}
    for text in case.overrides:
        document = overridden(document, *override(text))
    made = changes(remedy(rule, case))
    assert made is not None
    Path("app.yaml").write_text(yaml.safe_dump(apply(document, made)))
    assert main(["run", "app.yaml", "--check", *options(made)]) == 0


def test_remedies_are_words_of_one_command() -> None:
    """Nothing in them needs a quote that is not there."""
    Path("app.yaml").write_text(yaml.safe_dump(file_of("goes on")))
    for finding in findings():
        assert shlex.split(finding.remedy, comments=True) or finding.remedy.startswith("# ")
