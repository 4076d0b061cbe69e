"""Alert rules and the dashboard use metrics that are exported, by labels that they have."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from taskplace.record.metrics import METRICS, STREAM
from tests.support.pages import blocks
from tests.support.promql import ALERTS, expressions, panels, rules, selected

LABELS = {metric.exported: {STREAM, *metric.labels} for metric in METRICS} | {"up": {"job"}}


def wrong(expression):
    """Return what an expression selects that is not exported."""
    return {
        (name, label)
        for name, labels in selected(expression)
        for label in (labels - LABELS[name] if name in LABELS else [None])
    }


@pytest.mark.parametrize(("where", "expression"), expressions().items())
def test_what_is_selected_is_exported(where, expression):
    assert list(selected(expression)), "it selects nothing"
    assert wrong(expression) == set()


def test_the_rules_that_the_docs_show_select_what_is_exported():
    shown = [
        rule["expr"]
        for block in blocks("docs/metrics.md", "yaml")
        for group in yaml.safe_load(block).get("groups", ())
        for rule in group["rules"]
    ]
    assert shown
    for expression in shown:
        assert wrong(expression) == set(), expression


def test_other_names_and_labels_are_found():
    assert wrong('sum(rate(taskplace_rows[$__rate_interval])) + taskplace_generation{task="0_1"}') == {
        ("taskplace_rows", None),
        ("taskplace_generation", "task"),
    }
    with pytest.raises(ValueError, match="brackets"):
        list(selected("rate(taskplace_rows_total[5m)"))


def test_every_metric_is_on_the_dashboard():
    shown = {
        name for panel in panels() for target in panel["targets"] for name, _ in selected(target["expr"])
    }
    missing = {metric.exported for metric in METRICS} - shown
    assert missing == {"taskplace_rebalance_latency_seconds_total"}, "for rates; the dashboard shows the mean"


def test_every_alert_says_what_happens_and_what_to_do():
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning"), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description", "remedy"}, rule["alert"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
@pytest.mark.parametrize(
    "command", [("check", "rules", ALERTS), ("test", "rules", Path(__file__).with_name("alerts_test.yml"))]
)
def test_promtool_accepts_the_rules(command):
    run = subprocess.run(["promtool", *map(str, command)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
