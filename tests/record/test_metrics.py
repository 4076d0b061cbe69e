"""The table of metrics, what Prometheus gets of it, its page of documentation, the alert rules and the dashboard."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import promql_parser
import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from taskplace.errors import InputError
from taskplace.record import prometheus as endpoint
from taskplace.record.metrics import BY_NAME, METRICS, STREAM
from taskplace.record.prometheus import Collector, check_serving, serve
from tests.support.pages import blocks

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "conf" / "prometheus" / "alerts.yml"
RULES = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((ROOT / "conf" / "grafana" / "taskplace.json").read_text())
TARGETS = [
    (f"{panel['title']} {target['refId']}", target["expr"])
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", ())
]
LABELS = {metric.exported: {STREAM, *metric.labels} for metric in METRICS} | {"up": {"job"}}
VALUES = {
    "batches-total": 7,
    "rebalance-latency-avg": 12.5,
    "rebalance-latency-total": 3_000,
    "last-rebalance-seconds-ago": None,
    "copy-lag": [
        {"task": "0_1", "role": "standby", "value": 40},
        {"task": "0_1", "role": "warmup", "value": 900},
    ],
}


def test_names_are_legal_occur_once_and_have_base_units():
    exported = [metric.exported for metric in METRICS]
    assert len(set(exported)) == len(exported) == len(BY_NAME) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", metric.name)
        assert re.fullmatch(r"taskplace(_[a-z]+)*", metric.exported) and "_ms" not in metric.exported
        assert (metric.kind == "counter") == metric.exported.endswith("_total")
        assert metric.kind == "counter" or not metric.kept


# -- the endpoint


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def test_samples_have_base_units_and_the_labels_of_the_table():
    registry = CollectorRegistry()
    registry.register(Collector(lambda: VALUES, stream="delays"))
    text = generate_latest(registry).decode()
    families, stream = text_string_to_metric_families(text), ("stream", "delays")
    assert {
        (one.name, *sorted(one.labels.items())): one.value for family in families for one in family.samples
    } == {
        ("taskplace_batches_total", stream): 7,
        ("taskplace_rebalance_latency_avg_seconds", stream): 0.0125,
        ("taskplace_rebalance_latency_seconds_total", stream): 3,
        ("taskplace_copy_lag", ("role", "standby"), stream, ("task", "0_1")): 40,
        ("taskplace_copy_lag", ("role", "warmup"), stream, ("task", "0_1")): 900,
    }, "what is not known has no sample"
    for metric in METRICS:
        assert f"# HELP {metric.exported} {metric.doc}\n" in text
        assert f"# TYPE {metric.exported} {metric.kind}\n" in text


def test_the_endpoint_listens_on_loopback_until_it_is_closed_and_outlives_an_error():
    values = [RuntimeError("not now"), VALUES]

    def read():
        value = values.pop(0)
        if isinstance(value, Exception):
            raise value
        return value

    server = serve(read, stream="delays", port=0)
    assert server.url == f"http://127.0.0.1:{server.port}/metrics"
    with pytest.raises(urllib.error.HTTPError, match="500"):
        get(server.url)
    assert 'taskplace_batches_total{stream="delays"} 7.0' in get(server.url)
    server.close()
    server.close()
    with pytest.raises(urllib.error.URLError):
        get(server.url)


def test_a_port_in_use_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=rf"^serve_metrics: found '127.0.0.1:{port} \(.*in use"):
            serve(lambda: VALUES, stream="delays", port=port)
        with pytest.raises(InputError, match=rf"^report.metrics.port: found '127.0.0.1:{port} \(.*in use"):
            check_serving("report.metrics.port", port=port, host="127.0.0.1")


@pytest.mark.parametrize(
    "where",
    [
        *({"port": port} for port in (-1, 65_536, "9404", None, True, 9404.0)),
        *({"port": 0, "host": host} for host in ("", None, 127, "203.0.113.1")),
    ],
    ids=str,
)
def test_an_address_that_is_none_is_refused(where):
    with pytest.raises(InputError, match=r"^serve_metrics: found .*, expected .* a port up to 65535"):
        serve(lambda: VALUES, stream="delays", **where)


def test_without_the_extra_the_error_names_it(monkeypatch):
    monkeypatch.setattr(endpoint, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"report.metrics.port: .*pip install 'taskplace\[metrics\]'"):
        check_serving("report.metrics.port", port=0, host="127.0.0.1")
    with pytest.raises(InputError, match=r"serve_metrics: .*taskplace\[metrics\]"):
        serve(lambda: VALUES, stream="delays", port=0)


def test_the_table_is_read_without_prometheus_client():
    """The driver uses it, and `prometheus-client` is an extra."""
    code = "import sys; import taskplace.spark.driver.metrics; print('prometheus_client' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


# -- the page


def test_the_page_is_what_the_code_declares(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import metrics

    text = metrics.FILE.read_text()
    assert text == metrics.page(text), "run `python scripts/metrics.py`"
    assert all(f"| `{metric.name}` " in text for metric in METRICS)
    sys.modules.pop("metrics")


# -- alerts and the dashboard


def selected(expression):
    """Return each metric that an expression selects, with the labels that it is selected by."""
    found = []

    def visit(node):
        if isinstance(node, promql_parser.VectorSelector):
            found.append((node.name, frozenset(each.name for each in node.matchers.matchers)))
        return True

    for name, value in {"$__rate_interval": "5m", "$stream": ".*"}.items():  # Grafana's variables
        expression = expression.replace(name, value)
    promql_parser.walk(promql_parser.parse(expression), visit)
    return found


def wrong(expression):
    """Return what an expression selects that is not exported."""
    return {
        (name, label)
        for name, labels in selected(expression)
        for label in (labels - LABELS[name] if name in LABELS else [None])
    }


def test_what_rules_and_panels_select_is_exported():
    documents = map(yaml.safe_load, blocks("docs/metrics.md", "yaml"))
    shown = [rule["expr"] for one in documents for group in one.get("groups", ()) for rule in group["rules"]]
    assert shown
    marks = [(each["name"], each["expr"]) for each in DASHBOARD["annotations"]["list"]]
    alerts = [(rule["alert"], rule["expr"]) for rule in RULES]
    for where, expression in (*alerts, *TARGETS, *marks, *enumerate(shown)):
        assert selected(expression), f"{where}: it selects nothing"
        assert wrong(expression) == set(), where
    assert wrong('sum(rate(taskplace_rows[$__rate_interval])) + taskplace_generation{task="0_1"}') == {
        ("taskplace_rows", None),
        ("taskplace_generation", "task"),
    }


def test_every_metric_is_on_the_dashboard():
    shown = {name for _, expression in TARGETS for name, _ in selected(expression)}
    missing = {metric.exported for metric in METRICS} - shown
    assert missing == {"taskplace_rebalance_latency_seconds_total"}, "for rates; the dashboard shows the mean"


def test_every_alert_says_what_happens_and_what_to_do():
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule["labels"]["severity"] in ("critical", "warning"), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description", "remedy"}, rule["alert"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
@pytest.mark.parametrize(
    "command", [("check", "rules", ALERTS), ("test", "rules", Path(__file__).with_name("alerts_test.yml"))]
)
def test_promtool_accepts_the_rules(command):
    run = subprocess.run(["promtool", *map(str, command)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
