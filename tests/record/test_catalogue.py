"""The table of metrics: legal names, and a page of documentation that is written from it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from taskplace.record.metrics import BY_NAME, METRICS

ROOT = Path(__file__).parents[2]


def test_names_are_legal_and_occur_once():
    exported = [metric.exported for metric in METRICS]
    assert len(set(exported)) == len(exported) == len(BY_NAME) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", metric.name)
        assert re.fullmatch(r"taskplace(_[a-z]+)*", metric.exported)
        assert (
            (metric.kind == "counter") == metric.name.endswith("-total") == metric.exported.endswith("_total")
        )
        assert metric.kind == "counter" or not metric.kept


def test_exported_names_have_base_units():
    names = {
        name: BY_NAME[name].exported for name in ("rebalance-latency-total", "last-rebalance-seconds-ago")
    }
    assert names == {
        "rebalance-latency-total": "taskplace_rebalance_latency_seconds_total",
        "last-rebalance-seconds-ago": "taskplace_last_rebalance_seconds_ago",
    }
    assert not any("_ms" in metric.exported or "millis" in metric.exported for metric in METRICS)


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import metrics

    yield metrics
    sys.modules.pop("metrics")


def test_the_page_is_what_the_code_declares(script):
    text = script.FILE.read_text()
    assert text == script.page(text), "run `python scripts/metrics.py`"
    for metric in METRICS:
        assert f"| `{metric.name}` " in text
    changed = text.replace("| committed batches |", "| other words |")
    assert changed != text
    assert script.page(changed) == text


def test_a_page_without_the_marks_of_the_table_is_refused(script):
    with pytest.raises(ValueError, match="found no marks '<!-- metrics"):
        script.page(script.FILE.read_text().replace("<!-- end of metrics -->", ""))


def test_the_table_is_read_without_prometheus_client():
    """The driver uses it, and `prometheus-client` is an extra."""
    code = "import sys; import taskplace.spark.driver.metrics; print('prometheus_client' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"
